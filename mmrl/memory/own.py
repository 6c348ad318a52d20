"""Custom memories, found by module and name: "my_module:MyMemory"."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from mmrl._own import find, told
from mmrl.memory.checks import listed, shapes_of

_CALLS = ("init", "__call__", "step", "lookahead")


def constructor(name: str) -> Callable[..., Any]:
    """Return the constructor of a custom memory; its errors name the memory."""
    own = find(name, "name")
    if not callable(own):
        raise ValueError(f"`name` must name a class or a function; got {name!r}, which is {own!r}.")

    @functools.wraps(own, updated=())
    def build(*args: Any, **kwargs: Any) -> Any:
        try:
            model = own(*args, **kwargs)
        except Exception as error:
            raise ValueError(
                "`name` must name what builds a memory when called with (input_size, output_size, "
                f"key=key); got {name!r}, which raised {told(error)}."
            ) from error
        if lacking := [call for call in _CALLS if not callable(getattr(model, call, None))]:
            raise ValueError(
                f"`name` must name what builds a memory, which has {listed(_CALLS)}; got {name!r}, "
                f"which built an object of type {type(model).__name__} without {listed(lacking)}."
            )
        try:
            check_outputs(model, *args[:2])
        except Exception as error:
            raise ValueError(
                f"`name` must name what builds a memory from {args[0]} numbers to {args[1]}; got "
                f"{name!r}, whose model raised {told(error)}."
            ) from error
        return model

    return build


def check_outputs(model: Any, input_size: int, output_size: int) -> None:
    """Raise `ValueError` unless the calls of a memory return `output_size` numbers per step."""
    x, begin = jnp.zeros((2, input_size)), jnp.array([True, False])
    calls: dict[str, Callable[[], Any]] = {
        "step": lambda: model.step(model.init(), x[0], begin[0]),
        "__call__": lambda: model(model.init(), x, begin),
        "lookahead": lambda: model.lookahead(model.init(), x, begin, x),
    }
    for name, call in calls.items():
        state, *outputs = jax.eval_shape(call)
        wanted = (output_size,) if name == "step" else (2, output_size)
        for y in outputs:
            if getattr(y, "shape", None) != wanted:
                raise ValueError(
                    f"its `{name}` must give an output of shape {wanted}, the last number being "
                    f"`output_size`; got {getattr(y, 'shape', y)}"
                )
        before, after = shapes_of(jax.eval_shape(model.init)), shapes_of(state)
        if before != after:
            raise ValueError(
                f"its `{name}` must return a state of the shapes of `init`, {before}; got {after}"
            )
