"""Exercises of chapter 10: PPO with memory."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _stopped(ratio, advantage, epsilon):
    return np.where(advantage > 0, ratio > 1 + epsilon, (advantage < 0) & (ratio < 1 - epsilon))


def _stopped_cases(rng):
    cases = []
    for n, epsilon in ((1, 0.2), (2, 0.2), (9, 0.1), (40, 0.2), (40, 0.4)):
        ratio, advantage = np.exp(rng.normal(size=n) * 0.6), rng.normal(size=n)
        # Far outside the clip, but with a gradient.
        ratio[0], advantage[0] = (1.9, -1.0) if n < 9 else (0.4, 1.0)
        cases.append((ratio, advantage, epsilon))
    return cases


stopped = Exercise(
    "10.1",
    wanted=_stopped,
    cases=_stopped_cases,
    mistakes=(
        Mistake(
            lambda ratio, advantage, epsilon: np.abs(ratio - 1) > epsilon,
            "You test where the ratio is outside the clip. But Eq. 10.4 takes the smaller of two "
            "products, so a step that made things worse keeps its gradient and can be undone. For "
            "example, A = -1 with a ratio of 1.82 is not stopped.",
        ),
        Mistake(
            lambda ratio, advantage, epsilon: np.where(
                advantage > 0, ratio < 1 - epsilon, ratio > 1 + epsilon
            ),
            "It is the other way around: these are the steps that moved against their advantage, "
            "so they must keep their gradient in order to come back.",
        ),
        Mistake(
            lambda ratio, advantage, epsilon: ratio > 1 + epsilon,
            "The sign of the advantage is missing. If A < 0 the ratio should fall, so it has gone "
            "far enough when it is below 1 - ε, and not above 1 + ε.",
        ),
        Mistake(
            lambda ratio, advantage, epsilon: (advantage > 0) & (ratio > 1 + epsilon),
            "This is half of the answer. Bad actions, A < 0, are stopped as well, once their ratio "
            "is below 1 - ε.",
        ),
        Mistake(
            lambda ratio, advantage, epsilon: ~np.asarray(_stopped(ratio, advantage, epsilon)),
            "These are the steps that still learn. Return the steps that do not.",
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


def _swallowed(rewards, values, next_values, terminated, truncated, gamma, lam):
    done = terminated | truncated
    return _gae(rewards, values, next_values, done, truncated, gamma, lam)


def _following(rewards, values, next_values, terminated, truncated, gamma, lam):
    shifted = np.append(values[1:], next_values[-1])
    return _gae(rewards, values, shifted, terminated, truncated, gamma, lam)


def _unbroken(rewards, values, next_values, terminated, truncated, gamma, lam):
    never = np.zeros(len(rewards), bool)
    return _gae(rewards, values, next_values, terminated, never, gamma, lam)


def _endless(rewards, values, next_values, terminated, truncated, gamma, lam):
    never, ahead = np.zeros(len(rewards), bool), np.where(terminated, 0.0, next_values)
    return _gae(rewards, values, ahead, never, never, gamma, lam)


def _unmasked(rewards, values, next_values, terminated, truncated, gamma, lam):
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
    wanted=_gae,
    cases=_gae_cases,
    mistakes=(
        Mistake(
            _swallowed,
            "You treat a truncation as a termination. But when only the clock has run out, the "
            "future still has a value, so only `terminated` makes the discount of v' zero.",
        ),
        Mistake(
            _following,
            "At a truncation you bootstrap from the next entry of `values`, but that belongs to "
            "another episode. What the last action led to is in `next_values`.",
        ),
        Mistake(
            _unbroken,
            "Your sum continues across truncations, into the errors of the next episode. It has to "
            "end where either flag is true; only the bootstrap distinguishes the two.",
        ),
        Mistake(
            _endless,
            "Your bootstrap is right, but your sum never ends. At either flag the next step "
            "belongs to another episode, so γλ times the next advantage must be left out there.",
        ),
        Mistake(
            _unmasked,
            "You count the next value after a termination, too. But the episode is over, so where "
            "`terminated` is true the discount of v' is zero.",
        ),
        Mistake(
            lambda rewards, values, next_values, terminated, truncated, gamma, lam: _gae(
                rewards, values, next_values, terminated, truncated, gamma, 1.0
            ),
            "λ is missing: an error that is one step further away has the weight γλ, not γ.",
        ),
        Mistake(
            lambda rewards, values, next_values, terminated, truncated, gamma, lam: (
                values + _gae(rewards, values, next_values, terminated, truncated, gamma, lam)
            ),
            "These are the targets of the value function, A + v. Advantages do not include v.",
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


def _begun(sums):
    """Return the sums R_0, …, R_t that are known at each step t."""
    return [sums[: t + 1] for t in range(len(sums))]


def _divisors(sums):
    return np.array([known.std() for known in _begun(sums)])


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
    wanted=lambda rewards, begin, g: _divisors(_sums(rewards, begin, g)),
    cases=_scale_cases,
    mistakes=(
        Mistake(
            lambda rewards, begin, g: _divisors(rewards),
            "That is the deviation of the rewards. But values predict sums of rewards, so first "
            "sum the past by Eq. 10.8, and then take the deviation of these sums.",
        ),
        Mistake(
            lambda rewards, begin, g: _divisors(_sums(rewards, np.zeros_like(begin), g)),
            "Your sum continues from one episode into the next. Where `begin` is true the past "
            "does not count, so the sum restarts with that step's reward.",
        ),
        Mistake(
            lambda rewards, begin, g: _divisors(_sums(rewards, np.append(False, begin[:-1]), g)),
            "Your flag acts a step late: the first reward of an episode still gets the old sum, "
            "and only the second restarts it. `begin[t]` decides for R_t.",
        ),
        Mistake(
            lambda rewards, begin, g: _divisors(_sums(rewards, np.append(begin[1:], False), g)),
            "Your flag acts a step early: the sum restarts with the last reward of an episode. "
            "`begin[t]` decides for R_t.",
        ),
        Mistake(
            lambda rewards, begin, g: _divisors(_to_go(rewards, begin, g)),
            "These are returns, sums of future rewards. Eq. 10.8 sums the past instead, because it "
            "is already known.",
        ),
        Mistake(
            lambda rewards, begin, g: np.full(len(rewards), _sums(rewards, begin, g).std()),
            "This is one number for the whole tape. Return the deviation of R_0, …, R_t at each "
            "step t.",
        ),
        Mistake(
            lambda rewards, begin, g: np.array(
                [
                    np.sqrt(np.mean(_sums(rewards, begin, g)[: t + 1] ** 2))
                    for t in range(len(rewards))
                ]
            ),
            "That is the root of the mean square. For a deviation, first subtract the mean of the "
            "sums; only the rewards themselves keep their mean.",
        ),
        Mistake(
            lambda rewards, begin, g: np.append(
                np.nan, [sums.std(ddof=1) for sums in _begun(_sums(rewards, begin, g))[1:]]
            ),
            "You divide by one less than the count, `ddof=1`, and so a single number has no "
            "deviation. Here it is the plain mean of squared distances, with `ddof=0`.",
        ),
        Mistake(
            lambda rewards, begin, g: np.square(_divisors(_sums(rewards, begin, g))),
            "That is the variance, and the deviation is its square root.",
        ),
        Mistake(
            lambda rewards, begin, g: (
                rewards / np.maximum(_divisors(_sums(rewards, begin, g)), 1e-8)
            ),
            "These are the scaled rewards. Return their divisors.",
        ),
    ),
)
