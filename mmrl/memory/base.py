"""Sequence models: maps from a tape of observations to latent Markov states.

One call for all of them, whether the recurrence is a monoid (`Memory`) or not (`Recurrent`):

    state = model.init()
    state, ys = model(state, xs, begin)             # a whole tape, for learning
    state, y = model.step(state, x, begin)          # one observation, for acting
    state, ys, next_ys = model.lookahead(state, xs, begin, next_xs)    # for targets

`begin[t]` travels with `xs[t]`: where it is true, everything before `xs[t]` is forgotten first. The
state is what comes *after* the last observation, so calls can be chained at any point of a tape.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from mmrl.monoid import Monoid, Resettable
from mmrl.scan import scan


class SequenceModel(eqx.Module):
    """What every memory offers. Sizes are features per step; there is no batch axis."""

    input_size: eqx.AbstractVar[int]
    output_size: eqx.AbstractVar[int]

    @abc.abstractmethod
    def init(self) -> PyTree:
        """The state before the first observation."""

    @abc.abstractmethod
    def __call__(
        self,
        state: PyTree,
        xs: Float[Array, "time {self.input_size}"],
        begin: Bool[Array, " time"],
        *,
        method: str = "auto",
    ) -> tuple[PyTree, Float[Array, "time {self.output_size}"]]:
        """Reads a tape; returns the state after it and one output per step.

        `method` is passed to `mmrl.scan.scan`; models that are no monoid know only "sequential".
        """

    @abc.abstractmethod
    def step(
        self, state: PyTree, x: Float[Array, " {self.input_size}"], begin: Bool[Array, ""]
    ) -> tuple[PyTree, Float[Array, " {self.output_size}"]]:
        """Reads one observation: equal to a tape of length one."""

    @abc.abstractmethod
    def lookahead(
        self,
        state: PyTree,
        xs: Float[Array, "time {self.input_size}"],
        begin: Bool[Array, " time"],
        next_xs: Float[Array, "time {self.input_size}"],
        *,
        method: str = "auto",
    ) -> tuple[
        PyTree, Float[Array, "time {self.output_size}"], Float[Array, "time {self.output_size}"]
    ]:
        """Also returns the output at t + 1 had `next_xs[t]` followed `xs[t]` in the same episode.

        One more step from each state, no second scan: s'_t has seen o_0, …, o_t and o'_t. (Reading
        the tape of next observations instead, as the paper's code does, never shows it o_0.)
        """


class Memory(SequenceModel):
    """A memory monoid ((H, •, e), f, g): `encode` is f, `decode` is g.  Definition 3.2, Eqs. 5-8.

    The state is one element of H. Subclasses give the monoid, f and g for a single step.
    """

    monoid: eqx.AbstractVar[Monoid]

    @abc.abstractmethod
    def encode(self, x: Float[Array, " {self.input_size}"]) -> PyTree:
        """f: one observation as an element of H."""

    @abc.abstractmethod
    def decode(
        self, h: PyTree, x: Float[Array, " {self.input_size}"]
    ) -> Float[Array, " {self.output_size}"]:
        """g: the Markov state, from the element and the latest observation."""

    def init(self) -> PyTree:
        return self.monoid.identity()

    def states(
        self,
        state: PyTree,
        xs: Float[Array, "time {self.input_size}"],
        begin: Bool[Array, " time"],
        *,
        method: str = "auto",
    ) -> PyTree:
        """h_t = state • f(x_0) • … • f(x_t) with resets, for every t.  Eqs. 6 and 20-22."""
        elements = jax.vmap(self.encode)(xs), begin
        start = state, jnp.zeros((), bool)
        return scan(Resettable(self.monoid), elements, start, method=method)[0]

    def __call__(self, state, xs, begin, *, method="auto"):
        hs = self.states(state, xs, begin, method=method)
        return _last(hs, state), jax.vmap(self.decode)(hs, xs)

    def step(self, state, x, begin):
        h, _ = Resettable(self.monoid)((state, jnp.zeros((), bool)), (self.encode(x), begin))
        return h, self.decode(h, x)

    def lookahead(self, state, xs, begin, next_xs, *, method="auto"):
        hs = self.states(state, xs, begin, method=method)
        next_hs = jax.vmap(self.monoid)(hs, jax.vmap(self.encode)(next_xs))
        ys, next_ys = jax.vmap(self.decode)(hs, xs), jax.vmap(self.decode)(next_hs, next_xs)
        return _last(hs, state), ys, next_ys


class Recurrent(SequenceModel):
    """h_t = cell(h_{t-1}, x_t): a recurrence whose steps have no compact product, so no monoid."""

    @abc.abstractmethod
    def cell(self, h: PyTree, x: Float[Array, " {self.input_size}"]) -> PyTree:
        """The state after one more observation."""

    @abc.abstractmethod
    def read(
        self, h: PyTree, x: Float[Array, " {self.input_size}"]
    ) -> Float[Array, " {self.output_size}"]:
        """The output, from the state and the latest observation."""

    def states(
        self,
        state: PyTree,
        xs: Float[Array, "time {self.input_size}"],
        begin: Bool[Array, " time"],
        *,
        method: str = "auto",
    ) -> PyTree:
        """h_t for every t, one step after another."""
        if method not in ("auto", "sequential"):
            raise ValueError(
                f"`method` must be 'auto' or 'sequential' for {type(self).__name__}, whose "
                f"recurrence is not associative; got {method!r}. Choose a `Memory` to run in parallel."
            )

        def step(h, inputs):
            h = self._reset_then_absorb(h, *inputs)
            return h, h

        return jax.lax.scan(step, state, (xs, begin))[1]

    def __call__(self, state, xs, begin, *, method="auto"):
        hs = self.states(state, xs, begin, method=method)
        return _last(hs, state), jax.vmap(self.read)(hs, xs)

    def step(self, state, x, begin):
        h = self._reset_then_absorb(state, x, begin)
        return h, self.read(h, x)

    def lookahead(self, state, xs, begin, next_xs, *, method="auto"):
        hs = self.states(state, xs, begin, method=method)
        next_hs = jax.vmap(self.cell)(hs, next_xs)
        ys, next_ys = jax.vmap(self.read)(hs, xs), jax.vmap(self.read)(next_hs, next_xs)
        return _last(hs, state), ys, next_ys

    def _reset_then_absorb(self, h, x, begin):
        fresh = jax.tree.map(lambda e, h: jnp.where(begin, e, h), self.init(), h)
        return self.cell(fresh, x)


def _last(hs: PyTree, state: PyTree) -> PyTree:
    """The state after the tape; an empty tape leaves it as it was."""
    return jax.tree.map(lambda h, h0: h[-1] if h.shape[0] else h0, hs, state)
