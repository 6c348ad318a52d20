"""Arithmetic of sequences: where they begin in an episode, when they are whole, their priority.

Every function takes only a step's `offset` in its episode; `sequences.py` stores the results.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from mmrl._dtypes import promoting
from mmrl.monoid import Max, Product, Resettable, Sum
from mmrl.scan import scan_and_last

_FOLD = Resettable(Product((Max(), Sum(jax.ShapeDtypeStruct((), jnp.float32)))))


class Cut(eqx.Module):
    """Sequences of `length` steps, each beginning `length - overlap` steps after the previous one.

    The window of a sequence adds the `burn_in` steps before it and the `tail` steps after it, as
    far as the episode reaches. Raises `ValueError` for a size that cannot work.
    """

    length: int = eqx.field(static=True, default=80)
    overlap: int = eqx.field(static=True, default=40)
    burn_in: int = eqx.field(static=True, default=40)
    tail: int = eqx.field(static=True, default=0)

    def __check_init__(self):
        for name, least in (("length", 1), ("burn_in", 0), ("tail", 0)):
            if getattr(self, name) < least:
                got = getattr(self, name)
                raise ValueError(f"`{name}` must be at least {least} steps, got {got}.")
        if not 0 <= self.overlap < self.length:
            raise ValueError(
                f"`overlap` must be at least 0 and less than `length` = {self.length}, got "
                f"{self.overlap}."
            )

    @property
    def period(self) -> int:
        """Steps between the beginnings of two sequences."""
        return self.length - self.overlap

    @property
    def full(self) -> int:
        """Steps of a sequence with its tail."""
        return self.length + self.tail

    @property
    def guard(self) -> int:
        """Distance ahead of the cursor at which sequences are removed, before a prefix is lost."""
        return self.burn_in + self.period - 1

    @property
    def within(self) -> int:
        """Number of sequences that may have begun without being whole."""
        return -(-self.full // self.period)

    def starts(self, steps: int) -> list[int]:
        """Return the offsets at which the sequences of an episode of `steps` steps begin."""
        return [0, *range(self.period, max(steps - self.overlap, 0), self.period)]

    @promoting
    def bounded(self, steps: Int[Array, "*n"]) -> Int[Array, "*n"]:
        """Return the steps of an episode so far, or an equivalent smaller number beyond 2³⁰.

        Equivalent numbers have the same places of sequences, states and folds.
        """
        cycle = self.period * self.within  # in steps, after which all places repeat
        least = 2**30 // cycle * cycle
        return jnp.where(steps < 2**30, steps, least + steps % cycle)

    @promoting
    def completed(
        self, offset: Int[Array, "*time"], last: Bool[Array, "*time"]
    ) -> tuple[Int[Array, "*time n"], Int[Array, "*time n"]]:
        """Return the sequences that are whole once a step is written: offsets and steps.

        The steps include the tail; 0 marks an empty entry. At most one sequence with a full tail
        ends at a step; the end of an episode may complete several shorter ones.
        """
        newest = jnp.maximum((offset - self.overlap) // self.period, 0)
        pending = 1 + -(-self.tail // self.period)
        back = jnp.arange(pending, dtype=jnp.int32).reshape(*[1] * offset.ndim, -1)
        start = (newest[..., None] - back) * self.period
        steps = offset[..., None] + 1 - start
        whole = (steps == self.full) | (last[..., None] & (steps < self.full))
        return start, jnp.where((start >= 0) & whole, steps, 0)

    @promoting
    def opened(self, offset: Int[Array, "*time"]) -> Bool[Array, "*time"]:
        """Return True where a window begins in this step, except at the start of its episode."""
        return ((offset + self.burn_in) % self.period == 0) & (offset > 0)

    def slots(
        self, rows: Int[Array, "worker time"], offset: Int[Array, "worker time"], count: int
    ) -> Int[Array, "worker time"]:
        """Return where the state before each step is stored, one for each `period` rows.

        `count`, beyond the last slot, stands for nowhere. Two states that are needed never share a
        slot, because the windows of one episode begin a period apart and the first needs no state.
        If a second state comes to a slot, the sequence of the first was never completed, and the
        second replaces it.
        """
        time, wanted = rows.shape[1], self.opened(offset)
        slot = jnp.where(wanted, rows // self.period, count)
        coming = jax.lax.cummin(jnp.where(wanted, jnp.arange(time), time), axis=1, reverse=True)
        coming = jnp.pad(coming[:, 1:], [(0, 0), (0, 1)], constant_values=time)
        padded = jnp.pad(slot, [(0, 0), (0, 1)], constant_values=-1)
        return jnp.where(jnp.take_along_axis(padded, coming, axis=1) == slot, count, slot)

    def no_folds(self) -> PyTree[Float[Array, " open"]]:
        """Return empty folds, Max|δ| and Σ|δ| of no steps, for every sequence that may be open."""
        return jax.tree.map(lambda e: jnp.full(self.within, e, jnp.float32), _FOLD.inner.identity())

    @promoting
    def fold(
        self,
        folds: PyTree[Float[Array, " open"]],
        offset: Int[Array, " time"],
        errors: Float[Array, " time"],
    ) -> tuple[PyTree[Float[Array, "time open"]], PyTree[Float[Array, " open"]]]:
        """Return Max|δ| and Σ|δ| of the open sequences, after every step and after the last.

        Sequence k of an episode uses fold k mod `within`, which is free again when a later one
        needs it.
        """
        age = (offset // self.period)[:, None] - jnp.arange(self.within, dtype=jnp.int32)[None]
        place = (offset % self.period)[:, None] + age % self.within * self.period
        size = jnp.where(place < self.length, jnp.abs(errors)[:, None], 0)
        elements = ((jnp.zeros_like(size), size), size), place == 0

        def along(elements, init):
            return scan_and_last(_FOLD, elements, (init, jnp.zeros((), bool)))

        (after, _), (last, _) = jax.vmap(along, (1, 0), (1, 0))(elements, folds)
        return after, last

    @promoting
    def initial_priority(
        self,
        after: PyTree[Float[Array, "time open"]],
        start: Int[Array, "time n"],
        available: Int[Array, "time n"],
        eta: float | Float[Array, ""],
    ) -> Float[Array, "time n"]:
        """Return p = η max|δ| + (1 - η) mean|δ| of the sequences that `completed` returned."""
        fold = start // self.period % self.within
        (_, most), total = jax.tree.map(lambda x: jnp.take_along_axis(x, fold, axis=1), after)
        return eta * most + (1 - eta) * total / jnp.clip(available, 1, self.length)
