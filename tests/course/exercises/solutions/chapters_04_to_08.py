"""Three right answers to each exercise of chapters 4 to 8, by different algorithms."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np


def _learned_start(gains, inputs, begin, h0):
    h, states = None, []
    for gain, x, first in zip(gains.tolist(), inputs.tolist(), begin.tolist(), strict=True):
        h = gain * (h0 if first else h) + x
        states.append(h)
    return states


def _learned_start_by_episode(gains, inputs, begin, h0):
    states, starts = np.array(inputs), [*np.flatnonzero(begin), len(begin)]
    for start, end in itertools.pairwise(starts):
        for t in range(start, end):
            states[t] += gains[t] * (states[t - 1] if t > start else h0)
    return states


def _learned_start_by_scan(gains, inputs, begin, h0):
    def step(h, x):
        return (h := x[0] * jnp.where(x[2], h0, h) + x[1]), h

    return jax.lax.scan(step, 0.0, (jnp.float32(gains), jnp.float32(inputs), begin))[1]


def _diagnosis_by_pairs(memory, xs, begin):
    """From what the last step of an episode and the first of the next do to each other."""
    t = int(np.flatnonzero(begin)[1])

    def changes(obs, at):
        return memory(np.where(np.arange(len(xs)) == obs, 9.0, xs), begin)[at] != before[at]

    before = memory(xs, begin)
    if not changes(t - 1, t):
        return "right"
    if not changes(t, t + 1):
        return "late"
    return "never" if changes(t - 2, t - 1) else "early"


def _diagnosis_by_names(memory, xs, begin):
    for name, shift in (("right", 0), ("late", 1), ("early", -1)):
        resets = np.roll(begin, shift)
        if all(
            (memory(jnp.asarray(xs).at[s].add(1.0), begin) != memory(jnp.asarray(xs), begin))[t]
            == (not resets[s + 1 : t + 1].any())
            for s in range(len(xs))
            for t in range(s, len(xs))
        ):
            return name
    return "never"


def _retrace_sum(r, discount, q, next_v, last, ratio, lam):
    """Each target as a sum of corrections along its own episode."""
    results = []
    for t in range(len(r)):
        target, weight = r[t] + discount[t] * next_v[t], 1.0
        for s in range(t + 1, len(r)):
            if last[s - 1]:
                break
            weight *= discount[s - 1] * lam * min(1, ratio[s])
            target += weight * (r[s] + discount[s] * next_v[s] - q[s])
        results.append(target)
    return results


def _retrace_scan(r, discount, q, next_v, last, ratio, lam):
    def step(after, x):
        r, discount, q, v, last, c = x
        g = r + discount * (v + jnp.where(last, 0, after))
        return c * (g - q), g

    c = lam * jnp.minimum(1, ratio)
    xs = [jnp.asarray(x) for x in (r, discount, q, next_v, last, c)]
    return jax.lax.scan(step, jnp.float32(0), xs, reverse=True)[1]


def _retrace_matrix(r, discount, q, next_v, last, ratio, lam):
    """(1 - N) (G - q) = r + γ v' - q, solved for G."""
    gains = np.where(last[:-1], 0, discount[:-1] * lam * np.minimum(1, ratio[1:]))
    errors = r + discount * next_v
    corrections = np.where(last, 0, np.append(gains * np.nan_to_num(q[1:]), 0))
    return np.linalg.solve(np.eye(len(r)) - np.diag(gains, 1), errors - corrections)


def _batch_by_step(begins, end, order, size):
    steps, bounds = [], [*begins.tolist(), end]
    for j in order:
        for place in range(bounds[j], bounds[j + 1]):
            if len(steps) < size:
                steps.append(place)
    return steps


def _batch_by_owner(begins, end, order, size):
    owner = np.searchsorted(begins, np.arange(end), side="right") - 1
    return np.argsort(np.argsort(order)[owner], kind="stable")[:size]


def _taught_by_row(steps, size, lag):
    real = slots = 0
    for start in range(0, steps, size):
        slots += size
        real += max(min(size, steps - start) - lag, 0)
    return real / slots


def _target_loop(reward, terminated, gamma, next_q, next_q_target):
    results = []
    for r, end, q, judge in zip(reward, terminated, next_q, next_q_target, strict=True):
        results.append(r if end else r + gamma * judge[q.tolist().index(max(q))])
    return results


def _states(xs, begin, decay):
    lag = np.arange(len(xs))[:, None] - np.arange(len(xs))
    episode = np.cumsum(begin)
    same = (episode[:, None] == episode) & (lag >= 0)
    return np.where(same, decay ** np.maximum(lag, 0), 0) @ xs


def _lookahead_scan(xs, begin, next_xs, decay):
    def step(h, inputs):
        x, first, after = inputs
        h = jnp.where(first, x, decay * h + x)
        return h, decay * h + after

    return jax.lax.scan(step, jnp.zeros(2), (xs, begin, next_xs))[1]


def _huber_of_mean(errors, mask):
    mean = jnp.sum(jnp.abs(errors) * mask) / jnp.sum(mask)
    return jnp.where(mean <= 1, mean**2 / 2, mean - 0.5)


def _gradient_loop(errors, mask):
    real = [abs(e) for e, there in zip(errors, mask, strict=True) if there]
    slope = min(sum(real) / len(real), 1) / len(real)
    return [math.copysign(slope, e) if m else 0 for e, m in zip(errors, mask, strict=True)]


def _outside_loop(sizes, length):
    shares = []
    for n, row in enumerate(sizes):
        own = n // length * length
        shares.append(sum(row[:own]) / sum(row))
    return sum(shares) / len(shares)


def _burn_in_loop(eigenvalues, share):
    rest, steps = np.ones(len(eigenvalues)), 0
    while rest.max() > share:
        rest, steps = rest * np.abs(eigenvalues), steps + 1
    return steps


SOLUTIONS = {
    "4.1": (
        lambda last: [True, *last[:-1]],
        lambda last: np.insert(last.astype(int), 0, 1)[: len(last)],
        lambda last: jnp.roll(jnp.asarray(last), 1).at[0].set(True),
    ),
    "4.2": (_learned_start, _learned_start_by_episode, _learned_start_by_scan),
    "4.3": (
        _diagnosis_by_pairs,
        _diagnosis_by_names,
        lambda memory, xs, begin: np.str_(_diagnosis_by_pairs(memory, xs, begin)),
    ),
    "5.1": (
        lambda gamma, lam: math.log(2) / -(math.log(gamma) + math.log(lam)),
        lambda gamma, lam: jnp.log(0.5) / jnp.log(gamma * lam),
        lambda gamma, lam: np.float32(math.log(0.5, gamma * lam)),
    ),
    "5.2": (_retrace_sum, _retrace_scan, _retrace_matrix),
    "5.3": (
        lambda first, then: (
            max(then[0], then[1] + then[2] * first[0]),
            then[1] + then[2] * first[1],
            then[2] * first[2],
        ),
        lambda first, then: [
            *np.maximum(
                [then[0], -np.inf, -np.inf], np.array(then[2]) * first + [then[1], then[1], 0]
            )
        ],
        lambda first, then: (
            jnp.array(first)
            .at[:2]
            .set(then[1] + then[2] * jnp.array(first[:2]))
            .at[2]
            .mul(then[2])
            .at[0]
            .max(then[0])
        ),
    ),
    "6.1": (
        lambda lengths, size: 1 - sum(lengths) / (size * sum(math.ceil(n / size) for n in lengths)),
        lambda lengths, size: np.sum(-lengths % size) / np.sum(lengths + -lengths % size),
        lambda lengths, size: (
            jnp.sum(-jnp.asarray(lengths) % size) / jnp.sum(jnp.ceil(lengths / size) * size)
        ),
    ),
    "6.2": (
        _batch_by_step,
        _batch_by_owner,
        lambda begins, end, order, size: np.hstack(
            [np.arange(end)[begins[j] : [*begins, end][j + 1]] for j in order]
        )[:size].astype(np.int32),
    ),
    "6.3": (
        _taught_by_row,
        lambda steps, size, lag: np.mean(
            (np.arange(steps + -steps % size) % size >= lag)
            & (np.arange(steps + -steps % size) < steps)
        ),
        lambda steps, size, lag: (
            (steps // size * max(size - lag, 0) + max(steps % size - lag, 0))
            / (math.ceil(steps / size) * size)
        ),
    ),
    "7.1": (
        _target_loop,
        lambda r, end, gamma, q, judge: np.where(
            end, r, r + gamma * np.take_along_axis(judge, q.argmax(1)[:, None], 1).squeeze(1)
        ),
        lambda r, end, gamma, q, judge: (
            r + gamma * (1 - end) * jnp.sum(judge * jax.nn.one_hot(jnp.argmax(q, 1), q.shape[1]), 1)
        ),
    ),
    "7.2": (
        lambda xs, begin, next_xs, decay: decay * _states(xs, begin, decay) + next_xs,
        _lookahead_scan,
        lambda xs, begin, next_xs, decay: [
            decay * h + x for h, x in zip(_states(xs, begin, decay), next_xs.tolist(), strict=True)
        ],
    ),
    "7.3": (
        _gradient_loop,
        jax.grad(_huber_of_mean),
        lambda errors, mask: (
            np.sign(errors) * mask / mask.sum() * np.clip(np.mean(np.abs(errors), where=mask), 0, 1)
        ),
    ),
    "8.1": (
        lambda a, reach, ages: [min(k, reach) * a ** (k - 1) for k in ages.tolist()],
        lambda a, reach, ages: np.where(ages < reach, ages, reach) * np.power(a, ages) / a,
        lambda a, reach, ages: jax.vmap(
            jax.grad(  # stopped where the power is older than K
                lambda x, k: x ** jnp.minimum(k, reach) * a ** jnp.maximum(k - reach, 0)
            ),
            (None, 0),
        )(a, jnp.float32(ages)),
    ),
    "8.2": (
        _outside_loop,
        lambda sizes, length: (
            1 - np.mean([row[n - n % length :].sum() / row.sum() for n, row in enumerate(sizes)])
        ),
        lambda sizes, length: jnp.mean(
            jnp.sum(
                sizes * (np.arange(len(sizes)) < np.arange(len(sizes))[:, None] // length * length),
                1,
            )
            / jnp.sum(jnp.asarray(sizes), 1)
        ),
    ),
    "8.3": (
        _burn_in_loop,
        lambda eigenvalues, share: math.ceil(math.log(share, np.abs(eigenvalues).max())),
        lambda eigenvalues, share: jnp.ceil(
            jnp.max(jnp.log(share) / jnp.log(jnp.abs(jnp.complex64(eigenvalues))))
        ),
    ),
}
