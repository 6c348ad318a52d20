"""What chapters 13 and 14 draw: scores in all tasks at all times, what is kept, probes."""

from typing import Any

import numpy as np
import pytest

from mmrl.course.ch13_forgetting import figures as forgetting
from mmrl.course.continual import cycles
from mmrl.course.figures import scores as draw
from mmrl.show import figure

STEPS = np.arange(0, 130, 10)  # before all training, and two evaluations in each of six stages
ORDER = [0, 1, 2, 0, 1, 2]


def scores() -> np.ndarray:
    """Every task is at 1 in its own stages, at 0.2 after them and at -1 before; seeds 0.1 apart."""
    result = np.full((3, 13, 3), -1.0)
    for stage, task in enumerate(ORDER):
        result[:, 1 + 2 * stage :, task] = 0.2
        result[:, 1 + 2 * stage : 3 + 2 * stage, task] = 1.0
    return result + np.array([-0.1, 0.0, 0.1])[:, None, None]


def row(cell: str, **more: Any) -> dict[str, Any]:
    result = scores()
    last = np.array([cycles.cumulative(seed)[-1] for seed in result])
    return {
        "cell": cell, "scores": result.tolist(), "env_steps": STEPS.tolist(), "order": ORDER,
        "cumulative": last.tolist(), "interquartile_mean": 0.25, "interval_95": [0.2, 0.3],
        "retained": [0.6, 0.5, 0.7], "position": 0, **more,
    }  # fmt: skip


def lines(ax: Any, width: float) -> list[Any]:
    return [line for line in ax.get_lines() if line.get_linewidth() == width]


def test_a_line_is_thick_where_its_task_is_trained():
    ax = draw.scores_by_task(scores(), STEPS, ORDER, title="in turn", chance=-0.6)
    assert ax.get_title("left") == "in turn"
    thick = lines(ax, draw.BOLD)
    assert len(thick) == 6
    for line in thick:
        x, y = line.get_data()
        stage = int(x[0]) // 20
        np.testing.assert_array_equal(x, STEPS[2 * stage : 2 * stage + 3])
        np.testing.assert_allclose(y[1:], 1.0)
        assert y[0] == pytest.approx(-1.0 if stage < 3 else 0.2)
    colors = [line.get_color() for line in thick]
    assert colors == sorted(colors, key=colors.index) and len(set(colors)) == 3
    thin = lines(ax, draw.AT_REST)
    assert [len(line.get_xdata()) for line in thin] == [13] * 3
    texts = [text.get_text() for text in ax.texts]
    assert sorted(texts) == sorted([*"123123", "task 1", "task 2", "task 3"])


def test_all_tasks_at_once_are_thick_throughout():
    ax = draw.scores_by_task(scores(), STEPS, names=("left", "right", "up"))
    assert [len(line.get_xdata()) for line in lines(ax, draw.BOLD)] == [13] * 3
    assert [text.get_text() for text in ax.texts] == ["left", "right", "up"]
    assert not ax.patches


def test_a_row_says_where_it_is_from():
    ax = forgetting.published_scores(row("a"), title="a row")
    assert len(lines(ax, draw.BOLD)) == 6 and ax.get_xlim() == (0, 120)


def test_greedy_scores_are_dotted_beside_sampled_ones():
    ax = draw.scores_by_task(scores(), STEPS, ORDER, greedy=scores() + 0.5)
    dots, thin = lines(ax, 1.0), lines(ax, draw.AT_REST)
    for one, other in zip(dots, thin, strict=True):
        np.testing.assert_allclose(one.get_ydata(), other.get_ydata() + 0.5)
    assert "sampled" in ax.get_ylabel() and "greedy" in ax.get_ylabel()
    assert "greedy" in forgetting.published_scores(row("a")).get_ylabel()


def both(cell: str) -> dict[str, Any]:
    """A row whose greedy scores are half a point above those of sampled actions."""
    own = row(cell)
    greedy = {
        "scores": (scores() + 0.5).tolist(),
        "cumulative": (np.array(own["cumulative"]) + 0.5),
    }
    names = ("scores", "cumulative", "interquartile_mean", "interval_95", "retained")
    return own | greedy | {"sampled": {name: own[name] for name in names}}


def test_a_row_of_sampled_actions_has_the_greedy_one_beside_it():
    result = draw.sampled_scores(both("a"))
    np.testing.assert_array_equal(result["scores"], scores())
    assert result["cell"] == "a" and result["greedy"]["retained"] == [0.6, 0.5, 0.7]
    ax = forgetting.published_scores(result)
    for one, other in zip(lines(ax, 1.0), lines(ax, draw.AT_REST), strict=True):
        np.testing.assert_allclose(one.get_ydata(), other.get_ydata() + 0.5)
    ax = forgetting.cumulatives({"one": result})
    (line,), (dots,) = lines(ax, 2), lines(ax, 1.0)
    np.testing.assert_allclose(dots.get_ydata(), line.get_ydata() + 0.5, rtol=1e-5)
    assert "sampled (dotted: greedy)" in ax.get_ylabel()
    assert draw.policy([result, both("a")]) == "greedy"


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"`scores` must have shape \[seed, 12, task\]"):
        draw.scores_by_task(scores(), STEPS[1:], ORDER)
    with pytest.raises(ValueError, match="`order` must divide the 12 evaluations"):
        draw.scores_by_task(scores(), STEPS, ORDER[:5])


def test_what_is_kept_is_a_dot_per_seed_and_a_bar():
    shares = {"forgets": np.array([-0.1, 0.2]), "keeps": np.array([0.9, 1.0, 1.1])}
    ax = forgetting.retention(shares, limits=(0.25,), title="kept")
    dots = [line for line in ax.get_lines() if line.get_linestyle() == "None"]
    for line, values in zip(dots, shares.values(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), values)
    bars = [bar.get_segments()[0][0][0] for bar in ax.collections]
    np.testing.assert_allclose(bars, [0.05, 1.0])
    marks = [line.get_xdata()[0] for line in ax.get_lines() if line not in dots]
    assert marks == [0, 1, 0.25]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["forgets", "keeps"]
    assert "3 seeds" in ax.get_xlabel() and ax.yaxis_inverted()


def test_cumulative_performance_is_the_mean_of_all_scores_so_far():
    some, other = row("a"), row("b", env_steps=(2 * STEPS).tolist())
    ax = forgetting.cumulatives({"one": some, "two": other})
    first, second = lines(ax, 2)
    expected = [scores()[1, : t + 1].mean() for t in range(13)]
    np.testing.assert_allclose(first.get_ydata(), expected, rtol=1e-5)
    np.testing.assert_array_equal(second.get_xdata(), 2 * STEPS)
    assert ax.get_xlim() == (0, 240) and [text.get_text() for text in ax.texts] == ["one", "two"]


def test_a_probe_is_judged_while_it_is_trained():
    result = forgetting.in_its_stage(row("a", position=4))
    np.testing.assert_allclose(result, [[0.9, 0.9], [1.0, 1.0], [1.1, 1.1]])
    before = row("a", position=1, order=[1, 0, 2, 0, 1, 2])  # evaluated in task 0, which rests
    np.testing.assert_allclose(forgetting.in_its_stage(before)[1], [0.2, 0.2])


def test_probes_have_a_line_per_method_over_positions():
    results = {"a": {3: np.array([0.0, 1.0]), 0: np.array([1.0, 1.0])}, "b": {0: np.array([0.5])}}
    ax = forgetting.probes(results, title="probe")
    one, two = lines(ax, 2)
    np.testing.assert_allclose(one.get_ydata(), [1.0, 0.5])
    np.testing.assert_allclose(two.get_ydata(), [0.5])
    assert ax.get_xticks().tolist() == [0, 3]
    assert [text.get_text() for text in ax.texts] == ["a", "b"]


def test_a_summary_has_each_task_and_what_is_kept():
    once = row("at once", retained=[], cumulative=[[0.5, 0.25, 0.75, 1.0]])
    head, first, second = draw.summary([row("in turn"), once]).splitlines()
    assert head.split()[:2] == ["task", "1"] and "task 4" in head
    assert first.startswith("in turn") and first.endswith("0.60  [0.50, 0.70]")
    assert second.split() == [
        "at", "once", "0.500", "0.250", "0.750", "1.000", "0.250", "[0.200,", "0.300]",
    ]  # fmt: skip
    assert first.index("[0.200") == second.index("[0.200")


def test_panels_share_limits_that_hold_all_of_them():
    _, axes = figure(2)
    draw.scores_by_task(scores(), STEPS, ORDER, ax=axes[0])
    draw.scores_by_task(3 * scores(), STEPS, ax=axes[1])
    low, high = axes[0].get_ylim()
    assert low <= -3.3 and high >= 3.3
