"""What chapter 12 draws: curves by the size of the batch, and what a smaller one costs."""

from typing import Any

import numpy as np
import pytest

from mmrl.course.ch12_batch_size_invariance import figures as batches
from mmrl.course.ch12b_advantage_moments import figures as conditions
from mmrl.course.experiments import stratified
from mmrl.course.figures import lines as draw


def row(condition: str, c: int, height: float, task: str = "Task") -> dict[str, Any]:
    """Two seeds, 0.1 apart, whose returns lie between 1 and 3."""
    returns = [[1 + 2 * (height - 0.05)] * 4, [1 + 2 * (height + 0.05)] * 4]
    return {
        "task": task, "agent": "ppg", "condition": condition, "c": c, "returns": returns,
        "env_steps": [10, 20, 30, 40], "worst": 1.0, "best": 3.0,
    }  # fmt: skip


WHOLE, LESS = stratified.EVERY, "no step size"
HEIGHTS = {(WHOLE, 1): 0.8, (WHOLE, 4): 0.8, (WHOLE, 16): 0.75, (LESS, 4): 0.7, (LESS, 16): 0.2}
ROWS = [row(*cell, height) for cell, height in HEIGHTS.items()]


def test_a_curve_for_each_batch():
    by_factor = stratified.select(ROWS, "ppg", WHOLE)["Task"]
    ax = batches.curves(by_factor, title="Task")
    assert {"c = 1", "c = 4", "c = 16", "best"} <= {text.get_text() for text in ax.texts}
    ends = [line.get_ydata()[-1] for line in ax.get_lines() if line.get_linewidth() == 2]
    np.testing.assert_allclose(ends, [0.8, 0.8, 0.75])


def test_rows_that_do_not_fit_together_are_refused():
    odd = row(WHOLE, 4, 0.8) | {"env_steps": [1, 2, 3, 4]}
    with pytest.raises(ValueError, match=r"`by_factor` must .* `env_steps`"):
        batches.curves({1: ROWS[0], 4: odd})


def test_costs_are_what_c_has_less_than_one():
    rows = [*ROWS, row(WHOLE, 1, 0.1, "Other"), row(WHOLE, 4, 0.9, "Other")]
    result = conditions.costs(rows, "ppg", "Task")
    middles = {name: {c: entry[0] for c, entry in of.items()} for name, of in result.items()}
    assert list(middles) == [WHOLE, LESS]
    np.testing.assert_allclose([*middles[WHOLE].values()], [0.0, 0.05], atol=1e-12)
    np.testing.assert_allclose([*middles[LESS].values()], [0.1, 0.6], atol=1e-12)
    middle, low, high = result[LESS][16]
    assert low < middle < high and high - low <= 0.2 + 1e-9
    assert conditions.costs(rows, "ppo", "Task") == {}


def test_a_condition_with_its_own_start_is_compared_with_that():
    rows = [*ROWS, row("no average", 1, 0.5), row("no average", 4, 0.4)]
    result = conditions.costs(rows, "ppg", "Task", stratified.final)
    np.testing.assert_allclose(result["no average"][4][0], 0.1)


def test_differences_are_drawn_with_their_intervals():
    ax = conditions.differences(conditions.costs(ROWS, "ppg", "Task"), title="Task")
    assert {WHOLE, LESS} <= {text.get_text() for text in ax.texts}
    assert [text.get_text() for text in ax.get_xticklabels()] == ["÷ 4", "÷ 16"]
    curves = [line.get_ydata() for line in ax.get_lines() if line.get_linewidth() == 1.5]
    np.testing.assert_allclose(curves, [[0.0, 0.05], [0.1, 0.6]], atol=1e-12)
    assert len(ax.collections) == 2


def test_names_can_be_left_out():
    ax = conditions.differences(conditions.costs(ROWS, "ppg", "Task"), names=False)
    assert not ax.texts


def test_a_summary_has_the_final_return_of_each_batch_and_the_spreads():
    head, whole, less = stratified.summary(ROWS).splitlines()
    assert "c = 1" in head and "c = 16" in head
    assert whole.startswith(f"Task, ppg, {WHOLE}") and less.startswith(f"Task, ppg, {LESS}")
    assert whole.split()[-5:] == ["0.800", "0.800", "0.750", "0.050", "0.050"]
    assert less.split()[-5:] == ["0.800", "0.700", "0.200", "0.600", "0.600"]  # c = 1 is the same


def test_effects_have_a_line_per_batch():
    head, *lines = conditions.effects(ROWS, "ppg", [LESS], stratified.area).splitlines()
    assert LESS in head and [line.split()[:2] for line in lines] == [["÷", "4"], ["÷", "16"]]
    expected = stratified.effect(ROWS, "ppg", LESS, 16)
    assert lines[1].split()[2:] == ["+0.550", f"({expected.z:+.2f})"]


def test_paths_have_their_own_steps():
    lines = {"one": np.array([1.0, 0.5]), "two": np.array([1.0, 0.7, 0.4])}
    x = {"one": np.array([0.0, 10.0]), "two": np.array([0.0, 5.0, 10.0])}
    ax = draw.paths(lines, x, xlabel="examples", ylabel="θ")
    assert {"one", "two"} <= {text.get_text() for text in ax.texts}
    assert [len(line.get_xdata()) for line in ax.get_lines()] == [2, 3]
    assert ax.get_xlim() == (0, 10)
