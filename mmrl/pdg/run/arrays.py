"""Array libraries for the interpreter: JAX and NumPy, which implement the protocol `Arrays`.

    compiled.interpret(T=9)                      # JAX: each operation is compiled once
    compiled.interpret(T=9, backend="numpy")     # NumPy: plain calls, for a debugger

With NumPy, the rows of `ops.TABLE` are NumPy functions, and functions passed to `fn` are called
with NumPy arrays, so you can set a breakpoint in them. JAX still computes their calls of
`jax.numpy` one by one, as well as random numbers, derivatives and operations that a pass has
vectorized; the results are converted to NumPy arrays. JAX also traces functions that return
residuals, unless you use `gradient(…, recompute=True)`. If an environment is not written in JAX,
its step is a `Program.host` function, which is called directly.

To add a third library, write a class with these methods. Like NumPy, PyTorch (the paper's second
backend) has `stack`, `index_select` and in-place writes, and it compiles operations with
`torch.compile`. JAX functions of the program could exchange arrays through DLPack without copies
(`torch.from_dlpack(x)`, `jax.dlpack.from_dlpack(x)`). PyTorch cannot differentiate or compile
`ops.TABLE` and these functions unless they are rewritten for it.
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
"""Function `run(env, *inputs)` of an operation."""


@runtime_checkable
class Arrays(Protocol):
    """Array library of the interpreter.

    Values are pytrees of arrays, and the first axis of a block indexes slots. `donates` is True if
    an operation can overwrite its inputs with its outputs.
    """

    @property
    def donates(self) -> bool: ...

    def asarray(self, x: Any) -> Any:
        """Convert a number, or an array of any library, to an array of this library."""
        ...

    def thunk(self, run: Run, types: PyTree) -> Callable[..., tuple[PyTree, ...]]:
        """Return a function `thunk(donations, others, env)` that calls `run`.

        `donations` and `others` map input positions to values; the thunk may overwrite the arrays
        in `donations`. `types` contains the types of the outputs. `env` contains the values of
        symbols, the inputs of the run, and the key.
        """
        ...

    def stack(self, values: Sequence[PyTree], widths: tuple[int, ...]) -> PyTree:
        """Stack values in one array, whose leading axes have the sizes `widths`."""
        ...

    def write(self, block: PyTree, value: PyTree, slot: int) -> PyTree:
        """Write a value to a slot, and return the block.

        The old block must not be used again.
        """
        ...

    def row(self, block: PyTree, slot: int) -> PyTree:
        """Return the value in a slot."""
        ...

    def window(self, block: PyTree, low: int, count: int, width: int) -> PyTree:
        """Return `count` values starting at slot `low`, padded with zeros to `width`.

        Slots wrap around at the end of the block.
        """
        ...

    def move(self, values: Sequence[PyTree], place: str) -> list[PyTree]:
        """Copy values to the memory of the host or of the device."""
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
    """JAX as array library: operations are compiled, and may overwrite their inputs."""

    donates: bool = True

    def asarray(self, x: Any) -> jax.Array:
        return jnp.asarray(x)

    def stack(self, values: Sequence[PyTree], widths: tuple[int, ...]) -> PyTree:
        return _jax_stack(values, widths)

    def window(self, block: PyTree, low: int, count: int, width: int) -> PyTree:
        return _jax_window(block, low, count, width)

    def thunk(self, run: Run, types: PyTree) -> Callable[..., tuple[PyTree, ...]]:
        @functools.partial(jax.jit, donate_argnums=0)
        def thunk(donations: dict[int, Any], others: dict[int, Any], env: dict[str, Any]) -> tuple:
            values = {**donations, **others}
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
    """NumPy as array library: operations are plain calls that a debugger can step into."""

    donates = False

    def asarray(self, x: Any) -> np.ndarray:
        return np.asarray(x)

    def stack(self, values: Sequence[PyTree], widths: tuple[int, ...]) -> PyTree:
        return _stack(np, values, widths)

    def window(self, block: PyTree, low: int, count: int, width: int) -> PyTree:
        return _window(np, block, low, count, width)

    def thunk(self, run: Run, types: PyTree) -> Callable[..., tuple[PyTree, ...]]:
        def thunk(donations: dict[int, Any], others: dict[int, Any], env: dict[str, Any]) -> tuple:
            # Copy the inputs, because a function may write to them.
            values = jax.tree.map(np.array, {**donations, **others})
            with np.errstate(all="ignore"):
                outputs = tuple(run(env, *(values[k] for k in sorted(values))))
            ids = {id(x) for x in jax.tree.leaves(values)}

            def own(x: Any, kind: jax.ShapeDtypeStruct) -> np.ndarray:
                x = np.asarray(x, kind.dtype)  # NumPy may return a wider dtype
                return x if x.base is None and id(x) not in ids else x.copy()

            return jax.tree.map(own, outputs, types)

        return thunk

    def write(self, block: PyTree, value: PyTree, slot: int) -> PyTree:
        jax.tree.map(lambda b, v: b.__setitem__(slot, v), block, value)
        return block

    def row(self, block: PyTree, slot: int) -> PyTree:
        return jax.tree.map(lambda b: b[slot].copy(), block)

    def move(self, values: Sequence[PyTree], place: str) -> list[PyTree]:
        return jax.tree.map(np.copy, list(values))  # device and host share the same memory


BACKENDS: dict[str, Arrays] = {"jax": Jax(), "numpy": NumPy()}
