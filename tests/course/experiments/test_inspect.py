"""The experiment on inspected agents: the order of its rows, and the truths of the tasks."""

import numpy as np
import pytest

from mmrl.course.experiments.experiment_inspect import AGENTS, MOST_STEPS, rows
from mmrl.course.results import published_rows


def test_lags_become_observations():
    table = [[0.1, 9, 9], [0.2, 0.3, 9], [0.4, None, 0.6]]
    assert rows(table) == [[0.1], [0.3, 0.2], [0.6, 0, 0.4]]


@pytest.mark.parametrize("agent", AGENTS)
def test_published_rows_have_whole_triangles(agent: str):
    (row,) = [row for row in published_rows("inspect") if row["cell"] == agent]
    for name in ("decides", "slopes"):
        assert [len(x) for x in row[name]] == list(range(1, MOST_STEPS + 1))
    assert not row["quick"] and not row["leak"] and not row["broken"]


def test_the_first_card_decides_and_the_fourth_last_card_decides():
    results = {row["cell"]: row["decides"] for row in published_rows("inspect")}
    first, previous = results["RepeatFirstEasy-dqn-lru"], results["RepeatPreviousEasy-r2d2-lru"]
    for t in range(3, MOST_STEPS):
        assert np.argmax(first[t]) == 0 and np.argmax(previous[t]) == t - 3
