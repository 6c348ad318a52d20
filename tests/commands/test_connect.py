"""How processes find each other, and what is said where they do not."""

import pathlib
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from mmrl.commands import connect
from mmrl.commands.connect import Hosts
from mmrl.runs import processes

SLURM = {
    "SLURM_JOB_ID": "4097",
    "SLURM_STEP_NODELIST": "node[07-09],far",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "3",
    "SLURM_LOCALID": "1",
}
ALL = "--distributed --out a --processes 2"
PAIR = Hosts(True, "localhost:1234", 2, 1)


ALONE = """
import sys
from mmrl.__main__ import main
from mmrl.commands import connect

connect.WAIT = int(sys.argv[1])
sys.exit(main(sys.argv[2:]))
"""


def alone(process: str, wait: int) -> tuple[list[str], str]:
    """Return the command of one of two processes, which waits some seconds, and its address."""
    with socket.create_server(("", 0)) as listener:
        address = f"localhost:{listener.getsockname()[1]}"
    words = ["train", "CartPole-v1", *ALL.split(), "--coordinator", address, "--process", process]
    return [sys.executable, "-c", ALONE, str(wait), *words], address


@pytest.mark.full
@pytest.mark.parametrize("process", ["0", "1"])
def test_a_process_that_does_not_come_is_a_sentence(process: str, tmp_path: pathlib.Path):
    command, address = alone(process, 1)
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=tmp_path)
    assert result.returncode == 2 and result.stderr.count("\n") == 1
    assert f"Not all of the 2 processes joined {address} within 1 s" in result.stderr


@pytest.mark.full
def test_an_interrupt_ends_a_process_that_waits(tmp_path: pathlib.Path):
    command, _ = alone("0", 30)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=tmp_path, **pipes) as waiting:
        assert waiting.stdout and "waiting for 1 other" in waiting.stdout.readline()
        time.sleep(1)  # until JAX waits
        waiting.send_signal(signal.SIGINT)
        assert waiting.communicate(timeout=600)[1] == "mmrl: Stopped.\n"
    assert waiting.returncode == 130


def test_an_error_of_jax_ends_the_wait(monkeypatch: pytest.MonkeyPatch):
    def initialize(*_, **__):
        raise RuntimeError("two processes have this number")

    monkeypatch.setattr(connect.jax.distributed, "initialize", initialize)
    with pytest.raises(RuntimeError, match="have this number"):
        connect.connect([*ALL.split(), "--coordinator", "b:1", "--process", "1"])


def test_a_taken_port_is_said():
    with socket.create_server(("", 0)) as listener:
        port = listener.getsockname()[1]
        words = [*ALL.split(), "--coordinator", f"localhost:{port}", "--process", "0"]
        with pytest.raises(ValueError, match=f"cannot listen on port {port}: Address already in"):
            connect.connect(words)


def test_options_say_where_a_process_is():
    assert connect._place(PAIR) == ("localhost:1234", 2, 1, None)


def test_slurm_is_found_and_its_devices_can_be_chosen(monkeypatch: pytest.MonkeyPatch):
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    assert connect._place(Hosts(True)) == ("node07:61441", 4, 3, [1])
    monkeypatch.setenv("JAX_COORDINATOR_PORT", "1234")
    monkeypatch.setenv("JAX_LOCAL_DEVICE_IDS", "0")
    assert connect._place(Hosts(True)) == ("node07:1234", 4, 3, None)
    assert connect._place(PAIR) == ("localhost:1234", 2, 1, None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--distributed --out there",
            "--coordinator, --processes, --process are missing. Start every",
        ),
        ("--distributed --resume", "--out is missing"),
        ("--out=a --coordinator b:1 --processes 2 --process 0", "--distributed is missing"),
        ("--out=a --distributed --coordinator b:1 --process 1", "and --processes is missing"),
        (f"{ALL} --coordinator here --process 0", "must be HOST:PORT, .*; got here"),
        (f"{ALL} --coordinator b:65536 --process 1", "a port below 65536; got b:65536"),
        (f"{ALL} --coordinator b:1 --process 0 --processes 0", "must be at least 1; got 0"),
        (f"{ALL} --coordinator b:1 --process 2", "must be between 0 and 1; got 2"),
    ],
)
def test_what_is_missing_is_said_at_once(words: str, message: str):
    with pytest.raises(ValueError, match=message):
        connect.connect(["CartPole-v1", *words.split()])


@pytest.mark.parametrize("words", ["--out there", "--distributed --out there --help"])
def test_one_process_is_alone(words: str):
    connect.connect(["CartPole-v1", *words.split()])


def test_settings_that_differ_are_named_in_all_processes(monkeypatch):
    monkeypatch.setattr(processes.jax, "process_count", lambda: 2)
    monkeypatch.setattr(processes, "broadcast", lambda work: {"seeds": [0, 1], "gamma": 0.9})
    replace = monkeypatch.setattr
    replace(processes.multihost_utils, "process_allgather", lambda own: np.array([0, int(own)]))
    processes.agree({"seeds": [0, 1], "gamma": 0.9})
    with pytest.raises(ValueError, match=r"process 1 differ: gamma is 0\.9 in process 0, and 0\.5"):
        processes.agree({"seeds": [0, 1], "gamma": 0.5})
    replace(processes.multihost_utils, "process_allgather", lambda own: np.array([0, 3]))
    with pytest.raises(ValueError, match=r"settings of process 1 differ\."):
        processes.agree({"seeds": [0, 1], "gamma": 0.9})
