"""Exercises of chapter 16: dependence graphs and schedules."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mmrl.course.exercises.answers import Counted, Exercise, Mistake

Point = tuple[str, int]  # an operation at a step
Reads = dict[Point, list[Point]]  # the points that each point reads


def peak(order: Sequence[Point], reads: Reads, name: str | None = None) -> int:
    """Return the most values alive at once, of one operation or of all.

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


# 16.1: distance behind, and number of values kept


def _longest(n: int | None, T: int) -> int:
    """Return the rewards in the longest window of an episode; `n` is None for Monte-Carlo."""
    return T if n is None else min(n, T)


behind = Exercise(
    "16.1",
    wanted=lambda n, T: (_longest(n, T) - 1, _longest(n, T)),
    cases=lambda rng: [(3, 16), (1, 9), (4, 32), (8, 8), (20, 16), (None, 16), (None, 5)],
    mistakes=(
        Mistake(
            lambda n, T: (_longest(n, T), _longest(n, T)),
            "Learning can run one round earlier than that, because the window of t begins with the "
            "reward of t itself: its last step is t + n - 1, which this round has just computed.",
        ),
        Mistake(
            lambda n, T: (_longest(n, T), _longest(n, T) + 1),
            "Both numbers are too large by one. The window of t begins with the reward of t "
            "itself, so that its last step is t + n - 1; the observation is alive until then.",
        ),
        Mistake(
            lambda n, T: (_longest(n, T) - 1, _longest(n, T) - 1),
            "The shift is right, but one observation is missing. It is computed in round t and "
            "last used in round t + n - 1: count both of these rounds.",
        ),
        Mistake(
            lambda n, T: (_longest(n, T) - 1, _longest(n, T) + 1),
            "The shift is right, but you count one observation too many. It is freed in round t + "
            "n - 1, right after its gradient, before round t + n computes another one.",
        ),
        Mistake(
            lambda n, T: ((T if n is None else n) - 1, T if n is None else n),
            "Look at n = 20 with T = 16: the window ends with the episode, so no point waits for "
            "more than T steps, and there are no more than T observations.",
        ),
        Mistake(
            lambda n, T: (_longest(n, T) - 1, T),
            "The shift is right, but not all observations of the episode have to be kept. Each is "
            "freed right after its own gradient, n - 1 rounds after it was made.",
        ),
        Mistake(
            lambda n, T: (0 if n is None else _longest(n, T) - 1, _longest(n, T)),
            "The windows are right. With Monte-Carlo returns even the gradient of step 0 reads the "
            "last reward, from step T - 1, so in one loop it runs that many rounds behind.",
        ),
    ),
)


# 16.2: times for a recurrence that runs backward


def advantages(T: int) -> Reads:
    """Return the reads of acting, δ[t], A[t] = δ[t] + γλ A[t + 1], and each step's gradient."""
    reads: Reads = {}
    for t in range(T):
        reads["step", t] = [("step", t - 1)] if t else []
        reads["delta", t] = [("step", t)]
        reads["adv", t] = [("delta", t), *([("adv", t + 1)] if t + 1 < T else [])]
        reads["grad", t] = [("step", t), ("adv", t)]
    return reads


Theta = Callable[[str, int, int], Any]


def judged(theta: Theta) -> Callable[[int], Any]:
    """Measure an episode of T steps under times θ(name, t, T).

    The measures are: reads of values that do not exist yet, by acting and by the others; the number
    of different times; and, for δ and A, the values alive beyond the minimum, which is one and two.
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
        kept = [0, 0]
        if not early and different == len(times):
            kept = [max(0, peak(order, reads, a) - b) for a, b in (("delta", 1), ("adv", 2))]
        return early["step"], early.total() - early["step"], different, *kept

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


backward = Counted(
    "16.2",
    words=(
        "acting reads what has no value yet. Such reads",
        "learning reads what has no value yet. Such reads",
        "legal, but points share a time. Times too few",
        "legal, but more of delta is alive than needed. Values too many",
        "legal, but more of adv is alive than needed. Values too many",
    ),
    wanted=judged(_theta),
    cases=lambda rng: [(1,), (2,), (5,), (12,)],
    mistakes=(
        Mistake(
            judged(lambda name, t, T: (0 if name == "step" else 1, t, PLACE[name])),
            "adv[t] reads adv[t + 1], but your loop comes to t first. Let the time of an advantage "
            "fall as t rises, for example by the number T - 1 - t.",
        ),
        Mistake(
            judged(lambda name, t, T: (0, t) if name == "step" else (1, T - 1 - t)),
            "The loops are right, but in each round several operations have the same time. One "
            "more number puts delta before adv, and adv before grad.",
        ),
        Mistake(
            judged(lambda name, t, T: (0, T - 1 - t, PLACE[name])),
            "Now acting runs backward, too, although step[t] reads step[t - 1]. It needs a "
            "separate loop, before the other.",
        ),
        Mistake(
            judged(_early_deltas),
            "Legal, but every delta is computed while acting, and then it waits for the backward "
            "loop. Compute it right before its advantage.",
        ),
        Mistake(
            judged(_late_gradients),
            "Legal, but the gradients have a separate loop, so all advantages wait for it. Each "
            "gradient can run right after its advantage.",
        ),
        Mistake(
            judged(_all_apart),
            "Legal, but every operation has a separate loop, so that all values of one loop wait "
            "for the next. Only acting must be separate.",
        ),
    ),
)  # fmt: skip


# 16.3: a scheduler without polyhedra


def program(kind: str, T: int) -> Reads:
    """Return the reads of one iteration: "3-step", "Monte-Carlo", "actor and critic" or "GAE"."""
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
    """Return an order that always takes a ready point that frees most; among equals, the oldest."""
    left = Counter(value for values in reads.values() for value in values)
    done: set[Point] = set()
    order = []
    while len(order) < len(reads):
        ready = [p for p in reads if p not in done and done.issuperset(reads[p])]
        best = max(ready, key=lambda p: (sum(left[q] == 1 for q in reads[p]), -p[1]))
        left.subtract(reads[best])
        done.add(best)
        order.append(best)
    return order


def followed(schedule: Callable[[Reads], Any]) -> Callable[[str, int], Any]:
    """Count the faults of a program under `schedule`.

    The counts are: points that run, points that run too often, reads of values that do not exist
    yet, and values alive that `greedy` would have freed. Each count is valid if the earlier ones
    are right.
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
        kept = 0 if early else max(0, peak(order, reads) - peak(greedy(reads), reads))
        return there, 0, early, kept

    return follow


def _first(reads: Reads, key: Callable[[Point], Any]) -> list[Point]:
    """Return an order that always takes the first of the ready points by `key`."""
    done: list[Point] = []
    while len(done) < len(reads):
        ready = [p for p in reads if p not in done and set(reads[p]) <= set(done)]
        done.append(min(ready, key=key))
    return done


ACTING = ("obs", "act", "step")

orders = Counted(
    "16.3",
    words=(
        "points of the program are missing",
        "points run twice, or are none of the program. Runs too many",
        "points come before what they read. Such reads",
        "legal, but more values are alive than needed: among the points that are ready prefer one "
        "that is the last to read something. Too many",
    ),
    wanted=followed(greedy),
    cases=lambda rng: [("3-step", 12), ("Monte-Carlo", 7), ("actor and critic", 12), ("GAE", 8)],
    mistakes=(
        Mistake(
            followed(list),
            "You return the points in the order in which they came, which is by name. Run a point "
            "only when all its reads have run.",
        ),
        Mistake(
            followed(lambda reads: sorted(reads, key=lambda p: (p[1], *p))),
            "Sorting by step is not legal, because a window reads rewards of later steps, and "
            "within a step the names do not determine the order of reads.",
        ),
        Mistake(
            followed(lambda reads: _first(reads, lambda p: (p[0] not in ACTING, p[1]))),
            "Legal, but acting is always ready, so it runs to the end of the episode first. Among "
            "the points that are ready prefer one that frees something.",
        ),
        Mistake(
            followed(lambda reads: _first(reads, lambda p: 0)),
            "Legal, but it takes the first ready point. Look at the values that each would free, "
            "which have no other reader left.",
        ),
        Mistake(
            followed(lambda reads: greedy(reads)[:-1]),
            "The last point is missing: continue until all have run.",
        ),
    ),
)  # fmt: skip
