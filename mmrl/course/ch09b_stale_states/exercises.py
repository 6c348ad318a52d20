"""Exercises for chapter 09b: stale states."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _staleness(values, exact):
    return np.linalg.norm(values - exact, axis=1) / np.abs(exact.max(axis=1))


def _values_cases(rng):
    cases = []
    for time, actions in ((5, 2), (3, 4), (7, 3)):
        exact = rng.normal(size=(time, actions)) - 1  # often negative for all actions
        cases.append((exact + rng.normal(size=(time, actions)), exact))
    return cases


staleness = Exercise(
    "9b.1",
    solution=_staleness,
    cases=_values_cases,
    mistakes=(
        Mistake(
            lambda replayed, exact: _staleness(exact, replayed),
            "You divide by the largest replayed value. The error is relative to the largest exact "
            "value, so divide by that.",
        ),
        Mistake(
            lambda replayed, exact: np.linalg.norm(replayed - exact, axis=1) / exact.max(axis=1),
            "If all values are negative, your ΔQ is negative too. Divide by the absolute value of "
            "the largest one.",
        ),
        Mistake(
            lambda replayed, exact: (
                np.linalg.norm(replayed - exact, axis=1) / np.abs(exact).max(axis=1)
            ),
            "You take absolute values first, and then the maximum. Eq. 9b.1 takes the maximum "
            "first, and then its absolute value: for -4 and 1 that is 1.",
        ),
        Mistake(
            lambda replayed, exact: (
                np.abs(replayed - exact).sum(axis=1) / np.abs(exact.max(axis=1))
            ),
            "You sum the absolute differences. The norm of the difference is the root of the sum "
            "of squares.",
        ),
        Mistake(
            lambda replayed, exact: (
                ((replayed - exact) ** 2).sum(axis=1) / np.abs(exact.max(axis=1))
            ),
            "The root is missing. The norm of the difference is the root of the sum of squares.",
        ),
        Mistake(
            lambda replayed, exact: (
                np.abs(replayed - exact).max(axis=1) / np.abs(exact.max(axis=1))
            ),
            "You take the largest difference over the actions. The norm includes all actions: it "
            "is the root of the sum of squares.",
        ),
        Mistake(
            lambda replayed, exact: (
                np.abs(replayed.max(axis=1) - exact.max(axis=1)) / np.abs(exact.max(axis=1))
            ),
            "You compare only the two largest values. The error is the norm of the difference "
            "between the two vectors, which have one entry per action.",
        ),
        Mistake(
            lambda replayed, exact: np.linalg.norm(replayed - exact, axis=1),
            "That is the norm of the difference. Divide it by the absolute value of the largest "
            "exact value, so that tasks with large and small returns can be compared.",
        ),
        Mistake(
            lambda replayed, exact: (
                np.linalg.norm(replayed - exact, axis=1) / np.linalg.norm(exact, axis=1)
            ),
            "You divide by the norm of the exact values. Divide by the absolute value of the "
            "largest one.",
        ),
        Mistake(
            lambda replayed, exact: np.linalg.norm(replayed - exact, axis=1) / np.abs(exact.max()),
            "You divide every step by the largest value over all steps. Take the largest value at "
            "each step, along the action axis.",
        ),
    ),
)


def _product(factors, inputs):
    factor, total = 1.0, 0.0
    for step, x in zip(factors, inputs, strict=True):
        factor, total = step * factor, step * total + x
    return factor, total


def _steps_cases(rng):
    sizes = (1, 2, 5, 8)
    return [(rng.uniform(0.3, 0.95, n), rng.normal(size=n)) for n in sizes]


product = Exercise(
    "9b.2",
    solution=_product,
    cases=_steps_cases,
    mistakes=(
        Mistake(
            lambda factors, inputs: _product(factors[::-1], inputs[::-1]),
            "Your product runs backward in time: it multiplies each input by the factors of the "
            "steps before it. Multiply each input by the factors of the later steps instead.",
        ),
        Mistake(
            lambda factors, inputs: (np.prod(factors), np.sum(inputs)),
            "The factor is right, but you only sum the inputs. Multiply each input by the factors "
            "of all later steps.",
        ),
        Mistake(
            lambda factors, inputs: (
                np.prod(factors),
                sum(x * np.prod(factors[k:]) for k, x in enumerate(inputs)),
            ),
            "The factor is right, but each input is multiplied once too often. A step multiplies "
            "the earlier state first, and then adds its input.",
        ),
        Mistake(
            lambda factors, inputs: (np.sum(factors), _product(factors, inputs)[1]),
            "The sum is right, but factors must be multiplied, not added: half of a half is a "
            "quarter.",
        ),
        Mistake(
            lambda factors, inputs: (factors[-1] * 1.0, _product(factors, inputs)[1]),
            "The sum is right, but your factor covers only the last step. A state is "
            "multiplied by the factors of all steps.",
        ),
        Mistake(
            lambda factors, inputs: (factors[0] ** len(factors), _product(factors, inputs)[1]),
            "The sum is right, but your factor is a power of the first factor. Each step has its "
            "own factor here: multiply all of them.",
        ),
        Mistake(
            lambda factors, inputs: (0.0, _product(factors, inputs)[1]),
            "The sum is right: it is the result for the zero state. Any other state is multiplied "
            "by the product of all factors.",
        ),
    ),
)


def _storage(lam, xi):
    return abs((1 - lam) / (1 - lam * np.exp(xi)) - 1)


def _errors(warm, start):
    return np.array([1.0, warm, start, warm * start])


def _four(lam, xi, burn_in):
    return _errors(lam**burn_in, _storage(lam, xi))


def _estimate(lam, xi, burn_in):
    return _errors(lam**burn_in, abs(xi) * lam / (1 - lam))


def _with_both(lam, xi, burn_in, both):
    return np.array([1.0, lam**burn_in, _storage(lam, xi), both])


starts = Exercise(
    "9b.3",
    solution=_four,
    cases=lambda rng: [
        (0.9, 0.01, 10), (0.99, 0.005, 40), (0.8, -0.1, 5), (0.95, 0.02, 20), (0.5, 0.3, 3),
    ],
    mistakes=(
        Mistake(
            _estimate,
            "That is the approximation of Eq. 9b.5. For the exact error, compare the two sums 1/(1 "
            "- λ) and 1/(1 - λ exp(ξ)).",
        ),
        Mistake(
            lambda lam, xi, burn_in: _with_both(
                lam, xi, burn_in, lam**burn_in + _storage(lam, xi)
            ),
            "The first three are right. With both, the burn-in shrinks the error of the stored "
            "state, so multiply the two errors instead of adding them.",
        ),
        Mistake(
            lambda lam, xi, burn_in: _with_both(
                lam, xi, burn_in, min(lam**burn_in, _storage(lam, xi))
            ),
            "The first three are right. Both together are better than either by itself: the "
            "burn-in of l steps multiplies the error of the stored state by λ^l.",
        ),
        Mistake(
            lambda lam, xi, burn_in: _with_both(
                lam, xi, burn_in, (lam * np.exp(xi)) ** burn_in * _storage(lam, xi)
            ),
            "The first three are right. The learner computes the burn-in, so its factor is λ, not "
            "the actor's λ exp(ξ).",
        ),
        Mistake(
            lambda lam, xi, burn_in: _errors((lam * np.exp(xi)) ** burn_in, _storage(lam, xi)),
            "The learner computes the burn-in, so the error shrinks at each step by the learner's "
            "λ, not by the actor's λ exp(ξ).",
        ),
        Mistake(
            lambda lam, xi, burn_in: _errors(lam**burn_in, _storage(lam * np.exp(xi), -xi)),
            "Your error is relative to the stored state. Divide by the exact state, h = 1/(1 - λ).",
        ),
        Mistake(
            lambda lam, xi, burn_in: _four(lam, xi, burn_in)[[0, 2, 1, 3]],
            "Burn-in and stored state are swapped. The order is zero, burn-in, stored, both.",
        ),
        Mistake(
            lambda lam, xi, burn_in: _four(lam, xi, burn_in) * [0, 1, 1, 1],
            "The error of the zero state is the exact state itself, so the relative error is 1.",
        ),
        Mistake(
            lambda lam, xi, burn_in: np.array(
                [1, 1 - lam**burn_in, _storage(lam, xi), (1 - lam**burn_in) * _storage(lam, xi)]
            ),
            "1 - λ^l is the fraction that the burn-in recovers. The error is the fraction that is "
            "still missing, λ^l.",
        ),
        Mistake(
            lambda lam, xi, burn_in: _four(lam, xi, burn_in) / (1 - lam),
            "Those are absolute errors. Divide them by the exact state, 1/(1 - λ).",
        ),
        Mistake(
            lambda lam, xi, burn_in: (
                _four(lam, xi, burn_in) * [1, 1, np.sign(xi), np.sign(xi)]
            ),
            "Your error is negative if the actor's factor is smaller than the learner's. Take its "
            "absolute value.",
        ),
        Mistake(
            lambda lam, xi, burn_in: (
                _four(lam, xi, burn_in) * [1, 1, -np.sign(xi), -np.sign(xi)]
            ),
            "Your error is negative if the actor's factor is larger than the learner's. Take its "
            "absolute value.",
        ),
        Mistake(
            lambda lam, xi, burn_in: np.array(
                [1, lam**burn_in, abs(np.exp(xi) - 1), lam**burn_in * abs(np.exp(xi) - 1)]
            ),
            "That is the relative difference between the two factors. The states differ more, "
            "because an input of age k has been multiplied by the factor k times.",
        ),
    ),
)  # fmt: skip
