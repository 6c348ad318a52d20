"""Dtype conversions under JAX's 64-bit mode and strict type promotion."""

import contextlib
import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Int, PyTree

Call = TypeVar("Call", bound=Callable[..., Any])
FLAGS = ("last", "terminated", "mask", "loss_mask")
"""Names of arguments that are converted to boolean arrays: nonzero values become True."""
RANGES = {"gamma": 1, "lam": 1, "rho_max": math.inf, "c_max": math.inf, "eps": math.inf}
"""Upper bounds of nonnegative scalar arguments. Traced values are not checked."""
KEEP = ("actions",)
"""Names of arguments that are converted to arrays without changing their dtype."""


def with_promotion(call: Call) -> Call:
    """Decorate a function so that it also runs under JAX's `strict` type promotion."""

    @functools.wraps(call)
    def promoted(*args: Any, **kwargs: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            return call(*args, **kwargs)

    return promoted  # pyright: ignore[reportReturnType]


@contextlib.contextmanager
def standard() -> Iterator[None]:
    """Compute in 32 bits with standard type promotion inside this context."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def in_32_bits(call: Call) -> Call:
    """Decorate a function to compute in 32 bits, even in JAX's 64-bit mode."""

    @functools.wraps(call)
    def narrow(*args: Any, **kwargs: Any) -> Any:
        if not _wide():
            return with_promotion(call)(*args, **kwargs)
        args, kwargs = jax.tree.map(_narrow, (args, kwargs))
        with standard():
            return jax.tree.map(jnp.asarray, call(*args, **kwargs))

    return narrow  # pyright: ignore[reportReturnType]


def _wide() -> bool:
    """Return True if JAX is in 64-bit mode."""
    return jax.dtypes.canonicalize_dtype(float) == jnp.float64


def _narrow(x: Any) -> Any:
    """Cast an array to its 32-bit dtype.

    Values without a dtype, PRNG keys and narrower arrays are returned unchanged.
    """
    kind = getattr(x, "dtype", None)
    if kind is None or jnp.issubdtype(kind, jax.dtypes.extended):
        return x
    with standard():
        narrow = jax.dtypes.canonicalize_dtype(kind)
    return x if narrow == kind else jnp.asarray(x, narrow)


def convert_arguments(*names: str) -> Callable[[Call], Call]:
    """Decorate a function to convert the arguments `names` to a common floating-point dtype.

    The function then accepts everything that `jax.numpy` accepts: lists, NumPy arrays, integers,
    booleans and half-precision arrays. Arguments listed in `FLAGS` are converted to booleans. The
    decorated function raises `ValueError` if a scalar is outside its range in `RANGES`.
    """

    def decorate(call: Call) -> Call:
        signature = inspect.signature(call)

        @functools.wraps(call)
        def converted(*args: Any, **kwargs: Any) -> Any:
            arguments = signature.bind(*args, **kwargs).arguments
            for name in RANGES.keys() & arguments.keys():
                _check_range(name, arguments[name])
            numbers = [name for name in names if arguments.get(name) is not None]
            arguments |= zip(numbers, floats(*(arguments[name] for name in numbers)), strict=True)
            arguments |= {x: _flags(x, arguments[x]) for x in FLAGS if arguments.get(x) is not None}
            arguments |= {
                x: jnp.asarray(arguments[x]) for x in KEEP if arguments.get(x) is not None
            }
            return call(**arguments)

        return with_promotion(converted)  # pyright: ignore[reportReturnType]

    return decorate


def _check_range(name: str, value: Any) -> None:
    if isinstance(value, Tracer):
        return
    numeric = isinstance(value, int | float | np.number | np.ndarray | jax.Array)
    x = np.asarray(value if numeric else math.nan)
    if not ((x >= 0) & (x <= RANGES[name])).all():
        bounds = "a number between 0 and 1" if RANGES[name] == 1 else "a number of at least 0"
        raise ValueError(f"`{name}` must be {bounds}; got {value!r}.")


def whole(name: str, number: Any) -> int:
    """Return a whole number of at least 1 as an `int`.

    Raises `ValueError` if `number` is below 1, is not an integer, is a boolean, or is traced.
    """
    try:
        size = 0 if isinstance(number, bool) else operator.index(number)
    except TypeError:  # also raised by JAX for traced values
        size = 0
    if size < 1:
        raise ValueError(
            f"`{name}` must be an untraced whole number of at least 1; got {number!r}."
        )
    return size


def _flags(name: str, values: Any) -> Array:
    """Convert flags to a boolean array.

    A floating-point `last` is returned unchanged, because it is probably a misplaced argument. The
    function that receives it raises an error.
    """
    array = jnp.asarray(values)
    mistaken = name == "last" and jnp.issubdtype(array.dtype, jnp.floating)
    return array if mistaken else array.astype(bool)


@with_promotion
def floats(*numbers: Any) -> list[Array]:
    """Convert arrays to a common floating-point dtype of at least 32 bits.

    Half precision is not enough for sums: float16 overflows at 65,504, and small terms are lost to
    rounding long before that.
    """
    arrays = [jnp.asarray(x) for x in numbers]
    kind = jnp.promote_types(jnp.result_type(*arrays, 0.0), jnp.float32)
    return [x.astype(kind) for x in arrays]


@with_promotion
def advance(count: Int[Array, "*n"], by: Any = 1, *periods: int) -> Int[Array, "*n"]:
    """Increment a 32-bit counter without overflow.

    If the sum exceeds 2³¹ - 1, return instead the largest 32-bit integer with the same remainder
    for each of `periods`, so that code that uses the counter modulo a period continues to work. The
    least common multiple of the periods must be at most 2³⁰.
    """
    left, period = 2**31 - 1 - count, min(math.lcm(*periods), 2**30)
    return jnp.where(by <= left, count + by, 2**31 - 1 - (left - by) % period)


@with_promotion
def accumulate(total: tuple[Array, Array], x: Any) -> tuple[Array, Array]:
    """Add a number to a compensated sum.  Kahan 1965.

    `total` is a pair (sum, rounding error). Without the compensation, a float32 sum of ones would
    stop growing at 2²⁴.
    """
    so_far, rest = total
    term = x + rest
    after = so_far + term
    return after, jnp.where(jnp.isfinite(after), term - (after - so_far), 0)


def finite(tree: PyTree, where: Any) -> PyTree:
    """Replace NaN and ∞ with 0 where `where` is True.

    Integer arrays are returned unchanged.
    """

    def one(x: Array) -> Array:
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            return x
        return jnp.where(where & ~jnp.isfinite(x), jnp.zeros((), x.dtype), x)

    return jax.tree.map(one, tree)


def like(tree: PyTree, example: PyTree) -> PyTree:
    """Cast each array to the precision of the matching leaf of `example`.

    Only the precision changes: a complex array stays complex, even if its example is real.
    """

    def one(x: Any, e: Any) -> Any:
        kinds = jnp.result_type(x), jnp.result_type(e)
        same = kinds[0] == kinds[1] or len({np.dtype(kind).kind for kind in kinds}) > 1
        return x if same else x.astype(kinds[1])

    return jax.tree.map(one, tree, example)


def like_result(tree: PyTree, function: Callable[..., PyTree], *args: Any) -> PyTree:
    """Cast arrays to the precision of a function's result.

    The function is traced only in 64-bit mode, because otherwise no cast is needed.
    """
    return like(tree, jax.eval_shape(function, *args)) if _wide() else tree
