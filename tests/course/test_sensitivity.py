"""Sensitivities ∂Q(s_n, a_n)/∂o_i: against differences, closed forms and walls; their figures."""

import dataclasses
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.axes import Axes

from mmrl import memory
from mmrl.course.ch08_what_truncation_costs import experiment_sensitivity as experiment
from mmrl.course.ch08_what_truncation_costs import figures as show
from mmrl.course.figures.lines import lines
from mmrl.course.instruments import sensitivity
from mmrl.course.results import published_rows
from mmrl.memory import LRU
from mmrl.nets import Net
from mmrl.runs import Run

STEPS, OBS = 7, 5
derivatives = eqx.filter_jit(sensitivity)


def episode(key: int = 1) -> tuple[jax.Array, jax.Array, jax.Array]:
    obs = jax.random.normal(jax.random.key(key), (STEPS, OBS))
    actions = jax.random.randint(jax.random.key(key + 1), (STEPS,), 0, 3)
    return obs, actions, jnp.arange(STEPS) == 0


def network(name: str) -> Net:
    net = Net.make(name, OBS, 3, width=6, dueling=True, key=jax.random.key(0))
    return jax.tree.map(lambda x: x.astype(float) if eqx.is_inexact_array(x) else x, net)


@pytest.mark.full
@pytest.mark.parametrize("name", ["lru", "ffm", "linear_attention", "gru"])
def test_derivatives_are_differences(name: str):
    net, (obs, actions, begin) = network(name), episode()

    @jax.jit
    def q_of_actions(obs):
        q = net(net.init(), obs, begin)[1]
        return jnp.take_along_axis(q, actions[:, None], 1)[:, 0]

    result = derivatives(net, obs, actions, begin)
    assert result.shape == (STEPS, STEPS, OBS)
    direction = jax.random.normal(jax.random.key(5), (STEPS, OBS))
    for i in range(STEPS):
        one = jnp.where(jnp.arange(STEPS)[:, None] == i, direction, 0)
        expected = (q_of_actions(obs + 1e-2 * one) - q_of_actions(obs - 1e-2 * one)) / 2e-2
        np.testing.assert_allclose(result[:, i] @ direction[i], expected, rtol=0.02, atol=3e-3)


@pytest.mark.slow
def test_an_lru_has_the_closed_form():
    model = LRU(OBS, 3, state_size=4, key=jax.random.key(2))
    obs, actions, begin = episode()
    result = derivatives(model, obs, actions, begin)
    λ = np.asarray(model.eigenvalues, complex)
    B = np.sqrt(1 - np.abs(λ) ** 2)[:, None] * (model.read_in[0] + 1j * model.read_in[1])
    C = np.asarray(model.read_out[0] + 1j * model.read_out[1])
    for n, i in itertools.product(range(STEPS), repeat=2):
        expected = (C[actions[n]] * λ ** max(n - i, 0) @ B).real * (i <= n)
        expected = expected + (i == n) * model.skip.weight[actions[n]]
        np.testing.assert_allclose(result[n, i], expected, atol=2e-5)


@pytest.mark.full
@pytest.mark.slow
def test_only_some_steps_may_be_asked_for():
    net, arguments = network("lru"), episode()
    some = derivatives(net, *arguments, jnp.array([6, 2]))
    np.testing.assert_allclose(some, derivatives(net, *arguments)[np.array([6, 2])], atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lru", "gru"])
def test_nothing_comes_from_the_future_or_across_a_begin(name: str):
    obs, actions, _ = episode()
    begin = jnp.array([True, False, False, True, False, True, False])
    sizes = jnp.linalg.norm(derivatives(network(name), obs, actions, begin), axis=-1)
    number = np.cumsum(np.asarray(begin))
    own = (number[:, None] == number) & (np.arange(STEPS)[:, None] >= np.arange(STEPS))
    assert np.all((np.asarray(sizes) > 0) == own)


@pytest.mark.full
@pytest.mark.slow
def test_a_swap_is_another_episode():
    net, (obs, _, begin) = network("ffm"), episode()
    result = eqx.filter_jit(experiment.swaps)(net, obs, begin)
    for i, suit in ((0, 1), (3, 0), (6, 2)):
        other = np.array(obs)
        other[i, : experiment.SUITS] = np.eye(experiment.SUITS)[suit]
        expected = net(net.init(), jnp.asarray(other), begin)[1][-1]
        np.testing.assert_allclose(result[i, suit], expected, atol=1e-5)


@pytest.mark.parametrize("length", [1, 3, 10, 40])
def test_the_share_outside_of_a_segment(length: int):
    sizes = np.random.default_rng(0).uniform(size=12)
    best, average = experiment.outside(sizes, length)
    places = [sizes[p + 1 :].sum() / sizes.sum() for p in range(length)]
    np.testing.assert_allclose([best, average], [places[-1], np.mean(places)], atol=1e-12)


def test_the_share_outside_of_geometric_sizes_is_the_bias():
    best, _ = experiment.outside(0.8 ** np.arange(500), 10)
    assert best == pytest.approx(0.8**10)


def test_a_triangle_is_written_row_after_row():
    matrix = np.array([[1.0, 0, 0], [2, 3, 0], [4, 5, 6]])
    assert experiment.lower(matrix).tolist() == [1, 2, 3, 4, 5, 6]


class IdleRun(Run):
    """In place of `Run`: nothing is learned in its blocks."""

    def __iter__(self) -> Iterator[Any]:
        history = [{"returns": [0.0] * len(self.setup.seeds)}]
        self.snapshot = self.snapshot._replace(state=self.begin(), history=history)
        yield from self.history


@pytest.mark.full
def test_the_experiment_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(experiment, "Run", IdleRun)
    monkeypatch.setattr(experiment, "EPISODES", 2)
    cell = experiment.Cell("RepeatFirstEasy", "lru", "segments")
    grid = dataclasses.replace(experiment.GRID, cells=[cell])
    assert list(grid.run(tmp_path, 9.0, True))[-1] == "0 of 1 cells remain: all done."
    rows = [json.loads(x) for x in (tmp_path / "sensitivity.jsonl").read_text().splitlines()]
    assert [row["cell"] for row in rows] == [cell.name] and rows[0]["segment_length"] > 0
    assert all(row["quick"] and np.shape(row["gradient"]) == (5, 51) for row in rows)
    # Who learned nothing is as before training.
    before = np.mean(rows[0]["gradient"], axis=0)
    np.testing.assert_allclose(rows[0]["untrained"], before, rtol=1e-2, atol=1e-6)


def test_the_published_rows_agree_with_themselves():
    rows = published_rows("sensitivity")
    assert len({row["cell"] for row in rows}) == len(rows) >= 7
    for row in rows:
        assert not row["quick"] and row["memory"] in memory.NAMES and len(row["seeds"]) >= 5
        shares = [experiment.outside(np.array(x), 10)[0] for x in row["gradient"]]
        low, high = row["outside_95"]
        assert min(shares) - 1e-3 <= low <= row["outside"] <= high <= max(shares) + 1e-3
        assert len(row["example"]) == experiment.EXAMPLE_STEPS * (experiment.EXAMPLE_STEPS + 1) // 2
        assert max(row["flips"]) <= 1 and np.min(row["swap"]) >= 0


def test_figures():
    rng = np.random.default_rng(0)
    ax = show.by_age(
        {"a": rng.uniform(size=(5, 20)), "b": np.ones((3, 20))}, required_age=9, title="t"
    )
    assert isinstance(ax, Axes) and ax.get_yscale() == "log" and ax.get_xlabel()
    np.testing.assert_allclose(ax.lines[-2].get_ydata(), 1 / 20)
    ax = show.outside({"a": {"gradient": rng.uniform(size=5), "swap": rng.uniform(size=5)}})
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a"] and ax.get_xlim() == (0, 100)
    curves = {"a": np.ones(5), "b": np.ones(5)}
    ax = lines(curves, np.arange(5), xlabel="x", ylabel="y", references={"one": 1.0})
    heights = [text.xy[1] for text in ax.texts if text.get_text() in curves]
    assert len(heights) == 2 and heights[0] != heights[1], "labels must not overlap"


@pytest.mark.parametrize("row", [np.zeros(4), np.array([1.0, np.nan])])
def test_a_row_without_a_sum_is_refused(row: np.ndarray):
    with pytest.raises(ValueError, match=r"`sizes\['a'\]` must have a finite sum above 0"):
        show.by_age({"a": row[None]})
