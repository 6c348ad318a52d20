"""Plot of an episode of any environment, with one line per feature of the observation."""

import numpy as np
from jaxtyping import Float, Shaped
from numpy import ndarray

from mmrl.course.drawings import svg

_LEFT, _WIDTH, _VALUE, _ROW = 56, 390, 74, 26  # pixels
_MOST = 8  # features in view


def numbers(
    obs: Float[ndarray, "time obs"],
    actions: Shaped[ndarray, "time ..."],
    rewards: Float[ndarray, " time"],
    *,
    whole: Float[ndarray, "all obs"] | None = None,
    first: int = 0,
    title: str,
    note: str = "",
) -> str:
    """Plot each feature of the observation, with its last value, and the rewards.

    If there are more than eight features, only the eight that vary most relative to their size are
    drawn. The plot starts at step `first`. The features and scales are computed from `whole`, the
    observations of the complete episode (default: `obs`), so that all frames of an animation show
    the same features at the same scale. Values that are not finite are drawn at 0.
    """
    finite = _finite(obs if whole is None else whole)
    size = np.maximum(np.abs(finite).max(0), 1e-12)
    changes = np.argsort(-(finite / size).std(0), kind="stable")[:_MOST]
    rows, width = np.sort(changes), _LEFT + _WIDTH + _VALUE
    body = svg.heading(width, title, note)
    body.append(svg.text(_LEFT, 44, f"steps {first} to {len(obs) - 1}", size=10, fill="dim"))
    for row, feature in enumerate(rows):
        y = 54 + _ROW * row
        body += _line(_finite(obs[first:, feature]) / size[feature], y)
        body.append(svg.text(_LEFT - 8, y + 16, f"o[{feature}]", size=11, fill="dim", anchor="end"))
        value = f"{float(obs[-1, feature]):.3g}".replace("-", "−")
        body.append(svg.text(_LEFT + _WIDTH + 10, y + 16, value, size=11))
    y = 60 + _ROW * len(rows)
    body.append(svg.text(_LEFT - 8, y + 18, "reward", size=11, fill="dim", anchor="end"))
    body += svg.rewards(rewards[first:], _LEFT, y, _WIDTH, 28)
    action = _in_words(np.asarray(actions[-1]))
    body.append(svg.text(_LEFT, y + 46, f"action {action}".replace("-", "−"), size=11))
    rest = obs.shape[1] - len(rows)
    if rest:
        more = f"{rest} more features change less"
        body.append(svg.text(width - 14, y + 46, more, size=10, fill="dim", anchor="end"))
    text = ", ".join(f"o[{k}] = {float(obs[-1, k]):.3g}" for k in rows)
    desc = f"Step {len(obs) - 1}: action {action}, reward {float(rewards[-1]):.3g}, {text}."
    return svg.document(width, y + 58, title, desc, body)


def _finite(values: Float[ndarray, "..."]) -> Float[ndarray, "..."]:
    return np.where(np.isfinite(values), values, 0)


def _in_words(action: Shaped[ndarray, "..."]) -> str:
    """Format an action on one line. A long vector is shortened to two entries at each end."""
    return np.array2string(
        np.ravel(action) if action.ndim else action,
        max_line_width=10**6,
        precision=2,
        separator=", ",
        threshold=4,
        edgeitems=2,
    )


def _line(values: Float[ndarray, " time"], y: svg.Number) -> list[str]:
    """Draw values in [-1, 1] as a step plot in the row whose top is at `y`."""
    pitch, middle = _WIDTH / len(values), y + _ROW / 2
    heights = [svg.num(middle - (_ROW / 2 - 3) * float(value)) for value in values]
    steps = "".join(
        f"V{height}H{svg.num(_LEFT + pitch * (t + 1))}" for t, height in enumerate(heights)
    )
    start = f"M{_LEFT} {heights[0]}"
    zero = svg.line(_LEFT, middle, _LEFT + _WIDTH, middle)
    return [zero, svg.path(start + steps, stroke="good", more='stroke-width="1.5"')]
