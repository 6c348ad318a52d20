"""What chapter 17 draws: time and memory as ratios to the program by hand."""

import numpy as np
import pytest
from matplotlib.lines import Line2D

from mmrl.course.ch17_compiling.figures import by_window, name_ends, ratios, shares
from mmrl.show import figure


def row(n: int | None, seconds: dict[str, float], **sizes: int) -> dict:
    usual = {"kind": "time", "n": n, "T": 128, "batch": 32, "width": 64}
    return usual | sizes | {"ms": seconds, "bytes": seconds}


ROWS = [
    row(None, {"by hand": 2.0, "ours, m = 128": 3.0}),
    row(None, {"by hand": 4.0, "ours, m = 256": 5.0}, T=256),
    row(8, {"by hand": 8.0, "ours, m = 1": 2.0, "ours, m = 256": 12.0}, T=256),
    row(8, {"by hand": 2.0, "ours, m = 1": 1.0, "ours, m = 128": 5.0}),
    row(8, {"by hand": 5.0, "ours, m = 1": 6.0, "ours, m = 128": 7.0}, batch=8),
    row(8, {"by hand": 1.0, "ours, m = 1": 0.1}) | {"kind": "bytes"},
    {"kind": "lift", "T": 256, "ms": {"lax.scan": 1.0}},
]


def numbers(line: Line2D) -> tuple[list[float], list[float]]:
    return np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()


def test_one_size_varies_and_the_others_are_the_usual_ones():
    assert shares(ROWS, "ms", "T") == {
        "m = 1": {128: 0.5, 256: 0.25},
        "m = T": {128: 2.5, 256: 1.5},
        "r[t:T]": {128: 1.5, 256: 1.25},
    }
    assert shares(ROWS, "ms", "batch")["m = 1"] == {8: 1.2, 32: 0.5}
    assert shares(ROWS, "bytes", "width") == {"m = 1": {64: 0.1}}


def test_programs_without_a_window_are_named_as_they_are():
    seconds = {"by hand": 2.0, "ours": 3.0}
    sizes = {"kind": "ppo", "T": 128, "batch": 32, "width": 64, "depth": 1, "hidden": 16}
    rows = [
        sizes | {"ms": seconds, "depth": depth, "hidden": h}
        for depth, h in ((1, 16), (2, 16), (1, 64))
    ]
    assert shares(ROWS + rows, "ms", "depth", "ppo") == {"ours": {1: 1.5, 2: 1.5}}


def test_windows_are_compared_at_each_length_of_episodes():
    rows = [
        {"kind": "window", "n": n, "T": T, "ms": {"by hand": 2.0, "ours, m = 1": ours}}
        for n, T, ours in ((None, 64, 8.0), (4, 64, 1.0), (4, 32, 3.0))
    ]
    assert by_window(ROWS + rows, "ms") == {"T = 32": {4: 1.5}, "T = 64": {4: 0.5, 64: 4.0}}


def test_a_line_for_each_program_named_at_its_end():
    fig, axes = figure(2)
    lines = {"m = 1": {32: 2.0, 64: 1.5}, "r[t:T]": {32: 1.0, 64: 1.0}}
    ratios(lines, title="time", ylabel="times", ax=axes[0])
    ratios({"m = 1": {16: 0.1, 32: 0.2, 64: 0.4}}, ax=axes[1])
    name_ends(axes)
    hand, *ours = axes[0].get_lines()
    assert numbers(hand)[1] == [1, 1]
    assert [numbers(line) for line in ours] == [([32, 64], [2.0, 1.5]), ([32, 64], [1.0, 1.0])]
    assert [text.get_text() for text in axes[0].texts] == ["r[t:T]", "m = 1"]
    assert [tick.get_text() for tick in axes[1].get_xticklabels()] == ["16", "32", "64"]
    assert {ax.get_yscale() for ax in axes} == {ax.get_xscale() for ax in axes} == {"log"}
    fig.draw_without_rendering()
    assert axes[0].get_yticklabels()[0].get_text() == "0.02"


def test_names_of_equal_lines_stand_apart():
    ax = ratios({"a": {1: 1.0, 2: 1.0}, "b": {1: 1.0, 2: 1.0}, "c": {1: 9.0, 2: 9.0}})
    name_ends([ax])
    heights = sorted(np.log(text.xy[1]) for text in ax.texts)  # pyright: ignore
    low, high = np.log(ax.get_ylim())
    assert min(np.diff(heights)) > 0.05 * (high - low)


def test_there_are_only_so_many_styles():
    with pytest.raises(ValueError, match=r"`lines` must .* 7 entries, got 8"):
        ratios({str(k): {1: 1.0} for k in range(8)})


def test_labels_of_sizes_do_not_overlap():
    sizes = (16, 64, 256, 1024, 4096, 12288, 196608)
    axes = ratios({"m = 1": dict.fromkeys(sizes, 1.0)})
    texts = [tick.get_text() for tick in axes.get_xticklabels()]
    assert texts == ["16", "64", "256", "1024", "4096", "", "196608"]
