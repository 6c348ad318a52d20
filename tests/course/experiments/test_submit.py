"""Cells as jobs: each is measured once and has one line, whatever is killed and repeated."""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from mmrl.__main__ import main
from mmrl.course import experiments
from mmrl.course.experiments import cluster, parts
from mmrl.course.experiments.grid import Grid, Row, Rows, in_folder, one_by_one, rows
from mmrl.course.experiments.submit import ready, submit_jobs
from mmrl.runs import RunError
from tests.helpers.tiny_grid import Cell, command, tiny

LONG = 600.0  # seconds: as long as a busy machine may need, where something fails
CELLS = [Cell(name) for name in ("a1", "a2", "b1", "a3")]


def plain(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    return {"cell": cell.name, "quick": quick}


def grid(**changes: Any) -> Grid:
    return dataclasses.replace(Grid("x", CELLS, one_by_one(plain), lambda row: "done"), **changes)


class Here:
    """A cluster of this process: a job measures when it is asked whether it has ended."""

    def __init__(self, grid: Grid, out: pathlib.Path, quick: bool = False, victim: str = ""):
        self.grid, self.out, self.quick, self.victim = grid, out, quick, victim
        self.units: list[list[str]] = []
        self.cancelled: list[str] = []

    def __call__(self, names: Sequence[str], place: int) -> "Job":
        self.units.append(list(names))
        return Job(self, names)


@dataclasses.dataclass
class Job:
    where: Here
    names: Sequence[str]

    job_id = "1"

    @property
    def paths(self) -> Any:
        return type("Paths", (), {"folder": self.where.out / "log", "stderr": "log/1_0_log.err"})

    def done(self) -> bool:
        if self.where.victim not in self.names:
            list(parts.measure(self.where.grid, self.where.out, self.names, self.where.quick))
        return True

    def cancel(self, check: bool = True) -> None:
        self.where.cancelled += self.names


def go(where: Here, jobs: int = 2, minutes: float = 9.0, only: str = "") -> list[str]:
    """The lines of a grid in jobs; of one that loses cells, until it says so."""
    lines: list[str] = []
    try:
        for line in submit_jobs(
            where.grid, where.out, where, jobs, minutes, where.quick, only, "", 0.0
        ):
            lines.append(line)
    except RunError as error:
        lines.append(str(error))
    return lines


def names_in_file(out: pathlib.Path, name: str = "x") -> list[str]:
    return [row["cell"] for row in rows(out / f"{name}.jsonl")]


def without_provenance(rows: Sequence[Row]) -> list[Row]:
    return [{name: row[name] for name in ("cell", "quick")} for row in rows]


@pytest.mark.slow
def test_jobs_write_and_say_what_a_run_does(tmp_path: pathlib.Path):
    alone, jobs = tmp_path / "alone", tmp_path / "jobs"
    some = grid(program=lambda cell: cell.name[0], most=2)
    lines = list(some.run(alone, 9.0, False))
    where = Here(some, jobs)
    assert go(where) == lines
    assert where.units == [["a1", "a2"], ["b1"], ["a3"]]
    assert without_provenance(rows(jobs / "x.jsonl")) == without_provenance(rows(alone / "x.jsonl"))
    assert all(row["date"] and row["command"] for row in rows(jobs / "x.jsonl"))
    assert go(where) == lines[-1:] and len(where.units) == 3


def test_killed_cells_alone_are_missing_and_alone_repeated(tmp_path: pathlib.Path):
    where = Here(grid(program=lambda cell: cell.name[0], most=2), tmp_path, victim="a2")
    lines = go(where)
    assert sorted(lines[:3]) == [
        "a1; a2: not measured, see log/1_0_log.err",
        "a3: done, 0 s",
        "b1: done, 0 s",
    ]
    assert lines[3:] == [
        "2 of 4 cells remain.",
        f"To continue: mmrl experiment x --out {tmp_path}",
        "The jobs of 2 cells ended without writing their rows, so these cells still have to be "
        "measured. Run the command again.",
    ]
    assert sorted(names_in_file(tmp_path)) == ["a3", "b1"]
    again = Here(where.grid, tmp_path)
    assert go(again)[-1] == "0 of 4 cells remain: all done." and again.units == [["a1", "a2"]]
    assert sorted(names_in_file(tmp_path)) == ["a1", "a2", "a3", "b1"]
    before = (tmp_path / "x.jsonl").read_bytes()
    for _ in range(2):
        assert list(parts.merge_messages(where.grid, tmp_path)) == [
            f"Nothing new for {tmp_path}/x.jsonl."
        ]
    assert (tmp_path / "x.jsonl").read_bytes() == before


class Kill(BaseException):
    """Ends a process as a kill would: nothing is cleaned up, what was written stays."""


@pytest.mark.parametrize("moment", ["half a line", "before the file is gone", "half a row"])
def test_a_kill_inside_a_merge_or_a_write(moment: str, tmp_path: pathlib.Path):
    some = grid()

    def kill(*_: Any, **__: Any) -> None:
        raise Kill

    with pytest.MonkeyPatch.context() as patch:
        if moment == "half a row":
            patch.setattr(os, "replace", kill)
        with pytest.raises(Kill) if moment == "half a row" else contextlib.nullcontext():
            list(parts.measure(some, tmp_path, ["a1", "b1"]))
    if moment == "half a row":
        assert not list(parts.merge(some, tmp_path))
        list(parts.measure(some, tmp_path, ["a1", "b1"]))
    if moment == "before the file is gone":
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Kill):
            patch.setattr(pathlib.Path, "unlink", kill)
            list(parts.merge(some, tmp_path))
        assert names_in_file(tmp_path) == ["a1"]
    if moment == "half a line":
        (tmp_path / "x.jsonl").write_text('{"cell": "a1", "qu')
    list(parts.merge(some, tmp_path))
    assert not list(parts.merge(some, tmp_path)) and not list(tmp_path.glob("x.jobs/*.json"))
    assert names_in_file(tmp_path) == ["a1", "b1"]


def test_what_reads_the_rows_of_others_waits_for_them(tmp_path: pathlib.Path):
    names_of: dict[str, list[str]] = {}

    def measure(together: Sequence[Cell], rows: Rows, quick: bool) -> list[Row]:
        names_of.update({cell.name: sorted(rows) for cell in together})
        return [plain(cell, quick) for cell in together]

    some = grid(measure=measure, after=lambda cell: ["b1"])
    other = Here(some, tmp_path / "lost", victim="b1")
    assert go(other, jobs=4)[-3] == "4 of 4 cells remain." and other.units == [["b1"]]
    where = Here(some, tmp_path)
    assert go(where, jobs=4)[-1] == "0 of 4 cells remain: all done."
    assert where.units == [["b1"], ["a1"], ["a2"], ["a3"]]
    assert names_of["b1"] == [] and all("b1" in names_of[name] for name in ("a1", "a2", "a3"))
    # A cell that is read is measured even if it is not asked for, as in a run.
    some_only = Here(some, tmp_path / "only")
    assert go(some_only, only="a")[-1] == "0 of 4 cells remain: all done."
    assert some_only.units[0] == ["b1"]


def test_minutes_and_parts_of_names_mean_what_they_do_in_a_run(tmp_path: pathlib.Path):
    where = Here(grid(), tmp_path)
    for jobs in (0.0, 1e-9):
        lines = go(where, minutes=jobs, only="a")
        assert lines[0] == "3 of 3 cells remain." and lines[1].endswith(f"{tmp_path} --only a")
    assert where.units == []
    with pytest.raises(ValueError, match="`only` must be part of a name, such as 'a1'; got 'c'"):
        go(where, only="c")


def test_nothing_is_submitted_that_would_last_too_long(tmp_path: pathlib.Path, monkeypatch: Any):
    clock = [0.0]

    def slow(cell: Cell, quick: bool, row: Row | None) -> Row:
        clock[0] += 100.0 if cell.name == "a1" else 1.0
        return plain(cell)

    monkeypatch.setattr("mmrl.course.experiments.submit.time.monotonic", lambda: clock[0])
    where = Here(grid(measure=one_by_one(slow)), tmp_path)
    lines = go(where, jobs=1, minutes=200 / 60)
    assert lines[:3] == ["a1: done, 100 s", "a2: done, 1 s", "2 of 4 cells remain."]


def test_quick_rows_count_for_quick_runs_alone(tmp_path: pathlib.Path):
    some = grid(small=CELLS[:2])
    for quick, units in ((True, 2), (True, 0), (False, 4), (True, 0)):
        where = Here(some, tmp_path, quick)
        go(where)
        assert len(where.units) == units
    assert sorted(names_in_file(tmp_path)) == ["a1", "a2", "a3", "b1"]
    assert not any(row["quick"] for row in rows(tmp_path / "x.jsonl"))
    # A quick row that nobody merged is not taken for another one, nor put in its place.
    list(parts.measure(grid(), tmp_path / "new", ["a1"], quick=True))
    list(parts.measure(grid(), tmp_path / "new", ["a1"], quick=False))
    list(parts.merge(grid(), tmp_path / "new"))
    assert [row["quick"] for row in rows(tmp_path / "new" / "x.jsonl")] == [False]


def test_a_grid_that_keeps_folders_keeps_the_same_ones(tmp_path: pathlib.Path):
    folders: list[pathlib.Path] = []

    def measure(cell: Cell, quick: bool, folder: pathlib.Path) -> Row:
        folders.append(folder)
        return plain(cell, quick)

    some = grid(measure=in_folder(measure), keeps=True)
    list(some.run(tmp_path, 9.0, False))
    (tmp_path / "x.jsonl").unlink()
    go(Here(some, tmp_path))
    assert folders[:4] == folders[4:] and folders[0] == tmp_path / "x" / "a1"


def test_who_leaves_cancels_what_runs(tmp_path: pathlib.Path):
    where = Here(grid(), tmp_path)
    going = submit_jobs(where.grid, tmp_path, where, 3)
    assert next(going) == "a1: done, 0 s"
    going.close()  # type: ignore[attr-defined]
    assert where.cancelled == ["a1", "a2", "b1"] and names_in_file(tmp_path) == ["a1", "a2", "b1"]


def test_no_more_jobs_run_than_were_asked_for(tmp_path: pathlib.Path):
    """One job ends at a time, and the next takes its place."""
    running, most, places = set[str](), list[int](), list[int]()

    class Slow(Job):
        polls = 0

        def done(self) -> bool:
            most.append(len(running))
            self.polls += 1
            if self.polls <= 2 + "a1 a2 b1 a3".index(self.names[0]):
                return False
            running.discard(self.names[0])
            return super().done()

    def start(names: Sequence[str], place: int) -> Job:
        running.add(names[0])
        places.append(place)
        return Slow(where, names)

    where = Here(grid(), tmp_path)
    lines = list(submit_jobs(where.grid, tmp_path, start, 2, pause=0.0))
    assert lines[-1] == "0 of 4 cells remain: all done." and max(most) == 2
    assert places[:3] == [0, 1, 0] and len(places) == 4


def test_a_row_is_of_the_process_that_measured_it(tmp_path: pathlib.Path, monkeypatch: Any):
    list(parts.measure(grid(), tmp_path, ["a1"]))
    monkeypatch.setattr("mmrl.runs.results.provenance", lambda: {"command": "mmrl merge"})
    list(parts.merge(grid(), tmp_path))
    assert rows(tmp_path / "x.jsonl")[0]["command"] != "mmrl merge"


@pytest.mark.parametrize("content", ["", '{"row": {"ce', "[]", '{"row": {"cell": "b1"}}'])
def test_a_damaged_row_is_named_and_nothing_is_lost(content: str, tmp_path: pathlib.Path):
    list(parts.measure(grid(), tmp_path, ["a1", "b1"]))
    file = parts.folder(grid(), tmp_path) / "b1.json"
    file.write_text(content)
    with pytest.raises(RunError, match=f"{file} is damaged or was not written by a job"):
        list(parts.merge(grid(), tmp_path))
    file.unlink()
    assert [name for name, _ in parts.merge(grid(), tmp_path)] == ["a1"]
    assert names_in_file(tmp_path) == ["a1"]


def test_a_row_that_the_file_has_meanwhile_is_not_put_in_its_place(tmp_path: pathlib.Path):
    some = grid(cells=CELLS[:1])
    list(parts.measure(some, tmp_path, ["a1"]))
    list(some.run(tmp_path, 9.0, False))
    before = (tmp_path / "x.jsonl").read_bytes()
    assert not list(parts.merge(some, tmp_path)) and not list(tmp_path.glob("x.jobs/*.json"))
    assert (tmp_path / "x.jsonl").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
def test_every_cell_of_the_book_has_its_turn_after_what_it_reads(name: str, tmp_path: pathlib.Path):
    study: Grid = experiments.load(name)
    some = dataclasses.replace(study, outdated=Grid.outdated, cell_of=lambda row: row["cell"])
    first = {cell.name: cell for cell in study.cells}
    past: set[str] = set()
    while stage := ready(some, tmp_path, False):
        units = [{cell.name for cell in unit} for unit in stage]
        for unit in units:
            names = {other for cell in unit for other in study.after(first[cell])}
            assert names <= {*past, *unit} and names <= set(first)
        assert sum(map(len, units)) == len(set().union(*units)) and not past & set().union(*units)
        past = past.union(*units)
        lines = "".join(json.dumps({"cell": cell}) + "\n" for cell in sorted(past))
        (tmp_path / f"{name}.jsonl").write_text(lines)
    assert past == set(first)


class NoRows(dict):
    """Rows of which none is there: who asks for that of another cell is told so."""

    def __init__(self, own: str):
        self.own = own

    def get(self, name: str, *_: Any) -> None:  # type: ignore[override]
        if name != self.own:
            raise LookupError(name)

    def __contains__(self, name: object) -> bool:
        return bool(self.get(str(name)))

    def __getitem__(self, name: str) -> None:
        return self.get(name)


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("ewma", "PPG-EWMA against PPG"),
        ("forgetting", "Dark, sequential, CLEAR"),
        ("invariance", "Catch, ppo, no step size, c = 64"),
        ("staleness", "Catch, recent, staleness 4"),
    ],
)
def test_what_a_cell_reads_comes_before_it(name: str, cell: str):
    study: Grid = experiments.load(name)
    (one,) = [one for one in study.cells if one.name == cell]
    with pytest.raises(LookupError) as error:
        list(study.measure([one], NoRows(cell), True))
    assert error.value.args[0] in set(study.after(one)) - {cell}


def wait(until: Callable[[], Any], what: str) -> Any:
    began = time.monotonic()
    while time.monotonic() < began + LONG:
        if result := until():
            return result
        time.sleep(0.05)
    raise AssertionError(f"waited in vain: {what}")


def first_cells(out: pathlib.Path) -> list[tuple[str, int]]:
    """The cells that were begun, and the processes that measure them."""
    path = out / "started"
    lines = path.read_text().splitlines() if path.exists() else []
    return [(name, int(process)) for name, process in map(str.split, lines)]


def has_ended(process: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts `mmrl experiment tiny`, in a session of its own, as a terminal does."""
    processes = []

    def begin(*words: str, **environment: str) -> subprocess.Popen:
        where = {"cwd": pathlib.Path(__file__).parents[3], "start_new_session": True, "text": True}
        env = os.environ | {"PYTHONPATH": str(where["cwd"])} | environment
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes.append(subprocess.Popen(command(tmp_path, *words), env=env, **where, **pipes))
        return processes[-1]

    yield begin
    (tmp_path / "go").touch()
    for process in processes:
        process.kill()
        process.communicate(timeout=LONG)


needs_processes = pytest.mark.skipif(
    not pathlib.Path("/proc/self/stat").exists() or not hasattr(os, "sched_setaffinity"),
    reason="Only Linux says what processes do.",
)


@pytest.mark.full
@needs_processes
def test_kill_9_of_a_job_and_of_who_submitted_it(start: Any, tmp_path: pathlib.Path):
    """One job dies with the submitter; the other one goes on, and the same command waits for it."""
    words = ("--submit", "local", "--jobs", "2")
    first = start(*words)
    pids = dict(
        wait(lambda: len(first_cells(tmp_path)) == 4 and first_cells(tmp_path), "four cells")
    )
    first.kill()
    os.kill(pids["b1"], signal.SIGKILL)
    second = start(*words)
    wait(lambda: len(first_cells(tmp_path)) == 6, "the killed cells again")
    (tmp_path / "go").touch()
    message, complaint = second.communicate(timeout=LONG)
    assert message.splitlines()[-1] == "0 of 4 cells remain: all done." and not complaint
    assert [name for name, _ in first_cells(tmp_path)[4:]] == ["b1", "b2"]
    assert sorted(names_in_file(tmp_path, "tiny")) == ["a1", "a2", "b1", "b2"]
    results = {row["cell"]: row for row in rows(tmp_path / "tiny.jsonl")}
    assert results["a1"]["pid"] == pids["a1"] and results["b1"]["pid"] != pids["b1"]
    cores = cluster.cores()
    assert {name: row["cores"] for name, row in results.items() if name in ("a1", "b1")} == {
        "a1": cluster.share(cores, 0, 2),
        "b1": cluster.share(cores, 1, 2),
    }
    assert all(row["threads"] == str(len(row["cores"])) for row in results.values())
    assert "experiment tiny --out" in results["a1"]["command"]
    assert results["a1"]["command"].endswith("--unit a1 a2")
    before = (tmp_path / "tiny.jsonl").read_bytes()
    for _ in range(2):
        assert next(parts.merge_messages(tiny(tmp_path), tmp_path)).startswith("Nothing new for ")
    assert (tmp_path / "tiny.jsonl").read_bytes() == before


@pytest.mark.full
@needs_processes
@pytest.mark.parametrize("everybody", [True, False], ids=["of a terminal", "of one process"])
def test_ctrl_c_stops_all_jobs_and_says_how_to_go_on(
    everybody: bool, start: Any, tmp_path: pathlib.Path
):
    process = start("--submit", "local", "--jobs", "2", "--only", "1")
    pids = dict(
        wait(lambda: len(first_cells(tmp_path)) == 2 and first_cells(tmp_path), "two cells")
    )
    if everybody:
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=LONG)
    again = f"mmrl experiment tiny --out {tmp_path} --only 1 --submit local --jobs 2"
    assert process.returncode == 130
    assert message == f"mmrl: Stopped all jobs. To continue: {again}\n"
    wait(lambda: all(map(has_ended, pids.values())), "the jobs to end")
    assert not (tmp_path / "tiny.jsonl").exists()


SBATCH = """#!/bin/sh
cd {folder}
id=$(($(ls *.sh 2>/dev/null | wc -l) + 1)); cp "$1" $id.sh
echo "$SBATCH_ACCOUNT" > account
cd "$OLDPWD"
SLURM_JOB_ID=$id SLURM_PROCID=0 sh {folder}/$id.sh > {folder}/$id.log 2>&1 &
echo $! > {folder}/$id.pid
echo "Submitted batch job $id"
"""
SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do
  case $1 in --output|--error) shift;; esac; shift
done
exec "$@"
"""
SACCT = """#!/bin/sh
echo "JobID|State|NodeList"
cd {folder}
for file in *.pid; do
  if kill -0 $(cat $file) 2>/dev/null; then state=RUNNING; else state=FAILED; fi
  echo "${file%.pid}|$state|here"
done
"""


@pytest.mark.full
@pytest.mark.slow
@needs_processes
def test_jobs_of_slurm_ask_for_what_they_were_told(start: Any, tmp_path: pathlib.Path):
    """With programs in the place of Slurm's, which is all that one machine allows."""
    path = tmp_path / "bin"
    path.mkdir()
    for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("sacct", SACCT), ("scancel", SACCT)):
        (path / name).write_text(text.replace("{folder}", str(path)))
        (path / name).chmod(0o755)
    (tmp_path / "go").touch()
    limits = ("--hours", "1.5", "--memory", "2.5", "--cpus", "3", "--partition", "short")
    words = ("--submit", "slurm", "--jobs", "1", "--only", "1", *limits)
    environment = {"PATH": f"{path}{os.pathsep}{os.environ['PATH']}", "SBATCH_ACCOUNT": "ours"}
    message, complaint = start(*words, **environment).communicate(timeout=LONG)
    assert message.splitlines()[-1] == "0 of 2 cells remain: all done.", complaint
    assert names_in_file(tmp_path, "tiny") == ["a1", "b1"]
    script = (path / "1.sh").read_text().splitlines()
    options = {line.removeprefix("#SBATCH --") for line in script if line.startswith("#SBATCH")}
    expected = {"time=90", "mem=2560M", "cpus-per-task=3", "partition=short", "job-name=mmrl-tiny"}
    assert expected <= options
    assert any(line.startswith("srun ") and "--cpus-per-task=3" in line for line in script)
    assert (path / "account").read_text() == "ours\n"


@pytest.mark.parametrize(
    ("words", "output"),
    [
        (["--submit", "local", "--jobs", "0"], "`jobs` must be at least 1; got 0."),
        (["--jobs", "2"], "`jobs` requires `--submit local`"),
        (["--submit", "slurm"], "Add `--jobs 16`"),
        (["--submit", "slurm", "--jobs", "2"], "`submit` must be local"),
        (["--submit", "local", "--hours", "1"], "`hours` requires `--submit slurm`"),
        (["--submit", "slurm", "--jobs", "2", "--cpus", "0"], "`cpus` must be positive; got 0."),
        (["--submit", "local", "--merge"], "only one of"),
        (["--merge"], "`out` must be the results folder for which jobs of ffm"),
        (["--unit", "Chess"], "`unit` must name cells, such as 'RepeatPreviousPaper"),
    ],
)
def test_what_is_asked_for_wrongly_is_one_sentence(
    words: list[str], output: str, tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert main(["experiment", "ffm", "--out", str(tmp_path), *words]) == 2
    complaint = capsys.readouterr().err
    assert output in complaint and complaint.count("\n") == 1


def test_without_submitit_a_sentence_says_how_to_get_it(
    tmp_path: pathlib.Path, monkeypatch: Any, capsys: Any
):
    monkeypatch.setitem(sys.modules, "submitit", None)
    words = ["experiment", "ffm", "--out", str(tmp_path), "--submit", "local"]
    assert main(words) == 2 and "-e '.[cluster]'" in capsys.readouterr().err


def test_cores_are_shared_out():
    assert [cluster.share([0, 1, 2, 3, 4], place, 2) for place in range(2)] == [[0, 2, 4], [1, 3]]
    assert [cluster.share([0, 1], place, 3) for place in range(3)] == [[0], [1], [0]]


def test_gpus_are_shared_out_with_their_memory(tmp_path: pathlib.Path, monkeypatch: Any):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert cluster._gpus(1, 2) == ["CUDA_VISIBLE_DEVICES=7"]
    variable = "XLA_PYTHON_CLIENT_MEM_FRACTION=0.375"
    assert cluster._gpus(2, 3) == ["CUDA_VISIBLE_DEVICES=4", variable]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert cluster._gpus(0, 1) == []
