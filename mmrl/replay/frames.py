"""Pictures of steps, each stored once.

The picture that follows a step is that of the next step, except at the end of an episode, behind
which another one begins. So the pictures of a worker are stored in a ring in which the next picture
of a step is the one behind its own:

    o_0  o_1  …  o_T  o'_T  o_0  o_1  …       o'_T only behind a truncation, which bootstraps

A step stores the places of its two pictures instead of the pictures. Where an episode terminated,
the next picture is any: no target depends on it.
"""

from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree, Shaped

from mmrl._dtypes import promoting

SHORTEST = 16
"""Truncated episodes of at least this many steps are stored, if a storage names no fewer."""


def shortest(params: Any) -> int:
    """Return the least number of steps that a storage must have for episodes with a time limit."""
    return min(SHORTEST, params.max_steps_in_episode)


class Frames(eqx.Module):
    """The pictures of all workers, in one ring for each.

    A picture is an array with 3 axes in `obs` of a step. A ring has room for those of `depth`
    steps, and behind them for that of a truncation in every `shortest` steps.
    """

    # Worker w's ring is the rows w · size to (w + 1) · size - 1; one array for each picture.
    pictures: tuple[Shaped[Array, "frame height width channel"], ...]
    cursor: Int[Array, " worker"]  # the place in each ring that is written next
    size: int = eqx.field(static=True)
    shortest: int = eqx.field(static=True)


def init(example: PyTree, workers: int, depth: int, shortest: int) -> tuple[Frames | None, PyTree]:
    """Return empty rings for `depth` steps, and a step that stores places.

    Without pictures in `example.obs`, or if it is not like a `Transition`, these are None and
    `example` itself.
    """
    size, found = depth + depth // shortest + 2, _pictures(getattr(example, "obs", None), 0)
    wanted = ("next_obs", "terminated", "truncated")
    if not found or not is_dataclass(example) or not all(hasattr(example, x) for x in wanted):
        return None, example
    rings = tuple(jnp.zeros((workers * size, *x.shape), x.dtype) for x in found)
    example = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), example)  # of types, or arrays
    place = jnp.zeros((), jnp.int32)
    empty = Frames(rings, jnp.zeros(workers, jnp.int32), size, shortest)
    return empty, _placed(example, 0, place, place)


def outline(frames: Frames | None, rollout: Any) -> Any:
    """Return a rollout, [worker, time, ...], with places that are all 0, to check its leaves.

    Raises `ValueError` for pictures that are not like those of `init`.
    """
    if frames is None:
        return rollout
    for obs in (rollout.obs, rollout.next_obs):
        ours, theirs = (
            [(x.shape[n:], x.dtype) for x in xs]
            for n, xs in ((1, frames.pictures), (2, _pictures(obs, 2)))
        )
        if ours != theirs:
            raise ValueError(
                f"`rollout` must have pictures like those of `init`, {ours}, got {theirs}."
            )
    zeros = jnp.zeros(rollout.last.shape, jnp.int32)
    return _placed(rollout, 2, zeros, zeros)


@promoting
def add(
    frames: Frames | None, rollout: Any, began: Int[Array, "worker time"]
) -> tuple[Frames | None, Any, Bool[Array, "worker time"]]:
    """Return `write` for the truncations that there is room for, and where there is none.

    There is room if an episode, which began at index `began`, has at least `shortest` steps.
    """
    if frames is None:
        return None, rollout, jnp.zeros(rollout.last.shape, bool)
    long = jnp.arange(began.shape[1], dtype=jnp.int32)[None] + 1 - began >= frames.shortest
    needed = bootstraps(rollout)
    return *write(frames, rollout, needed & long), needed & ~long


@promoting
def write(frames: Frames, rollout: Any, stored: Bool[Array, "worker time"]) -> tuple[Frames, Any]:
    """Return the rings with the pictures of a rollout, [worker, time, ...], and it with places.

    `stored` is True where the picture behind a step, the last of its episode, must be stored too.
    """
    time = stored.shape[1]
    index = jnp.arange(time, dtype=jnp.int32)[None]
    ends = jnp.cumsum(stored, axis=1, dtype=jnp.int32)
    place = (frames.cursor[:, None] + index + ends - stored) % frames.size
    behind = (place + 1) % frames.size
    base = jnp.arange(len(frames.cursor), dtype=jnp.int32)[:, None] * frames.size
    rows = (base + place).reshape(-1)
    # The last step's may be written again, as that of the next rollout's first step.
    following = jnp.where(stored | (index == time - 1), base + behind, len(frames.pictures[0]))

    def one(ring, now, ahead):
        ring = ring.at[rows].set(now.reshape(-1, *ring.shape[1:]), unique_indices=True)
        ahead = ahead.reshape(-1, *ring.shape[1:])
        return ring.at[following.reshape(-1)].set(ahead, mode="drop")

    given = _pictures(rollout.obs, 2), _pictures(rollout.next_obs, 2)
    pictures = [one(*each) for each in zip(frames.pictures, *given, strict=True)]
    cursor = (frames.cursor + time + ends[:, -1]) % frames.size
    frames = replace(frames, pictures=tuple(pictures), cursor=cursor)
    return frames, _placed(rollout, 2, place, behind)


@promoting
def read(
    frames: Frames | None, steps: Any, worker: Int[Array, "..."], mask: Bool[Array, "*n"]
) -> PyTree[Shaped[Array, "..."]]:
    """Return steps of these workers, [*n, ...], with pictures; zeros where `mask` is False.

    `worker` may have axes of length 1, along which steps share it.
    """
    if frames is None:
        return steps
    base = worker * frames.size

    def seen(obs: PyTree) -> PyTree:
        rings = iter(frames.pictures)

        def one(x: Any) -> Any:
            if not _is_place(x):
                return x
            real = mask.reshape(*mask.shape, 1, 1, 1)
            ring = next(rings)
            return jnp.where(real, ring[base + x.at], jnp.zeros((), ring.dtype))

        return jax.tree.map(one, obs, is_leaf=_is_place)

    return replace(steps, obs=seen(steps.obs), next_obs=seen(steps.next_obs))


def like(frames: Frames, workers: int) -> Frames:
    """Return empty rings of the same size."""
    rings = (jnp.zeros((workers * frames.size, *x.shape[1:]), x.dtype) for x in frames.pictures)
    return Frames(tuple(rings), jnp.zeros(workers, jnp.int32), frames.size, frames.shortest)


@promoting
def move(
    frames: Frames, workers: Int[Array, " n"], others: Frames, source: Int[Array, " n"]
) -> Frames:
    """Return rings of which those of `workers` are replaced by the rings `source` of `others`.

    Workers beyond the last are left out.
    """

    pairs = zip(by_worker(frames), by_worker(others), strict=True)
    return joined(frames, [old.at[workers].set(new[source], mode="drop") for old, new in pairs])


def by_worker(frames: Frames | None) -> list[Shaped[Array, "worker size height width channel"]]:
    """Return the rings apart; an empty list without pictures."""
    rings = frames.pictures if frames else ()
    return [x.reshape(-1, frames.size, *x.shape[1:]) for x in rings if frames]


def joined(frames: Frames, rings: Sequence[Shaped[Array, "worker size ..."]]) -> Frames:
    """Return the frames with these rings, as `by_worker` returns them."""
    return replace(frames, pictures=tuple(x.reshape(-1, *x.shape[2:]) for x in rings))


class Place(eqx.Module):
    """Where a picture lies in the ring of its worker."""

    at: Int[Array, "*n"]


def bootstraps(rollout: Any) -> Bool[Array, "worker time"]:
    """True where an episode was truncated, and did not terminate: its next picture is needed."""
    return rollout.truncated & ~rollout.terminated


def _placed(steps: Any, axes: int, now: Array, behind: Array) -> Any:
    """Return steps with places for pictures; `axes` come before those of a picture."""

    def places(obs: PyTree, at: Array) -> PyTree:
        return jax.tree.map(lambda x: Place(at) if x.ndim == axes + 3 else x, obs)

    return replace(steps, obs=places(steps.obs, now), next_obs=places(steps.next_obs, behind))


def _pictures(obs: PyTree, axes: int) -> list[Any]:
    return [x for x in jax.tree.leaves(obs) if jnp.ndim(x) == axes + 3]


def _is_place(x: Any) -> bool:
    return isinstance(x, Place)
