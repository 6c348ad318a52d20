"""Drawings of Battleship, Concentration and the labyrinths, with all observations so far."""

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from mmrl.course.drawings import cards, svg

# Margins in pixels above the board, at its sides, and below it for the rewards.
_TOP, _LEFT, _BARS = 40, 14, 78


def battleship(
    actions: Int[ndarray, " time"],
    hits: Bool[ndarray, " time"],
    rewards: Float[ndarray, " time"],
    size: int,
    *,
    ships: Bool[ndarray, " square"] | None = None,
    title: str = "Battleship",
    note: str = "",
) -> str:
    """Draw the board, with a filled square for each hit and a ring for each miss.

    `actions` contains the indices of the squares in row-major order. If `ships` is given, the
    squares of ships are outlined. A frame marks the last guess. Bars below the board show the
    reward of each step.
    """
    cell = 30
    x = lambda square: _left(cell * size) + cell * (square % size)  # noqa: E731
    y = lambda square: _TOP + cell * (square // size)  # noqa: E731
    hit_squares, guesses = {*actions[hits].tolist()}, {*actions.tolist()}
    body = []
    for square in range(size * size):
        box = (x(square) + 1, y(square) + 1, cell - 2, cell - 2)
        fill = "paper" if square in guesses else "fill"
        more = f'data-square="{square}"'
        body.append(svg.rect(*box, fill=fill, stroke="line", radius=4, more=more))
        middle = (x(square) + cell / 2, y(square) + cell / 2)
        if square in hit_squares:
            inner = (box[0] + 5, box[1] + 5, cell - 12, cell - 12)
            body.append(svg.rect(*inner, fill="good", radius=3, more='data-guess="hit"'))
        elif square in guesses:
            body.append(svg.circle(*middle, 5, stroke="bad", more='data-guess="miss"'))
        if ships is not None and ships[square] and square not in hit_squares:
            inner = (box[0] + 5, box[1] + 5, cell - 12, cell - 12)
            more = 'stroke-dasharray="3 3" data-ship="hidden"'
            body.append(svg.rect(*inner, stroke="dim", radius=3, more=more))
    body.append(_ring(x(int(actions[-1])), y(int(actions[-1])), cell, cell))
    desc = (
        f"{len(actions)} guesses, {len(hit_squares)} squares hit. Last: square {int(actions[-1])}."
    )
    return _document(cell * size, cell * size, rewards, title, note, desc, body)


def concentration(
    kinds: Int[ndarray, " place"],
    action: int,
    rewards: Float[ndarray, " time"],
    types: int,
    *,
    title: str = "Concentration",
    note: str = "",
) -> str:
    """Draw the cards on the table, and mark the last one.

    A card is drawn face down if its entry in `kinds` equals `types`. Bars below the table show the
    reward of each step.
    """
    columns, wide, high = 13, 34, 44
    rows = -(-len(kinds) // columns)
    body = []
    for place, kind in enumerate(kinds.tolist()):
        x = _left(wide * columns) + wide * (place % columns) + 3
        y = _TOP + high * (place // columns) + 3
        if kind < types:
            body.append(cards.card(x, y, kind, types=types))
        else:
            body.append(svg.rect(x, y, 28, 38, fill="fill", stroke="line", radius=4))
        if place == action:
            body.append(_ring(x - 3, y - 3, 34, 44))
    visible = int((kinds < types).sum())
    desc = f"{len(kinds)} cards, {visible} in view. Last turned over: place {action}."
    return _document(wide * columns, high * rows, rewards, title, note, desc, body)


def labyrinth(
    views: Int[ndarray, "time 3 3"],
    places: Int[ndarray, "time 2"] | None,
    rewards: Float[ndarray, " time"],
    side: int,
    *,
    title: str = "Labyrinth",
    note: str = "",
) -> str:
    """Draw the observed squares, the path and the agent.

    The entries of `views` are 0 (free), 1 (wall), 2 (start) and 3 (goal). `places` contains the row
    and column of the agent at each step. If it is None, only the last view is drawn. Bars below the
    labyrinth show the reward of each step.
    """
    cell = 18
    if places is None:
        seen_map, path, here = views[-1], [], (1, 1)
    else:
        seen_map = np.full((side, side), -1)
        for view, place in zip(views, places, strict=True):
            _add(seen_map, view, place)
        path, here = [tuple(place) for place in places.tolist()], tuple(places[-1].tolist())
    rows = len(seen_map)
    left = _left(cell * rows)
    fills = {-1: "fill", 0: "paper", 1: "dim", 2: "mark", 3: "good"}
    names = {-1: "unseen", 0: "free", 1: "wall", 2: "start", 3: "goal"}
    body = []
    for row, column in np.ndindex(rows, rows):
        kind = int(seen_map[row, column])
        box = (left + cell * column, _TOP + cell * row, cell, cell)
        body.append(svg.rect(*box, fill=fills[kind], more=f'data-square="{names[kind]}"'))
    at = lambda p: (left + cell * (p[1] + 0.5), _TOP + cell * (p[0] + 0.5))  # noqa: E731
    if len(path) > 1:
        line = "L".join(f"{svg.num(x)} {svg.num(y)}" for x, y in map(at, path))
        body.append(svg.path(f"M{line}", stroke="mark", more='stroke-width="2" opacity="0.7"'))
    body.append(svg.circle(*at(here), 6, fill="good", stroke="ink", more='data-agent="here"'))
    squares = len({*path})
    desc = f"{len(views)} steps over {squares} squares." if path else "The 3 × 3 squares in view."
    return _document(cell * rows, cell * rows, rewards, title, note, desc, body)


def _add(
    board: Int[ndarray, "side side"], view: Int[ndarray, "3 3"], place: Int[ndarray, " 2"]
) -> None:
    """Write a view into the map. Popgym shifts views at the upper and the left border."""
    top, left = (max(int(x) - 1, 0) for x in place)
    height, width = (2 if x == 0 else 3 for x in place)
    part = board[top : top + height, left : left + width]
    part[:] = view[: part.shape[0], : part.shape[1]]


def _left(width: svg.Number) -> svg.Number:
    return (_width(width) - width) / 2


def _width(board: svg.Number) -> svg.Number:
    return max(board + 2 * _LEFT, 340)


def _ring(x: svg.Number, y: svg.Number, width: svg.Number, height: svg.Number) -> str:
    more = 'stroke-width="3" data-ring="last"'
    return svg.rect(x + 1.5, y + 1.5, width - 3, height - 3, stroke="mark", radius=4, more=more)


def _document(
    width: svg.Number,
    height: svg.Number,
    rewards: Float[ndarray, " time"],
    title: str,
    note: str,
    desc: str,
    body: list[str],
) -> str:
    """Return the SVG of a board, with a heading above and the rewards below."""
    whole = _width(width)
    below = [svg.text(_LEFT, _TOP + height + 24, "reward per step", size=10, fill="dim")]
    below += svg.rewards(rewards, _LEFT, _TOP + height + 30, whole - 2 * _LEFT, 36)
    shapes = [*svg.heading(whole, title, note), *body, *below]
    return svg.document(whole, _TOP + height + _BARS, title, desc, shapes)
