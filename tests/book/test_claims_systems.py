"""What chapter 17 says of measured rows is what the rows say; chapters 15 and 16 cite none."""

from typing import Any

import pytest

from mmrl.course.results import published
from tests.helpers.claims import prose


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return published("graphs")


def shares(row: dict[str, Any], unit: str) -> dict[str, float]:
    """Each way to run a program, as a multiple of the program by hand."""
    return {name: x / row[unit]["by hand"] for name, x in row[unit].items()}


def test_how_long_iterations_take(rows: Any):
    text = prose("17_compiling")
    at = {
        (row["T"], row["batch"], row["width"]): shares(row, "ms")
        for row in rows
        if row["kind"] == "time" and row["n"] == 8
    }
    few, wide = at.pop((128, 8, 64)), at.pop((128, 32, 256))
    tiles = [each["ours, m = 16"] for each in at.values()]
    assert f"Tiles of 16 take {min(tiles):.2f} to {max(tiles):.2f} times as long" in text
    said = f"but {wide['ours, m = 16']:.2f} with wide observations (256), "
    assert f"{said}{few['ours, m = 16']:.1f} with eight environments" in text
    steps = [each["ours, m = 1"] for each in [*at.values(), few, wide]]
    assert at[128, 128, 64]["ours, m = 1"] == min(steps) and few["ours, m = 1"] == max(steps)
    said = f"Single steps take from {min(steps):.1f} times (128 environments) to {max(steps):.2f} "
    assert f"{said}times as long (eight environments)" in text
    assert "at $n = 8$ interleaving saved memory, but hardly any time." in text
    assert min(steps) > 0.99 and min(tiles) > 0.95


def test_how_much_memory_they_take(rows: Any):
    text = prose("17_compiling")
    assert "Figure 10, by width" in text
    sizes = [(row, shares(row, "bytes")) for row in rows if row["kind"] == "bytes"]
    assert {(row["T"], row["batch"]) for row, _ in sizes} == {(128, 32)}
    windows = [each for row, each in sizes if row["n"] == 8]
    whole = [each["ours, m = 128"] for row, each in sizes if row["n"] is None]
    assert "single steps take a tenth of the memory and less" in text
    assert max(each["ours, m = 1"] for each in windows) < 0.1
    assert "tiles of 16 under half" in text
    assert max(each["ours, m = 16"] for each in windows) < 0.5
    assert "`r[t:T]` from the same to twice as much" in text
    assert 1 <= min(whole) < 1.05 and 1.95 < max(whole) < 2.05
    tiles = next(row for row, _ in sizes if (row["n"], row["width"]) == (8, 4096))
    assert f"{tiles['bytes']['ours, m = 16'] / 1e6:.0f} MB for 4096 numbers and $m = 16$" in text
    observations = 23 * tiles["swapped"]["device"] / 1e6  # one is on the device: 32 · 4097 numbers
    assert f"where 23 observations are {observations:.0f} MB" in text


def test_how_slow_the_interpreter_is(rows: Any):
    slower = [
        share
        for row in rows
        if row["kind"] == "interpreter"
        for name, share in shares(row, "ms").items()
        if name.startswith("interpreted")
    ]
    low, high = min(slower), max(slower)
    said = f"The interpreter is {low:.0f} to {high:.0f} times slower than the program by hand"
    assert said in prose("17_compiling")


def test_how_long_lifted_loops_take(rows: Any):
    text, trees = prose("17_compiling"), {}
    for row in rows:
        if row["kind"] == "lift":
            share = row["ms"]["associative"] / row["ms"]["lax.scan"]
            trees.setdefault(row["T"], []).append(share)
    long = trees[16384]
    said = f"four loops of 16 384 steps take {min(long):.2f} to {max(long):.1f} times as long"
    assert said in text and len(long) == 4
    longest = max(max(each) for each in trees.values())
    assert f"shorter ones up to {longest:.1f}" in text
