"""The rows that compare compiled equations with the same by hand."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from mmrl.course.experiments import by_hand, graphs, rivals

PUBLISHED = Path(__file__).parents[3] / "book" / "results" / "graphs.jsonl"


def test_rivals_that_train_other_parameters_are_not_timed():
    def trained(by: float) -> Any:
        return lambda key: ({"w": jnp.ones((2, 3)).at[1, 2].add(by), "b": jnp.zeros(3)}, key)

    forms = {"by hand": trained(0.0), "other": trained(1e-6)}
    rivals.agree(forms, jax.random.key(5))
    with pytest.raises(AssertionError, match="other"):
        rivals.agree(forms | {"other": trained(1e-3)}, jax.random.key(5))


def test_an_episode_ends_beyond_the_edge():
    env = by_hand.screen(16)
    obs, x = env.reset(jax.random.key(0))
    assert obs.shape == (16,) and abs(float(x)) <= 0.5
    _, _, reward, ended, cut = env.step(jax.random.key(1), jnp.float32(1.2), jnp.int32(1))
    assert bool(ended) and not cut and float(reward) < 0


def test_every_row_has_a_name_of_its_own():
    kinds = [cell.name.partition(",")[0] for cell in graphs.cells()]
    sizes = 1 + sum(map(len, graphs.VARIED.values()))
    assert kinds.count("time") == 2 * sizes
    assert kinds.count("interpreter") == 2
    assert kinds.count("bytes") == 2 * len(graphs.SIZES)
    assert kinds.count("live") == len(graphs.WINDOWS)
    assert kinds.count("decoder") == len(graphs.GENERATED)
    assert kinds.count("swap") == 2 and kinds.count("window") == 6
    assert kinds.count("lift") == len(graphs.STEPS) * len(graphs.LENGTHS)


def test_every_row_is_published_once():
    rows = [json.loads(line) for line in PUBLISHED.read_text("utf-8").splitlines()]
    assert sorted(row["cell"] for row in rows) == sorted(cell.name for cell in graphs.cells())
    assert all(row["seeds"] == [0] and not row["quick"] for row in rows)


@pytest.mark.full
def test_rows_are_written_once(tmp_path: Path):
    said = list(graphs.GRID.run(tmp_path, float("inf"), quick=True))
    rows = [json.loads(line) for line in (tmp_path / "graphs.jsonl").read_text().splitlines()]
    kinds = ["time", "interpreter", "bytes", "live", "lift", "ppo", "swap", "decoder"]
    assert [row["kind"] for row in rows] == kinds
    assert all(row["quick"] and row["seeds"] == [0] and "device" in row for row in rows)
    time, both, bytes_, live, _, _, swap, generated = rows
    assert time["ms"].keys() == time["bytes"].keys() and "by hand" in time["ms"]
    assert both["ms"].keys() == both["bytes"].keys() > time["ms"].keys()
    assert bytes_["swapped"]["device"] <= bytes_["swapped"]["host"]
    assert len(live["live"]) == len(live["learning"]) and max(live["live"]) <= live["peak"]
    held = swap["bytes"]
    assert held["swapped"] < held["kept"] and held["on the host"] > 0
    assert generated["ms"].keys() == {"by hand", "by hand, ring", "ours"}
    assert said[-1] == "0 of 8 cells remain: all done."
    assert list(graphs.GRID.run(tmp_path, float("inf"), quick=True)) == said[-1:]
