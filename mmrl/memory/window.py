"""Attention over a sliding window, with the relative positions of Transformer-XL."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from mmrl._dtypes import with_promotion
from mmrl.memory.base import Memory, dense
from mmrl.memory.checks import check_sizes
from mmrl.monoid import Window


class WindowAttention(Memory):
    """Multi-head attention over the last `window` steps of an episode.  Dai et al. 2019, §3.3.

    In each head, step t attends to step s = t - i with the logit ((q_t + u)ᵀ k_s + (q_t + v)ᵀ r_i)
    / √d, and y_t = W [head_1 ‖ … ‖ head_n]. Here r_i is trained, with one vector per head and
    distance; Transformer-XL computes it from sinusoids instead.

    The state contains the keys and values of the window, each of size `heads` × `head_size`, and
    the number of steps in the window. Positions before the start of the episode are masked. A step
    costs `window` × `heads` × `head_size`.
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    monoid: Window
    key: eqx.nn.Linear
    query: eqx.nn.Linear
    value: eqx.nn.Linear
    relative: Float[Array, "window heads size"]  # r, with the current step last
    content_bias: Float[Array, "heads size"]  # u
    position_bias: Float[Array, "heads size"]  # v
    read_out: eqx.nn.Linear

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        window: int = 16,
        heads: int = 2,
        head_size: int = 16,
        key: PRNGKeyArray,
    ):
        check_sizes(key, input_size=input_size, output_size=output_size)
        check_sizes(key, window=window, heads=heads, head_size=head_size)
        keys = jax.random.split(key, 5)
        width = heads * head_size
        self.input_size, self.output_size, self.heads = input_size, output_size, heads
        self.monoid = Window(window, (2 * width,))
        # A bias of the keys would shift all logits of a step by the same amount, so omit it.
        self.key = eqx.nn.Linear(input_size, width, use_bias=False, key=keys[0])
        self.query = eqx.nn.Linear(input_size, width, use_bias=False, key=keys[1])
        self.value = eqx.nn.Linear(input_size, width, key=keys[2])
        self.relative = jax.random.normal(keys[3], (window, heads, head_size))
        self.content_bias = jnp.zeros((heads, head_size))
        self.position_bias = jnp.zeros((heads, head_size))
        self.read_out = eqx.nn.Linear(width, output_size, key=keys[4])

    @with_promotion
    def encode(self, x) -> PyTree:
        """Return a window that contains the key and the value of one observation."""
        items, _ = self.monoid.identity()
        item = jnp.concatenate([dense(self.key, x), dense(self.value, x)])
        return items.at[-1].set(item), jnp.ones(())

    @with_promotion
    def decode(self, h, x) -> Array:
        """Return the output y_t."""
        weights, values = self.attention(h, x), self._split(h[0])[1]
        heads = jnp.einsum("ih,ihd->hd", weights, values)
        return dense(self.read_out, heads.ravel())

    @with_promotion
    def attention(self, h: PyTree, x: Float[Array, " in"]) -> Float[Array, "window heads"]:
        """Return the attention weights over the window, with the current step last.

        The weights of each head sum to 1, and empty slots have weight 0. `h` must contain at least
        one step.
        """
        (items, count), (window, heads, size) = h, self.relative.shape
        keys, _ = self._split(items)
        query = dense(self.query, x).reshape(heads, size)
        logits = jnp.einsum("hd,ihd->ih", query + self.content_bias, keys)
        logits += jnp.einsum("hd,ihd->ih", query + self.position_bias, self.relative)
        mask = jnp.arange(window) >= window - count
        return jax.nn.softmax(jnp.where(mask[:, None], logits * size**-0.5, -jnp.inf), axis=0)

    def _split(self, items: Float[Array, "window both"]) -> list[Float[Array, "window heads size"]]:
        """Return the keys and the values of a window."""
        return [x.reshape(len(items), self.heads, -1) for x in jnp.split(items, 2, axis=1)]
