"""What chapter 17 says of measured rows is what the rows say; chapters 15 and 16 cite none.

What chapter 18 says of times and bytes on paper is what `mmrl.course.scaling` computes.
"""

from typing import Any

import jax
import pytest

from mmrl import memory
from mmrl.course.results import published
from mmrl.course.scaling import cost, leaf_bytes
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
    tiles, steps = ({size: x[f"ours, m = {m}"] for size, x in at.items()} for m in (16, 1))
    few, many = (128, 8, 64), (128, 128, 64)
    assert tiles[many] == max(tiles.values())
    said = f"Tiles of 16 take {min(tiles.values()):.2f} to {tiles[many]:.2f} times as long (128 env"
    assert said in text
    assert (steps[many], steps[few]) == (min(steps.values()), max(steps.values()))
    said = f"take from {steps[many]:.2f} times (128 environments) to {steps[few]:.2f} times as long"
    assert f"Single steps {said} (eight)" in text


def test_how_long_ppo_takes(rows: Any):
    text, found = prose("17_compiling"), [row for row in rows if row["kind"] == "ppo"]
    assert {row["T"] for row in found} == {32, 128, 256} and len(found) == 9
    first, *varied = (shares(row, "ms")["ours"] for row in found)
    deep = next(row for row in found if row["depth"] == 4)
    many = next(row for row in found if row["batch"] == 128)
    ends = [shares(row, "ms")["ours"] for row in (deep, many)]
    assert ends == [min(varied), max(varied)]
    assert f"takes {first:.2f} times as long, and from {ends[0]:.2f} (four layers) to" in text
    assert f"to {ends[1]:.2f} (128 environments) if one size is varied" in text
    taken = shares(found[0], "bytes")
    assert f"tiles of 16 reserve {taken['ours']:.2f} times as much" in text
    assert f"and single steps {taken['ours, m = 1']:.2f} times" in text


def test_windows_of_any_length_take_as_long(rows: Any):
    found = {
        (row["n"], row["T"]): (shares(row, "ms")["ours, m = 1"], row["bytes"]["ours, m = 1"])
        for row in rows
        if row["kind"] == "window" and row["n"]
    }
    ms = [share for share, _ in found.values()]
    said = f"step by step takes {min(ms):.2f} to {max(ms):.2f} times as long as by hand"
    assert said in prose("17_compiling")
    assert "with $n = 4$ hardly less than with $n = 32$" in prose("17_compiling")
    for T in (64, 256):
        assert 0 < found[32, T][0] - found[4, T][0] < 0.1
    for n in (4, 32):
        assert found[n, 256][1] < 1.1 * found[n, 64][1]


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
    assert "`r[t:T]` about as much" in text
    assert min(whole) > 0.97 and max(whole) < 1.03
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


def test_what_a_scan_over_devices_costs_on_paper():
    text = prose("18_many_devices")

    def size(name: str, **sizes: int) -> list[int]:
        return [sum(leaf_bytes(memory.make(name, 8, 8, **sizes, key=jax.random.key(0))))]

    lru, attention = (
        size("lru", state_size=64),
        size("linear_attention", key_size=64, value_size=64),
    )
    took = {n: f"{1e6 * cost(lru, 2**20, n).seconds:.0f}" for n in (1, 2, 8, 64, 128, 256)}
    eight = cost(lru, 2**20, 8)
    assert f"$b = 64 \\cdot (8 + 8) + 1 = {lru[0]}$" in text
    assert (
        f"On 8 devices memory takes {1e6 * eight.memory:.0f} µs, and {eight.received} bytes" in text
    )
    assert f"bytes come in {1e6 * eight.transfer:.3f} µs after 10 µs" in text
    assert f"So {eight.share:.0%}".replace("%", " %") + " of the time is talk" in text
    assert f"One device takes {took[1]} µs, and two take {took[2]}, because" in text
    assert f"Eight take {took[8]} and 64 take {took[64]}, but from 128 to 256 it goes" in text
    assert f"goes only from {took[128]} to {took[256]}." in text
    assert f"which talk for {100 * cost(lru, 2**20, 64).share:.0f} % of the time" in text
    shares = [100 * cost(lru, 2**k, 64).share for k in (25, 24)]
    assert (
        f"$2^{{25}}$ steps, with {shares[0]:.0f} %. For $2^{{24}}$ it is {shares[1]:.0f} %" in text
    )
    held = [2 * cost(attention, 2**20, n).prefixes / 1e9 for n in (1, 8)]
    assert f"one device holds {held[0]:.1f} GB, each of eight {held[1]:.1f} GB" in text
    talk = 100 * cost(attention, 2**20, 64).share
    assert f"and even 64 talk for only {talk:.0f} % of the time" in text
