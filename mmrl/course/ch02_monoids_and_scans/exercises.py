"""Exercises for chapter 02: monoids and scans."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake

Mean = tuple[float, float]
Clip = tuple[float, float, float]
Run = tuple[int, int, int, int]


def _merge(a: Mean, b: Mean) -> Mean:
    (n, x), (m, y) = a, b
    count = n + m
    return count, (n * x + m * y) / (count if count > 0 else 1)


def _means(rng: np.random.Generator) -> list[tuple[Mean, Mean]]:
    random = [
        ((float(n), float(x)), (float(m), float(y)))
        for n, m, x, y in zip(*rng.integers(1, 9, (2, 6)), *rng.normal(size=(2, 6)), strict=True)
    ]
    empty = (0.0, 0.0)
    far = (1.0, 1000.0), (1.0, -400.0)  # values that reveal a small term in the denominator
    return [*random, far, (empty, random[0][0]), (random[0][0], empty), (empty, empty)]


merge_means = Exercise(
    "2.1",
    solution=_merge,
    cases=_means,
    mistakes=(
        Mistake(
            lambda a, b: (a[0] + b[0], (a[1] + b[1]) / 2),
            "the average of two means is right only if both samples have the same size, so weight "
            "each mean by its count.",
        ),
        Mistake(
            lambda a, b: _merge(a, b) if a[0] + b[0] > 0 else (0.0, float("nan")),
            "right, except for two empty samples: their mean is 0/0, which is NaN, but (0, 0) must "
            "be the identity. Divide by 1 if both counts are 0.",
        ),
        Mistake(
            lambda a, b: (a[0] + b[0], a[0] * a[1] + b[0] * b[1]),
            "that is the sum over both samples. Divide it by the count to get the mean.",
        ),
        Mistake(
            lambda a, b: (max(a[0], b[0]), _merge(a, b)[1]),
            "the mean is right, but the count must be n + m.",
        ),
        Mistake(
            lambda a, b: (a[0] + b[0], (a[0] * a[1] + b[0] * b[1]) / (a[0] + b[0] + 1e-3)),
            "a small constant in the denominator avoids 0/0, but makes every mean too small. "
            "Divide by the count itself, or by 1 if both counts are 0.",
        ),
        Mistake(
            lambda a, b: (a[0] + b[0], _merge((b[0], a[1]), (a[0], b[1]))[1]),
            "the weights are swapped: weight each mean by its own count, n · x + m · y.",
        ),
        Mistake(
            lambda a, b: _merge(a, (1.0, b[1])),
            "`b` is treated as a single number. It is the mean of m numbers, so it has the weight "
            "m.",
        ),
        Mistake(
            lambda a, b: (a[0] + b[0], a[1] + b[1]),
            "means cannot be added: the mean of both samples lies between their means. Weight each "
            "mean by its count, and divide by n + m.",
        ),
        Mistake(
            lambda a, b: (a[0] + b[0], (a[0] * a[1] + b[0] * b[1]) / 2),
            "the sum is right, but it is the sum of n + m numbers. Divide by n + m, not by 2.",
        ),
        Mistake(
            lambda a, b: (a[0] + b[0], _merge(a, b)[1] if a[0] and b[0] else 0.0),
            "if only one sample is empty, the result must be the mean of the other. The mean is 0 "
            "only if both samples are empty.",
        ),
        Mistake(
            lambda a, b: (a[0] + b[0], a[1]) if a[0] else b,
            "this uses `b` only if `a` is empty. Both means contribute, each weighted by its "
            "count.",
        ),
        Mistake(
            lambda a, b: _merge(a, b)[::-1],
            "both numbers are right, but they are in the wrong order: the count comes first.",
        ),
    ),
    stops=(
        (
            "ZeroDivisionError",
            "Two empty samples must give (0, 0), because (0, 0) is the identity. Divide by 1 if "
            "both counts are 0.",
        ),
    ),
    tolerance=1e-5,
)


def _compose(a: Clip, b: Clip) -> Clip:
    (shift, low, high), (then, floor, ceiling) = a, b

    def clip(h: float) -> float:
        return min(max(h + then, floor), ceiling)

    return shift + then, clip(low), clip(high)


def _clips(rng: np.random.Generator) -> list[tuple[Clip, Clip]]:
    def draw() -> Clip:
        low, high = np.sort(rng.uniform(-4, 4, 2))
        return float(rng.normal()), float(low), float(high)

    free = (0.0, -np.inf, np.inf)
    apart = (1.0, 2.0, 3.0), (0.5, -3.0, -2.0)
    return [*((draw(), draw()) for _ in range(8)), (draw(), free), (free, draw()), apart]


compose_clips = Exercise(
    "2.2",
    solution=_compose,
    cases=_clips,
    mistakes=(
        Mistake(
            lambda a, b: (a[0] + b[0], max(a[1], b[1]), min(a[2], b[2])),
            "this takes the tighter of the two bounds, but `b` also shifts the bounds of `a`. "
            "Where does the second map send `low` of the first?",
        ),
        Mistake(
            lambda a, b: (a[0] + b[0], max(a[1] + b[0], b[1]), min(a[2] + b[0], b[2])),
            "right as long as the two ranges overlap. If the shifted range of `a` lies above or "
            "below that of `b`, both ends fall on the same stop, so clip each end on both sides.",
        ),
        Mistake(
            lambda a, b: _compose(b, a),
            "the order is reversed: `a` is the earlier map, so its clip is applied first.",
        ),
        Mistake(
            lambda a, b: (a[0] + b[0], a[1] + b[0], a[2] + b[0]),
            "the bounds of `a` are shifted correctly, but the bounds of `b` are lost. Clip your "
            "result to them.",
        ),
        Mistake(
            lambda a, b: (a[0] + b[0], b[1], b[2]),
            "the bounds of `a` are lost. A counter that `a` limits to 3 cannot exceed 3 + shift, "
            "with the shift of `b`.",
        ),
        Mistake(
            lambda a, b: (
                a[0] + b[0],
                *(min(max(stop, b[1]), b[2]) for stop in a[1:]),
            ),
            "this clips the stops of `a` without moving them. The second map moves them first: add "
            "its shift, and then clip.",
        ),
    ),
)


def scan_with(encode: Any, combine: Any, decode: Any) -> Any:
    """Return a function flags -> decode(encode(x_0) • … • encode(x_t)) for every t.

    Products are split in the middle. Elements may be any Python objects, because the code does not
    use JAX. Returns `...` if any of the three arguments is `...`.
    """
    if encode is ... or combine is ... or decode is ...:
        return ...

    def product(elements: list) -> Any:
        if len(elements) == 1:
            return elements[0]
        half = (len(elements) + 1) // 2
        return combine(product(elements[:half]), product(elements[half:]))

    def run(flags: np.ndarray) -> np.ndarray:
        elements = [encode(bool(x)) for x in flags]
        return np.array([decode(product(elements[: t + 1])) for t in range(len(flags))])

    return run


def _streaks(flags: np.ndarray) -> np.ndarray:
    run = best = 0
    longest = []
    for x in flags:
        run = run + 1 if x else 0
        best = max(best, run)
        longest.append(best)
    return np.array(longest)


def _runs(flags: np.ndarray) -> np.ndarray:
    since = np.arange(1, len(flags) + 1)
    return since - np.maximum.accumulate(np.where(flags, 0, since))


def _element(flag: bool) -> Run:
    return 1, int(flag), int(flag), int(flag)


def _join(a: Run, b: Run, *, seam: bool = True, grows: tuple[bool, bool] = (True, True)) -> Run:
    """Combine two adjacent parts (length, run at the start, run at the end, longest run)."""
    (n, a_start, a_end, a_best), (m, b_start, b_end, b_best) = a, b
    start = a_start + (b_start if grows[0] and a_start == n else 0)
    end = b_end + (a_end if grows[1] and b_end == m else 0)
    return n + m, start, end, max(a_best, b_best, a_end + b_start if seam else 0)


def _ends_exchanged(a: Run, b: Run) -> Run:
    """Compute the run across the seam from the outer ends of `a` and `b`."""
    n, start, end, _ = _join(a, b)
    return n, start, end, max(a[3], b[3], a[1] + b[2])


def _wrong(
    combine: Callable[[Run, Run], Run] = _join, read: int = 3, **flaws: Any
) -> Callable[[np.ndarray], np.ndarray]:
    return scan_with(_element, lambda a, b: combine(a, b, **flaws), lambda h: h[read])


def _flags(rng: np.random.Generator) -> list[tuple[np.ndarray]]:
    random = [rng.random(n) < p for n, p in ((1, 0.5), (7, 0.6), (33, 0.8), (40, 0.95))]
    by_hand = [np.ones(9, bool), np.zeros(5, bool), np.array([1, 1, 0, 1, 1, 1, 0, 1], bool)]
    return [(flags,) for flags in (*random, *by_hand)]


longest_streak = Exercise(
    "2.3",
    solution=_streaks,
    cases=_flags,
    mistakes=(
        Mistake(
            _wrong(seam=False),
            "a streak that crosses the seam between `a` and `b` is not counted: it is as long as "
            "the run at the end of `a` plus the run at the start of `b`.",
        ),
        Mistake(
            _wrong(grows=(False, False)),
            "a part that consists of a single streak lengthens the run of its neighbor. Compare "
            "the length of the run with the length of the part.",
        ),
        Mistake(
            _wrong(grows=(False, True)),
            "the run at the start never grows. If `a` is a single streak, the run at the start of "
            "`b` continues it.",
        ),
        Mistake(
            _wrong(grows=(True, False)),
            "the run at the end never grows. If `b` is a single streak, it continues the run at "
            "the end of `a`.",
        ),
        Mistake(
            _wrong(_ends_exchanged),
            "two runs meet at the seam: the run at the end of `a` and the run at the start of `b`. "
            "You add the outer two instead.",
        ),
        Mistake(
            _wrong(read=1),
            "`decode` returns the run at the start. The longest run is a separate entry.",
        ),
        Mistake(
            _wrong(read=0),
            "`decode` returns the number of steps, not the longest streak.",
        ),
        Mistake(
            lambda flags: np.cumsum(flags),
            "that counts all True flags so far, but a streak ends where a flag is False. A run "
            "grows across the seam only if it is as long as its part. The length must also count "
            "the False flags.",
        ),
        Mistake(
            _runs,
            "that is the current streak. The exercise asks for the longest streak so far, so an "
            "element must store that too.",
        ),
        Mistake(
            scan_with(
                lambda flag: (int(flag), int(flag)),
                lambda a, b: (
                    a[0] + b[0] if b[0] else 0,
                    max(a[1], b[1], a[0] + b[0] if b[0] else 0),
                ),
                lambda h: h[1],
            ),
            "that is right only if `b` is a single flag, like the impostor. If `b` has several "
            "flags, the run at its end may not reach back to its start. Store the length of the "
            "part, and the run at its start.",
        ),
    ),
)
