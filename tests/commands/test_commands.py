"""The commands beside `train`: demo and doctor, and what they share."""

import dataclasses
import io
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from mmrl.__main__ import main
from mmrl.agents import AGENTS
from mmrl.commands import demo, doctor, explore, progress, terminal
from mmrl.course import demo as course
from mmrl.runs import Report, Run, Setup, Snapshot
from tests.helpers.runs import SETUP, payload, setup


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Every test in a folder of its own, 80 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


# demo


def test_the_demo_compares_like_with_like():
    """One network, batch and loss; the arms differ in batching or memory alone."""
    plan = course.setups((0, 1, 2))
    assert {task for task, _ in plan} == {"RepeatPreviousPaper", "RepeatFirstEasy"}
    for task in course.TASKS:
        tape, segments, memoryless = (plan[task, arm] for arm in course.ARMS)
        assert tape.config.batch % segments.config.segment_length == 0
        like_tape = {"batching": "tape", "segment_length": tape.config.segment_length}
        assert dataclasses.replace(segments.config, **like_tape) == tape.config
        assert dataclasses.replace(memoryless.config, memory="lru") == tape.config
        assert tape.config.memory == "lru" and segments.config.segment_length == 10
        assert tape.env == segments.env == memoryless.env == f"popgym-{task}-v0"
        assert tape.seeds == segments.seeds == memoryless.seeds == (0, 1, 2)


class StubRun(Run):
    """A run that consists of its setup and its history."""

    def __init__(self, setup: Setup, history: list[dict[str, Any]]):
        self.setup, self.snapshot = setup, Snapshot({}, None, history, None, {})


def test_no_curve_of_the_demo_is_cut_at_80_columns():
    low, blocks = {"returns": [-0.31, -0.27], "env_steps": 40_960, "seconds": 3.0}, 16
    plan = course.setups((0, 1))
    runs = {names: StubRun(setup, [low] * blocks) for names, setup in plan.items()}
    rows = [course.outcome(*names, run) for names, run in runs.items()]
    status = dict.fromkeys(plan, "112.3 s/block")
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(demo._table(runs, rows), demo._progress(plan, runs, status))
    text = console.export_text()
    curve = terminal.sparkline(np.full(blocks, -0.29), course.CHANCE, course.BEST)
    assert text.count(curve) == 2 * len(plan) and "…" not in text


@pytest.fixture
def plan() -> course.Plan:
    """Two "tasks" of two "agents" each, which are one program."""
    return {
        (task, agent): setup(learning_rate=rate)
        for task in ("First", "Second")
        for agent, rate in (("fast", 1e-2), ("slow", 1e-4))
    }


@pytest.mark.slow
def test_a_demo_leaves_table_curves_results_and_checkpoints(
    plan: course.Plan, capsys: pytest.CaptureFixture[str]
):
    folder = demo.demo(plan, pathlib.Path("demo"), threads=2)
    output = capsys.readouterr().out
    assert folder == pathlib.Path("demo/1")
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    lines = pathlib.Path("demo/results.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert [(row["task"], row["agent"]) for row in rows] == list(plan)
    for (names, expected), row in zip(plan.items(), rows, strict=True):
        run = Run(expected, folder / "-".join(names), resume=True)
        final = run.history[-1]["returns"]
        assert row["returns"] == final and row["min_over_seeds"] == min(final)
        assert row["env_steps"] == run.history[-1]["env_steps"] == 96
        low, high = row["interval_95"]
        assert low <= row["interquartile_mean"] <= high and row["versions"]
        assert f"{row['interquartile_mean']:.2f} [" in output
    assert max(map(len, output.splitlines())) <= 80
    assert "mmrl evaluate demo/1/First-fast" in output and "curves.png" in output


@pytest.mark.full
@pytest.mark.slow
def test_a_second_demo_keeps_the_first(plan: course.Plan):
    out = pathlib.Path("demo")
    first = demo.demo(plan, out, threads=1)
    lines, before = (out / "results.jsonl").read_text(), payload(first / "First-fast")
    assert demo.demo(plan, out, threads=1) == out / "2"
    assert (out / "results.jsonl").read_text().startswith(lines)
    assert payload(first / "First-fast") == before == payload(out / "2" / "First-fast")


@pytest.mark.slow
def test_an_interrupted_demo_is_taken_up_again(plan: course.Plan, monkeypatch: pytest.MonkeyPatch):
    out, real = pathlib.Path("demo"), demo.in_background

    def stop(*arguments: Any) -> Iterator[Any]:
        for count, item in enumerate(real(*arguments)):
            yield item
            if count == 7:  # the first run is complete, the second is not
                raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(demo, "in_background", stop)
        with pytest.raises(KeyboardInterrupt, match=r"in demo/1; .*same command"):
            demo.demo(plan, out, threads=1)
    while any(thread.name == "mmrl" for thread in threading.enumerate()):
        time.sleep(0.01)  # a process would be gone by now
    assert not (out / "results.jsonl").exists()
    timestamp = (out / "1" / "First-fast" / "checkpoint").stat().st_mtime_ns
    assert demo.demo(plan, out, threads=1) == out / "1"
    assert (out / "1" / "First-fast" / "checkpoint").stat().st_mtime_ns == timestamp
    assert len((out / "results.jsonl").read_text().splitlines()) == 4


@pytest.mark.slow
def test_an_interrupted_demo_of_other_settings_is_left_alone(plan: course.Plan):
    out = pathlib.Path("demo")
    Run(setup(learning_rate=0.5), out / "1" / "First-fast")
    assert demo.demo(plan, out, threads=1) == out / "2"


# doctor


@pytest.mark.full
def test_doctor_finds_a_healthy_machine(capsys: pytest.CaptureFixture[str]):
    assert main(["doctor"]) == 0
    output = capsys.readouterr().out
    for subject in ("versions", "device", "scheduler", "cache", "folder", "popgym", *AGENTS):
        assert subject in output
    assert "All is well." in output and "✗" not in output


def test_doctor_says_what_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail(_: Setup) -> Run:
        raise RuntimeError("no such device")

    monkeypatch.setattr(doctor, "Run", fail)
    monkeypatch.setenv("XLA_FLAGS", "")
    assert main(["doctor"]) == 1
    output = " ".join(capsys.readouterr().out.split())
    assert "fails: RuntimeError: no such device" in output
    assert f"export XLA_FLAGS={doctor.SCHEDULER}" in output.replace(" ", "").replace(
        "exportXLA", "export XLA"
    )
    assert "Something is wrong" in output


def test_doctor_finds_an_agent_at_chance_sick(monkeypatch: pytest.MonkeyPatch):
    values = np.zeros(3)
    monkeypatch.setattr(doctor, "quickly", lambda run: run)
    for final, state in ((0.0, "bad"), (1.0, "good")):
        report = Report(3, 3, 384, values + final, values, values, 1.0)
        monkeypatch.setattr(doctor, "Run", lambda setup, report=report: iter([report]))
        assert doctor.smoke_run("dqn").state == state


# terminal


def test_background_jobs_come_as_they_are_done():
    jobs = [lambda n=n: iter(range(n)) for n in (3, 0, 2)]
    assert list(terminal.in_background(jobs)) == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]
    together = list(terminal.in_background(jobs, threads=3))
    assert sorted(together) == sorted(terminal.in_background(jobs))


def test_an_error_in_the_background_is_raised_and_starts_no_more_jobs():
    jobs = []

    def fail() -> Iterator[int]:
        yield 1
        raise KeyError("inside")

    def other() -> Iterator[int]:
        jobs.append(True)
        yield 2

    with pytest.raises(KeyError, match="inside"):
        list(terminal.in_background([fail, other]))
    assert not jobs


def test_a_job_ends_when_nobody_listens():
    counts = [0, 0]

    def count(job: int) -> Iterator[int]:
        for number in range(600_000):  # ten minutes, unless it is stopped
            time.sleep(0.001)
            counts[job] += 1
            yield number

    items = terminal.in_background([lambda: count(0), lambda: count(1)])
    assert next(items) == (0, 0)
    items.close()  # type: ignore[attr-defined]
    while any(thread.name == "mmrl" for thread in threading.enumerate()):
        time.sleep(0.01)
    assert 1 <= counts[0] < 600_000 and counts[1] == 0


def test_a_sparkline_spans_its_range():
    assert terminal.sparkline(np.array([-0.5, 0.25, 1.0, 9.0, -9.0]), -0.5, 1.0) == "▁▅██▁"


@pytest.mark.parametrize("seeds", [1, 5, 40])
def test_a_line_fits_the_terminal(seeds: int):
    values = np.linspace(-1, 1, seeds)
    report = Report(123, 1000, 12_345_678, values, values, values, 123.4)
    lines = [progress._headings(range(seeds), 5), progress._line(report, 5)]
    assert len(lines[0]) == len(lines[1]) <= 80


def test_time_left_is_that_of_blocks_that_did_not_compile():
    values = np.zeros(1)
    seconds = [100.0, 2.0, 4.0]
    words = [
        progress._left(Report(n, 23, 96, values, values, values, seconds[n - 1]), seconds[:n])
        for n in (1, 2, 3)
    ]
    assert words == ["36:40", "0:42", "1:00"]


def test_a_run_is_watched(capsys: pytest.CaptureFixture[str]):
    run = Run(SETUP)
    progress.watch(run, Console(), run)
    assert len(run.history) == 3
    assert "seed 0 seed 1" in capsys.readouterr().out


# explore


def test_the_app_without_voila_names_the_extra(monkeypatch: pytest.MonkeyPatch):
    def missing(_: str) -> None:
        raise ModuleNotFoundError(name="voila")

    module = types.ModuleType("voila.app")
    monkeypatch.setattr(module, "__getattr__", missing, raising=False)
    monkeypatch.setitem(sys.modules, "voila.app", module)
    monkeypatch.setitem(sys.modules, "voila", module)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    with pytest.raises(ValueError, match=r"pip install -c requirements\.lock -e '\.\[app\]'"):
        explore.main([])


def test_the_kernel_of_the_app_does_not_wait_for_the_compiler():
    """Python aborts if it ends while XLA compiles in another thread: the kernel exits at once."""
    cells = json.loads((explore.HOME / "explore.ipynb").read_text("utf-8"))["cells"]
    start = (
        "import atexit, sys, types\n"
        "atexit.register(print, 'Python ends')\n"
        "app = types.SimpleNamespace(explore=lambda: print('shown', flush=True))\n"
        "sys.modules['mmrl.course.app'] = app\n"
    )
    code = start + "".join(line for cell in cells for line in cell["source"])
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (process.returncode, process.stdout, process.stderr) == (0, "shown\n", "")
