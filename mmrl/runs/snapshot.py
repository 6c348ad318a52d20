"""A run after a block, in memory: the contents of its folder."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, PyTree

from mmrl.runs.checkpoint import unwrap_keys, wrap_keys
from mmrl.runs.results import provenance

Rows = list[dict[str, Any]]  # the history, one row per block


class Best(NamedTuple):
    """Each seed's network after the block with the highest evaluation, the first in a tie."""

    net: PyTree  # leaves [seed, ...]
    block: Int[np.ndarray, " seed"]  # counts from 1
    returns: Float[np.ndarray, " seed"]  # mean over the episodes of that block's evaluation


class Snapshot(NamedTuple):
    """A run after its last complete block."""

    description: dict[str, Any]  # description of its setup: see `mmrl.runs.identity`
    state: PyTree  # None before the first block, and if only the best networks are left
    history: Rows
    best: Best | None
    origin: dict[str, Any]  # provenance; `commands` covers all blocks

    @property
    def header(self) -> dict[str, Any]:
        """Data at the beginning of each of its files."""
        return {"setup": self.description, **self.origin}


def credit(origin: dict[str, Any], block: int, words: str = "") -> dict[str, Any]:
    """Return the provenance of this process, which trains from `block` on, after earlier processes.

    `commands` lists all that trained, in order. Files of earlier versions have only the last one,
    without its block. `words` are added to the device.
    """
    now, former = provenance(), origin.get("commands")
    now["device"] += words
    if former is None:
        former = [{"after_block": None, **origin}] * bool(origin)
    kept = [each for each in former if each["after_block"] != block]
    return {**now, "commands": [*kept, {"after_block": block, **now}]}


def better(best: Best | None, net: PyTree, row: dict[str, Any]) -> Best:
    """Return `best` after one more block, with these networks and this row of the history.

    A block that is already counted has no effect, so it may be passed again.
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
