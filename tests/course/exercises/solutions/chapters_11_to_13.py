"""Three right answers to each exercise of chapters 11 to 13, by different algorithms."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np


def _weights_followed(center, steps):
    """w and the average of one-hot vectors, one step after another (Eq. 11.5)."""
    decay, shares, total = 1 - 1 / (1 + center), np.ones(1), 1.0
    for _ in range(steps):
        shares, old, total = np.append(0, shares), total, 1 + decay * total
        shares = shares * decay * old / total + np.eye(len(shares))[0] / total
    return shares, shares @ range(steps + 1)


def _weights_closed(center, steps):
    d = center / (1 + center)
    shares = [(1 - d) * d**k / (1 - d ** (steps + 1)) for k in range(steps + 1)]
    return [shares, math.fsum(k * share for k, share in enumerate(shares))]


def _young(center, steps):
    """The mean age in closed form."""
    d = center / (1 + center)
    return d / (1 - d) - (steps + 1) * d ** (steps + 1) / (1 - d ** (steps + 1))


def _objective_loop(log_prob, behavior, recent, advantages, epsilon, proximal):
    results = []
    for pi, mu, near, adv in zip(log_prob, behavior, recent, advantages, strict=True):
        weight = math.exp(near - mu) if proximal == "decoupled" else 1
        r = math.exp(pi - (mu if proximal == "behavior" else near))
        bound = min(r, 1 + epsilon) if adv > 0 else max(r, 1 - epsilon)
        results.append(weight * bound * adv)
    return results


def _objective_where(log_prob, behavior, recent, advantages, epsilon, proximal):
    anchor, anchor_behavior = {
        "decoupled": (recent, behavior),
        "behavior": (behavior,) * 2,
        "recent": (recent,) * 2,
    }[proximal]
    r, side = jnp.exp(log_prob - anchor), jnp.sign(advantages)
    most = jnp.where(side > 0, jnp.minimum(r, 1 + epsilon), jnp.maximum(r, 1 - epsilon))
    return most * advantages * jnp.exp(anchor - anchor_behavior)


def _objective_bounds(log_prob, behavior, recent, advantages, epsilon, proximal):
    near = recent if proximal != "behavior" else behavior
    actor = behavior if proximal != "recent" else recent
    gain = np.exp(log_prob - actor) * advantages
    limit = np.exp(near - actor) * (advantages + epsilon * np.abs(advantages))
    return np.minimum(gain, limit)


def _noise_first(c, small, large, n_small, n):
    """Mean squares |∇L|² + S/n at n and at n/c, from a line through both measurements."""
    slope, signal = np.polyfit([1 / n_small, 1 / n], [small, large], 1)
    return math.sqrt((signal + slope * c / n) / (signal + slope / n)) / c


def _fit(c, small, large, n_small, n):
    signal = (n * large - n_small * small) / (n - n_small)
    noise = (large - signal) / signal
    return jnp.sqrt((1 + c * noise) / (1 + noise)) / c


def _extrapolate(c, small, large, n_small, n):
    at = large + (small - large) * (c / n - 1 / n) / (1 / n_small - 1 / n)
    return np.float32(np.sqrt(at / large) / c)


def _momentum(c, rate, momentum):
    center = c * (1 / (1 - momentum) - 1)
    return rate * c**-1 / (1 - momentum) / (1 + center), 1 - 1 / (1 + center)


def _merge(batches, decay):
    n = mean = m2 = 0.0
    for x in batches:
        n, m2, size, its = decay * n, decay * m2, len(x), np.mean(x)
        m2 += np.sum((x - its) ** 2) + (its - mean) ** 2 * n * size / (n + size)
        mean, n = (n * mean + size * its) / (n + size), n + size
    return mean, math.sqrt(m2 / n)


def _faded_sums(batches, decay):
    n = first = second = 0.0
    for x in batches:
        n = decay * n + len(x)
        first, second = decay * first + sum(x), decay * second + sum(x * x)
    return [first / n, (second / n - (first / n) ** 2) ** 0.5]


def _by_item(batches, decay):
    pairs = [(x, decay ** (len(batches) - 1 - i)) for i, some in enumerate(batches) for x in some]
    x, w = jnp.array(pairs).T
    mean = jnp.average(x, weights=w)
    return jnp.stack([mean, jnp.sqrt(jnp.average((x - mean) ** 2, weights=w))])


def _left_loop(ends, begin, order):
    return [
        1 - (ends[n][k] - ends[n + 2][k]) / (ends[n][k] - begin[k])
        for n, k in enumerate(order[:-2])
    ]


def _left_table(ends, begin, order):
    gains = jnp.asarray(ends - begin)
    own = jnp.asarray(order[:-2])[:, None]
    now, later = (jnp.take_along_axis(x, own, 1) for x in (gains[:-2], gains[2:]))
    return (later / now)[:, 0]


def _left_vector(ends, begin, order):
    steps, order = np.arange(len(order) - 2), np.array(order)
    gain = (ends - begin[None])[:, order[:-2]]
    return gain[steps + 2, steps] / gain[steps, steps]


def _project(theta, u1, y1, u2, y2):
    for u, y in ((u1, y1), (u2, y2)):
        theta = theta + np.linalg.pinv(u[None])[:, 0] * (y - u @ theta)
    return 0.5 * np.square(u1 @ theta - y1)


def _in_closed_form(theta, u1, y1, u2, y2):
    first = theta - (theta @ u1 - y1) * u1 / (u1 @ u1)
    return ((first @ u2 - y2) * (u1 @ u2) / (u2 @ u2)) ** 2 / 2


def _descend(theta, u1, y1, u2, y2):
    def loss(theta, u, y):
        return (jnp.dot(u, theta) - y) ** 2 / 2

    theta = jnp.asarray(theta)
    for u, y in ((u1, y1), (u2, y2)):
        theta = theta - jax.grad(loss)(theta, u, y) / jnp.sum(jnp.square(u))
    return loss(theta, u1, y1)


def _rehearsal_loop(order, environments, guests):
    plan, past = [], []
    for task in order:
        others = itertools.cycle([t for t in past if t != task] or [task])
        plan.append([task] * (environments - guests) + [next(others) for _ in range(guests)])
        past += [task] * (task not in past)
    return plan


def _rehearsal_cells(order, environments, guests):
    def cell(stage, place):
        others = list(dict.fromkeys(t for t in order[:stage] if t != order[stage]))
        turn = place - (environments - guests)
        return others[turn % len(others)] if turn >= 0 and others else order[stage]

    return np.array([[cell(n, e) for e in range(environments)] for n in range(len(order))], float)


def _rehearsal_in_place(order, environments, guests):
    plan = jnp.tile(jnp.array(order)[:, None], (1, environments))
    for n in range(1, len(order)):
        others = sorted(set(order[:n]) - {order[n]}, key=order.index)
        for k in range(guests * bool(others)):
            plan = plan.at[n, environments - guests + k].set(others[k % len(others)])
    return plan


SOLUTIONS = {
    "11.1": (
        _weights_followed,
        _weights_closed,
        lambda center, steps: (
            (w := jnp.power(center / (1 + center), jnp.arange(steps + 1))) / w.sum(),
            w @ jnp.arange(steps + 1.0) / w.sum(),
        ),
    ),
    "11.2": (_objective_loop, _objective_where, _objective_bounds),
    "11.3": (
        lambda kl_weight, center, other, steps: (
            kl_weight * _young(center, steps) / _young(other, steps)
        ),
        lambda kl_weight, center, other, steps: (
            kl_weight * np.divide(*(_weights_followed(x, steps)[1] for x in (center, other)))
        ),
        lambda kl_weight, center, other, steps: (
            jnp.float32(kl_weight)
            * np.divide(*(_weights_closed(x, steps)[1] for x in (center, other)))
        ),
    ),
    "12.1": (
        lambda c, step_size, beta: (step_size / math.sqrt(c), c * beta / (1 - beta + c * beta)),
        lambda c, step_size, beta: [step_size * c**-0.5, 1 - 1 / (1 + c * (1 / (1 - beta) - 1))],
        lambda c, step_size, beta: jnp.array(
            [step_size / jnp.sqrt(c), 1 - (1 - beta) / (1 + (c - 1) * beta)]
        ),
    ),
    "12.2": (_noise_first, _fit, _extrapolate),
    "12.3": (
        _momentum,
        lambda c, rate, momentum: (
            np.array([rate / c, c * momentum]) / (1 - momentum + c * momentum)
        ),
        lambda c, rate, momentum: [jnp.float32(x) for x in _momentum(c, rate, momentum)],
    ),
    "12b.1": (
        lambda c, decay, iterations: (1 - 2 / (1 + c * (2 / (1 - decay) - 1)), c * iterations),
        lambda c, decay, iterations: np.array(
            [(c * (1 + decay) - (1 - decay)) / (c * (1 + decay) + 1 - decay), iterations * c]
        ),
        lambda c, decay, iterations: (
            jnp.tanh(jnp.arctanh(decay) + 0.5 * jnp.log(c)),
            float(c * iterations),
        ),
    ),
    "12b.2": (_merge, _faded_sums, _by_item),
    "12b.3": (
        _young,
        lambda center, steps: _weights_closed(center, steps)[1],
        lambda center, steps: jnp.average(
            jnp.arange(steps + 1), weights=(center / (1 + center)) ** jnp.arange(steps + 1)
        ),
    ),
    "13.1": (_left_loop, _left_table, _left_vector),
    "13.2": (_project, _in_closed_form, _descend),
    "13.3": (_rehearsal_loop, _rehearsal_cells, _rehearsal_in_place),
}
