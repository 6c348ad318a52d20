"""Segments of one episode as defined by Morad et al. (2024).

`mmrl.replay.segments.sample` draws the same rows directly from a tape.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PyTree, Shaped


def split(
    episode: PyTree[Shaped[Array | np.ndarray, "time ..."]], length: int
) -> list[PyTree[Shaped[Array | np.ndarray, "..."]]]:
    """Split an episode into fragments of `length` steps, the last of which may be shorter.  Eq. 23.

    F_j = (T_jL, …, T_(j+1)L-1). The paper prints the last index as 2(L - 1) for fragment 1, and as
    2(jL - 1) in Eq. 29. Both would skip or repeat steps, so this function uses (j + 1)L - 1.

    Raises `ValueError` if `length` is not positive or the episode is empty.
    """
    steps = _steps("episode", episode, length)
    return [
        jax.tree.map(lambda x, j=j: x[j : j + length], episode) for j in range(0, steps, length)
    ]


def mask(steps: int | Int[Array, ""], length: int) -> Bool[Array, " segment"]:
    """Return the mask m = concat(1^steps, 0^(length - steps)) of the real steps.  Eq. 25."""
    return jnp.arange(length) < steps


def pad(
    fragment: PyTree[Shaped[Array | np.ndarray, "fragment ..."]], length: int
) -> tuple[PyTree[Shaped[Array, "segment ..."]], Bool[Array, " segment"]]:
    """Pad a fragment to `length` steps, and return the segment and its mask.  Eqs. 24-25.

    σ, m = concat(F, 0^(length - card F)), mask(card F, length). Raises `ValueError` if `length` is
    not positive, or if the fragment is empty or longer than `length`.
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
    """Split and pad an episode: σ_j, m_j = pad(F_j, L) for every F_j in split(E, L).  Eqs. 26-27.

    The rows are stacked along a new leading axis. Raises `ValueError` if `length` is not positive
    or the episode is empty.
    """
    segments, masks = zip(*(pad(f, length) for f in split(episode, length)), strict=True)
    return jax.tree.map(lambda *xs: jnp.stack(xs), *segments), jnp.stack(masks)


def _steps(name: str, episode: PyTree, length: int) -> int:
    """Return the number of steps. Raises `ValueError` if this number or `length` is below 1."""
    if length < 1:
        raise ValueError(f"`length` must be at least 1 step per segment, got {length}.")
    steps = {x.shape[0] for x in jax.tree.leaves(episode)}
    if len(steps) != 1 or steps == {0}:
        raise ValueError(
            f"`{name}` must have leaves of equal length, at least 1, got lengths {steps or {}}."
        )
    return steps.pop()
