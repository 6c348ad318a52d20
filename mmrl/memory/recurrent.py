"""Base classes of recurrences that are not monoids.

`Recurrent` accepts any cell. `GatedRecurrent` is faster, for cells such as those of a GRU and an
LSTM.
"""

import abc
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from mmrl._dtypes import like, with_promotion
from mmrl.memory.base import SequenceModel
from mmrl.memory.checks import check_call
from mmrl.monoid.tapes import shift


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

        return self._unroll(state, xs, begin)

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

    def _unroll(self, state, xs, begin):
        def step(h, inputs):
            h = self._reset_then_absorb(h, *inputs)
            return h, h

        last, hs = jax.lax.scan(step, state, (xs, begin))
        return hs, last

    def _reset_then_absorb(self, h, x, begin):
        fresh = jax.tree.map(lambda e, h: jnp.where(begin, e, h), like(self.init(), h), h)
        return like(self.cell(fresh, x), h)


class GatedRecurrent(Recurrent):
    """Recurrence h_t = mix(h_{t-1}, drive(x_t), U h_{t-1}), where `mix` is elementwise.

    If the state is a tuple, U multiplies its first entry. The loop over time contains only `mix`
    and the product with U. `drive` is applied to all steps at once, and gradients with respect to
    its parameters and to U are computed after the loop. The initial state is zero.
    """

    @abc.abstractmethod
    def drive(self, x: Float[Array, " {self.input_size}"]) -> Float[Array, " drive"]:
        """Return the part of the gates' inputs that depends only on the observation."""

    @property
    @abc.abstractmethod
    def transition(self) -> Float[Array, "gates state"]:
        """Weight matrix U."""

    @staticmethod
    @abc.abstractmethod
    def mix(h: PyTree, drive: Float[Array, " drive"], product: Float[Array, " gates"]) -> PyTree:
        """Return the next state. Without parameters: they belong to `drive` or U."""

    @with_promotion
    def cell(self, h, x) -> PyTree:
        """Return the next state h_t."""
        return self.mix(h, self.drive(x), _first(h) @ self.transition.T)

    def _unroll(self, state, xs, begin):
        return _unroll_gated(self.transition, jax.vmap(self.drive)(xs), begin, state, mix=self.mix)


def _first(h: PyTree) -> Array:
    """Return the vector that U multiplies."""
    return jax.tree.leaves(h)[0]


def _reset(h: PyTree, begin: Array) -> PyTree:
    return jax.tree.map(lambda h: jnp.where(begin, jnp.zeros_like(h), h), h)


@eqx.filter_custom_jvp
def _unroll_gated(
    weight: Array, drives: Array, begin: Array, start: PyTree, *, mix: Callable
) -> tuple[PyTree, PyTree]:
    """Return the states of all steps of a `GatedRecurrent`, and the last state."""

    def step(h, inputs):
        drive, begin = inputs
        h = _reset(h, begin)
        h = like(mix(h, drive, weight @ _first(h)), h)
        return h, h

    last, hs = jax.lax.scan(step, start, (drives, begin))
    return hs, last


@_unroll_gated.def_jvp
def _gated_jvp(primals, tangents, *, mix):
    """Differentiate `_unroll_gated`: ḣ_t = ∂_h ḣ_{t-1} + ∂_p (U ḣ_{t-1} + U̇ h_{t-1}) + ∂_d ḋ_t.

    p = U h and d are the arguments of `mix`, whose derivatives are computed for all steps at once.
    In the transposed recurrence, the gradient of U is one product of two matrices.
    """
    weight, drives, begin, start = primals
    hs, last = _unroll_gated(*primals, mix=mix)
    d_weight, d_drives, _, d_start = _fill(primals, tangents)
    before = jax.vmap(_reset)(shift(hs, start, reverse=False), begin)

    def derivative(h, drive, d_drive):
        along = jax.linearize(lambda *x: like(mix(*x), h), h, drive, weight @ _first(h))[1]
        return along, along(jax.tree.map(jnp.zeros_like, h), d_drive, d_weight @ _first(h))

    def step(dh, inputs):
        (along, push), begin = inputs
        dh = _reset(dh, begin)
        dh = jax.tree.map(jnp.add, along(dh, none, weight @ _first(dh)), push)
        return dh, dh

    none = jnp.zeros(drives.shape[1:], drives.dtype)
    derivatives = jax.vmap(derivative)(before, drives, d_drives)
    d_last, d_hs = jax.lax.scan(step, d_start, (derivatives, begin))
    return (hs, last), (d_hs, d_last)


def _fill(primals: PyTree, tangents: PyTree) -> PyTree:
    """Replace missing tangents by zeros."""
    zero = lambda dx, x: jax.tree.map(jnp.zeros_like, x) if dx is None else dx  # noqa: E731
    return jax.tree.map(zero, tangents, primals, is_leaf=lambda dx: dx is None)
