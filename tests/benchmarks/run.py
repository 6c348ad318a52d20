"""`make bench`: mmrl's speed as ratios to its peers, each measured in one run.

    python tests/benchmarks/run.py scan --quick

A benchmark is a file bench_<name>.py beside this one with a function

    run(quick: bool) -> rows, best one by one

Each row is written as soon as it is measured, so an interrupted run keeps what it has. `run` may
also yield lists of rows that were measured together, which are written together. A row is a dict:
`name` (what is timed), `ours` and `peer` (two measured numbers), their `unit`, `peer_name` (against
what), `ratio` (how many times faster than the peer: above 1 is good), and `target` (the least ratio
to reach, or None). `quick` asks for small sizes, which show that a benchmark runs, not how fast
anything is: its ratios are not judged. A benchmark may import another. If `run` has a parameter
`done`, names of rows, it leaves out what it need not measure again.
"""

import contextlib
import dataclasses
import datetime
import importlib.util
import inspect
import json
import pathlib
import sys
import threading
import time
import traceback
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Annotated, Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mmrl.runs import provenance
from mmrl.runs.checkpoint import dumps
from mmrl.runs.files import replace, write_errors

FOLDER = pathlib.Path(__file__).parent
FAILURE = 1  # exit code
ALARM = 300.0  # seconds after which a row is reported that is not there
BEGAN = time.monotonic()


@dataclasses.dataclass(frozen=True)
class Options:
    """Time mmrl against its peers; print and save one table of ratios."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Which benchmarks, e.g. scan tape. Default: all."""
    quick: bool = False
    """Small sizes: does everything run?"""
    minutes: float = float("inf")
    """Start no row after these minutes."""
    missing: bool = False
    """Leave out what an earlier run saved in `out` for the same device: sizes of `scan` and `many`,
    and other benchmarks as a whole."""
    out: pathlib.Path = pathlib.Path("results/bench")
    """Where the table is saved, as JSON and Markdown."""

    @property
    def end(self) -> float:
        """The time of `time.monotonic` after which no row is started."""
        return BEGAN + 60 * self.minutes


def main(arguments: Sequence[str]) -> int:
    """Run the benchmarks; the exit code is 1 if a ratio misses its target or a benchmark fails."""
    options = tyro.cli(Options, args=arguments)
    files, console = find(options.names), Console()
    table = RowFiles(options)
    names_of = names_of_rows(options.out, table.origin["device"]) if options.missing else {}
    for name, path in files.items():
        began, before = time.perf_counter(), names_of.get(name, set())
        run = _run(name, path, options, before)
        with console.status(f"{name} ..."), contextlib.closing(run) as rows:
            for measured_together in rows:
                table.add(measured_together)
        console.print(f"{name}: {time.perf_counter() - began:.0f} s", highlight=False)
    console.print(_table(table.rows))
    console.print(f"Saved as {table.path} and .md")
    return FAILURE if any(row["verdict"] in ("missed", "failed") for row in table.rows) else 0


def find(names: Sequence[str]) -> dict[str, pathlib.Path]:
    """The benchmarks called `names`, or all."""
    files = {path.stem.removeprefix("bench_"): path for path in sorted(FOLDER.glob("bench_*.py"))}
    extra = [name for name in names if name not in files]
    if extra:
        raise ValueError(f"`names` must be among {', '.join(files)}; got {', '.join(extra)}.")
    return {name: path for name, path in files.items() if not names or name in names}


def names_of_rows(folder: pathlib.Path, device: str) -> dict[str, set[str]]:
    """Names of the rows of each benchmark that were measured on a device, at their full sizes."""
    results: dict[str, set[str]] = {}
    for path in folder.glob("*.json"):
        content = json.loads(path.read_text("utf-8"))
        if content["device"] == device and not content["quick"]:
            for row in content["rows"]:
                if row["verdict"] != "failed":
                    results.setdefault(row["benchmark"], set()).add(row["name"])
    return results


def verdict(ratio: float, target: float | None) -> str:
    """Whether a ratio is at least its target: "reached", "missed", or "" without one."""
    if target is None:
        return ""
    return "reached" if ratio >= target else "missed"


def _run(
    name: str, path: pathlib.Path, options: Options, done: set[str]
) -> Generator[list[dict[str, Any]]]:
    """Yield a benchmark's rows with their verdicts, in lists; one that fails is a row too.

    Without a parameter `done`, a benchmark that has any row is left out.
    """
    try:
        run = _module(path).run
        takes_done = "done" in inspect.signature(run).parameters
        if done and not takes_done:
            return
        rows = run(options.quick, **({"done": done} if takes_done else {}))
        for some in _with_alarm(name, path, _in_time(rows, options.end)):
            yield [_with_verdict(name, row, options.quick) for row in some]
    except ModuleNotFoundError as error:
        remedy = "pip install -c requirements.lock -e '.[dev]'"
        reason = f"{error.name} is not installed: `{remedy}` in a clone, or `make bench`"
        yield [{"benchmark": name, "name": reason, "verdict": "failed"}]
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        yield [{"benchmark": name, "name": reason, "verdict": "failed"}]


def _with_verdict(name: str, row: dict[str, Any], quick: bool) -> dict[str, Any]:
    target = None if quick else row.get("target")
    outcome = {"target": target, "verdict": verdict(row["ratio"], target)}
    return {"benchmark": name, **row, **outcome}


def _module(path: pathlib.Path) -> Any:
    """Import a benchmark as if it were run as a script."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    spec.loader.exec_module(module)
    return module


def _in_time(rows: Iterable[Any], end: float) -> Iterator[Any]:
    """Yield lists of rows as long as there is time to measure another."""
    iterator = iter(rows)
    while time.monotonic() < end:
        try:
            some = next(iterator)
        except StopIteration:
            return
        yield some if isinstance(some, list) else [some]


def _with_alarm(name: str, path: pathlib.Path, rows: Iterator[Any]) -> Iterator[Any]:
    """Yield lists of rows; report on the error stream where one is after `ALARM` seconds."""
    main, last = threading.get_ident(), "the start"
    while True:
        timer = threading.Timer(ALARM, _alarm, (name, path, last, main))
        timer.daemon = True
        timer.start()
        try:
            some = next(rows)
        except StopIteration:
            return
        finally:
            timer.cancel()
        yield some
        last = some[-1]["name"]


def _alarm(name: str, path: pathlib.Path, last: str, thread: int) -> None:
    frames = traceback.extract_stack(sys._current_frames()[thread])
    lines = [f"{x.name}, line {x.lineno}" for x in frames if x.filename == str(path)]
    print(
        f"{name}: the row after {last!r} has taken more than {ALARM:.0f} s; it is in "
        f"{lines[-1] if lines else path.name} of {path.name}.",
        file=sys.stderr,
        flush=True,
    )


COLUMNS = ("what", "against", "ours", "theirs", "unit", "ratio", "target", "")
VISIBLE = (0, 1, 5, 6, 7)  # of these in the terminal; the files have all


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    if row["verdict"] == "failed":
        return f"{row['benchmark']}: {row['name']}", "", "", "", "", "", "", "failed"
    return (
        row["name"],
        row["peer_name"],
        _number(row["ours"]),
        _number(row["peer"]),
        row["unit"],
        f"{row['ratio']:.2f}×",
        "" if row["target"] is None else f"{row['target']:g}×",
        row["verdict"],
    )


def _number(x: float) -> str:
    return f"{x:,.0f}" if x >= 1000 else f"{x:.3g}"


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="mmrl against its peers: how many times faster", box=SIMPLE_HEAD)
    for i in VISIBLE:
        table.add_column(COLUMNS[i], justify="left" if i < 2 else "right")
    colors = {"reached": "green", "missed": "red", "failed": "red"}
    for row in rows:
        cells = _cells(row)
        table.add_row(*(escape(cells[i]) for i in VISIBLE), style=colors.get(row["verdict"], ""))
    return table


class RowFiles:
    """The rows of a run, in two files under a name that no earlier run has."""

    def __init__(self, options: Options):
        now = datetime.datetime.now(datetime.UTC)
        self.path = options.out / f"{now:%Y-%m-%d-%H%M%S-%f}{'-quick' * options.quick}.json"
        self.origin, self.quick = provenance(), options.quick
        self.rows: list[dict[str, Any]] = []

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Write rows with those before them."""
        self.rows += rows
        lines = [COLUMNS, ("---",) * len(COLUMNS), *map(_cells, self.rows)]
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        origin = self.origin
        facts = f"{origin['device']}, {origin['date']}, revision {origin['revision']}"
        content = {**origin, "quick": self.quick, "rows": self.rows}
        with write_errors(self.path.parent):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace(self.path, dumps(content, indent=1).encode())
            text = f"{table}\n\n{facts}, `{origin['command']}`\n"
            replace(self.path.with_suffix(".md"), text.encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
