"""One agent in several shards: what they have in common is reduced over all of them.

A shard has environments, storage and draws of its own; the network is that of all. Shards are lanes
of a `jax.vmap`, or devices of a `jax.shard_map`, or both, whose axes have the names in `AXES`.
An axis of any other name divides no agent. Outside of these an agent is whole, and every function
here gives back what it is given:

    mean(gradient)            # before it is clipped, and before the optimizer sees it
    fold(Moments(), own)      # any monoid: an all-reduce is a fold
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Int, Key, PRNGKeyArray, PyTree, Shaped

from mmrl import _random, scan
from mmrl._dtypes import floats, promoting
from mmrl.monoid import Monoid

DEVICES = "mmrl.collectives.DEVICES"
"""The axis of the devices among which shards are divided."""
SHARDS = "mmrl.collectives.SHARDS"
"""The axis of the shards of one device."""
AXES = (DEVICES, SHARDS)
"""Both: shard i of device d is number d · (shards of each) + i."""


def axes() -> tuple[str, ...]:
    """The names in `AXES` that are mapped where this is called: none if the agent is whole."""
    return tuple(name for name in AXES if _is_mapped(name))


def _is_mapped(name: str) -> bool:
    try:
        jax.lax.axis_size(name)
    except NameError:
        return False
    return True


def size() -> int:
    """How many shards there are."""
    return math.prod(jax.lax.axis_size(name) for name in axes())


def index() -> Int[Array, ""] | int:
    """Which of them this one is."""
    number: Any = 0
    for name in axes():
        number = number * jax.lax.axis_size(name) + jax.lax.axis_index(name)
    return number


def split(key: PRNGKeyArray, number: int) -> Key[Array, " number"]:
    """`jax.random.split` of `one_key`, where only the first key is the same in all shards."""
    keys = jax.random.split(_random.one_key(key), number)
    if not axes():
        return keys
    own = jax.vmap(jax.random.fold_in, (0, None))(keys[1:], index())
    return jnp.concatenate([keys[:1], own])


@promoting
def mean(tree: PyTree) -> PyTree:
    """Every number's mean over the shards, all in one all-reduce."""
    if not axes():
        return tree
    numbers, shaped = ravel_pytree(tree)
    return shaped(jax.lax.pmean(floats(numbers)[0], axes()).astype(numbers.dtype))


def least(x: Shaped[Array, "*any"]) -> Shaped[Array, "*any"]:
    """The smallest value of any shard, number by number."""
    return jax.lax.pmin(x, axes()) if axes() else x


def gather(tree: PyTree) -> PyTree:
    """Every shard's values, [shard, ...], on all of them; a whole agent is one shard."""
    tree = jax.tree.map(lambda x: jnp.asarray(x)[None], tree)
    for name in reversed(axes()):
        tree = jax.tree.map(lambda x, name=name: _gather(x, name), tree)
    return tree


def _gather(x: Array, name: str) -> Array:
    return jax.lax.all_gather(x, name, tiled=True)


def fold(monoid: Monoid, element: PyTree) -> PyTree:
    """The product of every shard's element, in their order."""
    return scan.fold(monoid, gather(element)) if axes() else element


def part(x: Shaped[Array, "all *any"]) -> Shaped[Array, "own *any"]:
    """The rows of this shard: all have the same array, of one shard's rows after another's."""
    if not axes():
        return x
    rows = len(x) // size()
    return jax.lax.dynamic_slice_in_dim(x, index() * rows, rows)
