"""What chapters 04 and 05 draw and time."""

import json
from pathlib import Path

import numpy as np
import pytest

from mmrl.course import experiments
from mmrl.course.ch04_resets import figures as leaks
from mmrl.course.ch05_returns_are_monoids import experiment_returns_timing as returns_timing
from mmrl.course.ch05_returns_are_monoids import figures as returns
from mmrl.show import figure

BEGIN = np.arange(6) % 3 == 0


def reach(flags: np.ndarray) -> np.ndarray:
    """[t, s] of an integrator that is reset by `flags`."""
    episode = np.cumsum(flags)
    return np.tril(0.9 * (episode[:, None] == episode))


@pytest.mark.parametrize(
    ("flags", "count", "losses"),
    [
        (BEGIN, 0, 0),
        (np.roll(BEGIN, 1), 2, 4),  # o_1 and o_2 reach step 3; o_0 and o_3 are lost to two steps
        (np.roll(BEGIN, -1), 2, 4),
        (np.zeros(6, bool), 9, 0),
    ],
)
def test_leaks_are_counted(flags: np.ndarray, count: int, losses: int):
    assert leaks.counts(reach(flags), BEGIN) == (count, losses)
    ax = leaks.influence(reach(flags), BEGIN, title="a")
    assert f"{count} leaked ×, {losses} lost ○" in ax.get_title(loc="left")
    crosses, rings = ax.collections
    assert len(crosses.get_offsets()) == count and len(rings.get_offsets()) == losses


def test_curves_say_gradient_steps_and_seeds():
    fig, (ax,) = figure()
    leaks.training_curves(
        {"right": np.ones((3, 2)), "late": np.zeros((3, 2))}, np.array([1, 2]), ax=ax
    )
    assert ax.get_xlabel().startswith("gradient steps\n3 seeds")
    fig.canvas.draw()


def test_forms_are_ordered_by_speed():
    rows = [
        {"episodes": 10, "longest": 5, "ms": {"slow": 4.0, "fast": 1.0}},
        {"episodes": 20, "longest": 5, "ms": {"slow": 8.0, "fast": 1.0}},
    ]
    ax = returns.timing(rows, reference="slow")
    assert [text.get_text() for text in ax.get_yticklabels()] == ["fast", "slow"]
    marks = ax.get_lines()[-2:]
    assert [mark.get_xdata()[0] for mark in marks] == [4.0, 8.0]


def test_the_least_error_is_named():
    errors = np.array([[3.0, 3.0], [1.0, 1.0], [2.0, 2.0]])
    ax = returns.error_by_trace(errors, np.array([0, 0.5, 1]))
    assert [text.get_text() for text in ax.texts] == ["minimum: λ = 0.5"]
    assert "2 seeds" in ax.get_xlabel()


def test_values_are_drawn_beside_the_truth():
    ax = returns.state_values({"a": np.zeros((4, 3))}, np.arange(3.0))
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["truth", "a"] and "4 seeds" in ax.get_xlabel()


@pytest.mark.slow
def test_timing_measures_each_form_once(tmp_path: Path):
    lines = list(experiments.run("returns_timing", tmp_path, quick=True))
    row = json.loads((tmp_path / "returns_timing.jsonl").read_text())
    assert len(row["ms"]) == 9 and min(row["ms"].values()) > 0 and row["quick"]
    assert (row["episodes"], row["longest"]) == returns_timing.QUICK
    assert row["command"] and lines[-1] == "0 of 1 cells remain: all done."
    assert list(experiments.run("returns_timing", tmp_path, quick=True)) == lines[-1:]
