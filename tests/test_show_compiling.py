"""What chapter 17 draws: bytes by the size of an observation."""

import numpy as np
import pytest

from mmrl.show.compiling import footprints

WIDTHS = (64, 512, 4096)
LINES = {"by hand": [4e5, 3e6, 2e7], "ours": [1e5, 6e5, 5e6]}


def test_a_line_for_each_program_named_at_its_end():
    ax = footprints(LINES, WIDTHS, title="n = 8")
    assert [text.get_text() for text in ax.texts] == ["ours", "by hand"]
    for line, wanted in zip(ax.get_lines(), LINES.values(), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), WIDTHS)
        np.testing.assert_allclose(np.asarray(line.get_ydata()), np.array(wanted) / 1e6)
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert ax.get_ylabel() == "megabytes"


def test_names_of_equal_lines_stand_apart():
    ax = footprints({"a": [1e6] * 3, "b": [1e6] * 3, "c": [5e7] * 3}, WIDTHS)
    heights = sorted(np.log(text.xy[1]) for text in ax.texts)  # pyright: ignore
    low, high = np.log(ax.get_ylim())
    assert min(np.diff(heights)) > 0.05 * (high - low)


def test_lines_must_fit_the_widths():
    with pytest.raises(ValueError, match=r"`lines\['ours'\]` needs 3 entries; got 2"):
        footprints({"ours": [1.0, 2.0]}, WIDTHS)
    with pytest.raises(ValueError, match="`lines` may hold 7; got 8"):
        footprints({str(k): [1.0] * 3 for k in range(8)}, WIDTHS)
