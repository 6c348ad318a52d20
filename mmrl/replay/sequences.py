"""Prioritized replay of fixed-length sequences with stored recurrent states (R2D2).

Kapturowski et al. (2019). An episode of N steps is split into sequences that start every `period =
length - overlap` steps, at s = 0, period, 2 period, … while s + overlap < N; there is always a
sequence at s = 0. Sequences never cross episode boundaries. The last sequence may be short, so that
every step of the episode is used for training.

    s - burn_in           s                           s + length        s + length + tail
    ├── burn-in prefix ───┼── trained ──────────────────┼── tail ─────────┤
    └ recurrent state stored here                          for n-step targets: tail = n - 1

Steps are stored in rings (`ring.py`), and each sequence is a row of a table over these rings. A
step that is part of several sequences is thus stored only once, and a recurrent state is stored
once per `period` steps. The priority of a sequence, p = η max|δ| + (1 - η) mean|δ|, is a fold of
the monoids Max and Sum over its trained steps. A sum tree (`tree.py`) stores the weights p^α.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from mmrl._dtypes import convert_arguments, with_promotion
from mmrl.replay import frames, ring, tree
from mmrl.replay.cutting import Cut
from mmrl.replay.frames import SHORTEST, Frames
from mmrl.replay.ring import Rollout


class Sequences(eqx.Module):
    """Steps of all workers, and a table of the complete sequences."""

    # Rows w · depth to (w + 1) · depth - 1 are the ring of worker w.
    steps: PyTree[Shaped[Array, "capacity ..."]]
    states: PyTree[Shaped[Array, "slot ..."]]  # one recurrent state per `period` rows
    # Length, including the tail, of the sequence that begins in this row, and its start in the
    # episode. Both entries are 0 if no sequence begins in this row.
    table: Int[Array, "capacity 2"]
    sums: tree.Tree  # sum tree of p^α over the sequences
    count: Int[Array, ""]  # number of complete sequences
    # max|δ| and Σ|δ| of the sequences in progress
    folds: PyTree[Float[Array, "worker open"]]
    cursor: Int[Array, ""]  # next index to write in every ring
    current_length: Int[Array, " worker"]  # current length of the unfinished episode
    alpha: Float[Array, ""]  # exponent of the priorities; 0 samples uniformly
    eta: Float[Array, ""]  # weight of max |δ| in the priorities
    cut: Cut  # sizes of the sequences
    frames: Frames | None = None  # images of `steps`, if any

    @property
    def workers(self) -> int:
        """Number of workers, each with its own ring."""
        return self.current_length.shape[-1]

    @property
    def capacity(self) -> int:
        """Number of steps in all rings."""
        return self.table.shape[-2]

    @property
    def depth(self) -> int:
        """Number of steps in each ring."""
        return self.capacity // self.workers

    @property
    def available(self) -> Int[Array | np.ndarray, "*seed capacity"]:
        """Length, including the tail, of the sequence that begins in each row, or 0."""
        return self.table[..., 0]

    @property
    def past(self) -> Int[Array | np.ndarray, "*seed capacity"]:
        """Number of steps in the episode before the sequence that begins in each row."""
        return self.table[..., 1]

    @property
    def longest(self) -> int:
        """Maximum length of a rollout; a longer one could overwrite its own sequences."""
        return self.depth - self.cut.guard - self.cut.full


class Window(eqx.Module):
    """Sequences with the steps around them: rows of `before` + length + tail steps.

    `begin` is True at the first step of an episode. If an episode begins in the middle of a row,
    the steps before it are padding, which the memory forgets at `begin`. Other padding is at the
    end of a row, or replaces overwritten steps. Padding is zero. `state` is the recurrent state
    before the first step.
    """

    steps: PyTree[Shaped[Array, "sequence window ..."]]
    state: PyTree[Shaped[Array, "sequence ..."]]
    begin: Bool[Array, "sequence window"]
    mask: Bool[Array, "sequence window"]  # True at real steps, False at padding
    loss_mask: Bool[Array, "sequence window"]  # True at real steps outside the prefix and the tail
    rows: Int[Array, " sequence"]  # row in which each sequence begins, or `capacity`


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

    `example` is a single step, a pytree with the attribute `last`, and `state` is a single
    recurrent state. As in `tape.init`, truncated episodes of images lose their last step if they
    have fewer than `shortest` steps. Up to 2 · length + burn_in + tail steps of each ring cannot be
    sampled, because their sequences are incomplete or partly overwritten. Raises `ValueError` if a
    size is invalid, if `capacity` is not a multiple of workers · (length - overlap), or if a ring
    is too small for a window.
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
        count=jnp.zeros((), jnp.int32),
        folds=jax.tree.map(lambda x: jnp.stack([x] * workers), cut.no_folds()),
        cursor=jnp.zeros((), jnp.int32),
        current_length=jnp.zeros(workers, jnp.int32),
        alpha=jnp.asarray(alpha, jnp.float32),
        eta=jnp.asarray(eta, jnp.float32),
        cut=cut,
        frames=pictures,
    )
    if rings.longest < 1:
        raise ValueError(
            f"`capacity` must be at least {least}, so that each of {workers} workers can store a "
            f"complete sequence; got {capacity}."
        )
    return rings


@with_promotion
def add(
    sequences: Sequences,
    rollout: Rollout,
    states: PyTree[Shaped[Array, "worker time ..."]],
    errors: Float[Array, "worker time"],
) -> Sequences:
    """Append a rollout of [worker, time, ...] to the storage.

    A sequence can be sampled once its last step has been written. `states` are the recurrent states
    *before* each step. Initial priorities are computed from the TD errors `errors`; a sequence with
    a non-finite error gets the lowest priority. Each worker continues after its previous rollout.
    The cost is O(worker · time), independent of the capacity, if the storage is donated or is the
    carry of a loop. Raises `ValueError` if the leaves of `rollout` or `states` do not match `init`,
    if `errors` and `rollout.last` differ in shape, or if the rollout is too long.
    """
    here, capacity, depth = sequences, sequences.capacity, sequences.depth
    like = frames.outline(here.frames, rollout)
    time = ring.check_rollout(here.steps, here.workers, here.longest, like)
    ring.check_leaves("states", here.states, states, (here.workers, time))
    ring.check_numbers("errors", errors, (here.workers, time), "step")
    base = jnp.arange(here.workers, dtype=jnp.int32)[:, None] * depth
    index = jnp.arange(time, dtype=jnp.int32)[None]
    begins, after = ring.episode_starts(here.current_length, rollout.last)
    pictures, rollout, short = frames.add(here.frames, rollout, begins)
    errors = jnp.where(short, 0, jnp.asarray(errors, jnp.float32))  # ignore omitted steps
    offset = index - begins  # index of a step in its episode
    rows = base + (here.cursor + index) % depth
    start, available = here.cut.completions(offset, rollout.last)
    available = jnp.maximum(available - short[..., None], 0)
    first = rows[..., None] - (offset[..., None] - start)
    first = jnp.where(first < base[..., None], first + depth, first)
    first = jnp.where(available > 0, first, capacity).reshape(-1)
    after_each, folds = jax.vmap(here.cut.fold)(here.folds, offset, errors)
    priority = jax.vmap(here.cut.initial_priority, (0, 0, 0, None))(
        after_each, start, available, here.eta
    )
    steps = ring.write(here.steps, rows.reshape(-1), rollout)
    stale = (base + (here.cursor + here.cut.guard + index) % depth).reshape(-1)
    weights = jnp.where(available > 0, _weight(priority, here.alpha), 0).reshape(-1, 1)
    # Subtract the old entries instead of writing 0, so that XLA reads the table before it writes,
    # and does not have to copy it.
    old_entries = here.table[stale]
    change = (available > 0).sum(dtype=jnp.int32) - (old_entries[:, 0] > 0).sum(dtype=jnp.int32)
    entries = jnp.stack([available, start], axis=-1).reshape(-1, 2)
    return replace(
        here,
        steps=frames.cut(pictures, steps, rows - base, short & (offset > 0)),
        states=_write_states(here, rows, offset, states),
        table=here.table.at[stale].add(-old_entries).at[first].set(entries, mode="drop"),
        sums=tree.update(here.sums, first, weights, _covers(here, time), stale),
        count=here.count + change,
        folds=folds,
        cursor=(here.cursor + time) % depth,
        current_length=here.cut.wrap_counter(time - after),
        frames=pictures,
    )


def _weight(priority: Float[Array, "*n"], alpha: Float[Array, ""]) -> Float[Array, "*n"]:
    """Return the sampling weight p^α, or the smallest possible weight if p is not finite."""
    return jnp.clip(jnp.where(jnp.isfinite(priority), priority, 0), *tree.PRIORITIES) ** alpha


def _covers(here: Sequences, time: int) -> Int[Array, " n"]:
    """Return rows for `tree.update` that cover all rows whose weight `add` may change."""
    starts = tree.cover(here.cursor - here.cut.full, here.cut.full + time)
    stale = tree.cover(here.cursor + here.cut.guard, time)
    ends = [] if here.depth % tree.BRANCH == 0 else [0, here.depth - 1]
    within = jnp.concatenate([starts % here.depth, stale % here.depth, jnp.array(ends, jnp.int32)])
    return (jnp.arange(here.workers)[:, None] * here.depth + within[None]).reshape(-1)


def _write_states(here: Sequences, rows, offset, states) -> PyTree:
    """Store the state before the first step of every window; see `Cut.slots`."""
    slot = here.cut.slots(rows, offset, here.capacity // here.cut.period).reshape(-1)
    return jax.tree.map(
        lambda d, x: d.at[slot].set(x.reshape(-1, *d.shape[1:]), mode="drop"), here.states, states
    )


@with_promotion
def sample(
    sequences: Sequences, key: PRNGKeyArray, batch: int, beta: float | Float[Array, ""] = 1.0
) -> Sample:
    """Sample `batch` windows with replacement, with probabilities P_i = p_i^α / Σ p^α.

    If there are no complete sequences, all `rows` are `capacity`, the mask is False, and the
    weights are 1. The cost is O(batch · window + log capacity). Raises `ValueError` if `batch` is
    not positive.
    """
    if batch < 1:
        raise ValueError(f"`batch` must be at least 1 sequence, got {batch}.")
    sums = sequences.sums
    uniform = jax.random.uniform(key, (len(sums), batch), jnp.float32)
    rows, weight = tree.draw(sums, jnp.ones(1, jnp.float32), uniform)
    size = sequences.count.astype(jnp.float32)
    share = jnp.where(weight > 0, size * weight / sums[0].sum(), jnp.inf)  # N P_i
    rows = jnp.where(weight > 0, rows, sequences.capacity)
    # Without the barrier, XLA repeats the draw for each value that a gather of its rows reads.
    rows, share = jax.lax.optimization_barrier((rows, share))
    weights = jnp.where(jnp.isfinite(share), (share / share.min()) ** -beta, 1)
    return Sample(**vars(window(sequences, rows, sequences.cut.burn_in)), weights=weights)


@with_promotion
def window(sequences: Sequences, rows: Int[Array, " sequence"], before: int) -> Window:
    """Return the sequences that begin at `rows`, each with the `before` steps that precede it.

    `state` is valid only if `before` and `burn_in` differ by a multiple of the period. Overwritten
    steps are returned as padding.
    """
    here, depth = sequences, sequences.depth
    at = jnp.arange(-before, here.cut.full, dtype=jnp.int32)[None]
    entries = here.table.at[rows].get(mode="fill", fill_value=0)
    available, past = entries[:, :1], entries[:, 1:]
    base = jnp.minimum(rows // depth, here.workers - 1)[:, None] * depth
    place = rows[:, None] - base
    left = (place - here.cursor) % depth  # number of earlier steps that are still in the ring
    mask = (at >= -jnp.minimum(past, left)) & (at < available)
    slot = (base + (place - before) % depth)[:, 0] // here.cut.period
    steps = ring.read(here.steps, base + (place + at) % depth, mask)
    return Window(
        steps=frames.read(here.frames, steps, base // depth, mask),
        state=jax.tree.map(lambda d: d[slot], here.states),
        begin=(at == -past) & mask,
        mask=mask,
        loss_mask=mask & (at >= 0) & (at < here.cut.length),
        rows=rows,
    )


@convert_arguments("errors")
def priority(
    errors: Float[Array, "sequence window"],
    loss_mask: Bool[Array, "sequence window"],
    eta: float | Float[Array, ""] = 0.9,
) -> Float[Array, " sequence"]:
    """Return p = η max_t |δ_t| + (1 - η) mean_t |δ_t| over the trained steps of each sequence."""
    size = jnp.where(loss_mask, jnp.abs(errors), 0)
    mean = size.sum(axis=1) / jnp.maximum(loss_mask.sum(axis=1), 1)
    return eta * size.max(axis=1) + (1 - eta) * mean


@convert_arguments("values")
def set_priority(
    sequences: Sequences, rows: Int[Array, " n"], values: Float[Array, " n"]
) -> Sequences:
    """Set the priorities of the sequences that begin at `rows`.

    p[rows] ← values, clipped to `tree.PRIORITIES`. Rows without a sequence and non-finite values
    are ignored. Duplicate rows get the largest of their values. Call this before the next `add`,
    which may write a different sequence to these rows.
    """
    ring.check_numbers("values", values, jnp.shape(rows), "row")
    present = sequences.table.at[rows, 0].get(mode="fill", fill_value=0) > 0
    rows = jnp.where(present & jnp.isfinite(values), rows, sequences.capacity)
    # If a sequence was sampled twice, its two errors may differ by rounding, but the tree needs a
    # single weight per row.
    same = rows[:, None] == rows[None]
    values = jnp.max(jnp.where(same, values[None], -jnp.inf), axis=1).astype(jnp.float32)
    weights = jnp.where(rows < sequences.capacity, _weight(values, sequences.alpha), 0)
    return replace(sequences, sums=tree.update(sequences.sums, rows, weights[:, None]))
