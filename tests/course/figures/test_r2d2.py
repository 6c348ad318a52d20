"""What chapters 09 and 09b draw."""

from typing import Any

import numpy as np
import pytest

from mmrl.course.ch09_r2d2 import figures as r2d2
from mmrl.course.ch09b_stale_states import figures as stale
from mmrl.course.figures import errors
from mmrl.show import figure


def row(strategy: str, memory: str = "lstm", **changes: Any) -> dict[str, Any]:
    values = {"first": [0.5, 0.7, 0.6], "last": [0.0, 0.0, 0.0]}
    base = {
        "cell": f"Task, {memory}, {strategy}", "task": "Task", "memory": memory,
        "strategy": strategy, "seeds": [0, 1, 2], "returns": [[0.0, 0.5]] * 3,
        "trained_transitions": [1000, 2_000_000], "cpu_seconds": [6.0, 12.0],
        "delta_q": {"zero": values, "stored": values}, "interquartile_mean": 0.5,
        "interval_95": [0.25, 0.75],
    }  # fmt: skip
    return base | changes


def labels(ax) -> list[str]:
    return [text.get_text() for text in ax.get_xticklabels()]


def test_strategies_stand_in_their_order_and_each_row_has_a_mark():
    rows = [row("tape"), row("zero"), row("stored", "lru", interquartile_mean=0.9)]
    fig, (ax,) = figure()
    r2d2.strategies(rows, chance=0.0, best=1.0, ax=ax)
    assert labels(ax) == ["zero", "stored", "tape"]
    marks = [
        line for line in ax.get_lines() if line.get_marker() in ("o", "s") and len(line.get_xdata())
    ]
    assert [float(mark.get_ydata()[0]) for mark in marks] == [0.5, 0.5, 0.9]
    assert [round(float(mark.get_xdata()[0])) for mark in marks] == [2, 0, 1]
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert words == ["LSTM", "LRU"]
    fig.canvas.draw()


def test_replayed_draws_medians_and_writes_out_what_is_too_small():
    ax = stale.delta_q_bars(stale.delta_q_by_start([row("zero"), row("stored")]))
    assert labels(ax) == ["zero", "stored"] and ax.get_yscale() == "log"
    tops = [bar.get_y() + bar.get_height() for bar in ax.patches if bar.get_height()]
    np.testing.assert_allclose(tops, [0.6, 0.6])
    assert sorted(text.get_text() for text in ax.texts) == ["0", "0", "0.6", "0.6"]


def test_the_seeds_of_all_rows_come_together():
    result = stale.delta_q_by_start(
        [row("zero"), row("stored"), row("tape", delta_q={}), row("zero", delta_q=None)]
    )
    assert list(result) == ["zero", "stored"] and result["zero"]["first"].shape == (6,)


def test_strategies_keep_their_order_whatever_the_order_of_a_dictionary():
    curves = {"stored": np.ones(3), "zero": np.full(3, 2.0)}
    ax = errors.errors(curves, np.array([1.0, 2.0, 4.0]), xlabel="drift", ylabel="ΔQ", log=True)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["zero", "stored"]
    assert ax.get_xscale() == "log"


def test_bounds_are_thin_and_stand_beside_the_errors():
    curves = {"bound": np.ones(4), "mine": np.full(4, 0.5)}
    ax = errors.errors(curves, xlabel="steps", ylabel="error", bounds=["bound"])
    bound, mine = ax.get_lines()
    assert bound.get_linewidth() < mine.get_linewidth() and ax.get_yscale() == "log"


@pytest.mark.parametrize("part", ["0.50", "[ 0.25,  0.75]", "2.00 M", "12 CPU-s"])
def test_a_summary_names_return_interval_and_cost(part: str):
    assert part in r2d2.summary([row("zero")])
