"""The loop of every experiment: what is measured, what is kept, and what the book has already."""

import dataclasses
import fcntl
import itertools
import json
import pathlib
from typing import Any, NamedTuple

import pytest

from mmrl import runs
from mmrl.course import experiments, results
from mmrl.course.experiments import tuning
from mmrl.course.experiments.grid import Grid, Row, Rows, by_an_earlier_rule, one_by_one, rows

RESULTS = pathlib.Path(__file__).parents[3] / "book" / "results"


@dataclasses.dataclass(frozen=True)
class Cell:
    name: str


CELLS = [Cell(name) for name in ("a1", "a2", "b1", "a3")]


def row_of(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    return {"cell": cell.name, "again": row is not None}


def grid(**changes: Any) -> Grid:
    return dataclasses.replace(Grid("x", CELLS, one_by_one(row_of), lambda row: "done"), **changes)


def names_in_file(out: pathlib.Path) -> list[str]:
    return [row["cell"] for row in rows(out / "x.jsonl")]


def test_an_experiment_goes_on_where_it_stopped(tmp_path: pathlib.Path):
    some = grid(cells=CELLS[:2])
    late = list(some.run(tmp_path, 0.0, False))
    assert late == ["2 of 2 cells remain.", f"To continue: mmrl experiment x --out {tmp_path}"]
    lines = ["a1: done, 0 s", "a2: done, 0 s", "0 of 2 cells remain: all done."]
    assert list(some.run(tmp_path, 9.0, False)) == lines
    assert list(some.run(tmp_path, 9.0, False)) == lines[2:]
    assert len(list(grid().run(tmp_path, 9.0, False))) == 3
    assert names_in_file(tmp_path) == ["a1", "a2", "b1", "a3"]


def test_some_cells_may_be_asked_for_by_a_part_of_their_names(tmp_path: pathlib.Path):
    lines = list(grid().run(tmp_path, 0.0, False, "a"))
    assert lines[0] == "3 of 3 cells remain." and lines[1].endswith(f"--out {tmp_path} --only a")
    assert list(grid().run(tmp_path, 9.0, False, "a"))[-1] == "0 of 3 cells remain: all done."
    assert names_in_file(tmp_path) == ["a1", "a2", "a3"]
    with pytest.raises(ValueError, match="`only` must be part of a name, such as 'a1'; got 'c'"):
        next(grid().run(tmp_path, 9.0, False, "c"))


def test_a_cell_of_the_other_kind_of_run_is_named_with_the_remedy(tmp_path: pathlib.Path):
    some = grid(small=[Cell("a1"), Cell("tiny")])
    with pytest.raises(ValueError, match=r"`only` .* 'a1'; got 'b', .* Omit `--quick`"):
        next(some.run(tmp_path, 9.0, True, "b"))
    with pytest.raises(ValueError, match=r"`only` .* 'a1'; got 'tiny', .* Add `--quick`"):
        next(some.run(tmp_path, 9.0, False, "tiny"))
    with pytest.raises(ValueError, match=r"`only` .* 'a1'; got 'c'\.$"):
        next(some.run(tmp_path, 9.0, True, "c"))


def test_a_cell_that_another_process_measures_is_not_measured_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    """Its row is there once its claim is free."""
    real, result = fcntl.lockf, list[str]()

    def wait(*lock: Any) -> None:
        if not names_in_file(tmp_path):
            runs.append(tmp_path / "x.jsonl", {"cell": "a1", "again": True})
        real(*lock)

    def measure(cell: Cell, quick: bool, row: Row | None) -> Row:
        result.append(cell.name)
        return row_of(cell)

    monkeypatch.setattr(fcntl, "lockf", wait)
    list(grid(cells=CELLS[:2], measure=one_by_one(measure)).run(tmp_path, 9.0, False))
    assert result == ["a2"] and names_in_file(tmp_path) == ["a1", "a2"]


def test_a_quick_run_may_have_cells_of_its_own(tmp_path: pathlib.Path):
    going = grid(small=CELLS[2:]).run(tmp_path, 9.0, True)
    assert list(going)[-1] == "0 of 2 cells remain: all done." and names_in_file(tmp_path) == [
        "b1",
        "a3",
    ]


class Pair(NamedTuple):
    """A cell of two fields."""

    task: str
    length: int

    @property
    def name(self) -> str:
        return f"{self.task}{self.length}"


def test_a_quick_run_has_every_value_and_what_its_cells_read():
    pairs = [Pair(*values) for values in itertools.product("abc", (1, 2, 3))]
    few = grid(cells=pairs).select(quick=True)
    assert [cell.name for cell in few] == ["a1", "a2", "a3", "b1", "c1"]
    assert grid(cells=pairs).select(quick=False) == pairs
    read = grid(cells=pairs, after=lambda cell: ["c3"] * (cell.task == "b"))
    assert [cell.name for cell in read.select(quick=True)][-2:] == ["c1", "c3"]


def test_what_was_measured_quickly_counts_for_quick_runs_alone(tmp_path: pathlib.Path):
    def measure(cell: Cell, quick: bool, row: Row | None) -> Row:
        assert row is None
        return row_of(cell) | {"quick": quick}

    some = grid(cells=CELLS[:1], measure=one_by_one(measure))
    for quick, lines in ((True, 2), (True, 1), (False, 2), (False, 1), (True, 1)):
        assert len(list(some.run(tmp_path, 9.0, quick))) == lines
    assert [row["quick"] for row in rows(tmp_path / "x.jsonl")] == [False]


def test_nothing_is_begun_that_would_last_too_long(tmp_path: pathlib.Path, monkeypatch: Any):
    clock = [0.0]

    def slow(cell: Cell, quick: bool, row: Row | None) -> Row:
        clock[0] += 100.0 if cell.name == "a1" else 1.0
        return row_of(cell)

    monkeypatch.setattr("mmrl.course.experiments.grid.time.monotonic", lambda: clock[0])
    lines = list(grid(measure=one_by_one(slow)).run(tmp_path, 200 / 60, False))
    # After a cell of 100 s another one fits, and then, after 101 s, none that may last as long.
    assert lines[:3] == ["a1: done, 100 s", "a2: done, 1 s", "2 of 4 cells remain."]


def test_cells_of_one_program_are_measured_together(tmp_path: pathlib.Path):
    groups: list[list[str]] = []

    def measure(together: Any, rows: Rows, quick: bool) -> list[Row]:
        groups.append([cell.name for cell in together])
        return [row_of(cell) for cell in together]

    cells = [*CELLS, Cell("a4")]
    whole = grid(cells=cells, measure=measure, program=lambda cell: cell.name[0], most=2)
    going = whole.run(tmp_path, 9.0, False)
    assert next(going) == "a1: done, 0 s"
    going.close()  # what was measured and not written is measured again
    assert list(whole.run(tmp_path, 9.0, False))[-1] == "0 of 5 cells remain: all done."
    assert groups == [["a1", "a2"], ["a2", "a3"], ["b1"], ["a4"]]
    assert names_in_file(tmp_path) == ["a1", "a2", "a3", "b1", "a4"]


def test_a_row_may_be_outdated_by_one_that_was_just_measured(tmp_path: pathlib.Path):
    """A comparison, which comes after what it compares, is made again with it."""

    def measure(cell: Cell, quick: bool, row: Row | None) -> Row:
        return {"cell": cell.name, "rule": 2}

    for cell, count in ((CELLS[0], 0), (CELLS[1], 1)):
        runs.append(tmp_path / "x.jsonl", {"cell": cell.name, "rule": 1, "seen": count})

    def is_old(row: Row, rows: Rows) -> bool:
        return (row["cell"] == "a1" and row["rule"] == 1) or rows["a1"]["rule"] > row["rule"]

    lines = list(grid(cells=CELLS[:2], measure=one_by_one(measure), outdated=is_old).run(
        tmp_path, 9.0, False))  # fmt: skip
    assert len(lines) == 3 and [row["rule"] for row in rows(tmp_path / "x.jsonl")] == [2, 2]


def test_a_row_is_brought_up_to_date_in_its_place(tmp_path: pathlib.Path):
    cells = [Cell(name) for name in ("lru", "gru", "ffm")]
    for cell in cells[:2]:
        runs.append(tmp_path / "x.jsonl", {"cell": cell.name, "tuning": {"0.1": 1.0}})
    names: list[str] = []

    def measure(cell: Cell, quick: bool, row: Row | None) -> Row:
        names.append(f"{cell.name} {'again' if row else 'new'}")
        base = row if row and cell.name == "lru" else {"cell": cell.name, "tuning": {"0.1": 1.0}}
        return {**base, "tuning_areas": {}}

    before = (tmp_path / "x.jsonl").read_text()
    whole = grid(cells=cells[::-1], measure=one_by_one(measure), outdated=by_an_earlier_rule)
    assert list(whole.run(tmp_path, 9.0, False))[-1].startswith("0 of 3")
    assert names == ["gru again", "lru again", "ffm new"]
    after = [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()]
    assert [row["cell"] for row in after] == [cell.name for cell in cells]
    assert {**after[0], "tuning_areas": None} == {
        **json.loads(before.splitlines()[0]),
        "tuning_areas": None,
    }
    assert all("tuning_areas" in row and row["date"] for row in after)
    with pytest.raises(ValueError, match="`row` must belong to a cell in"):
        results.revise(tmp_path / "x.jsonl", {"cell": "another"})


def test_a_quick_run_leaves_outdated_full_rows_alone(tmp_path: pathlib.Path):
    path = tmp_path / "x.jsonl"
    for name, quick in (("lru", False), ("gru", True)):
        runs.append(path, {"cell": name, "tuning": {"0.1": 1.0}, "quick": quick})
    first = path.read_text().splitlines()[0]

    def measure(cell: Cell, quick: bool, row: Row | None) -> Row:
        return {"cell": cell.name, "tuning_areas": {}, "quick": quick}

    cells = [Cell(name) for name in ("lru", "gru", "ffm")]
    own = grid(cells=cells, measure=one_by_one(measure), outdated=by_an_earlier_rule)
    assert list(own.run(tmp_path, 9.0, True))[-1].startswith("0 of 3")
    lines = path.read_text().splitlines()
    assert lines[0] == first and len(lines) == 3
    assert all("tuning_areas" in line for line in lines[1:])


def test_selected_cells_come_with_those_that_they_depend_on():
    after = {"c": ["b"], "b": ["a"], "a": [], "d": []}
    own = grid(cells=[Cell(name) for name in "abcd"], after=lambda cell: after[cell.name])
    assert [cell.name for cell in own.select(False, "c")] == ["a", "b", "c"]
    assert [cell.name for cell in own.select(False, "d")] == ["d"]


def test_of_two_rows_of_a_cell_the_last_is_revised(tmp_path: pathlib.Path):
    path = tmp_path / "x.jsonl"
    lines = ['{"cell":  "a1", "n": 1}', '{"cell":  "b1", "n": 2}', '{"cell":  "a1", "n": 3}']
    path.write_text("\n".join(lines) + "\n")
    results.revise(path, {"cell": "a1", "n": 4, "date": "today"})
    assert path.read_text().splitlines() == [*lines[:2], '{"cell": "a1", "n": 4, "date": "today"}']


@pytest.mark.full
@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_what_the_book_has_is_not_measured_again(name: str, tmp_path: pathlib.Path):
    study: Grid = experiments.load(name)
    source, path = RESULTS / f"{name}.jsonl", tmp_path / f"{name}.jsonl"
    path.write_bytes(source.read_bytes() if source.exists() else b"")  # some have no row yet
    before, total = path.read_bytes(), len(study.cells)
    result = study.read(tmp_path)
    assert study.name == name and len({cell.name for cell in study.cells}) == total
    assert set(result) <= {cell.name for cell in study.cells}
    assert not any(row.get("quick") for row in result.values())
    # In staleness a row is outdated, too, if it lacks the rate at which its task is compared now.
    inputs = {} if study.outdated is Grid.outdated else result
    again = [row for row in inputs.values() if name == "staleness" or tuning.is_stale(row)]
    rest = total - len(result) + len(again)
    lines = list(experiments.run(name, tmp_path, minutes=0.0))
    if rest == 0:
        assert lines[-1] == f"0 of {total} cells remain: all done."
    elif name != "staleness":
        assert lines[-2] == f"{rest} of {total} cells remain."
    assert path.read_bytes() == before
