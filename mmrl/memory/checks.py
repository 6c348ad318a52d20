"""Checks of the arguments of a memory, with errors that name the argument."""

import inspect
import numbers
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from mmrl._random import one_key


def check_sizes(key: Any, /, **sizes: Any) -> None:
    """Raise `ValueError` unless `key` is a key and every size a whole number of at least 1."""
    one_key(key)
    for name, size in sizes.items():
        if not isinstance(size, numbers.Integral) or isinstance(size, bool) or size < 1:
            raise ValueError(f"`{name}` must be a whole number of at least 1; got {size!r}.")


def check_keywords(name: str, model: Any, sizes: Iterable[str]) -> set[str]:
    """Return the parameters of a constructor. Raises `ValueError` if it lacks one of `sizes`."""
    parameters = inspect.signature(model).parameters
    allowed = set(parameters) - {"input_size", "output_size", "key", "layers"}
    unknown = sorted(set(sizes) - allowed)
    if unknown and not any(x.kind is x.VAR_KEYWORD for x in parameters.values()):
        wanted = f"among {listed(sorted(allowed))}" if allowed else "empty, since it takes none"
        raise ValueError(f"`sizes` of {name!r} must be {wanted}; got {listed(unknown)}.")
    return set(parameters)


def check_call(model: Any, state: PyTree, begin: Any, *, tape: bool, **inputs: Any) -> list[Array]:
    """Return `begin` and the inputs as arrays. The checks are free once jitted.

    Raises `ValueError` for arguments that would otherwise fail deep inside a scan.
    """
    whole = not hasattr(begin, "dtype")  # Python's 0 and 1 count as flags
    begin, *arrays = (_array(name, x) for name, x in {"begin": begin, **inputs}.items())
    begin = begin.astype(bool) if whole and jnp.issubdtype(begin.dtype, jnp.integer) else begin
    shapes = [x.shape for x in arrays]
    steps = shapes[0][:1] if tape else ()
    for name, shape in zip(inputs, shapes, strict=True):
        if shape != (*steps, model.input_size):
            axes = f"(time, {model.input_size})" if tape else f"({model.input_size},)"
            length = f" with time = {steps[0]}" if steps and shape is not shapes[0] else ""
            raise ValueError(
                f"`{name}` must have shape {axes}{length}; got {shape}. Make each observation one "
                "vector, without a batch axis; batch with `jax.vmap`."
            )
    if begin.dtype != jnp.bool_:
        raise ValueError(
            f"`begin` must be boolean, true where an episode starts; got {begin.dtype}. "
            "Use `begin.astype(bool)`, and not the flags of the steps that ended an episode."
        )
    if begin.shape != steps:
        raise ValueError(
            f"`begin` must have shape {steps}, one flag per observation; got {begin.shape}. "
            "`begin[t]` belongs to `xs[t]`."
        )
    wanted, got = shapes_of(jax.eval_shape(model.init)), shapes_of(state)
    if wanted != got:
        raise ValueError(
            f"`state` must have the shapes {wanted}; got {got}. Start from `model.init()` and "
            "pass on the state that the last call returned."
        )
    return [begin, *arrays]


def _array(name: str, values: Any) -> Array:
    try:
        return jnp.asarray([None] if values is None else values)
    except (TypeError, ValueError) as error:
        reason = f"{error}".split("\n")[0]
        raise ValueError(
            f"`{name}` must be an array, or lists of numbers of equal lengths; got an object of "
            f"type {type(values).__name__}: {reason}"
        ) from error


def shapes_of(tree: PyTree) -> PyTree:
    """Return a pytree of the shapes of the arrays in `tree`."""
    return jax.tree.map(jnp.shape, tree)


def listed(names: Iterable[str]) -> str:
    """Return names in backticks, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)
