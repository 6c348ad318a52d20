"""Learning curves of runs in progress, which can be redrawn quickly."""

import io
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from mmrl.runs import interval
from mmrl.show import INK, STYLES, name_axes

MARKS = "○□△◇▽✚✖"  # the markers of `STYLES` as characters
EMPTY = "no curve yet"
INCHES, DPI = (6.8, 3.9), 130
_LONGEST = 26  # longest label next to a line, in characters


class Point(NamedTuple):
    """An evaluation, with the interquartile mean over seeds and its interval."""

    env_steps: int
    returns: Float[np.ndarray, " seed"]
    interval: tuple[float, float, float]


class Curve:
    """The evaluations of a run so far. `style` is an index in `STYLES`.

    One thread may append while another draws, because points are only appended, each in one
    operation.
    """

    def __init__(self, name: str, style: int):
        self.name, self.style = name, style
        self.points: list[Point] = []

    def add(self, env_steps: int, returns: Float[np.ndarray, " seed"]) -> None:
        """Add an evaluation."""
        self.points.append(Point(env_steps, np.asarray(returns), interval(returns)))

    def __str__(self) -> str:
        if not self.points:
            return f"{self.name}: not evaluated yet"
        steps, _, (middle, low, high) = self.points[-1]
        return f"{self.name}: {middle:.2f} [{low:.2f}, {high:.2f}] at {steps:,} steps"


class LiveCurves:
    """A figure whose artists are created once and then updated, one set per entry of `STYLES`."""

    def __init__(self):
        # The margins are fixed, because a layout engine would take longer than drawing.
        self.figure = Figure(figsize=INCHES, dpi=DPI)
        self.figure.subplots_adjust(left=0.1, right=0.72, top=0.9, bottom=0.17)
        self.ax = self.figure.subplots()
        self._lines = [_Line(self.ax, style) for style in STYLES]
        self._bounds = [_BoundLine(self.ax) for _ in range(3)]
        self._hint = self.ax.text(
            0.5, 0.5, "", transform=self.ax.transAxes, ha="center", color=INK, fontsize=11
        )

    def draw(
        self,
        curves: Sequence[Curve],
        *,
        title: str = "",
        end: int = 1,
        bounds: Mapping[str, float] | None = None,
    ) -> bytes:
        """Draw `curves` up to `end` steps and at most three `bounds`, and return a PNG."""
        bounds = dict(bounds or {})
        # Copy the points, because another thread may append to them.
        lines = [(curve, tuple(curve.points)) for curve in curves]
        lines = sorted((pair for pair in lines if pair[1]), key=lambda pair: pair[1][-1].interval)
        name_axes(self.ax, title, {len(points[0].returns) for _, points in lines} or {0})
        self._hint.set_text("" if lines else EMPTY)
        heights = [x for _, points in lines for point in points for x in point.returns]
        heights += [*bounds.values()]
        low, high = (min(heights), max(heights)) if heights else (-1, 1)
        margin = max(0.06 * (high - low), 0.05)  # positive even if all curves are level
        self.ax.set_xlim(0, end)
        self.ax.set_ylim(low - margin, high + margin)
        for line in self._lines:
            line.hide()
        below, gap = -np.inf, 0.055 * (high - low + 2 * margin)
        for curve, points in lines:
            below = max(points[-1].interval[0], below + gap)
            self._lines[curve.style].show(curve.name, points, (float(end), below))
        for bound, item in zip(self._bounds, [*bounds.items(), None, None, None], strict=False):
            bound.show(item)
        return self._png()

    def _png(self) -> bytes:
        file = io.BytesIO()
        self.figure.savefig(file, format="png")
        return file.getvalue()


class _Line:
    """The artists of a curve: lines for all seeds, the interval, the middle, and the label."""

    def __init__(self, ax: Axes, style: Mapping):
        color = style["color"]
        (self.seeds,) = ax.plot([], [], color=color, linewidth=0.6, alpha=0.35)
        self.band = ax.fill_between([], [], [], color=color, alpha=0.18, linewidth=0)
        (self.middle,) = ax.plot(
            [], [], linewidth=2, markersize=5, clip_on=False, zorder=3, **style
        )
        self.label = ax.annotate(
            "",
            (0, 0),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=color,
            fontsize=9,
            fontweight="bold",
            annotation_clip=False,
        )

    def hide(self) -> None:
        for artist in (self.seeds, self.band, self.middle, self.label):
            artist.set_visible(False)

    def show(self, name: str, points: Sequence[Point], beside: tuple[float, float]) -> None:
        steps, returns = (
            np.array([p.env_steps for p in points]),
            np.array([p.returns for p in points]).T,
        )
        middle, low, high = np.array([p.interval for p in points]).T
        # All seeds are drawn as one line with gaps (NaN), so the number of artists is constant.
        breaks = np.full((len(returns), 1), np.nan)
        self.seeds.set_data(
            np.tile(np.append(steps, np.nan), len(returns)), np.hstack([returns, breaks]).ravel()
        )
        self.band.set_data(steps, low, high)
        self.middle.set_data(steps, middle)
        self.middle.set_markevery(-(-len(points) // 8))
        self.label.set_text(name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…")
        self.label.xy = beside
        for artist in (self.seeds, self.band, self.middle, self.label):
            artist.set_visible(True)


class _BoundLine:
    """A thin horizontal line with a label."""

    def __init__(self, ax: Axes):
        self.line = ax.axhline(0, color=INK, linewidth=0.8, alpha=0.6, zorder=1)
        self.text = ax.annotate(
            "",
            (0, 0),
            xycoords=("axes fraction", "data"),
            xytext=(3, 3),
            textcoords="offset points",
            color=INK,
            fontsize=8,
        )
        self.text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])

    def show(self, item: tuple[str, float] | None) -> None:
        name, height = item or ("", 0.0)
        self.line.set_visible(item is not None)
        self.line.set_ydata([height, height])
        self.text.set_text(name)
        self.text.xy = (0, height)
