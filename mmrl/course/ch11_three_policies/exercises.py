"""Exercises for chapter 11: three policies."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _decay(center):
    return center / (1 + center)


def _powers(decay, steps):
    return decay ** np.arange(steps + 1.0)


def _weigh(powers):
    weights = powers / powers.sum()
    return weights, weights @ np.arange(len(weights))


def _weights(center, steps):
    return _weigh(_powers(_decay(center), steps))


def _without_correction(center, steps):
    weights = _powers(_decay(center), steps) / (1 + center)
    return weights, weights @ np.arange(steps + 1)


def _from_the_first(center, steps):
    weights = _powers(_decay(center), steps) / (1 + center)
    weights[-1] += 1 - weights.sum()
    return weights, weights @ np.arange(steps + 1)


weights = Exercise(
    "11.1",
    solution=_weights,
    cases=lambda rng: [(8.0, 0), (8.0, 1), (2.0, 5), (0.5, 7), (0.0, 4), (8.0, 40), (32.0, 40)],
    mistakes=(
        Mistake(
            _without_correction,
            "These are the weights (1 - d) dᵏ of an infinitely long average. After t steps they "
            "sum to less than 1, so divide the powers by their sum so far, w of Eq. 11.5.",
        ),
        Mistake(
            _from_the_first,
            "You give θ_0 all of the remaining weight. That is the usual average, in which the "
            "initial value has a long influence. Eq. 11.5 gives θ_0 only the weight dᵗ / w.",
        ),
        Mistake(
            lambda center, steps: (
                _weights(center, steps)[0][::-1],
                _weights(center, steps)[1],
            ),
            "Your weights are ordered from oldest to newest, but the weight of θ_t must come "
            "first.",
        ),
        Mistake(
            lambda center, steps: _weigh(_powers(1 / (1 + center), steps)),
            "Your decay is 1/(1 + center), which is 1 - d. The decay is d = 1 - 1/(1 + center), so "
            "for a center of 8 it is 8/9, not 1/9.",
        ),
        Mistake(
            lambda center, steps: _weigh(_powers((center - 1) / (center + 1), steps)),
            "Your decay belongs to an average with the given *span*, 2/(1 - d) - 1. The given "
            "number is the center of mass, 1/(1 - d) - 1.",
        ),
        Mistake(
            lambda center, steps: (_weights(center, steps)[0], center),
            "The weights are right, but the center of mass is their mean age only after many "
            "steps. Compute the weighted mean of the ages 0, …, t.",
        ),
        Mistake(
            lambda center, steps: (_powers(_decay(center), steps), _weights(center, steps)[1]),
            "The mean age is right, but the weights do not sum to 1: divide by w of Eq. 11.5.",
        ),
    ),
)


def _clip(log_prob, anchor, behavior, advantages, epsilon):
    ratio = np.exp(log_prob - anchor)
    clip = np.clip(ratio, 1 - epsilon, 1 + epsilon)
    return np.exp(anchor - behavior) * np.minimum(ratio * advantages, clip * advantages)


def _choose(log_prob, behavior, recent, advantages, epsilon, proximal):
    """Return (π, π_p, μ, A, ε) for the given choice of the proximal policy."""
    anchor = behavior if proximal == "behavior" else recent
    of_actor = recent if proximal == "recent" else behavior
    return log_prob, anchor, of_actor, advantages, epsilon


def _objective(*case):
    return _clip(*_choose(*case))


def _swap(log_prob, behavior, recent, advantages, epsilon, proximal):
    if proximal == "decoupled":
        return _clip(log_prob, behavior, recent, advantages, epsilon)
    return _objective(log_prob, behavior, recent, advantages, epsilon, proximal)


def _upside_down(*case):
    log_prob, anchor, of_actor, advantages, epsilon = _choose(*case)
    return np.exp(2 * (of_actor - anchor)) * _clip(log_prob, anchor, of_actor, advantages, epsilon)


def _twice(*case):
    log_prob, anchor, of_actor, advantages, epsilon = _choose(*case)
    return np.exp(log_prob - anchor) * _clip(log_prob, anchor, of_actor, advantages, epsilon)


def _two_sided(*case):
    log_prob, anchor, of_actor, advantages, epsilon = _choose(*case)
    clip = np.clip(np.exp(log_prob - anchor), 1 - epsilon, 1 + epsilon)
    return np.exp(anchor - of_actor) * clip * advantages


def _true_weights(log_prob, behavior, recent, advantages, epsilon, proximal):
    kind = "decoupled" if proximal == "recent" else proximal
    return _objective(log_prob, behavior, recent, advantages, epsilon, kind)


def _without_weight(log_prob, behavior, recent, advantages, epsilon, proximal):
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
            # The clip around the behavior policy stops this step, and the clip around the recent
            # policy does not.
            recent[0], log_prob[0], advantages[0] = behavior[0] + 0.5, behavior[0] + 0.6, 1.0
            cases.append((log_prob, behavior, recent, advantages, epsilon, proximal))
    return cases


objective = Exercise(
    "11.2",
    solution=_objective,
    cases=_objective_cases,
    mistakes=(
        Mistake(
            _without_weight,
            'In "decoupled" the factor π_p/μ of Eq. 11.3 is missing, so actions have the weight '
            'π/π_p. The policy that acted was μ, and without the factor you get "recent".',
        ),
        Mistake(
            _swap,
            'In "decoupled" the two policies are swapped: the clip is around the recent policy, '
            "and the importance weight refers to the policy that acted.",
        ),
        Mistake(
            _true_weights,
            'Your "recent" is the same as "decoupled". It must use the recent policy in both '
            "places, even where the weight should refer to the policy that acted, which makes it "
            "biased.",
        ),
        Mistake(
            lambda log_prob, behavior, recent, advantages, epsilon, proximal: _objective(
                log_prob, behavior, recent, advantages, epsilon, "behavior"
            ),
            "You always use PPO's objective, with μ in both places. That is right only for "
            '"behavior". The other two measure the step from the recent policy.',
        ),
        Mistake(
            lambda log_prob, behavior, recent, advantages, epsilon, proximal: _objective(
                log_prob, behavior, recent, advantages, epsilon, "decoupled"
            ),
            'You always use the decoupled objective. In "behavior" and in "recent" a single policy '
            "has both roles.",
        ),
        Mistake(
            _upside_down,
            "The factor before the minimum is upside down. It is π_p/μ, because its product with r "
            "= π/π_p must be π/μ.",
        ),
        Mistake(
            _twice,
            "The factor before the minimum must be π_p/μ, not π/μ, because r inside the minimum "
            "already contains π/π_p.",
        ),
        Mistake(
            _two_sided,
            "The minimum is missing. Without it, the clip also stops steps that went the wrong "
            "way.",
        ),
        Mistake(
            lambda *case: -_objective(*case),
            "That is the loss. Return the objective, which is maximized.",
        ),
    ),
)


def _age(center, steps):
    return _weights(center, steps)[1]


def _weight(kl_weight, center, other, steps):
    return kl_weight * _age(center, steps) / _age(other, steps)


weight = Exercise(
    "11.3",
    solution=_weight,
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
            "That is right after many steps, by Eq. 11.9. Soon after the start, both averages are "
            "young and lag about equally, so use their mean ages after `steps` steps.",
        ),
        Mistake(
            lambda kl_weight, center, other, steps: kl_weight * other / center,
            "It is the other way around: if the average is closer, the band is shorter, so it must "
            "be stronger. Also, the center of mass is the mean age only after many steps.",
        ),
        Mistake(
            lambda kl_weight, center, other, steps: (
                kl_weight * _age(other, steps) / _age(center, steps)
            ),
            "This is upside down: a younger average lags less, so the weight must be larger.",
        ),
        Mistake(
            lambda kl_weight, center, other, steps: (
                kl_weight * (_age(center, steps) / _age(other, steps)) ** 2
            ),
            "You kept the penalty constant, which is quadratic in the lag. Keep its gradient "
            "constant, which is linear in the lag.",
        ),
        Mistake(
            lambda kl_weight, center, other, steps: kl_weight * (1 + center) / (1 + other),
            "That is the ratio of the two values of 1 - d. Use the ratio of the lags instead, "
            "which equals the ratio of the mean ages. After many steps, the mean age is d/(1 - d).",
        ),
        Mistake(
            lambda kl_weight, center, other, steps: kl_weight,
            "If the weight does not change, the pull of the band changes, because its length "
            "depends on the center of mass.",
        ),
    ),
)
