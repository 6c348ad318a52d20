"""Sequence models, which map a tape of observations to latent Markov states.

All models implement the same interface. Models whose recurrence is a monoid are subclasses of
`Memory`, and the others are subclasses of `Recurrent` (see `recurrent.py`).

    state = model.init()
    state, ys = model(state, xs, begin)             # a complete tape, for learning
    state, y = model.step(state, x, begin)          # one observation, for acting
    state, ys, next_ys = model.lookahead(state, xs, begin, next_xs)    # for targets

If `begin[t]` is True, the memory is reset before it receives `xs[t]`. The returned state is the
state *after* the last observation, so a tape can be split at any step and processed in pieces.

After a reset, the outputs and their gradients with respect to observations do not depend on earlier
observations, even if earlier observations are NaN. Gradients with respect to *parameters* are sums
over all steps, so these gradients become NaN if a single step is NaN.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree, Shaped

from mmrl._dtypes import like, like_result, with_promotion
from mmrl.memory.checks import check_call
from mmrl.monoid import Monoid, Resettable
from mmrl.scan import scan_and_last


class SequenceModel(eqx.Module):
    """Interface of all memories.

    `input_size` and `output_size` are the numbers of features per step. Methods operate on a single
    tape; use `jax.vmap` for batches. Methods raise `ValueError` for wrong shapes, for flags that
    are not boolean, and for the state of a different model.
    """

    input_size: eqx.AbstractVar[int]
    output_size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def init(self) -> PyTree:
        """Return the state before the first observation."""

    @abc.abstractmethod
    def __call__(
        self,
        state: PyTree,
        xs: Float[Array, "time {self.input_size}"],
        begin: Bool[Array, " time"],
        *,
        method: str = "auto",
        axis: str | None = None,
    ) -> tuple[PyTree, Float[Array, "time {self.output_size}"]]:
        """Process a tape; return the last state and the output of each step.

        `method` and `axis` are passed to `mmrl.scan.scan`. Models that are not monoids accept only
        the methods "auto" and "sequential", and no `axis`. With an `axis`, the tape is sharded:
        `xs`, `begin` and the outputs contain this device's steps, while the initial and the last
        state refer to the complete tape and are replicated on all devices.
        """

    @abc.abstractmethod
    def step(
        self, state: PyTree, x: Float[Array, " {self.input_size}"], begin: Bool[Array, ""]
    ) -> tuple[PyTree, Float[Array, " {self.output_size}"]]:
        """Process one observation, like a tape of length 1; return the new state and the output."""

    @abc.abstractmethod
    def lookahead(
        self,
        state: PyTree,
        xs: Float[Array, "time {self.input_size}"],
        begin: Bool[Array, " time"],
        next_xs: Float[Array, "time {self.input_size}"],
        *,
        method: str = "auto",
        axis: str | None = None,
    ) -> tuple[
        PyTree, Float[Array, "time {self.output_size}"], Float[Array, "time {self.output_size}"]
    ]:
        """Process a tape; return the last state, and the outputs for `xs` and for `next_xs`.

        The output for `next_xs[t]` is the output at t + 1 if `next_xs[t]` follows `xs[t]`: one step
        from the state after `xs[t]`, so s'_t depends on o_0, …, o_t and o'_t. The published code of
        Morad et al. 2024 scans only the next observations, so its memory never receives o_0.
        """


class Memory(SequenceModel):
    """Memory monoid ((H, •, e), f, g).  Definition 3.2, Eqs. 5-8.

    Subclasses define the monoid, f (`encode`) and g (`decode`), both for a single step. The state
    is an element of H.
    """

    monoid: eqx.AbstractVar[Monoid]

    @abc.abstractmethod
    def encode(self, x: Float[Array, " {self.input_size}"]) -> PyTree:
        """Return f(x), the element of H for one observation."""

    @abc.abstractmethod
    def decode(
        self, h: PyTree, x: Float[Array, " {self.input_size}"]
    ) -> Float[Array, " {self.output_size}"]:
        """Return the Markov state g(h, x), given the element h and the latest observation x."""

    @with_promotion
    def init(self) -> PyTree:
        """Return the identity e of H."""
        return like_result(self.monoid.identity(), self.encode, jnp.zeros(self.input_size))

    def states(
        self,
        state: PyTree,
        xs: Float[Array, "time {self.input_size}"],
        begin: Bool[Array, " time"],
        *,
        method: str = "auto",
        axis: str | None = None,
    ) -> tuple[PyTree, PyTree]:
        """Return the states h_t of all steps, and the last state.  Eqs. 7, 20-22.

        h_t = state • f(x_0) • … • f(x_t), with resets where `begin` is True.
        """
        elements = like(jax.vmap(self.encode)(xs), state), begin
        start = state, jnp.zeros((), bool)
        hs, last = scan_and_last(Resettable(self.monoid), elements, start, method=method, axis=axis)
        return hs[0], last[0]

    @with_promotion
    def __call__(self, state, xs, begin, *, method="auto", axis=None) -> tuple[PyTree, Array]:
        begin, xs = check_call(self, state, begin, tape=True, xs=xs)
        hs, last = self.states(state, xs, begin, method=method, axis=axis)
        return last, jax.vmap(self.decode)(hs, xs)

    @with_promotion
    def step(self, state, x, begin) -> tuple[PyTree, Array]:
        """Process one observation; return the new state and the output."""
        begin, x = check_call(self, state, begin, tape=False, x=x)
        element = like(self.encode(x), state), jnp.asarray(begin)
        h, _ = Resettable(self.monoid)((state, jnp.zeros((), bool)), element)
        return h, self.decode(h, x)

    @with_promotion
    def lookahead(
        self, state, xs, begin, next_xs, *, method="auto", axis=None
    ) -> tuple[PyTree, Array, Array]:
        """Process a tape; return the last state, and the outputs for `xs` and for `next_xs`."""
        begin, xs, next_xs = check_call(self, state, begin, tape=True, xs=xs, next_xs=next_xs)
        hs, last = self.states(state, xs, begin, method=method, axis=axis)
        next_hs = jax.vmap(self.monoid)(hs, like(jax.vmap(self.encode)(next_xs), hs))
        return last, jax.vmap(self.decode)(hs, xs), jax.vmap(self.decode)(next_hs, next_xs)


@with_promotion
def dense(layer: eqx.nn.Linear, x: Shaped[Array, " in"]) -> Float[Array, " out"]:
    """Return x Wᵀ + b, which is faster on a CPU than W x + b, because `vmap` transposes W x."""
    y = x @ layer.weight.T
    return y if layer.bias is None else y + layer.bias


def bounded_exp(
    x: Float[Array | np.ndarray, "*shape"], most: float = 40.0
) -> Float[Array, "*shape"]:
    """Return exp(x), with x clipped to [-40, `most`].

    The result is never 0 or ∞, so gradients are not NaN. Where x is clipped, the gradient is 0.
    """
    return jnp.exp(jnp.clip(x, -40.0, most))


def apply_norm(norm: eqx.nn.LayerNorm, x: Float[Array, " size"]) -> Float[Array, " size"]:
    """Apply a layer norm, unless x has a single entry, which the norm would make constant."""
    return norm(x) if x.size > 1 else x
