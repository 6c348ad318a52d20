"""The exercises of chapter 11: three policies."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _decay(center):
    return center / (1 + center)


def _powers(decay, steps):
    return decay ** np.arange(steps + 1.0)


def _weighed(powers):
    weights = powers / powers.sum()
    return weights, weights @ np.arange(len(weights))


def _weights(center, steps):
    return _weighed(_powers(_decay(center), steps))


def _uncorrected(center, steps):
    weights = _powers(_decay(center), steps) / (1 + center)
    return weights, weights @ np.arange(steps + 1)


def _from_the_first(center, steps):
    weights = _powers(_decay(center), steps) / (1 + center)
    weights[-1] += 1 - weights.sum()
    return weights, weights @ np.arange(steps + 1)


weights = Exercise(
    "11.1",
    wanted=_weights,
    cases=lambda rng: [(8.0, 0), (8.0, 1), (2.0, 5), (0.5, 7), (0.0, 4), (8.0, 40), (32.0, 40)],
    mistakes=(
        Mistake(
            _uncorrected,
            "These are the weights of an average without a beginning, (1 - β) βᵏ. With t steps "
            "they add up to less than 1: divide by their sum so far, w of Eq. 11.5.",
        ),
        Mistake(
            _from_the_first,
            "You give θ_0 all the weight that is left over. That is the usual average, which its "
            "start holds back; that of Eq. 11.5 gives θ_0 no more than its βᵗ / w.",
        ),
        Mistake(
            lambda center, steps: (
                _weights(center, steps)[0][::-1],
                _weights(center, steps)[1],
            ),
            "Oldest first: the weights have to come by age, that of θ_t first.",
        ),
        Mistake(
            lambda center, steps: _weighed(_powers(1 / (1 + center), steps)),
            "Your decay is 1/(1 + center). That is 1 - β; what is left of a weight after a step is "
            "β = 1 - 1/(1 + center).",
        ),
        Mistake(
            lambda center, steps: _weighed(_powers((center - 1) / (center + 1), steps)),
            "Your decay is that of an average whose *span*, 2/(1 - β) - 1, is the number given. "
            "The center of mass is 1/(1 - β) - 1.",
        ),
        Mistake(
            lambda center, steps: (_weights(center, steps)[0], center),
            "The weights are right. But the center of mass is their mean age only after many "
            "steps: before, there is nothing so old. Take the mean over the ages 0, …, t.",
        ),
        Mistake(
            lambda center, steps: (_powers(_decay(center), steps), _weights(center, steps)[1]),
            "The mean age is right, but the weights do not add up to 1: divide by w of Eq. 11.5.",
        ),
    ),
)


def _clipped(log_prob, anchor, behavior, advantages, epsilon):
    ratio = np.exp(log_prob - anchor)
    held = np.clip(ratio, 1 - epsilon, 1 + epsilon)
    return np.exp(anchor - behavior) * np.minimum(ratio * advantages, held * advantages)


def _choose(log_prob, behavior, recent, advantages, epsilon, proximal):
    """(π, π_p, μ, A, ε) of the three choices."""
    anchor = behavior if proximal == "behavior" else recent
    acted = recent if proximal == "recent" else behavior
    return log_prob, anchor, acted, advantages, epsilon


def _objective(*case):
    return _clipped(*_choose(*case))


def _swapped(log_prob, behavior, recent, advantages, epsilon, proximal):
    if proximal == "decoupled":
        return _clipped(log_prob, behavior, recent, advantages, epsilon)
    return _objective(log_prob, behavior, recent, advantages, epsilon, proximal)


def _upside_down(*case):
    log_prob, anchor, acted, advantages, epsilon = _choose(*case)
    return np.exp(2 * (acted - anchor)) * _clipped(log_prob, anchor, acted, advantages, epsilon)


def _twice(*case):
    log_prob, anchor, acted, advantages, epsilon = _choose(*case)
    return np.exp(log_prob - anchor) * _clipped(log_prob, anchor, acted, advantages, epsilon)


def _two_sided(*case):
    log_prob, anchor, acted, advantages, epsilon = _choose(*case)
    held = np.clip(np.exp(log_prob - anchor), 1 - epsilon, 1 + epsilon)
    return np.exp(anchor - acted) * held * advantages


def _true_weights(log_prob, behavior, recent, advantages, epsilon, proximal):
    kind = "decoupled" if proximal == "recent" else proximal
    return _objective(log_prob, behavior, recent, advantages, epsilon, kind)


def _unweighted(log_prob, behavior, recent, advantages, epsilon, proximal):
    kind = "recent" if proximal == "decoupled" else proximal
    return _objective(log_prob, behavior, recent, advantages, epsilon, kind)


def _objective_cases(rng):
    cases = []
    for proximal in ("decoupled", "behavior", "recent"):
        for n, epsilon in ((1, 0.2), (6, 0.2), (30, 0.1)):
            behavior = rng.normal(size=n) - 1.5
            recent = behavior + 0.5 * rng.normal(size=n)
            log_prob = recent + 0.3 * rng.normal(size=n)
            advantages = rng.normal(size=n)
            # Stopped by who acted, not by the recent policy.
            recent[0], log_prob[0], advantages[0] = behavior[0] + 0.5, behavior[0] + 0.6, 1.0
            cases.append((log_prob, behavior, recent, advantages, epsilon, proximal))
    return cases


objective = Exercise(
    "11.2",
    wanted=_objective,
    cases=_objective_cases,
    mistakes=(
        Mistake(
            _unweighted,
            'In "decoupled" the factor π_p/μ of Eq. 11.3 is missing, so that the ratio is π/π_p. '
            'The policy that acted was μ: without the factor you have the choice "recent".',
        ),
        Mistake(
            _swapped,
            'In "decoupled" the two have changed places: the clip is around the recent policy, and '
            "the importance weight is by the one that acted.",
        ),
        Mistake(
            _true_weights,
            '"recent" comes out as "decoupled". It is the coupled objective with the recent policy '
            "in both places, also where the weight should ask who acted: that is its bias.",
        ),
        Mistake(
            lambda log_prob, behavior, recent, advantages, epsilon, proximal: _objective(
                log_prob, behavior, recent, advantages, epsilon, "behavior"
            ),
            "You always have PPO's objective, with μ in both places. That is the choice "
            '"behavior" alone.',
        ),
        Mistake(
            lambda log_prob, behavior, recent, advantages, epsilon, proximal: _objective(
                log_prob, behavior, recent, advantages, epsilon, "decoupled"
            ),
            'You always have the decoupled objective. In "behavior" and "recent" one policy has '
            "both jobs.",
        ),
        Mistake(
            _upside_down,
            "The factor before the minimum is upside down: π_p/μ, so that with r = π/π_p the "
            "product is π/μ.",
        ),
        Mistake(
            _twice,
            "The importance weight π/μ is in there twice: the factor is π_p/μ, and r inside the "
            "minimum has the rest.",
        ),
        Mistake(
            _two_sided,
            "The minimum is missing: a clip alone also stops the steps that went the wrong way.",
        ),
        Mistake(
            lambda *case: -_objective(*case),
            "That is the loss. Asked is the objective, which grows with what is good.",
        ),
    ),
)


def _age(center, steps):
    return _weights(center, steps)[1]


def _weight(kl_weight, center, other, steps):
    return kl_weight * _age(center, steps) / _age(other, steps)


weight = Exercise(
    "11.3",
    wanted=_weight,
    cases=lambda rng: [
        (1.0, 8.0, 4.0, 1),
        (1.0, 8.0, 4.0, 6),
        (0.5, 8.0, 4.0, 3000),
        (2.0, 2.0, 32.0, 10),
        (1.0, 16.0, 1.0, 40),
        (0.3, 8.0, 8.0, 5),
    ],
    mistakes=(
        Mistake(
            lambda kl_weight, center, other, steps: kl_weight * center / other,
            "That is right after many steps, Eq. 11.9. Asked is the weight after this many: soon "
            "after the start both averages are young, and nearly equally far behind.",
        ),
        Mistake(
            lambda kl_weight, center, other, steps: kl_weight * other / center,
            "The other way round: a band to a nearer point is shorter, and must be thicker. And "
            "COM is the mean age only after many steps.",
        ),
        Mistake(
            lambda kl_weight, center, other, steps: (
                kl_weight * _age(other, steps) / _age(center, steps)
            ),
            "Upside down: where the average is younger, the lag is shorter, and the weight must "
            "be larger.",
        ),
        Mistake(
            lambda kl_weight, center, other, steps: (
                kl_weight * (_age(center, steps) / _age(other, steps)) ** 2
            ),
            "You kept the penalty itself, which grows with the square of the lag. What holds θ "
            "back is its gradient, and that is linear in the lag.",
        ),
        Mistake(
            lambda kl_weight, center, other, steps: kl_weight * (1 + center) / (1 + other),
            "That is the ratio of the two 1 - β. What counts is the lag, which goes with the mean "
            "age: for long runs with β/(1 - β).",
        ),
        Mistake(
            lambda kl_weight, center, other, steps: kl_weight,
            "With the weight left where it was the band pulls less, or more: its length has "
            "changed with the center of mass.",
        ),
    ),
)
