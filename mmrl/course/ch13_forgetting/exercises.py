"""Exercises for chapter 13: forgetting and interference."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _remainder(ends, begin, order, after=2, worth=None):
    """Compute the fraction of each stage's gain that is retained `after` stages later."""
    worth = worth or (lambda end, later, before: (later - before) / (end - before))
    stages = range(len(order) - after)
    return np.array(
        [worth(ends[s][order[s]], ends[s + after][order[s]], begin[order[s]]) for s in stages]
    )


def _since_before(ends, begin, order):
    """Compute the fraction retained of the gain within a stage only."""
    shares = []
    for stage in range(len(order) - 2):
        task = order[stage]
        before = ends[stage - 1][task] if stage else begin[task]
        shares.append((ends[stage + 2][task] - before) / (ends[stage][task] - before))
    return np.array(shares)


def _scores(rng, stages, tasks=3):
    """Draw scores that are high after a stage of the task itself, and low after other stages."""
    order = [stage % tasks for stage in range(stages)]
    ends = rng.uniform(-0.8, 0.4, size=(stages, tasks))
    ends[np.arange(stages), order] = rng.uniform(0.7, 1.0, size=stages)
    return ends, rng.uniform(-1, -0.5, size=tasks), order


retention = Exercise(
    "13.1",
    solution=_remainder,
    cases=lambda rng: [
        _scores(rng, 3),
        _scores(rng, 6),
        _scores(rng, 12),
        _scores(rng, 8, tasks=4),
    ],
    mistakes=(
        Mistake(
            lambda *case: _remainder(*case, worth=lambda end, later, before: later / end),
            "You divide scores, but scores have no natural zero. A task with a score of -0.6 "
            "before all training gains 1.6 when it reaches 1: divide gains.",
        ),
        Mistake(
            lambda *case: 1 - _remainder(*case),
            "That is the fraction forgotten. Return the fraction retained, which is 1 minus that.",
        ),
        Mistake(
            lambda ends, begin, order: _remainder(ends, begin, order, after=1)[: len(order) - 2],
            "You compare with the score one stage later. Use the score after two stages of other "
            "tasks, `ends[n + 2]`.",
        ),
        Mistake(
            lambda ends, begin, order: np.array(
                [
                    (ends[s + 2][order[s + 2]] - begin[order[s]])
                    / (ends[s][order[s]] - begin[order[s]])
                    for s in range(len(order) - 2)
                ]
            ),
            "Two stages later, you use the score of the task that is trained then. Use the task of "
            "stage n, `order[n]`.",
        ),
        Mistake(
            _since_before,
            "That is right in the first cycle. In later cycles you use only the gain within the "
            "stage, but Eq. 13.5 measures from the score before all training.",
        ),
    ),
)


def _step(theta, u, y):
    """Return the point of a valley that is nearest to `theta`."""
    return theta - (u @ theta - y) / (u @ u) * u


def _loss(theta, u, y):
    return (u @ theta - y) ** 2 / 2


def _after_both(theta, u1, y1, u2, y2):
    return _loss(_step(_step(theta, u1, y1), u2, y2), u1, y1)


def _overlap(u1, u2):
    """Return cos² of the angle between `u1` and `u2`."""
    return (u1 @ u2) ** 2 / ((u1 @ u1) * (u2 @ u2))


def _toy(rng, size, scale):
    u1, u2 = rng.normal(size=(2, size))
    return rng.normal(size=size), u1 / scale, rng.normal(), u2 * scale, rng.normal()


after_both = Exercise(
    "13.2",
    solution=_after_both,
    cases=lambda rng: [_toy(rng, 2, 1.0), _toy(rng, 3, 1.4), _toy(rng, 5, 0.6), _toy(rng, 4, 2.0)],
    mistakes=(
        Mistake(
            lambda *case: 0.0,
            "That is the result if both tasks are learned at once, or task 1 last. Here task 1 "
            "comes first, so task 2 moves θ out of the valley of task 1.",
        ),
        Mistake(
            lambda theta, u1, y1, u2, y2: _loss(_step(theta, u2, y2), u1, y1),
            "You learn task 2 from the initial θ. Task 2 comes second, so start it where task 1 "
            "ended.",
        ),
        Mistake(
            lambda theta, u1, y1, u2, y2: _overlap(u1, u2) * _loss(_step(theta, u1, y1), u2, y2),
            "Eq. 13.3 holds only if |u| = 1. Here |u| is arbitrary: the step to the valley is (u·θ "
            "- y) u / |u|², and its effect on task 1 depends on |u| as well.",
        ),
        Mistake(
            lambda theta, u1, y1, u2, y2: _loss(
                _unit_step(_unit_step(theta, u1, y1), u2, y2), u1, y1
            ),
            "A step of (u·θ - y) u reaches the valley only if |u| = 1. Here |u| is arbitrary, so "
            "divide the step by |u|².",
        ),
        Mistake(
            lambda *case: 2 * _after_both(*case),
            "That is too large by a factor of 2: the loss of Eq. 13.2 has a factor of one half.",
        ),
    ),
)


def _unit_step(theta, u, y):
    return theta - (u @ theta - y) * u


def _rehearsal(order, environments, guests):
    return _plan(order, environments, guests, lambda stage: order[:stage])


def _plan(order, environments, guests, before, *, itself=False):
    plan = np.repeat(np.array(order)[:, None], environments, axis=1)
    for stage, task in enumerate(order):
        past = [t for t in dict.fromkeys(before(stage)) if itself or t != task]
        if past and guests:
            plan[stage, -guests:] = np.resize(past, guests)
    return plan


def _wider(order, environments, guests):
    plan = _rehearsal(order, environments + guests, guests)
    plan[0, :environments] = order[0]
    return plan


rehearsal = Exercise(
    "13.3",
    solution=_rehearsal,
    cases=lambda rng: [
        ([0, 1, 2], 12, 2),
        ([0, 1, 2, 0, 1, 2], 6, 3),
        ([2, 0], 4, 1),
        ([1, 0, 2, 3], 8, 5),
        ([0, 1, 2], 3, 0),
    ],
    mistakes=(
        Mistake(
            lambda order, environments, guests: _plan(
                order, environments, guests, lambda stage: order[: stage + 1], itself=True
            ),
            "Your guests also play the task of the current stage. All other environments already "
            "play it, so leave it out.",
        ),
        Mistake(
            lambda order, environments, guests: _plan(
                order, environments, guests, lambda stage: order
            ),
            "You rehearse tasks that have not been trained yet. In stage n, only the tasks of "
            "earlier stages, `order[:n]`, are available.",
        ),
        Mistake(
            lambda order, environments, guests: _plan(
                order, environments, guests, lambda stage: order[max(0, stage - 1) : stage]
            ),
            "You rehearse only the task of the previous stage. All earlier tasks must take turns, "
            "in the order in which they first appeared.",
        ),
        Mistake(
            lambda order, environments, guests: _plan(
                order, environments, guests, lambda stage: order[:stage][::-1]
            ),
            "The tasks are right, but they must take turns in the order in which they first "
            "appeared.",
        ),
        Mistake(
            _wider,
            "You add environments, which gives a stage more data than before. The guests must be "
            "among the existing environments.",
        ),
    ),
)
