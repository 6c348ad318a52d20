"""Sequence models: maps from a tape of observations to latent Markov states.

All have the same calls, with a monoid (`Memory`) or without (`Recurrent`, in `recurrent.py`):

    state = model.init()
    state, ys = model(state, xs, begin)             # a whole tape, for learning
    state, y = model.step(state, x, begin)          # one observation, for acting
    state, ys, next_ys = model.lookahead(state, xs, begin, next_xs)    # for targets

`begin[t]` belongs to `xs[t]`: where it is True, everything before `xs[t]` is forgotten first. The
state is the one *after* the last observation, so calls can be chained at any point of a tape.

Nothing crosses a `begin`, not even a NaN: it changes no later output and no gradient with respect
to a later observation. (Gradients with respect to *parameters* sum over all steps, so one NaN
spoils them, as in any network.)
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from mmrl._dtypes import like, like_result, promoting
from mmrl.memory.checks import check_call
from mmrl.monoid import Monoid, Resettable
from mmrl.scan import scan_and_last


class SequenceModel(eqx.Module):
    """Interface of every memory. Sizes are features per step; there is no batch axis.

    Every call raises `ValueError` for wrong shapes, flags that are not boolean, or a foreign state.
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
        """Read a tape; return the state after it and one output per step.

        `method` and `axis` are passed to `mmrl.scan.scan`; models that are not monoids accept only
        "sequential" and None. With an `axis`, `xs`, `begin` and the outputs are this device's part
        of the tape; `state`, before and after the whole tape, is equal on all devices.
        """

    @abc.abstractmethod
    def step(
        self, state: PyTree, x: Float[Array, " {self.input_size}"], begin: Bool[Array, ""]
    ) -> tuple[PyTree, Float[Array, " {self.output_size}"]]:
        """Read one observation, as a tape of length one; return the new state and the output."""

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
        """Read a tape; return also the output at t + 1 if `next_xs[t]` had followed `xs[t]`.

        One more step from each state, no second scan: s'_t has seen o_0, …, o_t and o'_t. (The
        paper's code reads the tape of next observations instead, so its memory never sees o_0.)
        """


class Memory(SequenceModel):
    """Memory monoids ((H, •, e), f, g): `encode` is f, `decode` is g.  Definition 3.2, Eqs. 5-8.

    The state is one element of H. Subclasses define the monoid, and f and g for a single step.
    """

    monoid: eqx.AbstractVar[Monoid]

    @abc.abstractmethod
    def encode(self, x: Float[Array, " {self.input_size}"]) -> PyTree:
        """Return f(x): one observation as an element of H."""

    @abc.abstractmethod
    def decode(
        self, h: PyTree, x: Float[Array, " {self.input_size}"]
    ) -> Float[Array, " {self.output_size}"]:
        """Return g(h, x): the Markov state, from the element and the latest observation."""

    @promoting
    def init(self) -> PyTree:
        """Return the identity of H."""
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
        """Return h_t = state • f(x_0) • … • f(x_t) with resets, and the last.  Eqs. 7, 20-22."""
        elements = like(jax.vmap(self.encode)(xs), state), begin
        start = state, jnp.zeros((), bool)
        hs, last = scan_and_last(Resettable(self.monoid), elements, start, method=method, axis=axis)
        return hs[0], last[0]

    @promoting
    def __call__(self, state, xs, begin, *, method="auto", axis=None) -> tuple[PyTree, Array]:
        begin, xs = check_call(self, state, begin, tape=True, xs=xs)
        hs, last = self.states(state, xs, begin, method=method, axis=axis)
        return last, jax.vmap(self.decode)(hs, xs)

    @promoting
    def step(self, state, x, begin) -> tuple[PyTree, Array]:
        """Read one observation; return the new state and the output."""
        begin, x = check_call(self, state, begin, tape=False, x=x)
        element = like(self.encode(x), state), jnp.asarray(begin)
        h, _ = Resettable(self.monoid)((state, jnp.zeros((), bool)), element)
        return h, self.decode(h, x)

    @promoting
    def lookahead(
        self, state, xs, begin, next_xs, *, method="auto", axis=None
    ) -> tuple[PyTree, Array, Array]:
        """Read a tape; return also the output after `next_xs[t]` at each step."""
        begin, xs, next_xs = check_call(self, state, begin, tape=True, xs=xs, next_xs=next_xs)
        hs, last = self.states(state, xs, begin, method=method, axis=axis)
        next_hs = jax.vmap(self.monoid)(hs, like(jax.vmap(self.encode)(next_xs), hs))
        return last, jax.vmap(self.decode)(hs, xs), jax.vmap(self.decode)(next_hs, next_xs)


@promoting
def dense(layer: eqx.nn.Linear, x: Float[Array, " in"]) -> Float[Array, " out"]:
    """Return W x + b, as x Wᵀ + b; `layer(x)` under `vmap` copies its product, slower on a CPU."""
    y = x @ layer.weight.T
    return y if layer.bias is None else y + layer.bias


def bounded_exp(
    x: Float[Array | np.ndarray, "*shape"], most: float = 40.0
) -> Float[Array, "*shape"]:
    """Return exp(x), with x bounded below by -40 and above by `most`.

    The result is never 0 or ∞, whose gradients would be NaN. Beyond the bounds the gradient is 0.
    """
    return jnp.exp(jnp.clip(x, -40.0, most))


def normalized(norm: eqx.nn.LayerNorm, x: Float[Array, " size"]) -> Float[Array, " size"]:
    """Return norm(x), or x itself if it has one entry, which every norm maps to a constant."""
    return norm(x) if x.size > 1 else x
