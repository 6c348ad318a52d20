"""Folders and files that two processes want at once: each holds one whole run, row or content."""

import contextlib
import fcntl
import os
import pathlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mmrl import runs
from mmrl.__main__ import main
from mmrl.commands import options
from mmrl.course.results import revise
from mmrl.runs import Run, RunError, checkpoint, files
from mmrl.runs import export as runs_export
from mmrl.runs.folder import Folder
from tests.helpers.runs import SETUP, setup


@contextlib.contextmanager
def lock_elsewhere(folder: pathlib.Path) -> Iterator[None]:
    """Lock a folder as another process does."""
    file = os.open(folder, os.O_RDONLY)
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(file)  # as a kill does, too


def at_once(*jobs: Callable[[], object]) -> list[BaseException]:
    """Start each of some jobs at the same moment; return what they raised."""
    gate, errors = threading.Barrier(len(jobs)), []

    def work(job: Callable[[], object]) -> None:
        gate.wait()
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=[job]) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_a_folder_has_one_process_at_a_time(tmp_path: pathlib.Path):
    run = Run(SETUP, tmp_path / "run")
    next(iter(run))
    before = (tmp_path / "run" / "checkpoint").read_bytes()
    (tmp_path / "new").mkdir()
    with lock_elsewhere(tmp_path / "run"), lock_elsewhere(tmp_path / "new"):
        for attempt in (
            lambda: Run(SETUP, tmp_path / "run", resume=True),
            lambda: Run(SETUP, tmp_path / "new"),
            lambda: next(iter(run)),
            lambda: run.save(tmp_path / "new"),
        ):
            with pytest.raises(RunError, match="Another process is writing to"):
                attempt()
    assert (tmp_path / "run" / "checkpoint").read_bytes() == before
    assert [*(tmp_path / "new").iterdir()] == []
    assert [report.block for report in Run(SETUP, tmp_path / "run", resume=True)] == [2, 3]


@pytest.mark.slow
def test_a_folder_has_one_thread_at_a_time(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    claim = Folder._claim

    def slowly(folder: Folder) -> files.Claim:
        own = claim(folder)
        time.sleep(0.5)  # until both threads are here, if they can be
        return own

    monkeypatch.setattr(Folder, "_claim", slowly)
    runs_of = [lambda: open_runs.append(Run(SETUP, tmp_path))] * 2
    open_runs: list[Run] = []
    (error,) = at_once(*runs_of)
    assert len(open_runs) == 1 and "already contains a run" in str(error)


def test_a_run_holds_its_folder_until_it_is_done(tmp_path: pathlib.Path):
    run = Run(setup(blocks=2), tmp_path)

    def is_free() -> bool:
        file = os.open(tmp_path, os.O_RDONLY)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(file)
            return True
        os.close(file)
        return False

    assert not is_free()
    assert [is_free() for _ in run] == [False, False]
    assert is_free() and list(run) == [] and is_free()
    Run(setup(blocks=2), tmp_path, resume=True)
    again = Run(setup(blocks=3), tmp_path, resume=True)
    assert not is_free()
    next(iter(again))
    assert is_free()


def test_a_run_does_not_go_on_from_before_what_another_one_wrote(tmp_path: pathlib.Path):
    first = Run(SETUP, tmp_path)
    next(iter(first))
    assert [report.block for report in Run(SETUP, tmp_path, resume=True)] == [2, 3]
    whole = (tmp_path / "checkpoint").read_bytes()
    with pytest.raises(RunError, match="Another run has changed"):
        next(iter(first))
    assert (tmp_path / "checkpoint").read_bytes() == whole


def test_a_started_iterator_does_not_overwrite_what_another_run_wrote(tmp_path: pathlib.Path):
    blocks = iter(Run(SETUP, tmp_path))
    next(blocks)
    assert [report.block for report in Run(SETUP, tmp_path, resume=True)] == [2, 3]
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for _ in range(2):
        with pytest.raises((RunError, StopIteration), match=r"Another run has changed|^$"):
            next(blocks)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_a_run_leaves_alone_what_replaces_its_folder(tmp_path: pathlib.Path):
    blocks = iter(Run(SETUP, tmp_path / "run"))
    next(blocks)
    (tmp_path / "run").rename(tmp_path / "old")
    other = Run(setup(blocks=2), tmp_path / "run")
    next(iter(other))
    files = [path.read_bytes() for path in sorted((tmp_path / "run").iterdir())]
    with pytest.raises(RunError, match="was moved, removed or replaced"):
        next(blocks)
    assert [path.read_bytes() for path in sorted((tmp_path / "run").iterdir())] == files
    assert [report.block for report in other] == [2]


def test_one_run_begins_in_a_folder_without_locks(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    Run(SETUP, tmp_path)
    before = (tmp_path / "results.json").read_bytes()
    monkeypatch.setattr(Folder, "description", lambda folder: None)  # as before the other run began
    with pytest.raises(RunError, match="Another run was started"):
        Run(setup(blocks=7), tmp_path)
    assert (tmp_path / "results.json").read_bytes() == before


def test_a_folder_that_may_not_be_read_is_named(tmp_path: pathlib.Path):
    (tmp_path / "results.json").mkdir()
    with pytest.raises(RunError, match=r"^Cannot read .*results\.json: Is a directory\.$"):
        Run(SETUP, tmp_path)


def test_disks_without_locks_can_be_written_to(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fcntl, "flock", refuse)
    files.claim(tmp_path)
    runs.append(tmp_path / "rows.jsonl", {"date": "", "x": 1})
    assert (tmp_path / "rows.jsonl").read_text().count("\n") == 1


def test_names_are_taken_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert options.new_folder("a/b:Game", "c/d") == pathlib.Path("results/Game-c-d-1")
    paths: list[pathlib.Path] = []
    names = [lambda: paths.append(options.new_folder("probe-Match-v0", "none"))] * 8
    assert at_once(*names) == []
    expected = sorted(pathlib.Path("results") / f"probe-Match-none-{n}" for n in range(1, 9))
    assert sorted(paths) == expected and all(path.is_dir() for path in expected)


def test_two_exports_at_once_get_two_names(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    list(Run(setup(blocks=1), tmp_path / "run"))
    first = pathlib.Path("results/run-policy-1.npz")

    def overtaken(run: Run, path: pathlib.Path, *more: Any) -> Any:
        if not first.exists():
            runs_export.export(run, first)
        return runs_export.export(run, path, *more)

    monkeypatch.setattr("mmrl.commands.export.export", overtaken)
    assert main(["export", "run"]) == 0
    assert sorted(path.name for path in first.parent.iterdir()) == [
        "run-policy-1.npz",
        "run-policy-2.npz",
    ]
    assert main(["export", "run", "--out", str(first)]) == 2


def test_rows_of_several_writers_are_whole(tmp_path: pathlib.Path):
    path = tmp_path / "rows.jsonl"

    def write(name: str) -> None:
        for i in range(20):
            runs.append(path, {"date": "", "cell": f"{name}{i}", "fill": "x" * 5000})
            revise(path, {"date": "", "cell": f"{name}{i}", "fill": name})

    assert at_once(*(lambda name=name: write(name) for name in "abc")) == []
    rows = [checkpoint.loads(line) for line in path.read_text().splitlines()]
    assert sorted(row["cell"] for row in rows) == sorted(
        f"{x}{i}" for x in "abc" for i in range(20)
    )
    assert all(row["fill"] == row["cell"][0] for row in rows)


def test_a_file_of_several_writers_is_that_of_one(tmp_path: pathlib.Path):
    contents = [bytes([i]) * (200_000 + i) for i in range(6)]
    jobs = [lambda x=x: files.replace(tmp_path / "file", x) for x in contents]
    for _ in range(5):
        assert at_once(*jobs) == []
        assert (tmp_path / "file").read_bytes() in contents
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def refuse(*_: object) -> None:
    raise OSError(95, "Operation not supported")


@pytest.mark.parametrize("links", [True, False])
def test_a_new_file_is_written_once(
    links: bool, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    contents = [bytes([i]) * 1000 for i in range(6)]
    jobs = [lambda x=x: files.create(tmp_path / "file", x) for x in contents]
    errors = at_once(*jobs)
    assert [type(error) for error in errors] == [FileExistsError] * 5
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() in contents
