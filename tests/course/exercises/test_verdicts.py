"""Verdicts on training runs: what is printed, and that nothing stops."""

import numpy as np
import pytest

from mmrl.course.exercises import verdict


@pytest.mark.parametrize(
    ("came", "bounds", "line"),
    [
        (0.954, {"above": 0.9}, "✓ the tape: 0.954, above 0.9 as expected.\n"),
        (np.float32(-0.5), {"below": 0.0}, "✓ the tape: -0.5, below 0 as expected.\n"),
        (1.5, {"above": 1, "below": 2}, "✓ the tape: 1.5, above 1 and below 2 as expected.\n"),
        (0.9, {"above": 0.9}, "✗ the tape: 0.9, where above 0.9 was expected.\n"),
        (float("nan"), {"below": 1}, "✗ the tape: nan, where below 1 was expected.\n"),
    ],
)
def test_a_verdict_says_what_came_and_what_was_expected(came, bounds, line, capsys):
    verdict("the tape", came, **bounds)
    output = capsys.readouterr().out
    assert output.startswith(line)
    assert ("another key" in output) == line.startswith("✗")
