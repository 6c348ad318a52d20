"""What old rollouts cost: agents side by side, areas, and the rows that are published."""

import dataclasses
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import runs
from mmrl.agents.common import Metrics
from mmrl.course import plain
from mmrl.course.ch11_three_policies import experiment_staleness as staleness
from mmrl.course.ch11_three_policies import proximal
from mmrl.course.experiments.fleet import Fleet
from mmrl.runs.checkpoint import dumps, loads

RESULTS = pathlib.Path(__file__).parents[3] / "book" / "results" / "staleness.jsonl"


class Toy:
    """An agent whose return is its rate times the blocks so far, and whose loss may diverge."""

    @staticmethod
    def check(config: Any, env: Any, params: Any) -> None:
        pass

    @staticmethod
    def init(config: Any, env: Any, params: Any, key: Any) -> Any:
        return {"sum": jnp.zeros(()), "of": jax.random.key_data(key)[-1]}

    @staticmethod
    def block(config: Any, env: Any, params: Any, state: Any) -> Any:
        total = state["sum"] + config.learning_rate
        metrics = Metrics(
            returns=jnp.full(2, total),
            lengths=jnp.ones(2, jnp.int32),
            loss=total,
            fill=jnp.ones(()),
            finite=(state["of"] != 7) | (total != 2 * config.learning_rate),
            diagnostics={"of": state["of"]},
        )
        return {**state, "sum": total}, metrics


def test_agents_side_by_side_keep_their_own_numbers():
    config = dataclasses.replace(plain.PPO, blocks=3)
    fleet = Fleet(Toy, None, None)
    result = fleet.train(config, {"learning_rate": [1.0, 2.0, 4.0]}, [5, 6, 7])
    nan = np.nan
    np.testing.assert_allclose(result.returns, [[1, 2, 3], [2, 4, 6], [4, nan, nan]])
    assert result.metrics.diagnostics["of"].tolist() == [[5] * 3, [6] * 3, [7] * 3]
    assert len(result.cpu_seconds) == 3 and (np.diff(result.cpu_seconds) >= 0).all()
    again = fleet.train(config, {"learning_rate": [3.0, 3.0, 3.0]}, [1, 2, 3])
    assert list(fleet.programs) == [3] and again.returns[:, -1].tolist() == [9, 9, 9]
    assert result.state["of"].tolist() == [5, 6, 7]


def test_an_area_is_a_mean_between_a_random_policy_and_the_best():
    task = proximal.Task("Any", "any", worst=-1.0, best=3.0)
    returns = np.array([[-1.0] * 4 + [3.0] * 4, [3.0, 1.0, *[np.nan] * 6]])
    np.testing.assert_allclose(task.areas(returns), [0.5, 1.5 / 8])
    np.testing.assert_allclose(task.finals(returns), [1.0, 0.0])
    np.testing.assert_allclose(task.areas(returns[None]), [[0.5, 1.5 / 8]])


def test_cells_differ_in_one_thing_at_a_time():
    cells = staleness.cells()
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        alone = staleness.Cell(cell.task).config
        same = dataclasses.replace(cell.config, proximal=alone.proximal, staleness=0)
        assert same == alone
    fresh = [cell for cell in cells if cell.staleness == 0]
    assert len(fresh) == len(staleness.TASKS)  # without staleness the three are one


def test_published_rows_are_of_these_cells():
    cells = {cell.name: cell for cell in staleness.cells()}
    for line in RESULTS.read_text("utf-8").splitlines():
        row = loads(line)
        cell, task = cells[row["cell"]], staleness.TASKS[row["task"]]
        now = loads(dumps(staleness.settings(cell.config)))
        assert now | row["settings"] == now  # later versions have more of them
        assert not row["quick"] and not set(row["seeds"]) & set(row["tuning_seeds"])
        returns = np.array(row["returns"])
        assert returns.shape == (len(row["rates"]), len(row["seeds"]), len(row["env_steps"]))
        assert [row["worst"], row["best"]] == [task.worst, task.best]
        np.testing.assert_allclose(row["areas"], task.areas(returns), atol=2e-4)
        np.testing.assert_allclose(row["finals"], task.finals(returns), atol=2e-4)
        for area, middle in zip(row["areas"], row["interquartile_mean"], strict=True):
            assert runs.interval(np.array(area))[0] == pytest.approx(middle, abs=1e-3)
        assert row["learning_rate"] == float(max(row["tuning"], key=lambda r: row["tuning"][r]))


@pytest.mark.full
def test_nothing_is_said_of_what_was_not_learned_from(monkeypatch: pytest.MonkeyPatch):
    """Two blocks of an iteration each: with S = 1 the first is spent on waiting."""
    monkeypatch.setattr(staleness, "RATES", (1e-3,))
    monkeypatch.setattr(staleness, "ALL_RATES", (1e-3,))
    row = staleness.measure(staleness.Cell("Catch", "decoupled", 1), quick=True)
    assert row["filling_steps"] == row["env_steps"][0] and row["quick"]
    for values in row["diagnostics"].values():
        assert np.isnan(values[0][0]) and np.isfinite(values[0][1])
    assert np.shape(row["returns"]) == (1, len(staleness.SEEDS), 2)
