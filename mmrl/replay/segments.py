"""Segment-based batching: episodes are split into segments of L steps (Morad et al. 2024).

Segments are sampled directly from a tape, as rows of the dataset in Eq. 27, so that both kinds of
batching use the same storage and loss. Every segment starts from the memory's initial state, so an
output never depends on an observation that is L or more steps older (Section 4.2).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from mmrl._dtypes import with_promotion
from mmrl.replay import tree
from mmrl.replay.tape import Sample, Tape, gather


@with_promotion
def sample(tape: Tape, key: PRNGKeyArray, batch: int, length: int) -> Sample:
    """Sample `batch / length` random segments, concatenated to a single tape.

    The segments are rows of the dataset in Eq. 27, sampled independently and uniformly, with
    replacement, from all complete episodes on the tape. `begin` is True at the first step of each
    segment. `mask` is False at padding, and False everywhere if there are no complete episodes.
    `Sample.rows` identifies the episode of each segment, so the same row may appear more than once.
    The cost is O(batch + log capacity).

    Raises `ValueError` if `length` is not positive or does not divide `batch`.

        >>> from mmrl.replay import tape
        >>> storage = tape.init({"obs": jnp.zeros(3)}, capacity=64)
        >>> sample(storage, jax.random.key(0), batch=12, length=4).mask.any()  # nothing stored yet
        Array(False, dtype=bool)
    """
    if length < 1:
        raise ValueError(f"`length` must be at least 1 step, got {length}.")
    if batch < 1 or batch % length:
        raise ValueError(
            f"`batch` must be a positive multiple of `length` = {length}, got {batch}. "
            f"Try {max(1, round(batch / length)) * length}."
        )
    count = batch // length
    first, segment = _draw(tape, key, count, length)
    lengths = tape.length.at[first].get(mode="fill", fill_value=0)
    row, within = jnp.divmod(jnp.arange(batch, dtype=jnp.int32), length)
    offset = segment[row] * length + within
    real = offset < lengths[row]
    return Sample(gather(tape, first[row], offset, real), within == 0, real, row, first)


def _draw(
    tape: Tape, key: PRNGKeyArray, count: int, length: int
) -> tuple[Int[Array, " count"], Int[Array, " count"]]:
    """Sample `count` segments uniformly; return the episode of each, and the segment's index in it.

    An episode of n steps has ⌈n / L⌉ segments. The tape does not depend on L, and stores only the
    sums of 1 and of n - 1 over all episodes. Episodes are therefore sampled by rejection: an
    episode is proposed with probability ∝ 1 + (n - 1) / L, which is at least ⌈n / L⌉ and less than
    twice as large, and is accepted with probability ⌈n / L⌉ / (1 + (n - 1) / L). The loop continues
    until `count` proposals have been accepted. On average, at most half of them are rejected.

    If the tape has no complete episodes, all rows are `capacity`.
    """
    capacity, levels = tape.length.shape[0], len(tape.sums)

    scales = jnp.array([1.0, 1.0 / length], jnp.float32)

    def attempt(state: tuple) -> tuple:
        key, first, segment, total = state
        key, now = jax.random.split(key)
        uniform = jax.random.uniform(now, (levels + 2, count), jnp.float32)
        rows, _ = tree.draw(tape.sums, scales, uniform[:levels])
        n = tape.length.at[rows].get(mode="fill", fill_value=0)
        segments = -(-n // length)
        accepted = uniform[levels] * (1 + (n - 1) / length) < segments
        which = jnp.minimum((uniform[levels + 1] * segments).astype(jnp.int32), segments - 1)
        place = jnp.where(accepted, total + jnp.cumsum(accepted, dtype=jnp.int32) - 1, count)
        first = first.at[place].set(rows, mode="drop")
        segment = segment.at[place].set(which, mode="drop")
        return key, first, segment, total + accepted.sum(dtype=jnp.int32)

    empty = tape.sums[0][0].sum() == 0
    none = jnp.full(count, capacity, jnp.int32)
    start = (key, none, jnp.zeros(count, jnp.int32), jnp.where(empty, count, 0).astype(jnp.int32))
    _, first, segment, _ = jax.lax.while_loop(lambda state: state[3] < count, attempt, start)
    return first, segment
