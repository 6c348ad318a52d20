"""The rows that compare compiled equations with the same by hand."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.course.ch17_compiling import by_hand, rivals
from mmrl.course.ch17_compiling import experiment_graphs as graphs
from mmrl.course.programs import ActorCritic, Environment, ppo
from mmrl.pdg.passes import vectorize
from mmrl.pdg.run import compile
from mmrl.pdg.run.xla import xla

RESULTS = Path(__file__).parents[3] / "book" / "results" / "graphs.jsonl"


def test_rivals_that_train_other_parameters_are_not_timed():
    def train(by: float) -> Any:
        return lambda key: ({"w": jnp.ones((2, 3)).at[1, 2].add(by), "b": jnp.zeros(3)}, key)

    forms = {"by hand": train(0.0), "other": train(1e-6)}
    rivals.agree(forms, jax.random.key(5))
    with pytest.raises(AssertionError, match="other"):
        rivals.agree(forms | {"other": train(1e-3)}, jax.random.key(5))


def test_an_episode_ends_beyond_the_edge():
    env = by_hand.screen(16)
    obs, x = env.reset(jax.random.key(0))
    assert obs.shape == (16,) and abs(float(x)) <= 0.5
    _, _, reward, terminated, cut = env.step(jax.random.key(1), jnp.float32(1.2), jnp.int32(1))
    assert bool(terminated) and not cut and float(reward) < 0


def crashing(last_obs: float) -> Environment:
    """A narrower screen, which shows `last_obs` at the end."""
    env = by_hand.screen(4)

    def step(key: Any, x: Any, action: Any) -> tuple:
        obs, x, reward, *_ = env.step(key, x, action)
        terminated = jnp.abs(x) > 0.4
        return jnp.where(terminated, last_obs, obs), x, reward, terminated, False

    return Environment(env.reset, step)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_a_terminal_observation_that_is_not_finite_does_no_harm(compiled: bool):
    def train(obs: float) -> Any:
        parts = crashing(obs), by_hand.critic(4), by_hand.descent(0.01)
        if not compiled:
            run = by_hand.ppo(*parts, 2, 2, 16, 3, ActorCritic())
            return jax.jit(run)(jax.random.key(0))
        graph = compile(ppo(*parts), {"batch": lambda g: vectorize(g, "b")})
        return xla(graph, {"I": 2, "K": 2, "T": 16, "B": 3})(key=jax.random.key(0))

    expected = jax.tree.leaves(train(0.0))
    for value in (jnp.nan, jnp.inf):
        jax.tree.map(np.testing.assert_array_equal, jax.tree.leaves(train(value)), expected)


def test_every_row_has_a_name_of_its_own():
    kinds = [cell.name.partition(",")[0] for cell in graphs.cells()]
    sizes = 1 + sum(map(len, graphs.VARIATIONS.values()))
    assert kinds.count("time") == 2 * sizes
    assert kinds.count("interpreter") == 2
    assert kinds.count("bytes") == 2 * len(graphs.SIZES)
    assert kinds.count("live") == len(graphs.WINDOWS)
    assert kinds.count("decoder") == len(graphs.GENERATIONS)
    assert kinds.count("chosen") == sizes * len(graphs.PROGRAMS) + 1
    assert kinds.count("residuals") == len(graphs.PROGRAMS) and kinds.count("epochs") == 2
    assert kinds.count("swap") == 2 and kinds.count("window") == 6
    assert kinds.count("lift") == len(graphs.STEPS) * len(graphs.LENGTHS)


def test_every_row_is_published_once():
    rows = [json.loads(line) for line in RESULTS.read_text("utf-8").splitlines()]
    assert sorted(row["cell"] for row in rows) == sorted(cell.name for cell in graphs.cells())
    assert all(row["seeds"] == [0] and not row["quick"] for row in rows)


@pytest.mark.full
def test_rows_are_written_once(tmp_path: Path):
    lines = list(graphs.GRID.run(tmp_path, float("inf"), quick=True))
    rows = [json.loads(line) for line in (tmp_path / "graphs.jsonl").read_text().splitlines()]
    kinds = ["time", "interpreter", "bytes", "live", "lift", "ppo", "ppo_bytes", "swap"]
    kinds += ["residuals", "decoder", "chosen"]
    assert [row["kind"] for row in rows] == kinds
    assert all(row["quick"] and row["seeds"] == [0] and "device" in row for row in rows)
    time, both, bytes_, live, _, _, _, swap, _, codegen, choice = rows
    assert time["ms"].keys() == time["bytes"].keys() and "by hand" in time["ms"]
    assert both["ms"].keys() == both["bytes"].keys() > time["ms"].keys()
    assert bytes_["swapped"]["device"] <= bytes_["swapped"]["host"]
    assert len(live["live"]) == len(live["learning"]) and max(live["live"]) <= live["peak"]
    sizes = swap["bytes"]
    assert sizes["swapped"] < sizes["kept"] and sizes["on the host"] > 0
    assert codegen["ms"].keys() == {"by hand", "by hand, ring", "ours"}
    assert "chosen" in choice["ms"] and choice["ms"].keys() == choice["bytes"].keys()
    assert lines[-1] == "0 of 11 cells remain: all done."
    assert list(graphs.GRID.run(tmp_path, float("inf"), quick=True)) == lines[-1:]
