"""Learning curves say what they show: units, intervals, labels, and colours with a second cue."""

import pathlib

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.axes import Axes

from mmrl.course.results import tuning_note
from mmrl.runs import interval
from mmrl.show import STYLES, figure, learning_curves

STEPS = np.arange(1, 9) * 2560


def curves(level: float, seeds: int = 5) -> np.ndarray:
    noise = np.random.default_rng(0).normal(scale=0.05, size=(seeds, len(STEPS)))
    return level * np.linspace(0, 1, len(STEPS)) + noise


@pytest.fixture
def ax() -> Axes:
    arms = {"tape": curves(1.0), "segments": curves(0.2), "no memory": curves(0.18)}
    return learning_curves(arms, STEPS, title="A task", chance=-0.5, best=1.0)


def thick(ax: Axes) -> list:
    return [line for line in ax.get_lines() if line.get_linewidth() == 2]


def test_the_line_is_the_interquartile_mean_and_the_band_its_interval(ax: Axes):
    middle, low, high = np.array([interval(column) for column in curves(1.0).T]).T
    np.testing.assert_array_equal(thick(ax)[0].get_ydata(), middle)
    np.testing.assert_array_equal(thick(ax)[0].get_xdata(), STEPS)
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == low.min() and band[:, 1].max() == high.max()
    thin = [line for line in ax.get_lines() if line.get_linewidth() < 0.7]
    assert len(thin) == 3 * 5  # every seed is shown


def test_axes_have_units_and_the_caption_counts_the_seeds(ax: Axes):
    assert "environment steps" in ax.get_xlabel() and "return" in ax.get_ylabel()
    assert "5 seeds" in ax.get_xlabel() and "95 %" in ax.get_xlabel()
    assert ax.get_title(loc="left") == "A task"
    uneven = {"a": curves(1.0, 3), "b": curves(0.5, 7)}
    assert "3 to 7 seeds" in learning_curves(uneven, STEPS).get_xlabel()


def test_every_arm_has_a_colour_and_a_second_cue():
    for cue in ("color", "linestyle", "marker"):
        cues = [str(style[cue]) for style in STYLES]
        assert len(set(cues)) == len(cues) if cue != "linestyle" else len(set(cues[:6])) == 6
    arms = {f"arm {i}": curves(i / 7) for i in range(len(STYLES))}
    colors = [line.get_color() for line in thick(learning_curves(arms, STEPS))]
    assert colors == [style["color"] for style in STYLES]


def test_labels_stand_beside_their_lines_without_touching(ax: Axes):
    fig = ax.get_figure()
    fig.canvas.draw()
    labels = [text for text in ax.texts if text.get_text() in ("tape", "segments", "no memory")]
    assert len(labels) == 3
    boxes = [text.get_window_extent() for text in labels]
    for i, box in enumerate(boxes):
        assert box.x0 >= ax.get_window_extent().x1
        assert not any(box.overlaps(other) for other in boxes[:i])
    colors = {line.get_color() for line in thick(ax)}
    assert {text.get_color() for text in labels} == colors


def test_labels_of_lines_that_end_together_stay_beside_the_axes():
    ends = {name: np.linspace(0, 1, len(STEPS))[None] for name in "abcd"}
    ax = learning_curves(ends, STEPS)
    ax.figure.draw_without_rendering()
    places = [text.xy[1] for text in ax.texts if text.get_text() in ends]
    assert len(set(places)) == 4 and max(places) <= ax.get_ylim()[1]


def test_a_figure_belongs_to_no_window(tmp_path: pathlib.Path):
    fig, axes = figure(2)
    learning_curves({"a": curves(1.0)}, STEPS, ax=axes[1])
    fig.savefig(tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert pyplot.get_fignums() == []


def test_panels_share_the_vertical_axis():
    _, (left, right) = figure(2)
    learning_curves({"a": curves(1.0)}, STEPS, ax=left)
    learning_curves({"a": curves(0.1)}, STEPS, ax=right)
    assert left.get_ylim() == right.get_ylim()


def test_arrays_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"`returns\['a'\]` must have shape \[seed, 8\].*\[5, 7\]"):
        learning_curves({"a": curves(1.0)[:, :7]}, STEPS)
    for count in (0, 8):
        with pytest.raises(ValueError, match=f"`returns` must .*1 to 7 .*got {count}"):
            learning_curves({str(i): curves(1.0) for i in range(count)}, STEPS)


def test_a_note_says_how_learning_rates_were_chosen():
    old = {"learning_rate": 0.1, "tuning": {"0.1": 1.0, "0.2": 0.5}}
    new = {**old, "tuning_areas": {"0.1": 1.0, "0.2": None}, "tuning_at_bound": False}
    assert tuning_note([new, new, {"tuning": {}}]) == (
        "2 of 2 learning rates were chosen by score, then by area, after trying both neighbors "
        "on the grid."
    )
    middle = {**old, "tuning": {"0.01": 0.0, **old["tuning"]}}
    message = tuning_note([old, middle, new, {**new, "tuning_at_bound": True}])
    assert (
        "2 of 4" in message
        and "neighbors on the grid, except for 1 at the end of the grid." in message
    )
    assert "2 of 4 learning rates are the best" in message and "; 1 of these" in message
