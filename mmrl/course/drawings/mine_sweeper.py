"""Drawing of MineSweeper, with all observations so far."""

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from mmrl.course.drawings import svg

_CELL, _TOP, _LEFT = 46, 40, 14


def mine_sweeper(
    actions: Int[ndarray, " time"],
    near: Int[ndarray, " time"],
    rewards: Float[ndarray, " time"],
    size: int,
    *,
    mines: Bool[ndarray, " square"] | None = None,
    title: str = "MineSweeper",
    note: str = "",
) -> str:
    """Draw the board with the numbers in the opened squares.

    `actions` contains the indices of the squares in row-major order, and `near` the number that
    each action revealed. A square that was opened twice shows both steps. A mine that was hit is a
    filled star. If `mines` is given, the other mines are outlined stars. Bars below the board show
    the reward of each step.
    """
    board = _CELL * size
    width, height = max(board + 2 * _LEFT, 300), _TOP + board + 78
    left = (width - board) / 2
    body = svg.heading(width, title, note)
    for square in range(size * size):
        row, column = divmod(square, size)
        body += _square(left + _CELL * column, _TOP + _CELL * row, square, actions, near, rewards)
        explosion = square in actions[rewards <= -0.5]
        if mines is not None and mines[square] and not explosion:
            x, y = left + _CELL * (column + 0.5), _TOP + _CELL * (row + 0.5)
            body.append(svg.path(_star(x, y, 11), stroke="dim", more='data-mine="hidden"'))
    row, column = divmod(int(actions[-1]), size)
    box = (left + _CELL * column + 1.5, _TOP + _CELL * row + 1.5, _CELL - 3, _CELL - 3)
    body.append(svg.rect(*box, stroke="mark", radius=4, more='stroke-width="3" data-ring="last"'))
    body.append(svg.text(_LEFT, _TOP + board + 24, "reward per step", size=10, fill="dim"))
    body += svg.rewards(rewards, _LEFT, _TOP + board + 30, width - 2 * _LEFT, 36)
    return svg.document(width, height, title, _describe(actions, near, rewards, size), body)


def _square(
    x: svg.Number,
    y: svg.Number,
    square: int,
    actions: Int[ndarray, " time"],
    near: Int[ndarray, " time"],
    rewards: Float[ndarray, " time"],
) -> list[str]:
    """Draw a covered square, or the number that was revealed when it was opened."""
    looks = np.flatnonzero(actions == square)
    open_ = looks.size > 0
    box = (x + 1, y + 1, _CELL - 2, _CELL - 2)
    fill = "paper" if open_ else "fill"
    out = [svg.rect(*box, fill=fill, stroke="line", radius=4, more=f'data-square="{square}"')]
    if not open_:
        return out
    if (rewards[looks] <= -0.5).any():
        middle = (x + _CELL / 2, y + _CELL / 2)
        out.append(svg.path(_star(*middle, 13), fill="bad", more='data-mine="hit"'))
    else:
        number = int(near[looks[0]])
        place = (x + _CELL / 2, y + _CELL / 2 + 8)
        out.append(svg.text(*place, number, size=20, anchor="middle", more='font-weight="600"'))
    steps = ", ".join(str(t) for t in looks)
    return [*out, svg.text(x + 5, y + 12, steps, size=9, fill="dim")]


def _star(x: svg.Number, y: svg.Number, r: svg.Number) -> str:
    """Draw an eight-pointed star."""
    angle = np.arange(16) * np.pi / 8
    radius = np.where(np.arange(16) % 2, 0.5 * r, r)
    points = zip(x + radius * np.sin(angle), y - radius * np.cos(angle), strict=True)
    return "M" + "L".join(f"{svg.num(a)} {svg.num(b)}" for a, b in points) + "Z"


def _describe(
    actions: Int[ndarray, " time"],
    near: Int[ndarray, " time"],
    rewards: Float[ndarray, " time"],
    size: int,
) -> str:
    looks = [
        f"row {a // size} column {a % size} " + ("a mine" if r <= -0.5 else f"showed {n}")
        for a, n, r in zip(actions.tolist(), near.tolist(), rewards.tolist(), strict=True)
    ]
    return f"{len(looks)} looks: {'; '.join(looks)}."
