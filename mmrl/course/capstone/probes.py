"""Outputs of one memory on many tapes, as built and moved: three programs serve all gates.

A program takes a `pair`: a memory whose trainable arrays have a first axis of two, so that a single
compilation serves both.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from mmrl.monoid.testing import errors, products

LONG, END = 10_000, 100  # steps of the long tape, and of its early and its late part
CUES = 120  # tapes of the probe, which differ in their first observation
PASTS = {
    "past": "a past that is larger by 100",
    "nan": "a NaN in the past",
    "infinity": "an infinity in the past",
    "state": "a state of NaN",
}
"""Changes to the episode before a `begin`, in words."""
READERS = {"tape": "over a tape", "steps": "step by step", "ahead": "by `lookahead`"}
"""Modes of reading an episode, in words."""


def alike(function: Callable) -> Callable:
    """Compile `function(model, …)` for both models of a pair; only arrays are traced."""

    @eqx.filter_jit
    def of_both(pair: Any, *others: Any) -> PyTree:
        floats, rest = eqx.partition(pair, eqx.is_inexact_array)
        both = jax.vmap(lambda x: function(eqx.combine(x, rest), *others), axis_size=2)
        return both(floats)

    return of_both


def behaved(pair: Any, size: int, longest: int) -> dict[str, Any]:
    """Return the outputs [model, step, out] of all tapes and all modes of reading, by name.

    An episode begins at step `cut`, except in "whole" and "later changed". In "probe", [model,
    tape, step, out], the first observation is one of `size` cards, whose numbers are "cues". In
    "ways", keyed by the modes that read the first and the second half, and in "next", the outputs
    of looking ahead, [model, tape, step, out], the clean tape comes first and the tapes of `PASTS`
    follow.
    """
    rng, steps = np.random.default_rng(2), longest + 1
    clean, cut = rng.normal(size=(steps, size)).astype(np.float32), steps // 2
    names = ("clean", *PASTS, "whole", "later changed")
    xs = {name: clean.copy() for name in names}
    xs["past"][:cut] += 100
    xs["nan"][cut - 2], xs["infinity"][cut - 2] = np.nan, np.inf
    xs["later changed"][cut:] = rng.normal(size=(steps - cut, size))
    cues = np.arange(CUES) // 2 % size  # both halves contain each cue equally often
    cards = np.repeat(clean[None], CUES, axis=0)
    cards[:, 0] = 2 * np.eye(size)[cues]
    rows = np.concatenate([np.stack(list(xs.values())), cards])
    begins = (np.arange(steps) == cut) & (np.arange(len(rows)) < len(names) - 2)[:, None]
    spoilt = np.arange(len(rows)) == names.index("state")
    tapes, ways, ahead = jax.device_get(_behaved(pair, rows, begins, spoilt))
    seen = {name: tapes[:, i] for i, name in enumerate(names)}
    more = {"probe": tapes[:, len(names) :], "cues": cues, "cut": cut}
    return {**seen, **more, "ways": ways, "next": ahead}


def _all(model: Any, rows: Array, begins: Array, spoilt: Array) -> tuple[Array, dict, Array]:
    """Read the tapes `rows` with their `begins`; a `spoilt` tape starts from a state of NaN."""

    def start(spoilt):
        state = jax.tree.map(jnp.asarray, model.init())
        bad = lambda x: jnp.where(spoilt, jnp.full_like(x, jnp.nan), x) if _real(x) else x  # noqa: E731
        return jax.tree.map(bad, state)

    starts = jax.vmap(start)(spoilt)
    tapes = jax.vmap(lambda *row: model(*row)[1])(starts, rows, begins)
    few = jax.tree.map(lambda x: x[: len(PASTS) + 1], (starts, rows, begins))
    # Run the tapes one after the other, so that equal numbers are rounded equally.
    return tapes, *jax.lax.map(lambda row: _ways(model, *row), few)


def _ways(model: Any, start: PyTree, xs: Array, begin: Array) -> tuple[dict, Array]:
    """Return outputs [step, out] by the modes that read the two halves, and by lookahead."""

    def tape(state, xs, begin, _):
        end, ys = model(state, xs, begin)
        return end, ys, ys

    def steps(state, xs, begin, _):
        end, ys = jax.lax.scan(lambda h, x: model.step(h, *x), state, (xs, begin))
        return end, ys, ys

    half, read = len(xs) // 4, (tape, steps, model.lookahead)  # in the middle of an episode
    halves = [(x[:half], x[half:]) for x in (xs, begin, jnp.roll(xs, -1, axis=0))]
    first, second = zip(*halves, strict=True)
    stack = lambda *x: jnp.stack(x)  # noqa: E731
    ends, early, soon = jax.tree.map(stack, *(each(start, *first) for each in read))
    ways = {}
    for then, each in zip(READERS, read, strict=True):
        _, late, later = jax.vmap(each, (0, None, None, None), axis_size=len(read))(ends, *second)
        ways |= {(one, then): jnp.concatenate([early[i], late[i]]) for i, one in enumerate(READERS)}
    return ways, jnp.concatenate([soon[-1], later[-1]])


def _real(x: Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


_behaved = alike(_all)


def law_errors(pair: Any, size: int) -> dict[str, np.ndarray]:
    """Return the errors of each law, [model, triple], on products of 1 to 8 encoded inputs."""
    rng = np.random.default_rng(3)
    xs = rng.normal(size=(3, 100, 8, size)).astype(np.float32)
    return jax.device_get(_law_errors(pair, xs))


def _laws(model: Any, xs: Array) -> dict[str, Array]:
    elements = jax.vmap(jax.vmap(jax.vmap(model.encode)))(xs)
    triples = jax.vmap(partial(products, model.monoid))(
        elements, jax.random.split(jax.random.key(6), 3)
    )
    return errors(model.monoid, *(jax.tree.map(lambda x, i=i: x[i], triples) for i in range(3)))


_law_errors = alike(_laws)


def gradients(pair: Any, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (all finite, largest early slope, largest late slope) of the end of a tape, [model].

    The late slopes are with respect to the last observations, also where an episode begins with
    them, because some memories read only the first observations of an episode.
    """
    xs = np.random.default_rng(4).normal(size=(LONG, size)).astype(np.float32)
    finite, early, late = jax.device_get(_gradients(pair, xs))
    return finite, early, late


def _slopes(model: Any, xs: Array) -> tuple[Array, Array, Array]:
    floats, rest = eqx.partition(model, eqx.is_inexact_array)
    weights = jnp.asarray(np.random.default_rng(5).normal(size=xs.shape[1]), xs.dtype)

    def end(floats, xs, begin):
        model = eqx.combine(floats, rest)
        ys = model(model.init(), xs, begin)[1]
        return jnp.sum(ys[-END:] @ weights)

    # One long episode; then a long and a short one.
    begins = jnp.zeros((2, LONG), bool).at[1, -END].set(True)
    grads = jax.vmap(jax.grad(end, (0, 1)), (None, None, 0))(floats, xs, begins)
    finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(grads)]))
    sizes = jnp.linalg.norm(grads[1], axis=2)
    return finite, jnp.max(sizes[0, :END]), jnp.max(sizes[:, -END:])


_gradients = alike(_slopes)
