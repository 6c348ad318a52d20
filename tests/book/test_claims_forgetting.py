"""What chapters 13 and 14 say of measured rows is what the rows say: numbers and verdicts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mmrl.course.figures.clear import FIGURE_8, first_lessons
from mmrl.course.figures.forgetting import in_its_stage, sampled
from mmrl.course.results import published
from tests.helpers.claims import apart, ends, prose, written

CHANCE = -0.6
Rows = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def rows() -> Rows:
    return {row["cell"]: sampled(row) for row in published("forgetting")}


def one(rows: Rows, method: str, protocol: str = "sequential", family: str = "Catch") -> Any:
    return rows[f"{family}, {protocol}, {method}"]


def per_cent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


def kept(row: Any) -> str:
    """The mean share over seeds that is left of a gain."""
    return per_cent(float(np.mean(row["retained"])))


def above(row: Any, other: Any) -> np.ndarray:
    """[task], cumulative performance above chance as a share of another's."""
    mine, theirs = (np.mean(x["cumulative"], axis=0) - CHANCE for x in (row, other))
    return mine / theirs


def left(row: Any, stages: Sequence[int], evaluations: int) -> float:
    """The share of the gains of these stages that is left so many evaluations after their ends."""
    scores, blocks = np.array(row["scores"]), 6
    gained = remains = 0.0
    for stage in stages:
        task, end = row["order"][stage], (stage + 1) * blocks
        gained += np.sum(scores[:, end, task] - scores[:, 0, task])
        remains += np.sum(scores[:, end + evaluations, task] - scores[:, 0, task])
    return remains / gained


def test_how_sure_the_policies_are(rows: Rows):
    at_once, in_turn, clear = (
        one(rows, *which)["diagnostics"]["entropy"][-1]
        for which in (("V-trace", "simultaneous"), ("V-trace",), ("CLEAR",))
    )
    wanted = (
        f"the entropy ends at {at_once:.2f} nats in simultaneous training, at {in_turn:.2f} with "
        f"V-trace in sequence and at {clear:.2f} with CLEAR, of ln 3 = 1.10 at most"
    )
    assert wanted in prose("13_forgetting")


def test_what_is_kept_with_and_without_clear(rows: Rows):
    clear, alone, text = one(rows, "CLEAR"), one(rows, "V-trace"), prose("13_forgetting")
    said = (kept(clear), kept(clear["greedy"]), kept(alone), kept(alone["greedy"]))
    wanted = (
        "With CLEAR {} of a gain is left two stages later (greedily {}), with V-trace alone {} ({})"
    )
    assert wanted.format(*said) in text
    waits = np.array([1, 7, 13])  # evaluations before a task is perfect

    def most(row: Any) -> float:
        begin = np.array(row["scores"])[:, 0].mean(0)
        return float(np.mean((begin * waits + 73 - waits) / 73))

    sampled, greedy = (float(np.mean(row["cumulative"])) for row in (clear, clear["greedy"]))
    assert f"on: {most(clear):.2f} in the mean over tasks. CLEAR has {sampled:.2f}," in text
    assert f"and greedily {greedy:.2f} of {most(clear['greedy']):.2f}" in text


def test_how_well_a_probe_is_learned(rows: Rows):
    text = prose("13_forgetting")

    def learned(method: str) -> list[float]:
        places = (rows[f"Catch, probed at {at}, {method}"] for at in (0, 3, 6, 9))
        return [float(in_its_stage(row).mean()) for row in places]

    clear, alone, replayed = (learned(name) for name in ("CLEAR", "V-trace", "100 % replay"))
    assert clear[0] == min(clear) and alone == sorted(alone, reverse=True)
    assert f"it is learned *better* late, {clear[-1]:.2f} against {clear[0]:.2f}, and" in text
    assert f"with V-trace alone worse, {alone[-1]:.2f} against {alone[0]:.2f}." in text
    assert replayed[0] > 0.3 and max(replayed[1:]) < -0.25  # chance is -0.6
    sure = (
        rows[f"Catch, probed at 9, {x}"]["diagnostics"]["entropy"] for x in ("V-trace", "CLEAR")
    )
    own, clears = (entropy[6 * 9 - 1] for entropy in sure)
    assert f"before the last probe their entropy is {own:.2f} nats, with CLEAR {clears:.2f}" in text


def test_what_did_not_reproduce_of_forgetting(rows: Rows):
    text = prose("13_forgetting")
    at_once, separate = (one(rows, "V-trace", name) for name in ("simultaneous", "separate"))
    assert f"has {ends(at_once):.2f} and separate training {ends(separate):.2f}, with" in text
    assert not apart(at_once, separate)
    alone = one(rows, "V-trace")
    soon, *late = (
        per_cent(left(alone, (s, s + 1, s + 2), n)) for s, n in ((0, 1), (0, 12), (3, 12), (6, 12))
    )
    assert f"{soon} of a gain is left after 12 000 steps, and {late[0]} after two stages" in text
    assert f"in the next cycles {late[1]} and {late[2]}." in text
    shares = [f"{x:.2f}" for x in above(alone, at_once)]
    assert f"ours has {shares[0]}, {shares[1]} and {shares[2]} of simultaneous" in text
    low, high = (
        f(np.divide(*(FIGURE_8[x][2] for x in ("sequential", "simultaneous")))) for f in (min, max)
    )
    assert f"the paper {low:.2f} to {high:.2f}" in text


def test_small_steps_forget_little(rows: Rows):
    text, tuned, alone = prose("13_forgetting"), one(rows, "tuned V-trace"), one(rows, "V-trace")
    assert tuned["chosen"]["learning_rate"] * 10 == pytest.approx(
        alone["settings"]["learning_rate"]
    )
    first, other = (float(np.mean(first_lessons(row))) for row in (tuned, alone))
    assert f"a tenth of the learning rate and keeps {kept(tuned)}," in text
    assert f"in first stages it has {first:.2f} in the mean, where `CATCH` has {other:.2f}" in text


# Chapter 14


def shares(row: Any, other: Any) -> tuple[str, str]:
    """Cumulative performance as a share of another's: as it is, and above chance."""
    mine, theirs = (float(np.mean(x["cumulative"])) for x in (row, other))
    return per_cent(mine / theirs), per_cent((mine - CHANCE) / (theirs - CHANCE))


def test_clear_beside_simultaneous_training(rows: Rows):
    text, clear = prose("14_clear"), one(rows, "CLEAR")
    at_once = one(rows, "V-trace", "simultaneous")
    sampled, greedy = shares(clear, at_once), shares(clear["greedy"], at_once["greedy"])
    assert f"stays at {clear['diagnostics']['entropy'][-1]:.2f} of 1.10 nats" in text
    assert f"CLEAR reaches {sampled[0]} of simultaneous training, {sampled[1]} if counted" in text
    assert f"(greedily {greedy[0]} and {greedy[1]})" in text
    paper = np.divide(FIGURE_8["CLEAR, room for 1/18"][2], FIGURE_8["simultaneous"][2])
    assert f"the paper's {min(paper):.0%} to {max(paper):.0%}".replace("%", " %") in text


def test_how_much_replay_is_enough(rows: Rows):
    text = prose("14_clear")
    quarter, half, most, alone = (
        one(rows, name) for name in ("25 % replay", "CLEAR", "75 % replay", "100 % replay")
    )
    said = "A quarter of replay keeps {}, a half {}, three quarters {}"
    assert said.format(*map(kept, (quarter, half, most))) in text
    first, other = (written(float(np.mean(first_lessons(row)))) for row in (alone, half))
    assert f"With replay alone {kept(alone)} is kept" in text
    assert f"a task's first stage has {first} in the mean, where CLEAR has {other}" in text


def test_how_much_cloning_and_room_matter(rows: Rows):
    text = prose("14_clear")
    none, paper, ours, policy, value = (
        kept(one(rows, name))
        for name in (
            "without cloning",
            "cloning 0.01",
            "CLEAR",
            "policy cloning only",
            "value cloning only",
        )
    )
    assert f"without it {none} is left, with the paper's weights {paper}, with ours {ours}" in text
    assert f"policy cloning alone keeps {policy}, value cloning alone {value}" in text
    weights = [one(rows, name)["settings"]["entropy_weight"] for name in ("CLEAR", "cloning 0.01")]
    assert weights == pytest.approx([20 * 0.005] * 2) and "twenty times the paper's" in text
    least, some, large = (one(rows, f"reservoir {size}") for size in ("1/7200", "1/200", "1/2"))
    assert f"keeps {kept(least)}, 1/200 keeps {kept(some)}, a half {kept(large)}." in text
    assert f"from {ends(large):.2f} to {ends(some):.2f} cumulatively" in text and apart(some, large)
    half, room = (np.array(FIGURE_8[f"CLEAR, room for {size}"][2]) for size in ("1/2", "1/180"))
    assert 0.03 < max(1 - room / half) < 0.04 and "the paper by 4 % at most" in text


def test_what_cloning_does_in_the_dark(rows: Rows):
    names = ("V-trace", "CLEAR", "without cloning")
    alone, clear, none = found = [one(rows, name, family="Dark") for name in names]
    said = [written(ends(row)) for row in found]
    wanted = f"There V-trace has {said[0]} cumulatively, CLEAR {said[1]}, and {said[2]} without"
    assert wanted in prose("14_clear")
    assert apart(alone, none) and apart(none, clear)


def test_clear_beside_its_rivals_each_tuned_for_itself(rows: Rows):
    text = prose("14_clear")
    names = ("tuned CLEAR", "EWC", "Progress & Compress", "tuned V-trace")
    clear, ewc, progress, alone = found = [one(rows, name) for name in names]
    said = "CLEAR has {:.2f}, EWC {:.2f}, P&C {:.2f}, and V-trace alone {:.2f}".format(
        *map(ends, found)
    )
    assert f"{said}: with small steps it keeps {kept(alone)}, and learns slowly" in text
    assert apart(ewc, clear) and apart(progress, clear) and ends(alone) < ends(clear)


def test_who_learns_the_games():
    text = prose("14_clear")
    rows = {(row["protocol"], row["method"]): row for row in published("minatar")}

    def learn_freeway(*which: str) -> int:
        return int(np.sum(np.max(np.array(rows[which]["scores"])[:, :, 2], axis=1) > 5))

    separate, alone = learn_freeway("separate", "V-trace"), learn_freeway("sequential", "V-trace")
    assert (
        f"by separate networks on {separate} seeds, by V-trace in sequence on {alone}, by" in text
    )
    assert learn_freeway("sequential", "CLEAR") == 0 and "by CLEAR on none" in text
    left = rows["sequential", "V-trace"]["retained"]
    assert f"V-trace {100 * min(left):.0f} to {100 * max(left):.0f} %" in text
    assert (
        min(rows["sequential", "CLEAR"]["retained"]) >= 1 and "CLEAR keeps all of two games" in text
    )


def test_where_in_their_grids_the_rivals_best_settings_lie(rows: Rows):
    text = prose("14_clear")

    def ended(method: str) -> set[str]:
        """The settings of which the best is the smallest or the largest that was tried."""
        row = one(rows, method)
        tried = {name: {x[name] for x in row["tuning"]} for name in row["chosen"]}
        return {k for k, x in tried.items() if row["chosen"][k] in (min(x), max(x))}

    assert ended("EWC") == {"learning_rate", "entropy_weight"}
    assert "its rate and entropy weight at the upper ends of the grid" in text
    assert ended("Progress & Compress") == set(one(rows, "Progress & Compress")["chosen"])
    assert "P&C's best lies at the end of all three ranges" in text
    assert not ended("tuned CLEAR") | ended("tuned V-trace")
