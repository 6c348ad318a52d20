"""Exercises for chapter 10: PPO with memory."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _stop(ratio, advantage, epsilon):
    return np.where(advantage > 0, ratio > 1 + epsilon, (advantage < 0) & (ratio < 1 - epsilon))


def _stopped_cases(rng):
    cases = []
    for n, epsilon in ((1, 0.2), (2, 0.2), (9, 0.1), (40, 0.2), (40, 0.4)):
        ratio, advantage = np.exp(rng.normal(size=n) * 0.6), rng.normal(size=n)
        # This step is far outside the clip range, but still has a gradient.
        ratio[0], advantage[0] = (1.9, -1.0) if n < 9 else (0.4, 1.0)
        cases.append((ratio, advantage, epsilon))
    return cases


is_stopped = Exercise(
    "10.1",
    solution=_stop,
    cases=_stopped_cases,
    mistakes=(
        Mistake(
            lambda ratio, advantage, epsilon: np.abs(ratio - 1) > epsilon,
            "You test where the ratio is outside the clip range. Eq. 10.4 takes the smaller of two "
            "products, so a change that made things worse keeps its gradient and can be undone. "
            "For example, A = -1 with a ratio of 1.82 is not stopped.",
        ),
        Mistake(
            lambda ratio, advantage, epsilon: np.where(
                advantage > 0, ratio < 1 - epsilon, ratio > 1 + epsilon
            ),
            "It is the other way around: the ratios of these steps moved against their advantage, "
            "so they must keep their gradient in order to move back.",
        ),
        Mistake(
            lambda ratio, advantage, epsilon: ratio > 1 + epsilon,
            "You ignore the sign of the advantage. If A < 0, the ratio should decrease, so the "
            "step is stopped when the ratio is below 1 - ε, not above 1 + ε.",
        ),
        Mistake(
            lambda ratio, advantage, epsilon: (advantage > 0) & (ratio > 1 + epsilon),
            "This is half of the answer. Steps with A < 0 are stopped too, if their ratio is below "
            "1 - ε.",
        ),
        Mistake(
            lambda ratio, advantage, epsilon: ~np.asarray(_stop(ratio, advantage, epsilon)),
            "These are the steps that still have a gradient. Return the others.",
        ),
    ),
)


def _gae(rewards, values, next_values, terminated, truncated, gamma, lam):
    last, ahead = np.asarray(terminated) | np.asarray(truncated), 0.0
    advantages = np.zeros(len(rewards))
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * (not terminated[t]) * next_values[t] - values[t]
        ahead = delta + gamma * lam * (not last[t]) * ahead
        advantages[t] = ahead
    return advantages


def _swallow(rewards, values, next_values, terminated, truncated, gamma, lam):
    last = terminated | truncated
    return _gae(rewards, values, next_values, last, truncated, gamma, lam)


def _next_step_values(rewards, values, next_values, terminated, truncated, gamma, lam):
    ahead = np.append(values[1:], next_values[-1])
    return _gae(rewards, values, ahead, terminated, truncated, gamma, lam)


def _unbroken(rewards, values, next_values, terminated, truncated, gamma, lam):
    never = np.zeros(len(rewards), bool)
    return _gae(rewards, values, next_values, terminated, never, gamma, lam)


def _endless(rewards, values, next_values, terminated, truncated, gamma, lam):
    never, ahead = np.zeros(len(rewards), bool), np.where(terminated, 0.0, next_values)
    return _gae(rewards, values, ahead, never, never, gamma, lam)


def _without_mask(rewards, values, next_values, terminated, truncated, gamma, lam):
    last, never = terminated | truncated, np.zeros(len(rewards), bool)
    return _gae(rewards, values, next_values, never, last, gamma, lam)


def _gae_cases(rng):
    cases = []
    for n, ends, cuts in (
        (1, [], []),
        (2, [0], []),
        (6, [3], [1]),
        (9, [], [4]),
        (12, [2, 8], [5]),
    ):
        where = np.arange(n)
        values, next_values = rng.normal(size=(2, n)) * 3
        last = np.isin(where, [*ends, *cuts])
        inside = ~last[:-1]
        next_values[:-1][inside] = values[1:][inside]
        flags = np.isin(where, ends), np.isin(where, cuts)
        cases.append((rng.normal(size=n), values, next_values, *flags, 0.9, 0.8))
    return cases


advantages = Exercise(
    "10.2",
    solution=_gae,
    cases=_gae_cases,
    mistakes=(
        Mistake(
            _swallow,
            "You treat a truncation as a termination. After a time limit the future still has a "
            "value, so the discount of v' is zero only where `terminated` is true.",
        ),
        Mistake(
            _next_step_values,
            "At a truncation you bootstrap from the next entry of `values`, but that is a value of "
            "another episode. The value of the state after the last action is in `next_values`.",
        ),
        Mistake(
            _unbroken,
            "Your sum continues across truncations into the next episode. It must end where either "
            "flag is true. Only the bootstrap distinguishes the two flags.",
        ),
        Mistake(
            _endless,
            "Your bootstrap is right, but your sum never ends. Where either flag is true, the next "
            "step is in another episode, so leave out γλ times the next advantage.",
        ),
        Mistake(
            _without_mask,
            "You include the next value after a termination. The episode is over, so the discount "
            "of v' must be zero where `terminated` is true.",
        ),
        Mistake(
            lambda rewards, values, next_values, terminated, truncated, gamma, lam: _gae(
                rewards, values, next_values, terminated, truncated, gamma, 1.0
            ),
            "λ is missing: the weight of an error decreases by γλ per step, not by γ.",
        ),
        Mistake(
            lambda rewards, values, next_values, terminated, truncated, gamma, lam: (
                values + _gae(rewards, values, next_values, terminated, truncated, gamma, lam)
            ),
            "These are the targets of the value function, A + v. Return only A.",
        ),
        Mistake(
            lambda rewards, values, next_values, terminated, truncated, gamma, lam: _gae(
                rewards, values, next_values, terminated, truncated, gamma, 0.0
            ),
            "These are only the errors δ, as if λ were 0. Add γλ times the next advantage.",
        ),
    ),
)


def _sums(rewards, begin, g):
    past, sums = 0.0, []
    for reward, start in zip(rewards, begin, strict=True):
        past = reward + (0.0 if start else g * past)
        sums.append(past)
    return np.array(sums)


def _prefixes(sums):
    """Return, for each step t, the sums R_0, …, R_t."""
    return [sums[: t + 1] for t in range(len(sums))]


def _divisors(sums):
    return np.array([sums_so_far.std() for sums_so_far in _prefixes(sums)])


def _to_go(rewards, begin, g):
    return _sums(rewards[::-1], np.append(True, begin[:0:-1]), g)[::-1]


def _scale_cases(rng):
    return [
        (rng.normal(loc, 2.0, size=n), np.isin(np.arange(n), starts), g)
        for n, starts, loc, g in (
            (1, [0], 3.0, 0.9), (2, [], 1.0, 0.9), (7, [0, 3], 2.0, 0.8),
            (30, [9, 10, 21], -4.0, 0.99),
        )
    ]  # fmt: skip


scale = Exercise(
    "10.3",
    solution=lambda rewards, begin, g: _divisors(_sums(rewards, begin, g)),
    cases=_scale_cases,
    mistakes=(
        Mistake(
            lambda rewards, begin, g: _divisors(rewards),
            "That is the standard deviation of the rewards. Values predict sums of rewards, so "
            "compute the sums of Eq. 10.8 first, and then their standard deviation.",
        ),
        Mistake(
            lambda rewards, begin, g: _divisors(_sums(rewards, np.zeros_like(begin), g)),
            "Your sum continues from one episode into the next. Where `begin` is true, restart the "
            "sum with the reward of that step.",
        ),
        Mistake(
            lambda rewards, begin, g: _divisors(_sums(rewards, np.append(False, begin[:-1]), g)),
            "Your sum restarts one step late, at the second reward of an episode. R_t depends on "
            "`begin[t]`.",
        ),
        Mistake(
            lambda rewards, begin, g: _divisors(_sums(rewards, np.append(begin[1:], False), g)),
            "Your sum restarts one step early, at the last reward of an episode. R_t depends on "
            "`begin[t]`.",
        ),
        Mistake(
            lambda rewards, begin, g: _divisors(_to_go(rewards, begin, g)),
            "These are returns, which are sums of future rewards. Eq. 10.8 sums past rewards "
            "instead, because they are already known.",
        ),
        Mistake(
            lambda rewards, begin, g: np.full(len(rewards), _sums(rewards, begin, g).std()),
            "This is a single value for the whole tape. Return the standard deviation of R_0, …, "
            "R_t at each step t.",
        ),
        Mistake(
            lambda rewards, begin, g: np.array(
                [
                    np.sqrt(np.mean(_sums(rewards, begin, g)[: t + 1] ** 2))
                    for t in range(len(rewards))
                ]
            ),
            "That is the root mean square. For the standard deviation, subtract the mean of the "
            "sums first.",
        ),
        Mistake(
            lambda rewards, begin, g: np.append(
                np.nan, [sums.std(ddof=1) for sums in _prefixes(_sums(rewards, begin, g))[1:]]
            ),
            "You divide by the count minus one (`ddof=1`), which is undefined for a single value. "
            "Use the mean of the squared distances, `ddof=0`.",
        ),
        Mistake(
            lambda rewards, begin, g: np.square(_divisors(_sums(rewards, begin, g))),
            "That is the variance. The standard deviation is its square root.",
        ),
        Mistake(
            lambda rewards, begin, g: (
                rewards / np.maximum(_divisors(_sums(rewards, begin, g)), 1e-8)
            ),
            "These are the scaled rewards. Return the divisors.",
        ),
    ),
)
