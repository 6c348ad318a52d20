"""Deduplicated storage of image observations.

The next observation of a step is usually the observation of the following step, except at the end
of an episode. The images of each worker are therefore stored in a ring, where the image after a
step directly follows the image before it:

    o_0  o_1  …  o_T  o'_T  o_0  o_1  …       o'_T only after a truncation, where targets bootstrap

A step stores the indices of its two images. After a termination, the second image is arbitrary,
because no target depends on it. The ring has no room for the final images of short truncated
episodes. Such an episode is stored without its last step, as if it had been truncated one step
earlier: the observation of the omitted step is then the final image that targets need.
"""

from collections.abc import Sequence
from dataclasses import is_dataclass, replace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PyTree, Shaped

from mmrl._dtypes import with_promotion

SHORTEST = 16
"""Default length, in steps, below which a truncated episode loses its last step."""


def shortest(params: Any) -> int:
    """Return the length below which truncated episodes of a task lose their last step."""
    return min(SHORTEST, params.max_steps_in_episode)


class Frames(eqx.Module):
    """Images of all workers, with one ring per worker.

    Leaves of `obs` with three axes are images. A ring has room for the images of `depth` steps, and
    for the final image of one truncated episode per `shortest` steps.
    """

    # One array per image in `obs`. Rows w · size to (w + 1) · size - 1 are the ring of worker w.
    pictures: tuple[Shaped[Array, "frame height width channel"], ...]
    cursor: Int[Array, " worker"]  # next index to write in each ring
    size: int = eqx.field(static=True)
    shortest: int = eqx.field(static=True)


def init(example: PyTree, workers: int, depth: int, shortest: int) -> tuple[Frames | None, PyTree]:
    """Return empty rings for `depth` steps, and `example` with indices instead of images.

    Return None and `example` unchanged if `example.obs` has no images, or if `example` does not
    have the fields of a `Transition`.
    """
    size, pictures = depth + depth // shortest + 2, _pictures(getattr(example, "obs", None), 0)
    fields = ("next_obs", "terminated", "truncated")
    if not pictures or not is_dataclass(example) or not all(hasattr(example, x) for x in fields):
        return None, example
    rings = tuple(jnp.zeros((workers * size, *x.shape), x.dtype) for x in pictures)
    # The leaves of `example` may also be `jax.ShapeDtypeStruct`s.
    example = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), example)
    place = jnp.zeros((), jnp.int32)
    empty = Frames(rings, jnp.zeros(workers, jnp.int32), size, shortest)
    return empty, _with_indices(example, 0, place, place)


def outline(frames: Frames | None, rollout: Any) -> Any:
    """Replace the images in a rollout with zero indices, to give it the structure of the storage.

    Raises `ValueError` if the shapes or dtypes of the images differ from those in `init`.
    """
    if frames is None:
        return rollout
    for obs in (rollout.obs, rollout.next_obs):
        expected, actual = (
            [(x.shape[n:], x.dtype) for x in xs]
            for n, xs in ((1, frames.pictures), (2, _pictures(obs, 2)))
        )
        if expected != actual:
            raise ValueError(
                "`rollout` must have images with the shapes and dtypes of the example in `init`, "
                f"{expected}, got {actual}. Pass a step of the same environment to `init`."
            )
    zeros = jnp.zeros(rollout.last.shape, jnp.int32)
    return _with_indices(rollout, 2, zeros, zeros)


@with_promotion
def add(
    frames: Frames | None, rollout: Any, starts: Int[Array, "worker time"]
) -> tuple[Frames | None, Any, Bool[Array, "worker time"]]:
    """Write the images of a rollout to the rings.

    Returns the rings, the rollout with indices instead of images, and flags of the steps to omit.
    The image after a truncation is stored if its episode, which began at time index `starts`, has
    at least `shortest` steps. Otherwise the last step is omitted, and `cut` truncates the episode
    one step earlier.
    """
    if frames is None:
        return None, rollout, jnp.zeros(rollout.last.shape, bool)
    long = jnp.arange(starts.shape[1], dtype=jnp.int32)[None] + 1 - starts >= frames.shortest
    bootstrap = bootstraps(rollout)
    return *write(frames, rollout, bootstrap & long), bootstrap & ~long


@with_promotion
def cut(
    frames: Frames | None,
    steps: Any,
    place: Int[Array, "#worker time"],
    gaps: Bool[Array, "worker time"],
) -> Any:
    """Set `truncated` on the step before each omitted step.

    `gaps` is True at the steps that `add` omitted. Step t of the rollout is in row `place[t]` of
    its worker's ring. If the first step of the rollout is omitted, `truncated` is set on the step
    that the previous rollout wrote last.
    """
    if frames is None:
        return steps
    truncated = steps.truncated
    depth = len(truncated) // len(gaps)
    base = jnp.arange(len(gaps), dtype=jnp.int32)[:, None] * depth
    before = jnp.where(gaps, base + (place - 1) % depth, len(truncated)).reshape(-1)
    return replace(steps, truncated=truncated.at[before].set(True, mode="drop"))


@with_promotion
def write(
    frames: Frames, rollout: Any, keeps_next: Bool[Array, "worker time"]
) -> tuple[Frames, Any]:
    """Write the images of a rollout to the rings; return the rings, and the rollout with indices.

    The rollout has axes [worker, time, ...]. `keeps_next` is True at the last step of an episode if
    the image after that step is stored as well.
    """
    time = keeps_next.shape[1]
    index = jnp.arange(time, dtype=jnp.int32)[None]
    ends = jnp.cumsum(keeps_next, axis=1, dtype=jnp.int32)
    place = (frames.cursor[:, None] + index + ends - keeps_next) % frames.size
    behind = (place + 1) % frames.size
    base = jnp.arange(len(frames.cursor), dtype=jnp.int32)[:, None] * frames.size
    rows = (base + place).reshape(-1)
    # Also write the image after the last step of the rollout. If the episode continues, the next
    # rollout writes it again, as the image of its first step.
    next_rows = jnp.where(keeps_next | (index == time - 1), base + behind, len(frames.pictures[0]))

    def one(ring, now, ahead):
        ring = ring.at[rows].set(now.reshape(-1, *ring.shape[1:]), unique_indices=True)
        ahead = ahead.reshape(-1, *ring.shape[1:])
        return ring.at[next_rows.reshape(-1)].set(ahead, mode="drop")

    both = _pictures(rollout.obs, 2), _pictures(rollout.next_obs, 2)
    pictures = [one(*each) for each in zip(frames.pictures, *both, strict=True)]
    cursor = (frames.cursor + time + ends[:, -1]) % frames.size
    frames = replace(frames, pictures=tuple(pictures), cursor=cursor)
    return frames, _with_indices(rollout, 2, place, behind)


@with_promotion
def read(
    frames: Frames | None, steps: Any, worker: Int[Array, "..."], mask: Bool[Array, "*n"]
) -> PyTree[Shaped[Array, "..."]]:
    """Return steps [*n, ...] with images instead of indices, and zeros where `mask` is False.

    `worker` is the worker of each step; axes of length 1 are broadcast.
    """
    if frames is None:
        return steps
    base = worker * frames.size

    def images(obs: PyTree) -> PyTree:
        rings = iter(frames.pictures)

        def one(x: Any) -> Any:
            if not _is_place(x):
                return x
            real = mask.reshape(*mask.shape, 1, 1, 1)
            ring = next(rings)
            return jnp.where(real, ring[base + x.at], jnp.zeros((), ring.dtype))

        return jax.tree.map(one, obs, is_leaf=_is_place)

    return replace(steps, obs=images(steps.obs), next_obs=images(steps.next_obs))


def like(frames: Frames, workers: int) -> Frames:
    """Return empty rings of the same size for a different number of workers."""
    rings = (jnp.zeros((workers * frames.size, *x.shape[1:]), x.dtype) for x in frames.pictures)
    return Frames(tuple(rings), jnp.zeros(workers, jnp.int32), frames.size, frames.shortest)


@with_promotion
def move(
    frames: Frames, workers: Int[Array, " n"], others: Frames, source: Int[Array, " n"]
) -> Frames:
    """Copy ring `source[i]` of `others` to ring `workers[i]` of `frames`, for each i.

    Entries of `workers` that are past the last ring are ignored.
    """
    pairs = zip(by_worker(frames), by_worker(others), strict=True)
    return join(frames, [old.at[workers].set(new[source], mode="drop") for old, new in pairs])


def by_worker(frames: Frames | None) -> list[Shaped[Array, "worker size height width channel"]]:
    """Return the images with a separate worker axis, or an empty list if `frames` is None."""
    rings = frames.pictures if frames else ()
    return [x.reshape(-1, frames.size, *x.shape[1:]) for x in rings if frames]


def join(frames: Frames, rings: Sequence[Shaped[Array, "worker size ..."]]) -> Frames:
    """Return `frames` with new rings, which have a separate worker axis as in `by_worker`."""
    return replace(frames, pictures=tuple(x.reshape(-1, *x.shape[2:]) for x in rings))


class Place(eqx.Module):
    """Index of an image in the ring of its worker."""

    at: Int[Array, "*n"]


def bootstraps(rollout: Any) -> Bool[Array, "worker time"]:
    """Return True where an episode was truncated without terminating."""
    return rollout.truncated & ~rollout.terminated


def _with_indices(steps: Any, axes: int, now: Array, behind: Array) -> Any:
    """Replace the images in a pytree of steps with indices.

    Images are the leaves of the observations with `axes` + 3 axes.
    """

    def places(obs: PyTree, at: Array) -> PyTree:
        return jax.tree.map(lambda x: Place(at) if x.ndim == axes + 3 else x, obs)

    return replace(steps, obs=places(steps.obs, now), next_obs=places(steps.next_obs, behind))


def _pictures(obs: PyTree, axes: int) -> list[Any]:
    return [x for x in jax.tree.leaves(obs) if jnp.ndim(x) == axes + 3]


def _is_place(x: Any) -> bool:
    return isinstance(x, Place)
