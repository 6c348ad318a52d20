"""Sums of a table in a wide tree: change weights, draw by weight, with or without replacement.

The rows of the table hold one or more weights each: a "column" is one weight of all rows. A tree is
a tuple `(top, level, …, leaves)` of arrays. `top` [column, node] holds at most `TOP` sums per
column. The next level [node, column, branch] holds the `BRANCH` numbers that each of them sums, and
so on; the last level is the table itself, padded with zeros. It is the segment tree of the Sum
monoid. A node is always recomputed as the sum of its children, never updated by a difference, so
that rounding errors do not accumulate.
"""

import itertools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from mmrl._dtypes import promoting

# 32 floats are two cache lines, and tables of 33k to 1M rows get the same two lower levels.
BRANCH = 32
TOP = 1024
# Priorities are clipped to this range: positive, so that every row can be drawn, and finite.
PRIORITIES = (1e-6, 1e6)

Tree = tuple[Float[Array, "..."], ...]
Noise = tuple[Float[Array, "..."], ...]


@promoting
def build(weights: Float[Array, "column row"]) -> Tree:
    """Return the tree over `weights` (≥ 0), in O(row). Up to `TOP` rows are their own top."""
    levels = []
    while weights.shape[1] > TOP:
        padded = jnp.pad(weights, [(0, 0), (0, -weights.shape[1] % BRANCH)])
        children = padded.reshape(padded.shape[0], -1, BRANCH).swapaxes(0, 1)
        levels.insert(0, children)
        weights = children.sum(axis=2).T
    return (weights, *levels)


@promoting
def update(
    tree: Tree,
    rows: Int[Array, " n"],
    weights: Float[Array, "n column"],
    touched: Int[Array, " m"] | None = None,
) -> Tree:
    """Return the tree with `weights` at `rows` of its table, in O(n · levels).

    A row past the end must have weight 0, because it may fall into the padding. Equal rows must
    have equal weights. If `rows` lie close together, `touched` may name fewer rows, at least one
    below every node that has one of `rows` below it: O(n + m · levels).
    """
    levels = list(tree)
    for i in range(len(levels) - 1, 0, -1):
        _, columns, branch = levels[i].shape
        parent, child = jnp.divmod(rows, branch)
        # The level is flattened because XLA would copy it to scatter along its outer and inner
        # axes.
        place = (parent * columns * branch + child)[:, None] + branch * jnp.arange(columns)[None]
        flat = levels[i].reshape(-1).at[place].set(weights, mode="drop")
        levels[i] = flat.reshape(levels[i].shape)
        rows, touched = parent if touched is None else touched // branch, None
        weights = levels[i].at[rows].get(mode="fill", fill_value=0).sum(axis=2)
    return (levels[0].at[:, rows].set(weights.T, mode="drop"), *levels[1:])


@promoting
def cover(first: Int[Array, "*n"], count: int) -> Int[Array, "*n m"]:
    """Return rows that cover first, …, first + count - 1: one below each node above any of them."""
    return first[..., None] + jnp.minimum(jnp.arange(-(-count // BRANCH) + 1) * BRANCH, count - 1)


@promoting
def weights(tree: Tree, rows: Int[Array, " n"]) -> Float[Array, "n column"]:
    """Return the weights at `rows` of the table; 0 for a row past the end."""
    *_, leaves = tree
    if len(tree) == 1:
        return leaves.at[:, rows].get(mode="fill", fill_value=0).T
    parent, child = jnp.divmod(rows, leaves.shape[2])
    return leaves.at[parent, :, child].get(mode="fill", fill_value=0)


def noise(tree: Tree, key: PRNGKeyArray, count: int) -> Noise:
    """Draw Exp(1) numbers for a race of `count` rows: [top], then [count, branch] per level.

    One call draws all of them, because a random call takes longer to compile than the rest of a
    race.
    """
    top, *levels = tree
    sizes = [top.shape[1], *(count * level.shape[2] for level in levels)]
    flat = jax.random.exponential(key, (sum(sizes),), jnp.float32)
    first, *rest = jnp.split(flat, list(itertools.accumulate(sizes))[:-1])
    return (first, *(x.reshape(count, -1) for x in rest))


def extend(first: Noise, more: Noise) -> Noise:
    """Return the noise of a longer race, which begins with the results of the race with `first`."""
    rows = (jnp.concatenate(pair) for pair in zip(first[1:], more[1:], strict=True))
    return (first[0], *rows)


@promoting
def race(
    tree: Tree, noise: Noise, count: int
) -> tuple[Int[Array, " count"], Float[Array, " count"]]:
    """Draw `count` rows by weight without replacement; return them in order, with their times.

    Row i arrives at tᵢ ~ Exp(wᵢ), where w is the first column; the result is argsort(t)[:count].
    The first is row i with probability wᵢ / Σw, the next is drawn by weight among the others, and
    so on: the same law as the top of log wᵢ + Gumbel noise. A node of the tree arrives with the
    first of its leaves, at Exp(Σw), so the `count` earliest leaves lie under the `count` earliest
    nodes of each level. Given that a node arrives at t, its children arrive at t + eᵢ - min(e) with
    eᵢ ~ Exp(wᵢ), because the exponential law has no memory. This is the stochastic beam search of
    Kool et al. (2019).

    A row of weight 0 arrives at infinity. A table of fewer than `count` rows returns all of them.
    """
    top, *levels = tree
    times = jnp.where(top[0] > 0, noise[0] / top[0], jnp.inf)
    times, nodes = _earliest(times, jnp.arange(top.shape[1], dtype=jnp.int32), count)
    for level, e in zip(levels, noise[1:], strict=True):
        weights = level[nodes, 0]
        waits = jnp.where(weights > 0, e[: nodes.shape[0]] / weights, jnp.inf)
        waits = times[:, None] + (waits - waits.min(axis=1, keepdims=True))
        times = jnp.where(weights > 0, waits, jnp.inf)
        child = jnp.arange(level.shape[2], dtype=jnp.int32)
        children = nodes[:, None] * level.shape[2] + child[None]
        times, nodes = _earliest(times.reshape(-1), children.reshape(-1), count)
    return nodes, times


def _earliest(
    times: Float[Array, " n"], nodes: Int[Array, " n"], count: int
) -> tuple[Float[Array, " count"], Int[Array, " count"]]:
    """Return the `count` smallest times in order, with their nodes, or all if there are fewer."""
    late, at = jax.lax.top_k(-times, min(count, times.shape[0]))
    return -late, nodes[at]


@promoting
def draw(
    tree: Tree, scales: Float[Array, " column"], uniform: Float[Array, "level count"]
) -> tuple[Int[Array, " count"], Float[Array, " count"]]:
    """Draw independent rows with probability ∝ Σ_columns scale · weight; return them and that sum.

    This is sampling *with* replacement. From the top down, each node passes the draw on to a child
    by weight, with new uniform numbers on every level: a single one, with 24 bits, would not
    suffice beyond 16M rows. If all weights are 0, an arbitrary row is drawn.
    """
    top, *levels = tree
    nodes, weights = _pick((top * scales[:, None]).sum(axis=0)[None], uniform[0])
    for level, u in zip(levels, uniform[1:], strict=True):
        child, weights = _pick((level[nodes] * scales[None, :, None]).sum(axis=1), u)
        nodes = nodes * level.shape[2] + child
    return nodes, weights


def _pick(
    weights: Float[Array, "rows n"], uniform: Float[Array, " count"]
) -> tuple[Int[Array, " count"], Float[Array, " count"]]:
    """Draw a column by weight for each draw, from its row of weights or the only one.

    Return the columns and their weights.
    """
    sums = jnp.cumsum(weights, axis=1)
    picked = (sums <= uniform[:, None] * sums[:, -1:]).sum(axis=1, dtype=jnp.int32)
    picked = jnp.minimum(picked, weights.shape[1] - 1)
    rows = jnp.arange(picked.size) if len(weights) > 1 else jnp.zeros_like(picked)
    return picked, weights[rows, picked]
