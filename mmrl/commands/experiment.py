"""`mmrl experiment`: repeat the measurements in the book."""

import contextlib
import dataclasses
import pathlib
import shlex
from collections.abc import Generator, Iterator, Sequence
from typing import Annotated, Any, Literal

import tyro

from mmrl.commands.terminal import Path, in_background, open_console
from mmrl.course import experiments
from mmrl.course.experiments import cluster, parts, plan
from mmrl.course.experiments.queue import Queue
from mmrl.course.experiments.submit import submit_jobs


@dataclasses.dataclass(frozen=True)
class Options:
    """Run an experiment of the book, and skip rows that its results file already contains.

    An experiment consists of cells, such as one agent on one task, and each cell adds one row to
    the results file. You can stop with Ctrl-C at any time and continue with the same command. With
    --submit, cells are measured in parallel jobs. The rows are the same, except that measurements
    of time are not valid while other jobs run on the same machine.
    """

    name: Annotated[str, tyro.conf.Positional] = ""
    """Name of the experiment. Without a name, all experiments are listed."""
    out: Path = pathlib.Path("results/experiments")
    """Folder of the results, with one JSON Lines file per experiment. The results in the book are
    stored in book/results of the repository."""
    minutes: float = float("inf")
    """Time limit. A cell is not started if measuring it would probably exceed the limit."""
    queue: bool = False
    """Measure the missing rows of all experiments, the most important ones first. Each experiment
    runs in a separate process, which is stopped after five minutes per row. On a CPU these are
    minutes of processor time, summed over all cores."""
    plan: bool = False
    """Only list the cells of one or all experiments, with the hours that their rows took and an
    estimate of the remaining hours."""
    device: Literal["cpu", "gpu"] | None = None
    """Device for --queue and --plan. Default: gpu if there is an NVIDIA GPU, otherwise cpu."""
    quick: bool = False
    """Run everything with tiny sizes, as a test. The results are meaningless."""
    only: str = ""
    """Measure only cells whose name contains this string. Names are printed in the progress
    lines."""
    submit: Literal["local", "slurm"] | None = None
    """Measure cells in parallel jobs: processes that share the cores of this machine, or jobs of a
    cluster. Ctrl-C cancels all jobs. Requires `pip install -e '.[cluster]'` in a checkout."""
    jobs: int | None = None
    """Maximum number of jobs that are queued or running. Default with `local`: one per core."""
    merge: bool = False
    """Only merge the rows that jobs have measured, for example after the submitting process was
    killed."""
    unit: tuple[str, ...] = ()
    """Cells that a job measures. Their results are written to separate files for --merge."""
    hours: float | None = None
    """Time limit of a Slurm job, in hours. This option and the next three default to the settings
    of the cluster. Other options of sbatch can be set by environment variables, such as
    SBATCH_ACCOUNT or SBATCH_GPUS."""
    memory: float | None = None
    """Memory of a Slurm job, in GB."""
    cpus: int | None = None
    """CPU cores of a Slurm job."""
    partition: str | None = None
    """Partition of a Slurm job."""


def main(arguments: Sequence[str]) -> int:
    """Run the measurements and print a line for each result."""
    options, console = tyro.cli(Options, args=arguments, prog="mmrl experiment"), open_console()
    if not options.name and not options.queue and not options.plan:
        for name in sorted(experiments.EXPERIMENTS):
            console.print(f"{name:16s}{_about(name)}", highlight=False)
        return 0
    _check(options)
    with contextlib.closing(_lines(options)) as lines:
        for line in lines:
            console.print(line, highlight=False, soft_wrap=True)
    return 0


def _about(name: str) -> str:
    """Return a one-line description of an experiment, or the name of a missing package."""
    try:
        return experiments.load(name).about
    except ModuleNotFoundError as error:
        return str(error)


def _check(options: Options) -> None:
    """Raise `ValueError` for invalid or conflicting options."""
    if message := next(_refusals(options), None):
        raise ValueError(message)


def _refusals(options: Options) -> Iterator[str]:
    jobs, submit, queue = options.jobs, options.submit, options.queue
    if options.quick and options.out.resolve().parts[-2:] == ("book", "results"):
        yield (
            "`out` must not be book/results with `quick`, because its results are meaningless. "
            "Choose another folder with `--out`."
        )
    if not options.minutes > 0:
        yield f"`minutes` must be positive; got {options.minutes:g}. Omit it to measure all rows."
    if sum([submit is not None, options.merge, bool(options.unit), queue, options.plan]) > 1:
        yield "Set only one of `submit`, `merge`, `unit`, `queue` and `plan`."
    if queue and (options.name or options.only):
        yield "`queue` measures all experiments. Omit the name and `only`."
    if options.only and options.plan and not options.name:
        yield "`only` selects cells of one experiment. Add its name, or omit `only`."
    if options.device and not (queue or options.plan):
        yield "`device` requires `--queue` or `--plan`. Otherwise, set JAX_PLATFORMS."
    if jobs is not None and jobs < 1:
        yield f"`jobs` must be at least 1; got {jobs}."
    if jobs is not None and submit is None:
        yield "`jobs` requires `--submit local` or `--submit slurm`. Add one of them."
    if jobs is None and submit == "slurm":
        yield "`jobs` must be set with `--submit slurm`. Add `--jobs 16`, for example."
    for name, value in _of_slurm(options).items():
        if submit != "slurm":
            yield f"`{name}` requires `--submit slurm`. Add it, or omit this option."
        if isinstance(value, int | float) and not 0 < value < float("inf"):
            yield f"`{name}` must be positive; got {value:g}."


def _of_slurm(options: Options) -> dict[str, Any]:
    """Return the options of Slurm jobs that the user has set."""
    names = ("hours", "memory", "cpus", "partition")
    return {name: x for name in names if (x := getattr(options, name)) is not None}


def _lines(options: Options) -> Generator[str]:
    """Yield a line for each result of the selected mode, such as a queue or a merge."""
    name, out, quick = options.name, options.out, options.quick
    if options.plan:
        grids = [experiments.load(name)] if name else None
        yield from plan.lines(out, _device(options), quick, options.only, grids)
    elif options.queue:
        waiting = Queue(out, _device(options), quick)
        try:
            yield from waiting.run(options.minutes)
        except KeyboardInterrupt:
            yield from waiting.table()
            raise
    elif options.submit:
        yield from _submit(options)
    elif options.merge:
        yield from parts.merge_messages(experiments.load(name), out)
    else:
        rows: Any = experiments.run(name, out, options.minutes, quick, options.only)
        if options.unit:
            rows = parts.measure(experiments.load(name), out, options.unit, quick)
        else:  # rows of jobs need not be measured again
            yield from (line for _, line in parts.merge(experiments.load(name), out))
        yield from (line for _, line in in_background([lambda: rows]))


def _device(options: Options) -> Literal["cpu", "gpu"]:
    """Return the device of the options, or else the kind that this machine has."""
    return options.device or ("gpu" if cluster.has_gpu() else "cpu")


def _submit(options: Options) -> Generator[str]:
    """Submit jobs, and yield a line for each result. Closing the iterator cancels the jobs."""
    grid, out, quick = experiments.load(options.name), options.out, options.quick
    jobs = options.jobs or len(cluster.cores())
    log, command = parts.folder(grid, out) / "log", cluster.words(options.name, out, quick)
    how = f" --submit {options.submit} --jobs {jobs}"
    if options.submit == "local":
        start = cluster.local(log, command, jobs)
    else:
        limits = _of_slurm(options)
        how += "".join(f" --{x} {shlex.quote(f'{y}')}" for x, y in limits.items())
        start = cluster.slurm(log, command, f"mmrl-{options.name}", **limits)
    try:
        pause = 0.2 if options.submit == "local" else 5.0
        yield from submit_jobs(
            grid, out, start, jobs, options.minutes, quick, options.only, how, pause
        )
    except KeyboardInterrupt:
        again = grid.again(out, quick, options.only)
        raise KeyboardInterrupt(f"Stopped all jobs. To continue: {again}{how}") from None
