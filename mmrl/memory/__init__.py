"""Memory models by name: maps from observations to Markov states.

    model = memory.make("lru", input_size=8, output_size=32, state_size=16, key=key)
    state, ys = model(model.init(), xs, begin)

`base.py` tells how they are called. Every file beside it is one model, or a family of them.
"""

import difflib
import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import jax
from jaxtyping import PRNGKeyArray

from mmrl._dtypes import promoting
from mmrl._own import find, told
from mmrl.memory.base import Memory, SequenceModel
from mmrl.memory.checks import check_outputs, check_sizes
from mmrl.memory.ffm import FFM
from mmrl.memory.frame_stack import FrameStack
from mmrl.memory.gated_delta import GatedDelta
from mmrl.memory.linear_attention import LinearAttention
from mmrl.memory.lru import LRU
from mmrl.memory.max_plus import MaxPlus
from mmrl.memory.min_gru import MinGRU
from mmrl.memory.none import Memoryless, Nothing
from mmrl.memory.recurrent import Recurrent
from mmrl.memory.residual import Residual
from mmrl.memory.rnn import GRU, LSTM, Elman
from mmrl.memory.s5 import S5

__all__ = [
    "FFM",
    "GRU",
    "LRU",
    "LSTM",
    "NAMES",
    "S5",
    "Elman",
    "FrameStack",
    "GatedDelta",
    "LinearAttention",
    "MaxPlus",
    "Memory",
    "Memoryless",
    "MinGRU",
    "Nothing",
    "Recurrent",
    "Residual",
    "SequenceModel",
    "make",
]

_MODELS = {
    "linear_attention": LinearAttention,
    "lru": LRU,
    "s5": S5,
    "ffm": FFM,
    "min_gru": MinGRU,
    "max_plus": MaxPlus,
    "gated_delta": GatedDelta,
    "frame_stack": FrameStack,
    "elman": Elman,
    "gru": GRU,
    "lstm": LSTM,
    "none": Memoryless,
}
NAMES = tuple(_MODELS)
_CALLS = ("init", "__call__", "step", "lookahead")


@promoting
def make(
    name: str,
    input_size: int,
    output_size: int,
    *,
    key: PRNGKeyArray,
    layers: int = 1,
    **sizes: Any,
) -> SequenceModel:
    """Return the model called `name`, one of `NAMES`; with several `layers`, a `Residual` stack.

    `sizes` are the keyword arguments of the model's own constructor, such as `state_size`. The
    layers of a stack are `output_size` wide. A memory of your own is called "my_module:MyMemory":
    a class or a function in my_module.py, in the current folder or on PYTHONPATH, that is called
    with (input_size, output_size, key=key, **sizes). The module is imported, so its code runs.

    Raises `ValueError` for an unknown name, an unknown keyword, a size below 1, and for a module
    or a memory of your own that fails, or that lacks a call of a `SequenceModel`.
    """
    model = _own(name) if ":" in str(name) else _MODELS.get(name)
    if model is None:
        near = difflib.get_close_matches(str(name).lower(), NAMES, n=3, cutoff=0.5)
        advice = f"Did you mean {_list(near)}?" if near else f"They are {_list(NAMES)}."
        advice += " One of your own is called my_module:MyMemory."
        raise ValueError(f"`name` must be a memory; got {name!r}. {advice}")
    parameters = inspect.signature(model).parameters
    allowed = set(parameters) - {"input_size", "output_size", "key"}
    unknown = sorted(set(sizes) - allowed)
    if unknown and not any(x.kind is x.VAR_KEYWORD for x in parameters.values()):
        wanted = f"among {_list(sorted(allowed))}" if allowed else "empty, since it takes none"
        raise ValueError(f"`sizes` of {name!r} must be {wanted}; got {_list(unknown)}.")
    check_sizes(key, layers=layers)
    if layers == 1:
        return model(input_size, output_size, key=key, **sizes)
    stack_key, *keys = jax.random.split(key, layers + 1)
    memories = [model(output_size, output_size, key=k, **sizes) for k in keys]
    return Residual(input_size, output_size, memories, key=stack_key)


def _own(name: str) -> Callable[..., Any]:
    """Return the constructor of a memory of the user's own; its errors name it."""
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
                f"`name` must name what builds a memory, which has {_list(_CALLS)}; got {name!r}, "
                f"which built an object of type {type(model).__name__} without {_list(lacking)}."
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


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
