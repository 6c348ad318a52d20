"""Checks of the arguments of memories."""

import inspect
import math
import numbers
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from mmrl._random import one_key


def check_sizes(key: Any, /, **sizes: Any) -> None:
    """Check that `key` is a random key and that all sizes are positive integers.

    Raises `ValueError` otherwise.
    """
    one_key(key)
    for name, size in sizes.items():
        if not isinstance(size, numbers.Integral) or isinstance(size, bool) or size < 1:
            raise ValueError(f"`{name}` must be a whole number of at least 1; got {size!r}.")


def is_number(x: Any) -> bool:
    """Return True if x is a finite real number, and not a boolean."""
    return isinstance(x, numbers.Real) and not isinstance(x, bool) and math.isfinite(x)


def ends_of(name: str, ends: Any) -> tuple[float, float]:
    """Return the ends of a range. Raises `ValueError` if they are not a pair of numbers."""
    if not isinstance(ends, (tuple, list)) or len(ends) != 2 or not all(map(is_number, ends)):
        raise ValueError(f"`{name}` must be a pair of finite numbers, (low, high); got {ends!r}.")
    low, high = ends
    return low, high


def check_keywords(name: str, model: Any, sizes: Iterable[str]) -> set[str]:
    """Return the parameter names of a memory's constructor.

    Raises `ValueError` if the constructor does not accept all of `sizes` as keywords.
    """
    parameters = inspect.signature(model).parameters
    names = set(parameters) - {"input_size", "output_size", "key", "layers"}
    extra = sorted(set(sizes) - names)
    if extra and not any(x.kind is x.VAR_KEYWORD for x in parameters.values()):
        expected = (
            f"among {quote_names(sorted(names))}" if names else "empty, because it has no sizes"
        )
        raise ValueError(f"`sizes` of {name!r} must be {expected}; got {quote_names(extra)}.")
    return set(parameters)


def check_call(model: Any, state: PyTree, begin: Any, *, tape: bool, **inputs: Any) -> list[Array]:
    """Check the arguments of a call, and return `begin` and the inputs as arrays.

    Raises `ValueError` for arguments that would otherwise fail inside a scan. The checks depend
    only on shapes and dtypes, so they cost nothing in jitted code.
    """
    whole = not hasattr(begin, "dtype")  # Python integers, 0 and 1, are accepted as flags
    begin, *arrays = (_array(name, x) for name, x in {"begin": begin, **inputs}.items())
    begin = begin.astype(bool) if whole and jnp.issubdtype(begin.dtype, jnp.integer) else begin
    shapes = [x.shape for x in arrays]
    steps = shapes[0][:1] if tape else ()
    for name, shape in zip(inputs, shapes, strict=True):
        if shape != (*steps, model.input_size):
            axes = f"(time, {model.input_size})" if tape else f"({model.input_size},)"
            length = f" with time = {steps[0]}" if steps and shape is not shapes[0] else ""
            raise ValueError(
                f"`{name}` must have shape {axes}{length}; got {shape}. Flatten observations to "
                "vectors, and use `jax.vmap` for batches."
            )
    if begin.dtype != jnp.bool_:
        raise ValueError(
            f"`begin` must be boolean; got {begin.dtype}. Use `begin.astype(bool)`. The flags "
            "mark the first step of each episode, not the last one."
        )
    if begin.shape != steps:
        raise ValueError(
            f"`begin` must have shape {steps}, one flag per observation; got {begin.shape}. "
            "`begin[t]` is True if `xs[t]` is the first observation of an episode."
        )
    expected, got = shapes_of(jax.eval_shape(model.init)), shapes_of(state)
    if expected != got:
        raise ValueError(
            f"`state` must have the shapes {expected}; got {got}. Start from `model.init()`, and "
            "pass the state that the previous call returned."
        )
    return [begin, *arrays]


def _array(name: str, values: Any) -> Array:
    try:
        return jnp.asarray([None] if values is None else values)
    except (TypeError, ValueError) as error:
        reason = f"{error}".split("\n")[0]
        raise ValueError(
            f"`{name}` must be an array, or a list that can be converted to one; got an object of "
            f"type {type(values).__name__}: {reason}"
        ) from error


def shapes_of(tree: PyTree) -> PyTree:
    """Return the shape of each array in `tree`."""
    return jax.tree.map(jnp.shape, tree)


def quote_names(names: Iterable[str]) -> str:
    """Join names in backticks with commas."""
    return ", ".join(f"`{name}`" for name in names)
