"""Sphinx directive that shows the baseline scores of every agent."""

import html
import statistics
from collections.abc import Sequence
from typing import Any

from docutils import nodes
from pages import origin, read, scrolling
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from mmrl.course.experiments.experiment_failures import TASKS

FILE, FAILURES = "baselines.jsonl", "failures.jsonl"
HEADS = (
    "agent",
    "memory",
    "learning curve",
    "final (95 %)",
    "best",
    "area",
    "learned and stayed",
    "failures",
    "steps to level",
    "CPU-s to level",
    "total steps",
)
WIDE, HIGH = 150, 30  # width and height of a curve, in pixels


class Baselines(SphinxDirective):
    """Directive that shows the rows of `mmrl experiment baselines`, grouped by task."""

    def run(self) -> list[nodes.Node]:
        """Return a section per task, or a note if the results are missing."""
        self.env.note_reread()
        rows = read(FILE)
        if not rows:
            return [nodes.paragraph(text="No baseline has been published yet.")]
        tasks = list(dict.fromkeys(row["task"] for row in rows))
        failures = {row["cell"]: row for row in read(FAILURES) if not row["quick"]}
        sources = [origin(FILE, rows)]
        if failures:
            sources.append(origin(FAILURES, list(failures.values())))
        parts: list[nodes.Node] = [nodes.raw("", text, format="html") for text in sources]
        for task in tasks:
            parts.append(self._section(task, [r for r in rows if r["task"] == task], failures))
        return parts

    def _section(
        self, task: str, rows: Sequence[dict[str, Any]], failures: dict[str, dict[str, Any]]
    ) -> nodes.section:
        section = nodes.section(ids=[nodes.make_id(task)])
        section += nodes.title(text=task)
        section += nodes.raw("", table(task, rows, failures), format="html")
        return section


def table(
    task: str, rows: Sequence[dict[str, Any]], failures: dict[str, dict[str, Any]] | None = None
) -> str:
    """Return a table of scores and curves by agent and memory.

    `failures` maps the name of a cell to its row of `mmrl experiment failures`.
    """
    span = [value for row in rows for curve in row["returns"] for value in curve]
    pairs = [(row["agent"], row["memory"]) for row in rows]
    sorted_rows = sorted(rows, key=lambda row: pairs.index((row["agent"], row["memory"])))
    cells = [_row(row, min(span), max(span), failures or {}) for row in sorted_rows]
    return scrolling(f"Scores on {task}", HEADS, cells, name=0)


def _row(
    row: dict[str, Any], low: float, high: float, failures: dict[str, dict[str, Any]]
) -> list[str]:
    seeds, (least, most) = len(row["seeds"]), row["interval_95"]
    cells = [
        f"{row['interquartile_mean']:.2f} ({least:.2f} to {most:.2f})",
        f"{statistics.median(row['best']):.2f}",
        f"{statistics.median(row['area']):.2f}",
        f"{row['learned_and_stayed']} of {seeds}",
        _failures(row, failures),
        *map(_thousands, level(row)),
        _thousands(row["env_steps"][-1]),
    ]
    curve = _curve(row["returns"], low, high)
    changes = (f"--{k.replace('_', '-')} {v}" for k, v in row.get("changes", {}).items())
    memory = " ".join((row["memory"], *(f"<code>{html.escape(x)}</code>" for x in changes)))
    return [row["agent"], memory, curve, *map(html.escape, cells)]


def _failures(row: dict[str, Any], failures: dict[str, dict[str, Any]]) -> str:
    """Return the number of failed seeds, which is empty for cells that the study omits."""
    if row["task"] not in TASKS or row.get("changes"):
        return ""
    if row["cell"] not in failures:
        return "no row"
    result = failures[row["cell"]]
    return f"{result['failures']} of {len(result['seeds'])}"


def level(row: dict[str, Any]) -> tuple[float | None, float | None]:
    """Return the steps and the CPU-seconds after which the median seed reached the level."""
    steps_of_seeds = sorted(row["steps_to_level"], key=lambda steps: steps or float("inf"))
    steps = steps_of_seeds[len(steps_of_seeds) // 2]
    if steps is None or row["cpu_seconds"] is None:
        return steps, None
    return steps, row["cpu_seconds"][row["env_steps"].index(steps)]


def _thousands(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}".replace(",", " ")


def _curve(curves: Sequence[Sequence[float]], low: float, high: float) -> str:
    """Draw the median and the range of the returns over seeds."""
    times = [WIDE * i / max(len(curves[0]) - 1, 1) for i in range(len(curves[0]))]
    at = [sorted(values) for values in zip(*curves, strict=True)]
    heights = [[HIGH * (1 - (v - low) / max(high - low, 1e-9)) for v in values] for values in at]
    line, worst, best = (
        [f"{x:.1f},{y[i]:.1f}" for x, y in zip(times, heights, strict=True)]
        for i in (len(curves) // 2, 0, -1)
    )
    ends = f"from {at[0][len(curves) // 2]:.2f} to {at[-1][len(curves) // 2]:.2f}"
    return (
        f'<svg role="img" width="{WIDE}" height="{HIGH}" viewBox="0 -1 {WIDE} {HIGH + 2}">'
        f"<title>Median over seeds {ends}</title>"
        f'<polygon points="{" ".join(worst + best[::-1])}" fill="currentColor" opacity="0.2"/>'
        f'<polyline points="{" ".join(line)}" fill="none" stroke="currentColor"/></svg>'
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("baselines", Baselines)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
