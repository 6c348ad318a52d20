"""Outputs and gradients of a memory on test tapes, which the gates check.

The functions take a `pair`, a memory whose trainable arrays have a leading axis of two, for the
initial and the perturbed parameters. A single compilation serves both.
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

LONG, END = 10_000, 100  # steps of the long tape, and of its first and last part
CUES = 120  # number of probe tapes, which differ in their first observation
PASTS = {
    "past": "a past that is larger by 100",
    "nan": "a NaN in the past",
    "infinity": "an infinity in the past",
    "state": "a state of NaN",
}
"""Descriptions of the changes to the episode before a `begin`."""
READERS = {"tape": "over a tape", "steps": "step by step", "ahead": "by `lookahead`"}
"""Descriptions of the modes of reading an episode."""


def alike(function: Callable) -> Callable:
    """Compile `function(model, …)` and map it over both models of a pair."""

    @eqx.filter_jit
    def of_both(pair: Any, *others: Any) -> PyTree:
        floats, rest = eqx.partition(pair, eqx.is_inexact_array)
        both = jax.vmap(lambda x: function(eqx.combine(x, rest), *others), axis_size=2)
        return both(floats)

    return of_both


def behavior_of(pair: Any, size: int, longest: int) -> dict[str, Any]:
    """Return the outputs of a pair on all test tapes, keyed by name.

    "clean", the keys of `PASTS`, "whole" and "later changed" have shape [model, step, out]. In
    these tapes, an episode begins at step "cut", except in the last two.

    "probe" has shape [model, tape, step, out]. The first observation of each of its tapes is one of
    `size` cards, and "cues" contains the indices of these cards.

    "ways" and "next" contain outputs [model, tape, step, out] for the clean tape, followed by the
    tapes of `PASTS`. "ways" is keyed by the modes that read the first and the second half. "next"
    contains the outputs that `lookahead` returns for the next step.
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
    tapes, ways, ahead = jax.device_get(_behavior(pair, rows, begins, spoilt))
    outputs = {name: tapes[:, i] for i, name in enumerate(names)}
    more = {"probe": tapes[:, len(names) :], "cues": cues, "cut": cut}
    return {**outputs, **more, "ways": ways, "next": ahead}


def _all(model: Any, rows: Array, begins: Array, spoilt: Array) -> tuple[Array, dict, Array]:
    """Compute the outputs on all tapes. If a tape is `spoilt`, its initial state is NaN."""

    def start(spoilt):
        state = jax.tree.map(jnp.asarray, model.init())
        bad = lambda x: jnp.where(spoilt, jnp.full_like(x, jnp.nan), x) if _real(x) else x  # noqa: E731
        return jax.tree.map(bad, state)

    starts = jax.vmap(start)(spoilt)
    tapes = jax.vmap(lambda *row: model(*row)[1])(starts, rows, begins)
    few = jax.tree.map(lambda x: x[: len(PASTS) + 1], (starts, rows, begins))
    # `lax.map` runs one tape at a time, so that equal inputs are rounded in the same way.
    return tapes, *jax.lax.map(lambda row: _ways(model, *row), few)


def _ways(model: Any, start: PyTree, xs: Array, begin: Array) -> tuple[dict, Array]:
    """Return the outputs of each pair of modes, and of lookahead."""

    def tape(state, xs, begin, _):
        end, ys = model(state, xs, begin)
        return end, ys, ys

    def steps(state, xs, begin, _):
        end, ys = jax.lax.scan(lambda h, x: model.step(h, *x), state, (xs, begin))
        return end, ys, ys

    # The tape is cut at a quarter, which is in the middle of its first episode.
    half, read = len(xs) // 4, (tape, steps, model.lookahead)
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


_behavior = alike(_all)


def law_errors(pair: Any, size: int) -> dict[str, np.ndarray]:
    """Compute the errors of each law, [model, triple], on products of 1 to 8 encoded inputs."""
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
    """Compute the gradients of the last outputs of a long tape with respect to observations.

    Returns (all finite, largest norm at the first `END` steps, largest norm at the last `END`
    steps), each of shape [model]. The last norm is also measured on a tape in which an episode
    begins at the last `END` steps, because some memories store only the first observations of an
    episode.
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

    # The first tape is one long episode. The second consists of a long and a short episode.
    begins = jnp.zeros((2, LONG), bool).at[1, -END].set(True)
    grads = jax.vmap(jax.grad(end, (0, 1)), (None, None, 0))(floats, xs, begins)
    finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(grads)]))
    sizes = jnp.linalg.norm(grads[1], axis=2)
    return finite, jnp.max(sizes[0, :END]), jnp.max(sizes[:, -END:])


_gradients = alike(_slopes)
