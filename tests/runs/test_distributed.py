"""One run in two processes: stopped, killed, gone on with, and the same as in one process."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import yaml

from mmrl.agents import ppo
from mmrl.runs import Run, Setup
from tests.helpers.devices import call
from tests.helpers.runs import arguments, leaves

ROOT = pathlib.Path(__file__).parents[2]
CLUSTER = ROOT / "book" / "cluster"
CONFIG = ppo.Config(
    memory="none",
    width=8,
    environments=4,
    rollout=8,
    minibatches=1,
    epochs=1,
    block=2,
    blocks=1_000_000,  # more than are ever trained: a signal ends each process
    episodes=2,
)
SETUP = Setup(env="CartPole-v1", agent="ppo", seeds=(0, 1), config=CONFIG)
WORDS = ["CartPole-v1", "--agent", "ppo", "--seeds", "0", "1", *arguments(CONFIG)]
WORDS += ["--blocks", str(CONFIG.blocks)]
SEVERAL = """
import sys
from mmrl.__main__ import main
sys.exit(main([*sys.argv[1:]]) == 2 and main([*sys.argv[1:], "--resume"]))
"""
LATEST = 600  # seconds for what takes ten on an idle machine

# A step of two tasks of one node, as Slurm has it, and what asks for the job once more.
SRUN = f"""#!/bin/bash
shift
export SLURM_STEP_NODELIST=localhost SLURM_NTASKS=2 SLURM_LOCALID=0
for i in 0 1; do
    SLURM_PROCID=$i {sys.executable} -m "$@" > said-$i 2>&1 & pids+=($!); echo $! > pid-$i
done
for pid in "${{pids[@]}}"; do wait "$pid"; code=$?; done
exit $code
"""
SCONTROL = "#!/bin/bash\necho $* > asked\n"


def until(true: Callable[[], Any]) -> None:
    latest = time.monotonic() + LATEST
    while not true():
        assert time.monotonic() < latest
        time.sleep(0.02)


def blocks(path: pathlib.Path) -> int:
    """How many blocks a run has, while it is trained."""
    results = path / "results.json"
    return len(json.loads(results.read_text())["history"]) if results.exists() else 0


def free_port() -> str:
    with socket.create_server(("localhost", 0)) as listener:
        return str(listener.getsockname()[1])


def pair(path: pathlib.Path, start: list[str], *more: str) -> list[subprocess.Popen[str]]:
    """Two processes, which go on with a run."""
    words = [*WORDS, "--out", str(path), "--distributed", "--processes", "2", *more]
    words += ["--coordinator", f"localhost:{free_port()}", "--process"]
    pipes: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return [
        subprocess.Popen([sys.executable, *start, "train", *words, i], cwd=ROOT, **pipes)
        for i in "01"
    ]


def kill(which: int, path: pathlib.Path, *how: Any) -> tuple[int, list[str]]:
    """Kill one of two processes in a block: the exit code of the other, and what both said."""
    before, both = blocks(path), pair(path, *how)
    try:
        until(lambda: blocks(path) > before + 1 or any(x.poll() is not None for x in both))
        both[which].kill()
        lines = [process.communicate(timeout=LATEST)[1] for process in both]
    finally:
        for process in both:
            process.kill()
    assert blocks(path) > before + 1, lines
    return both[1 - which].returncode, lines


def whole(path: str) -> list[bool]:
    """Go on with a run in one process: is it that of an unbroken one?  With two devices."""
    gone_on = Run(SETUP, path, resume=True, devices=2)
    goal, full = len(gone_on.history) + 2, Run(SETUP, devices=2)
    for run in (gone_on, full):
        next(report for report in run if report.block == goal)
    rows = [[{**row, "seconds": 0} for row in run.history] for run in (gone_on, full)]
    states = zip(leaves(gone_on.state), leaves(full.state), strict=True)
    return [rows[0] == rows[1], all(np.array_equal(x, y, equal_nan=True) for x, y in states)]


@pytest.mark.full
def test_two_processes_are_stopped_killed_and_gone_on_with(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = tmp_path / "run"

    # Slurm ends both with SIGTERM to one: they stop after the same block, and come again.
    for name, script in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    slurm = {"SLURM_JOB_ID": "77", "JAX_COORDINATOR_PORT": free_port(), "OUT": str(path)}
    job = subprocess.Popen(
        ["bash", CLUSTER / "train.sbatch", *WORDS], cwd=tmp_path, env={**os.environ, **slurm}
    )
    until(lambda: blocks(path) > 1 or job.poll() is not None)
    os.kill(int((tmp_path / "pid-1").read_text()), signal.SIGTERM)
    first, second = ((tmp_path / f"said-{i}") for i in (0, 1))
    assert job.wait(LATEST) == 143, first.read_text() + second.read_text()
    assert (tmp_path / "asked").read_text() == "requeue 77\n"
    assert f"Stopped. At least blocks 1 to {blocks(path)} are saved" in first.read_text()
    assert "block" not in second.read_text()

    # A process that is killed leaves the other nothing to wait for.
    code, words = kill(1, path, ["-m", "mmrl"], "--resume")
    assert code == 2 and words[0].count("mmrl: A process of this run has failed") == 1

    # What one finds wrong with a folder ends both, in one sentence; then process 0 is killed.
    code, words = kill(0, path, ["-c", SEVERAL])
    message = f"{path} already contains a run."
    assert code != 0 and [message in each for each in words] == [True, True]

    assert call(whole, str(path), devices=2) == [True, True]


def test_the_job_of_kubernetes_says_the_same_of_all_its_pods():
    service, job = yaml.safe_load_all((CLUSTER / "train-job.yaml").read_text())
    spec, name = job["spec"], job["metadata"]["name"]
    pod = spec["template"]["spec"]
    words = pod["containers"][0]["command"]
    assert service["spec"]["selector"] == {"job-name": name}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert f"--coordinator={name}-0.{pod['subdomain']}:55527" in words
    assert f"--processes={spec['completions']}" in words and spec["completionMode"] == "Indexed"
    assert (
        spec["parallelism"] == spec["completions"] and "--process=$(JOB_COMPLETION_INDEX)" in words
    )
