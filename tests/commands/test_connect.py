"""How processes find each other: in threads here, and as processes in runs/test_distributed.py."""

import itertools
import socket
import threading
import time
import types

import numpy as np
import pytest

from mmrl.commands import connect
from mmrl.commands.connect import Hosts, meet
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


def free_port() -> int:
    with socket.create_server(("", 0)) as listener:
        return listener.getsockname()[1]


def together(processes: int, here: list[int], port: int, seconds: int = 600) -> list[str]:
    """What `meet` says to each of those that are here; "" if they met."""
    said = dict.fromkeys(here, "")

    def come(process: int) -> None:
        try:
            meet(f"localhost:{port}", processes, process, seconds)
        except Exception as error:
            said[process] = str(error)

    threads = [threading.Thread(target=come, args=(i,), name=f"process {i}") for i in here]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=600)
    return list(said.values())


def listening(port: int) -> socket.socket:
    """A connection to a port, once somebody listens there."""
    while True:
        try:
            return socket.create_connection(("localhost", port))
        except ConnectionError:
            time.sleep(0.01)


def test_all_meet_and_the_port_is_free_again():
    port = free_port()
    assert together(3, [2, 1, 0], port) == ["", "", ""]
    assert together(3, [0, 1, 2], port) == ["", "", ""]


def test_those_that_do_not_come_are_named_to_all_others(monkeypatch: pytest.MonkeyPatch):
    reads = itertools.count()

    def late() -> float:
        """The time is up for process 0 once it has waited for one other, and never for others."""
        mine = threading.current_thread().name == "process 0"
        return 600.0 * (mine and next(reads) > 1)

    clock = types.SimpleNamespace(monotonic=late, sleep=time.sleep)
    monkeypatch.setattr(connect, "time", clock)
    first, other = together(4, [0, 2], free_port())
    assert first == other and "these did not come to localhost" in first
    assert "within 600 s: 1, 3. Start" in first


@pytest.mark.slow
def test_process_0_is_missed_too():
    assert "within 1 s: 0. Start" in together(2, [1], free_port(), seconds=1)[0]


def test_a_taken_port_is_said():
    with socket.create_server(("", 0)) as listener:
        said = together(2, [0], port := listener.getsockname()[1])
    assert f"cannot listen on port {port}: Address already in use. Choose another" in said[0]


def test_who_was_told_of_more_processes_is_answered_at_once():
    port, said = free_port(), []
    waiting = threading.Thread(target=lambda: said.extend(together(2, [0], port)))
    waiting.start()
    other = together(3, [1], port)
    waiting.join(timeout=600)
    assert said == other == ["--processes is 2 in process 0, and 3 in 1: give it alike to all."]


def test_whoever_else_knocks_is_not_counted():
    port, said = free_port(), []
    waiting = threading.Thread(target=lambda: said.extend(together(2, [0], port)))
    waiting.start()
    for word in (b"GET / HTTP/1.1\r\n\r\n", b"mmrl ", b""):
        with listening(port) as stranger:
            stranger.sendall(word)
    assert together(2, [1], port) == [""]
    waiting.join(timeout=600)
    assert said == [""]


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
    ("words", "said"),
    [
        (
            "--distributed --out there",
            "--coordinator, --processes, --process are not given. Start every",
        ),
        ("--distributed --resume", "--out is missing: several processes need"),
        ("--out=a --coordinator b:1 --processes 2 --process 0", "--distributed is missing"),
        ("--out=a --distributed --coordinator b:1 --process 1", "and --processes is not given"),
        (f"{ALL} --coordinator here --process 0", "must be HOST:PORT, .*; got here"),
        (f"{ALL} --coordinator b:65536 --process 1", "a port below 65536; got b:65536"),
        (f"{ALL} --coordinator b:1 --process 0 --processes 0", "must be at least 1; got 0"),
        (f"{ALL} --coordinator b:1 --process 2", "must be from 0 to 1, below --processes; got 2"),
    ],
)
def test_what_is_missing_is_said_at_once(words: str, said: str):
    with pytest.raises(ValueError, match=said):
        connect.connect(["CartPole-v1", *words.split()])


@pytest.mark.parametrize("words", ["--out there", "--distributed --out there --help"])
def test_one_process_is_alone(words: str):
    connect.connect(["CartPole-v1", *words.split()])


def test_settings_that_differ_are_named_in_all_processes(monkeypatch):
    monkeypatch.setattr(processes.jax, "process_count", lambda: 2)
    monkeypatch.setattr(processes, "broadcast", lambda work: {"seeds": [0, 1], "gamma": 0.9})
    gathered = monkeypatch.setattr
    gathered(processes.multihost_utils, "process_allgather", lambda own: np.array([0, int(own)]))
    processes.agree({"seeds": (0, 1), "gamma": 0.9})
    with pytest.raises(ValueError, match=r"process 1 differ: gamma is 0\.9 in process 0, and 0\.5"):
        processes.agree({"seeds": (0, 1), "gamma": 0.5})
    gathered(processes.multihost_utils, "process_allgather", lambda own: np.array([0, 3]))
    with pytest.raises(ValueError, match=r"those of process 1 differ\."):
        processes.agree({"seeds": (0, 1), "gamma": 0.9})
