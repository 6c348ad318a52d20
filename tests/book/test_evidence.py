"""Estimates, and the conditions under which a study does not decide."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

sys.path[:0] = [str(Path(__file__).parents[2] / "book" / "tools")]
import estimates  # noqa: E402
import evidence  # noqa: E402


def test_each_time_widens_the_bounds_of_a_ratio():
    for times in (2, 4):
        low, middle, high = evidence.time_ratio(2.0, times).interval(0.05)
        assert (middle / low, middle, high / middle) == pytest.approx(
            (estimates.NOISE**times, 2, estimates.NOISE**times)
        )


def test_a_setting_of_a_sweep_may_be_at_the_end_of_its_grid():
    row = {"tuning": [{"a": 1.0, "b": x} for x in (1.0, 2.0, 3.0)], "chosen": {"b": 2.0}}
    assert evidence.edge(row) == ""
    assert "b 3" in evidence.edge(row | {"chosen": {"b": 3.0}})


def test_intervals_are_those_of_scipy():
    draw = np.random.default_rng(0).normal
    a, b = draw(size=6), draw(1.0, 3.0, size=9)
    ours = evidence.difference(a, b).interval(0.01)
    theirs = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.99)
    np.testing.assert_allclose([ours.low, ours.high], theirs)
    one = evidence.mean(a).interval(0.05)
    theirs = stats.ttest_1samp(a, 0.0).confidence_interval(0.95)
    np.testing.assert_allclose([one.low, one.high], theirs)
    interval = evidence.contrast((1, a), (-2, b)).interval(0.05)
    np.testing.assert_allclose(interval, evidence.difference(a, 2 * b).interval(0.05))


def test_equal_seeds_have_an_interval_without_width():
    assert evidence.difference(np.ones(5), np.zeros(5)).interval(0.05) == (1.0, 1.0, 1.0)


def test_games_that_no_agent_learns_decide_no_claim():
    rows: Any = [
        {"method": "CLEAR", "family": "MinAtar", "learned": [True, True, False]},
        {"method": "CLEAR", "family": "Pair", "learned": [True, True]},
        {"method": "CLEAR", "family": "Freeway", "learned": [True, True]},
        {"method": "scale", "family": "Pair", "learned": [True, True]},
    ]
    assert evidence.learned(rows) == [rows[1]]
