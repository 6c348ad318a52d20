"""Segment-based batching: episodes split into fragments of L steps and padded (Morad et al. 2024).

`sample` draws rows of the dataset of Eq. 27 directly from a tape, so both ways of batching share
one storage and one loss. A memory starts every row from its initial state, so an event L or more
steps ago cannot reach it: this is the objection to segments in Section 4.2.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from mmrl._dtypes import promoting
from mmrl.replay import tree
from mmrl.replay.tape import Sample, Tape, gather


@promoting
def sample(tape: Tape, key: PRNGKeyArray, batch: int, length: int) -> Sample:
    """Sample `batch / length` random rows of the dataset of Eq. 27, in sequence on one tape.

    Rows are drawn independently (with replacement) and uniformly among all segments of the stored
    episodes. `begin` is True at the first step of each row. `mask` is False on the padding, and
    everywhere if the tape holds no whole episode. `Sample.rows` names the episode of each row,
    perhaps more than once. O(batch + log capacity).

    Raises `ValueError` if `length` is not positive or does not divide `batch`.
    """
    if length < 1:
        raise ValueError(f"`length` must be at least 1 step per segment, got {length}.")
    if batch < 1 or batch % length:
        raise ValueError(
            f"`batch` must be a positive multiple of `length` = {length}, got {batch}. "
            f"Try {max(1, round(batch / length)) * length}."
        )
    count = batch // length
    first, segment = _draw(tape, key, count, length)
    stored = tape.length.at[first].get(mode="fill", fill_value=0)
    row, within = jnp.divmod(jnp.arange(batch, dtype=jnp.int32), length)
    offset = segment[row] * length + within
    real = offset < stored[row]
    return Sample(gather(tape, first[row], offset, real), within == 0, real, row, first)


def _draw(
    tape: Tape, key: PRNGKeyArray, count: int, length: int
) -> tuple[Int[Array, " count"], Int[Array, " count"]]:
    """Draw `count` episodes with P ∝ ⌈n / L⌉, n their steps, and one segment of each, uniformly.

    The number of segments depends on L, and the tape stores only the sums of 1 and of n - 1. But ⌈n
    / L⌉ is at most 1 + (n - 1) / L and more than half of it. So we draw with probability ∝ 1 + (n -
    1) / L, accept with the ratio of the two, and repeat until `count` rows are accepted: twice on
    average in the worst case. Without any episode, all rows are `capacity`.
    """
    capacity, levels = tape.length.shape[0], len(tape.sums)

    scales = jnp.array([1.0, 1.0 / length], jnp.float32)

    def attempt(state: tuple) -> tuple:
        key, first, segment, done = state
        key, now = jax.random.split(key)
        uniform = jax.random.uniform(now, (levels + 2, count), jnp.float32)
        found, _ = tree.draw(tape.sums, scales, uniform[:levels])
        n = tape.length.at[found].get(mode="fill", fill_value=0)
        segments = -(-n // length)
        accepted = uniform[levels] * (1 + (n - 1) / length) < segments
        which = jnp.minimum((uniform[levels + 1] * segments).astype(jnp.int32), segments - 1)
        place = jnp.where(accepted, done + jnp.cumsum(accepted, dtype=jnp.int32) - 1, count)
        first = first.at[place].set(found, mode="drop")
        segment = segment.at[place].set(which, mode="drop")
        return key, first, segment, done + accepted.sum(dtype=jnp.int32)

    empty = tape.sums[0][0].sum() == 0
    nobody = jnp.full(count, capacity, jnp.int32)
    start = (key, nobody, jnp.zeros(count, jnp.int32), jnp.where(empty, count, 0).astype(jnp.int32))
    _, first, segment, _ = jax.lax.while_loop(lambda state: state[3] < count, attempt, start)
    return first, segment
