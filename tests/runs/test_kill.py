"""`kill -9` at any moment, then resume: bit for bit what an unbroken run computes."""

import collections
import json
import multiprocessing
import os
import pathlib
import random
import time
from typing import Any

import pytest

from mmrl.__main__ import main
from mmrl.runs import Run, checkpoint, files, reopen, saved_setup
from tests.helpers.runs import ARGUMENTS, SETUP, payload, setup

KILLS = 9  # each begins with the start of a process, which takes long where others compute


class Kill(BaseException):
    """Ends a write as a kill would: nothing is cleaned up, what was written stays."""


@pytest.fixture(scope="module")
def full_run(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("runs") / "unbroken"
    assert len(list(Run(SETUP, path))) == 3
    return path


@pytest.mark.slow
@pytest.mark.parametrize("file", ["checkpoint", "results.json"])  # best: test_best.py
@pytest.mark.parametrize("moment", ["half written", "not yet on disk", "not yet renamed"])
def test_a_kill_inside_a_write(
    file: str, moment: str, full_run: pathlib.Path, tmp_path: pathlib.Path
):
    """Block 2 dies while one of its two files is replaced."""
    run, path = Run(SETUP, tmp_path / "run"), tmp_path / "run"
    next(iter(run))
    before = payload(path)

    def kill(*_: Any) -> None:
        raise Kill

    def replace(to: pathlib.Path, *parts: Any) -> None:
        content = b"".join(parts)
        if to.name == file:
            patch.setattr(os, "replace" if moment == "not yet renamed" else "fsync", kill)
            content = content[: len(content) // 2] if moment == "half written" else content
        real(to, content)

    real = files.replace
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "replace", replace)
        patch.setattr("mmrl.runs.folder.replace", replace)
        with pytest.raises(Kill):
            next(iter(run))
    assert (path / f"{file}.partial").exists()
    blocks = 1 if file == "checkpoint" else 2
    assert len(reopen(path).history) == blocks and (payload(path) == before) == (blocks == 1)
    assert [report.block for report in Run(SETUP, path, resume=True)] == [2, 3][blocks - 1 :]
    assert payload(path) == payload(full_run)
    assert len(json.loads((path / "results.json").read_text())["history"]) == 3


class Victim:
    """`mmrl train --resume` in a process of its own."""

    def __init__(self, path: pathlib.Path):
        arguments = ["train", SETUP.env, *ARGUMENTS, "--out", str(path), "--resume"]
        # Forked from a process that has the slow imports behind it, but has not started XLA.
        context = multiprocessing.get_context("forkserver")
        slow = ["mmrl.agents.dqn", "tyro", "gymnasium", "scipy.stats", "flax.struct"]
        context.set_forkserver_preload(slow)
        self.file, self.began = path / "checkpoint", time.monotonic()
        self.seen = self.timestamp()
        self.process = context.Process(
            target=main, args=([*arguments, "--blocks", "100000"],), daemon=True
        )
        self.process.start()

    def timestamp(self) -> int:
        return self.file.stat().st_mtime_ns if self.file.exists() else 0

    def wait_for_a_block(self) -> float:
        """Seconds until the first checkpoint of this process."""
        while self.timestamp() == self.seen:
            assert self.process.is_alive()
            time.sleep(0.002)
        return time.monotonic() - self.began

    def kill(self) -> None:
        self.process.kill()
        self.process.join()
        assert self.process.exitcode == -9


@pytest.mark.full
def test_kills_at_random_moments_change_nothing(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    # The first start compiles; the others find even the smallest program.
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    chance, path = random.Random(0), tmp_path / "run"
    cases: collections.Counter[str] = collections.Counter()
    start = 10.0
    for number in range(KILLS):
        before, victim = blocks_in(path), Victim(path)
        if number % 3 == 1:  # at once, or while it starts, or soon after
            time.sleep(chance.uniform(0, start) * (number % 2 == 0))
        else:
            start = victim.wait_for_a_block()
            time.sleep(chance.uniform(0, 0.3))
        victim.kill()
        cases["in training" if blocks_in(path) > before else "while starting"] += 1
        cases["in a write"] += any(path.glob("*.partial"))
    # Those that have waited for a block, and those that were killed at once.
    assert cases["in training"] >= 5 and cases["while starting"] >= 2, cases

    blocks = blocks_in(path) + 2
    assert main(["train", "--resume", "--out", str(path), "--blocks", str(blocks)]) == 0
    assert len(list(Run(setup(blocks=blocks), tmp_path / "unbroken"))) == blocks
    assert payload(path) == payload(tmp_path / "unbroken")


def blocks_in(path: pathlib.Path) -> int:
    """Blocks in the checkpoint, which has to be whole at all times."""
    if not (path / "checkpoint").exists():
        return 0
    assert saved_setup(path) is not None
    return len(checkpoint.read(path / "checkpoint")[0]["history"])
