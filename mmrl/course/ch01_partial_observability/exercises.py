"""Exercises for chapter 01: partial observability."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake

Summary = tuple[np.ndarray, float | np.floating]


def _normalize(x: np.ndarray) -> np.ndarray:
    return x / x.sum()


def _worlds(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    def world(states: int, symbols: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        belief, T = rng.dirichlet(np.ones(states)), rng.dirichlet(np.ones(states), size=states)
        Z = rng.dirichlet(np.ones(symbols), size=states)
        return belief, T, Z, int(rng.integers(symbols))

    certain = np.array([0.0, 1.0])
    moves, shows = np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([[1.0, 0.0], [0.3, 0.7]])
    return [world(2, 2), world(3, 2), world(4, 5), (certain, moves, shows, 0)]


belief_step = Exercise(
    "1.1",
    solution=lambda belief, T, Z, obs: _normalize((belief @ T) * Z[:, obs]),
    cases=_worlds,
    mistakes=(
        Mistake(
            lambda belief, T, Z, obs: (belief @ T) * Z[:, obs],
            "the proportions are right, but the entries do not sum to 1, so divide by their sum.",
        ),
        Mistake(
            lambda belief, T, Z, obs: _normalize((T @ belief) * Z[:, obs]),
            "T[s, s'] is the probability of moving from s to s', so the belief is a row vector on "
            "the left: belief @ T.",
        ),
        Mistake(
            lambda belief, T, Z, obs: _normalize((belief * Z[:, obs]) @ T),
            "this weights the old state with the new observation. The state changes first, and the "
            "observation comes afterwards.",
        ),
        Mistake(
            lambda belief, T, Z, obs: _normalize(belief * Z[:, obs]),
            "the state has changed since the last observation, so predict with T before you "
            "correct.",
        ),
        Mistake(
            lambda belief, T, Z, obs: belief @ T,
            "that is only the prediction. Use the observation too: weight each state with Z[:, "
            "obs].",
        ),
    ),
    stops=(
        (
            "could not be broadcast",
            "If you wrote `Z[obs]`, you took a row, the probabilities of all observations in one "
            "state. You need the column `Z[:, obs]`, the probability of one observation in each "
            "state.",
        ),
    ),
)


def _summaries(rng: np.random.Generator) -> list[tuple[Summary, Summary]]:
    def summary(size: int) -> Summary:  # small enough that exp(log_scale) is 0
        return _normalize(rng.uniform(0.1, 1, (size, size))), float(rng.normal() - 1000)

    identity = (np.eye(3) / 3, float(np.log(3)))
    return [*[(summary(n), summary(n)) for n in (2, 3, 5)], (identity, summary(3))]


def _join(a: Summary, b: Summary) -> Summary:
    product = a[0] @ b[0]
    return product / product.sum(), a[1] + b[1] + np.log(product.sum())


combine = Exercise(
    "1.2",
    solution=_join,
    cases=_summaries,
    mistakes=(
        Mistake(
            lambda a, b: _join(b, a),
            "matrices do not commute. Since `a` is the earlier part, the product is A @ B, not B @ "
            "A.",
        ),
        Mistake(
            lambda a, b: (_join(a, b)[0], a[1] + b[1]),
            "the matrix is right, but the divisor is lost. Add its logarithm to the two "
            "logarithms.",
        ),
        Mistake(
            lambda a, b: (_join(a, b)[0], np.log((a[0] @ b[0]).sum())),
            "the matrix is right, but the logarithms of `a` and `b` are lost. Add all three "
            "logarithms.",
        ),
        Mistake(
            lambda a, b: (a[0] @ b[0], a[1] + b[1]),
            "the product is right, but its entries shrink from step to step, so divide it by their "
            "sum.",
        ),
        Mistake(
            lambda a, b: (_join(a, b)[0], a[1] + b[1] - np.log((a[0] @ b[0]).sum())),
            "the sign is wrong: the true product is the matrix *times* exp(log_scale), so the "
            "logarithm of the divisor is added.",
        ),
        Mistake(
            lambda a, b: (
                a[0] * b[0] / (a[0] * b[0]).sum(),
                a[1] + b[1] + np.log((a[0] * b[0]).sum()),
            ),
            "`*` multiplies elementwise, but Eq. 1.5 contains matrix products: `a[0] @ b[0]`.",
        ),
        Mistake(
            lambda a, b: (
                a[0] @ b[0] / (a[0] @ b[0]).sum(1, keepdims=True),
                a[1] + b[1] + np.log((a[0] @ b[0]).sum(1)),
            ),
            "each row is divided by its own sum, but the matrix must be scaled by a single number: "
            "divide it by the sum of all entries.",
        ),
    ),
    tolerance=1e-6,
)


def _memoryless(suits: int, copies: int) -> float:
    others, same = copies, copies - 1
    return 2 * (others if suits > 1 else same) / (suits * copies - 1) - 1


memoryless = Exercise(
    "1.3",
    solution=_memoryless,
    cases=lambda rng: [(4, 13), (4, 26), (2, 5), (13, 4), (3, 1), (1, 6)],
    mistakes=(
        Mistake(
            lambda suits, copies: 2 / suits - 1,
            "that is the return of a blind guess. The visible card does help: it is not the card "
            "to name, so one card fewer of its suit remains.",
        ),
        Mistake(
            lambda suits, copies: 2 * (copies - 1) / (suits * copies - 1) - 1,
            "that is the return for naming the visible suit. One card fewer of this suit remains, "
            "so any other suit is more likely.",
        ),
        Mistake(
            lambda suits, copies: (copies if suits > 1 else copies - 1) / (suits * copies - 1),
            "that is the probability p of a correct answer. A wrong answer costs as much as a "
            "correct one earns, so the return is 2 p - 1.",
        ),
        Mistake(
            lambda suits, copies: 2 * copies / (suits * copies - 1) - 1,
            "right, except for a deck with a single suit, where there is no other suit to name.",
        ),
        Mistake(
            lambda suits, copies: copies / (suits * copies - 1),
            "that is the probability p of a correct answer if there is another suit to name. A "
            "wrong answer costs as much as a correct one earns, so the return is 2 p - 1.",
        ),
        Mistake(
            lambda suits, copies: _memoryless(suits, copies) if suits > 1 else 0.0,
            "right, except for a deck with a single suit, where every answer is correct.",
        ),
        Mistake(
            lambda suits, copies: _memoryless(suits, copies) if suits > 1 else -1.0,
            "right, except for a deck with a single suit: the visible suit is the only one, so "
            "naming it is correct.",
        ),
    ),
    tolerance=1e-6,
)
