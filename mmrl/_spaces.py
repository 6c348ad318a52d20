"""Properties of spaces: bounds, valid dtypes, and legal actions.

Spaces are recognized by their attributes: a `Discrete` has `n`, a `Box` has `low`, and a `Dict` or
`Tuple` has `spaces`. The pair of an image and a vector has `is_pair`. This avoids importing gymnax,
which is slow.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

Bounds = tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]

MASK = "action_mask"
"""Key in a dictionary observation, or method of an environment, with the mask of legal actions."""


class MaskedState(NamedTuple):
    """State of an environment wrapped in `wrappers.ActionMask`."""

    env_state: Any
    # Number, counted from 1, of the first step without a legal action, or 0 if all steps have legal
    # actions. The number is kept when a later episode begins.
    stuck: Any

    @property
    def time(self) -> Any:
        """Number of steps since the reset, as in every gymnax state."""
        return self.env_state.time


def stuck(state: PyTree) -> Int[Array, "*env"] | None:
    """Return the field `stuck` of the `MaskedState` in an environment's state, if any."""
    leaves = jax.tree.leaves(state, is_leaf=_is_masked)
    return next((leaf.stuck for leaf in leaves if _is_masked(leaf)), None)


def keep_stuck(new: PyTree, old: PyTree) -> PyTree:
    """Return `new`, the state of a new episode, with the number `stuck` of the state before it."""

    def keep(x: Any, before: Any) -> Any:
        return x._replace(stuck=first_stuck(before.stuck, x.stuck)) if _is_masked(x) else x

    return jax.tree.map(keep, new, old, is_leaf=_is_masked)


def first_stuck(before: Int[Array, "*env"], now: Int[Array, "*env"]) -> Int[Array, "*env"]:
    """Return the number `before`, or `now` if `before` is 0."""
    return jnp.where(before > 0, before, now)


def _is_masked(x: Any) -> bool:
    return isinstance(x, MaskedState)


def parts(space: Any, obs: Any = None, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (place, space, observation) for each leaf of a nested space.

    A place is a path such as "['cards']". A space that is neither a `Dict` nor the pair of an image
    and a vector has a single leaf, the space itself, with the place "". The observation is None if
    `obs` does not contain this leaf.
    """
    inner: Any = getattr(space, "spaces", None)
    if getattr(space, "is_pair", False):
        inner = dict(enumerate(inner))
        obs = dict(enumerate(obs)) if isinstance(obs, tuple) else None
    if not isinstance(inner, dict):
        yield place, space, obs
        return
    for key in sorted(inner):
        part = obs.get(key) if isinstance(obs, dict) else None
        yield from parts(inner[key], part, f"{place}[{key!r}]")


def is_picture(space: Any) -> bool:
    """Return True if a space contains images of at least 3 × 3 pixels, [height, width, channel].

    Grids of other values, such as object codes, are not images: see `pixel_unit`. If the channels
    appear to come first, the space still counts as images, so that agents can reject it with an
    error.
    """
    shape = getattr(space, "shape", None) or ()
    if len(shape) != 3 or (min(shape[:2]) < 3 and not channels_first(shape)):
        return False
    return pixel_unit(space) is not None


def channels_first(shape: tuple[int, ...]) -> bool:
    """Return True if a shape looks like [channel, height, width].

    The first size must be the smallest, and either it is at most 4 or the other two are equal.
    """
    first, *sides = shape
    return first < min(sides) and (first <= 4 or sides[0] == sides[1])


def pixel_unit(space: Any) -> float | None:
    """Return the pixel value that is scaled to 1, or None if the values are not pixels.

    The unit is 1 for booleans and for values in [-1, 1], and 255 for values from 0 to 255.
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
    """Return the bounds of a `Box` as float64 arrays, or None if they are traced.

    Values close to the largest float32 become infinite, because gymnax uses that value for
    dimensions without a bound.
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
    """Return the end of an error message if `low` exceeds `high` anywhere in a `Box`, else "".

    With `open_interval`, `low` must be strictly below `high`.
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
    """Return the end of an error message if a `Discrete` space does not start at 0, else ""."""
    if (start := getattr(space, "start", 0)) == 0:
        return ""
    return f"must start at 0; got start={start}. Add the offset in the environment"


def misfit(space: Any, dtype: Any) -> str:
    """Return the end of an error message if `dtype` cannot represent a space, else "".

    For a `Box`, the dtype must be the dtype of the box, its 64-bit version, or a float dtype if the
    box has integers, and must be able to represent the finite bounds. For a `Discrete`, any integer
    dtype that can represent all `n` values is valid.
    """
    dtype, expected = jnp.dtype(dtype), jax.dtypes.canonicalize_dtype(space.dtype)
    fits = dtype == expected or (dtype.itemsize == 8 and dtype.kind == expected.kind)
    # Accept floats for integers, as in gymnax's Catch.
    fits |= jnp.issubdtype(dtype, jnp.floating) and expected.kind in "iub"
    if hasattr(space, "n"):
        fits = jnp.issubdtype(dtype, jnp.integer)
    if not fits:
        return f"must have the dtype of `observation_space`, {expected}; got {dtype}"
    if holds(space, dtype):
        return ""
    least, most = _range(dtype)
    return (
        f"must have a dtype that can represent the bounds of {space!r}; the range of {dtype} is "
        f"{least:g} to {most:g}"
    )


def holds(space: Any, dtype: Any) -> bool:
    """Return True if all finite bounds of a space are within the range of a dtype."""
    if hasattr(space, "n"):
        ends: Any = np.float64(0), np.float64(space.n - 1)
    else:
        ends = limits(space) or ()
    least, most = _range(jnp.dtype(dtype))
    return not any(np.any(np.isfinite(x) & ((x < least) | (x > most))) for x in ends)


def _range(dtype: Any) -> tuple[float, float]:
    """Return the smallest and the largest value of a dtype."""
    if dtype == jnp.bool_:
        return 0.0, 1.0
    info: Any = jnp.iinfo(dtype) if jnp.issubdtype(dtype, jnp.integer) else jnp.finfo(dtype)
    least, most = float(info.min), float(info.max)
    if dtype.itemsize == 4:  # bounds may be rounded to float32, which turns 2³¹ - 1 into 2³¹
        return float(np.float32(least)), float(np.float32(most))
    return least, most
