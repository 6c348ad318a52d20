"""The plan: cells, hours spent and hours left, before anything is measured."""

import dataclasses
import pathlib
import re

import pytest

from mmrl.commands import experiment
from mmrl.course.experiments import grid, parts, plan
from mmrl.course.experiments.grid import Row, rows
from mmrl.course.experiments.plan import Plan
from mmrl.course.experiments.queue import FIRST_GUESS, Device, Queue, Try
from mmrl.runs import append
from tests.helpers.cells import Cell, one

GRID = one(Cell("large", 9), Cell("small", 1), Cell("middle", 3))


def plan_of(out: pathlib.Path, *tries: Try, device: Device = "cpu", only: str = "") -> Plan:
    queue = Queue(out, device, grids=[GRID])
    queue.tries += tries
    return plan.plan(GRID, queue, only)


def test_a_run_and_a_job_record_the_seconds_of_their_rows(tmp_path: pathlib.Path):
    list(GRID.run(tmp_path, 9.0, False, "small"))
    list(parts.measure(GRID, tmp_path, ["large"]))
    list(parts.merge(GRID, tmp_path))
    result = rows(tmp_path / "one.jsonl")
    assert [row["cell"] for row in result] == ["small", "large"]
    assert all(0 < row[name] < 60 for row in result for name in ("elapsed_s", "processor_s"))


def test_short_times_are_not_rounded_to_0(monkeypatch: pytest.MonkeyPatch):
    watch = grid.Stopwatch()
    monkeypatch.setattr(grid.time, "monotonic", lambda: watch._began[0] + 2469.0)
    monkeypatch.setattr(grid.time, "process_time", lambda: watch._began[1] + 0.02469)
    assert watch.shares(2) == {"elapsed_s": 1230.0, "processor_s": 0.0123}


def test_missing_cells_cost_in_proportion_to_the_rows(tmp_path: pathlib.Path):
    append(tmp_path / "one.jsonl", {"cell": "small", "processor_s": 20.0, "elapsed_s": 30.0})
    result = plan_of(tmp_path)
    assert result.spent_seconds == 20.0 and result.timed_rows == 1
    assert result.estimate.seconds == {"large": 180.0, "middle": 60.0} and result.seconds == 240.0
    assert plan_of(tmp_path, device="gpu").seconds == 360.0
    some = plan_of(tmp_path, only="mid")
    assert len(some.cells) == 1 and some.estimate.seconds == {"middle": 60.0}
    assert (some.spent_seconds, some.rows, some.estimate.source) == (0.0, 0, "1 row")


def test_an_outdated_row_takes_as_long_as_before(tmp_path: pathlib.Path):
    append(tmp_path / "one.jsonl", {"cell": "small", "processor_s": 20.0})
    append(tmp_path / "one.jsonl", {"cell": "middle", "processor_s": 6.0})
    old = dataclasses.replace(GRID, outdated=lambda row, rows: row["cell"] == "middle")
    result = plan.plan(old, Queue(tmp_path, "cpu", grids=[old]))
    assert result.estimate.seconds == {"large": 9 * 11.0, "middle": 6.0}  # median of 20 and 2


def test_an_older_row_has_the_seconds_of_training(tmp_path: pathlib.Path):
    row = {"cell": "small", "cpu_seconds": [1.0, 2.5], "seeds": [0, 1]}
    append(tmp_path / "one.jsonl", row)
    assert plan_of(tmp_path).spent_seconds == 5.0
    on_gpu = plan_of(tmp_path, device="gpu")
    assert on_gpu.timed_rows == 0 and on_gpu.estimate.source == "a first guess"
    estimate = plan_of(tmp_path, Try("one", ["x"], "measured", 7.0), device="gpu").estimate
    assert estimate.elapsed and estimate.source == "tries of the queue"


@pytest.mark.parametrize(
    ("rows", "hours"),
    [
        ([], "0.00 h"),
        ([{"cell": "small"}], "≥ 0.00 h"),
        ([{"cell": "small"}, {"cell": "large", "processor_s": 36.0}], "≥ 0.01 h"),
        ([{"cell": "small", "processor_s": 36.0}], "0.01 h"),
    ],
)
def test_rows_without_seconds_make_the_hours_a_lower_bound(
    tmp_path: pathlib.Path, rows: list[Row], hours: str
):
    for row in rows:
        append(tmp_path / "one.jsonl", row)
    _, _, *sums = [*plan.lines(tmp_path, "cpu", grids=[GRID])][:4]
    for line in sums:
        assert re.fullmatch(rf"\S+ +3 +\d +\d +{hours} +\S+ h.*", line), line


def test_hours_of_elapsed_time_are_counted_apart_on_a_cpu(tmp_path: pathlib.Path):
    timing = dataclasses.replace(GRID, name="timed")
    append(tmp_path / "timed.jsonl", {"cell": "small", "processor_s": 360.0, "elapsed_s": 36.0})

    def ends(device: Device) -> list[str]:
        _, _, *lines = plan.lines(tmp_path, device, grids=[GRID, timing])
        return [line.rpartition(" h  ")[2] for line in lines]

    assert ends("cpu")[:2] == ["a first guess, elapsed", "1 row"]
    assert ends("cpu")[2].startswith("0.10 h")  # 3 cells at 120 s
    assert ends("gpu")[:2] == ["a first guess", "1 row"] and ends("gpu")[2].endswith(" h")


def test_the_time_of_an_outdated_row_is_spent_although_its_cell_is_not_done(tmp_path: pathlib.Path):
    append(tmp_path / "one.jsonl", {"cell": "small", "processor_s": 3600.0})
    old = dataclasses.replace(GRID, outdated=lambda row, rows: True)
    line = [*plan.lines(tmp_path, "cpu", grids=[old])][2]
    assert line.split()[:6] == ["one", "3", "0", "3", "1.00", "h"]


def test_without_rows_the_estimate_is_that_of_the_queue(tmp_path: pathlib.Path):
    assert plan_of(tmp_path).seconds == 3 * FIRST_GUESS["cpu"]
    attempt = Try("one", ["other"], "measured", 7.0)
    assert plan_of(tmp_path, attempt).seconds == 21.0


def test_cells_that_failed_are_counted(tmp_path: pathlib.Path):
    assert plan_of(tmp_path, Try("one", ["large"], "no memory", 7.0)).failures == {"large"}


def test_nothing_is_measured_and_all_is_listed(tmp_path: pathlib.Path):
    append(tmp_path / "one.jsonl", {"cell": "small", "processor_s": 3600.0})
    before = sorted(tmp_path.iterdir())
    _, _, line, total, *rest = plan.lines(tmp_path, "cpu", grids=[GRID])
    assert line.split()[:8] == ["one", "3", "1", "2", "1.00", "h", "12.00", "h"]
    assert total.split()[:8] == ["all", "3", "1", "2", "1.00", "h", "12.00", "h"]
    assert [text.split(",")[0] for text in rest] == ["Left: large", "Left: middle"]
    assert sorted(tmp_path.iterdir()) == before


def test_the_command_plans_one_experiment_or_all(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
    where = ["--plan", "--device", "cpu", "--out", str(tmp_path)]
    assert experiment.main(["ffm", *where]) == 0
    assert "Left: " in capsys.readouterr().out
    assert experiment.main(where) == 0
    text = capsys.readouterr().out
    assert all(f"\n{each.name} " in text for each in Queue(tmp_path, "cpu").grids)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--queue"], r"`submit`, `merge`, `unit`, `queue` and `plan`"),
        (["--only", "a"], r"`only` .*one experiment.*`only`"),
    ],
)
def test_options_that_do_not_belong_to_a_plan_are_refused(words: list[str], error: str):
    with pytest.raises(ValueError, match=error):
        experiment.main(["--plan", *words])
