"""Exercises of chapter 09b: stale states."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _staleness(replayed, exact):
    return np.linalg.norm(replayed - exact, axis=1) / np.abs(exact.max(axis=1))


def _values_cases(rng):
    cases = []
    for time, actions in ((5, 2), (3, 4), (7, 3)):
        exact = rng.normal(size=(time, actions)) - 1  # often all values are negative
        cases.append((exact + rng.normal(size=(time, actions)), exact))
    return cases


staleness = Exercise(
    "9b.1",
    wanted=_staleness,
    cases=_values_cases,
    mistakes=(
        Mistake(
            lambda replayed, exact: _staleness(exact, replayed),
            "You divide by the largest of the replayed values. The unit is the largest value of "
            "the exact state, because the error is relative to it.",
        ),
        Mistake(
            lambda replayed, exact: np.linalg.norm(replayed - exact, axis=1) / exact.max(axis=1),
            "If all values are negative, so is your ΔQ. Divide by the absolute value of the "
            "largest one.",
        ),
        Mistake(
            lambda replayed, exact: (
                np.linalg.norm(replayed - exact, axis=1) / np.abs(exact).max(axis=1)
            ),
            "You take absolute values first and the largest of them after. Eq. 9b.1 takes the "
            "largest value, and then its absolute value: of -4 and 1 that is 1.",
        ),
        Mistake(
            lambda replayed, exact: (
                np.abs(replayed - exact).sum(axis=1) / np.abs(exact.max(axis=1))
            ),
            "You add up the absolute differences. The length of the difference is the root of the "
            "sum of its squares.",
        ),
        Mistake(
            lambda replayed, exact: (
                ((replayed - exact) ** 2).sum(axis=1) / np.abs(exact.max(axis=1))
            ),
            "The root is missing. The length of the difference is the root of the sum of its "
            "squares.",
        ),
        Mistake(
            lambda replayed, exact: (
                np.abs(replayed - exact).max(axis=1) / np.abs(exact.max(axis=1))
            ),
            "You take the largest difference over the actions. The length of the difference counts "
            "all of them: it is the root of the sum of their squares.",
        ),
        Mistake(
            lambda replayed, exact: (
                np.abs(replayed.max(axis=1) - exact.max(axis=1)) / np.abs(exact.max(axis=1))
            ),
            "You compare the two largest values only. The error is the length of the difference of "
            "the whole vectors, one entry for each action.",
        ),
        Mistake(
            lambda replayed, exact: np.linalg.norm(replayed - exact, axis=1),
            "That is the length of the difference. Divide it by the absolute value of the largest "
            "exact value, so that tasks with large and small returns can be compared.",
        ),
        Mistake(
            lambda replayed, exact: (
                np.linalg.norm(replayed - exact, axis=1) / np.linalg.norm(exact, axis=1)
            ),
            "You divide by the length of the exact values. Divide by the largest of them.",
        ),
        Mistake(
            lambda replayed, exact: np.linalg.norm(replayed - exact, axis=1) / np.abs(exact.max()),
            "You divide every step by the largest value of all steps. Take the largest value of "
            "each step, along the axis of actions.",
        ),
    ),
)


def _product(factors, inputs):
    factor, added = 1.0, 0.0
    for step, x in zip(factors, inputs, strict=True):
        factor, added = step * factor, step * added + x
    return factor, added


def _steps_cases(rng):
    sizes = (1, 2, 5, 8)
    return [(rng.uniform(0.3, 0.95, n), rng.normal(size=n)) for n in sizes]


product = Exercise(
    "9b.2",
    wanted=_product,
    cases=_steps_cases,
    mistakes=(
        Mistake(
            lambda factors, inputs: _product(factors[::-1], inputs[::-1]),
            "Your product runs backward in time: each input is multiplied by the factors of the "
            "steps before it. The earliest step acts first, so later factors multiply its input.",
        ),
        Mistake(
            lambda factors, inputs: (np.prod(factors), np.sum(inputs)),
            "The factor is right. But an input is multiplied by the factor of every later step; "
            "yours are added up as they are.",
        ),
        Mistake(
            lambda factors, inputs: (
                np.prod(factors),
                sum(x * np.prod(factors[k:]) for k, x in enumerate(inputs)),
            ),
            "The factor is right. Each input is multiplied once too often: a step multiplies the "
            "earlier state, and adds its own input after that.",
        ),
        Mistake(
            lambda factors, inputs: (np.sum(factors), _product(factors, inputs)[1]),
            "The sum is right. The factors are multiplied with each other, not added: two steps "
            "that halve leave a quarter.",
        ),
        Mistake(
            lambda factors, inputs: (factors[-1] * 1.0, _product(factors, inputs)[1]),
            "The sum is right. Your factor is only the last step's; a state is multiplied by the "
            "factors of all steps.",
        ),
        Mistake(
            lambda factors, inputs: (factors[0] ** len(factors), _product(factors, inputs)[1]),
            "The sum is right. Your factor is a power of the first one, but here each step has its "
            "own factor: multiply all of them.",
        ),
        Mistake(
            lambda factors, inputs: (0.0, _product(factors, inputs)[1]),
            "The sum is right: it is the result from the zero state. The factor is the share that "
            "is left of any other state, the product of all factors.",
        ),
    ),
)


def _stored(lam, xi):
    return abs((1 - lam) / (1 - lam * np.exp(xi)) - 1)


def _errors(warm, stored):
    return np.array([1.0, warm, stored, warm * stored])


def _four(lam, xi, burn_in):
    return _errors(lam**burn_in, _stored(lam, xi))


def _estimated(lam, xi, burn_in):
    return _errors(lam**burn_in, abs(xi) * lam / (1 - lam))


def _with_both(lam, xi, burn_in, both):
    return np.array([1.0, lam**burn_in, _stored(lam, xi), both])


starts = Exercise(
    "9b.3",
    wanted=_four,
    cases=lambda rng: [
        (0.9, 0.01, 10), (0.99, 0.005, 40), (0.8, -0.1, 5), (0.95, 0.02, 20), (0.5, 0.3, 3),
    ],
    mistakes=(
        Mistake(
            _estimated,
            "That is the approximation of Eq. 9b.5. For the exact error compare the two sums: they "
            "are 1/(1 - λ) and 1/(1 - λ exp(ξ)).",
        ),
        Mistake(
            lambda lam, xi, burn_in: _with_both(
                lam, xi, burn_in, lam**burn_in + _stored(lam, xi)
            ),
            "The first three are right. With both, the burn-in shrinks the error of the stored "
            "state: the two errors are multiplied, not added.",
        ),
        Mistake(
            lambda lam, xi, burn_in: _with_both(
                lam, xi, burn_in, min(lam**burn_in, _stored(lam, xi))
            ),
            "The first three are right. Both together are better than the better of the two: the "
            "burn-in multiplies the error of the stored state by λ to the power of its steps.",
        ),
        Mistake(
            lambda lam, xi, burn_in: _with_both(
                lam, xi, burn_in, (lam * np.exp(xi)) ** burn_in * _stored(lam, xi)
            ),
            "The first three are right. The burn-in is read by the learner, so its factor is λ, "
            "not the actor's λ exp(ξ).",
        ),
        Mistake(
            lambda lam, xi, burn_in: _errors((lam * np.exp(xi)) ** burn_in, _stored(lam, xi)),
            "In the burn-in the learner reads, so the error shrinks by its λ at each step, not by "
            "the actor's λ exp(ξ).",
        ),
        Mistake(
            lambda lam, xi, burn_in: _errors(lam**burn_in, _stored(lam * np.exp(xi), -xi)),
            "Your error is relative to the stored state. Divide by the exact one, h = 1/(1 - λ).",
        ),
        Mistake(
            lambda lam, xi, burn_in: _four(lam, xi, burn_in)[[0, 2, 1, 3]],
            "Burn-in and stored state have changed places: the order is zero, burn-in, stored, "
            "both.",
        ),
        Mistake(
            lambda lam, xi, burn_in: _four(lam, xi, burn_in) * [0, 1, 1, 1],
            "The zero state lacks everything: its error is the whole state, which relative to the "
            "state is 1.",
        ),
        Mistake(
            lambda lam, xi, burn_in: np.array(
                [1, 1 - lam**burn_in, _stored(lam, xi), (1 - lam**burn_in) * _stored(lam, xi)]
            ),
            "1 - λ^l is the part that the burn-in has recovered. The error is the part that is "
            "still missing, λ^l.",
        ),
        Mistake(
            lambda lam, xi, burn_in: _four(lam, xi, burn_in) / (1 - lam),
            "Those are the errors themselves. Divide them by the exact state, 1/(1 - λ).",
        ),
        Mistake(
            lambda lam, xi, burn_in: (
                _four(lam, xi, burn_in) * [1, 1, np.sign(xi), np.sign(xi)]
            ),
            "If the actor's factor is the smaller one, your error is negative. Take its absolute "
            "value.",
        ),
        Mistake(
            lambda lam, xi, burn_in: (
                _four(lam, xi, burn_in) * [1, 1, -np.sign(xi), -np.sign(xi)]
            ),
            "If the actor's factor is the larger one, your error is negative. Take its absolute "
            "value.",
        ),
        Mistake(
            lambda lam, xi, burn_in: np.array(
                [1, lam**burn_in, abs(np.exp(xi) - 1), lam**burn_in * abs(np.exp(xi) - 1)]
            ),
            "That is the difference of the two factors. The states differ more, since an input of "
            "age k has been multiplied by the factor k times.",
        ),
    ),
)  # fmt: skip
