"""Translate the files of earlier versions: settings and arrays that they lack, and old names."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from mmrl.runs.processes import RunError

# Settings that files of earlier versions lack, with the behavior of those versions.
EARLIER = {"noise_scale": False, "estimator": "gae", "horizon": None, "precision": "default"}
EARLIER |= {"observe": "observation"}
EARLIER |= {
    "encoder": "dense",
    "tapes": 1,
    "normalize_observations": False,
    "normalize_rewards": False,
    "anneal": 0.0,
    "lam": 0.0,
}
# Arrays of a state that files of earlier versions lack; they start as zeros.
LATER = re.compile(r"\.(moments|advantages)\[[345]\]$")
# Number of arrays that earlier versions stored before these: a tape's priorities, then α and their
# peak.
FORMER = {".tape.sums[0]": 1, ".tape.cursor": 2}


def complete(leaves: list[np.ndarray], named: list[tuple[Any, Any]]) -> list[np.ndarray]:
    """Return the leaves of a checkpoint without those in `FORMER`, and with zeros for `LATER`.

    Leaves that fit neither the current version nor an earlier one are returned unchanged.
    """
    names = [jax.tree_util.keystr(path) for path, _ in named]
    like = [x for _, x in named]
    before = [sum(n for end, n in FORMER.items() if name.endswith(end)) for name in names]
    later = [bool(LATER.search(name)) for name in names]
    for has_former, lacks_later in itertools.product((False, True), repeat=2):
        gone = before if has_former else [0] * len(names)
        new = later if lacks_later else [False] * len(names)
        if len(leaves) == len(names) + sum(gone) - sum(new) and (
            found := _aligned(iter(leaves), gone, new, like)
        ):
            return found
    return leaves


def _aligned(
    stored: Iterator[np.ndarray], gone: list[int], new: list[bool], like: list[Any]
) -> list[np.ndarray]:
    """Return one array per current leaf; an empty list if a shape or a type differs."""
    found = []
    for skipped, added, x in zip(gone, new, like, strict=True):
        for _ in range(skipped):
            next(stored)
        found.append(np.zeros(x.shape, x.dtype) if added else next(stored))
    pairs = zip(found, like, strict=True)
    return found if all((a.shape, a.dtype) == (b.shape, b.dtype) for a, b in pairs) else []


def earlier(setup: dict[str, Any]) -> dict[str, Any]:
    """Translate a described setup of an earlier version.

    `observes` was a separate setting for each of its names, and 0 stood for sizes that are chosen
    automatically; CLEAR's `capacity` of 0 still means no reservoir. Raises `RunError` for an agent
    in several shards, whose state had an axis for them.
    """
    if (shards := setup.get("shards", 1)) > 1:
        raise RunError(
            f"This run has {shards} shards, which only versions up to commit f6dd5f2 (2026-11-28) "
            f"open. Use that one, or train again on {shards} devices with --devices {shards}."
        )
    setup = {name: value for name, value in setup.items() if name != "shards"}
    if "observes" not in setup:
        names = ("previous_action", "previous_reward", "begin_flag")
        rest = {name: value for name, value in setup.items() if name not in names}
        setup = rest | {"observes": [name for name in names if setup.get(name)]}
    config, names = setup.get("config", {}), {"batch", "horizon"}
    names |= {"capacity"} if setup.get("agent") != "clear" else set()
    zeros = {name: None for name in names if config.get(name) == 0}
    return setup | {"config": config | zeros} if zeros else setup
