"""Demonstration of a run in two processes, in which one process is killed."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

_COUNT = "--xla_force_host_platform_device_count"
_COLOR_VARIABLES = ("FORCE_COLOR", "CLICOLOR_FORCE")  # set by Jupyter kernels


def blocks(path: Path) -> int:
    """Count the blocks of a run that are on disk."""
    results = path / "results.json"
    return len(json.loads(results.read_text("utf-8"))["history"]) if results.exists() else 0


def kill_one(
    path: Path,
    words: Sequence[str],
    *,
    limit: float = 240.0,
    program: Sequence[str] = ("-m", "mmrl"),
) -> str:
    """Train a run in two processes, kill one, and describe how the other one ends.

    `words` are the arguments of `mmrl train` without the folder, which is `path`. Each process has
    one device. Process 1 is killed after two blocks. `limit` is the time in seconds for these two
    blocks, and again for process 0 to end. The result also describes failures, and no process is
    left running.
    """
    with contextlib.ExitStack() as running:
        both = [running.enter_context(one) for one in _pair(path, words, program)]
        try:
            has_two_blocks = (
                _wait(lambda: blocks(path) > 1 or _end(both), limit) and blocks(path) > 1
            )
            if has_two_blocks:
                both[1].kill()
                _wait(lambda: both[0].poll() is not None, limit)
        finally:
            for process in both:
                process.kill()
    last = " ".join(_log_path(path, 0).read_text("utf-8", "replace").split("\n\n")[-1].split())
    if not has_two_blocks:
        return f"No second block within {limit:g} s. Last message of process 0: {last}"
    return f"Process 1 was killed after block {blocks(path)}. Last message of process 0: {last}"


def _pair(
    path: Path, words: Sequence[str], program: Sequence[str]
) -> list[subprocess.Popen[bytes]]:
    with socket.create_server(("localhost", 0)) as listener:
        address = f"localhost:{listener.getsockname()[1]}"  # an unused port
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if _COUNT not in flag]
    env = {name: value for name, value in os.environ.items() if name not in _COLOR_VARIABLES}
    command = [sys.executable, *program, "train", *words, "--out", str(path), "--distributed"]
    command += ["--coordinator", address, "--processes", "2", "--process"]
    result = []
    for process in range(2):
        with _log_path(path, process).open("w") as file:
            start = subprocess.Popen(
                [*command, str(process)],
                env={**env, "XLA_FLAGS": " ".join(flags)},
                stdout=file,
                stderr=file,
            )
        result.append(start)
    return result


def _log_path(path: Path, process: int) -> Path:
    """Return the log file of a process, next to the folder of the run."""
    return path.with_name(f"{path.name}-said-{process}")


def _end(both: Sequence[subprocess.Popen[bytes]]) -> bool:
    return any(process.poll() is not None for process in both)


def _wait(until: Callable[[], bool], seconds: float) -> bool:
    latest = time.monotonic() + seconds
    while not until() and time.monotonic() < latest:
        time.sleep(0.1)
    return until()
