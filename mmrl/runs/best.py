"""The best network of each seed, by the evaluations of a run's blocks, in a file of its own."""

import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, PyTree

from mmrl.runs.checkpoint import RunError, load, save, unwrap_keys, wrap_keys
from mmrl.runs.hosts import told

BEST = "best"  # beside the checkpoint, and in its format


class Best(NamedTuple):
    """Each seed's network after the block whose evaluation paid most, the first of equals."""

    net: PyTree  # leaves [seed, ...]
    block: Int[np.ndarray, " seed"]  # counts from 1
    returns: Float[np.ndarray, " seed"]  # mean over the episodes of that block's evaluation


def better(best: Best | None, net: PyTree, row: dict[str, Any]) -> Best:
    """`best` after one more block, whose networks and row of the history these are.

    A block that is already counted changes nothing, so it may be given again.
    """
    returns = np.asarray(row["returns"], float)
    if best is None:
        return Best(net, np.full(len(returns), row["block"]), returns)
    wins = returns > best.returns
    if not wins.any():
        return best

    def choose(new: Any, old: Any) -> np.ndarray:
        return np.where(wins.reshape(-1, *[1] * (np.ndim(new) - 1)), new, old)

    chosen = jax.tree.map(choose, unwrap_keys(net), unwrap_keys(best.net))
    return Best(
        wrap_keys(chosen, like=net),
        np.where(wins, row["block"], best.block),
        np.where(wins, returns, best.returns),
    )


def write(folder: pathlib.Path, header: dict[str, Any], best: Best) -> None:
    """Replace the file in a run's folder as a whole."""
    told = {"block": best.block.tolist(), "returns": best.returns.tolist()}
    save(folder / BEST, {**header, "best": told}, best.net)


def read_best(
    folder: pathlib.Path, like: PyTree, history: list[dict[str, Any]] | None = None
) -> Best | None:
    """The file in a run's folder, or None if there is none; `like` has the networks' structure.

    Raises `RunError` if it is damaged, or does not belong to this `history`, if one is known.
    """
    path = folder / BEST
    if not told(path.exists):
        return None
    try:
        header, net = load(path, like)
        block, returns = (header["best"][name] for name in ("block", "returns"))
        rows = returns
        if history is not None:
            rows = [history[b - 1]["returns"][seed] for seed, b in enumerate(block)]
    except (RunError, KeyError, IndexError, TypeError) as error:
        raise _refused(path) from error
    if not np.array_equal(rows, returns, equal_nan=True):
        raise _refused(path)
    return Best(net, np.asarray(block), np.asarray(returns, float))


def _refused(path: pathlib.Path) -> RunError:
    return RunError(
        f"{path} is damaged, or not of the run beside it. Move it away: the run itself is whole, "
        "and keeps its best networks anew once it is resumed."
    )
