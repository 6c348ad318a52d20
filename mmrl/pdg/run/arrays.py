"""Array libraries of the interpreter: JAX and NumPy behind one small protocol.

    compiled.interpret(T=9)                      # JAX: each operation is compiled once
    compiled.interpret(T=9, backend="numpy")     # NumPy: plain calls, for a debugger

With NumPy the rows of `ops.TABLE` are NumPy's functions, and a function that was given to `fn` is
called with NumPy arrays: put a breakpoint in it. What it takes from `jax.numpy` is still computed
by JAX, call by call, as are random numbers, derivatives and operations that a pass vectorized, and
it arrives as a NumPy array. A function that returns its residuals is traced by JAX; it is called
after `gradient(…, recompute=True)`. An environment that is not written in JAX is a `Program.host`
function, whose NumPy step is called directly.

A third library is a class with these methods. PyTorch, the paper's second backend, has `stack`,
`index_select` and writing in place, as NumPy has, and `torch.compile` for operations. Functions of
the program that are written in JAX would exchange their arrays through DLPack, without copies
(`torch.from_dlpack(x)`, `jax.dlpack.from_dlpack(x)`); the table and the functions would have to be
written for PyTorch before it could differentiate or compile them.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from mmrl.pdg.plan.account import HOST

HOST_MEMORY = "pinned_host"
Run = Callable[..., tuple[PyTree, ...]]
"""`run(env, *inputs)` of an operation."""


@runtime_checkable
class Arrays(Protocol):
    """An array library. Values are pytrees of its arrays, and a block has an axis of slots first.

    `donates` is True if an operation can write its outputs over its inputs.
    """

    @property
    def donates(self) -> bool: ...

    def asarray(self, x: Any) -> Any:
        """Return anything with numbers as an array of this library."""
        ...

    def thunk(self, run: Run, types: PyTree) -> Callable[..., tuple[PyTree, ...]]:
        """Return `thunk(donated, kept, env)`: `run` on values by their place among its inputs.

        `types` has the types of its outputs; `env` has the numbers of symbols, the inputs and the
        key.
        """
        ...

    def stack(self, values: Sequence[PyTree], widths: tuple[int, ...]) -> PyTree:
        """Return values as one array with leading axes of these `widths`."""
        ...

    def write(self, block: PyTree, value: PyTree, slot: int) -> PyTree:
        """Return the block with a value in a slot; the given block is used up."""
        ...

    def row(self, block: PyTree, slot: int) -> PyTree:
        """Return the value in a slot."""
        ...

    def window(self, block: PyTree, low: int, count: int, width: int) -> PyTree:
        """Return `count` values from slot `low` on, around the end of the block, then zeros."""
        ...

    def move(self, values: Sequence[PyTree], place: str) -> list[PyTree]:
        """Move values to the host or to the device."""
        ...


def _stack(xp: Any, values: Sequence[PyTree], widths: tuple[int, ...]) -> PyTree:
    return jax.tree.map(lambda *xs: xp.stack(xs).reshape(widths + xs[0].shape), *values)


def _window(xp: Any, block: PyTree, low: Any, count: Any, width: int) -> PyTree:
    at = xp.arange(width)

    def window(b: Any) -> Any:
        rows = xp.take(b, (low + at) % b.shape[0], axis=0)
        inside = (at < count).reshape(-1, *[1] * (b.ndim - 1))
        return xp.where(inside, rows, xp.zeros_like(rows))

    return jax.tree.map(window, block)


_jax_stack = jax.jit(functools.partial(_stack, jnp), static_argnums=1)
_jax_window = jax.jit(functools.partial(_window, jnp), static_argnums=3)


@dataclasses.dataclass(frozen=True)
class Jax:
    """JAX: every operation is compiled, and may be given the memory of what it reads."""

    donates: bool = True

    def asarray(self, x: Any) -> jax.Array:
        return jnp.asarray(x)

    def stack(self, values: Sequence[PyTree], widths: tuple[int, ...]) -> PyTree:
        return _jax_stack(values, widths)

    def window(self, block: PyTree, low: int, count: int, width: int) -> PyTree:
        return _jax_window(block, low, count, width)

    def thunk(self, run: Run, types: PyTree) -> Callable[..., tuple[PyTree, ...]]:
        @functools.partial(jax.jit, donate_argnums=0)
        def thunk(donated: dict[int, Any], kept: dict[int, Any], env: dict[str, Any]) -> tuple:
            values = {**donated, **kept}
            return run(env, *(values[k] for k in sorted(values)))

        return thunk

    @staticmethod
    @functools.partial(jax.jit, donate_argnums=0)
    def write(block: PyTree, value: PyTree, slot: Any) -> PyTree:
        put = jax.lax.dynamic_update_index_in_dim
        return jax.tree.map(lambda b, v: put(b, v, slot, 0), block, value)

    @staticmethod
    @jax.jit
    def row(block: PyTree, slot: Any) -> PyTree:
        take = functools.partial(jax.lax.dynamic_index_in_dim, index=slot, keepdims=False)
        return jax.tree.map(take, block)

    def move(self, values: Sequence[PyTree], place: str) -> list[PyTree]:
        def there(x: jax.Array) -> Any:
            own = x.sharding._device_assignment[0].default_memory().kind
            return x.sharding.with_memory_kind(HOST_MEMORY if place == HOST else own)

        return jax.device_put(list(values), jax.tree.map(there, list(values)))


class NumPy:
    """NumPy: every operation is a plain call, which a debugger can enter."""

    donates = False

    def asarray(self, x: Any) -> np.ndarray:
        return np.asarray(x)

    def stack(self, values: Sequence[PyTree], widths: tuple[int, ...]) -> PyTree:
        return _stack(np, values, widths)

    def window(self, block: PyTree, low: int, count: int, width: int) -> PyTree:
        return _window(np, block, low, count, width)

    def thunk(self, run: Run, types: PyTree) -> Callable[..., tuple[PyTree, ...]]:
        def thunk(donated: dict[int, Any], kept: dict[int, Any], env: dict[str, Any]) -> tuple:
            values = jax.tree.map(np.array, {**donated, **kept})  # a function may write into them
            with np.errstate(all="ignore"):
                outputs = tuple(run(env, *(values[k] for k in sorted(values))))
            ids = {id(x) for x in jax.tree.leaves(values)}

            def own(x: Any, kind: jax.ShapeDtypeStruct) -> np.ndarray:
                x = np.asarray(x, kind.dtype)  # NumPy's sums of int32 are int64
                return x if x.base is None and id(x) not in ids else x.copy()

            return jax.tree.map(own, outputs, types)

        return thunk

    def write(self, block: PyTree, value: PyTree, slot: int) -> PyTree:
        jax.tree.map(lambda b, v: b.__setitem__(slot, v), block, value)
        return block

    def row(self, block: PyTree, slot: int) -> PyTree:
        return jax.tree.map(lambda b: b[slot].copy(), block)

    def move(self, values: Sequence[PyTree], place: str) -> list[PyTree]:
        return jax.tree.map(np.copy, list(values))  # the device is the host


BACKENDS: dict[str, Arrays] = {"jax": Jax(), "numpy": NumPy()}
