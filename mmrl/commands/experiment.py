"""`mmrl experiment`: repeat the measurements that the book shows."""

import contextlib
import dataclasses
import pathlib
import shlex
from collections.abc import Generator, Iterator, Sequence
from typing import Annotated, Any, Literal

import tyro

from mmrl.commands.terminal import Path, in_background, open_console
from mmrl.course import experiments
from mmrl.course.experiments import cluster, parts
from mmrl.course.experiments.queue import Queue
from mmrl.course.experiments.submit import submitted


@dataclasses.dataclass(frozen=True)
class Options:
    """Run one experiment of the book; rows that its results file already holds are not repeated.

    Stop with Ctrl-C whenever you like, and continue with the same command. With --submit, jobs
    measure cells in parallel. The rows are the same, but measurements of time are valid only
    without other jobs.
    """

    name: Annotated[str, tyro.conf.Positional] = ""
    """Name of the experiment. Without a name, all experiments are listed."""
    out: Path = pathlib.Path("results/experiments")
    """Folder of the results, one file of JSON lines per experiment. The book's results are in
    book/results of the repository."""
    minutes: float = float("inf")
    """Skip measurements that would take longer."""
    queue: bool = False
    """Measure the missing rows of all experiments, the most important first. Each runs in a
    separate process, which is stopped after five minutes per row; on a CPU these are minutes of
    processor time, summed over all cores."""
    device: Literal["cpu", "gpu"] | None = None
    """Device of a queue. Default: gpu if there is an NVIDIA GPU, otherwise cpu."""
    quick: bool = False
    """Try everything with tiny sizes. The numbers have no meaning."""
    only: str = ""
    """Measure only cells whose name, as printed in the progress lines, contains this text."""
    submit: Literal["local", "slurm"] | None = None
    """Measure cells in jobs: processes on this machine, each with its share of the cores, or jobs
    of a cluster. Ctrl-C cancels them. Needs `pip install -e '.[cluster]'` in a checkout."""
    jobs: int | None = None
    """Number of jobs that wait or run at a time. Default with `local`: one per core."""
    merge: bool = False
    """Only merge the rows that jobs have measured, if the submitting process was killed."""
    unit: tuple[str, ...] = ()
    """Used in jobs: measure these cells together, into separate files for `--merge`."""
    hours: float | None = None
    """Time limit of a Slurm job. The defaults of this option and the next three are the cluster's.
    Set any other option of sbatch by a variable, such as SBATCH_ACCOUNT or SBATCH_GPUS."""
    memory: float | None = None
    """Memory of a Slurm job, in GB."""
    cpus: int | None = None
    """CPU cores of a Slurm job."""
    partition: str | None = None
    """Partition of a Slurm job."""


def main(arguments: Sequence[str]) -> int:
    """Measure, and print a line for each result."""
    options, console = tyro.cli(Options, args=arguments, prog="mmrl experiment"), open_console()
    if not options.name and not options.queue:
        for name in sorted(experiments.EXPERIMENTS):
            console.print(f"{name:16s}{_about(name)}", highlight=False)
        return 0
    _check(options)
    with contextlib.closing(_lines(options)) as lines:
        for line in lines:
            console.print(line, highlight=False, soft_wrap=True)
    return 0


def _about(name: str) -> str:
    """Return one line about an experiment, or the extra that it needs."""
    try:
        return experiments.load(name).about
    except ModuleNotFoundError as error:
        return str(error)


def _check(options: Options) -> None:
    """Raise `ValueError` for options that are wrong, or do not fit each other."""
    if message := next(_refusals(options), None):
        raise ValueError(message)


def _refusals(options: Options) -> Iterator[str]:
    jobs, submit, queue = options.jobs, options.submit, options.queue
    if options.quick and options.out.parts[-2:] == ("book", "results"):
        yield "`quick` results have no meaning: keep them out of the book with `--out`."
    if not options.minutes > 0:
        yield f"`minutes` must be positive; got {options.minutes:g}. Omit it to measure all."
    if sum([submit is not None, options.merge, bool(options.unit), queue]) > 1:
        yield "Set only one of `submit`, `merge`, `unit` and `queue`."
    if queue and (options.name or options.only):
        yield "`queue` measures the rows of all experiments: omit the name and `only`."
    if options.device and not queue:
        yield "`device` needs `--queue`. Without a queue, set JAX_PLATFORMS to cpu or cuda."
    if jobs is not None and jobs < 1:
        yield f"`jobs` must be at least 1; got {jobs}."
    if jobs is not None and submit is None:
        yield "`jobs` are those of `--submit local` or `--submit slurm`: add one."
    if jobs is None and submit == "slurm":
        yield "`jobs` must be the number of jobs that may wait or run at a time: add `--jobs 16`."
    for name, value in _of_slurm(options).items():
        if submit != "slurm":
            yield f"`{name}` is for Slurm jobs: add `--submit slurm`, or omit it."
        if isinstance(value, int | float) and not 0 < value < float("inf"):
            yield f"`{name}` must be positive; got {value:g}."


def _of_slurm(options: Options) -> dict[str, Any]:
    """Return the options of a Slurm job that are set."""
    names = ("hours", "memory", "cpus", "partition")
    return {name: x for name in names if (x := getattr(options, name)) is not None}


def _lines(options: Options) -> Generator[str]:
    """Yield a line for each result of a run, of a merge, of a job or of many jobs."""
    name, out, quick = options.name, options.out, options.quick
    if options.queue:
        device = options.device or ("gpu" if cluster.has_gpu() else "cpu")
        waiting = Queue(out, device, quick)
        try:
            yield from waiting.run(options.minutes)
        except KeyboardInterrupt:
            yield from waiting.table()
            raise
    elif options.submit:
        yield from _submitted(options)
    elif options.merge:
        yield from parts.merged(experiments.load(name), out)
    else:
        rows: Any = experiments.run(name, out, options.minutes, quick, options.only)
        if options.unit:
            rows = parts.measure(experiments.load(name), out, options.unit, quick)
        yield from (line for _, line in in_background([lambda: rows]))


def _submitted(options: Options) -> Generator[str]:
    """Yield a line for each result of jobs, as they arrive; closing the iterator ends the jobs."""
    grid, out, quick = experiments.load(options.name), options.out, options.quick
    jobs = options.jobs or len(cluster.cores())
    log, command = parts.folder(grid, out) / "log", cluster.words(options.name, out, quick)
    how = f" --submit {options.submit} --jobs {jobs}"
    if options.submit == "local":
        start = cluster.local(log, command, jobs)
    else:
        asked = _of_slurm(options)
        how += "".join(f" --{x} {shlex.quote(f'{y}')}" for x, y in asked.items())
        start = cluster.slurm(log, command, f"mmrl-{options.name}", **asked)
    try:
        pause = 0.2 if options.submit == "local" else 5.0
        yield from submitted(
            grid, out, start, jobs, options.minutes, quick, options.only, how, pause
        )
    except KeyboardInterrupt:
        again = grid.again(out, quick, options.only)
        raise KeyboardInterrupt(f"Stopped, with all jobs. To continue: {again}{how}") from None
