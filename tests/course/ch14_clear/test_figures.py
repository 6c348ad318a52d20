"""What chapter 14 draws."""

from typing import Any

import numpy as np
import pytest

from mmrl.course.ch14_clear import figures as clear
from mmrl.course.results import published_rows
from mmrl.show import STYLES

CHANCE = -0.6


def row(method: str, mean: float = 0.5, protocol: str = "sequential", **changes: Any) -> Any:
    """Two seeds, three tasks in two cycles of two evaluations each; a tenth between seeds."""
    scores = np.full((2, 13, 3), mean)
    base = {
        "cell": f"Catch, {protocol}, {method}", "family": "Catch", "protocol": protocol,
        "method": method, "order": [0, 1, 2] * 2 if protocol == "sequential" else [],
        "scores": scores.tolist(), "cumulative": [[mean - 0.05] * 3, [mean + 0.05] * 3],
        "retained": [mean, mean + 0.2] if protocol == "sequential" else [],
        "interquartile_mean": mean, "interval_95": [mean - 0.05, mean + 0.05], "cpu_seconds": 1.5,
    }  # fmt: skip
    return base | changes


def rows() -> list[Any]:
    """All nine rows of Figure 8: simultaneous is 1, and the others are 0.1, 0.2, …"""
    cells = dict.fromkeys((protocol, method) for protocol, method, _ in clear.FIGURE_8.values())
    return [
        row(method, 1.0 if protocol == "simultaneous" else 0.1 * (k + 1), protocol)
        for k, (protocol, method) in enumerate(cells)
    ]


def test_first_lessons_are_those_of_the_task_in_training_in_the_first_cycle():
    scores = np.zeros((2, 13, 3))
    scores[0, 1:3, 0], scores[0, 3:5, 1], scores[0, 5:7, 2] = 0.3, 0.6, 0.9
    scores[0, 0], scores[0, 7:] = 5, 5  # before, and in the second cycle
    scores[1, 3, 1] = 0.6
    result = clear.first_lessons(row("CLEAR", scores=scores.tolist()))
    np.testing.assert_allclose(result, [0.6, 0.1])


def test_a_method_is_found_if_it_is_there_once():
    assert clear.find(rows(), "CLEAR")["method"] == "CLEAR"
    with pytest.raises(ValueError, match=r"`rows` must .* Catch, sequential, EWC, got 0"):
        clear.find(rows(), "EWC")
    with pytest.raises(ValueError, match="got 2"):
        clear.find([*rows(), row("CLEAR", 0.2)], "CLEAR")


def test_the_table_has_shares_of_simultaneous_training():
    lines = clear.table(rows(), CHANCE).splitlines()
    assert len(lines) == 10
    separate, at_once, sequential = (line.split() for line in lines[1:4])
    assert separate == ["separate", "0.10", "0.44", "0.90", "to", "1.00"]  # .7/1.6; 29.24/32.35
    assert at_once[1:3] == ["1.00", "1.00"]
    assert sequential == ["sequential", "0.30", "0.56", "0.53", "to", "0.57"]


def marks(ax: Any, marker: str, size: float | None = None) -> list[Any]:
    lines = [line for line in ax.get_lines() if line.get_marker() == marker]
    return [line for line in lines if size is None or line.get_markersize() == size]


def test_figure_8_has_ours_beside_the_papers():
    ax = clear.figure_8(rows(), CHANCE, title="All")
    assert [text.get_text() for text in ax.get_yticklabels()] == list(clear.FIGURE_8)
    ours = [float(line.get_xdata()[0]) for line in marks(ax, "o", 7)]
    np.testing.assert_allclose(ours[:3], [0.7 / 1.6, 1, 0.9 / 1.6])
    paper = [line.get_xdata() for line in marks(ax, "s")]
    np.testing.assert_allclose(paper[0], [29.24 / 32.35, 8.79 / 8.81, 19.91 / 20.56])
    dots = marks(ax, ".")
    assert len(ours) == len(paper) == len(dots) == 9
    np.testing.assert_allclose(dots[0].get_xdata(), [0.65 / 1.6, 0.75 / 1.6])
    assert ax.yaxis_inverted()


def both(one: Any) -> Any:
    """A row of sampled actions, with the greedy one a tenth above it."""
    up = {
        name: (np.array(one[name]) + 0.1).tolist() for name in ("scores", "cumulative", "retained")
    }
    return one | {"greedy": one | up}


def test_greedy_scores_stand_beside_sampled_ones():
    results = [both(one) for one in rows()]
    ax = clear.figure_8(results, CHANCE)
    hollow = [float(line.get_xdata()[0]) for line in marks(ax, "o", 6)]
    np.testing.assert_allclose(hollow[:3], [0.8 / 1.7, 1, 1 / 1.7])
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["paper, 3 tasks", "ours, sampled", "ours, greedy"]
    assert clear.table(results, CHANCE).splitlines()[1].split()[1:4] == ["0.10", "0.44", "0.47"]
    ax = clear.sweep([both(row("CLEAR", 0.5)), both(row("reservoir 1/2", 0.7))], "room")
    dots = [line.get_ydata() for line in ax.get_lines() if line.get_linewidth() == 1.0]
    np.testing.assert_allclose(dots, [[0.6, 0.8], [0.7, 0.9], [0.6, 0.8]])
    assert "sampled (dotted: greedy)" in ax.get_ylabel()


def test_a_sweep_shows_three_measures_of_the_settings_that_are_there():
    some = [row("CLEAR", 0.5), row("reservoir 1/2", 0.7), row("V-trace", 0.1)]
    ax = clear.sweep(some, "room")
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1/18", "1/2"]
    lines = [line for line in ax.get_lines() if line.get_linewidth() == 1.4]
    assert [line.get_label() for line in lines] == [
        "cumulative performance", "fraction retained", "score in first stages",
    ]  # fmt: skip
    expected = [[0.5, 0.7], [0.6, 0.8], [0.5, 0.7]]
    np.testing.assert_allclose([line.get_ydata() for line in lines], expected)
    assert {line.get_marker() for line in lines} == {style["marker"] for style in STYLES[:3]}


def test_settings_in_words_are_not_joined():
    some = [row("without cloning", 0.2), row("CLEAR", 0.5), row("policy cloning only", 0.4)]
    ax = clear.sweep(some, "cloning", names=False)
    lines = [line for line in ax.get_lines() if line.get_linewidth() == 1.4]
    assert all(len(line.get_xdata()) == 2 for line in lines) and ax.get_legend() is None
    apart = [line for line in marks(ax, "o", 6) if line.get_linestyle() == "None"]
    assert [list(line.get_ydata()) for line in apart] == [[0.4]]


def test_methods_stand_side_by_side_as_shares_of_the_best():
    ax = clear.side_by_side({"one": [1.0, 4.0], "two": [2.0, 1.0]}, ["a_b", "c"], title="Both")
    lines = [line for line in ax.get_lines() if line.get_label() in ("one", "two")]
    np.testing.assert_allclose([line.get_ydata() for line in lines], [[0.5, 1], [1, 0.25]])
    assert [text.get_text() for text in ax.get_xticklabels()] == ["a\nb", "c"]
    with pytest.raises(ValueError, match=r"`scores` must .* 1 to 7 .* got 8"):
        clear.side_by_side({str(k): [1.0] for k in range(8)}, ["a"])


def test_inclusion_has_a_band_around_even_chances():
    even = np.full(20, 0.25)
    ax = clear.inclusion({"reservoir": even, "newest": 2 * even}, 0.25, 0.01, title="Kept")
    assert [list(line.get_xdata())[::19] for line in ax.get_lines()] == [[1, 20]] * 2
    low, high = np.asarray(ax.patches[0].get_extents().get_points())[:, 1]
    bounds = ax.transData.inverted().transform([[1, low], [1, high]])[:, 1]
    np.testing.assert_allclose(bounds, [0.23, 0.27])


@pytest.mark.slow
def test_published_rows_fill_both_tables():
    result = published_rows("forgetting")
    ours = clear.figure_13(result, CHANCE)
    assert list(ours) == list(clear.FIGURE_13) and all(x.shape == (3,) for x in ours.values())
    mean = np.mean(clear.find(result, "tuned V-trace")["cumulative"], axis=0)
    np.testing.assert_allclose(ours["baseline"], mean + 0.6)
    assert len(clear.table(result, CHANCE).splitlines()) == 10
    for which, settings in clear.SWEEPS.items():
        labels = [text.get_text() for text in clear.sweep(result, which).get_xticklabels()]
        assert set(labels) <= set(settings) and len(labels) >= 5
