"""One memory on many tapes, as it is built and moved: three programs for all gates to look at.

A program takes a `pair`: a memory whose trainable arrays have a first axis of two, so that a single
compilation answers for both.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from mmrl.monoid.laws import errors
from mmrl.scan import fold

LONG, END = 10_000, 100  # steps of the long tape, and how many count as early and as late
CUES = 120  # tapes of the probe, which differ in their first observation
PASTS = {
    "past": "a past that is larger by 100",
    "nan": "a NaN in the past",
    "infinity": "an infinity in the past",
    "state": "a state of NaN",
}
"""What is done to an episode before a `begin`, in words."""


def alike(function: Callable) -> Callable:
    """`function(model, …)` for both models of a pair, compiled; what is no array is static."""

    @eqx.filter_jit
    def of_both(pair: Any, *others: Any) -> PyTree:
        floats, rest = eqx.partition(pair, eqx.is_inexact_array)
        both = jax.vmap(lambda x: function(eqx.combine(x, rest), *others), axis_size=2)
        return both(floats)

    return of_both


def behaved(pair: Any, size: int, longest: int) -> dict[str, Any]:
    """Outputs [model, step, out] of all tapes and of all ways to read one, by name.

    An episode begins at step `cut`, but not in "whole" and "later changed". In "probe", [model,
    tape, step, out], the first observation is one of `size` cards, whose numbers are "cues".
    """
    rng, steps = np.random.default_rng(2), longest + 1
    clean, cut = rng.normal(size=(steps, size)).astype(np.float32), steps // 2
    names = ("clean", *PASTS, "whole", "later changed")
    xs = {name: clean.copy() for name in names}
    xs["past"][:cut] += 100
    xs["nan"][cut - 2], xs["infinity"][cut - 2] = np.nan, np.inf
    xs["later changed"][cut:] = rng.normal(size=(steps - cut, size))
    cues = np.arange(CUES) // 2 % size  # as many of each in either half
    cards = np.repeat(clean[None], CUES, axis=0)
    cards[:, 0] = 2 * np.eye(size)[cues]
    rows = np.concatenate([np.stack(list(xs.values())), cards])
    begins = (np.arange(steps) == cut) & (np.arange(len(rows)) < len(names) - 2)[:, None]
    spoilt = np.arange(len(rows)) == names.index("state")
    found = jax.device_get(_behaved(pair, rows, begins, spoilt, cut))
    tapes = found.pop("tapes")
    seen = {name: tapes[:, i] for i, name in enumerate(names)}
    more = {"next": seen["whole"][:, 1:], "probe": tapes[:, len(names) :], "cues": cues}
    return {**found, **seen, **more, "cut": cut}


def _all(model: Any, rows: Array, begins: Array, spoilt: Array, cut: int) -> dict[str, Array]:
    """`rows` are tapes with their `begins`; a `spoilt` one starts from a state of NaN."""
    clean, begin, never = rows[0], begins[0], jnp.zeros(rows.shape[1], bool)
    start = jax.tree.map(jnp.asarray, model.init())

    def read(xs, begin, spoilt):
        state = jax.tree.map(
            lambda x: jnp.where(spoilt & _real(x), jnp.full_like(x, jnp.nan), x) if _real(x) else x,
            start,
        )
        return model(state, xs, begin)[1]

    half = cut // 2  # in the middle of an episode
    end, first = model(start, clean[:half], begin[:half])
    return {
        "tapes": jax.vmap(read)(rows, begins, spoilt),
        "steps": jax.lax.scan(lambda h, x: model.step(h, *x), start, (clean, begin))[1],
        "parts": jnp.concatenate([first, model(end, clean[half:], begin[half:])[1]]),
        "ahead": model.lookahead(start, clean[:-1], never[:-1], clean[1:])[2],
    }


def _real(x: Array) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.inexact))


_behaved = alike(_all)


def law_errors(pair: Any, size: int) -> dict[str, np.ndarray]:
    """The errors of each law, [model, triple], on products of eight encoded observations."""
    rng = np.random.default_rng(3)
    xs = rng.normal(size=(3, 100, 8, size)).astype(np.float32)
    return jax.device_get(_law_errors(pair, xs))


def _laws(model: Any, xs: Array) -> dict[str, Array]:
    def element(xs):
        return fold(model.monoid, jax.vmap(model.encode)(xs))

    return errors(model.monoid, *(jax.vmap(element)(x) for x in xs))


_law_errors = alike(_laws)


def gradients(pair: Any, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(all finite, size of the early one, of the late one) of the end of a long tape, [model]."""
    xs = np.random.default_rng(4).normal(size=(LONG, size)).astype(np.float32)
    finite, early, late = jax.device_get(_gradients(pair, xs))
    return finite, early, late


def _slopes(model: Any, xs: Array) -> tuple[Array, Array, Array]:
    floats, rest = eqx.partition(model, eqx.is_inexact_array)
    weights = jnp.asarray(np.random.default_rng(5).normal(size=xs.shape[1]), xs.dtype)

    def end(floats, xs):
        model = eqx.combine(floats, rest)
        ys = model(model.init(), xs, jnp.zeros(len(xs), bool))[1]
        return jnp.sum(ys[-END:] @ weights)

    grads = jax.grad(end, (0, 1))(floats, xs)
    finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(grads)]))
    sizes = jnp.linalg.norm(grads[1], axis=1)
    return finite, jnp.max(sizes[:END]), jnp.max(sizes[-END:])


_gradients = alike(_slopes)
