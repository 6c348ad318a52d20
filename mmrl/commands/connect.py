"""`--distributed`: start JAX in all processes of a run."""

import dataclasses
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence

import jax
import tyro
from jax._src.clusters import ClusterEnv  # `jax.distributed.initialize` uses it internally
from jax.experimental import multihost_utils

WAIT = 300  # time limit for all processes to join, in seconds
TIMEOUT = 60  # seconds without a heartbeat after which a process is considered dead


@dataclasses.dataclass(frozen=True)
class Hosts:
    """Options of a run with several processes, on one host or on several hosts."""

    distributed: tyro.conf.FlagCreatePairsOff[bool] = False
    """Train in several processes. Run this command once per process. Requires --out. Slurm, Open
    MPI and Kubernetes are detected automatically; otherwise, set the next three options."""
    coordinator: str | None = None
    """HOST:PORT of process 0, which must be the same in all processes."""
    processes: int | None = None
    """Number of processes."""
    process: int | None = None
    """Index of this process, starting at 0."""


def connect(arguments: Sequence[str]) -> None:
    """Join the other processes of a run, if `arguments` contain `--distributed`.

    The processes are specified by the arguments or by the environment variables of a cluster.
    Raises `ValueError` if neither specifies them. Ends this process if not all processes have
    joined after `WAIT` seconds.
    """
    words = {word.partition("=")[0] for word in arguments}
    options = {f"--{field.name}" for field in dataclasses.fields(Hosts)}
    if not words & options or words & {"-h", "--help"} or jax.distributed.is_initialized():
        return
    if missing := sorted({"--distributed", "--out"} - words):
        raise ValueError(
            f"{missing[0]} is missing. A run with several processes requires --distributed, and "
            "--out with a folder that all processes share."
        )
    hosts, _ = tyro.cli(Hosts, args=arguments, return_unknown_args=True, prog="mmrl train")
    address, processes, process, local = _place(hosts)
    if process == 0:
        _check_port(int(address.rpartition(":")[2]))
        others = f"{processes - 1} other processes at {address}"
        print(f"waiting for {others}, at most {WAIT} s", flush=True)
    _join(address, processes, process, local)
    # Synchronize now. CPUs wait only 30 s for the first collective, which otherwise would come
    # after compilation, and compilation times may differ by more than that between processes.
    multihost_utils.sync_global_devices("connect")
    signal.signal(signal.SIGINT, _stop_all)


def _join(address: str, processes: int, process: int, local: Sequence[int] | None) -> None:
    """Initialize JAX when all processes have joined, or end this process after `WAIT` seconds.

    JAX waits in C++, which ignores Ctrl-C, and aborts after its own time limit. Therefore it is
    initialized in a separate thread, and the main thread gives up first.
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
                initialization_timeout=WAIT + TIMEOUT,
                heartbeat_timeout_seconds=TIMEOUT,
                shutdown_timeout_seconds=TIMEOUT,
            )
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=initialize, daemon=True)
    thread.start()
    # Wait in short intervals, because signals do not interrupt `join` with a long timeout.
    for _ in range(5 * WAIT):
        thread.join(0.2)
        if not thread.is_alive():
            break
    else:
        _give_up(address, processes)
    if errors:
        raise errors[0]


def _give_up(address: str, processes: int) -> None:
    """Print an error and end this process, although JAX still waits for the other processes."""
    print(
        f"mmrl: Not all of the {processes} processes joined {address} within {WAIT} s. Start all "
        "processes with the same --processes and different --process, on hosts that can connect to "
        "this address.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(2)


def _stop_all(*_: object) -> None:
    """Handle Ctrl-C: stop all processes after the current block, as for SIGTERM.

    A second Ctrl-C stops only this process.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    print(
        "Stopping all processes after this block. Press Ctrl-C again to end this one.", flush=True
    )
    os.kill(os.getpid(), signal.SIGTERM)


def _place(hosts: Hosts) -> tuple[str, int, int, Sequence[int] | None]:
    """Return HOST:PORT, the number of processes, the index of this process, and its devices."""
    address = hosts.coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS")
    place = (address, hosts.processes, hosts.process, None)
    if None in place[:3]:
        try:
            place = ClusterEnv.auto_detect_unset_distributed_params(*place, None, WAIT)
        except RuntimeError as error:
            raise ValueError(
                f"--distributed detected a cluster but could not read its settings: {error}"
            ) from None
    address, processes, process, local = place
    if address is None or processes is None or process is None:
        values = {"coordinator": address, "processes": processes, "process": process}
        lacking = ", ".join(f"--{name}" for name, value in values.items() if value is None)
        raise ValueError(
            f"--distributed did not detect Slurm, Open MPI or Kubernetes, and {lacking} "
            f"{'is' if ',' not in lacking else 'are'} missing. Start every process with "
            "--coordinator HOST:PORT --processes N --process I, or omit --distributed."
        )
    port = address.rpartition(":")[2]
    if not port.isdigit() or not 0 < int(port) < 2**16:
        raise ValueError(
            f"--coordinator must be HOST:PORT, with a port below 65536; got {address}."
        )
    if processes < 1:
        raise ValueError(f"--processes must be at least 1; got {processes}.")
    if not 0 <= process < processes:
        raise ValueError(f"--process must be between 0 and {processes - 1}; got {process}.")
    return address, processes, process, None if "JAX_LOCAL_DEVICE_IDS" in os.environ else local


def _check_port(port: int) -> None:
    """Raise `ValueError` if process 0 cannot listen on a port; otherwise JAX would crash."""
    try:
        socket.create_server(("", port)).close()
    except OSError as error:
        raise ValueError(
            f"Process 0 cannot listen on port {port}: {os.strerror(error.errno or 0)}. Choose "
            "a different port in all processes, with --coordinator HOST:PORT, or on a cluster with "
            "the environment variable JAX_COORDINATOR_PORT."
        ) from None
