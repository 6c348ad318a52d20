"""What writers leave in a run's folder is its history, once, whatever ended the process."""

import csv
import errno
import importlib
import os
import pathlib
import struct
import sys
from typing import Any

import pytest

from mmrl.__main__ import main
from mmrl.runs import Run, RunError, log_reports
from tests.helpers.runs import ARGUMENTS, SETUP, setup

REMEDY = "needs tensorboardX: pip install -c requirements.lock -e '.[dev]'"


def table(path: pathlib.Path) -> list[dict[str, float]]:
    with (path / "history.csv").open(newline="") as file:
        return [{name: float(x) for name, x in row.items()} for row in csv.DictReader(file)]


def expected_rows(run: Run) -> list[dict[str, float]]:
    """A run's history as it should stand in a table."""
    return [
        {
            **{name: row[name] for name in ("block", "env_steps", "seconds")},
            **{"seed": seed, "return": row["returns"][i], "loss": row["loss"][i]},
            **{"fill": row["fill"][i]},
        }
        for row in run.history
        for i, seed in enumerate(run.setup.seeds)
    ]


def displayed_curves(path: pathlib.Path, seed: int) -> dict[str, list[tuple[int, float]]]:
    """The curves that TensorBoard shows: a record that is cut short ends a file, and a start
    of a session makes it forget the steps from its own on."""
    event_pb2: Any = importlib.import_module("tensorboardX.proto.event_pb2")
    curves: dict[str, list[tuple[int, float]]] = {}
    for file in sorted((path / "tensorboard" / f"seed-{seed}").iterdir()):
        content = file.read_bytes()
        while len(content) >= 12:
            (size,) = struct.unpack("<Q", content[:8])
            if len(content) < size + 16:
                break
            event = event_pb2.Event.FromString(content[12 : 12 + size])
            content = content[16 + size :]
            if event.session_log.status == event_pb2.SessionLog.START:
                curves = {k: [x for x in v if x[0] < event.step] for k, v in curves.items()}
            for value in event.summary.value:
                curves.setdefault(value.tag, []).append((event.step, value.simple_value))
    return curves


def test_a_table_has_a_row_for_each_block_and_seed_whatever_was_cut_short(tmp_path: pathlib.Path):
    """A kill between checkpoint and table, blocks without a writer, and a run that is complete."""
    run, real = Run(SETUP, tmp_path), os.replace
    next(reports := log_reports(run, "csv"))
    assert table(tmp_path) == expected_rows(run)

    def kill(partial: pathlib.Path, to: pathlib.Path) -> None:
        if to.name == "history.csv":
            raise KeyboardInterrupt
        real(partial, to)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", kill)
        with pytest.raises(KeyboardInterrupt):
            next(reports)
    assert len(table(tmp_path)) == 2 and len(run.history) == 2
    assert [report.block for report in log_reports(Run(SETUP, tmp_path, resume=True), "csv")] == [3]
    list(Run(setup(blocks=4), tmp_path, resume=True))
    again = Run(setup(blocks=4), tmp_path, resume=True)
    assert list(log_reports(again, "csv")) == [] and table(tmp_path) == expected_rows(again)
    assert [row["block"] for row in table(tmp_path)] == [1, 1, 2, 2, 3, 3, 4, 4]


def test_tensorboard_shows_each_block_once_whatever_was_cut_short(tmp_path: pathlib.Path):
    pytest.importorskip("tensorboardX", reason=REMEDY)
    reports = log_reports(Run(SETUP, tmp_path), "tensorboard")
    assert [next(reports).block for _ in range(2)] == [1, 2]
    (file,) = (tmp_path / "tensorboard" / "seed-1").iterdir()
    file.write_bytes(file.read_bytes()[:-20])  # in the middle of a record
    next(iter(Run(SETUP, tmp_path, resume=True)))  # written by nobody
    run = Run(setup(blocks=4), tmp_path, resume=True)
    assert [report.block for report in log_reports(run, "tensorboard")] == [4]
    for i, seed in enumerate(SETUP.seeds):
        curves = displayed_curves(tmp_path, seed)
        assert curves.keys() == {"return", "loss", "fill"}
        for tag, key in (("return", "returns"), ("loss", "loss"), ("fill", "fill")):
            points = [(row["env_steps"], pytest.approx(row[key][i])) for row in run.history]
            assert curves[tag] == points and len(points) == 4
    for log in ([], ["--log", "tensorboard"]):  # one more file, which tells all of it again
        there = len(list(file.parent.iterdir()))
        assert main(["train", "--resume", "--out", str(tmp_path), *log]) == 0
        assert (
            len(list(file.parent.iterdir())) == there + 1
            and displayed_curves(tmp_path, 1) == curves
        )


def test_no_file_of_tensorboard_stays_open(tmp_path: pathlib.Path):
    """A thousand seeds have as many files, and a full disk must not be reported again at exit."""
    pytest.importorskip("tensorboardX", reason=REMEDY)
    reports = log_reports(Run(SETUP, tmp_path), "tensorboard")
    next(reports)
    names = [os.path.realpath(f"/dev/fd/{number}") for number in os.listdir("/dev/fd")]
    assert not [name for name in names if "tfevents" in name]


@pytest.mark.parametrize("name", ["csv", "tensorboard"])
def test_a_full_disk_loses_no_block(
    name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    run = Run(SETUP, tmp_path)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if name == "tensorboard":
        pytest.importorskip("tensorboardX", reason=REMEDY)
    writes = {"csv": "mmrl.runs.writers.replace", "tensorboard": "mmrl.runs.writers._append"}
    monkeypatch.setattr(writes[name], full)
    with pytest.raises(RunError, match=r"No space left on device.*intact"):
        log_reports(run, name)
    next(iter(run))
    with pytest.raises(RunError, match="No space left"):
        log_reports(run, name)
    assert len(Run(SETUP, tmp_path, resume=True).history) == 1


def test_what_cannot_be_written_is_said_before_anything_is(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(ValueError, match=r"`log` .*\['csv', .* got \['wandb'\]"):
        log_reports(Run(SETUP), "wandb")
    with pytest.raises(ValueError, match="`run` must have a `path`"):
        log_reports(Run(SETUP), "csv")
    for name in ("tensorboardX", "tensorboardX.summary"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    out, log = tmp_path / "run", ["--log", "csv", "tensorboard"]
    assert main(["train", SETUP.env, *ARGUMENTS, "--blocks", "1", "--out", str(out), *log]) == 2
    assert "from the extra mmrl-jax[tensorboard]" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.slow
def test_the_command_line_logs_what_is_asked_then(tmp_path: pathlib.Path):
    """Also of a run that is complete, and from then on: it is no part of the setup."""
    out = ["--out", str(tmp_path)]
    resume = ["train", "--resume", *out, "--log", "csv"]
    next(iter(Run(setup(blocks=1), tmp_path)))
    assert main(resume) == 0 and len(table(tmp_path)) == 2
    assert main([*resume, "--blocks", "2"]) == 0 and len(table(tmp_path)) == 4
    assert main(["train", "--resume", *out, "--blocks", "3"]) == 0 and len(table(tmp_path)) == 6


@pytest.mark.slow
def test_what_cannot_go_on_here_is_said(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    next(iter(Run(setup(blocks=1), tmp_path)))
    (tmp_path / "tensorboard").mkdir()
    for name in ("tensorboardX", "tensorboardX.summary"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    resume = ["train", "--resume", "--out", str(tmp_path), "--log", "csv", "--blocks"]
    for blocks in (2, 3):
        assert main([*resume, str(blocks)]) == 0 and len(table(tmp_path)) == 2 * blocks
        message = f"New blocks are not logged by tensorboard in {tmp_path}: "
        message += "`log` = 'tensorboard' requires tensorboardX"
        assert capsys.readouterr().out.count(message) == 1
    assert main([*resume[:-1], "tensorboard"]) == 2  # which is asked for
