"""Custom memories, specified by module and name, such as "my_module:MyMemory"."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from mmrl._own import find, one_line
from mmrl.memory.checks import quote_names, shapes_of

_CALLS = ("init", "__call__", "step", "lookahead")


def constructor(name: str) -> Callable[..., Any]:
    """Return the constructor of a custom memory, which checks the models it builds.

    The constructor raises `ValueError` if the user's class or function raises an exception, or if
    the model that it returns lacks a method or has outputs of the wrong shape. The message contains
    `name`.
    """
    own = find(name, "name")
    if not callable(own):
        raise ValueError(f"`name` must name a class or a function; got {name!r}, which is {own!r}.")

    @functools.wraps(own, updated=())
    def build(*args: Any, **kwargs: Any) -> Any:
        try:
            model = own(*args, **kwargs)
        except Exception as error:
            raise ValueError(
                "`name` must refer to a class or function that builds a memory when called "
                f"with (input_size, output_size, key=key); got {name!r}, which raised "
                f"{one_line(error)}."
            ) from error
        if missing := [call for call in _CALLS if not callable(getattr(model, call, None))]:
            raise ValueError(
                "`name` must refer to a class or function that builds a memory with the "
                f"methods {quote_names(_CALLS)}; got {name!r}, which built an object of type "
                f"{type(model).__name__} without {quote_names(missing)}."
            )
        try:
            check_outputs(model, *args[:2])
        except Exception as error:
            raise ValueError(
                "`name` must refer to a class or function that builds a memory with "
                f"{args[0]} inputs and {args[1]} outputs; got {name!r}, whose model raised "
                f"{one_line(error)}."
            ) from error
        return model

    return build


def check_outputs(model: Any, input_size: int, output_size: int) -> None:
    """Check the shapes of a memory's outputs and states. Raises `ValueError` if one is wrong."""
    x, begin = jnp.zeros((2, input_size)), jnp.array([True, False])
    calls: dict[str, Callable[[], Any]] = {
        "step": lambda: model.step(model.init(), x[0], begin[0]),
        "__call__": lambda: model(model.init(), x, begin),
        "lookahead": lambda: model.lookahead(model.init(), x, begin, x),
    }
    for name, call in calls.items():
        state, *outputs = jax.eval_shape(call)
        expected = (output_size,) if name == "step" else (2, output_size)
        for y in outputs:
            if getattr(y, "shape", None) != expected:
                raise ValueError(
                    f"`{name}` must return an output of shape {expected}, whose last axis has "
                    f"size `output_size`; got {getattr(y, 'shape', y)}"
                )
        before, after = shapes_of(jax.eval_shape(model.init)), shapes_of(state)
        if before != after:
            raise ValueError(
                f"`{name}` must return a state with the shapes that `init` returns, {before}; got "
                f"{after}"
            )
