"""Drawing of Catch, in which a paddle in the last row must catch a falling ball."""

from jaxtyping import Float
from numpy import ndarray

from mmrl.course.drawings import svg

_CELL, _LEFT, _TOP, _WIDTH = 22, 70, 40, 250  # pixels


def catch(
    boards: Float[ndarray, "time row column"], action: int, *, title: str, note: str = ""
) -> str:
    """Draw the last board and the earlier positions of the ball.

    `boards` [time, row, column] is 1 at the ball and at the paddle, and 0 elsewhere. An arrow below
    the paddle shows the `action`: 0 is left, 1 is stay, and 2 is right.
    """
    rows, columns = boards.shape[1:]
    body = svg.heading(_WIDTH, title, note)
    body.append(svg.rect(_LEFT, _TOP, columns * _CELL, rows * _CELL, fill="fill"))
    places = boards[:, :-1].reshape(len(boards), -1).argmax(1)
    for place in places[:-1]:
        body.append(_ball(*divmod(int(place), columns), 'opacity="0.3" data-mark="before"'))
    row, column = divmod(int(places[-1]), columns)
    body.append(_ball(row, column, 'data-mark="now"'))
    paddle = int(boards[-1, -1].argmax())
    x, y = _LEFT + _CELL * paddle, _TOP + _CELL * rows
    body.append(svg.rect(x + 1, y - 16, _CELL - 2, 10, fill="good", radius=3))
    body.append(svg.text(x + _CELL / 2, y + 16, "←·→"[action], anchor="middle", size=15))
    move = ("left", "nowhere", "right")[action]
    desc = f"Ball in row {row}, column {column}; paddle in column {paddle}, moved {move}."
    return svg.document(_WIDTH, y + 30, title, desc, body)


def _ball(row: int, column: int, more: str) -> str:
    x, y = _LEFT + _CELL * (column + 0.5), _TOP + _CELL * (row + 0.5)
    return svg.circle(x, y, 8, fill="mark", more=more)
