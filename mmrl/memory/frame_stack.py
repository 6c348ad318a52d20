"""Frame stacking (Mnih et al. 2015), which keeps the last few observations unchanged."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import Memory, dense
from mmrl.memory.checks import check_sizes
from mmrl.monoid import Window


class FrameStack(Memory):
    """Stack of the last k observations, y_t = W [x_{t-k+1} ‖ … ‖ x_t].

    `frames` is k. At the beginning of an episode the stack is padded with zeros. Frame stacking is
    a baseline for the other memories: it recalls the last k steps exactly and nothing before them.

        >>> import jax
        >>> stack = FrameStack(3, 8, frames=2, key=jax.random.key(0))
        >>> stack.init()[0].shape  # room for two observations
        (2, 3)
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    monoid: Window
    read_out: eqx.nn.Linear

    def __init__(self, input_size: int, output_size: int, *, frames: int = 4, key: PRNGKeyArray):
        check_sizes(key, input_size=input_size, output_size=output_size, frames=frames)
        self.input_size, self.output_size = input_size, output_size
        self.monoid = Window(frames, (input_size,))
        self.read_out = eqx.nn.Linear(frames * input_size, output_size, key=key)

    @with_promotion
    def encode(self, x) -> PyTree:
        """Return a window that contains one observation."""
        items, _ = self.monoid.identity()
        return items.at[-1].set(x), jnp.ones(())

    @with_promotion
    def decode(self, h, x) -> Array:
        """Return the output y_t."""
        return dense(self.read_out, h[0].ravel())
