"""`--distributed`: start JAX in the processes of one run, with a sentence for each mistake."""

import dataclasses
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence

import jax
import tyro
from jax._src.clusters import ClusterEnv  # `initialize` queries it too, but keeps the answer
from jax.experimental import multihost_utils

WAIT = 300  # seconds until the last process must have joined
LOST = 60  # seconds without a sign until a process counts as dead, and all others end


@dataclasses.dataclass(frozen=True)
class Hosts:
    """Processes that train together, on one host or on many."""

    distributed: tyro.conf.FlagCreatePairsOff[bool] = False
    """Train in several processes, each started with this command; needs --out. Slurm, Open MPI and
    Kubernetes are detected; elsewhere set the next three options."""
    coordinator: str | None = None
    """HOST:PORT of process 0, equal in all processes."""
    processes: int | None = None
    """Number of processes."""
    process: int | None = None
    """Index of this process, from 0."""


def connect(arguments: Sequence[str]) -> None:
    """Join the other processes that the arguments, or a cluster's variables, name.

    Raises `ValueError` if neither names them. Ends the process if one is missing after `WAIT` s.
    """
    words = {word.partition("=")[0] for word in arguments}
    options = {f"--{field.name}" for field in dataclasses.fields(Hosts)}
    if not words & options or words & {"-h", "--help"} or jax.distributed.is_initialized():
        return
    if missing := sorted({"--distributed", "--out"} - words):
        raise ValueError(
            f"{missing[0]} is missing. Several processes need --distributed, and --out with a "
            "folder that all of them share."
        )
    hosts, _ = tyro.cli(Hosts, args=arguments, return_unknown_args=True, prog="mmrl train")
    address, processes, process, local = _place(hosts)
    if process == 0:
        _check_port(int(address.rpartition(":")[2]))
        others = f"{processes - 1} other processes at {address}"
        print(f"waiting for {others}, at most {WAIT} s", flush=True)
    _join(address, processes, process, local)
    # CPUs wait 30 s for the first collective, but one may compile for longer than another.
    multihost_utils.sync_global_devices("connect")
    signal.signal(signal.SIGINT, _stop_all)


def _join(address: str, processes: int, process: int, local: Sequence[int] | None) -> None:
    """Start JAX once all processes have joined, or end this one after `WAIT` s.

    JAX waits in C++, where Ctrl-C has no effect, and aborts when its own time is up. So it waits in
    another thread, and this thread gives up first.
    """
    errors: list[Exception] = []

    def initialize() -> None:
        try:
            jax.distributed.initialize(
                address,
                processes,
                process,
                local,
                cluster_detection_method="deactivate",
                initialization_timeout=WAIT + LOST,
                heartbeat_timeout_seconds=LOST,
                shutdown_timeout_seconds=LOST,
            )
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=initialize, daemon=True)
    thread.start()
    for _ in range(5 * WAIT):  # a signal that reaches another thread does not end `join`
        thread.join(0.2)
        if not thread.is_alive():
            break
    else:
        _give_up(address, processes)
    if errors:
        raise errors[0]


def _give_up(address: str, processes: int) -> None:
    """End this process, in which JAX waits for others that did not join."""
    print(
        f"mmrl: Not all of the {processes} processes joined {address} within {WAIT} s. Start each "
        "with the same --processes and a different --process, on hosts that reach that address.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(2)


def _stop_all(*_: object) -> None:
    """Let Ctrl-C stop all processes after a block, as SIGTERM does, and a second one only this."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print("stopping all processes after this block; Ctrl-C again ends this one at once", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)


def _place(hosts: Hosts) -> tuple[str, int, int, Sequence[int] | None]:
    """Return HOST:PORT, the number of processes, the index of this one, and its devices or None."""
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
            f"{'is' if ',' not in lacking else 'are'} missing. Start every process with "
            "--coordinator HOST:PORT --processes N --process I, or omit --distributed."
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


def _check_port(port: int) -> None:
    """Raise `ValueError` if process 0 cannot listen on a port, where JAX would crash."""
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise ValueError(
            f"Process 0 cannot listen on port {port}: {os.strerror(error.errno or 0)}. Choose "
            "another for all processes: --coordinator HOST:PORT, or in a cluster the variable "
            "JAX_COORDINATOR_PORT."
        ) from None
