"""Exercises of chapter 03b: how long a memory remembers."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _eigenvalues(rng: np.random.Generator) -> list[tuple[np.ndarray]]:
    sizes, angles = rng.uniform(0.3, 0.999, (3, 5)), rng.uniform(0.5, 6, (3, 5))
    drawn = [(s * np.exp(1j * a),) for s, a in zip(sizes, angles, strict=True)]
    return [*drawn, (np.array([0.5, 0.999 + 0j]),), (np.array([-0.9, 0.5 + 0.7j]),)]


def _of_real_part(eigenvalues: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.log(0.5) / np.log(np.real(eigenvalues))


half_life = Exercise(
    "3b.1",
    wanted=lambda eigenvalues: np.log(0.5) / np.log(np.abs(eigenvalues)),
    cases=_eigenvalues,
    mistakes=(
        Mistake(
            lambda eigenvalues: np.log(2) / np.log(np.abs(eigenvalues)),
            "the size is right, but not the sign: the logarithm of |λ| < 1 is negative, and so is "
            "the logarithm of 1/2. In k ln|λ| = ln(1/2) the two signs cancel.",
        ),
        Mistake(
            lambda eigenvalues: -1 / np.log(np.abs(eigenvalues)),
            "that is the time constant, after which 1/e = 37 % is left. The half-life leaves one "
            "half.",
        ),
        Mistake(
            lambda eigenvalues: np.log(0.5) / np.log(np.abs(np.real(eigenvalues))),
            "that looks at the real part. But turning is not forgetting, so take the modulus |λ|.",
        ),
        Mistake(
            lambda eigenvalues: 0.5 / np.abs(eigenvalues),
            "λ acts as a factor at each step, so what is left is a power: solve |λ|^t = 1/2.",
        ),
        Mistake(
            lambda eigenvalues: np.log(np.abs(eigenvalues)) / np.log(0.5),
            "that is upside down: it is the number of half-lives in one step.",
        ),
        Mistake(
            lambda eigenvalues: 0.7 / (1 - np.abs(eigenvalues)),
            "that is the rule of thumb, good only near the unit circle. Eq. 3b.1 is exact.",
        ),
        Mistake(
            lambda eigenvalues: np.log(2) / (1 - np.abs(eigenvalues)),
            "1 - |λ| is close to -ln|λ| only near the unit circle. Divide by -ln|λ| itself.",
        ),
        Mistake(
            _of_real_part,
            "that is the logarithm of the real part, which can be negative. Turning is not "
            "forgetting, so take the modulus |λ|.",
        ),
    ),
)


Bank = tuple[np.ndarray, np.ndarray]


def _bank(lives: np.ndarray) -> Bank:
    """Return eigenvalues with these half-lives, and γ = √(1 - λ²)."""
    return _scaled(0.5 ** (1 / lives))


def _scaled(eigenvalues: np.ndarray) -> Bank:
    return eigenvalues, np.sqrt(1 - eigenvalues**2)


def _log_spaced(shortest: float, longest: float, units: int) -> Bank:
    return _bank(np.geomspace(shortest, longest, units))


bank = Exercise(
    "3b.2",
    wanted=_log_spaced,
    cases=lambda rng: [(5.0, 500.0, 3), (1.0, 16.0, 5), (20.0, 20000.0, 4), (2.0, 60.0, 8)],
    mistakes=(
        Mistake(
            lambda shortest, longest, units: _bank(np.linspace(shortest, longest, units)),
            "the half-lives are evenly spaced, so few of them are short. From one to the next "
            "there should be the same factor.",
        ),
        Mistake(
            lambda shortest, longest, units: _scaled(
                np.linspace(0.5 ** (1 / shortest), 0.5 ** (1 / longest), units)
            ),
            "both ends are right, but between them the eigenvalues are evenly spaced. Space the "
            "half-lives first, by equal factors, and compute the eigenvalues from them.",
        ),
        Mistake(
            lambda shortest, longest, units: _scaled(
                np.geomspace(0.5 ** (1 / shortest), 0.5 ** (1 / longest), units)
            ),
            "both ends are right, but the equal factors are between the eigenvalues. They should "
            "be between the half-lives.",
        ),
        Mistake(
            lambda shortest, longest, units: _bank(
                np.geomspace(shortest, longest, units) * np.log(2)
            ),
            "after the given time, 1/e = 37 % is left, as with exp(-1/time). Half should be left.",
        ),
        Mistake(
            lambda shortest, longest, units: (
                _log_spaced(shortest, longest, units)[0],
                1 - _log_spaced(shortest, longest, units)[0] ** 2,
            ),
            "the eigenvalues are right. Your γ is the square of the right one: Eq. 3b.4 has a "
            "root.",
        ),
        Mistake(
            lambda shortest, longest, units: (
                _log_spaced(shortest, longest, units)[0],
                1 - _log_spaced(shortest, longest, units)[0],
            ),
            "the eigenvalues are right. With γ = 1 - λ a *constant* input of 1 ends at 1. Noise of "
            "variance 1 needs Eq. 3b.4.",
        ),
        Mistake(
            lambda shortest, longest, units: (
                _log_spaced(shortest, longest, units)[0],
                1 / np.sqrt(1 - _log_spaced(shortest, longest, units)[0] ** 2),
            ),
            "the eigenvalues are right, but γ is upside down: this is the size of the state "
            "without it.",
        ),
    ),
    tolerance=1e-5,
)


def _response(lag: int, period: int) -> np.ndarray:
    """Return the trace of an impulse after 0, 1, …, period - 1 steps, in a memory of one lag."""
    return (np.arange(period) == lag).astype(float)


delay_line = Exercise(
    "3b.3",
    wanted=_response,
    cases=lambda rng: [(0, 4), (3, 8), (7, 16), (8, 16), (1, 5), (2, 3), (31, 64)],
    mistakes=(
        Mistake(
            lambda lag, period: np.roll(_response(lag, period), -1),
            "it comes one step early, because step 0 is the impulse itself: λ⁰ = 1.",
        ),
        Mistake(
            lambda lag, period: np.roll(_response(lag, period), -lag),
            "everything comes out at once, for every lag. Turn each c by -lag times the angle of "
            "its λ, so that all units meet after `lag` steps.",
        ),
        Mistake(
            lambda lag, period: np.roll(_response(lag, period), -2 * lag),
            "the impulse comes out at -lag, which is lag steps before the next round: the sign of "
            "the angles of c is wrong.",
        ),
        Mistake(
            lambda lag, period: np.cos(2 * np.pi * (np.arange(period) - lag) / period),
            "a single unit is 1 after `lag` steps, but swings on its way there. Take `period` "
            "units, whose angles are spread evenly around the circle.",
        ),
        Mistake(
            lambda lag, period: period * _response(lag, period),
            "the place is right but the size is not: `period` units add up, so divide.",
        ),
    ),
    tolerance=1e-3,
)
