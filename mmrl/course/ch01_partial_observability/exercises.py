"""Exercises of chapter 01: partial observability."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake

Summary = tuple[np.ndarray, float | np.floating]


def _normalized(x: np.ndarray) -> np.ndarray:
    return x / x.sum()


def _worlds(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    def world(states: int, shown: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
        belief, T = rng.dirichlet(np.ones(states)), rng.dirichlet(np.ones(states), size=states)
        Z = rng.dirichlet(np.ones(shown), size=states)
        return belief, T, Z, int(rng.integers(shown))

    certain = np.array([0.0, 1.0])
    moves, shows = np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([[1.0, 0.0], [0.3, 0.7]])
    return [world(2, 2), world(3, 2), world(4, 5), (certain, moves, shows, 0)]


belief_step = Exercise(
    "1.1",
    wanted=lambda belief, T, Z, obs: _normalized((belief @ T) * Z[:, obs]),
    cases=_worlds,
    mistakes=(
        Mistake(
            lambda belief, T, Z, obs: (belief @ T) * Z[:, obs],
            "these are the right proportions, but they do not sum to 1, so divide by their sum.",
        ),
        Mistake(
            lambda belief, T, Z, obs: _normalized((T @ belief) * Z[:, obs]),
            "T[s, s'] leads from s to s', so the belief is a row vector on the left: belief @ T.",
        ),
        Mistake(
            lambda belief, T, Z, obs: _normalized((belief * Z[:, obs]) @ T),
            "this weighs the old state with the new observation. But the world moves first, and "
            "the observation is made after that.",
        ),
        Mistake(
            lambda belief, T, Z, obs: _normalized(belief * Z[:, obs]),
            "the world has moved since the last observation, so predict with T before you correct.",
        ),
        Mistake(
            lambda belief, T, Z, obs: belief @ T,
            "that is the prediction, but the observation has not been used yet: weigh each state "
            "with Z[:, obs].",
        ),
    ),
    stops=(
        (
            "could not be broadcast",
            "If you wrote `Z[obs]`, that is a row: all observations that one state may give. The "
            "weights of one observation, a number for each state, are the column `Z[:, obs]`.",
        ),
    ),
)


def _summaries(rng: np.random.Generator) -> list[tuple[Summary, Summary]]:
    def summary(size: int) -> Summary:  # an answer must not use exp(log_scale), which is 0
        return _normalized(rng.uniform(0.1, 1, (size, size))), float(rng.normal() - 1000)

    identity = (np.eye(3) / 3, float(np.log(3)))
    return [*[(summary(n), summary(n)) for n in (2, 3, 5)], (identity, summary(3))]


def _join(a: Summary, b: Summary) -> Summary:
    product = a[0] @ b[0]
    return product / product.sum(), a[1] + b[1] + np.log(product.sum())


combine = Exercise(
    "1.2",
    wanted=_join,
    cases=_summaries,
    mistakes=(
        Mistake(
            lambda a, b: _join(b, a),
            "matrices do not commute, and `a` is earlier, so the product is A @ B and not B @ A.",
        ),
        Mistake(
            lambda a, b: (_join(a, b)[0], a[1] + b[1]),
            "the matrix is right, but its divisor must be kept, so add the logarithm of that sum.",
        ),
        Mistake(
            lambda a, b: (_join(a, b)[0], np.log((a[0] @ b[0]).sum())),
            "the matrix is right, but the logarithms in `a` and `b` were lost, so add all three.",
        ),
        Mistake(
            lambda a, b: (a[0] @ b[0], a[1] + b[1]),
            "the product is right, but it still shrinks, so divide it by the sum of its entries.",
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
            "`*` multiplies entry by entry, but Eq. 1.5 has products of matrices, `a[0] @ b[0]`.",
        ),
        Mistake(
            lambda a, b: (
                a[0] @ b[0] / (a[0] @ b[0]).sum(1, keepdims=True),
                a[1] + b[1] + np.log((a[0] @ b[0]).sum(1)),
            ),
            "each row is divided by a separate sum, but one number has to scale the whole matrix: "
            "divide by the sum of all entries.",
        ),
    ),
    tolerance=1e-6,
)


def _memoryless(suits: int, copies: int) -> float:
    others, same = copies, copies - 1
    return 2 * (others if suits > 1 else same) / (suits * copies - 1) - 1


memoryless = Exercise(
    "1.3",
    wanted=_memoryless,
    cases=lambda rng: [(4, 13), (4, 26), (2, 5), (13, 4), (3, 1), (1, 6)],
    mistakes=(
        Mistake(
            lambda suits, copies: 2 / suits - 1,
            "that is a blind guess. But the card in view is not the card in question, so it "
            "carries some information: one card of its suit is used up.",
        ),
        Mistake(
            lambda suits, copies: 2 * (copies - 1) / (suits * copies - 1) - 1,
            "that is the return for naming the suit in view. Since one card of it is used up, any "
            "other suit is likelier.",
        ),
        Mistake(
            lambda suits, copies: (copies if suits > 1 else copies - 1) / (suits * copies - 1),
            "that is the probability p of a right answer, but a wrong one costs the same amount "
            "that a right one pays, so the return is 2 p - 1.",
        ),
        Mistake(
            lambda suits, copies: 2 * copies / (suits * copies - 1) - 1,
            "right, except for a deck with a single suit, where you cannot name another one.",
        ),
        Mistake(
            lambda suits, copies: copies / (suits * copies - 1),
            "that is the probability p of a right answer, if there is another suit to name. A "
            "wrong answer costs the same amount that a right one pays, so the return is 2 p - 1.",
        ),
        Mistake(
            lambda suits, copies: _memoryless(suits, copies) if suits > 1 else 0.0,
            "right, except for a deck with a single suit: there every answer is right.",
        ),
        Mistake(
            lambda suits, copies: _memoryless(suits, copies) if suits > 1 else -1.0,
            "right, except for a deck with a single suit: the suit in view is the only one, so "
            "naming it is right.",
        ),
    ),
    tolerance=1e-6,
)
