"""Memory models by name: maps from observations to Markov states.

    model = memory.make("lru", input_size=8, output_size=32, state_size=16, key=key)
    state, ys = model(model.init(), xs, begin)

`base.py` specifies their calls. Each model is a file next to it, which has the name of the model.
"""

import difflib
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
from jaxtyping import PRNGKeyArray

from mmrl._dtypes import promoting
from mmrl._lazy import homes, on_demand
from mmrl.memory.checks import check_keywords, check_sizes, listed

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
    from mmrl.memory.recurrent import Recurrent as Recurrent
    from mmrl.memory.residual import Residual as Residual
    from mmrl.memory.s5 import S5 as S5
    from mmrl.memory.s6 import S6 as S6
    from mmrl.memory.window import WindowAttention as WindowAttention

__all__, __getattr__, __dir__ = on_demand(__name__, "NAMES", "make")

_PARTS = ("base", "nothing", "recurrent", "residual")  # modules of models that have no name here
_FILES = {home.rpartition(".")[2]: name for name, home in homes(__name__).items()}
NAMES = tuple(file for file in _FILES if file not in _PARTS)


@promoting
def make(
    name: str,
    input_size: int,
    output_size: int,
    *,
    key: PRNGKeyArray,
    layers: int = 1,
    **sizes: Any,
) -> "SequenceModel":
    """Return the model called `name`, one of `NAMES`; with several `layers`, a `Residual` stack.

    `sizes` are the keyword arguments of the model's constructor, such as `state_size`. The layers
    of a stack are `output_size` wide; a constructor that takes `layers` stacks them itself. A
    custom memory is called "my_module:MyMemory": a class or function in my_module.py, in the
    current folder or on PYTHONPATH, that is called with (input_size, output_size, key=key,
    **sizes). The module is imported, so its code runs.

    Raises `ValueError` for an unknown name, an unknown keyword, a size below 1, and for a custom
    module or memory that fails, or that lacks a call of a `SequenceModel`.
    """
    model = _constructor(name)
    parameters = check_keywords(name, model, sizes)
    check_sizes(key, layers=layers)
    if "layers" in parameters:  # it is a stack itself
        return model(input_size, output_size, key=key, layers=layers, **sizes)
    if layers == 1:
        return model(input_size, output_size, key=key, **sizes)
    from mmrl.memory.residual import Residual

    stack_key, *keys = jax.random.split(key, layers + 1)
    memories = [model(output_size, output_size, key=k, **sizes) for k in keys]
    return Residual(input_size, output_size, memories, key=stack_key)


def _constructor(name: str) -> Callable[..., Any]:
    """Return the class of a name, or the user's class or function."""
    if name in NAMES:
        return getattr(importlib.import_module(f"{__name__}.{name}"), _FILES[name])
    if ":" in str(name):
        from mmrl.memory import own

        return own.constructor(name)
    near = difflib.get_close_matches(str(name).lower(), NAMES, n=3, cutoff=0.5)
    advice = f"Did you mean {listed(near)}?" if near else f"They are {listed(NAMES)}."
    raise ValueError(
        f"`name` must be a memory; got {name!r}. {advice} Name a custom memory my_module:MyMemory."
    )
