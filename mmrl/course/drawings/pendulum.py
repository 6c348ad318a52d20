"""Drawing of a pendulum, with earlier positions, the torque, and the angle over time."""

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from mmrl.course.drawings import svg

_WIDTH, _PIVOT, _ROD = 420, (210, 130), 78  # pixels
_GHOSTS, _APART = 4, 3  # number of earlier rods, and steps between them


def pendulum(
    observations: Float[ndarray, "time 2"],
    torques: Float[ndarray, " time"],
    *,
    hidden: Float[ndarray, "time 3"] | None = None,
    title: str = "Pendulum",
    note: str = "",
) -> str:
    """Draw the rod at the last step, and the angle over time.

    The rod is upright at θ = 0. `observations` contains the observed (cos θ, sin θ), and `hidden`
    the state (cos θ, sin θ, θ̇). If `hidden` is given, the rod is drawn at its true position, a
    dashed line shows the observed position if it differs, and a label shows θ̇.
    """
    true = observations if hidden is None else hidden[:, :2]
    body = svg.heading(_WIDTH, title, note)
    for age in range(min(_GHOSTS, (len(true) - 1) // _APART), 0, -1):
        more = f'opacity="{0.4 - 0.07 * age:.2f}" data-ghost="{age}"'
        body.append(_rod(true[-1 - _APART * age], more))
    if hidden is not None and not np.allclose(observations[-1], true[-1], atol=1e-3):
        more = 'stroke-width="1.5" stroke-dasharray="4 3" data-rod="seen"'
        body.append(svg.line(*_PIVOT, *_tip(observations[-1]), stroke="ink", more=more))
    body.append(_rod(true[-1], 'data-rod="true"'))
    body.append(svg.circle(*_PIVOT, 5, fill="paper", stroke="ink"))
    torque = float(np.clip(torques[-1], -2, 2))
    body += _torque(torque)
    if hidden is not None:
        label = f"velocity {float(hidden[-1, 2]):+.2f} rad/s (hidden)".replace("-", "−")
        body.append(svg.text(14, 232, label, size=10.5, fill="dim"))
    angles = np.arctan2(true[:, 1], true[:, 0])
    body += _angles(angles)
    desc = (
        f"Step {len(observations) - 1}: {np.rad2deg(angles[-1]):.0f} degrees from upright, "
        f"torque {torque:.2f} newton meters."
    )
    return svg.document(_WIDTH, 330, title, desc, body)


def _tip(direction: Float[ndarray, " 2"]) -> tuple[float, float]:
    cos, sin = (float(x) for x in direction)
    return _PIVOT[0] - _ROD * sin, _PIVOT[1] - _ROD * cos


def _rod(direction: Float[ndarray, " 2"], more: str) -> str:
    width = f'stroke-width="9" stroke-linecap="round" {more}'
    return svg.line(*_PIVOT, *_tip(direction), stroke=svg.ORANGE, more=width)


def _torque(torque: float) -> list[str]:
    """Draw the torque as a horizontal bar, which extends to the right if it is positive."""
    middle, y = 330, 228
    bar = svg.rect(middle + min(20 * torque, 0), y - 8, abs(20 * torque), 8, fill="good", radius=2)
    label = f"torque {torque:+.1f} N m".replace("-", "−")
    return [
        svg.line(middle, y - 12, middle, y + 4),
        bar,
        svg.text(middle, y + 16, label, size=10.5, fill="dim", anchor="middle"),
    ]


def _angles(angles: Float[ndarray, " time"]) -> list[str]:
    """Draw θ over time between -180° and 180°, with one mark per step."""
    left, right, middle, half = 52, _WIDTH - 16, 286, 24
    out = []
    for share, label in ((1, "180°"), (0, "upright"), (-1, "−180°")):
        y = middle - half * share
        out.append(svg.line(left, y, right, y))
        out.append(svg.text(left - 4, y + 4, label, size=9, fill="dim", anchor="end"))
    pitch = min((right - left - 10) / max(len(angles) - 1, 1), 12)
    size = float(np.clip(pitch / 2.6, 0.9, 3))
    for t, angle in enumerate(angles):
        x, y = left + 5 + pitch * t, middle - half * float(angle) / np.pi
        out.append(svg.circle(x, y, size, fill="good", more='data-mark="angle"'))
    return out
