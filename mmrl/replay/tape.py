"""Tape-based batching: the ordered transitions D and the episode starts I of Morad et al. (2024), Eqs. 30-35, as a ring.

Every worker writes its own ring of `depth = capacity / workers` steps, so that workers never interleave inside an episode.
I is a table with one row for each step of D: row i says how long the episode is that begins at step i, or 0. A ring
overwrites the first step of an episode before its others; clearing the rows that are written over therefore discards
whole episodes (Eqs. 33-34) without a loop, the table is never full, and no counter grows with time, so none overflows.

Beside the steps, a tape holds 16 bytes per step: length, priority, and two sum trees for drawing by priority.
"""

from typing import Any, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from mmrl.replay import tree

# The first race for a batch draws batch / SHORT episodes. Only if these are too short to fill it, a longer race is run.
SHORT = 16
# Priorities are kept in this range: positive, so that every episode can be drawn, and finite.
PRIORITIES = (1e-6, 1e6)


@runtime_checkable
class Rollout(Protocol):
    """What `add` takes: a pytree of arrays [worker, time, ...] with `last` [worker, time], true at an episode's last step."""

    @property
    def last(self) -> Any: ...


class Tape(eqx.Module):
    """Steps of all workers, worker by worker, and the table of the episodes that are stored whole."""

    steps: PyTree[Shaped[Array, "capacity ..."]]  # D: row `worker * depth + position`
    length: Int[Array, " capacity"]  # I: steps of the whole episode that begins in this row, 0 if none does
    priority: Float[Array, " capacity"]  # of the episode that begins in this row
    trees: tuple[tree.Tree, tree.Tree]  # sums of w = priority^α and of w · (length - 1) over the stored episodes
    alpha: Float[Array, ""]  # α: 0 draws uniformly, 1 in proportion to priority
    peak: Float[Array, ""]  # the highest priority ever set, which new episodes get
    cursor: Int[Array, ""]  # the position in each ring that is written next
    unfinished: Int[Array, " worker"]  # steps so far of the episode in progress, at most depth

    @property
    def workers(self) -> int:
        """Number of rings."""
        return self.unfinished.shape[-1]

    @property
    def depth(self) -> int:
        """Steps in each ring."""
        return self.length.shape[-1] // self.workers


class Sample(eqx.Module):
    """A tape of `batch` steps: whole episodes one after the other, of which only the last may be cut."""

    steps: PyTree[Shaped[Array, "batch ..."]]  # zeros where there is no data
    begin: Bool[Array, " batch"]  # the first step of an episode; also every step without data (none leaks into another)
    mask: Bool[Array, " batch"]  # True: real data. All True once the tape holds `batch` steps in whole episodes
    episode: Int[Array, " batch"]  # which of the sampled episodes the step belongs to: an index into `rows`
    rows: Int[Array, " episode"]  # the table rows of the sampled episodes; `capacity` where there is none


def init(
    example: PyTree, capacity: int, *, workers: int = 1, alpha: float | Float[Array, ""] = 0.0
) -> Tape:
    """An empty tape for `capacity` steps in all, shared evenly among `workers`; `example` is one step, without axes.

    Episodes are drawn with probability ∝ priority^α. `alpha` may be traced; 0 (the default) is the paper's uniform draw.

    Raises ValueError if `capacity` or `workers` is not positive or does not divide evenly.
    """
    if workers < 1:
        raise ValueError(f"`workers` must be at least 1, got {workers}.")
    if capacity < 1 or capacity % workers:
        raise ValueError(
            f"`capacity` must be a positive multiple of `workers` = {workers}, got {capacity}: "
            f"every worker has a ring of its own. Try {workers * max(1, round(capacity / workers))}."
        )
    if not jax.tree.leaves(example):
        raise ValueError("`example` must hold at least one array: one step as `add` will store it.")

    def empty(leaf: Any) -> Array:
        leaf = leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf)
        return jnp.zeros((capacity, *leaf.shape), leaf.dtype)

    return Tape(
        steps=jax.tree.map(empty, example),
        length=jnp.zeros(capacity, jnp.int32),
        priority=jnp.ones(capacity, jnp.float32),
        trees=(tree.build(jnp.zeros(capacity)), tree.build(jnp.zeros(capacity))),
        alpha=jnp.asarray(alpha, jnp.float32),
        peak=jnp.ones((), jnp.float32),
        cursor=jnp.zeros((), jnp.int32),
        unfinished=jnp.zeros(workers, jnp.int32),
    )


def add(tape: Tape, rollout: Rollout) -> Tape:
    """D ← concat(D, ρ), I ← the episodes of D that are whole (Eqs. 30-34), for ρ of [worker, time, ...].

    The steps of a worker continue where its last rollout stopped. An episode enters the table with its last step, at the
    highest priority so far, and leaves it, whole, with the first of its steps that is overwritten. An episode longer than
    a ring is never stored whole, and so never sampled. O(worker · time), whatever the capacity. Donate or carry the
    tape, and do not pass it through `lax.cond` under `vmap`, which would copy it.

    Raises ValueError if the rollout has other leaves than the tape or is longer than a ring.
    """
    time = _check(tape, rollout)
    workers, depth = tape.workers, tape.depth
    base = jnp.arange(workers)[:, None] * depth
    index = jnp.arange(time)[None]
    rows = base + (tape.cursor + index) % depth
    flat = rows.reshape(-1)
    steps = jax.tree.map(
        lambda d, x: d.at[flat].set(x.reshape(-1, *d.shape[1:]), unique_indices=True),
        tape.steps,
        rollout,
    )

    # The index in this rollout at which each step's episode began; negative if it began in an earlier rollout.
    opened = -tape.unfinished[:, None]
    after = jax.lax.cummax(jnp.where(rollout.last, index + 1, opened), axis=1)
    began = jnp.concatenate([opened, after[:, :-1]], axis=1)
    whole = rollout.last & (time - began <= depth)
    first = jnp.where(whole, base + (tape.cursor + began) % depth, tape.length.shape[0])
    length = tape.length.at[flat].set(0, unique_indices=True)
    length = length.at[first].set(index + 1 - began, mode="drop")
    priority = tape.priority.at[first].set(tape.peak, mode="drop")

    open_row = base + (tape.cursor + opened) % depth
    changed = jnp.concatenate([rows, open_row], axis=1).reshape(-1)
    tape = eqx.tree_at(
        lambda t: (t.steps, t.length, t.priority, t.cursor, t.unfinished),
        tape,
        (
            steps,
            length,
            priority,
            (tape.cursor + time) % depth,
            jnp.minimum(time - after[:, -1], depth),
        ),
    )
    return _reweigh(tape, changed)


def _check(tape: Tape, rollout: Rollout) -> int:
    """The number of time steps of a rollout that fits the tape; ValueError for one that does not."""
    ours, theirs = jax.tree.structure(tape.steps), jax.tree.structure(rollout)
    if ours != theirs:
        raise ValueError(
            f"`rollout` must have the structure of the tape's `example`, {ours}, got {theirs}."
        )
    last = rollout.last
    if last.ndim != 2 or last.shape[0] != tape.workers:
        raise ValueError(
            f"`rollout.last` must have the shape [worker, time] with {tape.workers} workers, "
            f"got {last.shape}. Give `init` the right `workers`, or `rollout` a worker axis."
        )
    time = last.shape[1]
    if not 1 <= time <= tape.depth:
        raise ValueError(
            f"`rollout` must have 1 to {tape.depth} steps per worker (capacity / workers), got {time}. "
            "Raise `capacity` or shorten the rollout."
        )
    for stored, leaf in zip(jax.tree.leaves(tape.steps), jax.tree.leaves(rollout), strict=True):
        wanted = (*last.shape, *stored.shape[1:])
        if leaf.shape != wanted or leaf.dtype != stored.dtype:
            raise ValueError(
                f"`rollout` must have leaves like the tape's `example`, here {stored.dtype}{list(wanted)}, "
                f"got {leaf.dtype}{list(leaf.shape)}."
            )
    return time


def _weights(
    length: Int[Array, " n"], priority: Float[Array, " n"], alpha: Float[Array, ""]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """What the two trees sum: w = priority^α and w · (length - 1); 0 where no episode begins."""
    w = jnp.where(length > 0, priority**alpha, 0.0)
    return w, w * (length - 1)


def _reweigh(tape: Tape, rows: Int[Array, " n"]) -> Tape:
    """The tape with its trees brought up to date at `rows`; a row past the end changes nothing."""
    length = tape.length.at[rows].get(mode="fill", fill_value=0)
    priority = tape.priority.at[rows].get(mode="fill", fill_value=1)
    weights = _weights(length, priority, tape.alpha)
    trees = tuple(tree.update(t, rows, w) for t, w in zip(tape.trees, weights, strict=True))
    return eqx.tree_at(lambda t: t.trees, tape, trees)


def set_alpha(tape: Tape, alpha: float | Float[Array, ""]) -> Tape:
    """The same tape, drawn with probability ∝ priority^α from now on. Builds the trees anew, in O(capacity)."""
    alpha = jnp.asarray(alpha, jnp.float32)
    first, second = _weights(tape.length, tape.priority, alpha)
    new = (tree.build(first), tree.build(second), alpha)
    return eqx.tree_at(lambda t: (*t.trees, t.alpha), tape, new)


def set_priority(tape: Tape, rows: Int[Array, " n"], values: Float[Array, " n"]) -> Tape:
    """The tape with priority `values` for the episodes that begin at `rows` (as in `Sample.rows`).

    Values are clipped to `PRIORITIES`. Rows that hold no episode and values that are not finite change nothing. A row
    given twice must have equal values. Set priorities before the next `add`, which may put another episode in a row.
    """
    values = jnp.clip(values, *PRIORITIES)
    stored = tape.length.at[rows].get(mode="fill", fill_value=0) > 0
    good = stored & jnp.isfinite(values)
    rows = jnp.where(good, rows, tape.length.shape[0])
    priority = tape.priority.at[rows].set(values, mode="drop")
    peak = jnp.maximum(tape.peak, jnp.where(good, values, 0.0).max(initial=0.0))
    tape = eqx.tree_at(lambda t: (t.priority, t.peak), tape, (priority, peak))
    return _reweigh(tape, rows)


def valid(tape: Tape) -> Bool[Array, " capacity"]:
    """The rows at which a whole episode begins: the index I of Eq. 30. Its length is `tape.length` there."""
    return tape.length > 0


def sample(
    tape: Tape, key: PRNGKeyArray, batch: int, *, alpha: float | Float[Array, ""] | None = None
) -> Sample:
    """B = concat(D[I[j] : I[j+1]], …)[:B] over episodes j drawn without replacement (Eq. 35), for B = `batch` steps.

    The next episode is j with probability ∝ priority_j^α among those not yet drawn. The batch is full whenever the tape
    holds `batch` steps in whole episodes; else it holds all of them, and `mask` marks the rest. At most the last episode
    is cut, at its end, so that late steps of an episode are seen less often than early ones.

    Cost is O(batch + log capacity). `alpha` overrides the tape's own in O(capacity), and should stay None in a loop.

    Raises ValueError if `batch` is not positive.
    """
    if batch < 1:
        raise ValueError(f"`batch` must be at least 1 step, got {batch}.")
    if alpha is not None:
        tape = set_alpha(tape, alpha)
    rows = _episodes(tape, key, batch)
    length = tape.length.at[rows].get(mode="fill", fill_value=0)
    end = jnp.cumsum(length)
    at = jnp.arange(batch)
    mask = at < end[-1]
    episode = jnp.minimum(jnp.searchsorted(end, at, side="right"), rows.shape[0] - 1)
    offset = at - (end - length)[episode]
    begin = (offset == 0) | ~mask
    return Sample(gather(tape, rows[episode], offset, mask), begin, mask, episode, rows)


def _episodes(tape: Tape, key: PRNGKeyArray, batch: int) -> Int[Array, " episode"]:
    """Table rows of enough episodes to fill the batch, in the order drawn; `capacity` once there are no more.

    A race of `batch` rows always suffices, but one of `batch / SHORT` most often does. The long race, which starts with
    the results of the short one, is the body of a loop that runs once or never: under `vmap`, `lax.cond` would run it
    always.
    """
    capacity = tape.length.shape[0]
    most = min(batch, capacity)

    def drawn(count: int) -> tuple[Int[Array, " episode"], Bool[Array, ""]]:
        rows, times = tree.race(tape.trees[0], key, count)
        rows = jnp.where(jnp.isfinite(times), rows, capacity)
        steps = tape.length.at[rows].get(mode="fill", fill_value=0).sum()
        full = (steps >= batch) | (rows[-1] == capacity) | (rows.shape[0] == most)
        return jnp.pad(rows, (0, most - rows.shape[0]), constant_values=capacity), full

    short = max(1, batch // SHORT)
    return jax.lax.while_loop(
        lambda state: ~state[1], lambda state: (drawn(most)[0], jnp.array(True)), drawn(short)
    )[0]


def gather(
    tape: Tape, first: Int[Array, " n"], offset: Int[Array, " n"], mask: Bool[Array, " n"]
) -> PyTree[Shaped[Array, "n ..."]]:
    """The steps `offset` after the rows `first`, around the ring of the same worker; zeros where `mask` is False."""
    base = first // tape.depth * tape.depth
    rows = jnp.where(mask, base + (first - base + offset) % tape.depth, 0)

    def take(leaf: Array) -> Array:
        real = mask.reshape(-1, *(1,) * (leaf.ndim - 1))
        return jnp.where(real, leaf[rows], jnp.zeros((), leaf.dtype))

    return jax.tree.map(take, tape.steps)


def episode_priority(
    drawn: Sample, errors: Float[Array, " batch"], eta: float | Float[Array, ""] = 0.9
) -> Float[Array, " episode"]:
    """p = η maxᵢ |δᵢ| + (1 - η) meanᵢ |δᵢ| over the real steps of each sampled episode (Kapturowski et al. 2019, §2.3).

    `set_priority(tape, drawn.rows, episode_priority(drawn, errors))` writes it back. Episodes without steps get 0.
    """
    size = drawn.rows.shape[0]
    errors = jnp.where(drawn.mask, jnp.abs(errors), 0.0)
    count = jax.ops.segment_sum(drawn.mask.astype(errors.dtype), drawn.episode, size)
    mean = jax.ops.segment_sum(errors, drawn.episode, size) / jnp.maximum(count, 1.0)
    most = jnp.maximum(jax.ops.segment_max(errors, drawn.episode, size), 0.0)
    return eta * most + (1 - eta) * mean
