"""Prioritized replay of fixed-length sequences, with the recurrent state at their start (R2D2).

Kapturowski et al. (2019). An episode of N steps becomes sequences that begin every `period = length
- overlap` steps, at s = 0, period, 2 period, …, as long as each adds a step that the previous one
lacks: s = 0 or s + overlap < N. No sequence crosses an episode boundary, and the last one may be
short: every step, including the terminal one, is trained on.

    s - burn_in           s                           s + length        s + length + tail
    ├── burn-in prefix ───┼── trained ──────────────────┼── tail ─────────┤
    └ recurrent state stored here                          for n-step targets: tail = n - 1

A sequence is one row of a table over rings of steps (`ring.py`), so steps that several sequences
share are stored once, and one recurrent state is stored for every `period` steps. Its priority p =
η max|δ| + (1 - η) mean|δ| is a fold of the Max and the Sum monoid along the trained steps, and the
sampling weights p^α are stored in a tree of sums (`tree.py`).
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from mmrl._dtypes import converting, promoting
from mmrl.replay import frames, ring, tree
from mmrl.replay.cutting import Cut
from mmrl.replay.frames import SHORTEST, Frames
from mmrl.replay.ring import Rollout


class Sequences(eqx.Module):
    """The steps of all workers, and the table of the sequences that are stored whole."""

    # The ring of worker w is rows w · depth to (w + 1) · depth - 1.
    steps: PyTree[Shaped[Array, "capacity ..."]]
    # One recurrent state for each `period` rows.
    states: PyTree[Shaped[Array, "slot ..."]]
    # Steps, tail included, of the sequence that begins in this row, and steps of its episode before
    # it. Zeros if no sequence begins here.
    table: Int[Array, "capacity 2"]
    sums: tree.Tree  # sums of p^α over the sequences
    stored: Int[Array, ""]  # number of sequences
    # Max|δ| and Σ|δ| of each sequence that may be in progress.
    folds: PyTree[Float[Array, "worker open"]]
    cursor: Int[Array, ""]  # the place in every ring that is written next
    unfinished: Int[Array, " worker"]  # steps so far of the episode in progress
    alpha: Float[Array, ""]  # α: 0 draws uniformly, 1 in proportion to the priority
    # η: 1 takes the largest |δ| of a sequence as its priority, 0 their mean.
    eta: Float[Array, ""]
    cut: Cut  # how episodes are cut into sequences
    frames: Frames | None = None  # the pictures of `steps`, if these have any

    @property
    def workers(self) -> int:
        """Number of rings."""
        return self.unfinished.shape[-1]

    @property
    def capacity(self) -> int:
        """Steps in all rings."""
        return self.table.shape[-2]

    @property
    def depth(self) -> int:
        """Steps in each ring."""
        return self.capacity // self.workers

    @property
    def available(self) -> Int[Array | np.ndarray, "*seed capacity"]:
        """Steps of the sequence that begins in a row, its tail included; 0 if none does."""
        return self.table[..., 0]

    @property
    def past(self) -> Int[Array | np.ndarray, "*seed capacity"]:
        """Steps of its episode before the sequence that begins in a row."""
        return self.table[..., 1]

    @property
    def longest(self) -> int:
        """Steps of the longest rollout that overwrites none of the sequences that it completes."""
        return self.depth - self.cut.guard - self.cut.full


class Window(eqx.Module):
    """Sequences and the steps before them: `before` + length + tail steps each, zeros where none.

    `begin` is True at the first step of an episode. If the prefix would begin before the episode,
    the steps before `begin` are padding, which the memory then forgets; all other padding is at the
    end. `state` is the actor's recurrent state before the first step of the window.
    """

    steps: PyTree[Shaped[Array, "sequence window ..."]]
    state: PyTree[Shaped[Array, "sequence ..."]]
    begin: Bool[Array, "sequence window"]
    mask: Bool[Array, "sequence window"]  # real steps
    trained: Bool[Array, "sequence window"]  # real, and neither prefix nor tail
    rows: Int[Array, " sequence"]  # where they begin; `capacity` without a sequence


class Sample(Window):
    """Windows with importance weights (N P_i)^-β / max_j (N P_j)^-β, P_i = p_i^α / Σ p^α."""

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
    shortest: int = SHORTEST,
) -> Sequences:
    """Return empty storage for `capacity` steps, shared evenly among `workers`.

    `example` is one step, a pytree with `last`, and `state` one recurrent state. `shortest` is that
    of `tape.init`: the last sequences of a shorter truncated episode are not stored. A ring loses
    up to 2 · length + burn_in + tail of its steps to sequences that are partly written or
    overwritten.

    Raises `ValueError` for a size that cannot work, and if `capacity` is not a multiple of workers
    · (length - overlap) or leaves a ring no room for a whole window.
    """
    cut = Cut(length, overlap, burn_in, tail)
    least = workers * cut.period * -(-(cut.guard + cut.full + 1) // cut.period)
    ring.check_sizes(example, capacity, workers, cut.period, least)
    pictures, example = frames.init(example, workers, capacity // workers, shortest)
    rings = Sequences(
        steps=ring.empty(example, capacity),
        states=ring.empty(state, capacity // cut.period),
        table=jnp.zeros((capacity, 2), jnp.int32),
        sums=tree.build(jnp.zeros((1, capacity), jnp.float32)),
        stored=jnp.zeros((), jnp.int32),
        folds=jax.tree.map(lambda x: jnp.stack([x] * workers), cut.no_folds()),
        cursor=jnp.zeros((), jnp.int32),
        unfinished=jnp.zeros(workers, jnp.int32),
        alpha=jnp.asarray(alpha, jnp.float32),
        eta=jnp.asarray(eta, jnp.float32),
        cut=cut,
        frames=pictures,
    )
    if rings.longest < 1:
        raise ValueError(
            f"`capacity` must leave each of {workers} workers room for a whole sequence, at least "
            f"{least} steps, got {capacity}."
        )
    return rings


@promoting
def add(
    sequences: Sequences,
    rollout: Rollout,
    states: PyTree[Shaped[Array, "worker time ..."]],
    errors: Float[Array, "worker time"],
) -> Sequences:
    """Append a rollout of [worker, time, ...]; a sequence enters when its last step is written.

    `states` are the actors' recurrent states *before* each step, and `errors` the |δ| from which
    the first priorities are computed. Each worker continues where its last rollout stopped. A
    sequence with an error that is not finite gets the least priority. O(worker · time) for any
    capacity, if the storage is donated or carried by a loop. Raises `ValueError` if the leaves of
    `rollout` or `states` are not those of `init`, if `errors` have another shape than
    `rollout.last`, and if the rollout is too long for a ring.
    """
    here, capacity, depth = sequences, sequences.capacity, sequences.depth
    like = frames.outline(here.frames, rollout)
    time = ring.check_rollout(here.steps, here.workers, here.longest, like)
    ring.check_leaves("states", here.states, states, (here.workers, time))
    ring.check_numbers("errors", errors, (here.workers, time), "step")
    errors = jnp.asarray(errors, jnp.float32)
    base = jnp.arange(here.workers, dtype=jnp.int32)[:, None] * depth
    index = jnp.arange(time, dtype=jnp.int32)[None]
    began, after = ring.began(here.unfinished, rollout.last)
    pictures, rollout, lost = frames.add(here.frames, rollout, began)
    offset = index - began  # index of a step in its episode
    rows = base + (here.cursor + index) % depth
    start, available = here.cut.completed(offset, rollout.last)
    available = jnp.where(lost[..., None], 0, available)
    first = rows[..., None] - (offset[..., None] - start)
    first = jnp.where(first < base[..., None], first + depth, first)
    first = jnp.where(available > 0, first, capacity).reshape(-1)
    after_each, folds = jax.vmap(here.cut.fold)(here.folds, offset, errors)
    priority = jax.vmap(here.cut.initial_priority, (0, 0, 0, None))(
        after_each, start, available, here.eta
    )
    gone = (base + (here.cursor + here.cut.guard + index) % depth).reshape(-1)
    weights = jnp.where(available > 0, _law(priority, here.alpha), 0).reshape(-1)
    weights = jnp.concatenate([jnp.zeros(gone.size, jnp.float32), weights])[:, None]
    changed = jnp.concatenate([gone, first])
    # Subtract the entries instead of writing 0: XLA then reads before it writes, without a copy of
    # the table.
    lost = here.table[gone]
    emptied = here.table.at[gone].add(-lost)
    more = jnp.sum(available > 0, dtype=jnp.int32) - jnp.sum(lost[:, 0] > 0, dtype=jnp.int32)
    entries = jnp.stack([available, start], axis=-1).reshape(-1, 2)
    return replace(
        here,
        steps=ring.write(here.steps, rows.reshape(-1), rollout),
        states=_write_states(here, rows, offset, states),
        table=emptied.at[first].set(entries, mode="drop"),
        sums=tree.update(here.sums, changed, weights, _touched(here, time)),
        stored=here.stored + more,
        folds=folds,
        cursor=(here.cursor + time) % depth,
        unfinished=here.cut.bounded(time - after),
        frames=pictures,
    )


def _law(priority: Float[Array, "*n"], alpha: Float[Array, ""]) -> Float[Array, "*n"]:
    """Return the sampling weight p^α; the least one if the priority is not a number."""
    return jnp.clip(jnp.where(jnp.isfinite(priority), priority, 0), *tree.PRIORITIES) ** alpha


def _touched(here: Sequences, time: int) -> Int[Array, " n"]:
    """Return the rows that an `add` may change: two runs of rows in every ring, and its ends."""
    begun = tree.cover(here.cursor - here.cut.full, here.cut.full + time)
    gone = tree.cover(here.cursor + here.cut.guard, time)
    ends = [] if here.depth % tree.BRANCH == 0 else [0, here.depth - 1]
    within = jnp.concatenate([begun % here.depth, gone % here.depth, jnp.array(ends, jnp.int32)])
    return (jnp.arange(here.workers)[:, None] * here.depth + within[None]).reshape(-1)


def _write_states(here: Sequences, rows, offset, states) -> PyTree:
    """Store the states before the steps at which a window begins: see `Cut.slots`."""
    slot = here.cut.slots(rows, offset, here.capacity // here.cut.period).reshape(-1)
    return jax.tree.map(
        lambda d, x: d.at[slot].set(x.reshape(-1, *d.shape[1:]), mode="drop"), here.states, states
    )


@promoting
def sample(
    sequences: Sequences, key: PRNGKeyArray, batch: int, beta: float | Float[Array, ""] = 1.0
) -> Sample:
    """Sample `batch` windows independently (with replacement), with P_i = p_i^α / Σ p^α.

    If the storage is empty, `rows` is the capacity, `mask` is False and the weights are 1.
    O(batch · window + log capacity). Raises `ValueError` if `batch` is not positive.
    """
    if batch < 1:
        raise ValueError(f"`batch` must be at least 1 sequence, got {batch}.")
    sums = sequences.sums
    uniform = jax.random.uniform(key, (len(sums), batch), jnp.float32)
    rows, weight = tree.draw(sums, jnp.ones(1, jnp.float32), uniform)
    stored = sequences.stored.astype(jnp.float32)
    share = jnp.where(weight > 0, stored * weight / sums[0].sum(), jnp.inf)  # N P
    rows = jnp.where(weight > 0, rows, sequences.capacity)
    # Without a barrier, XLA fuses the draw into every gather and repeats it for each number read.
    rows, share = jax.lax.optimization_barrier((rows, share))
    weights = jnp.where(jnp.isfinite(share), (share / share.min()) ** -beta, 1)
    return Sample(**vars(window(sequences, rows, sequences.cut.burn_in)), weights=weights)


@promoting
def window(sequences: Sequences, rows: Int[Array, " sequence"], before: int) -> Window:
    """Return the sequences that begin in `rows`, with the `before` steps before each.

    `state` is correct if `before` and `burn_in` differ by whole periods. Overwritten steps are
    padding.
    """
    here, depth = sequences, sequences.depth
    at = jnp.arange(-before, here.cut.full, dtype=jnp.int32)[None]
    entries = here.table.at[rows].get(mode="fill", fill_value=0)
    available, past = entries[:, :1], entries[:, 1:]
    base = jnp.minimum(rows // depth, here.workers - 1)[:, None] * depth
    place = rows[:, None] - base
    left = (place - here.cursor) % depth  # earlier steps that the ring still holds
    mask = (at >= -jnp.minimum(past, left)) & (at < available)
    slot = (base + (place - before) % depth)[:, 0] // here.cut.period
    steps = ring.read(here.steps, base + (place + at) % depth, mask)
    return Window(
        steps=frames.read(here.frames, steps, base // depth, mask),
        state=jax.tree.map(lambda d: d[slot], here.states),
        begin=(at == -past) & mask,
        mask=mask,
        trained=mask & (at >= 0) & (at < here.cut.length),
        rows=rows,
    )


@converting("errors")
def priority(
    errors: Float[Array, "sequence window"],
    trained: Bool[Array, "sequence window"],
    eta: float | Float[Array, ""] = 0.9,
) -> Float[Array, " sequence"]:
    """Return p = η max_t |δ_t| + (1 - η) mean_t |δ_t| over the trained steps of each sequence."""
    size = jnp.where(trained, jnp.abs(errors), 0)
    mean = size.sum(axis=1) / jnp.maximum(trained.sum(axis=1), 1)
    return eta * size.max(axis=1) + (1 - eta) * mean


@converting("values")
def set_priority(
    sequences: Sequences, rows: Int[Array, " n"], values: Float[Array, " n"]
) -> Sequences:
    """Set p[rows] ← values, clipped to `tree.PRIORITIES`, for the sequences that begin in `rows`.

    Rows without a sequence and values that are not finite have no effect; of duplicate rows the
    larger value counts. Set priorities before the next `add`, which may put another sequence in the
    row.
    """
    ring.check_numbers("values", values, jnp.shape(rows), "of `rows`")
    stored = sequences.table.at[rows, 0].get(mode="fill", fill_value=0) > 0
    rows = jnp.where(stored & jnp.isfinite(values), rows, sequences.capacity)
    # Two draws of a sequence may differ in rounding, but the tree needs one weight per row.
    same = rows[:, None] == rows[None]
    values = jnp.max(jnp.where(same, values[None], -jnp.inf), axis=1).astype(jnp.float32)
    weights = jnp.where(rows < sequences.capacity, _law(values, sequences.alpha), 0)
    return replace(sequences, sums=tree.update(sequences.sums, rows, weights[:, None]))
