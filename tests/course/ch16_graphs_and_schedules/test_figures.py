"""What chapter 16 draws: live bytes as a program runs."""

import numpy as np
import pytest

from mmrl.course.ch16_graphs_and_schedules import figures as schedules

EVENTS = [
    ("run", "obs", (0, 0)),
    ("run", "act", (0, 0)),
    ("free", ("obs", 0), (0, 0)),
    ("run", "grad", (0, 0)),
]


def test_who_is_at_work():
    np.testing.assert_array_equal(schedules.at_work(EVENTS, {"obs", "act"}), [1, 1, 0, 0])
    np.testing.assert_array_equal(schedules.at_work(EVENTS, {"grad"}), [0, 0, 0, 1])


def test_the_curve_is_the_account_s_and_the_title_its_peak():
    live = np.array([2000, 3000, 1000, 1500])
    acting, learning = (schedules.at_work(EVENTS, names) for names in ({"obs", "act"}, {"grad"}))
    ax = schedules.memory_over_time(live, acting, learning, title="n = 1")
    assert ax.get_title(loc="left") == "n = 1: peak 3 kB"
    curve = ax.patches[-1].get_data()
    np.testing.assert_allclose(curve.values, live / 1000)
    strips = [len(lines.get_segments()) for lines in ax.collections]
    assert strips == [2, 1]
    tops = [lines.get_segments()[0][:, 1].max() for lines in ax.collections]
    assert tops[0] > tops[1] and ax.get_ylim()[1] * (tops[1] - schedules.TOP) > 3


def test_panels_can_share_a_height():
    none = np.zeros(2, bool)
    heights = [
        schedules.memory_over_time(np.array([1, k]), none, none, most=9000).get_ylim()[1]
        for k in (1, 5000)
    ]
    assert heights[0] == heights[1] > 9


def test_lengths_that_do_not_fit_are_refused():
    with pytest.raises(
        ValueError, match=r"`live`, `acting` and `learning` must .* got \[2, 3, 2\]"
    ):
        schedules.memory_over_time(np.zeros(2, int), np.zeros(3, bool), np.zeros(2, bool))
