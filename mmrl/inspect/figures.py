"""Figures of the measurements of `mmrl inspect`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mmrl.runs import interval
from mmrl.show import INK, STYLES, dress

NAMES = {"gradient": "gradients", "change": "changed values", "flips": "changed actions"}


def recall_by_lag(ax: Axes, numbers: Mapping[str, Any]) -> Axes:
    """Plot gradients, changed values and changed actions by lag, each divided by its maximum."""
    for (name, label), style in zip(NAMES.items(), STYLES, strict=False):
        sizes = np.nan_to_num(np.array(numbers[name], float))
        if sizes.any():
            _line(ax, np.arange(len(sizes)), sizes / sizes.max(), label, style)
    _legend(ax)
    return _label_axes(ax, "What an action depends on", "lag in steps", "relative to the largest")


def flips_by_step(ax: Axes, numbers: Mapping[str, Any]) -> Axes:
    """Plot the fraction of changed actions, by the steps of the action and the observation."""
    flips = np.array(numbers["flips_at"], float)
    time, lags = flips.shape
    square = np.full((time, time), np.nan)
    for lag in range(lags):
        steps = np.arange(lag, time)
        square[steps, steps - lag] = flips[lag:, lag]
    image = ax.imshow(square, origin="lower", vmin=0, vmax=1, cmap="cividis", aspect="auto")
    if ax.figure is not None:
        ax.figure.colorbar(image, ax=ax, label="fraction of changed actions")
    _label_axes(ax, "Which observation matters", "replaced observation", "step of the action")
    ax.grid(visible=False)
    return ax


def decodability(ax: Axes, numbers: Mapping[str, Any]) -> Axes:
    """Plot R² against the lag: thick lines for the memory, thin lines for the observation."""
    for (name, sources), style in zip(numbers["parts"].items(), STYLES, strict=False):
        scores = {source: np.array(x, float) for source, x in sources.items()}
        _line(ax, numbers["lags"], np.clip(scores["memory"], -0.1, 1), name, style)
        observation = np.clip(scores["observation"], -0.1, 1)
        ax.plot(numbers["lags"], observation, color=style["color"], linewidth=0.8, alpha=0.6)
    ax.set_ylim(-0.12, 1.05)
    _legend(ax)
    _label_axes(ax, "Decodability (thin: from the observation)", "lag in steps", "R²")
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xticks(numbers["lags"], [str(lag) for lag in numbers["lags"]])
    ax.minorticks_off()
    return ax


def ablations(ax: Axes, numbers: Mapping[str, Sequence[float]]) -> Axes:
    """Plot the return under each ablation, with its 95 % interval over episodes."""
    heights = np.arange(len(numbers))
    middle, low, high = np.array([interval(np.array(x, float)) for x in numbers.values()]).T
    ax.hlines(heights, low, high, color=STYLES[0]["color"], linewidth=2, alpha=0.6)
    ax.scatter(middle, heights, color=STYLES[0]["color"], s=40)
    ax.axvline(middle[0], color=INK, linewidth=0.8, alpha=0.6)
    ax.set_yticks(heights, list(numbers), color=INK)
    ax.invert_yaxis()
    return dress(ax, "Ablations during play", xlabel="return", grid="x", size=10)


def returns_by_window(ax: Axes, numbers: Mapping[str, Any]) -> Axes:
    """Plot the return in each window of T steps, with and without memory resets."""
    pairs = {"without resets": "returns", "with resets": "reset_returns"}
    for (label, name), style in zip(pairs.items(), STYLES, strict=False):
        returns = np.array(numbers[name], float).mean(1)
        _line(ax, 1 + np.arange(len(returns)), returns, label, style)
    _legend(ax)
    return _label_axes(ax, "Longer than an episode", "window of T steps", "return per T steps")


def norm_by_window(ax: Axes, numbers: Mapping[str, Any]) -> Axes:
    """Plot the norm of the memory's state and the fraction of values that are not finite."""
    norm, shares = (np.array(numbers[name], float) for name in ("norm", "nonfinite"))
    _line(ax, 1 + np.arange(len(norm)), norm, "norm", STYLES[0])
    _line(ax, 1 + np.arange(len(shares)), shares, "fraction not finite", STYLES[1])
    ax.set_ylim(bottom=0)
    _legend(ax)
    return _label_axes(ax, "State without resets", "window of T steps", "‖h‖")


def overview(numbers: Mapping[str, Any], title: str = "") -> Figure:
    """Plot all measurements in the JSON data of `mmrl inspect`."""
    fig = Figure(figsize=(15, 8), layout="constrained", dpi=120)
    axes = fig.subplots(2, 3).ravel()
    recall_by_lag(axes[0], numbers["recall"])
    flips_by_step(axes[1], numbers["recall"])
    decodability(axes[2], numbers["decodability"])
    ablations(axes[3], numbers["ablations"])
    returns_by_window(axes[4], numbers["saturation"])
    norm_by_window(axes[5], numbers["saturation"])
    fig.suptitle(title, color=INK, fontweight="bold")
    return fig


def _line(ax: Axes, xs: Any, ys: Any, label: str, style: Any) -> None:
    ax.plot(xs, ys, label=label, markevery=max(1, len(ys) // 8), **style)


def _legend(ax: Axes) -> None:
    if ax.get_legend_handles_labels()[1]:
        ax.legend(frameon=False, labelcolor=INK, fontsize=9)


def _label_axes(ax: Axes, title: str, xlabel: str, ylabel: str) -> Axes:
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return dress(ax, title, ylabel, xlabel=xlabel, size=10)
