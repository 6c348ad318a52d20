"""Number types under JAX's settings for 64 bits and strict promotion."""

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
FLAGS = ("last", "terminated", "mask", "trained")
"""Arguments that become boolean arrays, True where they are not 0."""
RANGES = {"gamma": 1, "lam": 1, "rho_max": math.inf, "c_max": math.inf, "eps": math.inf}
"""Arguments that lie between 0 and this number, unless they are traced."""
KEEP = ("actions",)
"""Arguments that become arrays and keep their type."""


def promoting(call: Call) -> Call:
    """Decorate a function so that its type promotions are allowed under JAX's `strict` setting."""

    @functools.wraps(call)
    def promoted(*args: Any, **kwargs: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            return call(*args, **kwargs)

    return promoted  # pyright: ignore[reportReturnType]


@contextlib.contextmanager
def standard() -> Iterator[None]:
    """Compute in 32 bits, with JAX's standard promotion."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"):
        yield


def in_32_bits(call: Call) -> Call:
    """Decorate a function of arrays so that it computes in 32 bits under every setting of JAX."""

    @functools.wraps(call)
    def narrow(*args: Any, **kwargs: Any) -> Any:
        if not _wide():
            return promoting(call)(*args, **kwargs)
        args, kwargs = jax.tree.map(_narrowed, (args, kwargs))
        with standard():
            return jax.tree.map(jnp.asarray, call(*args, **kwargs))

    return narrow  # pyright: ignore[reportReturnType]


def _wide() -> bool:
    """True if JAX computes in 64 bits."""
    return jax.dtypes.canonicalize_dtype(float) == jnp.float64


def _narrowed(x: Any) -> Any:
    """Return an array in at most 32 bits; return anything else, such as a key, unchanged."""
    kind = getattr(x, "dtype", None)
    if kind is None or jnp.issubdtype(kind, jax.dtypes.extended):
        return x
    with standard():
        narrow = jax.dtypes.canonicalize_dtype(kind)
    return x if narrow == kind else jnp.asarray(x, narrow)


def converting(*names: str) -> Callable[[Call], Call]:
    """Decorate a function so that the arguments `names` become arrays of one floating-point type.

    Lists, NumPy arrays, integers, flags and half-precision arrays are accepted, as in `jax.numpy`.
    Flags may be booleans or numbers. Scalars out of their range raise `ValueError`.
    """

    def decorate(call: Call) -> Call:
        signature = inspect.signature(call)

        @functools.wraps(call)
        def converted(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs).arguments
            for name in RANGES.keys() & given.keys():
                _check_range(name, given[name])
            numbers = [name for name in names if given.get(name) is not None]
            given |= zip(numbers, floats(*(given[name] for name in numbers)), strict=True)
            given |= {x: _flags(x, given[x]) for x in FLAGS if given.get(x) is not None}
            given |= {x: jnp.asarray(given[x]) for x in KEEP if given.get(x) is not None}
            return call(**given)

        return promoting(converted)  # pyright: ignore[reportReturnType]

    return decorate


def _check_range(name: str, value: Any) -> None:
    if isinstance(value, Tracer):
        return
    numeric = isinstance(value, int | float | np.number | np.ndarray | jax.Array)
    x = np.asarray(value if numeric else math.nan)
    if not ((x >= 0) & (x <= RANGES[name])).all():
        wanted = "a number between 0 and 1" if RANGES[name] == 1 else "a number of at least 0"
        raise ValueError(f"`{name}` must be {wanted}; got {value!r}.")


def whole(name: str, number: Any) -> int:
    """Return a whole number of at least 1 as an `int`.

    Raises `ValueError` for a fraction, a flag, a traced number, and one below 1.
    """
    try:
        size = 0 if isinstance(number, bool) else operator.index(number)
    except TypeError:  # JAX raises this for traced numbers too
        size = 0
    if size < 1:
        raise ValueError(
            f"`{name}` must be a whole number of at least 1, and not traced; got {number!r}."
        )
    return size


def _flags(name: str, values: Any) -> Array:
    """Return a boolean array, except for a `last` of fractions, which is a misplaced argument."""
    array = jnp.asarray(values)
    mistaken = name == "last" and jnp.issubdtype(array.dtype, jnp.floating)
    return array if mistaken else array.astype(bool)


@promoting
def floats(*numbers: Any) -> list[Array]:
    """Return the arrays in the floating-point type that JAX promotes all of them to.

    The type has at least 32 bits: in half precision, sums overflow at 65,504 and stop growing long
    before.
    """
    arrays = [jnp.asarray(x) for x in numbers]
    kind = jnp.promote_types(jnp.result_type(*arrays, 0.0), jnp.float32)
    return [x.astype(kind) for x in arrays]


@promoting
def advance(count: Int[Array, "*n"], by: Any = 1, *periods: int) -> Int[Array, "*n"]:
    """Return count + by in 32 bits; beyond 2³¹ - 1, the largest number with the same remainders.

    The remainders are those by `periods`, exact up to a least common multiple of 2³⁰.
    """
    left, period = 2**31 - 1 - count, min(math.lcm(*periods), 2**30)
    return jnp.where(by <= left, count + by, 2**31 - 1 - (left - by) % period)


@promoting
def accumulate(total: tuple[Array, Array], x: Any) -> tuple[Array, Array]:
    """Return (sum, rest) after adding one more number.  Kahan 1965.

    `rest` is the rounding error of the sum, without which a float32 that counts ones stops at 2²⁴.
    """
    so_far, rest = total
    added = x + rest
    after = so_far + added
    return after, jnp.where(jnp.isfinite(after), added - (after - so_far), 0)


def finite(tree: PyTree, where: Any) -> PyTree:
    """Return arrays with 0 for NaN and ∞ where `where` is True; leave whole numbers unchanged."""

    def one(x: Array) -> Array:
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            return x
        return jnp.where(where & ~jnp.isfinite(x), jnp.zeros((), x.dtype), x)

    return jax.tree.map(one, tree)


def like(tree: PyTree, example: PyTree) -> PyTree:
    """Return arrays in the precision of `example`, leaf by leaf; complex arrays stay complex."""

    def one(x: Any, e: Any) -> Any:
        kinds = jnp.result_type(x), jnp.result_type(e)
        same = kinds[0] == kinds[1] or len({np.dtype(kind).kind for kind in kinds}) > 1
        return x if same else x.astype(kinds[1])

    return jax.tree.map(one, tree, example)


def like_result(tree: PyTree, function: Callable[..., PyTree], *args: Any) -> PyTree:
    """Return arrays in the precision of a function's result; in 32 bits, without tracing it."""
    return like(tree, jax.eval_shape(function, *args)) if _wide() else tree
