"""Exercises for chapter 19: design your own monoid."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake

Peak = tuple[float, float, float]
"""Largest value, its age in steps, and the number of steps of a part of a tape."""


def _later(a: Peak, b: Peak) -> Peak:
    if b[0] >= a[0]:
        return b[0], b[1], a[2] + b[2]
    return a[0], a[1] + b[2], a[2] + b[2]


def _peaks(rng: np.random.Generator) -> list[tuple]:
    pairs = []
    for first, second in ((3, 1), (1, 4), (5, 2), (2, 7), (1, 1), (6, 6)):
        pair = []
        for steps in (first, second):
            values = rng.integers(0, 5, steps).astype(float)
            last = steps - 1 - int(np.argmax(values[::-1]))
            pair.append((values.max(), float(steps - 1 - last), float(steps)))
        pairs.append(tuple(pair))
    return [*pairs, ((2.0, 1.0, 3.0), (2.0, 0.0, 1.0)), ((9.0, 0.0, 1.0), (2.0, 3.0, 5.0))]


combine = Exercise(
    "19.1",
    solution=_later,
    cases=_peaks,
    mistakes=(
        Mistake(
            lambda a, b: (max(a[0], b[0]), b[1] if b[0] >= a[0] else a[1], a[2] + b[2]),
            "If the largest value is in the earlier part, it ages during the later part: add the "
            "number of steps of b to its age.",
        ),
        Mistake(
            lambda a, b: _later(a, b) if b[0] > a[0] else _later(a, (-np.inf, 0.0, b[2])),
            "If two values are equal, the later one counts, so that ages are as small as possible: "
            "compare with ≥.",
        ),
        Mistake(
            lambda a, b: _later(a, b) if b[0] >= a[0] else (a[0], a[1] + 1, a[2] + b[2]),
            "You increase the age by 1, as if the later part were a single step. It may have many: "
            "add the number of steps of b.",
        ),
        Mistake(
            lambda a, b: (*_later(a, b)[:2], b[2]),
            "The result covers both parts, so the numbers of steps of a and b must be added.",
        ),
        Mistake(
            lambda a, b: (*_later(a, b)[:2], a[2] + 1),
            "You count one step for the later element, but a scan also combines longer parts: add "
            "the number of steps of b.",
        ),
    ),
)


def _leaks(clean: np.ndarray, other: np.ndarray, start: int) -> bool:
    return not np.array_equal(clean[start:], other[start:])


def _outputs(rng: np.random.Generator) -> list[tuple]:
    ys = rng.normal(size=(6, 2)).astype(np.float32).astype(float)
    bit = np.spacing(ys[4].astype(np.float32))  # the smallest difference in float32

    def change(step, by):
        other = ys.copy()
        other[step] += by
        return other

    return [
        (ys, change(5, np.nan), 3),
        (ys, change(1, np.nan), 3),
        (ys, change(4, bit), 3),
        (ys, change(3, 5.0), 3),
        (ys, change(2, 100.0), 3),
        (ys, ys.copy(), 3),
        (ys, change(4, -2.0), 3),
    ]


leaks = Exercise(
    "19.2",
    solution=_leaks,
    cases=_outputs,
    mistakes=(
        Mistake(
            lambda clean, other, start: bool(np.abs(clean - other)[start:].max() > 0),
            "A NaN is not larger than 0, so it is not detected. Test whether all outputs are "
            "equal, and negate the result.",
        ),
        Mistake(
            lambda clean, other, start: not np.allclose(clean[start:], other[start:]),
            "A tolerance misses small leaks. Forgotten inputs do not change a single bit, so test "
            "for exact equality.",
        ),
        Mistake(
            lambda clean, other, start: not np.array_equal(clean, other),
            "Outputs before `start` may differ, because the observations differ there. Compare "
            "only outputs at `start` and later.",
        ),
        Mistake(
            lambda clean, other, start: not np.array_equal(clean[start + 1 :], other[start + 1 :]),
            "The step at which an episode begins is part of that episode: compare outputs starting "
            "at `start`.",
        ),
    ),
)


def _middle(values: np.ndarray) -> float:
    """Compute the mean without the lowest and the highest quarter, rounded down, of the values."""
    cut = len(values) // 4
    return float(np.sort(values)[cut : len(values) - cut].mean())


def _score(returns: np.ndarray) -> float:
    return _middle(returns.mean(axis=0))


score = Exercise(
    "19.3",
    solution=_score,
    cases=lambda rng: [(rng.uniform(-1, 1, shape) ** 3,) for shape in ((4, 5), (2, 8), (4, 10))],
    mistakes=(
        Mistake(
            lambda returns: _middle(returns.ravel()),
            "That cuts the best and the worst of all values, which may remove a hard task "
            "completely. Average over the tasks of each seed first, and then cut seeds.",
        ),
        Mistake(
            lambda returns: np.mean([_middle(task) for task in returns]),
            "You cut seeds within each task, and then average. Average over the tasks of each seed "
            "first, and then cut seeds.",
        ),
        Mistake(
            lambda returns: _middle(returns.mean(axis=1)),
            "The axes are swapped: `returns[m, s]` is the return of task m and seed s, so average "
            "over tasks, axis 0.",
        ),
        Mistake(
            lambda returns: returns.mean(),
            "That is the mean over all seeds. The interquartile mean first cuts a quarter of the "
            "seeds at each end, so that a single lucky seed does not dominate.",
        ),
    ),
)
