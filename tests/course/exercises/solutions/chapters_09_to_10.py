"""Three right answers to each exercise of chapters 9 to 10, by different algorithms."""

import math

import jax
import jax.numpy as jnp
import numpy as np


def _starts_while(steps, length, overlap):
    results, start = [0], length - overlap
    while start + overlap < steps:
        results.append(start)
        start += length - overlap
    return results


def _starts_by_cover(steps, length, overlap):
    """A sequence begins until the last one reaches the end."""
    results = [0]
    while results[-1] + length < steps:
        results.append(results[-1] + length - overlap)
    return np.array(results, float)


def _h(x):
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + 1e-3 * x


def _h_inverse(y):
    root = np.sqrt(1 + 4e-3 * (np.abs(y) + 1 + 1e-3))
    return np.sign(y) * (((root - 1) / 2e-3) ** 2 - 1)


def _target_forward(rewards, terminated, gamma, q, q_target):
    total, weight = 0.0, 1.0
    for reward, end in zip(rewards, terminated, strict=True):
        total += weight * reward
        if end:
            return _h(total)
        weight *= gamma
    return _h(total + weight * _h_inverse(q_target[q.argmax()]))


def _target_sum(rewards, terminated, gamma, q, q_target):
    alive = np.concatenate([[1], np.cumprod(1 - terminated)])
    values = np.append(rewards, _h_inverse(q_target[int(np.argmax(q))]))
    return _h(np.sum(gamma ** np.arange(len(values)) * alive * values))


def _target_jax(rewards, terminated, gamma, q, q_target):
    total = jnp.float32(_h_inverse(q_target[jnp.argmax(q)]))
    for k in reversed(range(len(rewards))):
        total = jnp.where(terminated[k], rewards[k], rewards[k] + gamma * total)
    return jnp.sign(total) * (jnp.sqrt(jnp.abs(total) + 1) - 1) + 1e-3 * total


def _law_loop(errors, masks, eta, alpha, beta):
    p = []
    for row, mask in zip(errors, masks, strict=True):
        sizes = [abs(e) for e, real in zip(row, mask, strict=True) if real]
        p.append((eta * max(sizes) + (1 - eta) * sum(sizes) / len(sizes)) ** alpha)
    shares = [x / sum(p) for x in p]
    return shares, ((min(shares) / x) ** beta for x in shares)


def _law_masked(errors, masks, eta, alpha, beta):
    sizes = np.ma.array(np.abs(errors), mask=~masks)
    p = np.asarray(eta * sizes.max(1) + (1 - eta) * sizes.mean(1)) ** alpha
    w = (1 / (len(p) * p / p.sum())) ** beta
    return np.stack([p / p.sum(), w / max(w)])


def _law_jax(errors, masks, eta, alpha, beta):
    sizes = jnp.abs(jnp.asarray(errors))
    largest = jnp.max(sizes, axis=1, where=masks, initial=0)
    p = (eta * largest + (1 - eta) * jnp.mean(sizes, axis=1, where=masks)) ** alpha
    return p / p.sum(), (p / p.min()) ** -beta


def _staleness_loop(replay, exact):
    return [
        math.dist(a.tolist(), b.tolist()) / abs(max(b)) for a, b in zip(replay, exact, strict=True)
    ]


def _product_by_parts(factors, inputs):
    after = np.append(np.cumprod(factors[:0:-1])[::-1], 1)  # of the steps behind each input
    return np.prod(factors), np.sum(after * inputs)


def _product_by_play(factors, inputs):
    def play(h):
        for factor, x in zip(factors, inputs, strict=True):
            h = factor * h + x
        return h

    return np.array([play(1.0) - play(0.0), play(0.0)])


def _starts_series(lam, xi, burn_in):
    """The states as sums of what was read, far enough back."""
    ages = np.arange(20_000)
    exact, recurrence = (lam**ages).sum(), ((lam * math.exp(xi)) ** ages).sum()
    error = abs(recurrence - exact) / exact
    return 1, lam**burn_in, error, error * lam**burn_in


def _surrogate(ratio, advantage, epsilon):
    bounds = jnp.clip(ratio, 1 - epsilon, 1 + epsilon)
    return jnp.sum(jnp.minimum(ratio * advantage, bounds * advantage))


def _gae_sum(rewards, values, next_values, terminated, truncated, gamma, lam):
    delta = rewards + gamma * np.where(terminated, 0, next_values) - values
    results = []
    for t in range(len(rewards)):
        total, weight = 0.0, 1.0
        for k in range(t, len(rewards)):
            total += weight * delta[k]
            if terminated[k] or truncated[k]:
                break
            weight *= gamma * lam
        results.append(total)
    return results


def _gae_solved(rewards, values, next_values, terminated, truncated, gamma, lam):
    delta = rewards + gamma * (1 - terminated) * next_values - values
    gains = gamma * lam * ~(terminated | truncated)[:-1]
    return np.linalg.solve(np.eye(len(rewards)) - np.diag(gains, 1), delta)


def _gae_scan(rewards, values, next_values, terminated, truncated, gamma, lam):
    def step(ahead, x):
        reward, value, after, end, cut = x
        ahead = (
            reward + gamma * (1 - end) * after - value + gamma * lam * (1 - end) * (1 - cut) * ahead
        )
        return ahead, ahead

    xs = [jnp.float32(x) for x in (rewards, values, next_values, terminated, truncated)]
    return jax.lax.scan(step, 0.0, xs, reverse=True)[1]


def _past_sums(rewards, begin, g):
    lag = np.arange(len(rewards))[:, None] - np.arange(len(rewards))
    episode = np.cumsum(begin)
    same = (lag >= 0) & (episode[:, None] == episode)
    return np.where(same, g ** np.maximum(lag, 0), 0) @ rewards


def _welford(rewards, begin, g):
    mean = square = past = 0.0
    results = []
    for n, (reward, start) in enumerate(zip(rewards.tolist(), begin.tolist(), strict=True), 1):
        past = reward if start else reward + g * past
        step = past - mean
        mean += step / n
        square += step * (past - mean)
        results.append(math.sqrt(square / n))
    return results


def _two_moments(rewards, begin, g):
    sums, counts = _past_sums(rewards, begin, g), np.arange(1, len(rewards) + 1)
    mean, square = np.cumsum(sums) / counts, np.cumsum(sums**2) / counts
    return np.sqrt(np.maximum(square - mean**2, 0))


SOLUTIONS = {
    "9.1": (
        _starts_while,
        _starts_by_cover,
        lambda steps, length, overlap: range(
            0,
            max(math.ceil((steps - overlap) / (length - overlap)), 1) * (length - overlap),
            length - overlap,
        ),
    ),
    "9.2": (_target_forward, _target_sum, _target_jax),
    "9.3": (_law_loop, _law_masked, _law_jax),
    "9b.1": (
        _staleness_loop,
        lambda replay, exact: np.sqrt(((replay - exact) ** 2).sum(1)) / abs(exact.max(1)),
        lambda replay, exact: (
            jnp.linalg.norm(jnp.subtract(replay, exact), axis=-1) / jnp.abs(jnp.max(exact, -1))
        ),
    ),
    "9b.2": (
        _product_by_parts,
        _product_by_play,
        lambda factors, inputs: tuple(
            x[-1]
            for x in jax.lax.associative_scan(
                lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]),
                (jnp.array(factors), jnp.array(inputs)),
            )
        ),
    ),
    "9b.3": (
        _starts_series,
        lambda lam, xi, burn_in: np.outer(
            [1, abs(lam * math.expm1(xi) / (1 - lam * math.exp(xi)))], [1, lam**burn_in]
        ).ravel(),
        lambda lam, xi, burn_in: jnp.array(
            [
                1,
                lam**burn_in,
                (s := jnp.abs(1 - (1 - lam) / (1 - lam * jnp.exp(xi)))),
                s * lam**burn_in,
            ]
        ),
    ),
    "10.1": (
        lambda ratio, advantage, epsilon: jax.grad(_surrogate)(ratio, advantage, epsilon) == 0,
        lambda ratio, advantage, epsilon: [
            bool(r > 1 + epsilon if a > 0 else r < 1 - epsilon)
            for r, a in zip(ratio, advantage, strict=True)
        ],
        lambda ratio, advantage, epsilon: (ratio - 1) * np.sign(advantage) > epsilon,
    ),
    "10.2": (_gae_sum, _gae_solved, _gae_scan),
    "10.3": (
        _welford,
        _two_moments,
        lambda rewards, begin, g: jnp.array(
            [np.std(_past_sums(rewards, begin, g)[: t + 1]) for t in range(len(rewards))]
        ),
    ),
}
