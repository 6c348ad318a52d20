"""Exercises for chapter 08: what truncation costs."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _weights(a, reach, ages):
    return np.minimum(ages, reach) * a ** (ages - 1)


weights = Exercise(
    "8.1",
    solution=_weights,
    cases=lambda rng: [
        (a, reach, np.arange(1, n))
        for a, reach, n in ((0.5, 3, 8), (0.9, 1, 6), (0.99, 10, 30), (0.8, 20, 12))
    ],
    mistakes=(
        Mistake(
            lambda a, reach, ages: ages * a ** (ages - 1.0),
            "That is the exact gradient, which has one term for each of the k multiplications by "
            "a. Only the last K of them are differentiated, so the factor is at most K.",
        ),
        Mistake(
            lambda a, reach, ages: np.where(ages < reach, ages * a ** (ages - 1.0), 0),
            "That is the gradient of a segment that starts at zero. A stored state still contains "
            "the old inputs, and the last K steps multiply them by a, too.",
        ),
        Mistake(
            lambda a, reach, ages: np.where(ages <= reach, ages * a ** (ages - 1.0), 0),
            "Inputs older than K steps still contribute: the stored state contains them, and the "
            "last K steps multiply it by a.",
        ),
        Mistake(
            lambda a, reach, ages: np.minimum(ages, reach) * a ** (np.minimum(ages, reach) - 1.0),
            "The truncation limits the factor, not the power: an old input was multiplied by a at "
            "all k steps, although only K of them are differentiated.",
        ),
        Mistake(
            lambda a, reach, ages: np.minimum(ages, reach) * a ** (ages * 1.0),
            "The exponent is too large by one: the derivative of a^k is k a^(k-1).",
        ),
    ),
)


def _starts(sizes, length):
    steps = np.arange(len(sizes))
    return steps - steps % length


def _outside(sizes, length):
    early = np.arange(len(sizes))[None] < _starts(sizes, length)[:, None]
    return np.mean((sizes * early).sum(1) / sizes.sum(1))


def _by_age(sizes, length):
    steps = np.arange(len(sizes))
    old = steps[:, None] - steps[None] >= length
    return np.mean((sizes * old).sum(1) / sizes.sum(1))


def _of_sums(sizes, length):
    early = np.arange(len(sizes))[None] < _starts(sizes, length)[:, None]
    return (sizes * early).sum() / sizes.sum()


outside = Exercise(
    "8.2",
    solution=_outside,
    cases=lambda rng: [
        (np.tril(rng.uniform(0.1, 1, (n, n))), length) for n, length in ((7, 3), (12, 4), (5, 9))
    ],
    mistakes=(
        Mistake(
            _by_age,
            "You cut by age, as if every step were the last of its segment. Step n depends only on "
            "the steps since its segment began, at L⌊n/L⌋.",
        ),
        Mistake(
            lambda sizes, length: _by_age(sizes, length + 1),
            "You cut by age. Step n depends only on the steps since its segment began, at L⌊n/L⌋.",
        ),
        Mistake(
            _of_sums,
            "That is the ratio of two sums over the whole matrix, in which steps with a large "
            "gradient count more. Take the fraction of each row first, and then the mean.",
        ),
        Mistake(
            lambda sizes, length: 1 - _outside(sizes, length),
            "That is the fraction inside the segments. Return the fraction outside.",
        ),
    ),
)


def _steps(eigenvalues, share):
    most = np.abs(eigenvalues).max()
    steps = 0
    while most**steps > share:
        steps += 1
    return steps


def _log_steps(moduli, share):
    return np.ceil(np.log(share) / np.log(moduli))


def _spectrum(rng, size, low, high):
    turn = rng.uniform(0.2, 1.4, size)
    return rng.uniform(low, high, size) * np.exp(1j * turn)


burn_in = Exercise(
    "8.3",
    solution=_steps,
    cases=lambda rng: [
        (_spectrum(rng, size, low, high), share)
        for size, low, high, share in (
            (1, 0.6, 0.8, 0.1), (4, 0.2, 0.95, 0.01), (16, 0.9, 0.999, 0.5), (8, 0.5, 0.99, 0.05),
        )
    ],
    mistakes=(
        Mistake(
            lambda eigenvalues, share: _log_steps(np.abs(eigenvalues).min(), share),
            "That is the time after which the fastest unit is accurate enough. All units must be, "
            "and the slowest unit, which has the largest |λ|, takes longest.",
        ),
        Mistake(
            lambda eigenvalues, share: _log_steps(np.abs(eigenvalues).mean(), share),
            "The mean of |λ| does not describe the slow units, which are still inaccurate when the "
            "fast ones no longer are. Use the slowest unit, which has the largest |λ|.",
        ),
        Mistake(
            lambda eigenvalues, share: _steps(eigenvalues, share) - 1,
            "This is one step too few, because the error is still above the limit. Round up.",
        ),
        Mistake(
            lambda eigenvalues, share: _log_steps(eigenvalues.real.max(), share),
            "At each step the error shrinks by the modulus |λ| of an eigenvalue, not by its real "
            "part.",
        ),
    ),
)  # fmt: skip
