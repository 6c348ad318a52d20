"""What the explorers of R2D2 must compute: by `mmrl.returns` and NumPy, and by mmrl's memories."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mmrl import returns
from mmrl.memory import LRU, LSTM

INPUTS, UNITS, ACTIONS = 3, 5, 2
START, BURN_IN, STEPS = 9, 4, 6


def rescalings() -> Iterator[dict[str, Any]]:
    """h and h⁻¹ exactly by JAX; h⁻¹(h(x)) in float32 by NumPy, each operation rounded alike."""
    sizes = np.logspace(-4, 6, 41)
    xs = np.concatenate([-sizes, [0.0], sizes])
    for eps in (1e-3, 0.03):
        y = returns.rescale(jnp.asarray(xs), eps)
        yield dict(
            xs=xs,
            eps=eps,
            y=np.asarray(y),
            back=np.asarray(returns.unrescale(y, eps)),
            textbook=_float32(xs, eps, _textbook),
            stable=_float32(xs, eps, _stable),
        )


def _float32(xs: np.ndarray, eps: float, inverse: Callable) -> np.ndarray:
    x, e = xs.astype(np.float32), np.float32(eps)
    one = np.float32(1)
    out = inverse(x / (np.sqrt(np.abs(x) + one) + one) + e * x, e)
    assert out.dtype == np.float32
    return out.astype(float)


def _textbook(y, e):
    one, two, four = np.float32([1, 2, 4])
    root = (np.sqrt(one + four * e * (np.abs(y) + one + e)) - one) / (two * e)
    return np.sign(y) * (root * root - one)


def _stable(y, e):
    one, two, four = np.float32([1, 2, 4])
    b = one + two * e
    q = two * y / (b + np.sqrt(b * b + four * e * np.abs(y)))
    return q * (np.abs(q) + two)


@partial(jax.jit, static_argnums=0)
def _bootstrap(n: int, gamma: Any, reward: Any, x: Any) -> dict[str, Any]:
    q = returns.rescale(x, 1e-3)
    ahead = jnp.full(n, returns.unrescale(q, 1e-3))
    last = jnp.zeros(n, bool)
    sums = returns.n_step(jnp.full(n, reward), jnp.full(n, gamma), ahead, last, n)
    return {"q": q, "back": ahead[0], "sum": sums[0], "y": returns.rescale(sums[0], 1e-3)}


def bootstraps() -> Iterator[dict[str, Any]]:
    """The target of R2D2 as `mmrl.returns` puts it together."""
    for n, gamma, reward, x in (
        (1, 0.9, 1.0, 5.0),
        (5, 0.997, -20.0, 100.0),
        (8, 0.99, 0.0, -0.02),
    ):
        expected = _bootstrap(n, gamma, reward, x)
        settings = dict(x=x, eps=1e-3, n=n, gamma=gamma, reward=reward)
        expected = {name: float(value) for name, value in expected.items()}
        yield dict(call="rescaling_explorer.target", given=[settings], wanted=expected)


def stale() -> Iterator[dict[str, Any]]:
    """ΔQ of the four starts, with mmrl's LSTM and LRU one step at a time in float64."""
    xs = np.random.default_rng(5).normal(size=(START + STEPS, INPUTS))
    keys = jax.random.split(jax.random.key(6), 2)
    for name, build, step, q, weights in (
        ("lstm", LSTM, _lstm_step, _lstm_q, _lstm_weights),
        ("lru", LRU, _lru_step, _lru_q, _lru_weights),
    ):
        models = [build(INPUTS, ACTIONS, state_size=UNITS, key=key) for key in keys]
        learner, actor = (_float64(model) for model in models)
        deltas = _deltas(learner, actor, jnp.asarray(xs), eqx.filter_jit(step), q)
        yield dict(
            memory=name,
            size=2 * UNITS,
            xs=xs,
            learner=weights(learner),
            actor=weights(actor),
            settings={"start": START, "burnIn": BURN_IN, "steps": STEPS},
            deltas=deltas,
        )


def _deltas(learner, actor, xs, step, q) -> dict[str, list[float]]:
    def states(model, h, begin, end):
        out = [h]
        for t in range(begin, end):
            out.append(step(model, out[-1], xs[t]))
        return out

    end, prefix = START + STEPS, START - BURN_IN
    empty = jax.tree.map(jnp.zeros_like, step(learner, _empty(learner), xs[0]))
    exact = states(learner, empty, 0, end)
    actor_states = states(actor, empty, 0, end)
    starts = {
        "zero": (empty, START),
        "burn_in": (empty, prefix),
        "stored": (actor_states[START], START),
        "stored_burn_in": (actor_states[prefix], prefix),
    }
    deltas = {}
    for name, (h, begin) in starts.items():
        pairs = zip(states(learner, h, begin, end)[1:], exact[begin + 1 :], strict=True)
        both = [(np.asarray(q(learner, a)), np.asarray(q(learner, b))) for a, b in pairs]
        deltas[name] = [float(np.linalg.norm(a - b) / abs(b.max())) for a, b in both]
    return deltas


def _float64(model):
    """The model in float64, without what the explorer has not: biases and skips of the output."""
    model = jax.tree.map(lambda x: x.astype(jnp.float64) if eqx.is_inexact_array(x) else x, model)
    if isinstance(model, LSTM):
        return eqx.tree_at(lambda m: m.read_out.bias, model, replace_fn=jnp.zeros_like)
    return eqx.tree_at(lambda m: (m.skip.weight, m.skip.bias), model, replace_fn=jnp.zeros_like)


def _empty(model):
    return model.init() if isinstance(model, LSTM) else jnp.zeros(UNITS, complex)


def _lstm_step(model, state, x):
    return model.cell(state, x)


def _lstm_q(model, state):
    return model.read(state, None)


def _lstm_weights(model) -> dict[str, np.ndarray]:
    cell = model.lstm
    matrices = {"input": cell.weight_ih, "recur": cell.weight_hh, "bias": cell.bias}
    matrices["out"] = model.read_out.weight
    return {name: np.asarray(w).ravel() for name, w in matrices.items()}


def _lru_step(model, state, x):
    gain, drive = model.encode(x)
    return gain * state + drive


def _lru_q(model, state):
    return model.decode((None, state), jnp.zeros(INPUTS))


def _lru_weights(model) -> dict[str, np.ndarray]:
    real, imag = np.asarray(model.read_out)
    return {
        "rate": np.exp(np.asarray(model.nu)),
        "turn": np.exp(np.asarray(model.theta)),
        "input": np.asarray(model.read_in).ravel(),
        "out": np.hstack([real, -imag]).ravel(),
    }


VECTORS = {"rescalings": rescalings, "bootstraps": bootstraps, "stale": stale}
