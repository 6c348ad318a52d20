"""The worked example of chapter 19: the last four observations as they are, and two sums of all."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from mmrl.memory import Memory
from mmrl.monoid import Affine, Product, Window


class TwoSpeeds(Memory):
    """(w_t, h_t) = (last four x, λ ⊙ h_{t-1} + (1 - λ) ⊙ W x_t): a product of two monoids.

    The window is exact and soon blind, the sums are blurred and reach far. λ is learned: half-lives
    start between 1 and 400 steps.
    """

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    monoid: Product
    fade: Float[Array, " h"]
    write: eqx.nn.Linear
    read: eqx.nn.Linear

    def __init__(self, input_size: int, output_size: int, *, key: PRNGKeyArray):
        write, read = jax.random.split(key)
        self.input_size, self.output_size = input_size, output_size
        self.monoid = Product((Window(4, (input_size,)), Affine((64,))))
        self.fade = jnp.linspace(0.0, 6.35, 64)
        self.write = eqx.nn.Linear(input_size, 64, key=write)
        self.read = eqx.nn.Linear(4 * input_size + 64, output_size, key=read)

    def encode(self, x) -> PyTree:
        newest = jnp.zeros((4, self.input_size)).at[-1].set(x)
        keep = jax.nn.sigmoid(self.fade)
        return (newest, jnp.ones(())), (keep, (1 - keep) * self.write(x))

    def decode(self, h, x) -> Array:
        (recent, _), (_, sums) = h
        return self.read(jnp.concatenate([recent.ravel(), sums]))
