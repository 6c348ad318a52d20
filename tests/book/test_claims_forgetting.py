"""What chapters 13 and 14 say of measured rows is what the rows say: numbers and verdicts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from mmrl.course.continual.cycles import forward_transfer
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


def at_ends(row: Any) -> np.ndarray:
    """[stage], the mean score of each stage's task when it ends."""
    scores = np.mean(row["scores"], axis=0)[6::6]
    return np.array([scores[stage, task] for stage, task in enumerate(row["order"])])


def spaced(row: Any) -> str:
    """What is played when a task ends, which is not counted."""
    return f"{row['boundary_steps']:,}".replace(",", " ")


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
    assert f"CLEAR learns it *better* late, {clear[-1]:.2f} against {clear[0]:.2f}, and" in text
    said = f"V-trace alone worse, {alone[-1]:.2f} against {alone[0]:.2f}, which CLEAR never has."
    assert said in text and max(clear) < alone[0]
    assert replayed[0] > 0.3 and max(replayed[1:]) < -0.25  # chance is -0.6
    assert "it is worse whenever others came before" in text
    sure = (
        rows[f"Catch, probed at 9, {x}"]["diagnostics"]["entropy"] for x in ("V-trace", "CLEAR")
    )
    own, clears = (entropy[6 * 9 - 1] for entropy in sure)
    assert f"before the last probe their entropy is {own:.2f} nats, with CLEAR {clears:.2f}" in text


def test_transfer_to_a_probe_is_negative(rows: Rows):
    fresh = rows["Catch, probed at 0, V-trace"]
    alone = in_its_stage(fresh).ravel()
    assert np.all(in_its_stage(fresh["greedy"]) == 1), "0/0"

    def transfers(method: str, places: int) -> list[str]:
        later = (in_its_stage(rows[f"Catch, probed at {at}, {method}"]) for at in (3, 6, 9))
        return [
            written(float(forward_transfer(scores.ravel(), alone, 1.0)), places) for scores in later
        ]

    clear, own = transfers("CLEAR", 2), transfers("V-trace", 1)
    wanted = (
        f"Sampled it has {alone.mean():.2f}, and transfer is negative: with CLEAR {clear[0]}, "
        f"{clear[1]} and {clear[2]} after 3, 6 and 9 stages, with V-trace {own[0]}, {own[1]} and "
        f"{own[2]}."
    )
    assert wanted in prose("13_forgetting")


def test_what_did_not_reproduce_of_forgetting(rows: Rows):
    text = prose("13_forgetting")
    at_once, separate = (one(rows, "V-trace", name) for name in ("simultaneous", "separate"))
    assert f"has {ends(at_once):.2f} and separate training {ends(separate):.2f}, with" in text
    assert not apart(at_once, separate)
    alone = one(rows, "V-trace")
    soon, *late = (
        per_cent(left(alone, (s, s + 1, s + 2), n)) for s, n in ((0, 1), (0, 12), (3, 12), (6, 12))
    )
    assert f"{soon} of all gains is left after 12 000 steps, and {late[0]} after two stages" in text
    assert f"in the next cycles {late[1]} and {late[2]}." in text
    ours = above(alone, at_once)
    paper = np.divide(FIGURE_8["sequential"][2], FIGURE_8["simultaneous"][2])
    low, high = min(paper), max(paper)
    assert low < ours.mean() < high
    assert f"has {ours.mean():.2f} of simultaneous training's score above chance, as in" in text
    by_task = "{:.2f}, {:.2f} and {:.2f}".format(*ours)
    assert f"the paper ({low:.2f} to {high:.2f}), but by task {by_task}." in text


def test_v_trace_alone_can_forget_less(rows: Rows):
    text, tuned, alone = prose("13_forgetting"), one(rows, "tuned V-trace"), one(rows, "V-trace")
    for name, share in {"learning_rate": 0.1, "entropy_weight": 0.3}.items():
        assert tuned["chosen"][name] == pytest.approx(share * alone["settings"][name])
    assert "1/10 of the learning rate and 3/10 of the entropy weight" in text
    first, other = (float(np.mean(first_lessons(row))) for row in (tuned, alone))
    soon = per_cent(left(tuned, range(3), 12))
    assert f"it keeps {kept(tuned)} (of the first cycle's gains {soon})," in text
    assert f"but first stages have {first:.2f}, not {other:.2f}." in text


# Chapter 14


def shares(row: Any, other: Any) -> tuple[str, str]:
    """Cumulative performance as a share of another's: as it is, and above chance."""
    mine, theirs = (float(np.mean(x["cumulative"])) for x in (row, other))
    return per_cent(mine / theirs), per_cent((mine - CHANCE) / (theirs - CHANCE))


def test_clear_beside_simultaneous_training(rows: Rows):
    text, clear = prose("14_clear"), one(rows, "CLEAR")
    at_once = one(rows, "V-trace", "simultaneous")
    sampled, greedy = shares(clear, at_once), shares(clear["greedy"], at_once["greedy"])
    assert f"CLEAR reaches {sampled[0]} of simultaneous training, {sampled[1]} above" in text
    assert f"(greedily {greedy[0]} and {greedy[1]})" in text
    paper = np.divide(FIGURE_8["CLEAR, room for 1/18"][2], FIGURE_8["simultaneous"][2])
    said = f"the three tasks of the paper have {min(paper):.0%} to {max(paper):.0%}"
    assert said.replace("%", " %") in text


def test_how_much_replay_is_enough(rows: Rows):
    text = prose("14_clear")
    quarter, half, most, alone = (
        one(rows, name) for name in ("25 % replay", "CLEAR", "75 % replay", "100 % replay")
    )
    said = (
        "Of all gains, added up, a quarter of replay keeps {}, a half {}, three quarters {}, "
        "replay alone {}"
    )
    found = (left(row, range(10), 12) for row in (quarter, half, most, alone))
    assert said.format(*map(per_cent, found)) in text
    first = [written(float(np.mean(first_lessons(row)))) for row in (half, most, alone)]
    said = "first stages have {} with a half, {} with three quarters, and {} with replay alone."
    assert said.format(*first) in text


def test_how_much_cloning_and_room_matter(rows: Rows):
    text = prose("14_clear")
    none, paper, policy, value = (
        kept(one(rows, name))
        for name in ("without cloning", "cloning 0.01", "policy cloning only", "value cloning only")
    )
    assert f"{none} is left without it, and {paper} with the paper's weights" in text
    clear, alone, tuned = (kept(one(rows, name)) for name in ("CLEAR", "V-trace", "tuned V-trace"))
    assert f"cloning is most of the method: CLEAR keeps {clear}, but" in text
    said = f"V-trace alone keeps {alone}. (Tuned for itself, V-trace keeps {tuned}; see below.)"
    assert said in text
    assert f"policy cloning alone keeps {policy}, but value cloning alone keeps {value}" in text
    weights = [one(rows, name)["settings"]["entropy_weight"] for name in ("CLEAR", "cloning 0.01")]
    assert weights == pytest.approx([20 * 0.005] * 2) and "twenty times the paper's" in text
    least, some, large = (one(rows, f"reservoir {size}") for size in ("1/7200", "1/200", "1/2"))
    half, room = (np.array(FIGURE_8[f"CLEAR, room for {size}"][2]) for size in ("1/2", "1/180"))
    lost = [100 * f(x) for x in (1 - above(some, large), 1 - room / half) for f in (min, max)]
    wanted = (
        "instead of 1/2, costs {:.0f} to {:.0f} % above chance, and in the paper {:.0f} to {:.0f} "
        "%. Even 1/7200, one unroll for each environment, keeps"
    )
    assert f"{wanted.format(*lost)} {kept(least)}." in text


def test_what_cloning_does_in_the_dark(rows: Rows):
    names = ("V-trace", "CLEAR", "without cloning")
    alone, clear, none = found = [one(rows, name, family="Dark") for name in names]
    said = [written(ends(row)) for row in found]
    wanted = (
        f"V-trace has the cumulative performance {said[0]}, CLEAR {said[1]}, and {said[2]} without "
        "cloning. All were tuned"
    )
    assert wanted in prose("14_clear")
    assert apart(alone, none) and apart(none, clear)


def test_clear_beside_its_rivals_each_tuned_for_itself(rows: Rows):
    text = prose("14_clear")
    names = ("tuned CLEAR", "EWC", "Progress & Compress", "tuned V-trace")
    clear, ewc, progress, alone = found = [one(rows, name) for name in names]
    said = "CLEAR has {:.2f}, EWC {:.2f}, P&C {:.2f}, and V-trace alone {:.2f}".format(
        *map(ends, found)
    )
    soon = per_cent(left(alone, range(3), 12))
    wanted = (
        f"{said}. With smaller steps and less entropy V-trace keeps {kept(alone)} ({soon} of the"
    )
    assert f"{wanted} first cycle's gains), but it learns slowly." in text
    low, high = (f(at_ends(progress)) for f in (min, max))
    wanted = (
        f"P&C's stages end at {low:.2f} to {high:.2f}, but it keeps {kept(progress)}. EWC keeps"
    )
    low, high = (f(at_ends(ewc)[2::3]) for f in (min, max))
    assert f"{wanted} {kept(ewc)}, but ends its third task at {low:.2f} to {high:.2f}." in text
    assert f"P&C plays {spaced(progress)} steps more after each stage of 72 000, and" in text
    assert f"after each stage of 72 000, and EWC plays {spaced(ewc)}." in text
    assert apart(ewc, clear) and apart(progress, clear) and ends(alone) < ends(clear)


def test_who_learns_the_games():
    text = prose("14_clear")
    rows = {(row["protocol"], row["method"]): row for row in published("minatar")}

    def learn_freeway(protocol: str, method: str) -> int:
        return int(np.sum(np.max(np.array(rows[protocol, method]["scores"])[:, :, 2], axis=1) > 5))

    separate, alone = learn_freeway("separate", "V-trace"), learn_freeway("sequential", "V-trace")
    assert (
        f"by separate networks on {separate} seeds, by V-trace in sequence on {alone}, and" in text
    )
    assert learn_freeway("sequential", "CLEAR") == 0 and "and by CLEAR on none" in text

    def left(method: str) -> list[list[float]]:
        """By seed, the shares of stages of the other two games."""
        row: Any = rows["sequential", method]
        games = [stage for stage, task in enumerate(row["order"][:4]) if task != 2]
        seeds = [[shares[stage] for stage in games] for shares in row["shares"]]
        return [[x for x in seed if np.isfinite(x)] for seed in seeds]

    alone, ours = ([100 * np.mean(seed) for seed in left(who)] for who in ("V-trace", "CLEAR"))
    said = f"Space Invaders V-trace keeps {min(alone):.0f} to {max(alone):.0f} %, and CLEAR"
    assert f"{said} {min(ours):.0f} % at least, by seed." in text


def test_where_in_their_grids_the_rivals_best_settings_lie(rows: Rows):
    text = prose("14_clear")

    def ended(method: str) -> set[str]:
        """The settings of which the best is the smallest or the largest that was tried."""
        row = one(rows, method)
        tried = {name: {x[name] for x in row["tuning"]} for name in row["chosen"]}
        return {k for k, x in tried.items() if row["chosen"][k] in (min(x), max(x))}

    assert ended("EWC") == {"learning_rate", "entropy_weight"}
    assert "EWC's best rate and entropy weight lie at the upper ends of the grid" in text
    assert ended("Progress & Compress") == set(one(rows, "Progress & Compress")["chosen"])
    assert "P&C's best lies at the end of all three ranges" in text
    assert not ended("tuned CLEAR") | ended("tuned V-trace")
    dark = one(rows, "V-trace", "simultaneous", "Dark")
    tried = {x["entropy_weight"] for x in dark["tuning"]}
    assert len(tried) == 2 and dark["chosen"]["entropy_weight"] == min(tried)
    assert "simultaneous V-trace, whose entropy weight was the smaller of the two tried" in text
    methods = ("V-trace", "CLEAR", "without cloning")
    assert all(one(rows, x, family="Dark")["chosen"] == dark["chosen"] for x in methods)
