"""Exercises for chapter 03b: how long a memory remembers."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _eigenvalues(rng: np.random.Generator) -> list[tuple[np.ndarray]]:
    sizes, angles = rng.uniform(0.3, 0.999, (3, 5)), rng.uniform(0.5, 6, (3, 5))
    random = [(s * np.exp(1j * a),) for s, a in zip(sizes, angles, strict=True)]
    return [*random, (np.array([0.5, 0.999 + 0j]),), (np.array([-0.9, 0.5 + 0.7j]),)]


def _of_real_part(eigenvalues: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.log(0.5) / np.log(np.real(eigenvalues))


half_life = Exercise(
    "3b.1",
    solution=lambda eigenvalues: np.log(0.5) / np.log(np.abs(eigenvalues)),
    cases=_eigenvalues,
    mistakes=(
        Mistake(
            lambda eigenvalues: np.log(2) / np.log(np.abs(eigenvalues)),
            "the magnitude is right, but the sign is wrong. Both logarithms in k ln|λ| = ln(1/2) "
            "are negative, so the signs cancel.",
        ),
        Mistake(
            lambda eigenvalues: -1 / np.log(np.abs(eigenvalues)),
            "that is the time constant, after which 1/e = 37 % is left. After a half-life, 50 % is "
            "left.",
        ),
        Mistake(
            lambda eigenvalues: np.log(0.5) / np.log(np.abs(np.real(eigenvalues))),
            "that uses the real part. Rotation is not forgetting, so take the modulus |λ|.",
        ),
        Mistake(
            lambda eigenvalues: 0.5 / np.abs(eigenvalues),
            "the state is multiplied by λ at each step, so |λ|^t is left after t steps: solve "
            "|λ|^t = 1/2.",
        ),
        Mistake(
            lambda eigenvalues: np.log(np.abs(eigenvalues)) / np.log(0.5),
            "that is the reciprocal, the number of half-lives in one step.",
        ),
        Mistake(
            lambda eigenvalues: 0.7 / (1 - np.abs(eigenvalues)),
            "that is a rule of thumb that holds only near the unit circle. Eq. 3b.1 is exact.",
        ),
        Mistake(
            lambda eigenvalues: np.log(2) / (1 - np.abs(eigenvalues)),
            "1 - |λ| is close to -ln|λ| only near the unit circle. Divide by -ln|λ| itself.",
        ),
        Mistake(
            _of_real_part,
            "that takes the logarithm of the real part, which may be negative. Rotation is not "
            "forgetting, so take the modulus |λ|.",
        ),
    ),
)


Bank = tuple[np.ndarray, np.ndarray]


def _bank(lives: np.ndarray) -> Bank:
    """Return the eigenvalues λ with half-lives `lives`, and γ = √(1 - λ²)."""
    return _scale(0.5 ** (1 / lives))


def _scale(eigenvalues: np.ndarray) -> Bank:
    return eigenvalues, np.sqrt(1 - eigenvalues**2)


def _log_spaced(shortest: float, longest: float, units: int) -> Bank:
    return _bank(np.geomspace(shortest, longest, units))


bank = Exercise(
    "3b.2",
    solution=_log_spaced,
    cases=lambda rng: [(5.0, 500.0, 3), (1.0, 16.0, 5), (20.0, 20000.0, 4), (2.0, 60.0, 8)],
    mistakes=(
        Mistake(
            lambda shortest, longest, units: _bank(np.linspace(shortest, longest, units)),
            "the half-lives are evenly spaced, so few of them are short. The ratio of neighboring "
            "half-lives should be constant.",
        ),
        Mistake(
            lambda shortest, longest, units: _scale(
                np.linspace(0.5 ** (1 / shortest), 0.5 ** (1 / longest), units)
            ),
            "both ends are right, but between them the eigenvalues are evenly spaced. Choose "
            "half-lives with a constant ratio first, and compute the eigenvalues from them.",
        ),
        Mistake(
            lambda shortest, longest, units: _scale(
                np.geomspace(0.5 ** (1 / shortest), 0.5 ** (1 / longest), units)
            ),
            "both ends are right, but neighboring eigenvalues have a constant ratio. Instead, "
            "neighboring half-lives should have one.",
        ),
        Mistake(
            lambda shortest, longest, units: _bank(
                np.geomspace(shortest, longest, units) * np.log(2)
            ),
            "these are time constants: 1/e = 37 % is left after the requested time, but it should "
            "be 50 %.",
        ),
        Mistake(
            lambda shortest, longest, units: (
                _log_spaced(shortest, longest, units)[0],
                1 - _log_spaced(shortest, longest, units)[0] ** 2,
            ),
            "the eigenvalues are right, but your γ is the square of the correct value: take the "
            "root, as in Eq. 3b.4.",
        ),
        Mistake(
            lambda shortest, longest, units: (
                _log_spaced(shortest, longest, units)[0],
                1 - _log_spaced(shortest, longest, units)[0],
            ),
            "the eigenvalues are right, but γ = 1 - λ normalizes a *constant* input. For noise "
            "with variance 1, use Eq. 3b.4.",
        ),
        Mistake(
            lambda shortest, longest, units: (
                _log_spaced(shortest, longest, units)[0],
                1 / np.sqrt(1 - _log_spaced(shortest, longest, units)[0] ** 2),
            ),
            "the eigenvalues are right, but γ is the reciprocal of the correct value: this is the "
            "standard deviation of the state without γ.",
        ),
    ),
    tolerance=1e-5,
)


def _response(lag: int, period: int) -> np.ndarray:
    """Return the impulse response over one period, which is 1 at `lag` and 0 elsewhere."""
    return (np.arange(period) == lag).astype(float)


delay_line = Exercise(
    "3b.3",
    solution=_response,
    cases=lambda rng: [(0, 4), (3, 8), (7, 16), (8, 16), (1, 5), (2, 3), (31, 64)],
    mistakes=(
        Mistake(
            lambda lag, period: np.roll(_response(lag, period), -1),
            "the impulse comes out one step early. Step 0 is the step of the impulse itself: λ⁰ = "
            "1.",
        ),
        Mistake(
            lambda lag, period: np.roll(_response(lag, period), -lag),
            "the impulse comes out at once, whatever the lag. Rotate each c by -lag times the "
            "angle of its λ, so that all units are in phase after `lag` steps.",
        ),
        Mistake(
            lambda lag, period: np.roll(_response(lag, period), -2 * lag),
            "the impulse comes out `lag` steps before the end of the period, because the angles of "
            "c have the wrong sign.",
        ),
        Mistake(
            lambda lag, period: np.cos(2 * np.pi * (np.arange(period) - lag) / period),
            "a single unit is 1 after `lag` steps, but it oscillates before and after. Use "
            "`period` units whose angles are evenly spaced on the circle.",
        ),
        Mistake(
            lambda lag, period: period * _response(lag, period),
            "the lag is right, but the output is too large: it is the sum of `period` units, so "
            "divide by `period`.",
        ),
    ),
    tolerance=1e-3,
)
