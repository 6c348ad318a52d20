"""Segments of one episode, as Morad et al. (2024) define them: split, and padded to rows.

`mmrl.replay.segments.sample` draws the same rows straight from a tape.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Shaped


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
