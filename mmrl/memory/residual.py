"""Deep memories: stacks of sequence models, each wrapped in a residual block."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import SequenceModel, apply_norm, dense
from mmrl.memory.checks import check_call, check_sizes

_along = jax.vmap(dense, in_axes=(None, 0))  # applies a layer to every step of a tape


class Block(eqx.Module):
    """Residual block around a memory, x ↦ x + (W₁ u + b₁) ⊙ σ(W₂ u + b₂).

    u = GELU(memory(LN(x))). This is Eq. 66 with a residual connection. `before` and `after` compute
    the parts before and after the memory, for a single step.
    """

    norm: eqx.nn.LayerNorm
    memory: SequenceModel
    value: eqx.nn.Linear
    gate: eqx.nn.Linear

    def __init__(self, memory: SequenceModel, *, key: PRNGKeyArray):
        value_key, gate_key = jax.random.split(key)
        width = memory.output_size
        self.norm = eqx.nn.LayerNorm(width)
        self.memory = memory
        self.value = eqx.nn.Linear(width, width, key=value_key)
        self.gate = eqx.nn.Linear(width, width, key=gate_key)

    @with_promotion
    def before(self, x: Float[Array, " width"]) -> Float[Array, " width"]:
        """Return the memory's input: LN(x), or x itself if its width is 1."""
        return apply_norm(self.norm, x)

    @with_promotion
    def after(self, x: Float[Array, " width"], y: Float[Array, " width"]) -> Float[Array, " width"]:
        """Return the block's output, given its input x and the memory's output y."""
        u = jax.nn.gelu(y)
        return x + dense(self.value, u) * jax.nn.sigmoid(dense(self.gate, u))


class Residual(SequenceModel):
    """Stack of memories: W_out ∘ block_L ∘ … ∘ block_1 ∘ W_in.

    The state is a tuple with the state of each memory. The input and output sizes of all `memories`
    must be equal, but their classes may differ.
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    read_in: eqx.nn.Linear
    blocks: tuple[Any, ...]  # `Block`s, or modules with `memory`, `before` and `after`
    read_out: eqx.nn.Linear

    def __init__(
        self,
        input_size: int,
        output_size: int,
        memories: Sequence[SequenceModel],
        *,
        block: Callable[..., Any] = Block,
        key: PRNGKeyArray,
    ):
        check_sizes(key, input_size=input_size, output_size=output_size)
        widths = {size for m in memories for size in (m.input_size, m.output_size)}
        if len(widths) != 1:
            raise ValueError(
                "`memories` must contain at least one model, and all input and output sizes must "
                f"be equal; got the sizes {sorted(widths)}."
            )
        (width,) = widths
        keys = jax.random.split(key, len(memories) + 2)
        self.input_size, self.output_size = input_size, output_size
        self.read_in = eqx.nn.Linear(input_size, width, key=keys[0])
        self.blocks = tuple(block(m, key=k) for m, k in zip(memories, keys[2:], strict=True))
        self.read_out = eqx.nn.Linear(width, output_size, key=keys[1])

    def init(self) -> PyTree:
        """Return a tuple with the initial state of each memory."""
        return tuple(block.memory.init() for block in self.blocks)

    @with_promotion
    def __call__(self, state, xs, begin, *, method="auto", axis=None) -> tuple[PyTree, Array]:
        begin, xs = check_call(self, state, begin, tape=True, xs=xs)
        xs, after = _along(self.read_in, xs), []
        for block, h in zip(self.blocks, state, strict=True):
            h, ys = block.memory(h, jax.vmap(block.before)(xs), begin, method=method, axis=axis)
            xs = jax.vmap(block.after)(xs, ys)
            after.append(h)
        return tuple(after), _along(self.read_out, xs)

    @with_promotion
    def step(self, state, x, begin) -> tuple[PyTree, Array]:
        """Process one observation; return the new state and the output."""
        begin, x = check_call(self, state, begin, tape=False, x=x)
        x, after = dense(self.read_in, x), []
        for block, h in zip(self.blocks, state, strict=True):
            h, y = block.memory.step(h, block.before(x), begin)
            x = block.after(x, y)
            after.append(h)
        return tuple(after), dense(self.read_out, x)

    @with_promotion
    def lookahead(
        self, state, xs, begin, next_xs, *, method="auto", axis=None
    ) -> tuple[PyTree, Array, Array]:
        """Process a tape; return the last state, and the outputs for `xs` and for `next_xs`."""
        # Each layer computes its states from `xs` only. Its outputs for `next_xs` are the next
        # layer's `next_xs`.
        begin, xs, next_xs = check_call(self, state, begin, tape=True, xs=xs, next_xs=next_xs)
        xs, next_xs, after = _along(self.read_in, xs), _along(self.read_in, next_xs), []
        for block, h in zip(self.blocks, state, strict=True):
            before = jax.vmap(block.before)
            h, ys, next_ys = block.memory.lookahead(
                h, before(xs), begin, before(next_xs), method=method, axis=axis
            )
            xs, next_xs = jax.vmap(block.after)(xs, ys), jax.vmap(block.after)(next_xs, next_ys)
            after.append(h)
        return tuple(after), _along(self.read_out, xs), _along(self.read_out, next_xs)
