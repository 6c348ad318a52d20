"""Three right answers to each exercise of chapters 0 to 3b, by different algorithms."""

import itertools
import math
import operator
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.course.ch02_monoids_and_scans.exercises import scan_with


def _loop_returns(rewards, gamma):
    results = []
    for reward in reversed(list(rewards)):
        results.append(float(reward) + gamma * (results[-1] if results else 0.0))
    return results[::-1]


def _matrix_returns(rewards, gamma):
    lag = np.subtract.outer(np.arange(len(rewards)), np.arange(len(rewards)))
    return np.where(lag <= 0, float(gamma) ** np.abs(lag), 0) @ rewards


def _scan_returns(rewards, gamma):
    def step(after, reward):
        return (after := reward + gamma * after), after

    return jax.lax.scan(step, 0.0, jnp.asarray(rewards, jnp.float32), reverse=True)[1]


def _average_by_scan(xs, begin, beta):
    gains, inputs = jnp.where(begin, 0.0, beta), jnp.where(begin, xs, (1 - beta) * xs)
    return jax.lax.associative_scan(
        lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (gains, inputs)
    )[1]


def _average_by_weights(xs, begin, beta):
    out = []
    for t in range(len(xs)):
        first = max((s for s in range(t + 1) if begin[s]), default=None)
        start = 0 if first is None else first
        weights = [(1 - beta) * beta ** (t - s) for s in range(start, t + 1)]
        if first is not None:
            weights[0] = beta ** (t - start)
        out.append(np.dot(weights, xs[start : t + 1]))
    return np.array(out)


def _average_in_place(xs, begin, beta):
    for t in range(len(xs)):
        if not begin[t]:
            xs[t] = (1 - beta) * xs[t] + (beta * xs[t - 1] if t else 0)
    return xs


def _retention_loop(gain, keys, values, queries):
    table, read = np.zeros((keys.shape[1], values.shape[1])), []
    for k, v, q in zip(keys, values, queries, strict=True):
        table *= gain
        table += np.outer(k, v)
        read.append(q @ table)
    return read


def _retention_sum(gain, k, v, q):
    return [
        sum(gain ** (t - j) * (q[t] @ k[j]) * v[j] for j in range(t + 1)) for t in range(len(k))
    ]


def _retention_einsum(gain, k, v, q):
    lag = np.arange(len(k))[:, None] - np.arange(len(k))
    fade = jnp.where(lag >= 0, jnp.float32(gain) ** jnp.maximum(lag, 0), 0)
    return jnp.einsum("tj,td,jd,jv->tv", fade, q, k, v)


def _turn(lag, period, turn=0.3):
    units = np.exp(1j * (turn + 2 * np.pi * np.arange(period) / period))
    return [(units**k @ units**-lag).real / period for k in range(period)]


def _runs(flags):
    return [len(list(run)) for flag, run in itertools.groupby(flags) if flag]


def _join(a, b):
    """(prefix, suffix, best, is it one streak?)"""
    pre, suf, best, whole = a
    pre_b, suf_b, best_b, whole_b = b
    return (
        pre + pre_b * whole,
        suf_b + suf * whole_b,
        max(best, best_b, suf + pre_b),
        whole & whole_b,
    )


def _from_deck(suits, copies):
    cards = [suit for suit in range(suits) for _ in range(copies)]
    shares = [Fraction(cards[1:].count(suit), len(cards) - 1) for suit in range(suits)]
    return 2 * max(shares) - 1


SOLUTIONS = {
    "0.1": (Fraction(-1, 2), np.mean([1, -1, -1, -1]), jnp.float32(0.25 - 0.75)),
    "0.2": (
        lambda a, b: [a[0] * b[0], a[1] * b[0] + b[1]],
        lambda a, b: np.stack([a[0] * b[0], b[0] * a[1] + b[1]]),
        lambda a, b: (
            jnp.multiply(*map(jnp.asarray, (a[0], b[0]))),
            b[1] + b[0] * jnp.asarray(a[1]),
        ),
    ),
    "0.3": (_loop_returns, _matrix_returns, _scan_returns),
    "0b.1": (_average_by_scan, _average_by_weights, _average_in_place),
    "0b.2": (
        lambda key, steps: jnp.cumsum(jax.vmap(jax.random.normal)(jax.random.split(key, steps))),
        lambda key, steps: list(
            itertools.accumulate(jax.random.normal(k) for k in jax.random.split(key, steps))
        ),
        lambda key, steps: itertools.accumulate(
            float(jax.random.normal(jax.random.split(key, steps)[t])) for t in range(steps)
        ),
    ),
    "0b.3": (
        lambda tapes, gammas: [[_loop_returns(tape, g) for g in gammas] for tape in tapes],
        lambda tapes, gammas: np.moveaxis([_matrix_returns(tapes.T, g) for g in gammas], 2, 0),
        lambda tapes, gammas: jax.vmap(jax.vmap(_scan_returns, (None, 0)), (0, None))(
            tapes, gammas
        ),
    ),
    "1.1": (
        lambda belief, T, Z, obs: np.diag(Z[:, obs]) @ T.T @ belief / (belief @ T @ Z)[obs],
        lambda belief, T, Z, obs: [
            sum(belief[s] * T[s, n] for s in range(len(T))) * Z[n, obs] / (belief @ T @ Z)[obs]
            for n in range(len(T))
        ],
        lambda belief, T, Z, obs: (
            (joint := jnp.einsum("s,sn,n->n", belief, T, jnp.asarray(Z)[:, obs])) / joint.sum()
        ),
    ),
    "1.2": (
        lambda a, b: [
            a[0] @ b[0] / (a[0] @ b[0]).sum(),
            math.log((a[0] @ b[0]).sum()) + a[1] + b[1],
        ],
        lambda a, b: (
            np.einsum("ij,jk->ik", a[0], b[0]) / (a[0].sum(0) @ b[0].sum(1)),
            np.log(a[0].sum(0) @ b[0].sum(1)) + (a[1] + b[1]),
        ),
        lambda a, b: (
            (product := np.float32(a[0]) @ np.float32(b[0])) / product.sum(),
            np.float32(a[1]) + np.float32(b[1]) + np.log(product.sum()),
        ),
    ),
    "1.3": (
        _from_deck,
        lambda suits, copies: (
            (2 * copies - suits * copies + 1) / (suits * copies - 1) if suits > 1 else 1
        ),
        lambda suits, copies: np.float32(
            1 - 2 * (suits > 1) * ((suits - 1) * copies - 1) / (suits * copies - 1)
        ),
    ),
    "2.1": (
        lambda a, b: (a[0] + b[0], a[1] + (b[1] - a[1]) * b[0] / max(a[0] + b[0], 1)),
        lambda a, b: (
            b if not a[0] else (a[0] + b[0], np.average([a[1], b[1]], weights=[a[0], b[0]]))
        ),
        lambda a, b: jnp.array(
            [a[0] + b[0], np.divide(a[0] * a[1] + b[0] * b[1], np.maximum(a[0] + b[0], 1))]
        ),
    ),
    "2.2": (
        lambda a, b: (a[0] + b[0], *(sorted([b[1], x + b[0], b[2]])[1] for x in a[1:])),
        lambda a, b: [a[0] + b[0], *np.clip(np.array(a[1:]) + b[0], b[1], b[2])],
        lambda a, b: (
            np.float32(a[0] + b[0]),
            np.median([a[1] + b[0], *b[1:]]),
            np.median([a[2] + b[0], *b[1:]]),
        ),
    ),
    "2.3": (
        scan_with(lambda x: [x], operator.add, lambda h: max(_runs(h), default=0)),
        scan_with(lambda x: (int(x), int(x), int(x), x), _join, lambda h: float(h[2])),
        scan_with(" x".__getitem__, operator.add, lambda h: max(map(len, h.split(" ")))),
    ),
    "3.1": (
        lambda features, values: (
            np.einsum("ti,tj->ij", features, values),
            np.ones(len(features)) @ features,
        ),
        lambda features, values: [
            sum(np.outer(k, v) for k, v in zip(features, values, strict=True)),
            sum(features),
        ],
        lambda features, values: (
            jnp.asarray(features).T @ jnp.asarray(values),
            np.float32(features).sum(0).tolist(),
        ),
    ),
    "3.2": (_retention_loop, _retention_sum, _retention_einsum),
    "3.3": (
        lambda a, b: a if a[1] else b,
        lambda a, b: (jnp.where(a[1], a[0], b[0]), jnp.logical_or(a[1], b[1])),
        lambda a, b: np.array([a[1] * a[0] + (1 - a[1]) * b[0], max(a[1], b[1])]),
    ),
    "3b.1": (
        lambda eigenvalues: jnp.log(2.0) / -jnp.log(jnp.abs(jnp.complex64(eigenvalues))),
        lambda eigenvalues: [-math.log(2) / math.log(abs(x)) for x in eigenvalues],
        lambda eigenvalues: -1 / np.log2(np.hypot(eigenvalues.real, eigenvalues.imag)),
    ),
    "3b.2": (
        lambda shortest, longest, units: list(
            zip(
                *[
                    (0.5 ** (1 / life), math.sqrt(1 - 0.25 ** (1 / life)))
                    for i in range(units)
                    for life in [shortest * (longest / shortest) ** (i / (units - 1))]
                ],
                strict=True,
            )
        ),
        lambda shortest, longest, units: (
            (
                rates := np.exp(
                    np.log(0.5) / np.logspace(np.log10(shortest), np.log10(longest), units)
                )
            ),
            np.sqrt((1 - rates) * (1 + rates)),
        ),
        lambda shortest, longest, units: (
            (rates := 0.5 ** (1 / jnp.geomspace(shortest, longest, units))),
            jnp.sqrt(1 - rates**2),
        ),
    ),
    "3b.3": (
        _turn,
        lambda lag, period: (
            np.fft.ifft(np.exp(-2j * np.pi * np.arange(period) * lag / period)).real
        ),
        lambda lag, period: np.float32(_turn(lag, period, 0.0)),
    ),
}
