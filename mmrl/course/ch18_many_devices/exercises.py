"""Exercises for chapter 18: many devices."""

from collections.abc import Callable

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake

Maps = tuple[np.ndarray, np.ndarray]
"""Gains and sums of the affine maps h ↦ gain · h + sum."""


def _then(a: tuple, b: tuple) -> tuple:
    """Compose two affine maps, of which `a` is the earlier one (Eq. 2.4)."""
    return b[0] * a[0], b[0] * a[1] + b[1]


def _before(
    gains: np.ndarray,
    sums: np.ndarray,
    start: tuple[float, float],
    reverse: bool,
    then: Callable = _then,
) -> Maps:
    """Compute the exclusive prefixes of the totals, starting with `start`."""
    order = range(len(gains))[:: -1 if reverse else 1]
    pair, product = np.zeros((2, len(gains))), start
    for d in order:
        pair[:, d] = product
        product = then(product, (gains[d], sums[d]))
    return pair[0], pair[1]


def _inclusive(gains: np.ndarray, sums: np.ndarray, start: tuple, reverse: bool) -> Maps:
    past = _before(gains, sums, start, reverse)
    return _then(past, (gains, sums))


def _totals(rng: np.random.Generator) -> list[tuple]:
    cases = []
    for n, start, reverse in (
        (4, (1.0, 0.0), False),
        (4, (0.5, 2.0), False),
        (4, (1.0, 0.0), True),
        (3, (0.8, -1.0), True),
        (8, (0.9, 0.7), False),
        (1, (0.3, 5.0), True),
    ):
        cases.append((rng.uniform(0.2, 0.9, n), rng.normal(size=n), start, reverse))
    return cases


before = Exercise(
    "18.1",
    solution=_before,
    cases=_totals,
    mistakes=(
        Mistake(
            _inclusive,
            "You include each device's own total, so its part would be counted twice. The prefix "
            "must be exclusive: it ends just before the device's part.",
        ),
        Mistake(
            lambda gains, sums, start, reverse: _before(gains, sums, (1.0, 0.0), reverse),
            "The products of the totals are right, but `start` is missing: it comes before all of "
            "them, so use it instead of the identity.",
        ),
        Mistake(
            lambda gains, sums, start, reverse: tuple(
                np.where(np.arange(len(gains)) == (len(gains) - 1 if reverse else 0), first, x)
                for first, x in zip(start, _before(gains, sums, (1.0, 0.0), reverse), strict=True)
            ),
            "Only the prefix of the first device includes `start`. It comes before all parts, so "
            "all prefixes must include it.",
        ),
        Mistake(
            lambda gains, sums, start, reverse: _before(gains, sums, start, False),
            "This is right for a forward scan. With `reverse` the scan starts at the end of the "
            "tape, so the devices after d come before d, and the last device starts with `start`.",
        ),
        Mistake(
            lambda gains, sums, start, reverse: _before(
                gains, sums, start, reverse, lambda a, b: _then(b, a)
            ),
            "The arguments of the combine are swapped. The first argument is the earlier map, and "
            "the later map is applied to its result.",
        ),
        Mistake(
            lambda gains, sums, start, reverse: _before(
                gains, sums, start, reverse, lambda a, b: (a[0] * b[0], a[1] + b[1])
            ),
            "You only add the sums. An earlier sum decays during the later part: multiply it by "
            "the gain of that part, as in Eq. 2.4.",
        ),
    ),
)


def _clip(gradient: np.ndarray, longest: float) -> np.ndarray:
    length = np.linalg.norm(gradient)
    return gradient * min(1.0, longest / length) if length > 0 else gradient


def _apply(sums: np.ndarray, counts: np.ndarray, longest: float) -> np.ndarray:
    return _clip(sums.sum(axis=0) / max(counts.sum(), 1), longest)


def _means(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return sums / np.maximum(counts, 1)[:, None]


def _gradients(rng: np.random.Generator) -> list[tuple]:
    counts = ([1, 3], [4, 4, 4, 1], [10, 0, 2, 5], [7], [2, 30, 1, 1], [5, 1, 0])
    cases = []
    for count, longest in zip(counts, (100.0, 100.0, 0.3, 0.5, 0.2, 100.0), strict=True):
        mean = 2 + rng.normal(size=(len(count), 3))
        cases.append((mean * np.array(count)[:, None], np.array(count), longest))
    return cases


mean_gradient = Exercise(
    "18.2",
    solution=_apply,
    cases=_gradients,
    mistakes=(
        Mistake(
            lambda sums, counts, longest: _clip(_means(sums, counts).mean(axis=0), longest),
            "That is a mean of means, in which a device with one step has the same weight as a "
            "device with thirty. Sum the sums and the counts over all devices, and divide once.",
        ),
        Mistake(
            lambda sums, counts, longest: (
                (np.stack([_clip(g, longest) for g in _means(sums, counts)]) * counts[:, None]).sum(
                    axis=0
                )
                / max(counts.sum(), 1)
            ),
            "You clip the gradient of each device before averaging. Opposite gradients cancel "
            "correctly only if they are not clipped: average first, and then clip.",
        ),
        Mistake(
            lambda sums, counts, longest: np.stack(
                [_clip(g, longest) for g in _means(sums, counts)]
            ).mean(axis=0),
            "Two things are wrong: you clip before averaging, and you compute a mean of means. Sum "
            "over all devices, divide by the total count, and then clip.",
        ),
        Mistake(
            lambda sums, counts, longest: sums.sum(axis=0) / max(counts.sum(), 1),
            "The average is right, but its norm may exceed `longest`: scale it down to that norm, "
            "and keep its direction.",
        ),
        Mistake(
            lambda sums, counts, longest: _clip(sums.sum(axis=0), longest),
            "You clip the sum of all gradients, which grows with the number of steps. Divide by "
            "the number of steps first.",
        ),
        Mistake(
            lambda sums, counts, longest: _clip(sums.sum(axis=0) / len(counts), longest),
            "You divide by the number of devices, but these are sums over steps: divide by the "
            "total number of steps on all devices.",
        ),
        Mistake(
            lambda sums, counts, longest: np.clip(
                sums.sum(axis=0) / max(counts.sum(), 1), -longest, longest
            ),
            "The average is right, but you clip each component separately, which changes the "
            "direction. Multiply the gradient by longest / norm if its norm is too large.",
        ),
    ),
)


def _put_in(storage: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the contribution of each device to a minibatch, with shape [device, draw, feature]."""
    n, each = storage.shape[:2]
    here = rows // each == np.arange(n)[:, None]
    return np.where(here[..., None], storage[:, rows % each], 0)


def _deal(storage: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the contributions if row r were stored on device r mod n."""
    n, each = storage.shape[:2]
    here = rows % n == np.arange(n)[:, None]
    return np.where(here[..., None], storage[:, rows // n % each], 0)


def _not_shifted(storage: np.ndarray, rows: np.ndarray) -> np.ndarray:
    n, each = storage.shape[:2]
    here = rows // each == np.arange(n)[:, None]
    return np.where(here[..., None], storage[:, np.minimum(rows, each - 1)], 0)


def _once(storage: np.ndarray, rows: np.ndarray) -> np.ndarray:
    first = np.isin(np.arange(len(rows)), np.unique(rows, return_index=True)[1])
    return np.where(first[:, None], _put_in(storage, rows), 0)


def _draws(rng: np.random.Generator) -> list[tuple]:
    return [
        (rng.normal(size=(n, each, 2)), rng.integers(n * each, size=draws))
        for n, each, draws in ((2, 2, 3), (4, 3, 20), (3, 5, 9), (1, 4, 6), (4, 1, 7), (2, 8, 12))
    ]


put_in = Exercise(
    "18.3",
    solution=_put_in,
    cases=_draws,
    mistakes=(
        Mistake(
            lambda storage, rows: storage[:, rows % storage.shape[1]],
            "Every device contributes a row for each draw, even for rows that it does not store, "
            "and the sum contains all of them. Contribute zeros for rows of other devices.",
        ),
        Mistake(
            _not_shifted,
            "The right devices contribute, but `rows` are global indices. On device i, row r has "
            "the local index r - i D.",
        ),
        Mistake(
            _deal,
            "You distribute the rows like cards. Device 0 stores the first D rows, device 1 the "
            "next D rows, and so on: device i stores row r if r // D is i.",
        ),
        Mistake(
            _once,
            "A row that is drawn twice appears twice in the minibatch, so its device must "
            "contribute it at both positions.",
        ),
        Mistake(
            lambda storage, rows: _put_in(storage, rows) / len(storage),
            "That would be right for a mean over devices. An all-reduce computes a sum, in which "
            "only one term is not zero: contribute the row unchanged.",
        ),
        Mistake(
            lambda storage, rows: _put_in(storage, rows).sum(axis=0),
            "That is the minibatch, the result of the all-reduce. Return the contributions of all "
            "devices instead, with a leading device axis.",
        ),
    ),
)
