"""Types of numbers under JAX's settings: 64-bit, and strict promotion."""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

Call = TypeVar("Call", bound=Callable[..., Any])
KEEP = ("last", "terminated", "mask", "trained", "actions")
"""Arguments of flags and indices: they become arrays, and keep their type."""


def promoting(call: Call) -> Call:
    """Decorate a function whose promotions are intended: `strict` promotion leaves them alone."""

    @functools.wraps(call)
    def promoted(*args: Any, **kwargs: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"):
            return call(*args, **kwargs)

    return promoted  # pyright: ignore[reportReturnType]


def converting(*names: str) -> Callable[[Call], Call]:
    """Decorate a function of arrays: `names` become arrays of one floating-point type.

    Lists, NumPy arrays, integers, flags and halves are all accepted, as by `jax.numpy`.
    """

    def decorate(call: Call) -> Call:
        signature = inspect.signature(call)

        @functools.wraps(call)
        def converted(*args: Any, **kwargs: Any) -> Any:
            given = signature.bind(*args, **kwargs).arguments
            numbers = [name for name in names if given.get(name) is not None]
            given |= zip(numbers, floats(*(given[name] for name in numbers)), strict=True)
            given |= {
                name: jnp.asarray(given[name]) for name in KEEP if given.get(name) is not None
            }
            return call(**given)

        return promoting(converted)  # pyright: ignore[reportReturnType]

    return decorate


@promoting
def floats(*numbers: Any) -> list[Array]:
    """Return arrays of one floating-point type, the smallest that JAX promotes all of them to."""
    arrays = [jnp.asarray(x) for x in numbers]
    kind = jnp.result_type(*arrays, 0.0)
    return [x.astype(kind) for x in arrays]


@promoting
def advance(count: Int[Array, "*n"], by: Any = 1, *periods: int) -> Int[Array, "*n"]:
    """Return count + by in 32 bits; beyond 2³¹ - 1, the largest with its remainders by `periods`.

    Remainders are exact up to a least common multiple of 2³⁰.
    """
    left, period = 2**31 - 1 - count, min(math.lcm(*periods), 2**30)
    return jnp.where(by <= left, count + by, 2**31 - 1 - (left - by) % period)


def like(tree: PyTree, example: PyTree) -> PyTree:
    """Return arrays in the precision of `example`'s, leaf by leaf; a complex one stays complex."""

    def one(x: Any, e: Any) -> Any:
        kinds = jnp.result_type(x), jnp.result_type(e)
        same = kinds[0] == kinds[1] or len({np.dtype(kind).kind for kind in kinds}) > 1
        return x if same else x.astype(kinds[1])

    return jax.tree.map(one, tree, example)


def like_result(tree: PyTree, function: Callable[..., PyTree], *args: Any) -> PyTree:
    """Return arrays in the precision of a function's result, without calling it in 32 bit."""
    if jax.dtypes.canonicalize_dtype(float) == jnp.float32:
        return tree
    return like(tree, jax.eval_shape(function, *args))
