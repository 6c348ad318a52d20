"""Sums of a table in a wide tree: change a few weights, draw by weight with or without replacement, all in O(log n).

A tree is a tuple `(top, level, …, leaves)` of arrays. `top` holds at most `TOP` sums; row i of the next level holds the
`BRANCH` numbers that add up to number i above it; the last level is the table itself, padded with zeros. It is the segment
tree of the Sum monoid. A node is the sum of its children as they are now, never the old sum plus a change, so that
rounding errors do not pile up.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

# A row of 32 floats is two cache lines; with 1024 on top, tables of 33k to 1M rows all have the same two lower levels.
BRANCH = 32
TOP = 1024

Tree = tuple[Float[Array, "..."], ...]


def build(weights: Float[Array, " row"]) -> Tree:
    """The tree over `weights` (≥ 0), in O(row). A table of at most `TOP` rows is its own top."""
    levels = []
    while weights.shape[0] > TOP:
        rows = jnp.pad(weights, (0, -weights.shape[0] % BRANCH)).reshape(-1, BRANCH)
        levels.insert(0, rows)
        weights = rows.sum(axis=1)
    return (weights, *levels)


def update(tree: Tree, rows: Int[Array, " n"], weights: Float[Array, " n"]) -> Tree:
    """The tree with `weights` at `rows` of the table, in O(n · levels).

    A row past the end must come with weight 0: it may fall into the padding. Equal rows must come with equal weights.
    """
    levels = list(tree)
    for i in range(len(levels) - 1, 0, -1):
        branch = levels[i].shape[1]
        levels[i] = levels[i].at[rows // branch, rows % branch].set(weights, mode="drop")
        rows = rows // branch
        weights = levels[i].at[rows].get(mode="fill", fill_value=0).sum(axis=1)
    return (levels[0].at[rows].set(weights, mode="drop"), *levels[1:])


def race(
    tree: Tree, key: PRNGKeyArray, count: int
) -> tuple[Int[Array, " count"], Float[Array, " count"]]:
    """The first `count` rows in a race where row i arrives at tᵢ ~ Exp(wᵢ), in order, and their times.

    This is sampling by weight *without* replacement: the first is i with probability wᵢ / Σw, the next is drawn by weight
    among the others, and so on; the same law as the top of log wᵢ + Gumbel noise. A node of the tree arrives with the
    first of its leaves, at Exp(Σw), so that the `count` earliest leaves lie under the `count` earliest nodes of every
    level. Given that a node arrives at t, its children arrive at t + eᵢ - min(e), with eᵢ ~ Exp(wᵢ), because the
    exponential law forgets how long we have waited. This is the stochastic beam search of Kool et al. (2019).

    A row of weight 0 arrives at infinity. Fewer rows than `count` give that many results. With one key, a longer
    race begins with the results of a shorter one, because a node's noise depends on nothing but the key and its place.
    """
    top, *levels = tree
    noise = jax.random.exponential(key, top.shape)
    times = jnp.where(top > 0, noise / top, jnp.inf)
    times, nodes = _earliest(times, jnp.arange(top.shape[0]), count)
    for depth, level in enumerate(levels):
        keys = jax.vmap(jax.random.fold_in, (None, 0))(jax.random.fold_in(key, depth), nodes)
        noise = jax.vmap(lambda key, n=level.shape[1]: jax.random.exponential(key, (n,)))(keys)
        weights = level[nodes]
        waits = jnp.where(weights > 0, noise / weights, jnp.inf)
        waits = times[:, None] + (waits - waits.min(axis=1, keepdims=True))
        times = jnp.where(weights > 0, waits, jnp.inf)
        children = nodes[:, None] * level.shape[1] + jnp.arange(level.shape[1])[None]
        times, nodes = _earliest(times.reshape(-1), children.reshape(-1), count)
    return nodes, times


def _earliest(
    times: Float[Array, " n"], nodes: Int[Array, " n"], count: int
) -> tuple[Float[Array, " count"], Int[Array, " count"]]:
    """The `count` smallest times in order, with their nodes; all of them if there are fewer."""
    late, at = jax.lax.top_k(-times, min(count, times.shape[0]))
    return -late, nodes[at]


def draw(tree: Tree, key: PRNGKeyArray, count: int) -> Int[Array, " count"]:
    """`count` independent rows, each i with probability wᵢ / Σw (*with* replacement); row 0 if all weights are 0.

    From the top down, each node passes the draw to a child by weight. Every level has its own uniform number: the bits
    of one float32 would be used up after 16M rows.
    """
    top, *levels = tree
    keys = jax.random.split(key, len(tree))
    sums = jnp.cumsum(top)
    nodes = jnp.searchsorted(sums, jax.random.uniform(keys[0], (count,)) * sums[-1], side="right")
    nodes = jnp.minimum(nodes, top.shape[0] - 1)
    for key, level in zip(keys[1:], levels, strict=True):
        sums = jnp.cumsum(level[nodes], axis=1)
        at = jax.random.uniform(key, (count, 1)) * sums[:, -1:]
        child = jnp.minimum((sums <= at).sum(axis=1), level.shape[1] - 1)
        nodes = nodes * level.shape[1] + child
    return jnp.where(tree[0].sum() > 0, nodes, 0)
