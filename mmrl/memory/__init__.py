"""Memory models, which map sequences of observations to Markov states.

    model = memory.make("lru", input_size=8, output_size=32, state_size=16, key=key)
    state, ys = model(model.init(), xs, begin)

All models implement the interface in `base.py`. A model is defined in the module of its name: for
example, `lru.py` defines the model "lru".
"""

import difflib
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
from jaxtyping import PRNGKeyArray

from mmrl._dtypes import with_promotion
from mmrl._lazy import homes, on_demand
from mmrl.memory.checks import check_keywords, check_sizes, quote_names

if TYPE_CHECKING:
    from mmrl.memory.base import Memory as Memory
    from mmrl.memory.base import SequenceModel as SequenceModel
    from mmrl.memory.elman import Elman as Elman
    from mmrl.memory.ffm import FFM as FFM
    from mmrl.memory.frame_stack import FrameStack as FrameStack
    from mmrl.memory.gated_delta import GatedDelta as GatedDelta
    from mmrl.memory.gru import GRU as GRU
    from mmrl.memory.gtrxl import GTrXL as GTrXL
    from mmrl.memory.linear_attention import LinearAttention as LinearAttention
    from mmrl.memory.lmu import LMU as LMU
    from mmrl.memory.lru import LRU as LRU
    from mmrl.memory.lstm import LSTM as LSTM
    from mmrl.memory.max_plus import MaxPlus as MaxPlus
    from mmrl.memory.min_gru import MinGRU as MinGRU
    from mmrl.memory.mlstm import MLSTM as MLSTM
    from mmrl.memory.none import Memoryless as Memoryless
    from mmrl.memory.nothing import Nothing as Nothing
    from mmrl.memory.recurrent import GatedRecurrent as GatedRecurrent
    from mmrl.memory.recurrent import Recurrent as Recurrent
    from mmrl.memory.residual import Residual as Residual
    from mmrl.memory.s5 import S5 as S5
    from mmrl.memory.s6 import S6 as S6
    from mmrl.memory.window import WindowAttention as WindowAttention

__all__, __getattr__, __dir__ = on_demand(__name__, "NAMES", "make")

_PARTS = ("base", "nothing", "recurrent", "residual")  # modules whose classes have no model name
_FILES = {home.rpartition(".")[2]: name for name, home in homes(__name__).items()}
NAMES = tuple(file for file in _FILES if file not in _PARTS)


@with_promotion
def make(
    name: str,
    input_size: int,
    output_size: int,
    *,
    key: PRNGKeyArray,
    layers: int = 1,
    **sizes: Any,
) -> "SequenceModel":
    """Create a memory model by name.

    `name` is one of `NAMES`, or "my_module:MyMemory" for a custom memory. The module my_module.py
    is imported from the current folder or from PYTHONPATH. MyMemory must be a class or function
    with the arguments (input_size, output_size, key=key, **sizes). `sizes` are keyword arguments of
    the model's constructor, such as `state_size`.

    If `layers` is above 1, the result is a `Residual` stack of models that are `output_size` wide.
    If the constructor has an argument `layers`, it builds the stack itself.

    Raises `ValueError` for an unknown name, an unknown keyword, or a size below 1. For a custom
    memory, also raises `ValueError` if the import or the constructor fails, or if the model lacks a
    method of `SequenceModel`.

        >>> import jax.numpy as jnp
        >>> model = make("lru", 3, 8, state_size=4, key=jax.random.key(0))
        >>> state, ys = model(model.init(), jnp.ones((5, 3)), jnp.arange(5) == 0)
        >>> ys.shape
        (5, 8)
    """
    model = _constructor(name)
    parameters = check_keywords(name, model, sizes)
    check_sizes(key, layers=layers)
    if "layers" in parameters:  # the model builds its own stack
        return model(input_size, output_size, key=key, layers=layers, **sizes)
    if layers == 1:
        return model(input_size, output_size, key=key, **sizes)
    from mmrl.memory.residual import Residual

    stack_key, *keys = jax.random.split(key, layers + 1)
    memories = [model(output_size, output_size, key=k, **sizes) for k in keys]
    return Residual(input_size, output_size, memories, key=stack_key)


def _constructor(name: str) -> Callable[..., Any]:
    """Return the class of a built-in memory, or the constructor of a custom memory."""
    if name in NAMES:
        return getattr(importlib.import_module(f"{__name__}.{name}"), _FILES[name])
    if ":" in str(name):
        from mmrl.memory import own

        return own.constructor(name)
    near = difflib.get_close_matches(str(name).lower(), NAMES, n=3, cutoff=0.5)
    advice = f"Did you mean {quote_names(near)}? " if near else ""
    advice += f"Use one of {quote_names(NAMES)}."
    raise ValueError(
        f"`name` must be the name of a memory; got {name!r}. {advice} For a custom memory, use "
        "my_module:MyMemory."
    )
