"""Exercises of chapter 03: memory monoids."""

from typing import Any

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _eigenvalues(rng: np.random.Generator) -> list[tuple[np.ndarray]]:
    sizes, angles = rng.uniform(0.3, 0.999, (3, 5)), rng.uniform(0.5, 6, (3, 5))
    drawn = [(s * np.exp(1j * a),) for s, a in zip(sizes, angles, strict=True)]
    return [*drawn, (np.array([0.5, 0.999 + 0j]),), (np.array([-0.9, 0.5 + 0.7j]),)]


half_life = Exercise(
    "3.1",
    wanted=lambda eigenvalues: np.log(0.5) / np.log(np.abs(eigenvalues)),
    cases=_eigenvalues,
    mistakes=(
        Mistake(
            lambda eigenvalues: -1 / np.log(np.abs(eigenvalues)),
            "that is the time constant, after which 1/e = 37 % is left. Half is asked for.",
        ),
        Mistake(
            lambda eigenvalues: np.log(0.5) / np.log(np.abs(np.real(eigenvalues))),
            "that looks at the real part. Turning is not forgetting: take the modulus |λ|.",
        ),
        Mistake(
            lambda eigenvalues: 0.5 / np.abs(eigenvalues),
            "λ acts as a factor at each step, so what is left is a power: solve |λ|^t = 1/2.",
        ),
        Mistake(
            lambda eigenvalues: np.log(np.abs(eigenvalues)) / np.log(0.5),
            "that is upside down: it is the number of half-lives in one step.",
        ),
    ),
)

Tape = np.ndarray


def _retention(gamma: float, keys: Tape, values: Tape, queries: Tape) -> Tape:
    """y_t = Σ_{s ≤ t} γ^{t-s} (q_t·k_s) v_s, as a matrix."""
    t = np.arange(len(keys))
    fade = np.where(t[:, None] >= t, float(gamma) ** np.maximum(t[:, None] - t, 0), 0)
    return (fade * (queries @ keys.T)) @ values


def _tapes(rng: np.random.Generator) -> list[tuple[Any, ...]]:
    def case(gamma: float, length: int, key: int, value: int) -> tuple[Any, ...]:
        k, q = rng.normal(size=(2, length, key))
        v = rng.normal(size=(length, value))
        return gamma, *(x.astype(np.float32) for x in (k, v, q))

    return [case(0.9, 12, 3, 2), case(0.5, 7, 1, 4), case(0.99, 40, 4, 4), case(0.8, 3, 2, 1)]


def _early(gamma: float, keys: Tape, values: Tape, queries: Tape) -> Tape:
    """Weights γ^s instead of γ^{t-s}."""
    weights = float(gamma) ** np.arange(len(keys))
    return np.tril(queries @ keys.T * weights) @ values


retention = Exercise(
    "3.2",
    wanted=_retention,
    cases=_tapes,
    mistakes=(
        Mistake(
            lambda gamma, k, v, q: np.tril(q @ k.T) @ v,
            "nothing fades: that is plain linear attention. The later element's gain has to "
            "multiply the earlier sum.",
        ),
        Mistake(
            lambda gamma, k, v, q: gamma * _retention(gamma, k, v, q),
            "the newest item has faded already. γ multiplies what came before it, not k vᵀ itself.",
        ),
        Mistake(
            lambda gamma, k, v, q: _retention(gamma, k, v, q) - np.sum(q * k, 1)[:, None] * v,
            "the sum stops before t: step t may read its own key and value too.",
        ),
        Mistake(
            _early,
            "the weights are γ^s, which fades the newest most. `a` is the earlier: multiply its "
            "sum with the gain of `b`, not the other way round.",
        ),
        Mistake(
            lambda gamma, k, v, q: np.tril(k @ q.T) @ v,
            "keys and queries are exchanged: k vᵀ goes into the state, q reads it.",
        ),
    ),
    tolerance=1e-3,
)


def _response(lag: int, period: int) -> np.ndarray:
    """The trace of an impulse after 0, 1, …, period - 1 steps, in a memory of one lag."""
    return (np.arange(period) == lag).astype(float)


delay_line = Exercise(
    "3.3",
    wanted=_response,
    cases=lambda rng: [(0, 4), (3, 8), (7, 16), (8, 16), (1, 5), (2, 3), (31, 64)],
    mistakes=(
        Mistake(
            lambda lag, period: np.roll(_response(lag, period), -1),
            "one step early: step 0 is the impulse itself, λ⁰ = 1.",
        ),
        Mistake(
            lambda lag, period: np.roll(_response(lag, period), -lag),
            "everything comes out at once, whatever the lag: turn each c by -lag times the angle "
            "of its λ.",
        ),
        Mistake(
            lambda lag, period: np.roll(_response(lag, period), -2 * lag),
            "the impulse comes out at -lag, which is lag steps before the next round: the sign of "
            "the angles of c is wrong.",
        ),
        Mistake(
            lambda lag, period: period * _response(lag, period),
            "the place is right, the size is not: `period` units add up, so divide.",
        ),
    ),
    tolerance=1e-3,
)
