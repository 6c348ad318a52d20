"""Tape-based batching: the list D of transitions and I of episode starts, in rings of static shape.

Morad et al. (2024), Eqs. 30-35. Every worker writes its own ring of capacity / workers steps, so
that two workers never interleave inside an episode. I is a table with one row for each step of D:
row i holds the length of the episode that begins in step i, or 0. A ring overwrites the first step
of an episode first, so clearing the overwritten rows discards whole episodes (Eqs. 33-34), without
a loop, a limit to their number, or a counter that overflows.

In addition to the steps, a tape takes 12 bytes per step: the length, and a sum tree for sampling.
Pictures are stored once, by `frames`.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from mmrl import _random
from mmrl._dtypes import promoting
from mmrl.replay import frames, ring, tree
from mmrl.replay.frames import SHORTEST, Frames
from mmrl.replay.ring import Rollout

# A batch is drawn as a race of batch / SHORT episodes, and only if these are too short to fill it,
# as a longer race. Episodes of at least SHORT steps on average thus take the fast path.
SHORT = 16


class Tape(eqx.Module):
    """The steps of all workers, and the table of the episodes that are stored whole."""

    # D. The ring of worker w is rows w · depth to (w + 1) · depth - 1.
    steps: PyTree[Shaped[Array, "capacity ..."]]
    length: Int[Array, " capacity"]  # I: steps of the whole episode that begins in this row, or 0
    sums: tree.Tree  # sums of 1 and of length - 1 over the episodes of I: two columns
    cursor: Int[Array, ""]  # the place in every ring that is written next
    unfinished: Int[Array, " worker"]  # steps so far of the episode in progress, at most depth
    frames: Frames | None = None  # the pictures of `steps`, if these have any

    @property
    def workers(self) -> int:
        """Number of rings."""
        return self.unfinished.shape[-1]

    @property
    def depth(self) -> int:
        """Steps in each ring."""
        return self.length.shape[-1] // self.workers


class Sample(eqx.Module):
    """A batch as one tape: episodes (or segments) one after another, then zeros as padding.

    `begin` is True at the first step of each, and at every step past the last episode. `mask` is
    True at real steps. `rows` are the places on the tape where the sampled episodes begin
    (`capacity` for none), and `episode` is the index into `rows` of the episode that a step belongs
    to.
    """

    steps: PyTree[Shaped[Array, "batch ..."]]
    begin: Bool[Array, " batch"]
    mask: Bool[Array, " batch"]
    episode: Int[Array, " batch"]
    rows: Int[Array, " episode"]


def init(example: PyTree, capacity: int, *, workers: int = 1, shortest: int = SHORTEST) -> Tape:
    """Return an empty tape, D = I = (), for `capacity` steps, shared evenly among `workers`.

    `example` is one step, without axes. If its observation is a picture, [height, width, channel],
    truncated episodes of less than `shortest` steps are not stored, and there is room for the last
    picture of the others. Raises `ValueError` if `capacity` is not a positive multiple of
    `workers`, or `workers` < 1.
    """
    ring.check_sizes(example, capacity, workers)
    pictures, example = frames.init(example, workers, capacity // workers, shortest)
    return Tape(
        steps=ring.empty(example, capacity),
        length=jnp.zeros(capacity, jnp.int32),
        sums=tree.build(jnp.zeros((2, capacity), jnp.float32)),
        cursor=jnp.zeros((), jnp.int32),
        unfinished=jnp.zeros(workers, jnp.int32),
        frames=pictures,
    )


@promoting
def add(tape: Tape, rollout: Rollout) -> Tape:
    """Append a rollout ρ of [worker, time, ...]: D ← concat(D, ρ), I ← the whole episodes of D.

    Eqs. 30-34. Each worker continues where its last rollout stopped. An episode enters I with its
    last step and leaves it, whole, when its first step is overwritten. One that is longer than a
    ring is never sampled. O(worker · time) for any capacity, if the tape is donated or carried by a
    loop. `lax.cond` under `vmap` copies it, as does sampling from the tape before an `add` in the
    same step. Raises `ValueError` if the rollout's leaves do not match the tape, or are longer than
    a ring.
    """
    outline = frames.outline(tape.frames, rollout)
    time = ring.check_rollout(tape.steps, tape.workers, tape.depth, outline)
    began, after = ring.began(tape.unfinished, rollout.last)
    pictures, rollout, lost = frames.add(tape.frames, rollout, began)
    capacity, depth = tape.length.shape[0], tape.depth
    base = jnp.arange(tape.workers, dtype=jnp.int32)[:, None] * depth
    index = jnp.arange(time, dtype=jnp.int32)[None]
    rows = (base + (tape.cursor + index) % depth).reshape(-1)
    # The first step of an episode may be overwritten later in this rollout.
    whole = rollout.last & (time - began <= depth) & ~lost
    first = jnp.where(whole, base + (tape.cursor + began) % depth, capacity)
    continued = (base + (tape.cursor - tape.unfinished[:, None]) % depth).reshape(-1)
    changed = jnp.concatenate([rows, continued])
    # The same rows of every ring are written; they may wrap around its end.
    ends = [] if depth % tree.BRANCH == 0 else [0, depth - 1]
    here = jnp.append(tree.cover(tape.cursor, time) % depth, jnp.array(ends, jnp.int32))
    touched = jnp.concatenate([(base + here[None]).reshape(-1), continued])
    length = tape.length.at[rows].set(0, unique_indices=True)
    length = length.at[first].set(index + 1 - began, mode="drop")
    now = weights(length.at[changed].get(mode="fill", fill_value=0))
    return replace(
        tape,
        steps=ring.write(tape.steps, rows, rollout),
        length=length,
        sums=tree.update(tape.sums, changed, now.T, touched),
        cursor=(tape.cursor + time) % depth,
        unfinished=jnp.minimum(time - after, depth),
        frames=pictures,
    )


def weights(length: Int[Array, " n"]) -> Float[Array, "2 n"]:
    """Return 1 and length - 1, the two columns of `Tape.sums`; 0 in a row without an episode."""
    columns = length > 0, jnp.maximum(length - 1, 0)
    return jnp.stack([column.astype(jnp.float32) for column in columns])


def valid(tape: Tape) -> Bool[Array, " capacity"]:
    """Return I as flags: True where a whole episode begins, of `tape.length[row]` steps."""
    return tape.length > 0


@promoting
def sample(tape: Tape, key: PRNGKeyArray, batch: int) -> Sample:
    """Sample a batch of whole episodes: B = concat(D[I[j] : I[j+1]], …)[:B].  Eq. 35.

    The episodes j are drawn without replacement, each time uniformly among those not drawn yet
    (Algorithm 5, as printed, may draw one twice). The batch is full whenever the tape holds `batch`
    steps in whole episodes; otherwise it holds all of them. At most the last episode is cut, at its
    end: steps near the end of an episode are sampled less often, and steps beyond `batch` are never
    sampled. Use a batch that holds the longest episode.

    O(batch + log capacity). Raises `ValueError` if `batch` is not positive.
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
    """Return enough episodes to fill the batch, in the order drawn; `capacity` if no more exist.

    A race of `batch` rows always suffices, a race of `batch / SHORT` usually. The longer race,
    which begins like the short one, is the body of a loop that runs at most once: under `vmap`,
    `lax.cond` would always run it.
    """
    capacity = tape.length.shape[0]
    most = min(batch, capacity)
    short = min(most, -(-batch // SHORT))
    now, later = jax.random.split(key)
    noise = tree.noise(tape.sums, now, short)
    words, key_of = _random.as_words(later)

    def drawn(noise: tree.Noise, count: int) -> tuple[Int[Array, " episode"], Bool[Array, ""]]:
        rows, times = tree.race(tape.sums, noise, count)
        rows = jnp.where(jnp.isfinite(times), rows, capacity)
        steps = tape.length.at[rows].get(mode="fill", fill_value=0).sum()
        enough = (steps >= batch) | (rows[-1] == capacity)
        return jnp.pad(rows, (0, most - count), constant_values=capacity), enough

    def longer(state: tuple) -> tuple:
        # The key is part of the state and changes: XLA would run a constant body before the loop.
        more = tree.noise(tape.sums, key_of(state[2]), most - short)
        return drawn(tree.extend(noise, more), most)[0], jnp.array(True), ~state[2]

    first = (*drawn(noise, short), words)
    return first[0] if short == most else jax.lax.while_loop(lambda s: ~s[1], longer, first)[0]


@promoting
def gather(
    tape: Tape, first: Int[Array, " n"], offset: Int[Array, " n"], mask: Bool[Array, " n"]
) -> PyTree[Shaped[Array, "n ..."]]:
    """Return D[first + offset], wrapped around the worker's ring; zeros where `mask` is False."""
    base = first // tape.depth * tape.depth
    steps = ring.read(tape.steps, base + (first - base + offset) % tape.depth, mask)
    return frames.read(tape.frames, steps, first // tape.depth, mask)
