"""Orders of execution as figures: lives, and how many overlap."""

import numpy as np
import pytest

from mmrl.course.figures.graphs import lifetimes, places, waiting_times
from mmrl.show import figure

# Two steps acted, then both learned from; `o` of step 2 is made and never read.
ORDER = [
    ("w", (0,)),
    ("o", (0, 0)),
    ("o", (0, 1)),
    ("d", (0, 1)),
    ("o", (0, 2)),
    ("d", (0, 0)),
    ("w", (1,)),
]


def test_a_place_is_where_a_point_comes():
    assert places(ORDER, "o") == {(0, 0): 1, (0, 1): 2, (0, 2): 4}
    with pytest.raises(ValueError, match=r"`name` must be an operation.*'r'.*\['d', 'o', 'w'\]"):
        places(ORDER, "r")


def test_what_is_made_waits_until_it_is_read():
    np.testing.assert_array_equal(waiting_times(ORDER, "o", "d"), [0, 0, 1, 2, 1, 1, 0])


def test_every_life_is_drawn_from_end_to_end():
    _, (ax,) = figure()
    assert lifetimes(ORDER, "o", "d", title="an order", labels=("a", "b"), ax=ax) is ax
    begins, read = (line.get_xdata() for line in ax.get_lines())
    np.testing.assert_array_equal(begins, [1, 2])
    np.testing.assert_array_equal(read, [5, 3])
    assert ax.get_title(loc="left") == "an order: 2 at once"
    legend = ax.get_legend()
    assert legend is not None and [text.get_text() for text in legend.get_texts()] == ["a", "b"]
