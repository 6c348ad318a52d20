"""Exercises of chapter 13: forgetting and interference."""

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _left(ends, begin, order, after=2, worth=None):
    """Compute the share retained of each stage that `after` more stages follow."""
    worth = worth or (lambda end, later, before: (later - before) / (end - before))
    stages = range(len(order) - after)
    return np.array(
        [worth(ends[s][order[s]], ends[s + after][order[s]], begin[order[s]]) for s in stages]
    )


def _since_before(ends, begin, order):
    """Compute the gain of this stage only, in place of the gain since before all training."""
    shares = []
    for stage in range(len(order) - 2):
        task = order[stage]
        before = ends[stage - 1][task] if stage else begin[task]
        shares.append((ends[stage + 2][task] - before) / (ends[stage][task] - before))
    return np.array(shares)


def _scores(rng, stages, tasks=3):
    """Draw scores that rise in a task's own stages and fall in others."""
    order = [stage % tasks for stage in range(stages)]
    ends = rng.uniform(-0.8, 0.4, size=(stages, tasks))
    ends[np.arange(stages), order] = rng.uniform(0.7, 1.0, size=stages)
    return ends, rng.uniform(-1, -0.5, size=tasks), order


left = Exercise(
    "13.1",
    wanted=_left,
    cases=lambda rng: [
        _scores(rng, 3),
        _scores(rng, 6),
        _scores(rng, 12),
        _scores(rng, 8, tasks=4),
    ],
    mistakes=(
        Mistake(
            lambda *case: _left(*case, worth=lambda end, later, before: later / end),
            "You divide scores, but they have no natural zero. A task that was at -0.6 before all "
            "training gained 1.6 when it rose to 1: compare gains.",
        ),
        Mistake(
            lambda *case: 1 - _left(*case),
            "That is the share that is forgotten. Return the share that is left, 1 minus that.",
        ),
        Mistake(
            lambda ends, begin, order: _left(ends, begin, order, after=1)[: len(order) - 2],
            "You look one stage later. The share is after two stages of other tasks, so the later "
            "score is in `ends[n + 2]`.",
        ),
        Mistake(
            lambda ends, begin, order: np.array(
                [
                    (ends[s + 2][order[s + 2]] - begin[order[s]])
                    / (ends[s][order[s]] - begin[order[s]])
                    for s in range(len(order) - 2)
                ]
            ),
            "Two stages later you read the score of the task that is trained then. But the "
            "question is about the task of stage n, so stay with `order[n]`.",
        ),
        Mistake(
            _since_before,
            "In the first cycle that is right. Later you use only the gain of this stage, but Eq. "
            "13.5 counts from the score before all training.",
        ),
    ),
)


def _step(theta, u, y):
    """Return the nearest point of a valley."""
    return theta - (u @ theta - y) / (u @ u) * u


def _loss(theta, u, y):
    return (u @ theta - y) ** 2 / 2


def _after_both(theta, u1, y1, u2, y2):
    return _loss(_step(_step(theta, u1, y1), u2, y2), u1, y1)


def _overlap(u1, u2):
    """Return cos² of the angle."""
    return (u1 @ u2) ** 2 / ((u1 @ u1) * (u2 @ u2))


def _toy(rng, size, scale):
    u1, u2 = rng.normal(size=(2, size))
    return rng.normal(size=size), u1 / scale, rng.normal(), u2 * scale, rng.normal()


after_both = Exercise(
    "13.2",
    wanted=_after_both,
    cases=lambda rng: [_toy(rng, 2, 1.0), _toy(rng, 3, 1.4), _toy(rng, 5, 0.6), _toy(rng, 4, 2.0)],
    mistakes=(
        Mistake(
            lambda *case: 0.0,
            "That is the result of both at once, or with task 1 learned last. Here it comes first, "
            "so task 2 moves θ out of its valley again.",
        ),
        Mistake(
            lambda theta, u1, y1, u2, y2: _loss(_step(theta, u2, y2), u1, y1),
            "Task 2 is learned from the start θ. But it comes second, so it must begin where "
            "task 1 has ended.",
        ),
        Mistake(
            lambda theta, u1, y1, u2, y2: _overlap(u1, u2) * _loss(_step(theta, u1, y1), u2, y2),
            "Eq. 13.3 holds if |u| = 1, but these are longer or shorter. The way to the valley is "
            "(u·θ - y) / |u|², and its effect on task 1 depends on |u| as well.",
        ),
        Mistake(
            lambda theta, u1, y1, u2, y2: _loss(
                _unit_step(_unit_step(theta, u1, y1), u2, y2), u1, y1
            ),
            "A step of (u·θ - y) u reaches the valley only if |u| = 1. Here |u| is any length, so "
            "divide the step by |u|².",
        ),
        Mistake(
            lambda *case: 2 * _after_both(*case),
            "That is twice too much, because the loss of Eq. 13.2 has a factor of one half.",
        ),
    ),
)


def _unit_step(theta, u, y):
    return theta - (u @ theta - y) * u


def _rehearsal(order, environments, guests):
    return _planned(order, environments, guests, lambda stage: order[:stage])


def _planned(order, environments, guests, before, *, itself=False):
    plan = np.repeat(np.array(order)[:, None], environments, axis=1)
    for stage, task in enumerate(order):
        met = [t for t in dict.fromkeys(before(stage)) if itself or t != task]
        if met and guests:
            plan[stage, -guests:] = np.resize(met, guests)
    return plan


def _wider(order, environments, guests):
    plan = _rehearsal(order, environments + guests, guests)
    plan[0, :environments] = order[0]
    return plan


rehearsal = Exercise(
    "13.3",
    wanted=_rehearsal,
    cases=lambda rng: [
        ([0, 1, 2], 12, 2),
        ([0, 1, 2, 0, 1, 2], 6, 3),
        ([2, 0], 4, 1),
        ([1, 0, 2, 3], 8, 5),
        ([0, 1, 2], 3, 0),
    ],
    mistakes=(
        Mistake(
            lambda order, environments, guests: _planned(
                order, environments, guests, lambda stage: order[: stage + 1], itself=True
            ),
            "Among your guests is the task of the stage itself. It is played by all others "
            "anyway, so leave it out.",
        ),
        Mistake(
            lambda order, environments, guests: _planned(
                order, environments, guests, lambda stage: order
            ),
            "You rehearse tasks that have not been met yet. In stage n only the tasks of earlier "
            "stages, `order[:n]`, are available.",
        ),
        Mistake(
            lambda order, environments, guests: _planned(
                order, environments, guests, lambda stage: order[max(0, stage - 1) : stage]
            ),
            "You rehearse only the task of the stage before. All tasks that were met earlier take "
            "turns, and the one that was met first begins.",
        ),
        Mistake(
            lambda order, environments, guests: _planned(
                order, environments, guests, lambda stage: order[:stage][::-1]
            ),
            "These are the right tasks in another order: the one that was met first begins, and "
            "the others follow in the order in which they were met.",
        ),
        Mistake(
            _wider,
            "You add environments, so that a stage has more data than before. The guests must be "
            "among the existing environments.",
        ),
    ),
)
