"""Exercises for chapter 06: segments and tapes."""

import numpy as np

from mmrl.course.exercises.answers import Arguments, Exercise, Mistake


def _padding(lengths, size):
    slots = -(-lengths // size) * size
    return 1 - lengths.sum() / slots.sum()


def _floor(lengths, size):
    with np.errstate(divide="ignore"):
        return 1 - lengths.sum() / (lengths // size * size).sum()


def _padding_cases(rng: np.random.Generator) -> list[Arguments]:
    random = [(rng.integers(1, 60, 7), size) for size in (2, 10, 25)]
    return [*random, (np.array([51, 51]), 50), (np.array([20, 40]), 20), (np.array([3]), 10)]


padding = Exercise(
    "6.1",
    solution=_padding,
    cases=_padding_cases,
    mistakes=(
        Mistake(
            lambda lengths, size: np.mean(1 - lengths / (-(-lengths // size) * size)),
            "That is the mean of the fractions of the episodes. A long episode has more rows than "
            "a short one, so it must count more: divide all padding by all slots.",
        ),
        Mistake(
            lambda lengths, size: (-(-lengths // size) * size).sum() / lengths.sum() - 1,
            "That is the padding per real step. Divide by all slots instead, real steps and "
            "padding.",
        ),
        Mistake(
            _floor,
            "⌊n/L⌋ ignores the last, shorter fragment. It also takes a full row, so an episode has "
            "⌈n/L⌉ rows.",
        ),
        Mistake(
            lambda lengths, size: 1 - lengths.sum() / ((lengths // size + 1) * size).sum(),
            "⌊n/L⌋ + 1 counts an empty row if L divides n. For example, 20 steps fill two rows of "
            "10, not three. ⌈n/L⌉ is right for all n.",
        ),
        Mistake(
            lambda lengths, size: 1 - lengths.sum() / (-(-lengths.sum() // size) * size),
            "You round up the sum of the lengths. A row never contains two episodes, so round up "
            "each length first, and then add.",
        ),
        Mistake(
            lambda lengths, size: lengths.sum() / (-(-lengths // size) * size).sum(),
            "That is the fraction of slots with real steps. The fraction of padding is 1 minus "
            "this value.",
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
    # In the first case, the draws include the last stored episode, whose end is not in I. In the
    # second case, the storage has fewer steps than `size`.
    random = [(np.array([0, 5, 9]), 16, np.array([2, 0, 1]), 10)]
    return [*cases, *random, (np.array([0, 4]), 9, np.array([1, 0]), 20)]


def _backwards(begins, end, order, size):
    ends = np.r_[begins[1:], end]
    rows = [np.arange(begins[j], ends[j]) for j in order]
    inside = np.cumsum([len(row) for row in rows])
    last = int(np.argmax(inside >= size)) if (inside >= size).any() else len(rows) - 1
    tail = size - (inside[last] - len(rows[last]))
    return np.concatenate([*rows[:last], rows[last][-tail:]])


def _whole(begins, end, order, size):
    ends, rows, space = np.r_[begins[1:], end], [np.zeros(0, int)], size
    for j in order:
        if ends[j] - begins[j] > space:
            break
        rows.append(np.arange(begins[j], ends[j]))
        space -= ends[j] - begins[j]
    return np.concatenate(rows)


def _overfull(begins, end, order, size):
    ends, rows, steps = np.r_[begins[1:], end], [], 0
    for j in order:
        if steps < size:
            rows.append(np.arange(begins[j], ends[j]))
            steps += ends[j] - begins[j]
    return np.concatenate(rows)


def _without_newest(begins, end, order, size):
    return _batch(begins, end, [j for j in order if j + 1 < len(begins)], size)


def _shorten(begins, end, order, size):
    ends = np.r_[begins[1:], end] - 1
    return np.concatenate([np.arange(begins[j], ends[j]) for j in order])[:size]


batch = Exercise(
    "6.2",
    solution=_batch,
    cases=_batch_cases,
    mistakes=(
        Mistake(
            _overfull,
            "The batch is too long, because the last episode is included in full: cut it with "
            "`[:B]` (Eq. 6.4).",
        ),
        Mistake(
            lambda begins, end, order, size: _batch(begins, end, order, end),
            "You include every episode in full. A batch has B steps, so cut it with `[:B]` (Eq. "
            "6.4).",
        ),
        Mistake(
            _without_newest,
            "The newest episode is missing, because I does not contain its end. Drop the first "
            "begin and append `end` to get the ends of all episodes.",
        ),
        Mistake(
            lambda begins, end, order, size: np.pad(
                _batch(begins, end, order, size), (0, max(size - end, 0))
            ),
            "If there are fewer than B steps, return all of them without padding, because every "
            "index in a batch must be that of a real step.",
        ),
        Mistake(
            _shorten,
            "Every episode loses its last step. An episode ends just before the next one begins, "
            "and `np.arange(a, b)` already excludes b, so do not subtract 1.",
        ),
        Mistake(
            lambda begins, end, order, size: _batch(begins, end - 1, order, size),
            "The newest episode loses its last step. `end` is the number of steps in D, and "
            "`np.arange(a, b)` already excludes b, so do not subtract 1.",
        ),
        Mistake(
            _whole,
            "You leave out the episode that does not fit. Include it and cut off its end, so that "
            "every batch has B steps.",
        ),
        Mistake(
            _backwards,
            "You cut off the beginning of the last episode. A memory would then start in the "
            "middle of an episode, as in a segment, so cut off the end instead.",
        ),
        Mistake(
            lambda begins, end, order, size: np.sort(_batch(begins, end, order, size)),
            "Your indices are sorted. Keep the order in which the episodes were drawn, because the "
            "last episode drawn is the one that is cut.",
        ),
    ),
)


def _by_row(steps, size, lag):
    t = np.arange(lag, steps)
    return np.sum(t % size >= lag) / (-(-steps // size) * size)


def _by_rows(late, full=lambda left: max(left, 0), short=lambda left: max(left, 0)):
    """Return an answer that counts steps with `full` in full rows, and `short` in the last."""

    def answer(steps, size, lag):
        rows, rest = divmod(steps, size)
        count = rows * full(size - lag - late) + short(rest - lag - late)
        return count / (-(-steps // size) * size)

    return answer


def _taught_cases(rng: np.random.Generator) -> list[Arguments]:
    random = [(int(n), int(size), int(lag)) for n, size, lag in rng.integers(3, 40, (8, 3))]
    return [(103, 10, 9), (103, 9, 9), (51, 50, 3), (20, 5, 0), (103, 103, 9), *random]


useful_share = Exercise(
    "6.3",
    solution=_by_row,
    cases=_taught_cases,
    mistakes=(
        Mistake(
            lambda steps, size, lag: (
                np.sum(np.arange(lag, steps) % size > lag) / (-(-steps // size) * size)
            ),
            "You are off by one. At index `lag` of a row, the observation from `lag` steps ago is "
            "at index 0, so it is still in the row.",
        ),
        Mistake(
            _by_rows(-1),
            "You are off by one. A row has the indices 0 to `size` - 1. Count those that are at "
            "least `lag`, which are `size` - `lag` indices.",
        ),
        Mistake(
            _by_rows(0, short=lambda left: 0),
            "You ignore the last, shorter row. If it has more than `lag` steps, some of its steps "
            "are usable too.",
        ),
        Mistake(
            _by_rows(0, lambda left: left, lambda left: left),
            "A row shorter than the lag adds a negative count to your sum. It should add 0, so use "
            "`max(…, 0)` for full rows and for the last row.",
        ),
        Mistake(
            _by_rows(0, short=lambda left: left),
            "The last row adds a negative count if it is shorter than the lag. It should add 0: "
            "use `max(…, 0)`.",
        ),
        Mistake(
            _by_rows(0, full=lambda left: left),
            "A full row adds a negative count if L is smaller than the lag. It should add 0: use "
            "`max(…, 0)`.",
        ),
        Mistake(
            lambda steps, size, lag: np.sum(np.arange(lag, steps) % size >= lag) / steps,
            "You divide by the real steps. Padding also takes up slots, so divide by all ⌈n/L⌉ L "
            "slots.",
        ),
        Mistake(
            lambda steps, size, lag: (
                np.sum(np.arange(lag, steps) % size >= lag) / max(steps - lag, 1)
            ),
            "You divide by the number of steps with a question. Divide by the number of all slots, "
            "⌈n/L⌉ L.",
        ),
        Mistake(
            lambda steps, size, lag: max(size - lag, 0) / size,
            "That is right for a full row. The last fragment of an episode may be shorter, and the "
            "rest of its row is padding: count only its real steps.",
        ),
    ),
)
