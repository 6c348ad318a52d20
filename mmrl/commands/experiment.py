"""`mmrl experiment`: measure again what the book shows."""

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
    """Run one experiment of the book; what its results file holds already is not repeated.

    Stop with Ctrl-C whenever you like, and go on with the same command. With --submit cells are
    measured side by side, by jobs: the rows are the same, but what times something should be alone.
    """

    name: Annotated[str, tyro.conf.Positional] = ""
    """Which one. Without a name they are listed."""
    out: Path = pathlib.Path("results/experiments")
    """The folder of the results, one file of JSON lines per experiment. The book's own are in
    book/results of the repository."""
    minutes: float = float("inf")
    """Start nothing that would take longer."""
    queue: bool = False
    """Measure the missing rows of all experiments, the most telling first, each by a separate
    process that is stopped after five minutes a row, on a CPU of processor time of all cores."""
    device: Literal["cpu", "gpu"] | None = None
    """Device of a queue. Default: gpu if an NVIDIA GPU is there, else cpu."""
    quick: bool = False
    """Tiny sizes: does everything run? The numbers mean nothing."""
    only: str = ""
    """Measure only what has this in its name, as the lines of progress have it."""
    submit: Literal["local", "slurm"] | None = None
    """Measure cells in jobs: processes of this machine, each with its share of the cores, or those
    of a cluster. Ctrl-C cancels them. It needs `pip install -e '.[cluster]'` in a checkout."""
    jobs: int | None = None
    """How many jobs wait or run at a time: with `local` as many as there are cores, if left out."""
    merge: bool = False
    """Only add what jobs have measured to the results, where who submitted them was killed."""
    unit: tuple[str, ...] = ()
    """What a job does: measure these cells together, into files of their own, for `--merge`."""
    hours: float | None = None
    """Of a job of Slurm: its limit of time. This and the next three are as the cluster has them, if
    left out; any other option of sbatch is a variable, such as SBATCH_ACCOUNT or SBATCH_GPUS."""
    memory: float | None = None
    """Of a job of Slurm: GB of memory."""
    cpus: int | None = None
    """Of a job of Slurm: CPU cores."""
    partition: str | None = None
    """Of a job of Slurm: where it runs."""


def main(arguments: Sequence[str]) -> int:
    """Measure, with a line for each result."""
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
    """Return one line about an experiment, or which extra it needs."""
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
        yield "`quick` results mean nothing: keep them out of the book with `--out`."
    if not options.minutes > 0:
        yield f"`minutes` must be positive; got {options.minutes:g}. Leave it out for all."
    if sum([submit is not None, options.merge, bool(options.unit), queue]) > 1:
        yield "Of `submit`, `merge`, `unit` and `queue`, give one of them."
    if queue and (options.name or options.only):
        yield "`queue` measures the rows of all experiments: leave out their name and `only`."
    if options.device and not queue:
        yield "`device` needs `--queue`; got it without. Set JAX_PLATFORMS to cpu or cuda instead."
    if jobs is not None and jobs < 1:
        yield f"`jobs` must be at least 1; got {jobs}."
    if jobs is not None and submit is None:
        yield "`jobs` are those of `--submit local` or `--submit slurm`: add one."
    if jobs is None and submit == "slurm":
        yield "`jobs` must say how many jobs may wait or run at a time: add `--jobs 16`."
    for name, value in _of_slurm(options).items():
        if submit != "slurm":
            yield f"`{name}` is of jobs of Slurm: add `--submit slurm`, or leave it out."
        if isinstance(value, int | float) and not 0 < value < float("inf"):
            yield f"`{name}` must be positive; got {value:g}."


def _of_slurm(options: Options) -> dict[str, Any]:
    """Return the options of a job of Slurm that are set."""
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
    """Yield a line for each result of jobs, as they come; the jobs end if this is left."""
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
        raise KeyboardInterrupt(f"Stopped, and all jobs with it. To go on: {again}{how}") from None
