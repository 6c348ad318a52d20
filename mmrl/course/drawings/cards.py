"""Drawings of card tasks, with the observed card and the answer at each step."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from mmrl.course.drawings import svg

SUITS = ("spades", "diamonds", "clubs", "hearts")
RANKS = ("A", "2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K")

# Paths of the suits in a 20 × 20 square. Some systems would show the characters as color emoji.
SHAPES = (
    "M0 -10C-2 -5 -9 -1 -9 4C-9 9 -3 9 -1 6L-3 10H3L1 6C3 9 9 9 9 4C9 -1 2 -5 0 -10Z",
    "M0 -10L7.5 0L0 10L-7.5 0Z",
    "M-1 4C-3 7 -9 6 -9 1.5C-9 -2 -6 -3.5 -3.5 -2.5C-6 -6 -4 -10 0 -10C4 -10 6 -6 3.5 -2.5"
    "C6 -3.5 9 -2 9 1.5C9 6 3 7 1 4L3 10H-3Z",
    "M0 10C-3 5 -9 1 -9 -4C-9 -10 -2 -11 0 -5.5C2 -11 9 -10 9 -4C9 1 3 5 0 10Z",
)
# Each suit has a different color, so that suits differ in shape and in color.
_COLOURS = (svg.BLACK, svg.BLUE, svg.GREEN, svg.VERMILION)

NOTHING, GAP = -1, -2  # entries of `cards` for "no card in view" and for "steps omitted"
_CELL, _CARD = 34, (28, 38)  # width of a column, and size of a card, in pixels


def card_strip(
    cards: Int[ndarray, " time"],
    answers: Int[ndarray, " time"] | None = None,
    rewards: Float[ndarray, " time"] | None = None,
    *,
    steps: Int[ndarray, " time"] | None = None,
    question: int | None = None,
    columns: int = 26,
    types: int = 4,
    title: str = "Cards",
    note: str = "",
) -> str:
    """Draw one column per step, with the card, the answer and a mark for the reward.

    The mark is ✓, ✗ or · by the sign of the reward. The entries of `cards` and `answers` are 0 to 3
    for ♠♦♣♥. An entry of `cards` may also be `NOTHING` (an empty place) or `GAP` (omitted steps).
    With 13 `types`, cards are ranks, and answers are arrows: 0 is up and 1 is down. An answer with
    a reward of 0 is drawn in a pale color.

    `steps` contains the step number of each column (default: 0, 1, …). The card at step `question`,
    which the task requests, has a ring. `columns` is the number of columns per row, and `note` is
    the right part of the heading.
    """
    steps = np.arange(len(cards)) if steps is None else steps
    below = 24 * (answers is not None) + 20 * (rewards is not None)
    rows, row_height = -(-len(cards) // columns), 62 + below
    width = max(62 + _CELL * min(columns, len(cards)), 8 * (len(title) + len(note)) + 28)
    body = svg.heading(width, title, note)
    for i, kind in enumerate(cards):
        row, column = divmod(i, columns)
        x, top = 48 + _CELL * column, 38 + row * row_height
        if column == 0:
            body += _labels(top, {"sees": 34} | ({} if answers is None else {"says": 74}))
        if kind == GAP:
            body.append(svg.text(x + 14, top + 34, "…", size=18, fill="dim", anchor="middle"))
            continue
        if steps[i] % 5 == 0 or steps[i] == question:
            body.append(svg.text(x + 14, top + 8, steps[i], size=9, fill="dim", anchor="middle"))
        body.append(card(x, top + 12, int(kind), types=types, ring=bool(steps[i] == question)))
        if answers is not None:
            idle = rewards is not None and rewards[i] == 0
            answer = (arrow if types == 13 else suit)(x + 14, top + 70, int(answers[i]), 0.62)
            text = chip(x + 4, top + 60, answer)
            body.append(f'<g opacity="0.35">{text}</g>' if idle else text)
        if rewards is not None:
            body.append(svg.verdict(x + 14, top + below + 48, float(rewards[i])))
    ranks = types == 13
    desc = f"Seen: {_names(cards, RANKS if ranks else SUITS)}."
    words = ("higher", "lower") if ranks else SUITS
    desc += "" if answers is None else f" Said: {_names(answers[cards != GAP], words)}."
    desc += "" if rewards is None else f" {_tally(rewards[cards != GAP])}."
    return svg.document(width, 40 + rows * row_height, title, desc, body)


def count_recall(
    values: Int[ndarray, " time"],
    queries: Int[ndarray, " time"],
    answers: Int[ndarray, " time"],
    rewards: Float[ndarray, " time"],
    types: int,
    *,
    first: int = 0,
    columns: int = 26,
    title: str = "CountRecall",
    note: str = "",
) -> str:
    """Draw one column per step, with the cards, the answer and the result.

    Bars below the columns count how often each type was shown. A ring marks the type that was
    requested last. `types` is 2 (colors), 4 (suits) or 13 (ranks), and `first` is the step of the
    first column.
    """
    rows, row_height = -(-(len(values) - first) // columns), 108
    width = max(62 + _CELL * min(columns, len(values) - first), 62 + 44 * types, 400)
    body = svg.heading(width, title, note)
    for i in range(first, len(values)):
        row, column = divmod(i - first, columns)
        x, top = 48 + _CELL * column, 38 + row * row_height
        if column == 0:
            body += _labels(top, {"sees": 34, "asks": 68, "says": 91})
        if i % 5 == 0:
            body.append(svg.text(x + 14, top + 8, i, size=9, fill="dim", anchor="middle"))
        body.append(card(x, top + 12, int(values[i]), types=types))
        body.append(chip(x + 4, top + 54, face(x + 14, top + 64, int(queries[i]), types, 0.62)))
        body.append(svg.text(x + 8, top + 91, int(answers[i]), size=12, anchor="middle"))
        body.append(svg.verdict(x + 22, top + 87, float(rewards[i])))
    counts = np.bincount(values, minlength=types)
    body += _count_bars(counts, int(queries[-1]), types, 38 + rows * row_height)
    desc = f"{len(values)} steps. {_tally(rewards)}. Shown per type: {counts.tolist()}."
    return svg.document(width, 40 + rows * row_height + 92, title, desc, body)


def _count_bars(
    counts: Int[ndarray, " types"], question: int, types: int, top: svg.Number
) -> list[str]:
    """Draw a bar per type, with a ring around the requested type."""
    out = [svg.text(12, top + 40, "shown", size=10, fill="dim")]
    largest = max(int(counts.max()), 1)
    for kind, count in enumerate(counts):
        x, bar, ring = 52 + 44 * kind, 46 * float(count) / largest, kind == question
        role, more = ("mark", "") if ring else ("dim", 'opacity="0.55"')
        out.append(svg.rect(x, top + 54 - bar, 22, bar, fill=role, radius=2, more=more))
        out.append(svg.text(x + 26, top + 53, int(count), size=10))
        out.append(chip(x + 1, top + 60, face(x + 11, top + 70, kind, types, 0.62), ring=ring))
    return out


def card(x: svg.Number, y: svg.Number, kind: int, *, types: int = 4, ring: bool = False) -> str:
    """Draw a card with its upper left corner at (x, y). `NOTHING` draws an empty place."""
    width, height = _CARD
    if kind == NOTHING:
        more = 'stroke-dasharray="3 3" data-card="-1"'
        return svg.rect(x, y, width, height, stroke="line", radius=4, more=more)
    more = f'data-card="{kind}"'
    out = svg.rect(x, y, width, height, fill="card", stroke="line", radius=4, more=more)
    if ring:
        more = 'stroke-width="3" data-ring="asked"'
        box = (x - 1.5, y - 1.5, width + 3, height + 3)
        out += svg.rect(*box, stroke="mark", radius=6, more=more)
    return out + face(x + width / 2, y + height / 2, kind, types, 0.95)


def chip(x: svg.Number, y: svg.Number, content: str, *, ring: bool = False) -> str:
    """Draw a 20 × 20 card with `content` on it."""
    role, more = ("mark", 'stroke-width="3"') if ring else ("line", "")
    return svg.rect(x, y, 20, 20, fill="card", stroke=role, radius=4, more=more) + content


def face(x: svg.Number, y: svg.Number, kind: int, types: int, scale: svg.Number) -> str:
    """Draw the face of a card: one of two colors, four suits or thirteen ranks."""
    if types == 2:
        r = 7 * scale + 1
        dot = svg.circle(x, y, r, fill=svg.BLACK)
        more = 'stroke-width="3"'
        return svg.circle(x, y, r - 1, stroke=svg.VERMILION, more=more) if kind else dot
    if types == 4:
        return suit(x, y, kind, scale)
    size = 18 * scale
    more = 'font-weight="600"'
    label = RANKS[kind]
    return svg.text(
        x, y + 0.36 * size, label, size=size, fill=svg.BLACK, anchor="middle", more=more
    )


def suit(x: svg.Number, y: svg.Number, kind: int, scale: svg.Number = 1.0) -> str:
    """Draw ♠, ♦, ♣ or ♥, centered at (x, y)."""
    place = f'transform="translate({svg.num(x)} {svg.num(y)}) scale({scale:g})"'
    return svg.path(SHAPES[kind], fill=_COLOURS[kind], more=place)


def arrow(x: svg.Number, y: svg.Number, down: int, scale: svg.Number = 1.0) -> str:
    """Draw an arrow that points up or down, centered at (x, y)."""
    turn = " rotate(180)" if down else ""
    place = f'transform="translate({svg.num(x)} {svg.num(y)}) scale({scale:g}){turn}"'
    return svg.path("M0 -10L8 1H3V10H-3V1H-8Z", fill=svg.BLACK, more=place)


def _labels(top: svg.Number, baselines: dict[str, int]) -> list[str]:
    """Draw the line labels to the left of a row."""
    return [svg.text(12, top + y, name, size=10, fill="dim") for name, y in baselines.items()]


def _names(kinds: Int[ndarray, " time"], words: Sequence[str]) -> str:
    return ", ".join(words[int(k)] if k >= 0 else "nothing" for k in kinds if k != GAP)


def _tally(rewards: Float[ndarray, " time"]) -> str:
    right, wrong = int((rewards > 0).sum()), int((rewards < 0).sum())
    return f"{right} right, {wrong} wrong, {len(rewards) - right - wrong} not asked"
