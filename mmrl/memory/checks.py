"""Checks of what a memory is built from and called with: an error that names the argument."""

import numbers
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree


def check_sizes(**sizes: Any) -> None:
    """Raises `ValueError` unless every size is a whole number of at least 1."""
    for name, size in sizes.items():
        if not isinstance(size, numbers.Integral) or isinstance(size, bool) or size < 1:
            raise ValueError(f"`{name}` must be a whole number of at least 1; got {size!r}.")


def check_call(model: Any, state: PyTree, begin: Any, *, tape: bool, **inputs: Any) -> None:
    """Raises `ValueError` for what would else fail deep inside a scan. Free once jitted."""
    shapes = [jnp.shape(x) for x in inputs.values()]
    steps = shapes[0][:1] if tape else ()
    for name, shape in zip(inputs, shapes, strict=True):
        if shape != (*steps, model.input_size):
            axes = f"(time, {model.input_size})" if tape else f"({model.input_size},)"
            length = f" with time = {steps[0]}" if steps and shape is not shapes[0] else ""
            raise ValueError(
                f"`{name}` must have shape {axes}{length}; got {shape}. Make each observation one "
                "vector; there is no batch axis, so batch with `jax.vmap`."
            )
    if jnp.result_type(begin) != jnp.bool_:
        raise ValueError(
            f"`begin` must be boolean, true where an episode starts; got {jnp.result_type(begin)}. "
            "Use `begin.astype(bool)`, and not the flags of the steps that ended an episode."
        )
    if jnp.shape(begin) != steps:
        raise ValueError(
            f"`begin` must have shape {steps}, one flag per observation; got {jnp.shape(begin)}. "
            "`begin[t]` belongs to `xs[t]`."
        )
    wanted, got = _shapes(jax.eval_shape(model.init)), _shapes(state)
    if wanted != got:
        raise ValueError(
            f"`state` must have the shapes {wanted}; got {got}. Start from `model.init()` and "
            "pass on the state that the last call returned."
        )


def _shapes(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.shape, tree)
