"""Exercises of chapter 08: what truncation costs."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _weights(a, reach, ages):
    return np.minimum(ages, reach) * a ** (ages - 1)


stored = Exercise(
    "8.1",
    wanted=_weights,
    cases=lambda rng: [
        (a, reach, np.arange(1, n))
        for a, reach, n in ((0.5, 3, 8), (0.9, 1, 6), (0.99, 10, 30), (0.8, 20, 12))
    ],
    mistakes=(
        Mistake(
            lambda a, reach, ages: ages * a ** (ages - 1.0),
            "That is the exact gradient, a sum over all k places where a enters. Only the last K "
            "of them get a gradient: the factor k stops growing at K.",
        ),
        Mistake(
            lambda a, reach, ages: np.where(ages < reach, ages * a ** (ages - 1.0), 0),
            "That is a segment that starts from zero. With a stored state the old inputs are still "
            "in the state, so that a enters through them in the last K steps too.",
        ),
        Mistake(
            lambda a, reach, ages: np.where(ages <= reach, ages * a ** (ages - 1.0), 0),
            "Inputs older than K steps do not drop out: the stored state carries them, and the "
            "last K steps multiply it by a.",
        ),
        Mistake(
            lambda a, reach, ages: np.minimum(ages, reach) * a ** (np.minimum(ages, reach) - 1.0),
            "The wall cuts the factor, not the power: an old input was multiplied by a in all k "
            "places, although only K of them get a gradient.",
        ),
        Mistake(
            lambda a, reach, ages: np.minimum(ages, reach) * a ** (ages * 1.0),
            "The power is one too high: the derivative of a^k is k a^(k-1).",
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
    wanted=_outside,
    cases=lambda rng: [
        (np.tril(rng.uniform(0.1, 1, (n, n))), length) for n, length in ((7, 3), (12, 4), (5, 9))
    ],
    mistakes=(
        Mistake(
            _by_age,
            "You cut by age, as if every step were the last of its segment. Step n sees only the "
            "steps since its own segment began, at L⌊n/L⌋.",
        ),
        Mistake(
            lambda sizes, length: _by_age(sizes, length + 1),
            "You cut by age. Step n sees only the steps since its own segment began, at L⌊n/L⌋.",
        ),
        Mistake(
            _of_sums,
            "That is the ratio of two sums over the whole matrix, so that steps with a large "
            "gradient count more. Take the share of each row first, and then the mean.",
        ),
        Mistake(
            lambda sizes, length: 1 - _outside(sizes, length),
            "That is the share inside the segments; give the share outside.",
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
    wanted=_steps,
    cases=lambda rng: [
        (_spectrum(rng, size, low, high), share)
        for size, low, high, share in (
            (1, 0.6, 0.8, 0.1), (4, 0.2, 0.95, 0.01), (16, 0.9, 0.999, 0.5), (8, 0.5, 0.99, 0.05),
        )
    ],
    mistakes=(
        Mistake(
            lambda eigenvalues, share: _log_steps(np.abs(eigenvalues).min(), share),
            "That is when the fastest unit has forgotten. No unit may lack more than the share, "
            "and the slowest one, with the largest |λ|, keeps the error longest.",
        ),
        Mistake(
            lambda eigenvalues, share: _log_steps(np.abs(eigenvalues).mean(), share),
            "No unit has the mean |λ|, and the slow ones are still wrong when the fast ones are "
            "right. So the slowest, with the largest |λ|, decides.",
        ),
        Mistake(
            lambda eigenvalues, share: _steps(eigenvalues, share) - 1,
            "One step too few: after it the error is still above the share. Round up.",
        ),
        Mistake(
            lambda eigenvalues, share: _log_steps(eigenvalues.real.max(), share),
            "A complex eigenvalue shrinks by its modulus |λ|, not by its real part.",
        ),
    ),
)  # fmt: skip
