"""Segment-based batching: episodes split into fragments of L steps and padded (Morad et al. 2024).

`split`, `mask`, `pad` and `rows` say what that is, for one episode (Eqs. 23-27). `sample` draws the
same rows straight from a tape, so that both ways of batching share one storage and one loss. A
memory starts every row from its initial state, so nothing that happened L or more steps ago can
reach it: this is what Section 4.2 holds against segments.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree, Shaped

from mmrl.replay import tree
from mmrl.replay.tape import Sample, Tape, gather


def split(
    episode: PyTree[Shaped[Array | np.ndarray, "time ..."]], length: int
) -> list[PyTree[Shaped[Array | np.ndarray, "..."]]]:
    """F_j = (T_jL, …, T_(j+1)L-1), the last fragment with what remains of the episode (Eq. 23).

    The paper prints the last index of fragment 1 as 2(L - 1), and 2(jL - 1) in Eq. 29, which would
    leave out or repeat steps; it means (j + 1)L - 1.

    Raises ValueError if `length` is not positive or the episode is empty.
    """
    steps = _steps("episode", episode, length)
    return [
        jax.tree.map(lambda x, j=j: x[j : j + length], episode) for j in range(0, steps, length)
    ]


def mask(steps: int | Int[Array, ""], length: int) -> Bool[Array, " segment"]:
    """m = concat(1^steps, 0^(length - steps)) (Eq. 25): True where a segment holds real steps."""
    return jnp.arange(length) < steps


def pad(
    fragment: PyTree[Shaped[Array | np.ndarray, "fragment ..."]], length: int
) -> tuple[PyTree[Shaped[Array, "segment ..."]], Bool[Array, " segment"]]:
    """σ, m = concat(F, 0^(length - card F)), mask(card F, length) (Eqs. 24-25).

    Raises ValueError if `length` is not positive or the fragment is empty or longer than that.
    """
    steps = _steps("fragment", fragment, length)
    if steps > length:
        raise ValueError(
            f"`fragment` must have at most `length` = {length} steps, got {steps}: `split` first."
        )
    segment = jax.tree.map(
        lambda x: jnp.pad(x, [(0, length - steps)] + [(0, 0)] * (x.ndim - 1)), fragment
    )
    return segment, mask(steps, length)


def rows(
    episode: PyTree[Shaped[Array | np.ndarray, "time ..."]], length: int
) -> tuple[PyTree[Shaped[Array, "row segment ..."]], Bool[Array, "row segment"]]:
    """σ_j, m_j = pad(F_j, L) for every F_j in split(E, L), stacked as in the dataset (Eqs. 26-27).

    Raises ValueError if `length` is not positive or the episode is empty.
    """
    segments, masks = zip(*(pad(f, length) for f in split(episode, length)), strict=True)
    return jax.tree.map(lambda *xs: jnp.stack(xs), *segments), jnp.stack(masks)


def _steps(name: str, episode: PyTree, length: int) -> int:
    """The steps of an episode; ValueError if it has none or `length` is not positive."""
    if length < 1:
        raise ValueError(f"`length` must be at least 1 step per segment, got {length}.")
    steps = {x.shape[0] for x in jax.tree.leaves(episode)}
    if len(steps) != 1 or steps == {0}:
        raise ValueError(f"`{name}` must have leaves of one length, at least 1, got {steps or {}}.")
    return steps.pop()


def sample(tape: Tape, key: PRNGKeyArray, batch: int, length: int) -> Sample:
    """`batch / length` random rows of the dataset of Eq. 27, one after the other on one tape.

    Rows are drawn independently (with replacement) and uniformly among all segments of the stored
    episodes; on a tape with priorities, a segment inherits w = priority^α of its episode. `begin`
    is True at the first step of each row. `mask` is False on the padding, and everywhere if the
    tape holds no whole episode. `Sample.rows` names the episode of each row, perhaps more than
    once. O(batch + log capacity).

    Raises ValueError if `length` is not positive or does not divide `batch`.
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
    """`count` episodes with P ∝ w · ⌈n / L⌉ for one of n steps, and a segment of each, uniformly.

    The number of segments depends on L, which the tape's sums, of w and w · (n - 1), do not know.
    But ⌈n / L⌉ is at most 1 + (n - 1) / L and more than half of that. So we draw with probability
    ∝ w + w · (n - 1) / L, accept with the ratio of the two, and try again until `count` rows are
    accepted: twice on average at the worst. Without any episode, the row `capacity` is given.
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
