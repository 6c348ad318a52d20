"""Conversion of files from earlier versions of mmrl."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from mmrl.runs.processes import RunError

# Settings that files from earlier versions lack, with values that reproduce those versions.
EARLIER = {"noise_scale": False, "estimator": "gae", "horizon": None, "precision": "default"}
EARLIER |= {"observe": "observation"}
EARLIER |= {
    "encoder": "dense",
    "tapes": 1,
    "normalize_observations": False,
    "normalize_rewards": False,
    "anneal": 0.0,
    "lam": 0.0,
    "target": "double",
}
# Arrays of a state that are missing in files from earlier versions; they are filled with zeros.
LATER = re.compile(r"\.(moments|advantages)\[[345]\]$")
# Number of arrays that earlier versions stored just before a field, and that are removed: the
# priorities before `sums`, and α and the maximum priority before `cursor`.
FORMER = {".tape.sums[0]": 1, ".tape.cursor": 2}
# Current names of settings, and of entries of `memory_sizes` by memory, keyed by former name.
CURRENT_NAMES = {"stored": "storage_dtype"}
CURRENT_SIZES = {"ffm": {"printed": "use_mlp"}}


def complete(leaves: list[np.ndarray], paths: list[tuple[Any, Any]]) -> list[np.ndarray]:
    """Convert the leaves of a checkpoint to the format of this version.

    Arrays in `FORMER` are removed, and missing arrays in `LATER` become zeros. Leaves that match
    neither this version nor an earlier one are returned unchanged.
    """
    names = [jax.tree_util.keystr(path) for path, _ in paths]
    like = [x for _, x in paths]
    before = [sum(n for end, n in FORMER.items() if name.endswith(end)) for name in names]
    later = [bool(LATER.search(name)) for name in names]
    for has_former, lacks_later in itertools.product((False, True), repeat=2):
        removals = before if has_former else [0] * len(names)
        new = later if lacks_later else [False] * len(names)
        if len(leaves) == len(names) + sum(removals) - sum(new) and (
            current := _align(iter(leaves), removals, new, like)
        ):
            return current
    return leaves


def _align(
    old: Iterator[np.ndarray], removals: list[int], new: list[bool], like: list[Any]
) -> list[np.ndarray]:
    """Return one array per current leaf, or an empty list if a shape or dtype does not match."""
    arrays = []
    for count, is_new, x in zip(removals, new, like, strict=True):
        for _ in range(count):
            next(old)
        arrays.append(np.zeros(x.shape, x.dtype) if is_new else next(old))
    pairs = zip(arrays, like, strict=True)
    return arrays if all((a.shape, a.dtype) == (b.shape, b.dtype) for a, b in pairs) else []


def earlier(setup: dict[str, Any]) -> dict[str, Any]:
    """Convert the description of a setup from an earlier version to this version.

    In earlier versions, each name in `observes` was a boolean setting, sizes that are chosen
    automatically were 0 instead of None, and some settings had other names. CLEAR's `capacity` is
    not converted, because 0 still disables the reservoir.

    Raises `RunError` for a run with several shards, whose state had an additional axis.
    """
    if (shards := setup.get("shards", 1)) > 1:
        raise RunError(
            f"This run has {shards} shards, which only versions up to commit f6dd5f2 (2026-11-28) "
            f"can open. Use that version, or train again with --devices {shards}."
        )
    setup = {name: value for name, value in setup.items() if name != "shards"}
    if "observes" not in setup:
        names = ("previous_action", "previous_reward", "begin_flag")
        rest = {name: value for name, value in setup.items() if name not in names}
        setup = rest | {"observes": [name for name in names if setup.get(name)]}
    config, names = current_names(setup.get("config", {})), {"batch", "horizon"}
    names |= {"capacity"} if setup.get("agent") != "clear" else set()
    zeros = {name: None for name in names if config.get(name) == 0}
    return setup | {"config": config | zeros} if "config" in setup else setup


def current_names(config: dict[str, Any]) -> dict[str, Any]:
    """Rename settings of a config, and sizes of its memory, that had another name earlier."""
    config = {CURRENT_NAMES.get(name, name): value for name, value in config.items()}
    former, sizes = CURRENT_SIZES.get(config.get("memory", ""), {}), config.get("memory_sizes", ())
    if former.keys() & dict(sizes):
        config["memory_sizes"] = [[former.get(name, name), size] for name, size in sizes]
    return config
