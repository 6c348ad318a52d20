"""In-memory contents of a run's folder."""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, PyTree

from mmrl.runs.checkpoint import unwrap_keys, wrap_keys
from mmrl.runs.results import provenance

Rows = list[dict[str, Any]]  # history, with one row per block


class Best(NamedTuple):
    """Best network of each seed. If several blocks have the same return, the first one counts."""

    net: PyTree  # leaves [seed, ...]
    block: Int[np.ndarray, " seed"]  # index of the best block, starting at 1
    returns: Float[np.ndarray, " seed"]  # mean return of the evaluation after this block


class Snapshot(NamedTuple):
    """State and results of a run after its last complete block."""

    description: dict[str, Any]  # setup as JSON data; see `mmrl.runs.identity`
    state: PyTree  # None before the first block, or if only the best networks could be read
    history: Rows
    best: Best | None
    origin: dict[str, Any]  # provenance of all blocks; see `credit`

    @property
    def header(self) -> dict[str, Any]:
        """Data that is stored in every file of the run."""
        return {"setup": self.description, **self.origin}


def credit(origin: dict[str, Any], block: int, words: str = "") -> dict[str, Any]:
    """Add this process, which continues a run after `block`, to the provenance of the run.

    `commands` lists the provenance of all processes that trained the run, in order. An entry with
    the same block is replaced, because its process is this one, or one that completed no block.
    Files from earlier versions record only the most recent process, without its block. `words` is
    appended to the description of the device.
    """
    now, former = provenance(), origin.get("commands")
    now["device"] += words
    if former is None:
        former = [{"after_block": None, **origin}] * bool(origin)
    others = [each for each in former if each["after_block"] != block]
    return {**now, "commands": [*others, {"after_block": block, **now}]}


def better(best: Best | None, net: PyTree, row: dict[str, Any]) -> Best:
    """Update `best` with the networks `net` after a block, given its row of the history.

    A block that is already included has no effect.
    """
    returns = np.asarray(row["returns"], float)
    if best is None:
        return Best(net, np.full(len(returns), row["block"]), returns)
    wins = returns > best.returns
    if not wins.any():
        return best

    def choose(new: Any, old: Any) -> np.ndarray:
        return np.where(wins.reshape(-1, *[1] * (np.ndim(new) - 1)), new, old)

    leaves = jax.tree.map(choose, unwrap_keys(net), unwrap_keys(best.net))
    return Best(
        wrap_keys(leaves, like=net),
        np.where(wins, row["block"], best.block),
        np.where(wins, returns, best.returns),
    )
