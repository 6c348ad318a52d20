"""What chapters 10 to 12 say of measured rows is what the rows say: numbers and verdicts."""

from typing import Any

import numpy as np
import pytest

from mmrl.course.experiments import stratified
from mmrl.course.results import published
from tests.helpers.claims import apart, ends, prose, written

CARDS, FIRST = "RepeatPreviousPaper", "RepeatFirstEasy"
LATE, AT = ("behavior", "decoupled", "recent"), (0.00025, 0.001, 0.004)
EVERY, CARRIED = stratified.EVERY, "64 steps carried"


def rounded(numbers: Any, places: int = 2) -> list[str]:
    return [written(number, places) for number in numbers]


# ---- chapter 10


@pytest.fixture(scope="module")
def ppo() -> dict[str, dict[str, Any]]:
    return {row["cell"]: row for row in published("ppo")}


def test_a_scan_a_walk_and_nothing(ppo: Any):
    text = prose("10_ppo_with_memory")
    lru, gru, none = (ppo[f"{CARDS}, {m}, {CARRIED}"] for m in ("lru", "gru", "none"))
    said = f"the LRU reaches {written(ends(lru))}, the GRU {written(ends(gru))}, the MLP"
    assert said in text and abs(ends(none) + 0.5) < 0.01
    first, walked = (ppo[f"{FIRST}, {m}, {CARRIED}"] for m in ("lru", "gru"))
    last = np.array(first["returns"])[:, -1]
    assert (
        f"the GRU reaches {written(ends(walked))}, the LRU {written(ends(first))} with seeds from "
        f"{written(last.min())} to {written(last.max())}, all still rising" in text
    )
    assert (np.argmax(first["returns"], axis=1) == len(first["returns"][0]) - 1).all()
    assert "One of our two tasks says so, the other says the reverse" in text
    assert apart(gru, lru) and apart(first, walked)
    assert "Where a memory did badly, the highest rate on offer was chosen" in text
    for row in (gru, first):
        assert row["learning_rate"] == max(map(float, row["tuning"]))


def test_what_carried_states_are_worth_to_short_rollouts(ppo: Any):
    text = prose("10_ppo_with_memory")
    carried, forgotten = (ppo[f"{CARDS}, lru, 16 steps {x}"] for x in ("carried", "forgotten"))
    assert f"With the state carried the LRU reaches {written(ends(carried))} again." in text
    assert f"If learning forgets it, the LRU reaches {written(ends(forgotten))}," in text
    assert apart(forgotten, carried)
    pole = ppo["CartPole-v1, none, 128 steps carried"]
    last = sorted(round(row[-1]) for row in pole["returns"])
    assert last == [431, 500, 500, 500, 500, 500] and round(pole["env_steps"][-1], -4) == 500_000
    assert "after 500 000 steps five of six seeds end at 500, one at 431" in text


def test_what_a_policy_s_memory_costs(ppo: Any):
    text = prose("10_ppo_with_memory")
    cost = {
        (task, memory): ppo[f"{task}, {memory}, {CARRIED}"]["cpu_seconds"][-1]
        for task in (CARDS, FIRST)
        for memory in ("lru", "gru", "none")
    }
    one = [written(cost[CARDS, memory], 1) for memory in ("lru", "gru", "none")]
    said = "an agent costs {} CPU-seconds with the LRU, {} with the GRU, {} with the MLP"
    assert said.format(*one) in text
    over = [cost[CARDS, memory] / cost[CARDS, "none"] for memory in ("lru", "gru")]
    assert f"cost {over[0]:.0f} times as much, with the GRU {over[1]:.0f} times" in text
    slower = sorted(cost[task, "gru"] / cost[task, "lru"] for task in (CARDS, FIRST))
    assert "a GRU's runs take {:.1f}-{:.1f} times an LRU's".format(*slower) in text


# ---- chapter 11


@pytest.fixture(scope="module")
def stale() -> dict[tuple[str, str, int], dict[float, float]]:
    """Areas by learning rate; at 0, that of the rate which the tuning seeds chose."""
    found = {}
    for row in published("staleness"):
        areas = dict(zip(row["rates"], row["interquartile_mean"], strict=True))
        key = row["task"], row["proximal"], row["staleness"]
        found[key] = {**areas, 0: areas[row["learning_rate"]]}
    return found


def test_late_rollouts(stale: Any):
    text = prose("11_three_policies")
    assert "| iterations late | behavior | decoupled | recent |" in text
    for rate, written_rate in ((AT[0], "0.00025"), (AT[2], "0.004")):
        areas = rounded(stale["Catch", name, 16][rate] for name in LATE)
        assert f"| Catch, {written_rate} | 16 | {' | '.join(areas)} |" in text
    assert "the small rate gives the paper's order, but the large one, which is" in text
    slow, fast = ([stale["Catch", name, 16][rate] for name in LATE] for rate in (AT[0], AT[2]))
    assert slow[1] > slow[0] > slow[2] and fast[0] > fast[1] > fast[2]
    assert stale["Catch", "behavior", 0][AT[2]] == max(stale["Catch", "behavior", 0].values())

    for task in ("RepeatPreviousEasy", "Breakout"):
        for n in (4, 16):
            areas = rounded(stale[task, name, n][0] for name in LATE)
            assert f"| {task}, own best | {n} | {' | '.join(areas)} |" in text
    fresh = rounded(stale[task, "behavior", 0][0] for task in ("RepeatPreviousEasy", "Breakout"))
    said = "RepeatPreviousEasy, where the memory is an LRU, has {}, and Breakout has {}"
    assert said.format(*fresh) in text


def overlap(task: str, staleness: int, rate: float) -> bool:
    """Do the intervals of decoupled and behavior overlap, at a rate or at their own best?"""
    ends = []
    for row in published("staleness"):
        if (row["task"], row["staleness"]) == (task, staleness) and row["proximal"] in LATE[:2]:
            k = row["rates"].index(rate or row["learning_rate"])
            ends.append(row["interval_95"][k])
    (low, high), (other_low, other_high) = ends
    return low <= other_high and other_low <= high


def test_who_is_best_under_staleness(stale: Any):
    text = prose("11_three_policies")
    assert "On Catch with a small rate it is ahead, but intervals overlap." in text
    for n in (4, 16, 48):
        slow = [stale["Catch", name, n][AT[0]] for name in ("decoupled", "behavior", "recent")]
        assert slow[0] == max(slow) and overlap("Catch", n, 0.00025)
    fresh, late = (
        stale["Catch", name, n][AT[2]] for name, n in (("behavior", 0), ("decoupled", 4))
    )
    own = stale["Catch", "behavior", 4][AT[2]]
    said = f"take decoupled from {written(fresh)} to {written(late)}, and PPO's own choice to"
    assert f"{said} {written(own)};" in text
    assert "on Breakout, four and sixteen late, and on RepeatPreviousEasy, sixteen late" in text
    for task, n in (("Breakout", 4), ("Breakout", 16), ("RepeatPreviousEasy", 16)):
        assert stale[task, "behavior", n][0] > stale[task, "decoupled", n][0] + 0.03
        assert overlap(task, n, 0)
    assert "behavior is ahead too, but each time intervals overlap." in text
    assert overlap("Catch", 4, 0.004)
    assert "so at the rate 0.004, on all three tasks; at 0.00025 it is within 0.05 of the" in text
    for task in ("Catch", "RepeatPreviousEasy", "Breakout"):
        slow, _, fast = ([stale[task, name, 4][rate] for name in LATE] for rate in AT)
        assert fast[2] < min(fast[:2]) and fast[2] < stale[task, "behavior", 0][AT[2]] / 2
        assert slow[2] > max(slow) - 0.05


def test_what_an_average_adds():
    text = prose("11_three_policies")
    rows = {row["cell"]: row for row in published("ewma")}
    of_ppo, of_ppg = rows["PPO-EWMA against PPO"], rows["PPG-EWMA against PPG"]
    assert of_ppo["tasks"] == ["Catch", "RepeatPreviousEasy", "Breakout"] == of_ppg["tasks"]
    more = rounded(of_ppo["area_difference"])
    assert "by {} on Catch, {} on RepeatPreviousEasy, {} on Breakout".format(*more) in text
    most = max(map(abs, of_ppg["area_difference"]))
    assert f"and PPG by at most {most:.3f}" in text
    p = rounded(row["p"]["area"] for row in (of_ppo, of_ppg))
    assert "(p = {}, {}; eight seeds)".format(*p) in text and len(of_ppo["seeds"]) == 8
    assert "There are none here, on three tasks" in text
    for row in (of_ppo, of_ppg):
        assert not any(low > 0 for low, _ in row["area_interval_95"])
        assert min(row["area_difference"]) < 0 < max(row["area_difference"])
    grid = rows["Catch, center of mass and weight"]
    young, old = (written(grid["means"][grid["weights"].index(8)][k]) for k in (0, -1))
    said = "With $\\beta = 8$ on Catch (three seeds) young averages have"
    assert f"{said} {young}, old ones {old}." in text
    assert len(grid["seeds"]) == 3
    names = ("Catch", "RepeatPreviousEasy", "Breakout")
    cost = {
        agent: [
            rows[f"{task}, {agent}-EWMA"]["cpu_seconds"][-1]
            / rows[f"{task}, {agent}"]["cpu_seconds"][-1]
            for task in names
        ]
        for agent in ("PPO", "PPG")
    }
    added = [f"{100 * (x - 1):.0f} %" for x in cost["PPO"]]
    saved = [f"{100 * (1 - x):.0f} %" for x in cost["PPG"]]
    said = "PPO takes {}, {} and {} more CPU time with the average, PPG {}, {} and {} *less*"
    assert said.format(*added, *saved) in text


# ---- chapters 12 and 12b


class Finals:
    """Mean final returns, and how far they spread over c."""

    def __init__(self):
        self.rows = [row for row in published("invariance") if not row["quick"]]
        self.pairs = list(dict.fromkeys((row["task"], row["agent"]) for row in self.rows))

    def by_factor(self, task: str, agent: str, condition: str) -> dict[int, Any]:
        return stratified.select(self.rows, agent, condition)[task]

    def __call__(self, task: str, agent: str, condition: str, c: int) -> float:
        return float(stratified.final(self.by_factor(task, agent, condition)[c]).mean())

    def spread(self, task: str, agent: str, condition: str) -> float:
        return stratified.spread(self.by_factor(task, agent, condition), stratified.final)


@pytest.fixture(scope="module")
def final() -> Finals:
    return Finals()


def test_how_invariant_final_returns_are(final: Finals):
    text = prose("12_batch_size_invariance")
    spread = {pair: final.spread(*pair, EVERY) for pair in final.pairs}
    said = (
        "On Catch, the final returns of PPG-EWMA spread over the four batches, "
        "$c = 1, 4, 16, 64$, by"
    )
    assert f"{said} {spread['Catch', 'ppg']:.3f}" in text
    said = f"With every rule, final returns spread by at most {max(spread.values()):.2f}."
    assert said in text
    assert (
        f"Those of PPO-EWMA spread by {spread['Catch', 'ppo']:.2f} on Catch, by "
        f"{spread['CatchLong', 'ppo']:.2f} in runs twice as long, where single seeds stick, by "
        f"{spread['Breakout', 'ppo']:.2f} on Breakout, and by "
        f"{spread['RepeatPrevious', 'ppo']:.3f} on RepeatPrevious with an LRU" in text
    )

    def two(task: str, agent: str, condition: str) -> list[str]:
        return rounded(final(task, agent, one, 64) for one in (condition, EVERY))

    linear = "linear step size"
    one, whole = two("Catch", "ppo", linear)
    longer, most = two("CatchLong", "ppo", linear)
    said = (
        f"PPO-EWMA ends at {one} instead of {whole} on Catch, and at {longer} instead of {most} in"
    )
    assert said in text
    said = "PPG-EWMA on Catch ends at {} instead of {}".format(*two("Catch", "ppg", linear))
    assert said in text
    assert "at {} instead of {} on Breakout".format(*two("Breakout", "ppo", linear)) in text
    said = "but at {} instead of {} on RepeatPrevious"
    assert said.format(*two("RepeatPrevious", "ppo", linear)) in text


def test_what_the_advantages_rule_is_for(final: Finals):
    text, left_out = prose("12b_advantage_moments"), "no advantage span"
    assert "At ÷ 4 the rule for the advantages does not matter" in text
    for pair in final.pairs:
        assert abs(final(*pair, left_out, 4) - final(*pair, EVERY, 4)) < 0.005
    swing = np.mean(final.by_factor("Catch", "ppo", left_out)[64]["advantage_swing"])
    said = "At ÷ 64 on Catch, the deviation that PPO-EWMA divides by swings"
    assert f"{said} {round(swing, -2):.0f}-fold" in text
    own, whole = rounded(final("Catch", "ppo", one, 64) for one in (left_out, EVERY))
    other, all_of_it = rounded(final("Catch", "ppg", one, 64) for one in (left_out, EVERY))
    assert f"it ends at {own} instead of {whole}. PPG-EWMA ends at {other}" in text
    assert f"PPG-EWMA ends at {other} instead of {all_of_it}" in text


def test_how_noisy_gradients_were(final: Finals):
    text = prose("12_batch_size_invariance")
    rows = [row for row in final.rows if row["noise_scale"]]
    scales = sorted(one["scale"] for row in rows for one in row["noise_scale"])
    low, high = round(scales[0], -1), round(scales[-1], -2)
    found = f"noise scale $B$ is {low:.0f} to {high:.0f} of them, mostly hundreds"
    assert found in text and 100 < np.median(scales) < 1000
    sizes = set()
    for row in rows:
        setting = row["settings"]
        assert row["c"] == 1
        sizes.add(setting["environments"] * setting["rollout"] // setting["minibatches"])
    assert sizes == {64, 128} and "$n$ = 64 or 128 steps" in text
    step = 64 / np.sqrt((1 + 64 * 1000 / 64) / (1 + 1000 / 64))
    said = "for $n = 64$, $B = 1000$ and $c = 64$, Eq. 12.3 divides by"
    assert f"{said} {step:.2f}" in text


def test_what_leaving_rules_out_does(final: Finals):
    text, other = prose("12_batch_size_invariance"), prose("12b_advantage_moments")

    def less(task: str, agent: str, condition: str) -> list[float]:
        """What is lost, at ÷ 4, 16 and 64."""
        both = [[final(task, agent, x, c) for c in (4, 16, 64)] for x in (EVERY, condition)]
        return list(np.subtract(*both))

    assert "without it Breakout ends *higher* at every batch" in text
    assert max(less("Breakout", "ppo", "no step size")) < 0
    catch = [less("Catch", agent, "no step size") for agent in ("ppg", "ppo")]
    lost = rounded(one[2] for one in catch)
    assert "Catch loses {} to {} at ÷ 64, and at most 0.04 before".format(*lost) in text
    assert max(one[k] for one in catch for k in (0, 1)) < 0.04

    ratios = []
    for pair in final.pairs:
        spreads = [stratified.spread(final.by_factor(*pair, x)) for x in ("no step size", EVERY)]
        ratios.append(spreads[0] / spreads[1])
    said = f"Areas under the curves spread {min(ratios):.1f} to {max(ratios):.1f} times as far"
    assert f"{said} without it" in text
    said = "With $c = 1$ four of five pairs of task and agent use the largest step size tried"
    assert said in text
    base = [final.by_factor(*pair, EVERY)[1] for pair in final.pairs]
    largest = [row["learning_rate"] == max(map(float, row["tuning"])) for row in base]
    assert (sum(largest), len(base)) == (4, 5)

    betas, without = (
        max(final.spread(*pair, one) for pair in final.pairs) for one in ("betas too", EVERY)
    )
    assert f"spread by at most {betas:.2f} with them, and by up to {without:.2f} without" in text
    ppg = [less("Catch", "ppg", one) for one in ("no center of mass", "no average")]
    low, high = np.min(ppg), np.max(ppg)
    said = f"PPG-EWMA on Catch ends {low:.3f} to {high:.3f} lower without its rule or without it"
    assert said in other
    assert (
        "Only the step size $\\alpha / c$, with PPO-EWMA, reaches the paper's $Z > 3.84$" in other
    )
    reached = {
        (agent, condition)
        for agent in ("ppo", "ppg")
        for condition in dict.fromkeys(row["condition"] for row in final.rows)
        for c in (4, 16, 64)
        if stratified.effect(final.rows, agent, condition, c, stratified.final).z > 3.84
    }
    assert reached == {("ppo", "linear step size")}
    span = stratified.effect(final.rows, "ppo", "no advantage span", 64, stratified.final)
    assert f"the span comes nearest: it has $Z = {span.z:.2f}$ with PPO-EWMA at ÷ 64" in other
    rest = [
        stratified.effect(final.rows, agent, condition, c, stratified.final).z
        for agent in ("ppo", "ppg")
        for condition in ("no step size", "no center of mass", "no average")
        for c in (4, 16, 64)
    ]
    assert max(rest) < span.z
