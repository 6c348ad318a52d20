"""What chapters 10 and 11 draw, and the experiment behind chapter 10."""

import dataclasses
import json
import pathlib
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.agents import ppo as agent
from mmrl.course.ch10_ppo_with_memory import experiment_ppo as ppo
from mmrl.course.ch10_ppo_with_memory import figures as memories
from mmrl.course.ch11_three_policies import figures as proximal
from mmrl.course.experiments.grid import settings
from mmrl.envs import make
from mmrl.envs.wrappers import FlattenObservation


def row(memory: str, **changes: Any) -> dict[str, Any]:
    base = {
        "cell": f"Task, {memory}", "memory": memory, "returns": [[0.0, 0.5], [0.0, 1.0]],
        "env_steps": [1000, 2000], "interquartile_mean": 0.75, "interval_95": [0.5, 1.0],
        "learning_rate": 1e-3, "cpu_seconds": [1.0, 2.5],
    }  # fmt: skip
    return base | changes


def test_every_row_is_a_curve_of_its_name():
    ax = memories.curves([row("lru"), row("gru")], lambda r: r["memory"], best=1.0, title="Task")
    assert {"lru", "gru", "best"} <= {text.get_text() for text in ax.texts}
    ends = [line.get_ydata()[-1] for line in ax.get_lines() if line.get_linewidth() == 2]
    assert [float(end) for end in ends] == [0.75, 0.75]


@pytest.mark.parametrize("other", [row("lru"), row("gru", env_steps=[1000, 3000])])
def test_rows_that_do_not_fit_together_are_refused(other: dict[str, Any]):
    with pytest.raises(ValueError, match=r"`rows` must .* `env_steps`.* got 2 rows"):
        memories.curves([row("lru"), other], lambda r: r["memory"])


def test_a_summary_has_a_line_per_row():
    first, second = memories.summary([row("lru"), row("none")]).splitlines()
    assert first.startswith("Task, lru") and "[   0.50,    1.00]" in first and "2 k steps" in first
    assert "2.5 CPU-s" in second


def stale(proximal: str, staleness: int, *areas: float, task: str = "Task") -> dict[str, Any]:
    """A row whose three seeds all have these areas, one per rate; the second rate is its best."""
    return {
        "task": task, "proximal": proximal, "staleness": staleness, "rates": [1e-3, 4e-3],
        "learning_rate": 4e-3, "interquartile_mean": list(areas), "areas": [[a] * 3 for a in areas],
        "interval_95": [[a - 0.1, a + 0.1] for a in areas],
    }  # fmt: skip


ROWS = [
    stale("behavior", 16, 0.2, 0.3),
    stale("behavior", 0, 0.8, 0.9),
    stale("behavior", 4, 0.6, 0.7),
    stale("decoupled", 4, 0.7, 0.4),
]


@pytest.mark.parametrize(
    ("rate", "behavior", "decoupled"),
    [(1e-3, [0.8, 0.6, 0.2], [0.8, 0.7]), (None, [0.9, 0.7, 0.3], [0.9, 0.4])],
)
def test_lines_begin_where_nothing_is_stale_and_go_on_in_order(rate, behavior, decoupled):
    ax = proximal.area_by_staleness(ROWS, rate, title="Task")
    lines = {line.get_label(): line for line in ax.get_lines() if line.get_linewidth() == 1.6}
    assert set(lines) == {"behavior", "decoupled"}
    assert list(lines["behavior"].get_ydata()) == behavior
    assert list(lines["decoupled"].get_ydata()) == decoupled
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0", "4", "16"]
    assert np.allclose(np.round(lines["behavior"].get_xdata()), [0, 1, 2])


def test_intervals_and_seeds_stand_at_their_line():
    ax = proximal.area_by_staleness(ROWS, 1e-3)
    bars = [line.get_ydata() for line in ax.get_lines() if line.get_linewidth() == 2]
    assert any(np.allclose(bar, [0.1, 0.3]) for bar in bars) and len(bars) == 5
    dots = [line for line in ax.get_lines() if line.get_marker() == "."]
    assert len(dots) == 5 and all(len(line.get_ydata()) == 3 for line in dots)


@pytest.mark.parametrize("rows", [ROWS[:1], [*ROWS, stale("recent", 4, 0.1, 0.1, task="Other")]])
def test_staleness_needs_a_beginning_and_one_task(rows: list[dict[str, Any]]):
    with pytest.raises(ValueError, match=r"`rows` must .* staleness 0"):
        proximal.area_by_staleness(rows)


def test_gains_stand_at_their_task_with_their_interval_and_test():
    rows = [
        {
            "cell": f"{name}-EWMA against {name}", "tasks": ["One", "Two"], "p": {"area": p},
            "area_difference": [gain, -gain], "area_interval_95": [[0, 2 * gain], [-2 * gain, 0]],
        }
        for name, gain, p in (("PPO", 0.1, 0.25), ("PPG", 0.2, 0.003))
    ]  # fmt: skip
    ax = proximal.gains(rows, title="Average")
    names = {text.get_text() for text in ax.get_legend().get_texts()}
    assert names == {"PPO-EWMA against PPO, p = 0.25", "PPG-EWMA against PPG, p = 0.003"}
    marks = [line for line in ax.get_lines() if line.get_linestyle() == "None"]
    assert [list(line.get_ydata()) for line in marks] == [[0.1, -0.1], [0.2, -0.2]]
    assert all(np.array_equal(np.round(line.get_xdata()), [0, 1]) for line in marks)
    bars = [list(line.get_ydata()) for line in ax.get_lines() if line.get_linewidth() == 2]
    assert [0, 0.2] in bars and [-0.4, 0] in bars and len(bars) == 4


def test_bands_write_every_number_at_its_place():
    values = np.array([[0.0, 0.25], [0.5, 1.0], [0.75, 0.1]])
    ax = proximal.bands(values, [0.5, 1.0, 2.0], [4.0, 8.0], title="Bands")
    labels = {tuple(map(float, text.get_position())): text for text in ax.texts}
    assert (
        len(labels) == 6 and labels[1, 1].get_text() == "1.00" and labels[0, 2].get_text() == "0.75"
    )
    assert [labels[at].get_color() for at in ((0, 0), (1, 1))] == ["black", "white"]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["0.5", "1", "2"]


def test_cells_are_the_ones_that_are_published():
    path = pathlib.Path(__file__).parents[3] / "book" / "results" / "ppo.jsonl"
    cells = {cell.name: cell for cell in ppo.cells()}
    assert len(cells) == len(ppo.cells())
    for line in path.read_text("utf-8").splitlines():
        row = json.loads(line)
        cell = cells[row["cell"]]
        now = json.loads(json.dumps(settings(cell.config)))
        assert now | row["settings"] == now  # later versions have more of them
        assert not row["quick"]
        rates = (ppo.CART_POLE.learning_rate,) if cell.task == ppo.POLE else ppo.RATES
        assert row["learning_rate"] in rates
        assert not set(row["seeds"]) & set(row["tuning_seeds"])


@pytest.mark.full
@pytest.mark.slow
def test_who_forgets_learns_from_zero_and_from_all_else_as_it_was(monkeypatch: pytest.MonkeyPatch):
    calls: list[Any] = []

    def learn(config: Any, state: Any, rollout: Any, key: Any, measure: Any) -> Any:
        calls.append((config, state, rollout, key, measure))
        return real(config, state, rollout, key, measure)

    real = agent.learn
    monkeypatch.setattr(agent, "learn", learn)
    monkeypatch.setattr(ppo, "BATCH", 64)
    rates = {"learning_rate": np.float32([1e-3])}
    keys = jax.vmap(jax.random.key)(np.arange(1, dtype=np.uint32))
    for start in ppo.STARTS:  # which of them go through `forgetful`
        cell = ppo.Cell("RepeatPreviousPaper", "gru", 16, start)
        config = dataclasses.replace(cell.config, **ppo.QUICK)
        fleet = ppo._fleet(cell.task, start)
        jax.eval_shape(fleet._go_on, *jax.eval_shape(fleet._begin, config, rates, keys))
        assert bool(calls) == (start == "forgotten")
    *_, rollout, _, _ = calls.pop()

    env, params = make("popgym-RepeatPreviousPaper-v0")
    init = partial(agent.init, config, FlattenObservation(env), params)
    state = jax.eval_shape(init, keys[0])
    monkeypatch.setattr(agent, "learn", lambda *x: calls.append(x) or (state, None))
    other = jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), rollout)
    ppo.forgetful(config, state, other, keys[0], jnp.array(True))
    *_, batch, key, measure = calls.pop()
    assert jax.tree.map(jnp.shape, batch.state) == jax.tree.map(jnp.shape, other.state)
    assert all((x == 0).all() for x in jax.tree.leaves(batch.state))
    same = {name: getattr(other, name) for name in other._fields if name != "state"}
    assert all(getattr(batch, name) is value for name, value in same.items())
    assert (key == keys[0]) and measure
