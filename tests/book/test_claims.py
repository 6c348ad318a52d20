"""What chapters 03b, 07, 09 and 09b say of measured rows is what the rows say."""

from typing import Any

import numpy as np
import pytest

from mmrl.course.results import published
from mmrl.runs import interval
from tests.helpers.claims import apart, area, ends, prose, written

CARDS, FIRST = "RepeatPreviousPaper", "RepeatFirstEasy"


@pytest.fixture(scope="module")
def batching() -> dict[tuple[str, str, int], dict[str, Any]]:
    plain = [row for row in published("batching") if not row["quirks"]]
    return {(row["task"], row["memory"], row["segment_length"]): row for row in plain}


def test_both_forms_of_ffm_end_alike():
    rows = {(row["task"], row["form"]): row for row in published("ffm")}
    said = {CARDS: ("0.06", "0.06"), "CountRecallEasy": ("−0.56", "−0.59"), FIRST: ("1.00", "1.00")}
    text = prose("03b_how_long_it_remembers")
    assert "0.06 and 0.06 on RepeatPrevious, at −0.56 and −0.59 on CountRecall" in text
    assert "both at 1.00 on RepeatFirst" in text
    for task, numbers in said.items():
        code, printed = rows[task, "code"], rows[task, "printed"]
        assert tuple(written(ends(row)) for row in (code, printed)) == numbers
        assert not apart(code, printed) and not apart(printed, code)
    both = [rows[FIRST, form] for form in ("code", "printed")]
    said = "There the areas under the curve are {} and {}, with intervals that overlap too"
    assert said.format(*(written(area(row)) for row in both)) in text
    (_, low, _), (_, _, high) = (interval(np.mean(row["returns"], axis=1)) for row in both)
    assert low < high
    printed = [row for row in published("ffm") if row["form"] == "printed"]
    assert "every published row but the three that compare them" in text and len(printed) == 3


def test_no_segments_end_above_their_tape_and_none_are_faster(batching: Any):
    assert "no segments end above their tape in any of our pairs" in prose("07_train_it")
    pairs = [(row, batching[task, memory, 0]) for (task, memory, n), row in batching.items() if n]
    assert len(pairs) > 25
    for row, tape in pairs:
        assert ends(row) <= ends(tape) + 1e-3, row["cell"]
    level = {row["cell"] for row, tape in pairs if ends(row) > ends(tape) - 2e-3}
    assert level == {
        *(f"{CARDS}, lru, segments of {n}" for n in (50, 100)),
        *(f"{FIRST}, gru, segments of {n}" for n in (10, 20, 50, 100)),
    }
    assert not [row["cell"] for row, tape in pairs if area(row) > area(tape)]
    assert "No area under the curve, which counts speed, is above" in prose("07_train_it")


def test_longer_segments_do_not_always_end_higher(batching: Any):
    text = prose("07_train_it")
    assert "On RepeatFirst the LRU learns faster with $L = 20$ than with 50 (by area" in text
    short, long = (batching[FIRST, "lru", n] for n in (20, 50))
    areas = [interval(np.mean(row["returns"], axis=1)) for row in (short, long)]
    assert areas[0][1] > areas[1][2] and not apart(long, short)
    assert "on RepeatPrevious the GRU ends higher with 50 than with 100" in text
    assert apart(batching[CARDS, "gru", 100], batching[CARDS, "gru", 50])


def test_verdicts_on_single_tasks(batching: Any):
    text = prose("07_train_it")
    assert "one step in ten suffices for two thirds" in text
    tenth = batching[CARDS, "lru", 10]
    assert abs(ends(tenth) - 2 / 3) < 0.04
    low, high = map(written, tenth["interval_95"])
    assert f"two thirds: {written(ends(tenth))}, with an interval from {low} to {high}." in text
    assert "GRU and linear attention stay at chance, FFM a little above it, S5 near 0" in text
    for memory in ("gru", "linear_attention"):  # chance is -0.5
        assert ends(batching[CARDS, memory, 10]) < -0.48
    assert (
        batching[CARDS, "ffm", 10]["interval_95"][0] > -0.45
        and ends(batching[CARDS, "ffm", 10]) < -0.35
    )
    on_tape = written(ends(batching[CARDS, "linear_attention", 0]))
    assert f"FFM and GRU near 0, linear attention at {on_tape}." in text
    assert abs(ends(batching[CARDS, "s5", 10])) < 0.1
    for task in ("PositionOnlyCartPoleEasy", "CountRecallEasy"):
        tape = batching[task, "lru", 0]
        assert all(apart(batching[task, "lru", n], tape) for n in (10, 20))
        assert not any(apart(batching[task, "lru", n], tape) for n in (50, 100))
    assert all(
        apart(batching["CountRecallEasy", "gru", n], batching["CountRecallEasy", "gru", 0])
        for n in (10, 20)
    )
    assert "those of 10 and 20 end at half of the tape's return" in text
    assert "the LRU's intervals at $L = 50$ and 100 overlap the tape's" in text
    halves = [batching["PositionOnlyCartPoleEasy", "lru", n] for n in (10, 20)]
    tape = batching["PositionOnlyCartPoleEasy", "lru", 0]
    assert all(0.4 < ends(row) / ends(tape) < 0.6 for row in halves)
    assert all(ends(batching[FIRST, "lru", n]) < 0.9 for n in (10, 20, 50, 100))


def test_what_a_code_s_quirks_change():
    rows = {row["cell"]: row for row in published("batching")}
    plain, unequal = (ends(rows[f"{CARDS}, lru, segments of 10{x}"]) for x in ("", ", loss"))
    assert f"takes segments of 10 from {plain:.2f} to {unequal:.2f}" in prose("07_train_it")
    for side in ("tape", "segments of 10"):
        one, other = rows[f"{CARDS}, lru, {side}"], rows[f"{CARDS}, lru, {side}, target"]
        assert not apart(one, other) and not apart(other, one)


def test_what_a_stored_state_is_worth():
    text, rows = prose("09_r2d2"), {row["cell"]: row for row in published("r2d2")}
    zero, burn, stored, tape = (
        ends(rows[f"{CARDS}, lru, {name}"]) for name in ("zero", "burn in", "stored", "tape")
    )
    found = f"{zero:.2f} from zero, {burn:.2f} with burn-in, {stored:.2f} with stored states"
    assert f"the LRU reaches {found}, and {tape:.2f} on a tape" in text
    names = ("zero", "burn in", "stored", "tape")
    long = [ends(rows[f"RepeatPreviousLong, lru, {name}"]) for name in names]
    assert "the LRU reaches {:.2f}, {:.2f}, {:.2f} and {:.2f}".format(*long) in text
    order = ("zero", "burn in", "stored", "stored burn in", "tape")
    lstm = [ends(rows[f"{CARDS}, lstm, {name}"]) for name in order]
    assert (np.diff(lstm) > 0).all() and "the order is the same, and the tape leads" in text
    worst = min((row for row in rows.values() if row["task"] == FIRST), key=ends)
    low, high = worst["interval_95"]
    assert f"All cells end at {ends(worst):.2f} or above there" in text
    assert f"(the lowest from {low:.2f} to {high:.2f})" in text
    assert worst["interval_95"][1] > 0.995
    assert "in none of six pairs of memory and task" in text
    both = [cell for cell in rows if cell.endswith("stored burn in")]
    assert len(both) == 6
    assert not any(apart(rows[cell.removesuffix(" burn in")], rows[cell]) for cell in both)


def test_how_stale_trained_agents_are():
    text = prose("09b_stale_states")
    rows = [row for row in published("r2d2") if row["delta_q"]]

    def gaps(place: str, rows: Any = rows) -> np.ndarray:
        """[start, agent], in the order that the source expects, the largest first."""
        names = ("zero", "burn_in", "stored", "stored_burn_in")
        return np.array([np.concatenate([r["delta_q"][n][place] for r in rows]) for n in names])

    first, last = gaps("first"), gaps("last")
    agents = first.shape[1]
    largest, smallest = (np.sum(first.argmax(0) == 0), np.sum(first.argmin(0) == 3))
    assert largest == agents and 0 < np.sum(first[1] < first[2]) < agents
    assert f"In {agents} agents" in text and f"at the first trained step in all {largest}" in text
    assert f"both together the smallest in {smallest};" in text
    below = np.sum(last[1] < last[0])
    assert f"is below zero start's in {below} of {agents} agents" in text
    assert f"there, at the last step: in {np.sum(last.argmin(0) == 3)} of {agents}." in text
    ratios = [float(np.median(x[1] / x[0])) for x in (last, first)]
    assert np.allclose(ratios, [2 / 3, 2 / 5], atol=0.04), ratios
    assert "(median ratio two thirds; at the first, two fifths)" in text
    lru = gaps("first", [row for row in rows if row["memory"] == "lru"])
    ordered = (np.diff(lru, axis=0) < 0).all(0)
    assert f"{ordered.sum()} of {ordered.size} trained LRUs have it at the first step" in text
