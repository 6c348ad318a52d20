"""Exercises of chapter 14: CLEAR."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _part(capacity, actors, unroll, steps):
    """Return the places in each actor's part of the reservoir, and the unrolls that it received."""
    return capacity // (actors * unroll), steps // (actors * unroll)


def _rounded(round_places, round_came, capacity, actors, unroll, steps):
    once = actors * unroll
    return round_places(capacity / once), round_came(steps / once)


def _told(places, came):
    return places, min(1.0, places / came), max(0.0, 1 - places / (came + 1))


def _kept(*case):
    return _told(*_part(*case))


def _changed(place, value):
    """Return the right answer, but with one entry computed from the places and the unrolls."""

    def kept(*case):
        entries = list(_kept(*case))
        entries[place] = value(*_part(*case))
        return tuple(entries)

    return kept


kept = Exercise(
    "14.1",
    wanted=_kept,
    cases=lambda rng: [
        (48_000, 12, 10, 864_000),
        (5000, 3, 7, 9000),
        (100_000, 24, 20, 60_000),
        (1200, 4, 6, 1200),
        (120, 4, 6, 100_000),
    ],
    mistakes=(
        Mistake(
            lambda capacity, actors, unroll, steps: _told(
                capacity // actors, steps // (actors * unroll)
            ),
            "You count an unroll as one step. But capacity is in steps of the environment, of "
            "which an unroll has several, so divide by `unroll`, too.",
        ),
        Mistake(
            lambda capacity, actors, unroll, steps: _told(
                capacity // unroll, steps // (actors * unroll)
            ),
            "In yours each part has room for everything. But the capacity is shared evenly among "
            "the actors, so divide by `actors`, too.",
        ),
        Mistake(
            lambda capacity, actors, unroll, steps: _told(capacity // unroll, steps // unroll),
            "That is one pool for all actors. Give the part of one actor, with the unrolls that "
            "come to it, so divide both numbers by `actors`.",
        ),
        Mistake(
            lambda capacity, actors, unroll, steps: _told(capacity, steps),
            "You count the steps of all actors. But each actor has a separate part, which holds "
            "whole unrolls, so divide both numbers by `actors * unroll`.",
        ),
        Mistake(
            lambda *case: _told(*_rounded(lambda x: x, lambda x: x, *case)),
            "Your places and unrolls are not whole. Room that is too small for one more unroll "
            "stays unused, and an incomplete unroll has not arrived yet, so round both down: `//` "
            "does.",
        ),
        Mistake(
            lambda *case: _told(*_rounded(lambda x: x, np.floor, *case)),
            "Your places are not whole. Room that is too small for one more unroll stays unused, "
            "so round the places down: `//` does.",
        ),
        Mistake(
            lambda *case: _told(*_rounded(np.floor, lambda x: x, *case)),
            "The places are right. But an incomplete unroll has not arrived yet, so round the "
            "number of unrolls down, too: `//` does.",
        ),
        Mistake(
            lambda *case: _told(*_rounded(round, round, *case)),
            "You round to the nearest whole number, so there is sometimes a place or an unroll too "
            "many. Round down: `//` does.",
        ),
        Mistake(
            lambda *case: _told(*_rounded(np.ceil, np.ceil, *case)),
            "You round up, but a part cannot store a fraction of an unroll, and an incomplete "
            "unroll has not arrived. Round down: `//` does.",
        ),
        Mistake(
            _changed(1, lambda places, came: places / came),
            "Your chance is above 1 while there is still room. Then everything is kept, so the "
            "chance is 1.",
        ),
        Mistake(
            _changed(1, lambda places, came: (1 - 1 / places) ** came),
            "That is the chance of the first unroll if each new one overwrites a random place. "
            "But in a reservoir all unrolls have the same chance, and the chances add up to the "
            "places.",
        ),
        Mistake(
            _changed(2, lambda places, came: max(0.0, 1 - places / came)),
            "The lot to beat is nearly right. But n lots cut the line from 0 to 1 into n + 1 gaps, "
            "so each gap is 1/(n + 1) long on average.",
        ),
        Mistake(
            _changed(2, lambda places, came: min(1.0, places / (came + 1))),
            "You measure from the wrong end. The lot to beat is the k-th from above, because the "
            "largest are kept, so it rises toward 1 as more come.",
        ),
        Mistake(
            _changed(2, lambda places, came: 1 - places / (came + 1)),
            "Your lot to beat is below 0 while there is room. Then every lot is good enough, so it "
            "is 0.",
        ),
        Mistake(
            _changed(2, lambda places, came: 0.0 if came <= places else 1 - places / (came + 1)),
            "Just when all places are taken, the part is full: the next unroll must beat the "
            "smallest lot, which is 1/(n + 1) on average.",
        ),
        Mistake(
            _changed(2, lambda places, came: max(0.0, 1 - (places + 1) / (came + 1))),
            "The lot to beat is one place too low. The k-th from above has k gaps above it, and "
            "not k + 1.",
        ),
        Mistake(
            _changed(2, lambda places, came: 1 / (came + 1)),
            "That is the smallest of all lots. The lot to beat is the smallest of the lots that "
            "are kept, the k-th from above.",
        ),
        Mistake(
            _changed(1, lambda places, came: max(0.0, 1 - places / came)),
            "That is the chance that an unroll is gone. The answer is the chance that it is still "
            "there.",
        ),
        Mistake(
            _changed(1, lambda places, came: 1 / places),
            "That is the chance to be drawn from a full part. The chance to be kept there is the "
            "number of places per unroll that came.",
        ),
        Mistake(
            _changed(1, lambda places, came: min(1.0, places / (came + 1))),
            "The unrolls that came are counted once too often in the chance: k places for n "
            "unrolls, k/n. Only the gaps between lots are n + 1.",
        ),
        Mistake(
            lambda *case: (lambda places, chance, lot: (places, lot, chance))(*_kept(*case)),
            "The numbers are right, but their order is not: places, chance, lot.",
        ),
        Mistake(
            lambda capacity, actors, unroll, steps: _told(
                capacity // (actors * unroll), steps // unroll
            ),
            "The places are right. But the unrolls of all actors do not come to each part: divide "
            "the steps by `actors`, too.",
        ),
        Mistake(
            lambda capacity, actors, unroll, steps: _told(
                capacity // (actors * unroll), steps // actors
            ),
            "The places are right. But you count the steps that came to each part, not its "
            "unrolls: divide the steps by `unroll`, too.",
        ),
    ),
    tolerance=1e-6,
)


def _largest(keys, k):
    return np.sort(np.argsort(-np.asarray(keys), kind="stable")[:k])


keep = Exercise(
    "14.2",
    wanted=lambda lots, weights, k: _largest(lots ** (1 / weights), k),
    cases=lambda rng: (
        [(rng.random(n), rng.uniform(0.2, 5, size=n), k) for n, k in ((1, 1), (8, 3), (40, 7))]
        + [(np.array([0.83, 0.5, 0.9]), np.array([2.0, 1.0, 1.0]), 1)]
    ),
    mistakes=(
        Mistake(
            lambda lots, weights, k: _largest(lots, k),
            "Your weights have no effect, because these are the largest lots as they were drawn.",
        ),
        Mistake(
            lambda lots, weights, k: _largest(lots * weights, k),
            "A lot times its weight is not a fair lottery. For example, of two unrolls with "
            "weights 1 and 2 the second wins 3 times in 4, and it should win 2 times in 3. Take "
            "`lots ** (1 / weights)`, the largest of `weight` draws.",
        ),
        Mistake(
            lambda lots, weights, k: _largest(lots**weights, k),
            "The power is upside down. A lot is below 1, so a power above 1 makes it smaller, and "
            "a large weight would hurt.",
        ),
        Mistake(
            lambda lots, weights, k: _largest(weights, k),
            "These are the largest weights. Nothing is left to chance, so the others would never "
            "be kept.",
        ),
        Mistake(
            lambda lots, weights, k: _largest(-(lots ** (1 / weights)), k),
            "In yours the smallest lots stay, but a reservoir keeps the largest.",
        ),
        Mistake(
            lambda lots, weights, k: np.argsort(-(lots ** (1 / weights)), kind="stable")[:k],
            "These are the right unrolls, but in the order of their lots. Give them in the order "
            "in which they came: sort the indices.",
        ),
    ),
)


def _occasions(unrolls):
    """Compute Σ 1/j from each unroll's own iteration to the last: how often it is drawn."""
    return np.cumsum(1 / np.arange(unrolls, 0, -1))[::-1]


def _uses(unrolls, fraction):
    return 1 - fraction + fraction * _occasions(unrolls)


uses = Exercise(
    "14.3",
    wanted=_uses,
    cases=lambda rng: [(1, 0.5), (2, 0.5), (7, 0.25), (40, 0.5), (40, 1.0), (12, 0.0)],
    mistakes=(
        Mistake(
            lambda unrolls, fraction: (
                1 - fraction + fraction * (_occasions(unrolls) - 1 / np.arange(1, unrolls + 1))
            ),
            "An unroll enters the reservoir before it is sampled, so it may be drawn in its own "
            "iteration already.",
        ),
        Mistake(
            lambda unrolls, fraction: 1 + fraction * _occasions(unrolls),
            "You always learn from the new unroll. But the learner takes only one of the pair, so "
            "it takes the new one with chance 1 - `fraction`.",
        ),
        Mistake(
            lambda unrolls, fraction: 1 - fraction + _occasions(unrolls),
            "You replay in every iteration. But this environment gives its old unroll only with "
            "chance `fraction`.",
        ),
        Mistake(
            lambda unrolls, fraction: fraction * _occasions(unrolls),
            "You count only replay. But with chance 1 - `fraction` an unroll is also learned from "
            "as the new one, once, when it comes.",
        ),
        Mistake(
            lambda unrolls, fraction: fraction + (1 - fraction) * _occasions(unrolls),
            "The two chances are swapped: `fraction` is the chance of an old unroll, and 1 - "
            "`fraction` the chance of the new one.",
        ),
        Mistake(
            lambda unrolls, fraction: np.ones(unrolls),
            "That is the mean over all unrolls, and as such it is right. But the early ones have "
            "had more occasions to be drawn.",
        ),
        Mistake(
            lambda unrolls, fraction: _uses(unrolls, fraction)[::-1],
            "You give the newest first, but the first entry should belong to the unroll that came "
            "first.",
        ),
        Mistake(
            lambda unrolls, fraction: (
                1 - fraction + fraction * np.cumsum(1 / np.arange(1, unrolls + 1))
            ),
            "You count the iterations before an unroll came. But it can be drawn only from its own "
            "iteration on.",
        ),
        Mistake(
            lambda unrolls, fraction: 1 - fraction + fraction * np.arange(unrolls, 0, -1) / unrolls,
            "You draw each of the n unrolls with chance 1/n all along. But while only j have come, "
            "the chance of each of them is 1/j.",
        ),
    ),
)
