"""Schedules by hand, what all of them have in common, and errors that name the argument."""

import numpy as np
import pytest

from mmrl.course.continual import schedules


def test_orders_to_meet_tasks_in():
    np.testing.assert_array_equal(schedules.separate(2, 3, 2), np.full((3, 2), 2))
    np.testing.assert_array_equal(schedules.simultaneous(3, 2, 6), [[0, 1, 2, 0, 1, 2]] * 2)
    plan = schedules.sequential((0, 2), 2, 3)
    np.testing.assert_array_equal(plan, [[0] * 3, [2] * 3] * 2)
    orders = [
        schedules.with_probe((0, 1), 1, 1, probe=7, position=position)[:, 0].tolist()
        for position in range(3)
    ]
    assert orders == [[7, 0, 1], [0, 7, 1], [0, 1, 7]]


def test_every_task_gets_as_many_steps_in_all_orders():
    tasks, cycles, environments = 3, 4, 6
    alone = [schedules.separate(k, cycles, environments) for k in range(tasks)]
    for plan in (
        np.concatenate(alone),
        schedules.simultaneous(tasks, tasks * cycles, environments),
        schedules.sequential(range(tasks), cycles, environments),
    ):
        assert np.bincount(plan.ravel()).tolist() == [cycles * environments] * tasks


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("environments", lambda: schedules.simultaneous(3, 2, 8)),
        ("cycles", lambda: schedules.sequential((0, 1), 0, 8)),
        ("stages", lambda: schedules.separate(0, 0, 8)),
        ("position", lambda: schedules.with_probe((0, 1), 1, 2, probe=2, position=3)),
    ],
)
def test_errors_name_the_argument(name: str, call):
    with pytest.raises(ValueError, match=f"`{name}`"):
        call()
