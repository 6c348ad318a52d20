"""Prioritized replay of fixed-length sequences, with the recurrent state at their start (R2D2).

Kapturowski et al. (2019). An episode of N steps becomes sequences that begin every
`period = length - overlap` steps, at s = 0, period, 2 period, … as long as each brings a step that
the one before did not: s = 0 or s + overlap < N. No sequence crosses an episode, and the last is
short rather than left out: every step, the terminal one included, is trained on.

    s - burn_in           s                           s + length        s + length + tail
    ├── burn-in prefix ───┼── trained ──────────────────┼── tail ─────────┤
    └ recurrent state stored here                          for n-step targets: tail = n - 1

A sequence is one row of a table over rings of steps (`ring.py`), so steps that several sequences
share are stored once, and one recurrent state is stored for every `period` steps. Its priority
p = η max|δ| + (1 - η) mean|δ| is a fold of the Max and the Sum monoid along the trained steps, and
the law of sampling, p^α, lies in a tree of sums (`tree.py`).
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from mmrl.monoid import Max, Product, Resettable, Sum
from mmrl.replay import ring, tree
from mmrl.replay.ring import Rollout
from mmrl.scan import scan_and_last

# Priorities are clipped to this range: positive, so that no sequence is out of reach, and finite.
PRIORITIES = (1e-6, 1e6)

# Of |δ| ≥ 0, so that 0 is no less an identity of the maximum than -∞.
_FOLD = Resettable(Product((Max(), Sum(jnp.zeros(())))))


class Sequences(eqx.Module):
    """The steps of all workers, and the table of the sequences that are stored whole."""

    # Worker w's ring is the rows w · depth to (w + 1) · depth - 1.
    steps: PyTree[Shaped[Array, "capacity ..."]]
    # One recurrent state for each `period` rows.
    states: PyTree[Shaped[Array, "slot ..."]]
    # Steps of the sequence that begins in this row, its tail included; 0 if none does.
    available: Int[Array, " capacity"]
    # Steps of its episode before it.
    past: Int[Array, " capacity"]
    # Sums of p^α and of 1 over the sequences: two columns.
    sums: tree.Tree
    # Max|δ| and Σ|δ| of the sequences that are being written, one for each that may be.
    folds: PyTree[Float[Array, "worker open"]]
    # The place in every ring that is written next.
    cursor: Int[Array, ""]
    # Steps so far of the episode in progress.
    unfinished: Int[Array, " worker"]
    # α: 0 draws uniformly, 1 in proportion to the priority.
    alpha: Float[Array, ""]
    # η: 1 takes the largest |δ| of a sequence as its priority, 0 their mean.
    eta: Float[Array, ""]
    length: int = eqx.field(static=True)
    overlap: int = eqx.field(static=True)
    burn_in: int = eqx.field(static=True)
    tail: int = eqx.field(static=True)

    @property
    def workers(self) -> int:
        """Number of rings."""
        return self.unfinished.shape[-1]

    @property
    def depth(self) -> int:
        """Steps in each ring."""
        return self.available.shape[-1] // self.workers

    @property
    def period(self) -> int:
        """Steps between the beginnings of two sequences."""
        return self.length - self.overlap

    @property
    def guard(self) -> int:
        """How close the place that is written next may come to a sequence before it is discarded:
        none of its prefix, and not its state, has been overwritten until then."""
        return self.burn_in + self.period - 1

    @property
    def stored(self) -> Int[Array, ""]:
        """How many sequences there are."""
        return self.sums[0][1].sum().astype(jnp.int32)


class Window(eqx.Module):
    """Sequences with the steps before them: `before` + length + tail steps each, zeros where none.

    `begin` is True at the first step of an episode. Where the prefix would reach back beyond it,
    what comes before is padding, which that `begin` makes the memory forget; all other padding is
    at the end. `state` is the actor's recurrent state before the first step of the window.
    """

    steps: PyTree[Shaped[Array, "sequence window ..."]]
    state: PyTree[Shaped[Array, "sequence ..."]]
    begin: Bool[Array, "sequence window"]
    mask: Bool[Array, "sequence window"]  # real steps
    trained: Bool[Array, "sequence window"]  # real, and neither prefix nor tail
    rows: Int[Array, " sequence"]  # where they begin; `capacity` where there is no sequence


class Sample(Window):
    """A batch of windows with importance weights (N P_i)^-β / max_j (N P_j)^-β."""

    weights: Float[Array, " sequence"]


def init(
    example: PyTree,
    state: PyTree,
    capacity: int,
    *,
    workers: int = 1,
    length: int = 80,
    overlap: int = 40,
    burn_in: int = 40,
    tail: int = 0,
    alpha: float | Float[Array, ""] = 0.9,
    eta: float | Float[Array, ""] = 0.9,
) -> Sequences:
    """Room for `capacity` steps, shared evenly among `workers`.

    `example` is one step and `state` one recurrent state, without axes. A ring loses up to
    2 · length + burn_in + tail of its steps to sequences that are partly written or overwritten.

    Raises ValueError if a size cannot work: `length` ≥ 1 > 0 ≥ …, `capacity` a positive multiple of
    workers · (length - overlap) whose rings hold a whole window and its guard.
    """
    for name, value, least in (("length", length, 1), ("burn_in", burn_in, 0), ("tail", tail, 0)):
        if value < least:
            raise ValueError(f"`{name}` must be at least {least} steps, got {value}.")
    if not 0 <= overlap < length:
        raise ValueError(
            f"`overlap` must be at least 0 and less than `length` = {length}, got {overlap}."
        )
    period = length - overlap
    ring.check_sizes(example, capacity, workers, period)
    within = -(-(length + tail) // period)
    rings = Sequences(
        steps=ring.empty(example, capacity),
        states=ring.empty(state, capacity // period),
        available=jnp.zeros(capacity, jnp.int32),
        past=jnp.zeros(capacity, jnp.int32),
        sums=tree.build(jnp.zeros((2, capacity), jnp.float32)),
        folds=jax.tree.map(lambda e: jnp.full((workers, within), e), _FOLD.inner.identity()),
        cursor=jnp.zeros((), jnp.int32),
        unfinished=jnp.zeros(workers, jnp.int32),
        alpha=jnp.asarray(alpha, jnp.float32),
        eta=jnp.asarray(eta, jnp.float32),
        length=length,
        overlap=overlap,
        burn_in=burn_in,
        tail=tail,
    )
    if _longest(rings) < 1:
        least = workers * period * -(-(rings.guard + length + tail + 1) // period)
        raise ValueError(
            f"`capacity` must leave each of {workers} workers room for a whole sequence, at least "
            f"{least} steps, got {capacity}."
        )
    return rings


def _longest(sequences: Sequences) -> int:
    """Steps of the longest rollout that overwrites nothing of the sequences that it completes."""
    return sequences.depth - sequences.guard - sequences.length - sequences.tail


def add(
    sequences: Sequences,
    rollout: Rollout,
    states: PyTree[Shaped[Array, "worker time ..."]],
    errors: Float[Array, "worker time"],
) -> Sequences:
    """Append a rollout of [worker, time, ...]; sequences enter as their last step is written.

    `states` are the recurrent states *before* each step, as the actors had them, and `errors` the
    |δ| by which the actors set the first priority. Each worker goes on where its last rollout
    stopped. A sequence with an error that is not finite gets the least priority. O(worker · time),
    whatever the capacity, if the storage is donated or carried by a loop.

    Raises ValueError if the rollout's leaves are not those of `init`, or too long for a ring.
    """
    here, capacity, depth = sequences, sequences.available.shape[0], sequences.depth
    time = ring.check_rollout(here.steps, here.workers, _longest(here), rollout)
    base = jnp.arange(here.workers, dtype=jnp.int32)[:, None] * depth
    index = jnp.arange(time, dtype=jnp.int32)[None]
    began, after = ring.began(here.unfinished, rollout.last)
    offset = index - began  # of a step in its episode
    rows = base + (here.cursor + index) % depth
    start, available = _completed(here, offset, rollout.last)
    first = rows[..., None] - (offset[..., None] - start)
    first = jnp.where(first < base[..., None], first + depth, first)
    first = jnp.where(available > 0, first, capacity).reshape(-1)
    folds, priority = _priority(here, offset, errors, start, available)
    gone = (base + (here.cursor + here.guard + index) % depth).reshape(-1)
    weights = jnp.where(available > 0, _law(priority, here.alpha), 0).reshape(-1)
    return replace(
        here,
        steps=ring.write(here.steps, rows.reshape(-1), rollout),
        states=_write_states(here, rows, offset, states),
        available=here.available.at[gone].set(0).at[first].set(available.reshape(-1), mode="drop"),
        past=here.past.at[first].set(start.reshape(-1), mode="drop"),
        sums=_reweigh(here.sums, jnp.concatenate([gone, first]), weights, gone.size),
        folds=folds,
        cursor=(here.cursor + time) % depth,
        unfinished=time - after,
    )


def _completed(
    here: Sequences, offset: Int[Array, "worker time"], last: Bool[Array, "worker time"]
) -> tuple[Int[Array, "worker time n"], Int[Array, "worker time n"]]:
    """The sequences that are whole once a step is written: where in the episode each begins, and
    its steps with the tail, 0 for none.

    With a full tail there is one; at an end also those whose tail, or which themselves, are cut.
    """
    newest = jnp.maximum((offset - here.overlap) // here.period, 0)
    pending = 1 + -(-here.tail // here.period)
    start = (newest[..., None] - jnp.arange(pending)) * here.period
    steps, full = offset[..., None] + 1 - start, here.length + here.tail
    whole = (steps == full) | (last[..., None] & (steps < full))
    return start, jnp.where((start >= 0) & whole, steps, 0)


def _priority(here: Sequences, offset, errors, start, available) -> tuple[PyTree, Array]:
    """Max|δ| and Σ|δ| folded on over the open sequences, and η max + (1 - η) mean where one ends.

    Sequence k of an episode uses fold k mod `open`, which is free again when the next one needs it.
    """
    within = here.folds[1].shape[1]
    number = jnp.arange(within)
    since = offset % here.period
    age = (offset // here.period)[..., None] - number
    place = since[..., None] + age % within * here.period  # of the step in that sequence
    size = jnp.where(place < here.length, jnp.abs(errors)[..., None], 0)
    zero = jnp.zeros_like(size)
    elements = ((zero, size), size), place == 0

    def along(elements, init):
        return scan_and_last(_FOLD, elements, (init, jnp.zeros((), bool)))

    (folds, _), (last, _) = jax.vmap(jax.vmap(along, in_axes=(1, 0), out_axes=(1, 0)))(
        elements, here.folds
    )
    which = start // here.period % within
    (_, most), total = jax.tree.map(lambda x: jnp.take_along_axis(x, which, axis=2), folds)
    count = jnp.clip(available, 1, here.length)
    return last, here.eta * most + (1 - here.eta) * total / count


def _law(priority: Float[Array, "*n"], alpha: Float[Array, ""]) -> Float[Array, "*n"]:
    """p^α; the least one for a priority that is not a number."""
    least, most = PRIORITIES
    return jnp.clip(jnp.where(jnp.isfinite(priority), priority, least), least, most) ** alpha


def _reweigh(sums: tree.Tree, rows: Array, weights: Array, gone: int = 0) -> tree.Tree:
    """The tree with a sequence of weight w, none if w = 0, in `rows`, of which `gone` have none."""
    weights = jnp.concatenate([jnp.zeros(gone, weights.dtype), weights])
    return tree.update(sums, rows, jnp.stack([weights, weights > 0], axis=1).astype(jnp.float32))


def _write_states(here: Sequences, rows, offset, states) -> PyTree:
    """The states before the steps at which a window begins: one for each `period` rows.

    Two of them that are needed never share a slot, since the windows of one episode begin a period
    apart and its first needs no state. Where a second comes to a slot, the sequence of the first
    has not come to be, and the second takes its place.
    """
    time, slots = rows.shape[1], here.available.shape[0] // here.period
    wanted = ((offset + here.burn_in) % here.period == 0) & (offset > 0)
    slot = jnp.where(wanted, rows // here.period, slots)
    coming = jax.lax.cummin(jnp.where(wanted, jnp.arange(time), time), axis=1, reverse=True)
    coming = jnp.pad(coming[:, 1:], [(0, 0), (0, 1)], constant_values=time)
    padded = jnp.pad(slot, [(0, 0), (0, 1)], constant_values=-1)
    taken = jnp.take_along_axis(padded, coming, axis=1) == slot
    slot = jnp.where(taken, slots, slot).reshape(-1)
    return jax.tree.map(
        lambda d, x: d.at[slot].set(x.reshape(-1, *d.shape[1:]), mode="drop"), here.states, states
    )


def sample(
    sequences: Sequences, key: PRNGKeyArray, batch: int, beta: float | Float[Array, ""] = 1.0
) -> Sample:
    """`batch` windows, drawn independently with P_i = p_i^α / Σ p^α (with replacement).

    Where nothing is stored, `rows` is the capacity, `mask` is False and the weights are 1.
    O(batch · window + log capacity).

    Raises ValueError if `batch` is not positive.
    """
    if batch < 1:
        raise ValueError(f"`batch` must be at least 1 sequence, got {batch}.")
    sums, capacity = sequences.sums, sequences.available.shape[0]
    uniform = jax.random.uniform(key, (len(sums), batch), jnp.float32)
    rows = tree.draw(sums, jnp.array([1.0, 0.0]), uniform)
    weight, one = tree.weights(sums, rows).T
    total, count = sums[0].sum(axis=1)
    share = jnp.where(one > 0, count * weight / total, 1)  # N P
    rows = jnp.where(one > 0, rows, capacity)
    drawn = window(sequences, rows, sequences.burn_in)
    return Sample(**vars(drawn), weights=(share / share.min()) ** -beta)


def window(sequences: Sequences, rows: Int[Array, " sequence"], before: int) -> Window:
    """The sequences that begin in `rows`, with the `before` steps before each.

    `state` is right where `before` is the `burn_in` of the storage, or differs from it by whole
    periods. Steps that have been overwritten are padding.
    """
    here, depth = sequences, sequences.depth
    at = jnp.arange(-before, here.length + here.tail, dtype=jnp.int32)[None]
    available = here.available.at[rows].get(mode="fill", fill_value=0)[:, None]
    past = here.past.at[rows].get(mode="fill", fill_value=0)[:, None]
    base = jnp.minimum(rows // depth, here.workers - 1)[:, None] * depth
    place = rows[:, None] - base
    left = (place - here.cursor) % depth  # steps that the ring still holds before it
    mask = (at >= -jnp.minimum(past, left)) & (at < available)
    slot = (base + (place - before) % depth)[:, 0] // here.period
    return Window(
        steps=ring.read(here.steps, base + (place + at) % depth, mask),
        state=jax.tree.map(lambda d: d[slot], here.states),
        begin=(at == -past) & mask,
        mask=mask,
        trained=mask & (at >= 0) & (at < here.length),
        rows=rows,
    )


def priority(
    errors: Float[Array, "sequence window"],
    trained: Bool[Array, "sequence window"],
    eta: float | Float[Array, ""] = 0.9,
) -> Float[Array, " sequence"]:
    """p = η max_t |δ_t| + (1 - η) mean_t |δ_t| over the trained steps of each sequence."""
    size = jnp.where(trained, jnp.abs(errors), 0)
    mean = size.sum(axis=1) / jnp.maximum(trained.sum(axis=1), 1)
    return eta * size.max(axis=1) + (1 - eta) * mean


def set_priority(
    sequences: Sequences, rows: Int[Array, " n"], values: Float[Array, " n"]
) -> Sequences:
    """p[rows] ← values, clipped to `PRIORITIES`, for the sequences that begin in `rows`.

    A row without a sequence and a value that is not finite change nothing; a row given twice takes
    one of its values, the same for both. Set priorities before the next `add`, which may put
    another sequence in the row.
    """
    stored = sequences.available.at[rows].get(mode="fill", fill_value=0) > 0
    rows = jnp.where(stored & jnp.isfinite(values), rows, sequences.available.shape[0])
    # Two draws of a sequence may differ in rounding, but the tree wants one weight for a row.
    same = rows[:, None] == rows[None]
    values = jnp.max(jnp.where(same, values[None], -jnp.inf), axis=1)
    weights = jnp.where(rows < sequences.available.shape[0], _law(values, sequences.alpha), 0)
    return replace(sequences, sums=_reweigh(sequences.sums, rows, weights))
