"""Sums of a table in a wide tree: change weights, draw by weight, with or without replacement.

A tree is a tuple `(top, level, …, leaves)` of arrays. `top` holds at most `TOP` sums; row i of the
next level holds the `BRANCH` numbers that add up to number i of the level above; the last level is
the table itself, padded with zeros. It is the segment tree of the Sum monoid. A node is always the
sum of its children as they are now, never its old value plus a change: rounding does not pile up.
"""

import itertools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

# A row of 32 floats is two cache lines, and tables of 33k to 1M rows get the same two lower levels.
BRANCH = 32
TOP = 1024

Tree = tuple[Float[Array, "..."], ...]
Noise = tuple[Float[Array, "..."], ...]


def build(weights: Float[Array, " row"]) -> Tree:
    """The tree over `weights` (≥ 0), in O(row). A table of at most `TOP` rows is its own top."""
    levels = []
    while weights.shape[0] > TOP:
        children = jnp.pad(weights, (0, -weights.shape[0] % BRANCH)).reshape(-1, BRANCH)
        levels.insert(0, children)
        weights = children.sum(axis=1)
    return (weights, *levels)


def update(tree: Tree, rows: Int[Array, " n"], weights: Float[Array, " n"]) -> Tree:
    """The tree with `weights` at `rows` of its table, in O(n · levels).

    A row past the end must come with weight 0, because it may fall into the padding. Equal rows
    must come with equal weights.
    """
    levels = list(tree)
    for i in range(len(levels) - 1, 0, -1):
        branch = levels[i].shape[1]
        levels[i] = levels[i].at[rows // branch, rows % branch].set(weights, mode="drop")
        rows = rows // branch
        weights = levels[i].at[rows].get(mode="fill", fill_value=0).sum(axis=1)
    return (levels[0].at[rows].set(weights, mode="drop"), *levels[1:])


def noise(tree: Tree, key: PRNGKeyArray, count: int) -> Noise:
    """Independent Exp(1) numbers for a race of `count` rows: [top], then [count, branch] a level.

    One call draws all of them: a random call takes longer to compile than the rest of a race.
    """
    top, *levels = tree
    sizes = [top.shape[0], *(count * level.shape[1] for level in levels)]
    flat = jax.random.exponential(key, (sum(sizes),))
    first, *rest = jnp.split(flat, list(itertools.accumulate(sizes))[:-1])
    return (first, *(x.reshape(count, -1) for x in rest))


def extend(first: Noise, more: Noise) -> Noise:
    """The noise of a longer race, which begins with the results of the race with noise `first`."""
    rows = (jnp.concatenate(pair) for pair in zip(first[1:], more[1:], strict=True))
    return (first[0], *rows)


def race(
    tree: Tree, noise: Noise, count: int
) -> tuple[Int[Array, " count"], Float[Array, " count"]]:
    """argsort(t)[:count] and its times, where row i arrives at tᵢ ~ Exp(wᵢ).

    This is sampling by weight *without* replacement: the first is row i with probability wᵢ / Σw,
    the next is drawn by weight among the others, and so on; the same law as the top of log wᵢ +
    Gumbel noise. A node of the tree arrives with the first of its leaves, at Exp(Σw), so that the
    `count` earliest leaves lie under the `count` earliest nodes of each level. Given that a node
    arrives at t, its children arrive at t + eᵢ - min(e) with eᵢ ~ Exp(wᵢ), since the exponential
    law forgets how long we have waited. It is the stochastic beam search of Kool et al. (2019).

    A row of weight 0 arrives at infinity. A table of fewer than `count` rows gives them all.
    """
    top, *levels = tree
    times = jnp.where(top > 0, noise[0] / top, jnp.inf)
    times, nodes = _earliest(times, jnp.arange(top.shape[0]), count)
    for level, e in zip(levels, noise[1:], strict=True):
        weights = level[nodes]
        waits = jnp.where(weights > 0, e[: nodes.shape[0]] / weights, jnp.inf)
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


def draw(
    trees: tuple[Tree, Tree], scale: float, uniform: Float[Array, "level count"]
) -> Int[Array, " count"]:
    """Independent rows, each i with probability ∝ wᵢ + scale · vᵢ (*with* replacement).

    The trees of w and v must have the same shape; then their sum is the tree of the sums. From the
    top down, each node passes the draw on to a child by weight, with uniform numbers of its own for
    every level: the 24 bits of one would be used up after 16M rows. If all weights are 0, some row
    is drawn.
    """
    w, v = trees
    nodes = _pick((w[0] + scale * v[0])[None], uniform[0])
    for level in range(1, len(w)):
        child = _pick(w[level][nodes] + scale * v[level][nodes], uniform[level])
        nodes = nodes * w[level].shape[1] + child
    return nodes


def _pick(weights: Float[Array, "rows n"], uniform: Float[Array, " count"]) -> Int[Array, " count"]:
    """For each draw a column by weight, from its own row of weights or from the only one."""
    sums = jnp.cumsum(weights, axis=1)
    picked = (sums <= uniform[:, None] * sums[:, -1:]).sum(axis=1)
    return jnp.minimum(picked, weights.shape[1] - 1)
