"""Tape-based batching, with a fixed-size tape per worker (Morad et al. 2024, Eqs. 30-35).

A tape consists of a list D of transitions and a list I of episode starts. Every worker writes to
its own ring of capacity / workers steps, so that episodes of different workers never interleave.
The list I is stored as a table with one row per step of D: row i contains the length of the episode
that begins at step i, or 0. A ring overwrites the steps of an episode in order, beginning with the
first step, so clearing the overwritten rows of I discards the episode (Eqs. 33-34). This layout
requires no loop, no limit on the number of episodes, and no counter that could overflow.

In addition to the transitions, a tape stores 12 bytes per step for the lengths and for a sum tree
to sample from. `frames` stores each image only once.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from mmrl import _random
from mmrl._dtypes import with_promotion
from mmrl.replay import frames, ring, tree
from mmrl.replay.frames import SHORTEST, Frames
from mmrl.replay.ring import Rollout

SHORT = 16  # steps; one race in `_episodes` usually suffices if the mean episode is longer


class Tape(eqx.Module):
    """Transitions of all workers, and a table of the complete episodes."""

    # D. Rows w · depth to (w + 1) · depth - 1 are the ring of worker w.
    steps: PyTree[Shaped[Array, "capacity ..."]]
    # I: length of the complete episode that begins in this row, or 0.
    length: Int[Array, " capacity"]
    sums: tree.Tree  # sum tree over the complete episodes, with the columns 1 and length - 1
    cursor: Int[Array, ""]  # next index to write in every ring
    current_length: Int[Array, " worker"]  # current length of the unfinished episode, at most depth
    frames: Frames | None = None  # images of `steps`, if any

    @property
    def workers(self) -> int:
        """Number of workers, each with its own ring."""
        return self.current_length.shape[-1]

    @property
    def depth(self) -> int:
        """Number of steps in each ring."""
        return self.length.shape[-1] // self.workers


class Sample(eqx.Module):
    """Batch of episodes or segments, concatenated to a single tape and padded with zeros.

    `begin` is True at the first step of each episode, and at all padding. `mask` is True at real
    steps. `rows` lists the row of the tape in which each sampled episode begins; unused entries are
    `capacity`. `episode` maps each step to an index into `rows`.
    """

    steps: PyTree[Shaped[Array, "batch ..."]]
    begin: Bool[Array, " batch"]
    mask: Bool[Array, " batch"]
    episode: Int[Array, " batch"]
    rows: Int[Array, " episode"]


def init(example: PyTree, capacity: int, *, workers: int = 1, shortest: int = SHORTEST) -> Tape:
    """Return an empty tape, D = I = (), for `capacity` steps, shared evenly among `workers`.

    `example` is a single step without worker and time axes. Observations with three axes are
    treated as images, [height, width, channel]. The image after a truncated episode is stored only
    if the episode has at least `shortest` steps; shorter truncated episodes lose their last step.
    Raises `ValueError` if `capacity` is not a positive multiple of `workers`, or if `workers` < 1.

        >>> storage = init({"obs": jnp.zeros(3)}, capacity=64, workers=2)
        >>> storage.depth  # steps in the ring of each worker
        32
    """
    ring.check_sizes(example, capacity, workers)
    pictures, example = frames.init(example, workers, capacity // workers, shortest)
    return Tape(
        steps=ring.empty(example, capacity),
        length=jnp.zeros(capacity, jnp.int32),
        sums=tree.build(jnp.zeros((2, capacity), jnp.float32)),
        cursor=jnp.zeros((), jnp.int32),
        current_length=jnp.zeros(workers, jnp.int32),
        frames=pictures,
    )


@with_promotion
def add(tape: Tape, rollout: Rollout) -> Tape:
    """Append a rollout ρ of [worker, time, ...] to the tape.  Eqs. 30-34.

    D ← concat(D, ρ), I ← the complete episodes of D. Each worker continues after its previous
    rollout. An episode enters I when its last step is written, and leaves I when its first step is
    overwritten. Episodes longer than a ring are never sampled.

    The cost is O(worker · time), independent of the capacity, if the tape is donated or is the
    carry of a loop. However, XLA copies the tape if `add` is a branch of `lax.cond` under `vmap`,
    or if the same step samples from the tape before `add`. Raises `ValueError` if the leaves of the
    rollout do not match the tape, or if the rollout does not fit in a ring.
    """
    outline = frames.outline(tape.frames, rollout)
    time = ring.check_rollout(tape.steps, tape.workers, tape.depth, outline)
    begins, after = ring.episode_starts(tape.current_length, rollout.last)
    pictures, rollout, gaps = frames.add(tape.frames, rollout, begins)
    capacity, depth = tape.length.shape[0], tape.depth
    base = jnp.arange(tape.workers, dtype=jnp.int32)[:, None] * depth
    index = jnp.arange(time, dtype=jnp.int32)[None]
    rows = (base + (tape.cursor + index) % depth).reshape(-1)
    # Omit episodes whose first step is overwritten later in the same rollout.
    whole = rollout.last & (time - begins <= depth)
    first = jnp.where(whole, base + (tape.cursor + begins) % depth, capacity)
    open_rows = (base + (tape.cursor - tape.current_length[:, None]) % depth).reshape(-1)
    updates = jnp.concatenate([rows, open_rows])
    # List enough rows to recompute every changed node of the tree. Rows are written at the same
    # indices in all rings; where the indices wrap around, add the first and last row of the ring.
    ends = [] if depth % tree.BRANCH == 0 else [0, depth - 1]
    here = jnp.append(tree.cover(tape.cursor, time) % depth, jnp.array(ends, jnp.int32))
    places = jnp.concatenate([(base + here[None]).reshape(-1), open_rows])
    length = tape.length.at[rows].set(0, unique_indices=True)
    length = length.at[first].set(index + 1 - begins - gaps, mode="drop")
    now = weights(length.at[updates].get(mode="fill", fill_value=0))
    steps = ring.write(tape.steps, rows, rollout)
    place = (tape.cursor + index) % depth
    # If a rollout fills its ring, the row before its first step contains its last step.
    cut = gaps & (index > begins) & ((index > 0) | (time < depth))
    steps = frames.cut(pictures, steps, place, cut)
    return replace(
        tape,
        steps=steps,
        length=length,
        sums=tree.update(tape.sums, updates, now.T, places),
        cursor=(tape.cursor + time) % depth,
        current_length=jnp.minimum(time - after, depth),
        frames=pictures,
    )


def weights(length: Int[Array, " n"]) -> Float[Array, "2 n"]:
    """Return the columns of `Tape.sums`: 1 and length - 1, or 0 where no episode begins."""
    columns = length > 0, jnp.maximum(length - 1, 0)
    return jnp.stack([column.astype(jnp.float32) for column in columns])


def valid(tape: Tape) -> Bool[Array, " capacity"]:
    """Return True for each row in which a complete episode begins."""
    return tape.length > 0


@with_promotion
def sample(tape: Tape, key: PRNGKeyArray, batch: int) -> Sample:
    """Sample complete episodes, and concatenate them to a tape of `batch` steps.  Eq. 35.

    B = concat(D[I[j] : I[j+1]], …)[:batch], where episode j begins in row I[j] of the steps D. The
    episodes are sampled uniformly without replacement (Algorithm 5 may sample one twice). If all
    complete episodes together have fewer than `batch` steps, padding follows them.

    The last episode of a batch may be cut off. Steps near the end of an episode are therefore
    sampled less often, and steps beyond the first `batch` steps of an episode are never sampled.
    Use a batch at least as long as the longest episode. The cost is O(batch + log capacity). Raises
    `ValueError` if `batch` is not positive.

        >>> from mmrl.rollout import Transition
        >>> x, last = jnp.arange(6.0)[None], jnp.array([[False, False, True] * 2])
        >>> steps = Transition(x, x, x, x, x % 3 == 0, terminated=last, truncated=x < 0)
        >>> storage = add(init(jax.tree.map(lambda x: x[0, 0], steps), capacity=8), steps)
        >>> sample(storage, jax.random.key(0), batch=6).steps.obs  # two episodes of three steps
        Array([3., 4., 5., 0., 1., 2.], dtype=float32)
    """
    if batch < 1:
        raise ValueError(f"`batch` must be at least 1 step, got {batch}.")
    rows = _episodes(tape, key, batch)
    length = tape.length.at[rows].get(mode="fill", fill_value=0)
    end = jnp.cumsum(length, dtype=jnp.int32)
    rows = jnp.where(end - length < batch, rows, tape.length.shape[0])
    at = jnp.arange(batch, dtype=jnp.int32)
    mask = at < end[-1]
    episode = jnp.minimum(jnp.searchsorted(end, at, side="right"), rows.shape[0] - 1)
    offset = at - (end - length)[episode]
    steps = gather(tape, rows[episode], offset, mask)
    return Sample(steps, (offset == 0) | ~mask, mask, episode, rows)


def _episodes(tape: Tape, key: PRNGKeyArray, batch: int) -> Int[Array, " episode"]:
    """Return the rows of enough episodes to fill the batch, in random order.

    Unused entries are `capacity`. Episodes are sampled without replacement, in the order in which
    they arrive in an exponential race (`tree.race`). First, `batch / SHORT` episodes are drawn,
    which usually suffice. Otherwise, the race continues to `batch` episodes, which always suffice.
    The second race is the body of a loop with at most one iteration, and not a branch of
    `lax.cond`, because under `vmap` both branches would run.
    """
    capacity = tape.length.shape[0]
    most = min(batch, capacity)
    short = min(most, -(-batch // SHORT))
    now, later = jax.random.split(key)
    noise = tree.noise(tape.sums, now, short)
    words, key_of = _random.as_words(later)

    def draw(noise: tree.Noise, count: int) -> tuple[Int[Array, " episode"], Bool[Array, ""]]:
        rows, times = tree.race(tape.sums, noise, count)
        rows = jnp.where(jnp.isfinite(times), rows, capacity)
        steps = tape.length.at[rows].get(mode="fill", fill_value=0).sum()
        enough = (steps >= batch) | (rows[-1] == capacity)
        return jnp.pad(rows, (0, most - count), constant_values=capacity), enough

    def longer(state: tuple) -> tuple:
        # Carry a key that changes. Otherwise the body would be constant, and XLA would hoist it out
        # of the loop and always run it.
        more = tree.noise(tape.sums, key_of(state[2]), most - short)
        return draw(tree.extend(noise, more), most)[0], jnp.array(True), ~state[2]

    first = (*draw(noise, short), words)
    return first[0] if short == most else jax.lax.while_loop(lambda s: ~s[1], longer, first)[0]


@with_promotion
def gather(
    tape: Tape, first: Int[Array, " n"], offset: Int[Array, " n"], mask: Bool[Array, " n"]
) -> PyTree[Shaped[Array, "n ..."]]:
    """Return the steps D[first + offset] of a worker's ring, with zeros where `mask` is False."""
    base = first // tape.depth * tape.depth
    steps = ring.read(tape.steps, base + (first - base + offset) % tape.depth, mask)
    return frames.read(tape.frames, steps, first // tape.depth, mask)
