"""Start jobs with submitit, on this machine or on a Slurm cluster.

submitit pickles a function call and its result. In this module the call runs a command. The result
of the call is ignored, because jobs write their rows to JSON files, which the module `parts` reads.
"""

import contextlib
import math
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from mmrl.course.experiments.submit import Start
from mmrl.runs import RunError

FOREVER = 60 * 24 * 365  # time limit of a local job, in minutes


def words(name: str, out: pathlib.Path, quick: bool) -> list[str]:
    """Return the command of a job, without the names of its cells."""
    own = ["experiment", name, "--out", str(out), *["--quick"] * quick, "--unit"]
    return [sys.executable, "-m", "mmrl", *own]


def local(log: pathlib.Path, command: Sequence[str], jobs: int) -> Start:
    """Return a function that starts a job on this machine.

    Raises `ValueError` if submitit is not installed.
    """
    executor = _submitit().LocalExecutor(log)
    executor.update_parameters(timeout_min=FOREVER)
    all_cores = cores()

    def start(names: Sequence[str], place: int) -> Any:
        own = share(all_cores, place, jobs)
        settings = [*_gpus(place, jobs), f"NPROC={len(own)}"]  # NPROC limits XLA's threads
        with _passing_on(own, log / "controllers.err"):
            return _submit_call(executor, ["env", *settings, *command, *names])

    return start


def slurm(
    log: pathlib.Path,
    command: Sequence[str],
    name: str,
    *,
    hours: float | None = None,
    memory: float | None = None,
    cpus: int | None = None,
    partition: str | None = None,
) -> Start:
    """Return a function that submits a job to Slurm, with `memory` in GB.

    If an argument is None, the cluster's default or an environment variable of sbatch applies.
    Raises `ValueError` if submitit or Slurm is not installed.
    """
    submitit = _submitit()
    if not (shutil.which("sbatch") and shutil.which("srun")):
        raise ValueError(
            "`submit` must be local on a machine without Slurm, got slurm. Log in to the "
            "cluster, or use `--submit local`, which uses the cores of this machine."
        )
    executor = submitit.SlurmExecutor(log)
    executor.update_parameters(
        job_name=name,
        time=None if hours is None else math.ceil(60 * hours),
        mem=None if memory is None else f"{math.ceil(1024 * memory)}M",
        cpus_per_task=cpus,
        partition=partition,
        # Since Slurm 22.05, a job step must request the cores of its job again.
        srun_args=None if cpus is None else [f"--cpus-per-task={cpus}"],
    )
    return lambda names, place: _submit_call(executor, [*command, *names])


def cores() -> list[int]:
    """Return the CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # only on Linux
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def share(things: Sequence[Any], place: int, places: int) -> list[Any]:
    """Return the cores or GPUs of the job at `place`. Jobs share them only if there are too few."""
    return list(things[place::places]) or [things[place % len(things)]]


@contextlib.contextmanager
def _passing_on(own: Sequence[int], errors: pathlib.Path) -> Iterator[None]:
    """Pin child processes to the cores `own`, and redirect their stderr to a file.

    Without the redirection, the processes in which submitit watches its jobs would print tracebacks
    to the terminal on Ctrl-C.
    """
    errors.parent.mkdir(parents=True, exist_ok=True)
    all_cores, terminal = cores(), os.dup(2)
    with errors.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        _pin(own)
        yield
    finally:
        _pin(all_cores)
        os.dup2(terminal, 2)
        os.close(terminal)


def _pin(own: Sequence[int]) -> None:
    if hasattr(os, "sched_setaffinity"):  # only on Linux
        os.sched_setaffinity(0, own)


def _gpus(place: int, jobs: int) -> list[str]:
    """Return arguments of the `env` command that select a job's GPUs and limit its GPU memory.

    These arguments override those of submitit, which hides all GPUs from a local job.
    """
    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = _visible()
    if devices == "" or not gpus:
        return [] if devices == "" else ["-u", "CUDA_VISIBLE_DEVICES"]
    own = [f"CUDA_VISIBLE_DEVICES={','.join(share(gpus, place, jobs))}"]
    if jobs > len(gpus):  # divide the 75 % of a GPU's memory that JAX reserves by default
        own += [f"XLA_PYTHON_CLIENT_MEM_FRACTION={0.75 / math.ceil(jobs / len(gpus)):.3f}"]
    return own


def has_gpu() -> bool:
    """Return True if child processes can use an NVIDIA GPU."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") != "" and bool(_visible())


def _visible() -> list[str]:
    """Return the identifiers of the visible GPUs, as in CUDA_VISIBLE_DEVICES."""
    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    paths = pathlib.Path("/dev").glob("nvidia[0-9]*")
    return (
        devices.split(",")
        if devices
        else sorted(path.name.removeprefix("nvidia") for path in paths)
    )


def _submit_call(executor: Any, command: list[str]) -> Any:
    """Start a job that runs a command, and that fails if the command fails.

    Raises `RunError` if the scheduler rejects the job.
    """
    try:
        return executor.submit(subprocess.check_call, command)
    except _submitit().core.utils.FailedJobError as error:
        raise RunError(f"sbatch refused a job: {str(error).strip()}") from None


def _submitit() -> Any:
    # Prevent submitit from closing the `logging` handlers of other code.
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")
    try:
        import submitit
    except ImportError:
        raise ValueError(
            "`submit` requires submitit: pip install -c requirements.lock -e '.[cluster]'"
        ) from None
    return submitit
