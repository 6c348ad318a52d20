"""What chapters 05 and 08 say of measured rows is what the rows say."""

from typing import Any

import numpy as np
import pytest

from mmrl.course.results import published
from tests.helpers.claims import prose, written

OURS = "ours: one backward scan with resets"
NEEDED = 9  # the age of the card that RepeatPreviousPaper asks for


def percent(share: float) -> str:
    return f"{100 * share:.0f}"


# Chapter 05


@pytest.fixture(scope="module")
def timings() -> list[dict[str, Any]]:
    return published("returns_timing")


def factors(rows: Any, name: str) -> list[float]:
    """How many times as long as ours a way to compute returns takes, in each batch."""
    return [row["ms"][name] / row["ms"][OURS] for row in rows]


def test_a_price_of_python(timings: Any):
    text = prose("05_returns_are_monoids")
    calls = factors(timings, "compiled call per episode")
    assert "factors go from about 40 to about 700" in text
    assert 38 < min(calls) < 42 and 690 < max(calls) < 720
    each = [1e3 * row["ms"]["compiled call per episode"] / row["episodes"] for row in timings]
    assert "some 30 to 60 µs" in text and min(each) > 30 and max(each) < 65
    most = timings[int(np.argmax(calls))]
    assert "the factor is largest for *many short episodes*" in text
    assert most["episodes"] == 1000 and most["longest"] == min(row["longest"] for row in timings)
    assert "up to half a minute before the first result" in text
    assert 25 < max(row["first_call_s"] for row in timings) < 35


def test_who_else_is_fast(timings: Any):
    text = prose("05_returns_are_monoids")
    assert "We timed nine ways" in text and {len(row["ms"]) for row in timings} == {9}
    assert "the associative scan takes about 2 to 8 times as long as the sequential one" in text
    trees = factors(timings, "associative scan with resets")
    assert round(min(trees)) == 2 and round(max(trees)) == 8
    assert "On padded input `vmap(lax.scan)` is faster in four of five batches" in text
    assert [x < 1 for x in factors(timings, "vmap(lax.scan), already padded")].count(True) == 4
    assert "with many short episodes even six lines of numpy are" in text
    numpy = factors(timings, "numpy over padded columns")
    faster = [row for row, factor in zip(timings, numpy, strict=True) if factor < 1]
    assert [(row["episodes"], row["longest"]) for row in faster] == [(1000, 10)]
    padding = factors(timings, "pad, vmap(lax.scan), unpad")
    faster = [row for row, factor in zip(timings, padding, strict=True) if factor < 1]
    assert "Even with its padding paid for it is faster in two of five" in text
    assert [(row["episodes"], row["steps"]) for row in faster] == [(100, 5093), (1000, 5148)]
    ways = ("pad, vmap(lax.scan), unpad", "ours: one backward scan with resets")
    loops = [
        [row["ms"]["compiled call per episode"] / row["ms"][way] for way in ways] for row in faster
    ]
    assert np.round(loops).tolist() == [[114, 92], [1026, 715]]
    assert "114 against our 92 times" in text and "and 1026 against 715" in text


# Chapter 08


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, Any]]:
    return {row["cell"]: row for row in published("sensitivity")}


def share(row: dict[str, Any], measure: str, age: int) -> float:
    """What a card of this age has of the sum over all cards, in the mean over seeds."""
    sizes = np.array(row[measure])
    return float(np.mean(sizes[:, age] / sizes.sum(axis=1)))


def test_what_the_tape_agent_looks_back_at(rows: Any):
    text, tape = prose("08_what_truncation_costs"), rows["RepeatPreviousPaper, lru, tape"]
    outside, (low, high) = written(tape["outside"]), map(written, tape["outside_95"])
    said = f"By gradient, about half of the sum is older than the task needs ({outside}, interval"
    assert f"{said} {low} to {high}), even for agents that never err." in text
    assert set(tape["returns"]) == {1.0}
    said = f"the tape agent puts {percent(share(tape, 'swap', NEEDED))} % on the one card"
    assert said in text
    assert "in 8 episodes of each of five agents no other card changed what it did" in text
    assert tape["episodes"] == 8 and not np.delete(tape["flips"], NEEDED).any()
    slope, swap = (np.mean(tape[name], axis=0)[NEEDED] for name in ("gradient", "swap"))
    assert f"= {written(2**0.5 * slope)}$. It changes it by {written(swap)}" in text


def test_what_the_agents_of_segments_look_back_at(rows: Any):
    text = prose("08_what_truncation_costs")
    tape, short, long = (
        rows[f"RepeatPreviousPaper, lru, {name}"] for name in ("tape", "segments", "segments of 50")
    )
    assert "a fifth of the swaps of the card one step too old change its action" in text
    assert short["flips"][NEEDED + 1] == 0.2 == np.delete(short["flips"], NEEDED).max()
    assert "yes against $L = 10$" in text and tape["outside_95"][1] < short["outside_95"][0]
    assert "At an equal return, against $L = 50$, the intervals overlap" in text
    assert tape["outside_95"][1] > long["outside_95"][0] and np.mean(long["returns"]) > 0.99
    sizes = np.array(tape["untrained"])
    assert f"An *untrained* LRU has a share of {percent(sizes[10:].sum() / sizes.sum())} %" in text


def test_who_hardly_learned(rows: Any):
    text = prose("08_what_truncation_costs")
    tape, short = (rows[f"RepeatPreviousPaper, ffm, {way}"] for way in ("tape", "segments"))
    said = f"{written(np.mean(tape['returns']))} on the tape, {written(np.mean(short['returns']))}"
    assert f"(mean returns {said} on segments of 10)" in text
    for way in ("tape", "segments"):
        assert max(rows[f"RepeatPreviousPaper, linear_attention, {way}"]["returns"]) < -0.4
    tape, short = (rows[f"RepeatFirstEasy, lru, {way}"] for way in ("tape", "segments"))
    first = {
        measure: " against ".join(percent(share(row, measure, -1)) for row in (tape, short))
        for measure in ("gradient", "swap")
    }
    said = (
        f"{first['gradient']} % by gradient, where seeds overlap. By swaps it is {first['swap']} %"
    )
    assert said in text
    last = [np.array(row["gradient"]) for row in (tape, short)]
    lowest, highest = (f(x[:, -1] / x.sum(axis=1)) for f, x in zip((min, max), last, strict=True))
    assert lowest < highest
