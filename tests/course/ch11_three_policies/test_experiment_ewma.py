"""An average as proximal policy against none: fair settings, differences, published rows."""

import dataclasses
import pathlib
from typing import Any

import numpy as np
import pytest
import scipy.stats

from mmrl import runs
from mmrl.agents.ppo import ppg
from mmrl.course.ch11_three_policies import experiment_ewma as ewma
from mmrl.course.ch11_three_policies.proximal import TASKS
from mmrl.course.experiments.fleet import Fleet
from mmrl.course.experiments.grid import settings
from mmrl.runs.checkpoint import dumps, loads
from tests.helpers import fake_training

RESULTS = pathlib.Path(__file__).parents[3] / "book" / "results" / "ewma.jsonl"


def rows(shift: float) -> dict[str, dict[str, Any]]:
    """PPO on every task, and PPO-EWMA, which is better by `shift`."""
    draw = np.random.default_rng(0).normal
    results = {}
    for task in TASKS:
        for algorithm, more in (("PPO", 0.0), ("PPO-EWMA", shift)):
            areas, finals = draw(size=8) + more, draw(size=8) - more
            name = ewma.Cell(task, algorithm).name
            results[name] = {"areas": areas.tolist(), "finals": finals.tolist()}
    return results


def test_a_comparison_sees_what_is_there():
    none, some = (ewma.compare(ewma.Comparison("PPO"), rows(shift)) for shift in (0.0, 3.0))
    assert abs(none["z"]["area"]) < 2 < 4 < some["z"]["area"] < -some["z"]["final"] + 2
    assert none["p"]["area"] > 0.05 and some["p"]["area"] < 1e-4
    assert none["p"]["area"] == pytest.approx(2 * scipy.stats.norm.sf(abs(none["z"]["area"])))
    for differs, (low, high) in zip(some["area_difference"], some["area_interval_95"], strict=True):
        assert 0 < low < differs < high and differs == pytest.approx(3, abs=1.5)


def test_a_difference_has_an_interval_as_wide_as_both_samples_ask_for():
    draw = np.random.default_rng(1).normal
    exact, spread = np.full(200, 1.0), draw(size=200)
    middle, low, high = ewma.difference(spread, exact)
    alone = runs.interval(spread)
    np.testing.assert_allclose([middle, low, high], np.array(alone) - 1, atol=0.02)
    _, low, high = ewma.difference(spread, draw(size=200))
    assert high - low == pytest.approx(np.sqrt(2) * (alone[2] - alone[1]), rel=0.2)


def test_algorithms_differ_in_the_average_alone():
    cells = ewma.cells()
    assert len({cell.name for cell in cells}) == len(cells)
    for cell in cells:
        if not isinstance(cell, ewma.Cell):
            continue
        alone = ewma.Cell(cell.task, cell.base).config
        same = dataclasses.replace(cell.config, proximal=alone.proximal)
        assert same == alone and isinstance(alone, ppg.Config) == (cell.base == "PPG")
        assert cell.config.prox_center == cell.config.minibatches
    sizes = {(c.config.block, c.config.blocks) for c in cells if getattr(c, "task", "") == "Catch"}
    assert len(sizes) == 1  # all see the same steps


def test_published_rows_are_of_these_cells():
    cells = {cell.name: cell for cell in ewma.cells()}
    rows = ewma.GRID.read(RESULTS.parent)
    for row in rows.values():
        cell = cells[row["cell"]]
        if isinstance(cell, ewma.Comparison):
            again = ewma.compare(cell, rows)
            assert {k: row[k] for k in again} == loads(dumps(again))
            continue
        now = loads(dumps(settings(cell.config)))
        assert now | row["settings"] == now  # later versions have more of them
        assert not row["quick"] and not set(row["seeds"]) & set(ewma.TUNING_SEEDS)
        if isinstance(cell, ewma.Surface):
            assert np.shape(row["areas"])[:2] == (len(row["weights"]), len(row["centers"]))
            np.testing.assert_allclose(row["means"], np.mean(row["areas"], axis=-1), atol=2e-4)
            continue
        task, returns = TASKS[row["task"]], np.array(row["returns"])
        np.testing.assert_allclose(row["areas"], task.areas(returns), atol=2e-4)
        np.testing.assert_allclose(row["finals"], task.finals(returns), atol=2e-4)
        assert row["learning_rate"] == float(max(row["tuning"], key=lambda r: row["tuning"][r]))


@pytest.mark.full
@pytest.mark.slow
def test_both_agents_run_with_an_average_and_without(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ewma, "RATES", (1e-3,))
    monkeypatch.setattr(ewma, "ALL_RATES", (1e-3,))
    monkeypatch.setattr(ewma, "TUNING_SEEDS", (1000,))
    monkeypatch.setattr(ewma, "SEEDS", (0,))
    monkeypatch.setattr(Fleet, "train", fake_training.train)
    for algorithm, rates in (("PPO", 1), ("PPG-EWMA", 2)):
        row = ewma.measure(ewma.Cell("Catch", algorithm), quick=True)
        assert row["learning_rate"] == 1e-3 and row["quick"]
        names = ("learning_rate", "auxiliary_rate")[:rates]
        numbers = dict.fromkeys(names, 1e-3)
        np.testing.assert_allclose(
            row["returns"], [fake_training.returns(numbers, 0, 2)], atol=1e-3
        )
        np.testing.assert_allclose(row["diagnostics"]["kl_proximal"], row["returns"][0], atol=1e-3)


@pytest.mark.slow
def test_a_surface_varies_two_numbers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ewma, "CENTERS", (1.0, 8.0, 64.0))
    monkeypatch.setattr(ewma, "WEIGHTS", (0.5, 2.0))
    monkeypatch.setattr(Fleet, "train", fake_training.train)
    row = ewma.measure_surface(ewma.Surface("Catch"), quick=True)
    assert np.shape(row["areas"]) == (2, 3, len(ewma.GRID_SEEDS))
    numbers = {"learning_rate": ewma.GRID_RATE, "prox_center": 64.0, "kl_weight": 0.5}
    returns = fake_training.returns(numbers, ewma.GRID_SEEDS[1], 2)
    expected = TASKS["Catch"].areas(returns[None])[0]
    assert row["areas"][0][2][1] == pytest.approx(expected, abs=1e-3)
