"""Every experiment chooses learning rates by one rule, and brings older rows up to it."""

import json
import pathlib
from typing import Any

import numpy as np
import pytest

from mmrl import runs
from mmrl.course.experiments import batching, ewma, ppo, r2d2, staleness, tuning
from mmrl.course.experiments.resuming import resume
from mmrl.runs.checkpoint import loads

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
    trained: list[float] = []

    def train(cell: Any, config: Any, rates: Any, seeds: Any) -> tuple[Any, ...]:
        trained.extend(rates)
        shown = curves(rates, fast=max(experiment.RATES))
        if experiment is batching:
            return shown, {"fill": np.ones((len(shown), 16))}
        return (shown, [0.0] * 16) if experiment is ppo else (shown, {}, None)

    monkeypatch.setattr(experiment, "train", train)
    cell = experiment.cells()[0]
    row = experiment.measure(cell, True)
    assert row["learning_rate"] == max(experiment.RATES)  # not the smallest of equals
    beyond = next(rate for rate in tuning.GRID if rate > row["learning_rate"])
    assert list(row["tuning"]) == list(map(str, (*experiment.RATES, beyond)))
    assert trained.count(beyond) == len(row["tuning_seeds"]) and not row["tuning_at_bound"]
    assert row["tuning_areas"][str(row["learning_rate"])] == 1.0

    # A row of the old rule: the best of three, the smallest of equals.
    old = {**row, "learning_rate": experiment.RATES[0], "date": "then"}
    old["tuning"] = {str(rate): 1.0 for rate in experiment.RATES}
    del old["tuning_areas"], old["tuning_at_bound"]
    assert tuning.outdated(old) and not tuning.outdated(row)
    again = experiment.measure(cell, True, old)
    assert again["learning_rate"] == row["learning_rate"] and "date" not in again
    # One whose agents have the right rate keeps them.
    trained.clear()
    stands = experiment.measure(cell, True, {**old, "learning_rate": row["learning_rate"]})
    assert stands["date"] == "then" and stands["tuned"]["date"] and len(trained) == 8
    assert stands["tuning"] == row["tuning"] and stands["returns"] == row["returns"]


def test_a_row_is_brought_up_to_date_in_its_place(tmp_path: pathlib.Path):
    cells = [batching.Cell("RepeatFirstEasy", memory) for memory in ("lru", "gru", "ffm")]
    rows = [{"cell": cell.name, "tuning": {"0.1": 1.0}} for cell in cells]
    for row in rows[:2]:
        runs.append(tmp_path / "x.jsonl", row)
    seen: list[str] = []

    def measure(cell: Any, quick: bool, old: dict[str, Any] | None = None) -> dict[str, Any]:
        seen.append(f"{cell.memory} {'again' if old else 'new'}")
        kept = old if old and cell.memory == "lru" else {"cell": cell.name, "tuning": {"0.1": 1.0}}
        return {**kept, "tuning_areas": {}}

    before = (tmp_path / "x.jsonl").read_text()
    rest = (lambda row: "done", 9.0, True, tuning.outdated)
    assert list(resume("x", tmp_path, cells[::-1], measure, *rest))[-1].startswith("0 of 3")
    assert seen == ["gru again", "lru again", "ffm new"]
    after = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [row["cell"] for row in after] == [cell.name for cell in cells]
    assert {**after[0], "tuning_areas": None} == {
        **json.loads(before.splitlines()[0]),
        "tuning_areas": None,
    }
    assert all("tuning_areas" in row and row["date"] for row in after)
    assert list(resume("x", tmp_path, cells, measure, *rest)) == ["0 of 3 cells remain: all done."]
    late = resume("y", tmp_path, cells, measure, lambda row: "", 0.0, True)
    assert next(late) == "3 of 3 cells remain."
    with pytest.raises(ValueError, match="of a cell that"):
        runs.revise(tmp_path / "x.jsonl", {"cell": "another"})


@pytest.mark.slow
def test_stale_rows_grow_by_the_rates_that_they_lack(monkeypatch: pytest.MonkeyPatch):
    cell = staleness.Cell("Catch", "decoupled", 1)
    monkeypatch.setattr(staleness, "ALL_RATES", staleness.RATES)
    row = staleness.measure(cell, True)
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
        if tuning.outdated(row):
            best = max(row["tuning"], key=lambda rate: row["tuning"][rate])
            assert row["learning_rate"] == float(best), row["cell"]
        elif row.get("tuning"):
            chosen = tuning.choose(
                refuse,
                [one.setting for one in tuning.recall(row)],
                {"learning_rate": grid},
                span=spans.get(row["task"], 1.0 if by_area else 2.0),
                score=tuning.area if by_area else tuning.final,
                known=tuning.recall(row),
            )
            assert tuning.record(chosen).items() <= row.items(), row["cell"]
