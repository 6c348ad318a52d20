"""What the guides say of measured rows, which memory to take and what to tune, is what they say."""

import collections
import json
import pathlib
import re
from typing import Any

import pytest

from mmrl.course.experiments.popgym import MEMORIES
from mmrl.course.experiments.returns_timing import OURS
from mmrl.course.results import published
from tests.helpers.claims import ends, prose, written

BOOK = pathlib.Path(__file__).parents[2] / "book"
PAGE = " ".join((BOOK / "choosing.md").read_text("utf-8").split())


@pytest.fixture(scope="module")
def popgym() -> dict[tuple[str, str, str], dict[str, Any]]:
    rows = [row for row in published("popgym") if row["steps"] == "3M"]
    return {(row["task"], row["level"], row["memory"]): row for row in rows}


def test_who_echoes():
    tape = {
        row["memory"]: row
        for row in published("batching")
        if (row["task"], row["segment_length"]) == ("RepeatPreviousPaper", 0) and not row["quirks"]
    }
    said = "LRU and S5 {lru}, FFM {ffm}, GRU {gru}, linear attention {linear_attention}"
    assert said.format(**{name: written(ends(row)) for name, row in tape.items()}) in PAGE
    assert written(ends(tape["s5"])) == written(ends(tape["lru"])) == "1.00"
    steps = {max(row["env_steps"]) for row in tape.values()}
    assert steps == {40_960} and "41,000 steps, six seeds, greedy" in PAGE
    assert {len(row["seeds"]) for row in tape.values()} == {6}


def test_who_counts_and_who_holds(popgym: Any):
    said = "FFM {ffm}, GRU {gru}, S5 {s5}, LRU {lru}"
    counted = {m: written(popgym["CountRecall", "Easy", m]["mmer"]) for m in MEMORIES}
    assert said.format(**counted) in PAGE
    held = [popgym["RepeatFirst", "Easy", m]["mmer"] for m in MEMORIES]
    assert {written(x) for x in held} == {"1.00"} and "all four at 1.00" in PAGE
    assert all(popgym["RepeatFirst", "Hard", m]["mmer"] < 0 for m in MEMORIES)
    trials = [(x, m) for m in MEMORIES for x in popgym["RepeatFirst", "Hard", m]["trials"]]
    (best, whose), *others = sorted(trials, reverse=True)
    assert whose == "ffm" and f"one of FFM's reached {written(best)}" in PAGE
    assert max(others)[0] < 0


def test_who_is_never_far_behind_on_the_easy_levels(popgym: Any):
    tasks = {task for task, level, _ in popgym if level == "Easy"}
    assert len(tasks) == 8 and "each of the eight Easy levels" in PAGE
    behind = {
        memory: max(
            max(popgym[task, "Easy", other]["mmer"] for other in MEMORIES)
            - popgym[task, "Easy", memory]["mmer"]
            for task in tasks
        )
        for memory in MEMORIES
    }
    assert {m for m, gap in behind.items() if gap < 0.1} == {"gru", "ffm"}
    seconds = [
        popgym[task, "Easy", "gru"]["cpu_seconds"] / popgym[task, "Easy", "lru"]["cpu_seconds"]
        for task in tasks
        if popgym[task, "Easy", "gru"]["cpu_seconds"] and popgym[task, "Easy", "lru"]["cpu_seconds"]
    ]
    assert min(seconds) >= 1.5 and max(seconds) <= 2 and "1.5 to 2 times" in PAGE
    both = [
        [row for memory in ("gru", "lru") if (row := popgym.get((task, "Medium", memory)))]
        for task in tasks
    ]
    ratios = [
        gru["cpu_seconds"] / lru["cpu_seconds"] for gru, lru in filter(lambda x: len(x) == 2, both)
    ]
    assert f"up to {written(max(ratios))} times on the Medium level" in PAGE


def test_what_a_shorter_horizon_and_a_longer_run_did():
    rows = {row["cell"]: ends(row) for row in published("baselines")}
    short = "popgym-RepeatPreviousEasy-v0, {}, gru"
    before = [written(rows[short.format(agent)]) for agent in ("dqn", "r2d2", "ppg")]
    assert "from {}, {} and {} to 1.00 on RepeatPrevious (Easy)".format(*before) in PAGE
    after = [rows[short.format(agent) + ", gamma=0.5"] for agent in ("dqn", "r2d2", "ppg")]
    assert {written(x) for x in after} == {"1.00"}
    counted = rows["popgym-CountRecallEasy-v0, dqn, lru, gamma=0.5, blocks=192"]
    assert f"reached {written(counted)} when γ fell from 0.98 to 0.5" in PAGE
    first = "popgym-RepeatFirstEasy-v0, ppo, lru"
    longer = [name for name in rows if re.fullmatch(first + r", blocks=48", name)]
    told = f"{written(rows[first])} on RepeatFirst (Easy) after 16 blocks, and at 1.00 after 48"
    assert told in PAGE and [written(rows[name]) for name in longer] == ["1.00"]


def on_gpu(name: str) -> list[dict[str, Any]]:
    """The rows of an experiment on a GPU, which are not among the published ones."""
    text = (BOOK / "results" / "gpu" / f"{name}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


SCALING = " ".join((BOOK / "scaling.md").read_text("utf-8").split())


def test_what_a_gpu_trains_in_a_second():
    rates = {
        (device, row["agent"], row["seeds"]): row["env_steps_per_s"]
        for device, rows in (("cpu", published("seeds")), ("gpu", on_gpu("seeds")))
        for row in rows
    }
    columns = [("cpu", 1), ("cpu", 16), ("gpu", 1), ("gpu", 16), ("gpu", 256)]
    for agent in ("DQN", "R2D2", "PPO", "PPG", "CLEAR"):
        memory = "LSTM" if agent == "R2D2" else "LRU"
        row = [rates.get((device, agent.lower(), n)) for device, n in columns]
        told = " | ".join(f"{x / 1000:,.0f}" if x else "" for x in row)
        assert f"| {agent}, {memory} | {told} |".replace("  ", " ") in SCALING
    agents = {agent for _, agent, _ in rates}
    gains = {n: [rates["gpu", a, n] / rates["cpu", a, n] for a in agents] for n in (1, 16)}
    assert f"{min(gains[1]):.0f} to {max(gains[1]):.0f} times as many" in SCALING
    readme = " ".join((BOOK.parent / "README.md").read_text("utf-8").split())
    one, many = (f"{min(x):.0f} to {max(x):.0f} times" for x in gains.values())
    assert f"trains {one} as fast" in readme and f"together {many};" in readme
    own, its = ([16 * rates[d, a, 1] / rates[d, a, 16] for a in agents] for d in ("cpu", "gpu"))
    assert f"so 16 take {min(own):.0f} to {max(own):.0f} times as long" in SCALING
    assert f"the GPU takes {min(its):.1f} to {max(its):.1f} times as long" in SCALING
    for device, seeds in columns:
        slowest = min((rate, a) for (d, a, n), rate in rates.items() if (d, n) == (device, seeds))
        assert slowest[1] == "r2d2"


def test_what_a_gpu_does_with_scans_and_equations():
    rows = {row["cell"]: row for row in on_gpu("graphs")}
    walk = rows["lift, discounted return, T = 4096"]["ms"]
    assert f"4,096 steps take {walk['lax.scan']:.0f} ms there as a loop" in SCALING
    assert f"and {walk['associative']:.2f} ms by" in SCALING
    assert f"about {1000 * walk['lax.scan'] / 4096:.0f} microseconds for 64 numbers" in SCALING
    lifted = [row["ms"] for row in rows.values() if row["kind"] == "lift"]
    assert all(ms["associative"] < 0.1 * ms["lax.scan"] for ms in lifted) and len(lifted) == 8
    won = {row["step"] for row in rows.values() if row["kind"] == "lift"}
    assert len(won) == 3 and "On an H200 three trees won." in prose("17_compiling")
    ratios = collections.defaultdict(list)
    for row in rows.values():
        ms = row.get("ms", {})
        for name, each in ms.items() if "by hand" in ms else ():
            kind = {"time": f"n = {row.get('n')}"}.get(row["kind"], row["kind"])
            form = "one tile" if name == f"ours, m = {row['T']}" else name
            ratios[kind, form].append(each / ms["by hand"])
            if "by hand, ring" in ms and name == "ours":
                ratios["ring", name].append(each / ms["by hand, ring"])
    between = {key: f"{min(x):.2f} to {max(x):.2f}" for key, x in ratios.items()}
    coarse = {key: f"{min(x):.1f} to {max(x):.1f}" for key, x in ratios.items()}
    whole, tiled = ("n = None", "one tile"), ("n = 8", "one tile")
    assert f"{between[whole]} there with Monte-Carlo returns, in eight sizes" in SCALING
    assert f"and {between[tiled]} with 8-step returns in one tile, in six." in SCALING
    assert len(ratios[whole]) == 8 and len(ratios[tiled]) == 6
    assert f"tiles of 16 steps take {coarse['n = 8', 'ours, m = 16']} times" in SCALING
    assert f"tiles of one step {coarse['n = 8', 'ours, m = 1']} times" in SCALING
    ppo = ratios["ppo", "ours"] + ratios["ppo", "ours, m = 1"]
    assert f"in these two sizes alone, {min(ppo):.1f} to {max(ppo):.1f} times" in SCALING
    assert f"decoder takes {between['decoder', 'ours']} times as long as with a mask" in SCALING
    assert f"and {between['ring', 'ours']} times as long as with a ring" in SCALING
    assert f"there was time for {len(rows)}." in SCALING
    held = rows["swap, n = None"]["bytes"]
    said = f"{held['swapped'] / 1000:.0f} kB on the device in place of {held['kept'] / 1e6:.1f} MB"
    assert said in SCALING
    calls = [row["ms"] for row in on_gpu("returns_timing")]
    factors = [ms["compiled call per episode"] / ms[OURS] for ms in calls]
    assert f"{min(factors):.0f} to {max(factors):,.0f} times as fast there" in SCALING
    errata = (BOOK / "errata.md").read_text("utf-8")
    assert f"[{min(factors):.0f} to {max(factors):,.0f}](scaling.md) on an H200" in errata
    devices = {row["device"] for name in ("seeds", "graphs") for row in on_gpu(name)}
    assert devices == {"NVIDIA H200, 16 CPU cores"}
