"""The queue: every missing row once, in order, whatever ends a process."""

import dataclasses
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from mmrl.course import experiments
from mmrl.course.experiments import parts, queue
from mmrl.course.experiments.grid import rows
from mmrl.course.experiments.queue import Queue, studies
from tests.helpers.cells import Cell, one

GRID = one(Cell("large", 9), Cell("small", 1), Cell("broken", 5))


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Measure in this process, where the cell "broken" fails. Return the names of cells tried."""
    names: list[str] = []

    def run(command: Sequence[str], device: str, limit: float, rest: float) -> str:
        if "--out" not in command:  # does the device start?
            return ""
        out, name = pathlib.Path(command[command.index("--out") + 1]), command[-1]
        names.append(name)
        if name == "broken":
            return "no memory"
        assert len(list(parts.measure(GRID, out, [name]))) == 1
        return ""

    monkeypatch.setattr(queue, "_run_command", run)
    return names


def test_every_experiment_waits_in_the_queue():
    grids = studies()
    assert sorted(grid.name for grid in grids) == sorted(experiments.EXPERIMENTS)
    assert len({grid.turn for grid in grids}) == len(grids), "each has its turn"
    for grid in grids:
        assert 20 <= len(grid.about) <= 100 and 20 <= len(grid.decides) <= 100, grid.name


@pytest.mark.full_except("gpu-order1")
@pytest.mark.parametrize(
    ("device", "order"),
    [("cpu", ["small", "broken", "large"]), ("gpu", ["large", "small", "broken"])],
)
def test_rows_are_measured_once(
    device: Any, order: list[str], attempts: list[str], tmp_path: pathlib.Path
):
    assert "3 rows remain." in list(Queue(tmp_path, device, grids=[GRID]).run(minutes=0.0))
    assert attempts == []
    lines = list(Queue(tmp_path, device, grids=[GRID]).run())
    assert attempts == order and any("no memory" in line for line in lines)
    list(Queue(tmp_path, device, grids=[GRID]).run())
    assert attempts == order  # what failed is not tried again in this revision
    assert sorted(row["cell"] for row in rows(tmp_path / "one.jsonl")) == ["large", "small"]
    entries = rows(tmp_path / "queue.jsonl")
    assert [row["cells"] for row in entries] == [[name] for name in attempts]
    assert {row["on"] for row in entries} == {device}
    (tmp_path / "queue.jsonl").unlink()
    list(Queue(tmp_path, device, grids=[GRID]).run())
    assert attempts == [*order, "broken"]


def test_a_row_that_was_measured_before_a_kill_is_kept(
    attempts: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
    def kill(*_: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(parts, "merge", kill)
        with pytest.raises(KeyboardInterrupt):
            list(Queue(tmp_path, "cpu", grids=[GRID]).run())
    list(Queue(tmp_path, "cpu", grids=[GRID]).run())
    assert attempts == ["small", "broken", "large"]
    assert sorted(row["cell"] for row in rows(tmp_path / "one.jsonl")) == ["large", "small"]


def test_a_unit_is_left_out_for_one_that_fits(attempts: list[str], tmp_path: pathlib.Path):
    queue_now = Queue(tmp_path, "gpu", grids=[GRID])
    units = {unit.names[0]: unit for unit in queue_now.pending_units()}
    both = dataclasses.replace(units["large"], names=("large", "broken"))
    assert queue_now.seconds(both) == 2 * queue_now.seconds(units["small"]) > 0
    queue_now.tries.append(queue.Try("one", ["other"], "measured", 7.0))
    assert queue_now.seconds(units["large"]) == 7.0


@pytest.mark.full
def test_a_process_that_does_not_end_is_stopped():
    def outcome(code: str, limit: float = 600.0, rest: float = 600.0) -> str:
        return queue._run_command([sys.executable, "-c", code], "cpu", limit, rest)

    assert outcome("import time; time.sleep(600)", rest=0.5) == "it took more than 1 s"
    # Others may use the cores: only its own processor time counts.
    assert outcome("while True: pass", limit=0.5).endswith("of processor time")
    assert outcome("import time; time.sleep(2.5)", limit=0.5) == ""
    assert outcome("raise ValueError('x')") == "ValueError: x"
    assert outcome("") == ""


def test_a_device_that_does_not_start_costs_no_row(
    monkeypatch: pytest.MonkeyPatch, attempts: list[str], tmp_path: pathlib.Path
):
    monkeypatch.setattr(queue, "_run_command", lambda *_: "no such platform")
    (line,) = queue.Queue(tmp_path, "gpu").run()
    assert line.endswith("no such platform")
    assert not attempts and not (tmp_path / "queue.jsonl").exists()
