"""`make bench`: mmrl's speed as ratios to its peers, each measured in one run.

    python tests/benchmarks/run.py scan --quick

A benchmark is a file bench_<name>.py beside this one with a function

    run(quick: bool) -> list of rows

A row is a dict: `name` (what is timed), `ours` and `peer` (two measured numbers), their `unit`,
`peer_name` (against what), `ratio` (how many times faster than the peer: above 1 is good), and
`target` (the least ratio to reach, or None). `quick` asks for small sizes, which show that a
benchmark runs, not how fast anything is: its ratios are not judged. A benchmark may import another.
"""

import dataclasses
import datetime
import importlib.util
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mmrl.runs import provenance
from mmrl.runs.checkpoint import dumps, replace, writing

FOLDER = pathlib.Path(__file__).parent
MISSED = 1  # exit code


@dataclasses.dataclass(frozen=True)
class Options:
    """Time mmrl against its peers; print and save one table of ratios."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Which benchmarks, e.g. scan tape. Default: all."""
    quick: bool = False
    """Small sizes: does everything run?"""
    out: pathlib.Path = pathlib.Path("results/bench")
    """Where the table is saved, as JSON and Markdown."""


def main(arguments: Sequence[str]) -> int:
    """Run the benchmarks; the exit code is 1 if a ratio misses its target or a benchmark fails."""
    options = tyro.cli(Options, args=arguments)
    files, console = find(options.names), Console()
    rows: list[dict[str, Any]] = []
    for name, path in files.items():
        began = time.perf_counter()
        with console.status(f"{name} ..."):
            rows += _run(name, path, options.quick)
        console.print(f"{name}: {time.perf_counter() - began:.0f} s", highlight=False)
    console.print(_table(rows))
    console.print(f"Saved as {_save(rows, options)} and .md")
    return MISSED if any(row["verdict"] in ("missed", "failed") for row in rows) else 0


def find(names: Sequence[str]) -> dict[str, pathlib.Path]:
    """The benchmarks called `names`, or all."""
    files = {path.stem.removeprefix("bench_"): path for path in sorted(FOLDER.glob("bench_*.py"))}
    unknown = [name for name in names if name not in files]
    if unknown:
        raise ValueError(f"`names` must be among {', '.join(files)}; got {', '.join(unknown)}.")
    return {name: path for name, path in files.items() if not names or name in names}


def verdict(ratio: float, target: float | None) -> str:
    """Whether a ratio is at least its target: "reached", "missed", or "" without one."""
    if target is None:
        return ""
    return "reached" if ratio >= target else "missed"


def _run(name: str, path: pathlib.Path, quick: bool) -> list[dict[str, Any]]:
    """A benchmark's rows with their verdicts; one that fails is a row too."""
    try:
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        if str(path.parent) not in sys.path:
            sys.path.append(str(path.parent))  # as if it were run as a script
        spec.loader.exec_module(module)
        rows = module.run(quick)
    except ModuleNotFoundError as error:
        remedy = "pip install -c requirements.lock -e '.[dev]'"
        reason = f"{error.name} is not installed: `{remedy}` in a clone, or `make bench`"
        return [{"benchmark": name, "name": reason, "verdict": "failed"}]
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return [{"benchmark": name, "name": reason, "verdict": "failed"}]
    judged = [{**row, "target": None if quick else row.get("target")} for row in rows]
    return [
        {"benchmark": name, **row, "verdict": verdict(row["ratio"], row["target"])}
        for row in judged
    ]


COLUMNS = ("what", "against", "ours", "theirs", "unit", "ratio", "target", "")
SHOWN = (0, 1, 5, 6, 7)  # of these in the terminal; the files have all


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
    for i in SHOWN:
        table.add_column(COLUMNS[i], justify="left" if i < 2 else "right")
    colors = {"reached": "green", "missed": "red", "failed": "red"}
    for row in rows:
        cells = _cells(row)
        table.add_row(*(escape(cells[i]) for i in SHOWN), style=colors.get(row["verdict"], ""))
    return table


def _save(rows: list[dict[str, Any]], options: Options) -> pathlib.Path:
    """Write the table under a name that no earlier one has; returns the JSON file."""
    now = datetime.datetime.now(datetime.UTC)
    path = options.out / f"{now:%Y-%m-%d-%H%M%S}{'-quick' * options.quick}.json"
    origin = provenance()
    lines = [COLUMNS, ("---",) * len(COLUMNS), *map(_cells, rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    facts = f"{origin['device']}, {origin['date']}, revision {origin['revision']}"
    with writing(options.out):
        options.out.mkdir(parents=True, exist_ok=True)
        replace(path, dumps({**origin, "quick": options.quick, "rows": rows}, indent=1).encode())
        replace(path.with_suffix(".md"), f"{table}\n\n{facts}, `{origin['command']}`\n".encode())
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
