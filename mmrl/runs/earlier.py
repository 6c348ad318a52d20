"""Translate the files of earlier versions: settings and arrays that they lack, and old names."""

import re
from typing import Any

import jax
import numpy as np

# Settings that files of earlier versions lack, and what those versions did.
EARLIER = {"noise_scale": False, "estimator": "gae", "horizon": 0.0, "precision": "default"}
EARLIER |= {"shards": 1, "normalize_rewards": False, "anneal": 0.0, "lam": 0.0}
# Arrays of a state that files of earlier versions lack; they start as zeros.
LATER = re.compile(r"\.(moments|advantages)\[[345]\]$")


def complete(leaves: list[np.ndarray], named: list[tuple[Any, Any]]) -> list[np.ndarray]:
    """Return the leaves of a checkpoint, with zeros for those in `LATER` that it lacks."""
    new = [bool(LATER.search(jax.tree_util.keystr(path))) for path, _ in named]
    if len(leaves) != len(named) - sum(new):
        return leaves
    stored = iter(leaves)
    return [
        np.zeros(x.shape, x.dtype) if added else next(stored)
        for added, (_, x) in zip(new, named, strict=True)
    ]


def earlier(setup: dict[str, Any]) -> dict[str, Any]:
    """Translate a described setup: `observes` was once a setting for each of its names."""
    if "observes" in setup:
        return setup
    names = ("previous_action", "previous_reward", "begin_flag")
    rest = {name: value for name, value in setup.items() if name not in names}
    return rest | {"observes": [name for name in names if setup.get(name)]}
