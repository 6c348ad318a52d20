"""Sphinx directive for book/models.md that shows the measurements of every memory.

    ```{models} recall
    ```

The argument is `figure`, `cost`, `recall`, `order` or `tasks`. The memories come from
`mmrl.memory.NAMES`, so a new memory is added automatically. A cell that has not been measured
contains "no row".
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from docutils import nodes
from models_figure import Point, figure
from pages import origin, read, scrolling
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from mmrl.course.experiments.experiment_failures import TASKS
from mmrl.course.experiments.experiment_model_tasks import AGENT
from mmrl.course.experiments.recall_probes import LAGS
from mmrl.memory import NAMES

MISSING = "no row"
Rows = Mapping[str, Mapping[str, Any]]


class Models(SphinxDirective):
    """Directive that shows one of the tables, or the figure, with the provenance of the rows."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table or the figure, and for most tables the provenance of the rows."""
        self.env.note_reread()
        part = self.arguments[0]
        return [nodes.raw("", text, format="html") for text in content(part)]


def content(part: str) -> list[str]:
    """Return a part of the page as HTML. Raises `ValueError` for an unknown part."""
    models, times = (by_name(read(f"{name}.jsonl")) for name in ("models", "model_times"))
    if part == "figure":
        return [figure(points(models))]
    if part == "cost":
        return [cost(models, times), *sources("model_times", times.values())]
    if part == "recall":
        return [recall(models), *sources("models", models.values())]
    if part == "order":
        return [order(models)]
    if part == "tasks":
        others = read("model_tasks.jsonl")
        return [tasks([*read("baselines.jsonl"), *others]), *sources("model_tasks", others)]
    raise ValueError(f"`part` must be figure, cost, recall, order or tasks; got {part!r}.")


def by_name(rows: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the last row of each memory, without rows of quick runs."""
    return {row["cell"]: row for row in rows if not row["quick"]}


def sources(name: str, rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a list with the provenance of the rows as HTML, which is empty if there are none."""
    copies = [dict(row) for row in rows]
    return [origin(f"{name}.jsonl", copies)] if copies else []


def points(models: Rows) -> list[Point]:
    """Return the point of each measured memory in the figure."""
    return [
        Point(
            name,
            row["kind"],
            row["state"],
            tuple(statistics.fmean(seed) for seed in row["recall"]),
            statistics.fmean(row["order"]) > 0.5,
        )
        for name, row in models.items()
        if name in NAMES
    ]


def cost(models: Rows, times: Rows) -> str:
    """Return a table of sizes, operations and times, the latter as ratios to the GRU's."""
    heads = ("memory", "kind", "numbers in the state", "parameters", "operations per step")
    heads += ("forward ÷ GRU", "forward + backward ÷ GRU", "compile ÷ GRU", "compile, CPU-seconds")

    def cells(name: str) -> list[str]:
        row, time = models.get(name), times.get(name)
        sizes = [MISSING] * 4
        if row:
            sizes = [
                row["kind"],
                *(with_spaces(row[x]) for x in ("state", "parameters", "operations")),
            ]
        if not time:
            return [*sizes, *[MISSING] * 4]
        ratios = [f"{time['ratios'][x]:.2f}" for x in ("forward", "both", "compile")]
        return [*sizes, *ratios, f"{time['seconds']['compile']:.1f}"]

    return table("Size and cost of each memory", heads, cells)


def recall(models: Rows) -> str:
    """Return a table of recall by lag: the mean and the range over seeds."""
    heads = ("memory", *(f"lag {lag}" for lag in LAGS), "mean")

    def cells(name: str) -> list[str]:
        if name not in models:
            return [MISSING] * (len(LAGS) + 1)
        seeds = models[name]["recall"]
        means = [statistics.fmean(seed) for seed in seeds]
        return [with_range(values) for values in (*zip(*seeds, strict=True), means)]

    return table("Recall by lag of each memory", heads, cells)


def order(models: Rows) -> str:
    """Return a table of order sensitivity and of both tasks on longer tapes."""
    lengths = {(row["trained_steps"], row["held_out_steps"]) for row in models.values()}
    short, long = (f"{x}" for x in lengths.pop()) if len(lengths) == 1 else ("T", "8 T")
    heads = ("memory", f"order after {short} steps", f"order after {long} steps")
    heads += (f"recall after {short} steps", f"recall after {long} steps")

    def cells(name: str) -> list[str]:
        if name not in models:
            return [MISSING] * 4
        row = models[name]
        means = [[statistics.fmean(seed) for seed in row[x]] for x in ("recall", "longer")]
        return [with_range(values) for values in (row["order"], row["kept"], *means)]

    return table("Order and length generalization of each memory", heads, cells)


def tasks(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a table of scores with default settings: that of PQN, and the range over agents."""

    def cell(name: str, task: str) -> str:
        scores = {
            row["agent"]: row["interquartile_mean"]
            for row in rows
            if (row["memory"], row["task"]) == (name, task)
            and not (row.get("changes") or row["quick"])
        }
        if not scores:
            return MISSING
        digits = 0 if max(scores.values()) > 10 else 2
        score = number(scores[AGENT], digits) if AGENT in scores else MISSING
        if {*scores} <= {AGENT}:
            return score
        least, most = (number(x, digits) for x in (min(scores.values()), max(scores.values())))
        return f"{score}<br><small>{least} to {most}, {len(scores)} agents</small>"

    heads = ("memory", *(task.removeprefix("popgym-").partition("-")[0] for task in TASKS))
    return table(
        "Scores of each memory on five tasks", heads, lambda x: [cell(x, task) for task in TASKS]
    )


def table(label: str, heads: Sequence[str], cells: Any) -> str:
    """Return a table with a row for each memory."""
    rows = [[f"<code>{name}</code>", *cells(name)] for name in NAMES]
    return scrolling(label, heads, rows, name=0)


def with_range(values: Sequence[float]) -> str:
    """Format the mean of some values, and their range in small print."""
    least, most = number(min(values)), number(max(values))
    spread = least if least == most else f"{least} to {most}"
    return f"{number(statistics.fmean(values))}<br><small>{spread}</small>"


def number(value: float, digits: int = 2) -> str:
    """Format a number with a typographic minus sign, and without a minus before 0."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if not float(text) else text.replace("-", "−")


def with_spaces(value: int) -> str:
    """Format a whole number with spaces between thousands."""
    return f"{value:,}".replace(",", " ")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("models", Models)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
