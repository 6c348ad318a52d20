"""Drawing of a multi-armed bandit."""

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from mmrl.course.drawings import svg

_ROW, _LEFT, _PULLS, _BARS = 22, 44, 430, 130  # pixels


def bandit(
    actions: Int[ndarray, " time"],
    wins_of: Int[ndarray, " time"],
    arms: int,
    *,
    odds: Float[ndarray, " arms"] | None = None,
    title: str = "Bandit",
    note: str = "",
) -> str:
    """Draw one row per arm, with one mark per pull.

    A bar at the right shows the fraction of the arm's pulls that paid, followed by wins / pulls. If
    `odds` is given, the true probability of the arm is drawn as an outline of the bar.
    """
    width, height = _LEFT + _PULLS + _BARS + 84, 58 + _ROW * arms + 22
    bar_left = _LEFT + _PULLS + 16
    body = svg.heading(width, title, note)
    body.append(svg.text(_LEFT, 46, "pulls over time", size=10, fill="dim"))
    body.append(svg.text(bar_left, 46, "share that paid", size=10, fill="dim"))
    pulls, wins = (
        np.bincount(actions, minlength=arms),
        np.bincount(actions, wins_of, minlength=arms),
    )
    for arm in range(arms):
        y = 54 + _ROW * arm
        body.append(svg.text(_LEFT - 8, y + 15, arm, size=11, fill="dim", anchor="end"))
        body.append(svg.line(_LEFT, y + _ROW / 2, _LEFT + _PULLS, y + _ROW / 2))
        body += _bar(bar_left, y, int(pulls[arm]), int(wins[arm]))
        if odds is not None:
            x = bar_left + _BARS * float(odds[arm])
            outline = svg.rect(bar_left, y + 3, x - bar_left, _ROW - 6, stroke="ink")
            body += [outline, svg.line(x, y + 1, x, y + _ROW - 1, stroke="ink")]
    body += _marks(actions, wins_of)
    key = "● paid, ○ did not" + ("; outline: the arm's true odds" if odds is not None else "")
    body.append(svg.text(width - 14, height - 10, key, size=10, fill="dim", anchor="end"))
    shares = ", ".join(f"arm {a}: {int(wins[a])} of {int(pulls[a])}" for a in range(arms))
    desc = f"{len(actions)} pulls. Paid: {shares}."
    return svg.document(width, height, title, desc, body)


def _bar(left: svg.Number, y: svg.Number, pulls: int, wins: int) -> list[str]:
    """Draw the fraction of an arm's pulls that paid."""
    track = svg.rect(left, y + 4, _BARS, _ROW - 8, fill="fill", radius=2)
    label = svg.text(left + _BARS + 8, y + 15, f"{wins} / {pulls}", size=10, fill="dim")
    if not pulls:
        return [track, label]
    more = 'opacity="0.8"'
    return [
        track,
        svg.rect(left, y + 4, _BARS * wins / pulls, _ROW - 8, fill="good", radius=2, more=more),
        label,
    ]


def _marks(actions: Int[ndarray, " time"], wins: Int[ndarray, " time"]) -> list[str]:
    pitch = min((_PULLS - 10) / max(len(actions) - 1, 1), 14)
    size = float(np.clip(pitch / 1.8, 1.2, 5))
    out = []
    for t, (arm, win) in enumerate(zip(actions, wins, strict=True)):
        x, y = _LEFT + 5 + pitch * t, 54 + _ROW * (int(arm) + 0.5)
        role, mark = ("good", "paid") if win else ("bad", "lost")
        more = f'data-mark="{mark}"'
        out.append(svg.circle(x, y, size, fill=role if win else "paper", stroke=role, more=more))
    return out
