"""Exercises of chapter 06: segments and tapes."""

import numpy as np

from mmrl.course.exercises.answers import Arguments, Exercise, Mistake


def _padding(lengths, size):
    slots = -(-lengths // size) * size
    return 1 - lengths.sum() / slots.sum()


def _floored(lengths, size):
    with np.errstate(divide="ignore"):
        return 1 - lengths.sum() / (lengths // size * size).sum()


def _padding_cases(rng: np.random.Generator) -> list[Arguments]:
    drawn = [(rng.integers(1, 60, 7), size) for size in (2, 10, 25)]
    return [*drawn, (np.array([51, 51]), 50), (np.array([20, 40]), 20), (np.array([3]), 10)]


padding = Exercise(
    "6.1",
    wanted=_padding,
    cases=_padding_cases,
    mistakes=(
        Mistake(
            lambda lengths, size: np.mean(1 - lengths / (-(-lengths // size) * size)),
            "That is the mean of the episodes' shares. But a long episode has more rows than a "
            "short one and counts for more, so divide all padding by all slots.",
        ),
        Mistake(
            lambda lengths, size: (-(-lengths // size) * size).sum() / lengths.sum() - 1,
            "That is padding per real step. The share of a batch is padding per slot, so divide by "
            "all slots, the real ones and the padding.",
        ),
        Mistake(
            _floored,
            "⌊n/L⌋ leaves out the last, short fragment. It takes a whole row too, so an episode "
            "has ⌈n/L⌉ rows.",
        ),
        Mistake(
            lambda lengths, size: 1 - lengths.sum() / ((lengths // size + 1) * size).sum(),
            "⌊n/L⌋ + 1 counts an empty row if L divides n. For example, 20 steps in rows of 10 "
            "make two rows and not three: ⌈n/L⌉ is right for all n.",
        ),
        Mistake(
            lambda lengths, size: 1 - lengths.sum() / (-(-lengths.sum() // size) * size),
            "You round up the sum of the lengths. But a row never holds two episodes, so round up "
            "each length, and then add.",
        ),
        Mistake(
            lambda lengths, size: lengths.sum() / (-(-lengths // size) * size).sum(),
            "That is the share of slots that hold real steps. Padding is the rest, 1 minus this.",
        ),
    ),
)


def _batch(begins, end, order, size):
    ends = np.r_[begins[1:], end]
    rows = [np.arange(begins[j], ends[j]) for j in order]
    return np.concatenate([np.zeros(0, int), *rows])[:size]


def _batch_cases(rng: np.random.Generator) -> list[Arguments]:
    cases = []
    for episodes, size in ((1, 3), (4, 17), (6, 40), (9, 25)):
        lengths = rng.integers(3, 15, episodes)
        begins = np.cumsum(lengths) - lengths
        cases.append((begins, int(lengths.sum()), rng.permutation(episodes), size))
    # Case 1 draws the last stored episode first, whose end is not in I; case 2 has too few steps.
    drawn = [(np.array([0, 5, 9]), 16, np.array([2, 0, 1]), 10)]
    return [*cases, *drawn, (np.array([0, 4]), 9, np.array([1, 0]), 20)]


def _backwards(begins, end, order, size):
    ends = np.r_[begins[1:], end]
    rows = [np.arange(begins[j], ends[j]) for j in order]
    inside = np.cumsum([len(row) for row in rows])
    last = int(np.argmax(inside >= size)) if (inside >= size).any() else len(rows) - 1
    kept = size - (inside[last] - len(rows[last]))
    return np.concatenate([*rows[:last], rows[last][-kept:]])


def _whole(begins, end, order, size):
    ends, rows, space = np.r_[begins[1:], end], [np.zeros(0, int)], size
    for j in order:
        if ends[j] - begins[j] > space:
            break
        rows.append(np.arange(begins[j], ends[j]))
        space -= ends[j] - begins[j]
    return np.concatenate(rows)


def _overfull(begins, end, order, size):
    ends, rows, filled = np.r_[begins[1:], end], [], 0
    for j in order:
        if filled < size:
            rows.append(np.arange(begins[j], ends[j]))
            filled += ends[j] - begins[j]
    return np.concatenate(rows)


def _without_newest(begins, end, order, size):
    return _batch(begins, end, [j for j in order if j + 1 < len(begins)], size)


def _shortened(begins, end, order, size):
    ends = np.r_[begins[1:], end] - 1
    return np.concatenate([np.arange(begins[j], ends[j]) for j in order])[:size]


batch = Exercise(
    "6.2",
    wanted=_batch,
    cases=_batch_cases,
    mistakes=(
        Mistake(
            _overfull,
            "The batch is too long, because the last episode is whole: cut it, `[:B]` (Eq. 6.4).",
        ),
        Mistake(
            lambda begins, end, order, size: _batch(begins, end, order, end),
            "You take every episode in full. But a batch has B steps, so cut it, `[:B]` (Eq. 6.4).",
        ),
        Mistake(
            _without_newest,
            "The newest episode is missing. I does not contain its end, but `end` does: append it "
            "to the begins from the second on, and you have all ends.",
        ),
        Mistake(
            lambda begins, end, order, size: np.pad(
                _batch(begins, end, order, size), (0, max(size - end, 0))
            ),
            "If there are fewer than B steps, return all of them without filling up, because each "
            "filled place would be a step of some episode.",
        ),
        Mistake(
            _shortened,
            "Every episode loses its last step. An episode ends just before the next begin, and "
            "`np.arange(a, b)` leaves out b already, so do not subtract 1.",
        ),
        Mistake(
            lambda begins, end, order, size: _batch(begins, end - 1, order, size),
            "The newest episode loses its last step. `end` is the number of steps in D, and "
            "`np.arange(a, b)` leaves out b already, so do not subtract 1.",
        ),
        Mistake(
            _whole,
            "You leave out the episode that no longer fits. The tape takes it and cuts its end, so "
            "that every batch has B steps.",
        ),
        Mistake(
            _backwards,
            "You cut the beginning of the last episode. Then a memory would start in its middle, "
            "as in a segment, so cut its end instead.",
        ),
        Mistake(
            lambda begins, end, order, size: np.sort(_batch(begins, end, order, size)),
            "Your places are sorted. Keep the order in which the episodes were drawn, because the "
            "one that was drawn last is cut.",
        ),
    ),
)


def _taught(steps, size, lag):
    t = np.arange(lag, steps)
    return np.sum(t % size >= lag) / (-(-steps // size) * size)


def _by_rows(late, full=lambda left: max(left, 0), short=lambda left: max(left, 0)):
    """Return an answer that adds up what `full` and `short` rows teach from step `late` on."""

    def answer(steps, size, lag):
        rows, rest = divmod(steps, size)
        found = rows * full(size - lag - late) + short(rest - lag - late)
        return found / (-(-steps // size) * size)

    return answer


def _taught_cases(rng: np.random.Generator) -> list[Arguments]:
    drawn = [(int(n), int(size), int(lag)) for n, size, lag in rng.integers(3, 40, (8, 3))]
    return [(103, 10, 9), (103, 9, 9), (51, 50, 3), (20, 5, 0), (103, 103, 9), *drawn]


taught = Exercise(
    "6.3",
    wanted=_taught,
    cases=_taught_cases,
    mistakes=(
        Mistake(
            lambda steps, size, lag: (
                np.sum(np.arange(lag, steps) % size > lag) / (-(-steps // size) * size)
            ),
            "You are off by one. At place `lag` of a row, counted from 0, the observation of `lag` "
            "steps ago is the first of the row, so it is still there.",
        ),
        Mistake(
            _by_rows(-1),
            "You are off by one. A row of `size` steps has its places 0 to `size` - 1, and the "
            "places from `lag` on can teach: that makes `size` - `lag`.",
        ),
        Mistake(
            _by_rows(0, short=lambda left: 0),
            "You leave out the last, short row. If it has more than `lag` steps, it teaches too.",
        ),
        Mistake(
            _by_rows(0, lambda left: left, lambda left: left),
            "A row shorter than the lag has a negative count in your sum. It teaches 0 steps, so "
            "take `max(…, 0)` for full rows and for the last one.",
        ),
        Mistake(
            _by_rows(0, short=lambda left: left),
            "The last row has a negative count where it is shorter than the lag. It teaches 0 "
            "steps then: `max(…, 0)`.",
        ),
        Mistake(
            _by_rows(0, full=lambda left: left),
            "A full row has a negative count where L is smaller than the lag. It teaches 0 steps "
            "then: `max(…, 0)`.",
        ),
        Mistake(
            lambda steps, size, lag: np.sum(np.arange(lag, steps) % size >= lag) / steps,
            "You divide by the real steps. But padding takes slots of a batch too, so divide by "
            "all ⌈n/L⌉ L of them.",
        ),
        Mistake(
            lambda steps, size, lag: (
                np.sum(np.arange(lag, steps) % size >= lag) / max(steps - lag, 1)
            ),
            "You divide by the steps with a question. The share is of all slots, of which there "
            "are ⌈n/L⌉ L.",
        ),
        Mistake(
            lambda steps, size, lag: max(size - lag, 0) / size,
            "That holds for a full row. But the last fragment of an episode may be shorter, and "
            "then the rest of its row is padding: count its real steps.",
        ),
    ),
)
