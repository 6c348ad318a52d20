"""Exercises for chapter 09: R2D2."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _starts(steps, length, overlap):
    period = length - overlap
    return np.array([s for s in range(0, steps, period) if s == 0 or s + overlap < steps])


def _full(steps, length, overlap):
    return np.array([s for s in range(0, steps, length - overlap) if s + length <= steps])


starts = Exercise(
    "9.1",
    solution=_starts,
    cases=lambda rng: [
        (200, 80, 40), (103, 20, 5), (9, 20, 10), (30, 10, 0), (41, 20, 15), (25, 10, 5), (1, 4, 3),
        (41, 10, 0),
    ],
    mistakes=(
        Mistake(
            _full,
            "This keeps only full sequences. The last one of an episode may be shorter, but "
            "without it the agent never learns from the terminal reward.",
        ),
        Mistake(
            lambda steps, length, overlap: np.array(
                [s for s in range(0, steps, length - overlap) if s == 0 or s + length <= steps]
            ),
            "Apart from the first, this keeps only full sequences. Keep a shorter one at the end "
            "too if s + overlap < T, because it contains the terminal step.",
        ),
        Mistake(
            lambda steps, length, overlap: np.array(
                [s for s in range(0, steps, length - overlap) if s == 0 or s + overlap <= steps]
            ),
            "This is one sequence too many if s + overlap = T: the previous sequence ends exactly "
            "at T, so the last one adds no new step. The condition is s + overlap < T.",
        ),
        Mistake(
            lambda steps, length, overlap: np.arange(0, steps, length - overlap),
            "Sequences with s + overlap ≥ T add no new steps, because the previous sequence "
            "contains all of theirs. Those steps would be trained on more often than the rest.",
        ),
        Mistake(
            lambda steps, length, overlap: np.arange(0, steps, length),
            "These sequences do not overlap: the period must be length - overlap.",
        ),
        Mistake(
            lambda steps, length, overlap: _starts(steps, overlap + max(overlap, 1), overlap),
            "You step by the overlap, but the period is length - overlap. With R2D2's length of 80 "
            "and overlap of 40, both are 40, which hides the mistake.",
        ),
        Mistake(
            lambda steps, length, overlap: np.array(
                [s for s in range(0, steps, length - overlap) if s + overlap < steps]
            ),
            "An episode that is not longer than the overlap gets no sequence at all. The sequence "
            "that starts at 0 must always exist.",
        ),
    ),
)  # fmt: skip


def _h(x):
    return x / (np.sqrt(np.abs(x) + 1) + 1) + 1e-3 * x


def _h_inverse(y):
    b = 1 + 2e-3
    q = 2 * y / (b + np.sqrt(b * b + 4e-3 * np.abs(y)))
    return q * (np.abs(q) + 2)


def _raw(rewards, terminated, gamma, value):
    """Compute Σ γ^k r_{t+k} + γ^n value, cut off at the first termination."""
    total = value
    for reward, stop in zip(rewards[::-1], terminated[::-1], strict=True):
        total = reward + gamma * (1 - stop) * total
    return total


def _target(rewards, terminated, gamma, q, q_target):
    return _h(_raw(rewards, terminated, gamma, _h_inverse(q_target[np.argmax(q)])))


def _mix(rewards, terminated, gamma, q, q_target):
    """Add the rescaled rewards to the rescaled value: h(Σ γ^k r) + γ^n Q."""
    rest = _raw(0 * rewards, terminated, gamma, q_target[np.argmax(q)])
    return _h(_raw(rewards, terminated, gamma, 0.0)) + rest


def _one_gamma(rewards, terminated, gamma, q, q_target):
    end = np.cumsum(terminated) > 0
    alive = np.append(True, ~end[:-1])
    total = np.sum(alive * rewards * gamma ** np.arange(len(rewards)))
    return _h(total + gamma * (1 - end[-1]) * _h_inverse(q_target[np.argmax(q)]))


def _variant(rescaled=True, rewards_end=True, value_ends=True):
    """Return an answer that omits every feature whose flag is False."""
    squeeze, stretch = (_h, _h_inverse) if rescaled else (np.asarray, np.asarray)

    def answer(rewards, terminated, gamma, q, q_target):
        value = stretch(q_target[np.argmax(q)])
        rest = _raw(0 * rewards, terminated & value_ends, gamma, value)
        return squeeze(_raw(rewards, terminated & rewards_end, gamma, 0.0) + rest)

    return answer


def _n_step_cases(rng):
    cases = []
    for n, stop in ((1, None), (3, None), (5, 2), (5, None), (4, 3), (2, None)):
        terminated = np.arange(n) == (n if stop is None else stop)
        q = rng.normal(size=4)
        target_q = np.where(q == q.max(), -1.0, 1.0) + rng.normal(size=4)  # the networks disagree
        cases.append((rng.normal(size=n) * 5, terminated, 0.9, q, target_q * 3))
    return cases


target = Exercise(
    "9.2",
    solution=_target,
    cases=_n_step_cases,
    mistakes=(
        Mistake(
            lambda r, end, γ, q, judge: _h(_raw(r, end, γ, judge[np.argmax(q)])),
            "The values of the network are rescaled, but the rewards are not. Apply `unrescale` to "
            "the value before you add it to the rewards.",
        ),
        Mistake(
            lambda r, end, γ, q, judge: _raw(r, end, γ, _h_inverse(judge[np.argmax(q)])),
            "That is the return on the raw scale. The network learns rescaled returns, so apply "
            "`rescale` to the sum at the end.",
        ),
        Mistake(
            _variant(rescaled=False),
            "That is the target without rescaling, as in chapter 07. Here q_target is rescaled and "
            "the rewards are not: unrescale the value, add the rewards, and rescale the sum.",
        ),
        Mistake(
            _mix,
            "The sum of two rescaled numbers is not the rescaled sum, because `rescale` is not "
            "linear. Unrescale the value, add the rewards, and rescale the result.",
        ),
        Mistake(
            lambda r, end, γ, q, judge: _target(r, end, γ, judge, judge),
            "That is the maximum over the target network. In double Q-learning the online network "
            "selects the action, by argmax, and the target network evaluates it.",
        ),
        Mistake(
            lambda r, end, γ, q, judge: _target(r, end, γ, q, q),
            "Here the online network both selects and evaluates the action. It should only select "
            "it: the target network evaluates, because its values change slowly.",
        ),
        Mistake(
            _variant(rewards_end=False, value_ends=False),
            "Leave out all rewards and the bootstrap after a termination.",
        ),
        Mistake(
            _variant(rewards_end=False),
            "The bootstrap stops at a termination, as it should. Leave out the rewards after it "
            "too, because they are rewards of the next episode.",
        ),
        *(
            Mistake(
                _variant(rescaled=False, rewards_end=rewards, value_ends=value),
                f"There is no rescaling, and {more} after a termination. Stop there, unrescale the "
                "value, and rescale the sum.",
            )
            for rewards, value, more in (
                (False, True, "rewards still count"),
                (True, False, "the value still counts"),
                (False, False, "the rewards and the value still count"),
            )
        ),
        Mistake(
            _variant(value_ends=False),
            "The rewards stop at a termination, as they should. The bootstrap must stop too: if "
            "any of the n steps terminates, step t + n is in another episode.",
        ),
        Mistake(
            lambda r, stop, *rest: _target(np.where(stop, 0, r), stop, *rest),
            "The reward of the terminal step is missing. Leave out only the rewards after it.",
        ),
        Mistake(
            lambda r, stop, *rest: _target(r, stop & (np.arange(len(r)) == len(r) - 1), *rest),
            "You check only the last flag. A termination at any of the n steps ends the sum.",
        ),
        Mistake(
            _one_gamma,
            "The bootstrap is n steps away, so its discount is γ to the power n, not γ.",
        ),
    ),
)


def _sizes(errors, mask):
    return np.where(mask, np.abs(errors), 0)


def _mean(errors, mask):
    return _sizes(errors, mask).sum(1) / mask.sum(1)


def _mixture(largest, mean, eta, alpha, beta):
    return _weights(eta * largest + (1 - eta) * mean, alpha, beta)


def _priority(errors, mask, eta):
    return eta * _sizes(errors, mask).max(1) + (1 - eta) * _mean(errors, mask)


def _weights(priority, alpha, beta, scale=np.max):
    return _without_scale(priority**alpha / (priority**alpha).sum(), beta, scale)


def _without_scale(share, beta, scale=np.max):
    weights = (len(share) * share) ** -beta
    return share, weights / scale(weights)


def _law(errors, mask, eta, alpha, beta):
    return _weights(_priority(errors, mask, eta), alpha, beta)


def _signed_law(errors, mask, eta, alpha, beta):
    mean = np.where(mask, errors, 0).sum(1) / mask.sum(1)
    with np.errstate(invalid="ignore"):
        return _weights(eta * np.where(mask, errors, 0).max(1) + (1 - eta) * mean, alpha, beta)


def _law_cases(rng):
    cases = []
    for n, time, eta, alpha, beta in (
        (4, 6, 0.9, 0.9, 0.6), (3, 5, 0.5, 0.5, 1.0), (6, 8, 0.2, 1.0, 0.4), (5, 4, 1.0, 0.7, 0.8),
    ):  # fmt: skip
        real = rng.integers(1, time, n)
        mask = np.arange(time)[None] < real[:, None]
        # Make the errors larger at steps that are not trained on.
        errors = np.where(mask, 1, 3) * rng.normal(size=(n, time))
        cases.append((errors, mask, eta, alpha, beta))
    return cases


law = Exercise(
    "9.3",
    solution=_law,
    cases=_law_cases,
    mistakes=(
        Mistake(
            lambda δ, mask, *rest: _law(δ, np.ones_like(mask), *rest),
            "Your priorities depend on padding and burn-in. Take both the maximum and the mean "
            "over the steps where `loss_mask` is true.",
        ),
        Mistake(
            lambda δ, mask, *rest: _mixture(_sizes(δ, mask).max(1), np.abs(δ).mean(1), *rest),
            "Your maximum is over the trained steps, but your mean is not: leave burn-in and "
            "padding out of both.",
        ),
        Mistake(
            lambda δ, mask, *rest: _mixture(np.abs(δ).max(1), _mean(δ, mask), *rest),
            "Your mean is over the trained steps, but your maximum is not: leave burn-in and "
            "padding out of both.",
        ),
        Mistake(
            lambda δ, mask, *rest: _mixture(_sizes(δ, mask).max(1), _sizes(δ, mask).mean(1), *rest),
            "Your mean divides by the length of the window. Divide by the number of trained steps "
            "instead, or the errors of short sequences look too small.",
        ),
        Mistake(
            lambda δ, mask, η, α, β: _law(δ, mask, 1 - η, α, β),
            "η is the weight of the maximum, and 1 - η is the weight of the mean.",
        ),
        Mistake(
            lambda δ, mask, η, α, β: _law(δ, mask, η, 1.0, β),
            "P is proportional to p to the power α, but yours uses α = 1.",
        ),
        Mistake(
            lambda δ, mask, η, α, β: _without_scale(_priority(δ, mask, η) ** α, β),
            "p^α is not a probability yet. Divide by its sum over all sequences.",
        ),
        Mistake(
            lambda δ, mask, η, α, β: _without_scale(_law(δ, mask, η, 1.0, β)[0] ** α, β),
            "Your P does not sum to 1. Raise p to the power α first, and then divide by the sum.",
        ),
        Mistake(
            lambda δ, mask, η, α, β: _law(δ, mask, η, α, 1.0),
            "The weight is 1/(N P) to the power β, but yours uses β = 1.",
        ),
        Mistake(
            lambda δ, mask, η, α, β: _law(δ, mask, η, α, -β),
            "The sign of β is wrong. Sequences that are sampled often must have smaller weights, "
            "(1/(N P))^β.",
        ),
        Mistake(
            lambda δ, mask, η, α, β: _weights(_priority(δ, mask, η), α, β, np.sum),
            "Divide the weights by the largest weight, not by their sum. Then no weight is above "
            "1, so gradients can only become smaller.",
        ),
        Mistake(
            lambda δ, mask, η, α, β: _weights(_priority(δ, mask, η), α, β, lambda weights: 1.0),
            "Divide the weights by the largest weight, so that no weight is above 1.",
        ),
        Mistake(
            lambda δ, mask, *rest: _mixture(np.where(mask, δ, 1e-9).max(1), _mean(δ, mask), *rest),
            "Take the maximum of |δ|, because an error of -2 is as large as an error of 2.",
        ),
        Mistake(
            _signed_law,
            "Use |δ| in the maximum and in the mean, because a negative priority cannot be raised "
            "to the power α.",
        ),
    ),
)
