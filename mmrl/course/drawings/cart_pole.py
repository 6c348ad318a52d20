"""Drawing of a cart-pole, with earlier frames and the hidden velocity."""

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from mmrl.course.drawings import svg

_WIDTH, _METRE, _GROUND = 520, 92, 214  # width in pixels, pixels per metre, y of the track
_LIMIT, _ANGLE = 2.4, np.deg2rad(12)  # position [m] and angle [rad] at which an episode ends
_GHOSTS, _APART = 5, 4  # number of earlier poles, and their distance in steps of 0.02 s


def cart_pole(
    observations: Float[ndarray, "time 2"],
    actions: Int[ndarray, " time"],
    *,
    hidden: Float[ndarray, "time 4"] | None = None,
    hides_velocity: bool = True,
    title: str = "Cart-pole",
    note: str = "",
) -> str:
    """Draw the cart and pole at the last step, and the angle over time.

    `observations` contains the observed (x [m], θ [rad]), and `hidden` the state (x, ẋ, θ, θ̇). If
    `hidden` is given, the cart is drawn at its true position, a dashed outline shows the observed
    position if it differs, and an arrow shows ẋ. The plot of the angle has one mark per step, a dot
    if the agent pushed right and a ring if it pushed left.
    """
    true = observations if hidden is None else hidden[:, [0, 2]]
    body = svg.heading(_WIDTH, title, note) + _track()
    for age in range(min(_GHOSTS, (len(true) - 1) // _APART), 0, -1):
        more = f'opacity="{0.4 - 0.06 * age:.2f}" data-ghost="{age}"'
        body.append(_pole(*true[-1 - _APART * age], more=more))
    if hidden is not None and not np.allclose(observations[-1], true[-1], atol=1e-3):
        body.append(_outline(*observations[-1]))
    body += _cart(*true[-1])
    if hidden is not None:
        body += _velocity(float(true[-1, 0]), float(hidden[-1, 1]), hides_velocity)
    body += _angles(true[:, 1], actions)
    x, angle = float(true[-1, 0]), float(np.rad2deg(true[-1, 1]))
    side = "right" if actions[-1] else "left"
    desc = (
        f"Step {len(observations) - 1}: cart at {x:.2f} m, pole at {angle:.1f} degrees, pushed "
        f"{side}. An episode ends beyond 2.4 m or 12 degrees."
    )
    return svg.document(_WIDTH, 358, title, desc, body)


def _place(x: svg.Number) -> float:
    """Convert a position in metres to pixels, clipped to the drawing."""
    return float(np.clip(_WIDTH / 2 + _METRE * x, 30, _WIDTH - 30))


def _track() -> list[str]:
    """Draw the track with its limits and a scale in metres."""
    out = [svg.line(20, _GROUND, _WIDTH - 20, _GROUND, stroke="line", more='stroke-width="2"')]
    for metre in (-2, -1, 0, 1, 2):
        x = _place(metre)
        out.append(svg.line(x, _GROUND, x, _GROUND + 5))
        unit = " m" if metre == 2 else ""
        label = f"{metre}{unit}".replace("-", "−")
        out.append(svg.text(x, _GROUND + 17, label, size=10, fill="dim", anchor="middle"))
    for limit in (-_LIMIT, _LIMIT):
        more = 'stroke-dasharray="4 4"'
        out.append(svg.line(_place(limit), 70, _place(limit), _GROUND, stroke="bad", more=more))
    return out


def _tip(x: svg.Number, angle: svg.Number) -> tuple[svg.Number, ...]:
    """Return (pivot x, pivot y, tip x, tip y) of a pole of length one metre."""
    pivot = _GROUND - 34
    return _place(x), pivot, _place(x) + _METRE * np.sin(angle), pivot - _METRE * np.cos(angle)


def _pole(x: svg.Number, angle: svg.Number, more: str = "") -> str:
    width = f'stroke-width="7" stroke-linecap="round" {more}'.strip()
    return svg.line(*_tip(x, angle), stroke=svg.ORANGE, more=width)


def _cart(x: svg.Number, angle: svg.Number) -> list[str]:
    """Draw the cart, two wheels, the pole and the axle."""
    middle = _place(x)
    wheels = [svg.circle(middle + d, _GROUND - 5, 5, fill="dim") for d in (-15, 15)]
    cart = svg.rect(middle - 29, _GROUND - 36, 58, 27, fill="good", radius=4)
    axle = svg.circle(middle, _GROUND - 34, 4, fill="paper", stroke="ink")
    return [*wheels, cart, _pole(x, angle, 'data-pole="true"'), axle]


def _outline(x: svg.Number, angle: svg.Number) -> str:
    """Draw an outline of the cart and the pole at the position that the agent observes."""
    more = 'stroke-width="1.5" stroke-dasharray="4 3" data-pole="seen"'
    x1, y1, x2, y2 = (svg.num(v) for v in _tip(x, angle))
    left, top = svg.num(_place(x) - 29), svg.num(_GROUND - 36)
    return svg.path(f"M{left} {top}h58v27h-58zM{x1} {y1}L{x2} {y2}", stroke="ink", more=more)


def _velocity(x: svg.Number, speed: svg.Number, hides: bool) -> list[str]:
    """Draw ẋ as an arrow under the cart, dashed if it is hidden."""
    start, y = _place(x), _GROUND + 34
    length = float(np.clip(speed * 46, -150, 150))
    end, role = start + length, "dim" if hides else "good"
    dashes = 'stroke-width="2.5" stroke-dasharray="5 4"' if hides else 'stroke-width="2.5"'
    point = 8 if length >= 0 else -8
    sides = f"{svg.num(end)} {y}l{-point} -4.5v9z"
    label = f"velocity {speed:+.2f} m/s".replace("-", "−") + (" (hidden)" if hides else "")
    anchor = "start" if x < 0 else "end"
    away = start - 40 if x < 0 else start + 40
    arrow = [
        svg.line(start, y, end - point / 2, y, stroke=role, more=dashes),
        svg.path(f"M{sides}", fill=role),
    ]
    return [*arrow, svg.text(away, y + 18, label, size=10.5, fill="dim", anchor=anchor)]


def _angles(angles: Float[ndarray, " time"], actions: Int[ndarray, " time"]) -> list[str]:
    """Draw θ over time between the two limits, with one mark per step."""
    left, right, middle, half = 44, _WIDTH - 20, 310, 26
    out = [svg.text(14, middle + 4, "θ", size=12, fill="dim")]
    for angle, label in ((_ANGLE, "12°"), (0.0, ""), (-_ANGLE, "−12°")):
        y = middle - half * angle / _ANGLE
        role, more = ("bad", 'stroke-dasharray="4 4"') if angle else ("line", "")
        out.append(svg.line(left, y, right, y, stroke=role, more=more))
        if label:
            out.append(svg.text(left - 4, y + 4, label, size=9, fill="dim", anchor="end"))
    pitch = min((right - left - 10) / max(len(angles) - 1, 1), 12)
    size = float(np.clip(pitch / 2.6, 0.9, 3))
    for t, (angle, action) in enumerate(zip(angles, actions, strict=True)):
        x, y = left + 5 + pitch * t, middle - half * float(np.clip(angle / _ANGLE, -1.2, 1.2))
        side = "right" if action else "left"
        fill, stroke = ("good", "none") if action else ("paper", "bad")
        out.append(svg.circle(x, y, size, fill=fill, stroke=stroke, more=f'data-mark="{side}"'))
    key = f"{len(angles)} steps, ● pushed right, ○ pushed left"
    return [*out, svg.text(right, 350, key, size=10, fill="dim", anchor="end")]
