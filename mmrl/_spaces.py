"""The bounds of a space, the types of arrays that can hold it, and states without legal actions.

A space with `n` is a `Discrete`, one with `low` a `Box`, one with `spaces` a `Dict` or a `Tuple`:
gymnax, which is slow to import, is not needed here.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

Bounds = tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]

MASK = "action_mask"
"""The key of a dictionary observation, or the method, that states which actions are legal."""


class MaskedState(NamedTuple):
    """State of an environment inside `wrappers.ActionMask`."""

    env_state: Any
    # Number of the first step without a legal action, or 0. It counts from 1 in its episode, and
    # outlasts the episode.
    stuck: Any

    @property
    def time(self) -> Any:
        """Steps since the reset, as in every gymnax state."""
        return self.env_state.time


def stuck(state: PyTree) -> Int[Array, "*env"] | None:
    """Return `stuck` of the `MaskedState` in an environment's state; None if there is none."""
    leaves = jax.tree.leaves(state, is_leaf=_is_masked)
    return next((leaf.stuck for leaf in leaves if _is_masked(leaf)), None)


def _is_masked(x: Any) -> bool:
    return isinstance(x, MaskedState)


def parts(space: Any, obs: Any = None, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (place, space, observation) for each part of a space, "['cards']" for example.

    A space that is neither a `Dict` nor a `Tuple` is its only part, whose place is "". The
    observation is None where `obs` lacks the part.
    """
    inner = getattr(space, "spaces", None)
    if isinstance(inner, tuple):
        inner = dict(enumerate(inner))
        obs = dict(enumerate(obs)) if isinstance(obs, tuple) else None
    if not isinstance(inner, dict):
        yield place, space, obs
        return
    for key in sorted(inner):
        part = obs.get(key) if isinstance(obs, dict) else None
        yield from parts(inner[key], part, f"{place}[{key!r}]")


def is_picture(space: Any) -> bool:
    """True for pixels, [height, width, channel], with room for a filter of 3 × 3.

    A grid of other numbers, such as codes of objects, is not a picture: see `pixel_unit`.
    """
    shape = getattr(space, "shape", None) or ()
    return len(shape) == 3 and min(shape[:2]) >= 3 and pixel_unit(space) is not None


def pixel_unit(space: Any) -> float | None:
    """Return the value of a pixel that counts as 1: 1 for flags and numbers within ±1, else 255.

    None if the bounds are neither within ±1 nor 0 and 255.
    """
    if space.dtype == jnp.bool_:
        return 1.0
    if (ends := limits(space)) is None:
        return 255.0 if space.dtype == jnp.uint8 else None
    low, high = float(ends[0].min()), float(ends[1].max())
    if low >= -1 and high <= 1:
        return 1.0
    return 255.0 if low >= 0 and high == 255 else None


def limits(space: Any) -> Bounds | None:
    """Return the bounds of a `Box` as float64 arrays of its shape, or None if they are traced.

    Bounds near the end of float32 count as infinite: its last number is how gymnax writes them.
    """
    with jax.ensure_compile_time_eval():
        try:
            ends = [np.asarray(x, np.float64) for x in (space.low, space.high)]
        except jax.errors.TracerArrayConversionError:
            return None
    low, high = (np.broadcast_to(x, space.shape) for x in ends)
    most = float(jnp.finfo(jnp.float32).max) / 1000
    low = np.where(low <= -most, -np.inf, low)
    return low, np.where(high >= most, np.inf, high)


def disorder(space: Any, open_interval: bool = False) -> str:
    """Return why the bounds of a `Box` are not an interval in each dimension, or "".

    With `open_interval`, an interval of a single number is a fault, too.
    """
    if (ends := limits(space)) is None:
        return ""
    low, high = ends
    good = (low < high) if open_interval else (low <= high)
    if good.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~good)[0])
    place = f" at index {at[0] if len(at) == 1 else at}" if at else ""
    return (
        f"must have low {'<' if open_interval else '<='} high in every dimension, without NaN; "
        f"got low={low[at]:g} and high={high[at]:g}{place}"
    )


def offset(space: Any) -> str:
    """Return why the numbers of a `Discrete` do not begin at 0, or ""."""
    if (start := getattr(space, "start", 0)) == 0:
        return ""
    return f"must begin at 0; got start={start}. Add it in the environment"


def misfit(space: Any, dtype: Any) -> str:
    """Return why arrays of `dtype` do not hold every value of a space, or "".

    They must have the dtype of a `Box` or its 64-bit form, or a float type where the box has
    integers, and hold its finite bounds. A `Discrete` may have any integer type that holds its
    numbers.
    """
    dtype, wanted = jnp.dtype(dtype), jax.dtypes.canonicalize_dtype(space.dtype)
    fits = dtype == wanted or (dtype.itemsize == 8 and dtype.kind == wanted.kind)
    fits |= jnp.issubdtype(dtype, jnp.floating) and wanted.kind in "iub"  # gymnax's Catch
    if hasattr(space, "n"):
        fits = jnp.issubdtype(dtype, jnp.integer)
    if not fits:
        return f"must be of the dtype of `observation_space`, {wanted}; got {dtype}"
    if holds(space, dtype):
        return ""
    least, most = _range(dtype)
    return (
        f"must be of a dtype that holds the bounds of {space!r}; {dtype} holds {least:g} to "
        f"{most:g}"
    )


def holds(space: Any, dtype: Any) -> bool:
    """Return True if no finite bound of a space lies outside the range of a dtype."""
    if hasattr(space, "n"):
        ends: Any = np.float64(0), np.float64(space.n - 1)
    else:
        ends = limits(space) or ()
    least, most = _range(jnp.dtype(dtype))
    return not any(np.any(np.isfinite(x) & ((x < least) | (x > most))) for x in ends)


def _range(dtype: Any) -> tuple[float, float]:
    """Return the least and the greatest number of a type."""
    if dtype == jnp.bool_:
        return 0.0, 1.0
    info: Any = jnp.iinfo(dtype) if jnp.issubdtype(dtype, jnp.integer) else jnp.finfo(dtype)
    least, most = float(info.min), float(info.max)
    if dtype.itemsize == 4:  # bounds may be rounded to float32, where 2³¹ - 1 is 2³¹
        return float(np.float32(least)), float(np.float32(most))
    return least, most
