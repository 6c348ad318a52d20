"""Sum tree over a table of weights, for weighted sampling with or without replacement.

The table has one row per item, and each row has one weight per column. A tree is a tuple of arrays
`(top, level, …, leaves)`. `top` [column, node] has at most `TOP` nodes. Each node is the sum of
`BRANCH` values in the next level [node, column, branch], and so on. The last level is the table
itself, padded with zeros. The tree is the segment tree of the monoid Sum.

Nodes are always recomputed as sums of their children. Incremental updates would accumulate rounding
errors.
"""

import itertools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from mmrl._dtypes import with_promotion

# A node has 32 children, which fill two cache lines. With at most 1024 nodes at the top, a table of
# 33k to 1M rows needs two levels below the top.
BRANCH = 32
TOP = 1024
# Priorities are clipped to this range, so that they are finite and every row can be sampled.
PRIORITIES = (1e-6, 1e6)

Tree = tuple[Float[Array, "..."], ...]
Noise = tuple[Float[Array, "..."], ...]


@with_promotion
def build(weights: Float[Array, "column row"]) -> Tree:
    """Build the tree of nonnegative weights in O(row).

    A table with at most `TOP` rows needs only the top level.
    """
    levels = []
    while weights.shape[1] > TOP:
        padded = jnp.pad(weights, [(0, 0), (0, -weights.shape[1] % BRANCH)])
        children = padded.reshape(padded.shape[0], -1, BRANCH).swapaxes(0, 1)
        levels.insert(0, children)
        weights = children.sum(axis=2).T
    return (weights, *levels)


@with_promotion
def update(
    tree: Tree,
    rows: Int[Array, " n"],
    weights: Float[Array, "n column"],
    cover: Int[Array, " m"] | None = None,
    zeros: Int[Array, " k"] | None = None,
) -> Tree:
    """Set the weights at `rows` and return the updated tree, in O((n + k) · levels).

    Rows past the end of the table must have weight 0, because they may fall into the padding.
    Duplicate rows must have equal weights, because their order is undefined on accelerators. The
    weights at `zeros` are set to 0, except where a row is also in `rows`. Every node above these
    rows is recomputed. If many of the rows are below the same nodes, pass `cover`, a shorter list
    with at least one row below each of these nodes (the function `cover` returns one). The cost is
    then O(n + k + m · levels).
    """
    levels, zeros = list(tree), rows[:0] if zeros is None else zeros
    for i in range(len(levels) - 1, 0, -1):
        _, columns, branch = levels[i].shape
        parent, child = jnp.divmod(jnp.concatenate([zeros, rows]), branch)
        # For a scatter along the outer and the inner axis, XLA would copy the level. Flatten the
        # level first, so that the scatter has a single axis.
        place = (parent * columns * branch + child)[:, None] + branch * jnp.arange(columns)[None]
        flat = levels[i].reshape(-1).at[place[: zeros.size]].set(0, mode="drop")
        flat = flat.at[place[zeros.size :]].set(weights, mode="drop")
        levels[i] = flat.reshape(levels[i].shape)
        rows, cover, zeros = parent if cover is None else cover // branch, None, rows[:0]
        weights = levels[i].at[rows].get(mode="fill", fill_value=0).sum(axis=2)
    top = levels[0].at[:, zeros].set(0, mode="drop")
    return (top.at[:, rows].set(weights.T, mode="drop"), *levels[1:])


@with_promotion
def cover(first: Int[Array, "*n"], count: int) -> Int[Array, "*n m"]:
    """Return rows that cover `count` consecutive rows, from `first` on, for `update`.

    The result contains at least one child of each node that has a child among the `count` rows.
    """
    return first[..., None] + jnp.minimum(jnp.arange(-(-count // BRANCH) + 1) * BRANCH, count - 1)


@with_promotion
def weights(tree: Tree, rows: Int[Array, " n"]) -> Float[Array, "n column"]:
    """Return the weights at `rows`, and 0 for rows past the end of the table."""
    *_, leaves = tree
    if len(tree) == 1:
        return leaves.at[:, rows].get(mode="fill", fill_value=0).T
    parent, child = jnp.divmod(rows, leaves.shape[2])
    return leaves.at[parent, :, child].get(mode="fill", fill_value=0)


def noise(tree: Tree, key: PRNGKeyArray, count: int) -> Noise:
    """Sample the Exp(1) variables for a race: [top], then [count, branch] per level.

    A single random call samples all variables, because each random call takes longer to compile
    than the rest of the race.
    """
    top, *levels = tree
    sizes = [top.shape[1], *(count * level.shape[2] for level in levels)]
    flat = jax.random.exponential(key, (sum(sizes),), jnp.float32)
    first, *rest = jnp.split(flat, list(itertools.accumulate(sizes))[:-1])
    return (first, *(x.reshape(count, -1) for x in rest))


def extend(first: Noise, more: Noise) -> Noise:
    """Append the noise `more` to `first`, so that a race can sample more rows.

    The race then samples the same rows as with `first`, followed by additional rows.
    """
    rows = (jnp.concatenate(pair) for pair in zip(first[1:], more[1:], strict=True))
    return (first[0], *rows)


@with_promotion
def race(
    tree: Tree, noise: Noise, count: int
) -> tuple[Int[Array, " count"], Float[Array, " count"]]:
    """Sample `count` rows by weight, without replacement; return the rows and their arrival times.

    Row i arrives at time tᵢ ~ Exp(wᵢ), where w is the first column, and the rows are returned in
    order of arrival. Row i arrives first with probability wᵢ / Σw, the second row is sampled by
    weight from the remaining rows, and so on. Sorting by log wᵢ + Gumbel noise would give the same
    distribution.

    A node of the tree arrives with the earliest of its leaves, at a time ~ Exp(Σw). The `count`
    earliest leaves are therefore below the `count` earliest nodes of each level. Because the
    exponential distribution is memoryless, the children of a node that arrives at t arrive at t +
    eᵢ - min(e), with eᵢ ~ Exp(wᵢ). This is the stochastic beam search of Kool et al. (2019).

    Rows of weight 0 arrive at infinity. If the table has fewer than `count` rows, all rows are
    returned.
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
    """Return the `count` smallest times in ascending order, and their nodes.

    If there are fewer times, all of them are returned.
    """
    late, at = jax.lax.top_k(-times, min(count, times.shape[0]))
    return -late, nodes[at]


@with_promotion
def draw(
    tree: Tree, scales: Float[Array, " column"], uniform: Float[Array, "level count"]
) -> tuple[Int[Array, " count"], Float[Array, " count"]]:
    """Sample rows with replacement, with probability ∝ Σ_columns scale · weight.

    Returns the rows and their scaled sums. Each draw descends the tree, and picks a child by weight
    at every level. Each level uses a separate uniform variable, because a float32 variable has only
    23 random bits, too few for more than 8M rows. If all weights are 0, the rows are arbitrary.
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
    """Sample one column by weight for each row; return the columns and their weights.

    If there is only one row of weights, all draws use it.
    """
    sums = jnp.cumsum(weights, axis=1)
    child = (sums <= uniform[:, None] * sums[:, -1:]).sum(axis=1, dtype=jnp.int32)
    child = jnp.minimum(child, weights.shape[1] - 1)
    rows = jnp.arange(child.size) if len(weights) > 1 else jnp.zeros_like(child)
    return child, weights[rows, child]
