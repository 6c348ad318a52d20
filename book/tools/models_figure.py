"""Figure for book/models.md: recall of every memory against the size of its state, as SVG.

Lines and text have the color of the page's text, so the figure suits both themes. The name of each
memory is written next to its point, at the first of several places where it does not overlap
anything.
"""

import html
import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

WIDE, HIGH = 400, 400  # size of the picture; on a phone, one unit is about one pixel
LEFT, RIGHT, TOP, BOTTOM = 42, 10, 12, 46  # margins
SIZE, LETTER = 12, 6.4  # height of text, and the width of a letter
RADIUS = 4.5  # radius of a marker
TICKS = (0, 10, 100, 1000)  # numbers in the state
REACH = (9, 16, 24, 34, 46, 60)  # distances of a name from its point
SHAPES = {
    "monoid": f'<circle r="{RADIUS}"/>',
    "recurrence": '<path d="M-4-4H4V4H-4Z"/>',
    "stack of monoids": '<path d="M0-5.5L5.5 0L0 5.5L-5.5 0Z"/>',
    "no memory": '<path d="M0-5L5 4H-5Z"/>',
}
STYLE = "display:block;width:min(100%,40rem);margin:0 auto 1rem"


class Point(NamedTuple):
    """A memory in the figure."""

    name: str
    kind: str
    state: int  # numbers in the state
    recall: tuple[float, ...]  # mean over the lags, for each seed
    has_order: bool  # True if the mean score on the order of two inputs is above 0.5


class Box(NamedTuple):
    """A rectangle, as left, top, right and bottom."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Box") -> bool:
        """Return True if two rectangles have a common area."""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


FRAME = Box(LEFT, TOP, WIDE - RIGHT, HIGH - BOTTOM)  # area of the points


def figure(points: Sequence[Point]) -> str:
    """Return the picture with its caption, or a note if nothing is measured."""
    if not points:
        return "<p>No memory has been measured yet.</p>"
    best = max(points, key=lambda point: statistics.fmean(point.recall))
    words = (
        f"Mean recall of {len(points)} memories against the number of values in their states. The "
        f"best is {html.escape(best.name)}, with {best.state} values and a recall of "
        f"{statistics.fmean(best.recall):.2f}; the table below lists all of them."
    )
    parts = [*_axes(points), *_marks(points), *_names(points)]
    seeds = len(points[0].recall)
    return (
        f'<figure><svg role="img" viewBox="0 0 {WIDE} {HIGH}" style="{STYLE}" '
        f'font-size="{SIZE}" fill="currentColor"><title>{words}</title>{"".join(parts)}</svg>'
        "<figcaption>Recall against the number of values in the state. Recall is the mean accuracy "
        f"above chance over the lags. A vertical line shows the range over {seeds} seeds, if it is "
        "longer than the mark. Circles stand for monoids, squares for other recurrences, diamonds "
        "for stacks of monoids, and the triangle for no memory. Filled marks "
        "have a mean score above 0.5 in telling the order of two inputs.</figcaption></figure>"
    )


def across(state: float, most: float) -> float:
    """Return the horizontal position for a state of `state` numbers, on a log(3 + x) axis."""
    span = math.log((3 + most) / 3)
    return FRAME.left + 14 + (FRAME.right - FRAME.left - 28) * math.log((3 + state) / 3) / span


def down(recall: float) -> float:
    """Return the vertical position of a recall; values below -0.05 are drawn at the lower edge."""
    part = (min(max(recall, -0.05), 1.05) + 0.05) / 1.1
    return FRAME.bottom - (FRAME.bottom - FRAME.top) * part


def places(points: Sequence[Point]) -> list[tuple[float, float]]:
    """Return the position of each point."""
    most = _most(points)
    return [(across(p.state, most), down(statistics.fmean(p.recall))) for p in points]


def labels(points: Sequence[Point]) -> list[Box]:
    """Return the rectangle of each name. Names overlap only if there is no free place."""
    at = places(points)
    obstacles = [Box(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS) for x, y in at]
    boxes: list[Box] = []
    for point, (x, y) in zip(points, at, strict=True):
        options = list(_options(len(point.name) * LETTER, x, y))
        free = (box for box in options if not any(box.overlaps(other) for other in obstacles))
        boxes.append(next(free, options[0]))
        obstacles.append(boxes[-1])
    return boxes


def _options(width: float, x: float, y: float) -> Iterable[Box]:
    """Yield rectangles near a point that lie within the frame, the nearest first."""
    turns = (0, 180, 270, 90, 315, 45, 225, 135, 292, 248, 68, 112)
    for reach, turn in itertools.product(REACH, turns):
        cos, sin = math.cos(math.radians(turn)), math.sin(math.radians(turn))
        left = x + reach * cos - width * (1 - cos) / 2
        top = y + reach * sin - SIZE / 2
        box = Box(left, top, left + width, top + SIZE)
        inside = FRAME.left < box.left and box.right < FRAME.right
        if inside and FRAME.top < box.top and box.bottom < FRAME.bottom:
            yield box


def _axes(points: Sequence[Point]) -> Iterable[str]:
    most = _most(points)
    left, top, right, bottom = FRAME
    yield (
        f'<rect x="{left}" y="{top}" width="{right - left}" height="{bottom - top}" fill="none" '
        'stroke="currentColor" opacity="0.4"/>'
    )
    for tick in (0, 0.25, 0.5, 0.75, 1):
        y = down(tick)
        yield f'<path d="M{left} {y:.1f}H{right}" stroke="currentColor" opacity="0.15"/>'
        yield f'<text x="{left - 5}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
    for tick in (tick for tick in TICKS if tick <= most):
        x = across(tick, most)
        yield f'<path d="M{x:.1f} {top}V{bottom}" stroke="currentColor" opacity="0.15"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{tick}</text>'
    middle = (left + right) / 2
    yield f'<text x="{middle}" y="{HIGH - 8}" text-anchor="middle">numbers in the state</text>'
    yield (
        f'<text transform="translate(12 {(top + bottom) / 2}) rotate(-90)" '
        'text-anchor="middle">recall, above chance</text>'
    )


def _most(points: Sequence[Point]) -> float:
    return max(100, *(point.state for point in points))


def _names(points: Sequence[Point]) -> Iterable[str]:
    for point, (x, y), box in zip(points, places(points), labels(points), strict=True):
        near = min(max(x, box.left), box.right), min(max(y, box.top), box.bottom)
        if math.dist((x, y), near) > REACH[0]:
            yield (
                f'<path d="M{x:.1f} {y:.1f}L{near[0]:.1f} {near[1]:.1f}" stroke="currentColor" '
                'opacity="0.5"/>'
            )
        yield (
            f'<text x="{(box.left + box.right) / 2:.1f}" y="{box.bottom - 2:.1f}" '
            f'text-anchor="middle">{html.escape(point.name)}</text>'
        )


def _marks(points: Sequence[Point]) -> Iterable[str]:
    for point, (x, y) in zip(points, places(points), strict=True):
        low, high = down(min(point.recall)), down(max(point.recall))
        if low - high > 2 * RADIUS:  # a shorter line would be visible only inside a hollow mark
            yield f'<path d="M{x:.1f} {low:.1f}V{high:.1f}" stroke="currentColor"/>'
        fill = "currentColor" if point.has_order else "none"
        yield (
            f'<g transform="translate({x:.1f} {y:.1f})" fill="{fill}" stroke="currentColor" '
            f'stroke-width="1.5">{SHAPES[point.kind]}</g>'
        )
