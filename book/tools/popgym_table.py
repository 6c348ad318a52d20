"""Sphinx directive that shows our POPGym scores next to the paper's scores."""

import itertools
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from docutils import nodes
from pages import origin, read, scrolling
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from mmrl.course.experiments.experiment_popgym import BLOCKS, BOUNDS, GRID, MEMORIES, Cell
from mmrl.envs import popgym

FILE = "popgym.jsonl"
BELOW = '<span aria-hidden="true">▾</span><span class="visually-hidden">below</span>'
LEVELS = ("Easy", "Medium", "Hard")
Rows = Mapping[str, dict[str, Any]]


class Score(NamedTuple):
    """Score (MMER) reported in the paper, and the model that achieved it."""

    value: float
    model: str


GRU = {task: entry.gru for task, entry in popgym.LEVELS.items() if entry.gru}
# Best score of the paper's thirteen models on each task where, in our transcription of the paper's
# table, it is higher than the GRU's score.
BETTER = {
    (task, level): Score(*score)
    for task, entry in popgym.LEVELS.items()
    for level, score in entry.better.items()
}
MODIFICATIONS = [task for task, entry in popgym.LEVELS.items() if entry.changed]


def paper_scores(task: str, level: str) -> tuple[Score | None, Score | None]:
    """Return the paper's scores of the GRU and of the best model, or (None, None)."""
    if task not in GRU:
        return None, None
    gru = Score(GRU[task][LEVELS.index(level)], "GRU")
    return gru, BETTER.get((task, level), gru)


class Table(SphinxDirective):
    """Directive that shows the rows of `mmrl experiment popgym`, grouped by level."""

    def run(self) -> list[nodes.Node]:
        """Return a section per level, or a note if the results are missing."""
        self.env.note_reread()
        rows = {row["cell"]: row for row in read(FILE)}
        if not rows:
            return [nodes.paragraph(text="No score has been published yet.")]
        parts: list[nodes.Node] = [nodes.paragraph(text=so_far(rows))]
        for steps, level in itertools.product(BLOCKS, LEVELS):
            if any((row["steps"], row["level"]) == (steps, level) for row in rows.values()):
                title = f"{level}, {steps.replace('M', ' million')} steps"
                parts.append(_section(title, table(steps, level, rows)))
        return [*parts, _section("Where it comes from", origin(FILE, list(rows.values())))]


def _section(title: str, content: str) -> nodes.section:
    section = nodes.section(ids=[nodes.make_id(title)])
    section += nodes.title(text=title)
    section += nodes.raw("", content, format="html")
    return section


def table(steps: str, level: str, rows: Rows) -> str:
    """Return a table with the paper's scores on each task, and ours for each memory."""
    tasks = list(dict.fromkeys(cell.task for cell in GRID.cells))
    heads = ["task", "their GRU", "their best", *(memory.upper() for memory in MEMORIES)]
    heads += [*BOUNDS, "gap"] if steps == "3M" else []
    cells = [_task(task, level, steps, rows) for task in tasks]
    return scrolling(f"Scores, {level}, {steps} steps", heads, cells, name=0)


def _task(task: str, level: str, steps: str, rows: Rows) -> list[str]:
    gru, best = paper_scores(task, level)
    ours = [rows.get(Cell(task, level, memory, steps).name) for memory in MEMORIES]
    bounds = [rows.get(Cell(task, level, bound, steps).name) for bound in BOUNDS]
    name = re.sub("(?<=[a-z])(?=[A-Z])", "<wbr>", task) + " *" * (task in MODIFICATIONS)
    cells = [name, _theirs(gru), _theirs(best, with_model=True), *map(_ours, ours)]
    return cells + ([*map(_ours, bounds), _gap(*bounds)] if steps == "3M" else [])


def _gap(none: Mapping[str, Any] | None, state: Mapping[str, Any] | None) -> str:
    """Format the observability gap: the score on the state minus the score without a memory."""
    return number(state["mmer"] - none["mmer"]) if none and state else ""


def _ours(row: Mapping[str, Any] | None) -> str:
    """Format the mean and the range of the trials."""
    if row is None:
        return ""
    value, trials = number(row["mmer"]), row["trials"]
    score = {
        True: f"<strong>{value}</strong>",
        False: f"{value} {BELOW}",
        None: value,
    }[reaches(row)]
    return f"{score}<br><small>{number(min(trials))} to {number(max(trials))}</small>"


def _theirs(score: Score | None, with_model: bool = False) -> str:
    if score is None:
        return ""
    return number(score.value) + (f"<br><small>{score.model}</small>" if with_model else "")


def reaches(row: Mapping[str, Any]) -> bool | None:
    """Return True if a score reaches the paper's best, or None if the two cannot be compared."""
    compares = row["task"] not in MODIFICATIONS and row["memory"] in MEMORIES
    best = paper_scores(row["task"], row["level"])[1] if compares else None
    return best and round(row["mmer"], 2) >= round(best.value, 2)


def so_far(rows: Rows) -> str:
    """State how many cells have been measured, and which scores are below the paper's best."""
    cells = [cell.name for cell in GRID.cells if cell.steps == "3M"]
    count = sum(name in rows for name in cells)
    comparable = [row for row in rows.values() if reaches(row) is not None]
    below: dict[str, list[str]] = {}
    for row in comparable:
        if not reaches(row):
            where = f"{row['task']}{row['level']}" + ", 15M" * (row["steps"] == "15M")
            below.setdefault(where, []).append(row["memory"].upper())
    successes = len(comparable) - sum(map(len, below.values()))
    failures = "; ".join(f"{where} ({', '.join(names)})" for where, names in below.items())
    return (
        f"{count} of {len(cells)} cells of 3 million steps have been measured so far. "
        f"{successes} of {len(comparable)} comparable scores reach the best score of the paper in "
        "our transcription." + f" Below it: {failures}." * bool(below)
    )


def number(value: float) -> str:
    """Format a number with two decimals and a typographic minus sign."""
    return f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("popgym", Table)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
