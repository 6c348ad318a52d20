"""Linear probes that predict past states of the environment from the memory."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

WIDEST = 512  # number of features to which a random projection reduces larger memories
RIDGES = (1e-4, 1e-2, 1.0, 1e2)  # ridge penalties, for standardized features


def decode(
    memory: Float[np.ndarray, "episode time h"],
    target: Float[np.ndarray, "episode time part"],
    mask: Bool[np.ndarray, "episode time"],
    lags: Sequence[int],
) -> Float[np.ndarray, " lag"]:
    """Return R² of a ridge regression from `memory` at step t to `target` at step t - lag.

    R² = 1 - Σ (y - ŷ)² / Σ (y - ȳ)² is averaged over the entries of the target, so their scales do
    not matter; constant entries are ignored. R² = 1 means that the target is a linear function of
    the memory, and R² ≤ 0 means that the regression predicts no better than the mean.

    The first half of the episodes is used for fitting and for the mean ȳ, the third quarter selects
    the penalty, and R² is measured on the last quarter. Values of the memory that are not finite
    are replaced by 0. The result is NaN if the target is constant or if too few steps remain.
    Raises `ValueError` for fewer than four episodes, for negative lags, and for arrays whose shapes
    do not fit together.

        >>> memory = np.random.default_rng(0).normal(size=(40, 9, 3))  # [episode, time, h]
        >>> target, mask = memory[..., :1], np.ones((40, 9), bool)
        >>> decode(memory, target, mask, lags=(0,)).round(2)
        array([1.])
    """
    if len(mask) < 4:
        raise ValueError(
            f"`mask` must have at least 4 episodes; got {len(mask)}. Episodes are split into "
            "training, validation and test episodes."
        )
    if min(lags, default=0) < 0:
        raise ValueError(f"`lags` must not be negative; got {list(lags)}.")
    for name, x in (("memory", memory), ("target", target)):
        if np.ndim(x) != 3 or np.shape(x)[:2] != np.shape(mask):
            episodes, time = np.shape(mask)
            raise ValueError(
                f"`{name}` must have the shape ({episodes}, {time}, numbers), as `mask` has "
                f"({episodes}, {time}); got {np.shape(x)}. Add an axis with target[..., None]."
            )
    memory = np.nan_to_num(np.asarray(memory, np.float64), nan=0, posinf=0, neginf=0)
    if memory.shape[2] > WIDEST:
        shape = memory.shape[2], WIDEST
        memory = memory @ np.random.default_rng(0).normal(size=shape) / np.sqrt(WIDEST)
    return np.array([_at_lag(memory, np.asarray(target), np.asarray(mask), k) for k in lags])


def _at_lag(memory: np.ndarray, target: np.ndarray, mask: np.ndarray, lag: int) -> float:
    time = mask.shape[1]
    if lag >= time:
        return np.nan
    episode, step = np.nonzero(mask[:, lag:])
    xs, ys = memory[episode, step + lag], target[episode, step].astype(np.float64)
    part = np.minimum(4 * episode // len(mask), 3)
    fit, select, test = part < 2, part == 2, part == 3
    if min(fit.sum(), select.sum(), test.sum()) < 2:
        return np.nan
    mean, scale = xs[fit].mean(0), xs[fit].std(0)
    xs = (xs - mean) / np.where(scale > 1e-9, scale, 1)
    bias = ys[fit].mean(0)
    maps = np.stack(_ridges(xs[fit], ys[fit] - bias))  # [penalty, h, part]
    best = np.argmin([np.sum((ys[select] - xs[select] @ w - bias) ** 2, 0) for w in maps], axis=0)
    weight = maps[best, :, np.arange(len(best))].T
    total = np.sum((ys[test] - bias) ** 2, axis=0)
    varies = total > 1e-9 * np.maximum(1, np.sum(ys[test] ** 2, axis=0))
    errors = np.sum((ys[test] - xs[test] @ weight - bias) ** 2, axis=0)
    return float(np.mean(1 - errors[varies] / total[varies])) if varies.any() else np.nan


def _ridges(xs: np.ndarray, ys: np.ndarray) -> list[np.ndarray]:
    """Return the weights of the ridge regression for each penalty."""
    values, vectors = np.linalg.eigh(xs.T @ xs / len(xs))
    product = vectors.T @ (xs.T @ ys / len(xs))
    return [vectors @ (product / (np.maximum(values, 0) + r)[:, None]) for r in RIDGES]
