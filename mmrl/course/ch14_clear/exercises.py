"""Exercises for chapter 14: CLEAR."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _part(capacity, actors, unroll, steps):
    """Return the number of places and of received unrolls in each actor's part of the reservoir."""
    return capacity // (actors * unroll), steps // (actors * unroll)


def _round(round_places, round_came, capacity, actors, unroll, steps):
    once = actors * unroll
    return round_places(capacity / once), round_came(steps / once)


def _counts(places, came):
    return places, min(1.0, places / came), max(0.0, 1 - places / (came + 1))


def _keep(*case):
    return _counts(*_part(*case))


def _change(place, value):
    """Return the correct answer with the entry at `place` replaced by `value`."""

    def kept(*case):
        entries = list(_keep(*case))
        entries[place] = value(*_part(*case))
        return tuple(entries)

    return kept


reservoir_odds = Exercise(
    "14.1",
    solution=_keep,
    cases=lambda rng: [
        (48_000, 12, 10, 864_000),
        (5000, 3, 7, 9000),
        (100_000, 24, 20, 60_000),
        (1200, 4, 6, 1200),
        (120, 4, 6, 100_000),
    ],
    mistakes=(
        Mistake(
            lambda capacity, actors, unroll, steps: _counts(
                capacity // actors, steps // (actors * unroll)
            ),
            "You count an unroll as one step. The capacity is in environment steps, so divide it "
            "by `unroll`, too.",
        ),
        Mistake(
            lambda capacity, actors, unroll, steps: _counts(
                capacity // unroll, steps // (actors * unroll)
            ),
            "You give every actor the full capacity. The capacity is split evenly among the "
            "actors, so divide it by `actors`, too.",
        ),
        Mistake(
            lambda capacity, actors, unroll, steps: _counts(capacity // unroll, steps // unroll),
            "That is a single pool for all actors. Each actor has its own part and its own "
            "unrolls, so divide both numbers by `actors`.",
        ),
        Mistake(
            lambda capacity, actors, unroll, steps: _counts(capacity, steps),
            "You count the steps of all actors. Each actor has its own part, which stores complete "
            "unrolls, so divide both numbers by `actors * unroll`.",
        ),
        Mistake(
            lambda *case: _counts(*_round(lambda x: x, lambda x: x, *case)),
            "Your places and unrolls are not integers. A part cannot store a fraction of an "
            "unroll, and incomplete unrolls have not arrived yet, so round both down with `//`.",
        ),
        Mistake(
            lambda *case: _counts(*_round(lambda x: x, np.floor, *case)),
            "Your places are not an integer. A part cannot store a fraction of an unroll, so round "
            "the places down with `//`.",
        ),
        Mistake(
            lambda *case: _counts(*_round(np.floor, lambda x: x, *case)),
            "The places are right, but an incomplete unroll has not arrived yet, so round the "
            "number of unrolls down with `//`, too.",
        ),
        Mistake(
            lambda *case: _counts(*_round(round, round, *case)),
            "You round to the nearest integer, so there is sometimes one place or one unroll too "
            "many. Round down with `//`.",
        ),
        Mistake(
            lambda *case: _counts(*_round(np.ceil, np.ceil, *case)),
            "You round up, but a part cannot store a fraction of an unroll, and incomplete unrolls "
            "have not arrived yet. Round down with `//`.",
        ),
        Mistake(
            _change(1, lambda places, came: places / came),
            "Your probability is above 1 while there is still room. Everything is kept then, so "
            "the probability is 1.",
        ),
        Mistake(
            _change(1, lambda places, came: (1 - 1 / places) ** came),
            "That is the probability for the first unroll if each new one overwrites a random "
            "place. In a reservoir, all unrolls have the same probability, and the probabilities "
            "sum to the number of places.",
        ),
        Mistake(
            _change(2, lambda places, came: max(0.0, 1 - places / came)),
            "The lot to beat is nearly right, but n lots split the interval from 0 to 1 into n + 1 "
            "gaps, so the average gap is 1/(n + 1).",
        ),
        Mistake(
            _change(2, lambda places, came: min(1.0, places / (came + 1))),
            "You measure from the wrong end. The largest lots are kept, so the lot to beat is the "
            "k-th largest, which approaches 1 as more unrolls arrive.",
        ),
        Mistake(
            _change(2, lambda places, came: 1 - places / (came + 1)),
            "Your lot to beat is below 0 while there is still room. Every lot is large enough "
            "then, so it is 0.",
        ),
        Mistake(
            _change(2, lambda places, came: 0.0 if came <= places else 1 - places / (came + 1)),
            "When all places are taken, the part is already full: the next unroll must beat the "
            "smallest lot, which is 1/(n + 1) on average.",
        ),
        Mistake(
            _change(2, lambda places, came: max(0.0, 1 - (places + 1) / (came + 1))),
            "Your lot to beat is one gap too low. The k-th largest lot has k gaps above it, not k "
            "+ 1.",
        ),
        Mistake(
            _change(2, lambda places, came: 1 / (came + 1)),
            "That is the smallest of all lots. The lot to beat is the smallest lot that is kept, "
            "which is the k-th largest.",
        ),
        Mistake(
            _change(1, lambda places, came: max(0.0, 1 - places / came)),
            "That is the probability that an unroll is no longer stored. Return the probability "
            "that it still is.",
        ),
        Mistake(
            _change(1, lambda places, came: 1 / places),
            "That is the probability of being sampled from a full part. The probability of being "
            "kept is the number of places divided by the number of unrolls.",
        ),
        Mistake(
            _change(1, lambda places, came: min(1.0, places / (came + 1))),
            "Your probability counts one unroll too many: for k places and n unrolls it is k/n. "
            "Only the number of gaps between lots is n + 1.",
        ),
        Mistake(
            lambda *case: (lambda places, chance, lot: (places, lot, chance))(*_keep(*case)),
            "The values are right, but their order must be places, probability, lot.",
        ),
        Mistake(
            lambda capacity, actors, unroll, steps: _counts(
                capacity // (actors * unroll), steps // unroll
            ),
            "The places are right, but each part receives only the unrolls of its own actor: "
            "divide the steps by `actors`, too.",
        ),
        Mistake(
            lambda capacity, actors, unroll, steps: _counts(
                capacity // (actors * unroll), steps // actors
            ),
            "The places are right, but you count the steps of each part, not its unrolls: divide "
            "the steps by `unroll`, too.",
        ),
    ),
    tolerance=1e-6,
)


def _largest(keys, k):
    return np.sort(np.argsort(-np.asarray(keys), kind="stable")[:k])


keep = Exercise(
    "14.2",
    solution=lambda lots, weights, k: _largest(lots ** (1 / weights), k),
    cases=lambda rng: (
        [(rng.random(n), rng.uniform(0.2, 5, size=n), k) for n, k in ((1, 1), (8, 3), (40, 7))]
        + [(np.array([0.83, 0.5, 0.9]), np.array([2.0, 1.0, 1.0]), 1)]
    ),
    mistakes=(
        Mistake(
            lambda lots, weights, k: _largest(lots, k),
            "Your weights have no effect: these are the unrolls with the largest unweighted lots.",
        ),
        Mistake(
            lambda lots, weights, k: _largest(lots * weights, k),
            "Multiplying a lot by its weight gives the wrong probabilities. For example, of two "
            "unrolls with weights 1 and 2, the second is kept with probability 3/4 instead of 2/3. "
            "Use `lots ** (1 / weights)`, which is distributed like the largest of `weight` draws.",
        ),
        Mistake(
            lambda lots, weights, k: _largest(lots**weights, k),
            "The exponent must be 1 / weights. A lot is below 1, so an exponent above 1 makes it "
            "smaller, and a large weight would be a disadvantage.",
        ),
        Mistake(
            lambda lots, weights, k: _largest(weights, k),
            "These are the unrolls with the largest weights. Without any randomness, the others "
            "would never be kept.",
        ),
        Mistake(
            lambda lots, weights, k: _largest(-(lots ** (1 / weights)), k),
            "You keep the smallest lots, but a reservoir keeps the largest.",
        ),
        Mistake(
            lambda lots, weights, k: np.argsort(-(lots ** (1 / weights)), kind="stable")[:k],
            "The unrolls are right, but they are in the order of their lots. Return them in the "
            "order in which they arrived: sort the indices.",
        ),
    ),
)


def _occasions(unrolls):
    """Compute how often each unroll is drawn: Σ 1/j from its own iteration j to the last."""
    return np.cumsum(1 / np.arange(unrolls, 0, -1))[::-1]


def _uses(unrolls, fraction):
    return 1 - fraction + fraction * _occasions(unrolls)


uses = Exercise(
    "14.3",
    solution=_uses,
    cases=lambda rng: [(1, 0.5), (2, 0.5), (7, 0.25), (40, 0.5), (40, 1.0), (12, 0.0)],
    mistakes=(
        Mistake(
            lambda unrolls, fraction: (
                1 - fraction + fraction * (_occasions(unrolls) - 1 / np.arange(1, unrolls + 1))
            ),
            "A new unroll is added to the reservoir before sampling, so it may already be drawn in "
            "its own iteration.",
        ),
        Mistake(
            lambda unrolls, fraction: 1 + fraction * _occasions(unrolls),
            "You always learn from the new unroll. The learner uses only one of the two, so it "
            "uses the new one with probability 1 - `fraction`.",
        ),
        Mistake(
            lambda unrolls, fraction: 1 - fraction + _occasions(unrolls),
            "You replay in every iteration. The learner replays an old unroll only with "
            "probability `fraction`.",
        ),
        Mistake(
            lambda unrolls, fraction: fraction * _occasions(unrolls),
            "You count only replay. With probability 1 - `fraction`, an unroll is also used once "
            "when it is new.",
        ),
        Mistake(
            lambda unrolls, fraction: fraction + (1 - fraction) * _occasions(unrolls),
            "The two probabilities are swapped: an old unroll has probability `fraction`, and "
            "the new one has 1 - `fraction`.",
        ),
        Mistake(
            lambda unrolls, fraction: np.ones(unrolls),
            "That is the correct mean over all unrolls, but early unrolls have had more chances to "
            "be drawn.",
        ),
        Mistake(
            lambda unrolls, fraction: _uses(unrolls, fraction)[::-1],
            "Your values start with the newest unroll. The first entry must be that of the oldest "
            "unroll.",
        ),
        Mistake(
            lambda unrolls, fraction: (
                1 - fraction + fraction * np.cumsum(1 / np.arange(1, unrolls + 1))
            ),
            "You count the iterations before an unroll arrived. It can be drawn only in its own "
            "iteration and in later ones.",
        ),
        Mistake(
            lambda unrolls, fraction: 1 - fraction + fraction * np.arange(unrolls, 0, -1) / unrolls,
            "You draw each of the n unrolls with probability 1/n at all times. As long as only j "
            "unrolls have arrived, the probability of each is 1/j.",
        ),
    ),
)
