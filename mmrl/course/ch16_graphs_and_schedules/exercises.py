"""Exercises for chapter 16: dependence graphs and schedules."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mmrl.course.exercises.answers import CountExercise, Exercise, Mistake

Point = tuple[str, int]  # an operation at a step
Reads = dict[Point, list[Point]]  # the points that each point depends on


def peak(order: Sequence[Point], reads: Reads, name: str | None = None) -> int:
    """Return the maximum number of values alive at once, of one operation or of all.

    A value is freed after the last point that reads it.
    """
    left = Counter(value for point in order for value in reads[point])
    alive: set[Point] = set()
    most = 0
    for point in order:
        alive.add(point)
        most = max(most, sum(name in (None, one) for one, _ in alive))
        left.subtract(reads[point])
        alive -= {value for value in (point, *reads[point]) if left[value] <= 0}
    return most


# 16.1: the number of rounds by which learning lags behind acting, and of live observations


def _longest(n: int | None, T: int) -> int:
    """Return the length of the longest window. `n` is None for Monte-Carlo returns."""
    return T if n is None else min(n, T)


behind = Exercise(
    "16.1",
    solution=lambda n, T: (_longest(n, T) - 1, _longest(n, T)),
    cases=lambda rng: [(3, 16), (1, 9), (4, 32), (8, 8), (20, 16), (None, 16), (None, 5)],
    mistakes=(
        Mistake(
            lambda n, T: (_longest(n, T), _longest(n, T)),
            "Learning can run one round earlier, because the window of step t starts with the "
            "reward of step t itself: its last step, t + n - 1, has just been computed in this "
            "round.",
        ),
        Mistake(
            lambda n, T: (_longest(n, T), _longest(n, T) + 1),
            "Both numbers are too large by one. The window of step t starts with the reward of "
            "step t itself, so its last step is t + n - 1. The observation is alive until then.",
        ),
        Mistake(
            lambda n, T: (_longest(n, T) - 1, _longest(n, T) - 1),
            "The shift is right, but one observation is missing. An observation is computed in "
            "round t and last used in round t + n - 1: count both rounds.",
        ),
        Mistake(
            lambda n, T: (_longest(n, T) - 1, _longest(n, T) + 1),
            "The shift is right, but you count one observation too many. An observation is freed "
            "in round t + n - 1, right after its gradient and before the next one is computed.",
        ),
        Mistake(
            lambda n, T: ((T if n is None else n) - 1, T if n is None else n),
            "Consider n = 20 with T = 16. The window ends with the episode, so no gradient waits "
            "for more than T steps, and there are at most T observations.",
        ),
        Mistake(
            lambda n, T: (_longest(n, T) - 1, T),
            "The shift is right, but not all observations of the episode must be kept. Each is "
            "freed right after its gradient, n - 1 rounds after it is computed.",
        ),
        Mistake(
            lambda n, T: (0 if n is None else _longest(n, T) - 1, _longest(n, T)),
            "The windows are right. With Monte-Carlo returns, the gradient of step 0 depends on "
            "the last reward, of step T - 1, so in a single loop learning lags by T - 1 rounds.",
        ),
    ),
)


# 16.2: a schedule for a recurrence that runs backward


def advantages(T: int) -> Reads:
    """Return the reads of acting, δ[t], A[t] = δ[t] + γλ A[t + 1], and the gradients."""
    reads: Reads = {}
    for t in range(T):
        reads["step", t] = [("step", t - 1)] if t else []
        reads["delta", t] = [("step", t)]
        reads["adv", t] = [("delta", t), *([("adv", t + 1)] if t + 1 < T else [])]
        reads["grad", t] = [("step", t), ("adv", t)]
    return reads


Theta = Callable[[str, int, int], Any]


def timing_check(theta: Theta) -> Callable[[int], Any]:
    """Return a function that checks the times θ(name, t, T) on an episode of T steps.

    The function returns five counts: early reads by acting, early reads by the other operations,
    distinct times, and the numbers of δ and of A that are alive beyond the minimum (one δ, two A).
    A read is early if its value does not exist yet.
    """

    def judge(T: int) -> Any:
        reads = advantages(T)
        times = {point: theta(*point, T) for point in reads}
        if unset := [time for time in times.values() if time is None or time is ...]:
            return unset[0]
        times = {point: tuple(np.ravel(time).tolist()) for point, time in times.items()}
        early = Counter(p[0] for p in reads for q in reads[p] if times[q] >= times[p])
        different = len(set(times.values()))
        order = sorted(times, key=times.__getitem__)
        excess = [0, 0]
        if not early and different == len(times):
            excess = [max(0, peak(order, reads, a) - b) for a, b in (("delta", 1), ("adv", 2))]
        return early["step"], early.total() - early["step"], different, *excess

    return judge


PLACE = {"step": 0, "delta": 1, "adv": 2, "grad": 3}


def _theta(name: str, t: int, T: int) -> tuple[int, ...]:
    return (0, t, 0) if name == "step" else (1, T - 1 - t, PLACE[name])


def _early_deltas(name: str, t: int, T: int) -> tuple[int, ...]:
    return (0, t, 1) if name == "delta" else _theta(name, t, T)


def _late_gradients(name: str, t: int, T: int) -> tuple[int, ...]:
    return (2, t, 0) if name == "grad" else _theta(name, t, T)


def _all_apart(name: str, t: int, T: int) -> tuple[int, ...]:
    return (_late_gradients if name == "grad" else _early_deltas)(name, t, T)


backward = CountExercise(
    "16.2",
    words=(
        "acting reads values that do not exist yet; invalid reads",
        "learning reads values that do not exist yet; invalid reads",
        "legal, but some points have the same time; missing times",
        "legal, but more values of delta are alive than necessary; extra values",
        "legal, but more values of adv are alive than necessary; extra values",
    ),
    solution=timing_check(_theta),
    cases=lambda rng: [(1,), (2,), (5,), (12,)],
    mistakes=(
        Mistake(
            timing_check(lambda name, t, T: (0 if name == "step" else 1, t, PLACE[name])),
            "adv[t] reads adv[t + 1], but your loop reaches t first. The time of an advantage must "
            "decrease as t increases, for example with T - 1 - t.",
        ),
        Mistake(
            timing_check(lambda name, t, T: (0, t) if name == "step" else (1, T - 1 - t)),
            "The loops are right, but in each round several operations have the same time. Add "
            "another entry that puts delta before adv, and adv before grad.",
        ),
        Mistake(
            timing_check(lambda name, t, T: (0, T - 1 - t, PLACE[name])),
            "Now acting runs backward, too, although step[t] reads step[t - 1]. Acting needs a "
            "separate loop before the other.",
        ),
        Mistake(
            timing_check(_early_deltas),
            "Legal, but every delta is computed while acting, and must be stored until the "
            "backward loop. Compute it right before its advantage.",
        ),
        Mistake(
            timing_check(_late_gradients),
            "Legal, but the gradients have a separate loop, so all advantages must be stored until "
            "then. Run each gradient right after its advantage.",
        ),
        Mistake(
            timing_check(_all_apart),
            "Legal, but every operation has a separate loop, so the values of each loop must be "
            "stored until the next one. Only acting needs a separate loop.",
        ),
    ),
)  # fmt: skip


# 16.3: a scheduler without polyhedra


def program(kind: str, T: int) -> Reads:
    """Return the reads of one iteration of a program.

    `kind` is "3-step", "Monte-Carlo", "actor and critic" or "GAE".
    """
    if kind == "GAE":
        return advantages(T)
    windows = {"3-step": (3,), "Monte-Carlo": (T,), "actor and critic": (2, 5)}[kind]
    reads: Reads = {}
    for t in range(T):
        reads["obs", t] = [("step", t - 1)] if t else []
        reads["act", t] = [("obs", t)]
        reads["step", t] = [("obs", t), ("act", t)]
        for j, n in enumerate(windows):
            reads[f"ret{j}", t] = [("step", s) for s in range(t, min(t + n, T))]
            reads[f"grad{j}", t] = [("obs", t), ("act", t), (f"ret{j}", t)]
            reads[f"total{j}", t] = [(f"grad{j}", t), *([(f"total{j}", t - 1)] if t else [])]
    return dict(sorted(reads.items()))


def greedy(reads: Reads) -> list[Point]:
    """Return an order that always runs the ready point that frees the most values.

    Ties go to the earliest step.
    """
    left = Counter(value for values in reads.values() for value in values)
    past: set[Point] = set()
    order = []
    while len(order) < len(reads):
        ready = [p for p in reads if p not in past and past.issuperset(reads[p])]
        best = max(ready, key=lambda p: (sum(left[q] == 1 for q in reads[p]), -p[1]))
        left.subtract(reads[best])
        past.add(best)
        order.append(best)
    return order


def order_check(schedule: Callable[[Reads], Any]) -> Callable[[str, int], Any]:
    """Return a function that checks the order of `schedule` for a program.

    The function returns four counts: points that run, extra runs, reads of values that do not exist
    yet, and values alive beyond the peak of `greedy`. A count is meaningful only if the counts
    before it show no error.
    """

    def follow(kind: str, T: int) -> Any:
        reads = program(kind, T)
        order = schedule({point: list(values) for point, values in reads.items()})
        if order is None or order is ...:
            return order
        order = list(map(tuple, order))
        there = len(reads.keys() & set(order))
        if there < len(reads) or len(order) > there:
            return there, (len(order) - there) * (there == len(reads)), 0, 0
        where = {point: k for k, point in enumerate(order)}
        early = sum(where[q] > where[p] for p, values in reads.items() for q in values)
        excess = 0 if early else max(0, peak(order, reads) - peak(greedy(reads), reads))
        return there, 0, early, excess

    return follow


def _first(reads: Reads, key: Callable[[Point], Any]) -> list[Point]:
    """Return an order that always runs the ready point with the smallest `key`."""
    past: list[Point] = []
    while len(past) < len(reads):
        ready = [p for p in reads if p not in past and set(reads[p]) <= set(past)]
        past.append(min(ready, key=key))
    return past


ACTOR_OPS = ("obs", "act", "step")

orders = CountExercise(
    "16.3",
    words=(
        "points of the program are missing",
        "points run twice, or are not points of the program; extra runs",
        "points run before their inputs exist; invalid reads",
        "legal, but more values are alive than necessary: among the ready points, prefer one that "
        "is the last reader of a value; extra values",
    ),
    solution=order_check(greedy),
    cases=lambda rng: [("3-step", 12), ("Monte-Carlo", 7), ("actor and critic", 12), ("GAE", 8)],
    mistakes=(
        Mistake(
            order_check(list),
            "You return the points in their original order, which is by name. Run a point only "
            "when all points that it reads have run.",
        ),
        Mistake(
            order_check(lambda reads: sorted(reads, key=lambda p: (p[1], *p))),
            "Sorting by step is not legal, because a window reads rewards of later steps. Within a "
            "step, the alphabetical order does not respect the reads either.",
        ),
        Mistake(
            order_check(lambda reads: _first(reads, lambda p: (p[0] not in ACTOR_OPS, p[1]))),
            "Legal, but acting is always ready, so it runs to the end of the episode first. Among "
            "the ready points, prefer one that frees a value.",
        ),
        Mistake(
            order_check(lambda reads: _first(reads, lambda p: 0)),
            "Legal, but it takes the first ready point. For each ready point, count the values "
            "that it would free, which have no other reader left.",
        ),
        Mistake(
            order_check(lambda reads: greedy(reads)[:-1]),
            "The last point is missing: continue until all points have run.",
        ),
    ),
)  # fmt: skip
