"""`--distributed`: the processes of one run find each other, before JAX starts.

JAX aborts where a process is missing, and crashes where a port is taken. So they meet first in
plain sockets, where every mistake is a sentence, and then start JAX together.
"""

import contextlib
import dataclasses
import os
import signal
import socket
import time
from collections.abc import Sequence

import jax
import tyro
from jax._src.clusters import ClusterEnv  # `initialize` asks it too, but says nothing of the answer
from jax.experimental import multihost_utils

WAIT = 300  # seconds until the last process has to be there
LOST = 60  # seconds without a sign until a process counts as dead, and all others end
_HERE = b"mmrl "  # and the number of a process and how many it knows of; the answer begins so, too


@dataclasses.dataclass(frozen=True)
class Hosts:
    """Which processes train together, on one host or on many."""

    distributed: tyro.conf.FlagCreatePairsOff[bool] = False
    """Train in several processes, each started with this command; needs --out. Slurm, Open MPI and
    Kubernetes are found; elsewhere say the next three."""
    coordinator: str | None = None
    """HOST:PORT of process 0, the same for all."""
    processes: int | None = None
    """How many there are."""
    process: int | None = None
    """Which of them this one is, from 0."""


def connect(arguments: Sequence[str]) -> None:
    """Join the other processes that these words, or a cluster's variables, name, if they ask to.

    Raises `ValueError` if nothing names them, and if one does not come within `WAIT` seconds.
    """
    words = {word.partition("=")[0] for word in arguments}
    options = {f"--{field.name}" for field in dataclasses.fields(Hosts)}
    if not words & options or words & {"-h", "--help"} or jax.distributed.is_initialized():
        return
    if missing := sorted({"--distributed", "--out"} - words):
        raise ValueError(
            f"{missing[0]} is missing: several processes need --distributed, and --out, a folder "
            "that is the same for all."
        )
    hosts, _ = tyro.cli(Hosts, args=arguments, return_unknown_args=True, prog="mmrl train")
    address, processes, process, local = _place(hosts)
    if process == 0:
        print(
            f"waiting for {processes - 1} other processes at {address}, at most {WAIT} s",
            flush=True,
        )
    meet(address, processes, process, WAIT)
    jax.distributed.initialize(
        address,
        processes,
        process,
        local,
        cluster_detection_method="deactivate",
        heartbeat_timeout_seconds=LOST,
        shutdown_timeout_seconds=LOST,
    )
    # CPUs wait 30 s for the first collective, and one may compile for longer than another.
    multihost_utils.sync_global_devices("connect")
    signal.signal(signal.SIGINT, _stop_all)


def _stop_all(*_: object) -> None:
    """Let Ctrl-C stop all processes after one block, as SIGTERM does; a second one, this one."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print("stopping all processes after this block; Ctrl-C again ends this one at once", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)


def _place(hosts: Hosts) -> tuple[str, int, int, Sequence[int] | None]:
    """HOST:PORT, the number of processes, that of this one, and its devices, if not all."""
    address = hosts.coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS")
    found = (address, hosts.processes, hosts.process, None)
    if None in found[:3]:
        try:
            found = ClusterEnv.auto_detect_unset_distributed_params(*found, None, WAIT)
        except RuntimeError as error:
            raise ValueError(f"--distributed found a cluster, but: {error}") from None
    address, processes, process, local = found
    if address is None or processes is None or process is None:
        given = {"coordinator": address, "processes": processes, "process": process}
        lacking = ", ".join(f"--{name}" for name, value in given.items() if value is None)
        raise ValueError(
            f"--distributed found none of Slurm, Open MPI and Kubernetes, and {lacking} "
            f"{'is' if ',' not in lacking else 'are'} not given. Start every process with "
            "--coordinator HOST:PORT --processes N --process I, or leave --distributed out."
        )
    port = address.rpartition(":")[2]
    if not port.isdigit() or not 0 < int(port) < 2**16:
        raise ValueError(f"--coordinator must be HOST:PORT, a port below 65536; got {address}.")
    if processes < 1:
        raise ValueError(f"--processes must be at least 1; got {processes}.")
    if not 0 <= process < processes:
        raise ValueError(
            f"--process must be from 0 to {processes - 1}, below --processes; got {process}."
        )
    return address, processes, process, None if "JAX_LOCAL_DEVICE_IDS" in os.environ else local


def meet(address: str, processes: int, process: int, seconds: int) -> None:
    """Wait until all processes are there.

    Raises `ValueError`, in all of them, if one is not, or was told of another number of them.
    """
    host, _, port = address.rpartition(":")
    until = time.monotonic() + seconds
    if process == 0:
        wrong = _gather(int(port), processes, until)
    else:
        wrong = _report(host.strip("[]"), int(port), f"{process} {processes}", seconds)
    if wrong[:1].isdigit():
        raise ValueError(
            f"Of {processes} processes these did not come to {address} within {seconds} s: "
            f"{wrong}. Start each of them, with a --process of its own, where it can be reached."
        )
    if wrong:
        raise ValueError(wrong)


def _gather(port: int, processes: int, until: float) -> str:
    """Hear of all processes and answer them: with the numbers of those that are missing, or with a
    sentence on one that was told otherwise."""
    here: dict[int, socket.socket] = {}
    told = ""
    missing = set(range(1, processes))
    both = socket.has_dualstack_ipv6()
    try:
        family = socket.AF_INET6 if both else socket.AF_INET
        listener = socket.create_server(("", port), family=family, dualstack_ipv6=both)
    except OSError as error:
        raise ValueError(
            f"Process 0 cannot listen on port {port}: {os.strerror(error.errno or 0)}. Choose "
            "another for all processes: --coordinator HOST:PORT, or in a cluster the variable "
            "JAX_COORDINATOR_PORT."
        ) from None
    with listener, contextlib.ExitStack() as connections:
        with contextlib.suppress(TimeoutError):
            while missing and not told:
                listener.settimeout(max(until - time.monotonic(), 1e-3))
                other = connections.enter_context(listener.accept()[0])
                other.settimeout(5)  # whoever else knocks may say nothing
                with contextlib.suppress(OSError, ValueError):
                    number, many = map(int, other.recv(64).removeprefix(_HERE).split())
                    here[number] = other
                    if many != processes:
                        told = f"--processes is {processes} in process 0, and {many} in {number}: "
                        told += "give it alike to all."
                missing -= here.keys()
        told = told or ", ".join(map(str, sorted(missing)))
        for other in here.values():
            with contextlib.suppress(OSError):
                other.sendall(_HERE + told.encode())
    return told


def _report(host: str, port: int, who: str, seconds: int) -> str:
    """Tell process 0 that this one is there, and hear what is wrong: "0" without an answer."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        with contextlib.suppress(OSError), socket.create_connection((host, port), left) as to:
            to.settimeout(seconds + 5)  # process 0, which may have come later, says who is missing
            if to.getsockname() != to.getpeername():  # a port that nobody has may call itself
                to.sendall(_HERE + who.encode())
                answer = to.makefile("rb").read()
                if answer.startswith(_HERE):
                    return answer.removeprefix(_HERE).decode()
        time.sleep(0.2)
    return "0"
