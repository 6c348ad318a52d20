"""Every experiment chooses learning rates by one rule, and brings older rows up to it."""

import pathlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mmrl.course.ch07_train_it import experiment_batching as batching
from mmrl.course.ch09_r2d2 import experiment_r2d2 as r2d2
from mmrl.course.ch10_ppo_with_memory import experiment_ppo as ppo
from mmrl.course.ch11_three_policies import experiment_ewma as ewma
from mmrl.course.ch11_three_policies import experiment_staleness as staleness
from mmrl.course.experiments import tuning
from mmrl.course.experiments.fleet import Fleet, FleetResult
from mmrl.runs.checkpoint import loads
from tests.helpers import fake_training

RESULTS = pathlib.Path(__file__).parents[3] / "book" / "results"
LEDGERS = ("batching", "ewma", "ppo", "r2d2", "staleness", "invariance")
SLOW, FAST, WRONG = np.r_[[0.0] * 12, [1.0] * 4], np.ones(16), np.full(16, -1.0)


def curves(rates: Any, fast: float) -> np.ndarray:
    """All rates but 3e-2 arrive; one of them at once."""
    kinds = [FAST if rate == fast else WRONG if rate > 2e-2 else SLOW for rate in rates]
    return np.stack(kinds)


@pytest.mark.parametrize("experiment", [batching, r2d2, ppo])
def test_a_tie_is_broken_by_area_and_an_edge_is_looked_beyond(
    experiment: Any, monkeypatch: pytest.MonkeyPatch
):
    rates_tried: list[float] = []

    def train(cell: Any, config: Any, rates: Any, seeds: Any) -> FleetResult:
        rates_tried.extend(rates)
        example = curves(rates, fast=max(experiment.RATES))
        return FleetResult(
            example, SimpleNamespace(fill=np.ones((len(example), 16))), [0.0] * 16, None
        )

    monkeypatch.setattr(experiment, "train", train)
    cell = experiment.cells()[0]
    row = experiment.measure(cell, True)
    assert row["learning_rate"] == max(experiment.RATES)  # not the smallest of equals
    beyond = next(rate for rate in tuning.GRID if rate > row["learning_rate"])
    assert list(row["tuning"]) == list(map(str, (*experiment.RATES, beyond)))
    assert rates_tried.count(beyond) == len(row["tuning_seeds"]) and not row["tuning_at_bound"]
    assert row["tuning_areas"][str(row["learning_rate"])] == 1.0

    # A row of the old rule: the best of three, the smallest of equals.
    old = {**row, "learning_rate": experiment.RATES[0], "date": "then"}
    old["tuning"] = {str(rate): 1.0 for rate in experiment.RATES}
    del old["tuning_areas"], old["tuning_at_bound"]
    assert tuning.is_stale(old) and not tuning.is_stale(row)
    again = experiment.measure(cell, True, old)
    assert again["learning_rate"] == row["learning_rate"] and "date" not in again
    # One whose agents have the right rate keeps them.
    rates_tried.clear()
    stands = experiment.measure(cell, True, {**old, "learning_rate": row["learning_rate"]})
    assert stands["date"] == "then" and stands["tuned"]["date"] and len(rates_tried) == 8
    assert stands["tuning"] == row["tuning"] and stands["returns"] == row["returns"]


@pytest.mark.slow
def test_stale_rows_grow_by_the_rates_that_they_lack(monkeypatch: pytest.MonkeyPatch):
    cell = staleness.Cell("Catch", "decoupled", 1)
    monkeypatch.setattr(Fleet, "train", fake_training.train)
    monkeypatch.setattr(staleness, "ALL_RATES", staleness.RATES)
    row = staleness.measure(cell, True)
    mine = fake_training.returns({"learning_rate": staleness.RATES[0]}, staleness.SEEDS[0], 2)
    np.testing.assert_allclose(row["returns"][0][0], mine, atol=1e-3)
    old = {name: value for name, value in row.items() if not name.startswith("tuning_a")}
    monkeypatch.setattr(staleness, "ALL_RATES", (*staleness.RATES, 1.6e-2))
    new = staleness.measure(cell, True, old, [1.6e-2])
    assert new["rates"] == [*row["rates"], 1.6e-2] and np.shape(new["returns"]) == (4, 5, 2)
    assert new["returns"][:3] == row["returns"] and new["areas"][:3] == row["areas"]
    np.testing.assert_equal(
        [values[:3] for values in new["diagnostics"].values()], list(row["diagnostics"].values())
    )
    assert list(new["tuning"]) == list(new["tuning_areas"]) == [str(rate) for rate in new["rates"]]


@pytest.mark.parametrize("name", LEDGERS)
def test_published_rates_are_what_the_rule_chooses(name: str):
    """Or, in rows from before it, the best of those that were tried."""
    grid = {"ewma": ewma.ALL_RATES, "staleness": staleness.ALL_RATES}.get(name, tuning.GRID)
    spans = {task.name: task.span for task in batching.TASKS.values()} if name == "batching" else {}
    by_area = name in ("ewma", "staleness", "invariance")

    def refuse(settings: list[tuning.Setting]) -> Any:
        raise AssertionError(f"{settings} should have been tried")

    for line in (RESULTS / f"{name}.jsonl").read_text("utf-8").splitlines():
        row = loads(line)
        if tuning.is_stale(row):
            best = max(row["tuning"], key=lambda rate: row["tuning"][rate])
            assert row["learning_rate"] == float(best), row["cell"]
        elif row.get("tuning"):
            choice = tuning.choose(
                refuse,
                [one.setting for one in tuning.recall(row)],
                {"learning_rate": grid},
                span=spans.get(row["task"], 1.0 if by_area else 2.0),
                score=tuning.area if by_area else tuning.final,
                trials=tuning.recall(row),
            )
            assert tuning.record(choice).items() <= row.items(), row["cell"]
