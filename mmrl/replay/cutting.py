"""Boundaries and initial priorities of the sequences that an episode is split into.

The boundaries and priorities are computed from `offset`, the index of a step within its episode.
`sequences.py` stores them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from mmrl._dtypes import with_promotion
from mmrl.monoid import Max, Product, Resettable, Sum
from mmrl.scan import scan_and_last

_FOLD = Resettable(Product((Max(), Sum(jax.ShapeDtypeStruct((), jnp.float32)))))


class Cut(eqx.Module):
    """Sizes that determine how an episode is split into sequences.

    A sequence has `length` steps, and shares `overlap` of them with the next sequence. The window
    of a sequence also includes up to `burn_in` steps before the sequence and up to `tail` steps
    after it, from the same episode. Raises `ValueError` if a size is invalid.
    """

    length: int = eqx.field(static=True, default=80)
    overlap: int = eqx.field(static=True, default=40)
    burn_in: int = eqx.field(static=True, default=40)
    tail: int = eqx.field(static=True, default=0)

    def __check_init__(self):
        for name, least in (("length", 1), ("burn_in", 0), ("tail", 0)):
            if getattr(self, name) < least:
                got = getattr(self, name)
                raise ValueError(f"`{name}` must be at least {least}, got {got}.")
        if not 0 <= self.overlap < self.length:
            raise ValueError(
                f"`overlap` must be at least 0 and less than `length` = {self.length}, got "
                f"{self.overlap}."
            )

    @property
    def period(self) -> int:
        """Number of steps between the starts of two consecutive sequences."""
        return self.length - self.overlap

    @property
    def full(self) -> int:
        """Length of a sequence and its tail, in steps."""
        return self.length + self.tail

    @property
    def guard(self) -> int:
        """Distance ahead of the write cursor, in steps, at which sequences are removed.

        The distance is large enough to remove a sequence before its burn-in prefix is overwritten.
        """
        return self.burn_in + self.period - 1

    @property
    def within(self) -> int:
        """Maximum number of sequences that are in progress at the same time."""
        return -(-self.full // self.period)

    def starts(self, steps: int) -> list[int]:
        """Return the start of each sequence in an episode of `steps` steps."""
        return [0, *range(self.period, max(steps - self.overlap, 0), self.period)]

    @with_promotion
    def wrap_counter(self, steps: Int[Array, "*n"]) -> Int[Array, "*n"]:
        """Keep step counters below about 2³⁰, so that they never overflow.

        The places of sequences, states and folds depend only on the remainder of the counter
        modulo `cycle`. A counter of 2³⁰ or more is reduced by a multiple of `cycle`, so all places
        stay the same.
        """
        cycle = self.period * self.within  # number of steps after which all places repeat
        least = 2**30 // cycle * cycle
        return jnp.where(steps < 2**30, steps, least + steps % cycle)

    @with_promotion
    def completions(
        self, offset: Int[Array, "*time"], last: Bool[Array, "*time"]
    ) -> tuple[Int[Array, "*time n"], Int[Array, "*time n"]]:
        """Return the start and length of each sequence that a step completes.

        The start is an offset in the episode. The length includes the tail, and is 0 for unused
        entries. A step completes at most one sequence of full length, but the last step of an
        episode may also complete several shorter sequences.
        """
        newest = jnp.maximum((offset - self.overlap) // self.period, 0)
        pending = 1 + -(-self.tail // self.period)
        back = jnp.arange(pending, dtype=jnp.int32).reshape(*[1] * offset.ndim, -1)
        start = (newest[..., None] - back) * self.period
        steps = offset[..., None] + 1 - start
        whole = (steps == self.full) | (last[..., None] & (steps < self.full))
        return start, jnp.where((start >= 0) & whole, steps, 0)

    @with_promotion
    def openings(self, offset: Int[Array, "*time"]) -> Bool[Array, "*time"]:
        """Return True where a window starts, except at the first step of an episode."""
        return ((offset + self.burn_in) % self.period == 0) & (offset > 0)

    def slots(
        self, rows: Int[Array, "worker time"], offset: Int[Array, "worker time"], count: int
    ) -> Int[Array, "worker time"]:
        """Return the slot for the state before each step, or `count` if the state is not stored.

        `rows` are the positions of the steps in a ring, and every `period` rows share one slot.
        Only states at the start of a window are stored. The windows of an episode start one period
        apart, and its first window needs no stored state, so two states that can be sampled never
        share a slot. If two states of a rollout have the same slot, only the later one is stored:
        the earlier one belongs to an episode that ended before its sequence began.
        """
        time, starts = rows.shape[1], self.openings(offset)
        slot = jnp.where(starts, rows // self.period, count)
        next_start = jax.lax.cummin(jnp.where(starts, jnp.arange(time), time), axis=1, reverse=True)
        next_start = jnp.pad(next_start[:, 1:], [(0, 0), (0, 1)], constant_values=time)
        padded = jnp.pad(slot, [(0, 0), (0, 1)], constant_values=-1)
        return jnp.where(jnp.take_along_axis(padded, next_start, axis=1) == slot, count, slot)

    def no_folds(self) -> PyTree[Float[Array, " open"]]:
        """Return the initial values of max|δ| and Σ|δ| for all sequences in progress."""
        return jax.tree.map(lambda e: jnp.full(self.within, e, jnp.float32), _FOLD.inner.identity())

    @with_promotion
    def fold(
        self,
        folds: PyTree[Float[Array, " open"]],
        offset: Int[Array, " time"],
        errors: Float[Array, " time"],
    ) -> tuple[PyTree[Float[Array, "time open"]], PyTree[Float[Array, " open"]]]:
        """Return running values of max|δ| and Σ|δ| for the sequences in progress.

        The first result has the values after every step. The second result has only the values
        after the last step, which are the `folds` of the next call. Sequence k of an episode uses
        entry k mod `within`, which is free again because sequence k - `within` is complete.
        """
        age = (offset // self.period)[:, None] - jnp.arange(self.within, dtype=jnp.int32)[None]
        place = (offset % self.period)[:, None] + age % self.within * self.period
        size = jnp.where(place < self.length, jnp.abs(errors)[:, None], 0)
        elements = ((jnp.zeros_like(size), size), size), place == 0

        def scan_column(elements, init):
            return scan_and_last(_FOLD, elements, (init, jnp.zeros((), bool)))

        (after, _), (last, _) = jax.vmap(scan_column, (1, 0), (1, 0))(elements, folds)
        return after, last

    @with_promotion
    def initial_priority(
        self,
        after: PyTree[Float[Array, "time open"]],
        start: Int[Array, "time n"],
        available: Int[Array, "time n"],
        eta: float | Float[Array, ""],
    ) -> Float[Array, "time n"]:
        """Return the priorities η max|δ| + (1 - η) mean|δ| of completed sequences.

        `start` and `available` are the results of `completions`.
        """
        fold = start // self.period % self.within
        (_, most), total = jax.tree.map(lambda x: jnp.take_along_axis(x, fold, axis=1), after)
        return eta * most + (1 - eta) * total / jnp.clip(available, 1, self.length)
