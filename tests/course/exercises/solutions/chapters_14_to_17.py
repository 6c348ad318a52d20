"""Three right answers to each exercise of chapters 14 to 17, by different algorithms."""

import heapq
import math

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.course.ch15_recurrent_tensors.exercises import executor
from mmrl.course.ch16_graphs_and_schedules.exercises import (
    ACTOR_OPS,
    greedy,
    order_check,
    timing_check,
)


def _reservoir(capacity, actors, unroll, steps):
    places, came = int(capacity / (actors * unroll)), int(steps / (actors * unroll))
    return (
        (places, 1, 0)
        if came < places
        else (places, places / came, (came + 1 - places) / (came + 1))
    )


def _kept_clipped(capacity, actors, unroll, steps):
    places, came = (np.floor_divide(x, actors * unroll) for x in (capacity, steps))
    return np.array([places, np.clip(places / came, 0, 1), np.clip(1 - places / (came + 1), 0, 1)])


def _kept_jax(capacity, actors, unroll, steps):
    places, came = (jnp.int32(x) // jnp.int32(actors * unroll) for x in (capacity, steps))
    return places, jnp.minimum(places / came, 1), jnp.maximum(1 - places / (came + 1), 0)


def _largest_heap(lots, weights, k):
    keys = [u ** (1 / w) for u, w in zip(lots, weights, strict=True)]
    return sorted(heapq.nlargest(k, range(len(keys)), key=keys.__getitem__))


def _uses_loop(unrolls, fraction):
    uses = [1.0 - fraction] * unrolls
    for now in range(unrolls):
        for i in range(now + 1):
            uses[i] += fraction / (now + 1)
    return uses


def _uses_matrix(unrolls, fraction):
    shares = np.tril(np.ones((unrolls, unrolls))) / np.arange(1, unrolls + 1)[:, None]
    return 1 - fraction + fraction * shares.sum(0)


def _where_loop(read):
    text, axes = "", 0
    for counters, is_slice in read.values():
        text, axes = text + " " + counters, axes + is_slice
    return " ".join(sorted(set(text.split()))), axes


def _through_time_grad(d, c):
    def loss(x):
        h = total = 0.0
        for k in range(len(c)):
            total, h = total + c[k] * h, d * h + x[k]
        return total

    return jax.grad(loss)(jnp.zeros(len(c)))


def _recurrence(p, r, v, next_v, gamma, lam):
    (t,), (T,) = p.symbols, p.bounds
    a = p.tensor(t, name="advantage")
    a[T - 1] = (r + gamma * next_v - v)[T - 1]
    a[t] = r + gamma * next_v - v + gamma * lam * a[t + 1]
    return a


def _slice(p, r, v, next_v, gamma, lam):
    (t,), (T,) = p.symbols, p.bounds
    return (r + gamma * next_v - v)[t:T].discounted_sum(gamma * lam)


def _returns(p, r, v, next_v, gamma, lam):
    """The λ-return less the value."""
    (t,), (T,) = p.symbols, p.bounds
    g = p.tensor(t, name="lambda_return")
    g[T - 1] = (r + gamma * next_v)[T - 1]
    g[t] = r + gamma * ((1 - lam) * next_v + lam * g[t + 1])
    return g - v


def _behind_counted(n, T):
    windows = [range(t, T if n is None else min(t + n, T)) for t in range(T)]
    shift = max(window[-1] - t for t, window in enumerate(windows))
    return np.array([shift, min(shift + 1, T)])


TURN = ("delta", "adv", "grad")


def _learning_first(reads):
    order = []
    while len(order) < len(reads):
        ready = [p for p in reads if p not in order and set(reads[p]) <= set(order)]
        order.append(min(ready, key=lambda p: (p[0] in ACTOR_OPS, p[1])))
    return order


def _fewest_alive(reads):
    """Of the ready points, the one after which the fewest values are alive."""
    past, order = set(), []

    def alive(after):
        unread = {q for p in reads if p not in after for q in reads[p]}
        return len(after & unread)

    while len(order) < len(reads):
        ready = sorted(
            (p for p in reads if p not in past and past >= set(reads[p])), key=lambda p: p[1]
        )
        best = min(ready, key=lambda p: alive(past | {p}))
        past.add(best)
        order.append(best)
    return iter(order)


def _cost_played(T, n, m):
    tiles = [range(start, min(start + m, T)) for start in range(0, T, m)]
    waits = [T if n is None else min(tile[-1] + n, T) for tile in tiles]
    return len(tiles), max(min(w, T) - tile[0] for tile, w in zip(tiles, waits, strict=True))


def _window_loop(g, gamma, n):
    return [x - (gamma**n * g[t + n] if t + n < len(g) else 0) for t, x in enumerate(g)]


def _window_of_rewards(g, gamma, n):
    rewards = g - gamma * np.append(g[1:], 0)
    return np.array(
        [rewards[t : t + n] @ gamma ** np.arange(len(rewards[t : t + n])) for t in range(len(g))]
    )


def _average_scan(scores, values):
    def step(carry, x):
        top, weight, mean = carry
        new = jnp.maximum(top, x[0])
        old, share = weight * jnp.exp(top - new), jnp.exp(x[0] - new)
        mean = (old * mean + share * x[1]) / (old + share)
        return (new, old + share, mean), mean

    return jax.lax.scan(step, (-jnp.inf, 0.0, 0.0), (scores, values))[1]


def _average_running(scores, values):
    sums, mean, result = -math.inf, 0.0, []
    for score, value in zip(scores.tolist(), values.tolist(), strict=True):
        total = float(np.logaddexp(sums, score))
        mean = mean * math.exp(sums - total) + value * math.exp(score - total)
        sums = total
        result.append(mean)
    return result


SOLUTIONS = {
    "14.1": (_reservoir, _kept_clipped, _kept_jax),
    "14.2": (
        lambda lots, weights, k: np.sort(np.argsort(lots ** (1 / weights))[-k:]),
        _largest_heap,
        lambda lots, weights, k: jnp.sort(jax.lax.top_k(jnp.log(lots) / weights, k)[1]),
    ),
    "14.3": (
        _uses_loop,
        _uses_matrix,
        lambda unrolls, fraction: jnp.array(
            [
                1 - fraction + sum(fraction / j for j in range(i, unrolls + 1))
                for i in range(1, unrolls + 1)
            ]
        ),
    ),
    "15.1": (
        _where_loop,
        lambda read: (
            " ".join(x for x in "ikt" if any(x in counters for counters, _ in read.values())),
            len([1 for _, is_slice in read.values() if is_slice]),
        ),
        lambda read: [np.str_(_where_loop(read)[0]), np.sum([flag for _, flag in read.values()])],
    ),
    "15.2": (
        _through_time_grad,
        lambda d, c: [
            sum(d ** (k - t - 1) * c[k] for k in range(t + 1, len(c))) for t in range(len(c))
        ],
        lambda d, c: np.append(np.linalg.solve(np.eye(len(c)) - d * np.eye(len(c), k=1), c)[1:], 0),
    ),
    "15.3": tuple(map(executor, (_recurrence, _slice, _returns))),
    "16.1": (
        lambda n, T: (min(n or T, T) - 1, min(n or T, T)),
        _behind_counted,
        lambda n, T: [float(min(T if n is None else n, T) + k) for k in (-1, 0)],
    ),
    "16.2": (
        timing_check(lambda name, t, T: [0, t] if name == "step" else [1, -t, TURN.index(name)]),
        timing_check(lambda name, t, T: t if name == "step" else 4 * T - 3 * t + TURN.index(name)),
        timing_check(
            lambda name, t, T: np.array(
                [t / T, -1] if name == "step" else [1 + T - t, TURN.index(name)]
            )
        ),
    ),
    "16.3": (
        order_check(_learning_first),
        order_check(_fewest_alive),
        order_check(lambda reads: [list(point) for point in greedy(reads)]),
    ),
    "17.1": (
        _cost_played,
        lambda T, n, m: (len(range(0, T, m)), T if n is None or m + n - 1 > T else m + n - 1),
        lambda T, n, m: np.array([np.ceil(T / m), np.minimum(T, m + (T if n is None else n) - 1)]),
    ),
    "17.2": (
        _window_loop,
        _window_of_rewards,
        lambda g, gamma, n: g - gamma**n * jnp.pad(g, (0, n))[n:],
    ),
    "17.3": (
        _average_scan,
        _average_running,
        lambda scores, values: [
            jax.nn.softmax(scores[: t + 1]) @ values[: t + 1] for t in range(len(scores))
        ],
    ),
}
