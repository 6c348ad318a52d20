"""The page of memories: every memory has a row, and the picture can be read."""

import itertools
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "book" / "tools"))
import models_figure
import models_table
from models_figure import FRAME, Box, Point

from mmrl.memory import NAMES


def row(name: str, recall: float = 0.5, state: int = 64) -> dict[str, Any]:
    lags = len(models_table.LAGS)
    return {
        "cell": name,
        "kind": "monoid",
        "state": state,
        "parameters": 12345,
        "operations": 2080,
        "recall": [[recall] * lags, [recall + 0.25] * lags, [recall - 0.25] * lags],
        "longer": [[recall / 2] * lags] * 3,
        "order": [-0.004, 0.0, 0.004],
        "kept": [1.0, 1.0, 1.0],
        "trained_steps": 128,
        "held_out_steps": 1024,
        "quick": False,
    }


def cells(text: str) -> dict[str, list[str]]:
    """Return the cells of a table, keyed by memory."""
    lines = text.split("<tr>")[2:]
    heads = [re.sub("<.*?>", "", line.partition("</th>")[0]) for line in lines]
    values = [re.findall("<td>(.*?)</td>", line) for line in lines]
    return dict(zip(heads, values, strict=True))


def test_every_memory_has_a_row_and_what_is_missing_is_named():
    models = models_table.by_name([row("lru"), row("gru") | {"quick": True}])
    ratios = {"forward": 0.5, "both": 0.25, "compile": 2.0}
    times = {"gru": {"ratios": ratios, "seconds": {"compile": 1.23}}}
    tables = [
        models_table.cost(models, times),
        models_table.recall(models),
        models_table.order(models),
        models_table.tasks([]),
    ]
    for text in tables:
        result = cells(text)
        assert tuple(result) == NAMES
        assert {*result["elman"]} == {"no row"}
        assert len({len(x) for x in result.values()}) == 1
    cost, recall, order, _ = map(cells, tables)
    assert cost["lru"] == ["monoid", "64", "12 345", "2 080", *["no row"] * 4]
    assert cost["gru"] == [*["no row"] * 4, "0.50", "0.25", "2.00", "1.2"]
    assert {*recall["lru"]} == {"0.50<br><small>0.25 to 0.75</small>"}
    assert order["lru"] == [
        "0.00<br><small>0.00</small>",
        "1.00<br><small>1.00</small>",
        "0.50<br><small>0.25 to 0.75</small>",
        "0.25<br><small>0.25</small>",
    ]
    assert "recall after 1024 steps" in tables[2]


def test_scores_are_those_of_agents_with_defaults():
    task = models_table.TASKS[2]
    scores = [("pqn", 0.9, {}), ("ppo", -0.25, {}), ("ppo", 1.0, {"gamma": 0.5})]
    rows = [
        {"agent": agent, "memory": "lru", "task": task, "interquartile_mean": x, "changes": changes}
        for agent, x, changes in scores
    ]
    rows = [row | {"quick": False} for row in (*rows, rows[0] | {"memory": "s6"})]
    result = cells(models_table.tasks(rows))
    assert result["lru"][2] == "0.90<br><small>−0.25 to 0.90, 2 agents</small>"
    assert result["s6"][2] == "0.90" and result["lmu"][2] == "no row"
    assert result["lru"][:2] == ["no row", "no row"] and len(result["lru"]) == 5


def test_an_unknown_part_is_rejected():
    message = r"`part` must be figure, cost, recall, order or tasks; got 'recal'\."
    with pytest.raises(ValueError, match=message):
        models_table.content("recal")


def many() -> list[Point]:
    """Return a point for each memory, several of them close together."""
    spots = itertools.cycle([(64, 0.4), (70, 0.42), (256, 0.9), (1000, 0.1), (64, 0.38)])
    return [
        Point(name, "monoid", state + 3 * i, (recall, recall - 0.02), bool(i % 2))
        for i, (name, (state, recall)) in enumerate(zip(NAMES, spots, strict=False))
    ]


def test_names_in_the_picture_cover_no_name_and_no_point():
    points = many()
    boxes, radius = models_figure.labels(points), models_figure.RADIUS
    assert len(boxes) == len(NAMES)
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    for box, (x, y) in itertools.product(boxes, models_figure.places(points)):
        assert not box.overlaps(Box(x - radius, y - radius, x + radius, y + radius))
    for box in boxes:
        assert FRAME.left < box.left and box.right < FRAME.right
        assert FRAME.top < box.top and box.bottom < FRAME.bottom


def test_the_picture_shows_state_to_the_right_and_recall_upward():
    points = [
        Point("a", "monoid", 0, (0.0,), True),
        Point("b", "recurrence", 10, (0.5,), False),
        Point("c", "stack of monoids", 1000, (1.0,), True),
        Point("d", "no memory", 100, (0.25,), True),
    ]
    (ax, ay), (bx, by), (cx, cy), (dx, _) = models_figure.places(points)
    assert FRAME.left < ax < bx < dx < cx < FRAME.right
    assert FRAME.bottom > ay > by > cy > FRAME.top
    text = models_figure.figure(points)
    assert text.count('fill="none" stroke="currentColor" stroke-width') == 1
    assert "The best is c, with 1000 values and a recall of 1.00" in text
    assert all(f">{name}</text>" in text for name in "abcd")
    assert "No memory has been measured" in models_figure.figure([])


def test_a_memory_is_hollow_if_it_guesses_the_order():
    other = row("gru") | {"order": [0.9, 1.0, 0.8]}
    result = models_table.points({"lru": row("lru"), "gru": other})
    assert [point.has_order for point in result] == [False, True]
    assert result[0].recall == pytest.approx((0.5, 0.75, 0.25))
