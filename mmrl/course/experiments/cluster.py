"""Where jobs run: on the cores of this machine, or on a cluster with Slurm, by submitit.

submitit starts a job and says when it has ended. It pickles what it is to call, and what came of
that; here the one is a list of words, and the other is never read, because results are the files of
JSON that `parts` writes and reads.
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
    """The command of a job, which ends in the names of its cells."""
    own = ["experiment", name, "--out", str(out), *["--quick"] * quick, "--unit"]
    return [sys.executable, "-m", "mmrl", *own]


def local(log: pathlib.Path, command: Sequence[str], jobs: int) -> Start:
    """How a job is started on this machine: with its share of the cores, and of the GPUs if any.

    Raises `ValueError` without submitit.
    """
    executor = _submitit().LocalExecutor(log)
    executor.update_parameters(timeout_min=FOREVER)
    all_cores = cores()

    def start(names: Sequence[str], place: int) -> Any:
        own = share(all_cores, place, jobs)
        settings = [*_gpus(place, jobs), f"NPROC={len(own)}"]  # the latter for XLA's threads
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
    """How a job of a name is submitted to Slurm. `memory` is in GB.

    What is None is as the cluster, or a variable of sbatch, has it. Raises `ValueError` without
    submitit or Slurm.
    """
    submitit = _submitit()
    if not (shutil.which("sbatch") and shutil.which("srun")):
        raise ValueError(
            "`submit` can be slurm only where Slurm is: there is no `sbatch` here. Log in to the "
            "cluster, or take `--submit local`, which uses the cores of this machine."
        )
    executor = submitit.SlurmExecutor(log)
    executor.update_parameters(
        job_name=name,
        time=None if hours is None else math.ceil(60 * hours),
        mem=None if memory is None else f"{math.ceil(1024 * memory)}M",
        cpus_per_task=cpus,
        partition=partition,
        # Since Slurm 22.05 a step does not have the cores of its job unless it asks for them, too.
        srun_args=None if cpus is None else [f"--cpus-per-task={cpus}"],
    )
    return lambda names, place: _called(executor, [*command, *names])


def cores() -> list[int]:
    """The CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def share(things: Sequence[Any], place: int, places: int) -> list[Any]:
    """The cores or GPUs of one job: some of its own, or one that it shares where there are few."""
    return list(things[place::places]) or [things[place % len(things)]]


@contextlib.contextmanager
def _passing_on(own: Sequence[int], errors: pathlib.Path) -> Iterator[None]:
    """Processes that are started here may use some cores, and complain to a file.

    Those by which submitit watches its jobs would else fill the terminal at Ctrl-C.
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
    if hasattr(os, "sched_setaffinity"):  # on Linux
        os.sched_setaffinity(0, own)


def _gpus(place: int, jobs: int) -> list[str]:
    """Words for `env` on the GPUs of a job: which, and how much of the memory if it shares one.

    submitit hides all of them, unless asked.
    """
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = _visible()
    if named == "" or not gpus:
        return [] if named == "" else ["-u", "CUDA_VISIBLE_DEVICES"]
    own = [f"CUDA_VISIBLE_DEVICES={','.join(share(gpus, place, jobs))}"]
    if jobs > len(gpus):  # JAX takes three quarters of the memory, unless told otherwise
        own += [f"XLA_PYTHON_CLIENT_MEM_FRACTION={0.75 / math.ceil(jobs / len(gpus)):.3f}"]
    return own


def has_gpu() -> bool:
    """Check whether there is a GPU of NVIDIA's that processes started here may use."""
    return os.environ.get("CUDA_VISIBLE_DEVICES") != "" and bool(_visible())


def _visible() -> list[str]:
    """List the GPUs by the names that CUDA gives them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    found = pathlib.Path("/dev").glob("nvidia[0-9]*")
    return named.split(",") if named else sorted(path.name.removeprefix("nvidia") for path in found)


def _called(executor: Any, command: list[str]) -> Any:
    """A job that runs a command and fails as it does. Raises `RunError` if it is refused."""
    try:
        return executor.submit(subprocess.check_call, command)
    except _submitit().core.utils.FailedJobError as error:
        raise RunError(f"sbatch refused a job: {str(error).strip()}") from None


def _submitit() -> Any:
    # Otherwise it closes the handlers that others gave to `logging`.
    os.environ.setdefault("SUBMITIT_LOG_LEVEL", "NOCONFIG")
    try:
        import submitit
    except ImportError:
        raise ValueError(
            "`submit` needs submitit, which starts jobs: pip install -c requirements.lock -e "
            "'.[cluster]'"
        ) from None
    return submitit
