"""Base class of recurrences that are not monoids."""

import abc

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from mmrl._dtypes import like, with_promotion
from mmrl.memory.base import SequenceModel
from mmrl.memory.checks import check_call


class Recurrent(SequenceModel):
    """Sequence model with a recurrence h_t = cell(h_{t-1}, x_t) that is not a monoid.

    Subclasses define `init`, `cell` and `read`. Tapes are processed one step at a time.
    """

    @abc.abstractmethod
    def cell(self, h: PyTree, x: Float[Array, " {self.input_size}"]) -> PyTree:
        """Return the next state h_t."""

    @abc.abstractmethod
    def read(
        self, h: PyTree, x: Float[Array, " {self.input_size}"]
    ) -> Float[Array, " {self.output_size}"]:
        """Return the output, given the state h_t and the observation x_t."""

    @with_promotion
    def states(
        self,
        state: PyTree,
        xs: Float[Array, "time {self.input_size}"],
        begin: Bool[Array, " time"],
        *,
        method: str = "auto",
        axis: str | None = None,
    ) -> tuple[PyTree, PyTree]:
        """Return the states h_t of all steps, and the last state.

        Raises `ValueError` for a parallel `method` or an `axis`, which require a monoid.
        """
        if method not in ("auto", "sequential"):
            raise ValueError(
                f"`method` must be 'auto' or 'sequential' for {type(self).__name__}, whose "
                f"recurrence is not associative; got {method!r}. To run in parallel, use a "
                "`Memory`."
            )
        if axis is not None:
            raise ValueError(
                f"`axis` must be None for {type(self).__name__}, whose recurrence is not "
                f"associative and cannot be split across devices; got {axis!r}. Use a `Memory`, "
                "or place complete tapes on each device."
            )

        def step(h, inputs):
            h = self._reset_then_absorb(h, *inputs)
            return h, h

        last, hs = jax.lax.scan(step, state, (xs, begin))
        return hs, last

    @with_promotion
    def __call__(self, state, xs, begin, *, method="auto", axis=None) -> tuple[PyTree, Array]:
        begin, xs = check_call(self, state, begin, tape=True, xs=xs)
        hs, last = self.states(state, xs, begin, method=method, axis=axis)
        return last, jax.vmap(self.read)(hs, xs)

    @with_promotion
    def step(self, state, x, begin) -> tuple[PyTree, Array]:
        """Process one observation; return the new state and the output."""
        begin, x = check_call(self, state, begin, tape=False, x=x)
        h = self._reset_then_absorb(state, x, begin)
        return h, self.read(h, x)

    @with_promotion
    def lookahead(
        self, state, xs, begin, next_xs, *, method="auto", axis=None
    ) -> tuple[PyTree, Array, Array]:
        """Process a tape; return the last state, and the outputs for `xs` and for `next_xs`."""
        begin, xs, next_xs = check_call(self, state, begin, tape=True, xs=xs, next_xs=next_xs)
        hs, last = self.states(state, xs, begin, method=method, axis=axis)
        next_hs = jax.vmap(self.cell)(hs, next_xs)
        return last, jax.vmap(self.read)(hs, xs), jax.vmap(self.read)(next_hs, next_xs)

    def _reset_then_absorb(self, h, x, begin):
        fresh = jax.tree.map(lambda e, h: jnp.where(begin, e, h), like(self.init(), h), h)
        return like(self.cell(fresh, x), h)
