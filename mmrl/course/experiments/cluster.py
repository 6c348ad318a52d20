"""Start jobs on the cores of this machine, or on a cluster with Slurm, by submitit.

submitit starts a job and reports its end. It pickles its function call and the result. Here, the
call is a list of words, and the result is never read, because jobs write their rows to JSON files,
which `parts` reads.
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

FOREVER = 60 * 24 * 365  # minutes


def words(name: str, out: pathlib.Path, quick: bool) -> list[str]:
    """Return the command of a job, which ends in the names of its cells."""
    own = ["experiment", name, "--out", str(out), *["--quick"] * quick, "--unit"]
    return [sys.executable, "-m", "mmrl", *own]


def local(log: pathlib.Path, command: Sequence[str], jobs: int) -> Start:
    """Return a function that starts a job on this machine, on its share of the cores and GPUs.

    Raises `ValueError` without submitit.
    """
    executor = _submitit().LocalExecutor(log)
    executor.update_parameters(timeout_min=FOREVER)
    all_cores = cores()

    def start(names: Sequence[str], place: int) -> Any:
        own = share(all_cores, place, jobs)
        settings = [*_gpus(place, jobs), f"NPROC={len(own)}"]  # NPROC limits XLA's threads
        with _passing_on(own, log / "controllers.err"):
            return _called(executor, ["env", *settings, *command, *names])

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
    """Return a function that submits a job with a name to Slurm. `memory` is in GB.

    If an argument is None, the default of the cluster or a variable of sbatch applies. Raises
    `ValueError` without submitit or Slurm.
    """
    submitit = _submitit()
    if not (shutil.which("sbatch") and shutil.which("srun")):
        raise ValueError(
            "`submit` must be local where Slurm is not installed, got slurm. Log in to the "
            "cluster, or use `--submit local`, which uses the cores of this machine."
        )
    executor = submitit.SlurmExecutor(log)
    executor.update_parameters(
        job_name=name,
        time=None if hours is None else math.ceil(60 * hours),
        mem=None if memory is None else f"{math.ceil(1024 * memory)}M",
        cpus_per_task=cpus,
        partition=partition,
        # Since Slurm 22.05, a step gets the cores of its job only if it requests them, too.
        srun_args=None if cpus is None else [f"--cpus-per-task={cpus}"],
    )
    return lambda names, place: _called(executor, [*command, *names])


def cores() -> list[int]:
    """Return the CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # only on Linux
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def share(things: Sequence[Any], place: int, places: int) -> list[Any]:
    """Return the cores or GPUs of one job: exclusive ones, or a shared one if there are too few."""
    return list(things[place::places]) or [things[place % len(things)]]


@contextlib.contextmanager
def _passing_on(own: Sequence[int], errors: pathlib.Path) -> Iterator[None]:
    """Restrict processes started here to some cores, and redirect their errors to a file.

    Otherwise the processes with which submitit watches its jobs would fill the terminal at Ctrl-C.
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
    """Return words for `env` that select the GPUs of a job, and its share of a GPU's memory.

    By default, submitit hides all GPUs.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = _visible()
    if named == "" or not gpus:
        return [] if named == "" else ["-u", "CUDA_VISIBLE_DEVICES"]
    own = [f"CUDA_VISIBLE_DEVICES={','.join(share(gpus, place, jobs))}"]
    if jobs > len(gpus):  # by default, JAX reserves three quarters of the memory
        own += [f"XLA_PYTHON_CLIENT_MEM_FRACTION={0.75 / math.ceil(jobs / len(gpus)):.3f}"]
    return own


def has_gpu() -> bool:
    """Return True if processes started here may use a GPU from NVIDIA."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") != "" and bool(_visible())


def _visible() -> list[str]:
    """List the GPUs by the names that CUDA gives them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    found = pathlib.Path("/dev").glob("nvidia[0-9]*")
    return named.split(",") if named else sorted(path.name.removeprefix("nvidia") for path in found)


def _called(executor: Any, command: list[str]) -> Any:
    """Start a job that runs a command and fails if it fails. Raises `RunError` if refused."""
    try:
        return executor.submit(subprocess.check_call, command)
    except _submitit().core.utils.FailedJobError as error:
        raise RunError(f"sbatch refused a job: {str(error).strip()}") from None


def _submitit() -> Any:
    # Otherwise submitit closes the `logging` handlers of other code.
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")
    try:
        import submitit
    except ImportError:
        raise ValueError(
            "`submit` needs submitit, which starts jobs: pip install -c requirements.lock -e "
            "'.[cluster]'"
        ) from None
    return submitit
