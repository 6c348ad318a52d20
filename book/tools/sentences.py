"""What the rows of each study show, in one sentence with its scope: its numbers come from the rows.

A score is the interquartile mean over seeds at the end of training, if a sentence says nothing
else, and "clearly" means that 95 % intervals do not overlap: `book/results.md` tells readers.
"""

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
from popgym_table import number, reaches

from mmrl.course.ch05_returns_are_monoids.experiment_returns_timing import LOOP, OURS, PADDED
from mmrl.course.experiments import stratified

Row = dict[str, Any]
Rows = Collection[Row]
CARDS, FIRST = "RepeatPreviousPaper", "RepeatFirstEasy"
NEEDED = 9  # steps: the age of the card that CARDS asks for
CHANCE = -0.6  # the mean return of a random policy on Catch
FREEWAY, LEARNED = 2, 5.0  # its place among the games, and a return that is no luck
HELD = 4  # of five seeds: then a default holds, says the README
GREEDY, SAMPLED = "greedy actions", "sampled actions"


def returns_timing(rows: Rows) -> str:
    loop, padded = ([row["ms"][name] / row["ms"][OURS] for row in rows] for name in (LOOP, PADDED))
    return (
        "One backward scan over a tape computes the discounted returns of its episodes "
        f"{span(loop, 0)} times as fast as a compiled call per episode, but a scan over episodes "
        f"that somebody has already padded is faster still in {count(x < 1 for x in padded)} of "
        f"{len(rows)} batches (of {each(rows, 'episodes')} episodes, on {device(rows)})."
    )


def batching(rows: Rows) -> str:
    plain = [row for row in rows if not row["quirks"]]
    at = {(row["task"], row["memory"], row["segment_length"]): row for row in plain}
    pairs = [(row, at[task, memory, 0]) for (task, memory, length), row in at.items() if length]
    lower = count(apart(row, tape) for row, tape in pairs)
    higher = count(apart(tape, row) for row, tape in pairs)
    tasks, memories = (len({row[name] for row in plain}) for name in ("task", "memory"))
    return (
        f"An LRU on {CARDS} ends at {end(at[CARDS, 'lru', 0])} on a tape and at "
        f"{end(at[CARDS, 'lru', 10])} on segments of 10 steps, and of all {len(pairs)} pairs of "
        "segments with the tape of the same task and memory, the segments end clearly lower in "
        f"{lower} and clearly higher in {higher} ({tasks} tasks, {memories} memories, "
        f"{scope(plain, GREEDY)})."
    )


def training_times(rows: Rows) -> str:
    at = {(row["memory"], row["segment_length"]): row["seconds"] for row in rows}
    segments = [taken / at[memory, 0] for (memory, length), taken in at.items() if length]
    walks = [taken / at["lru", length] for (memory, length), taken in at.items() if memory == "gru"]
    cut = [row for row in rows if row["segment_length"]]
    memories = len({row["memory"] for row in rows})
    return (
        "A gradient step of DQN, drawing its batch included, takes "
        f"{span(segments)} times as long on segments as on a tape with the same memory, but "
        f"{span(walks)} times as long with a GRU as with an LRU ({FIRST}, {memories} memories, "
        f"segments of {each(cut, 'segment_length')} steps, batches of {each(rows, 'batch')}, the "
        f"fastest of {each(rows, 'turns')} turns, on {device(rows)})."
    )


def more_seeds(rows: Rows) -> str:
    at = {(row["agent"], row["seeds"]): row["env_steps_per_s"] for row in rows}
    many = max(number for _, number in at)
    gains = [rate / at[agent, 1] for (agent, number), rate in at.items() if number == many]
    return (
        f"With {many} seeds in one program, agents of {len(gains)} kinds play {span(gains)} times "
        "as many environment steps a second as with one, learning and evaluation included "
        "(RepeatPreviousEasy, with the settings that each has by default, the fastest of "
        f"{each(rows, 'blocks')} blocks, on {device(rows)})."
    )


def speed(rows: Rows) -> str:
    rates = [row["env_steps_per_s"] for row in rows]
    shares = [row["seconds_of"]["learning"] / row["seconds"] for row in rows]
    return (
        f"One agent takes {min(rates):,} to {max(rates):,} environment steps a second in "
        f"{len(rows)} cells, and learning takes {min(shares):.0%} to {max(shares):.0%} of the time "
        f"(RepeatPreviousEasy, without evaluations, on {device(rows)})."
    )


def ffm(rows: Rows) -> str:
    at = {(row["task"], row["form"]): row for row in rows}
    both = {task: (at[task, "code"], at[task, "printed"]) for task, _ in at}
    ended = [f"at {end(one)} and {end(two)} on {task}" for task, (one, two) in both.items()]
    alike = count(not apart(one, two) and not apart(two, one) for one, two in both.values())
    return (
        "Fast and forgetful memory as its authors' code has it and as their paper prints it ends "
        f"{listed(ended)}, and the two intervals overlap on {alike} of {len(both)} tasks "
        f"(DQN on a tape, {scope(rows, GREEDY)})."
    )


def sensitivity(rows: Rows) -> str:
    at = {row["cell"]: row for row in rows}
    tape, short = (at[f"{CARDS}, lru, {way}"] for way in ("tape", "segments"))

    def needed(row: Row) -> str:
        changes = np.array(row["swap"])
        return percent(np.mean(changes[:, NEEDED] / changes.sum(axis=1)))

    return (
        f"By the gradient of its value, {percent(tape['outside'])} of what an LRU that was trained "
        "on tapes looks back at is older than the task needs, but by swaps of single cards "
        f"{needed(tape)} is the one card that the task needs, against {needed(short)} for an LRU "
        f"that was trained on segments of {short['segment_length']} steps ({CARDS}, the last step "
        f"of {tape['episodes']} greedy episodes, {seeds([tape])})."
    )


def r2d2(rows: Rows) -> str:
    at = {(row["task"], row["memory"], row["strategy"]): row for row in rows}
    names = ("zero", "burn_in", "stored", "tape")
    zero, burn_in, stored, tape = (end(at[CARDS, "lru", name]) for name in names)
    better = [
        apart(at[task, memory, "stored"], row)
        for (task, memory, name), row in at.items()
        if name == "stored_burn_in"
    ]
    return (
        f"An LRU on {CARDS} ends at {zero} if replayed sequences start from the zero state, at "
        f"{burn_in} with a burn-in, at {stored} from stored states and at {tape} on a tape, and "
        f"stored states end clearly higher with a burn-in than without one in {count(better)} of "
        f"{len(better)} pairs of task and memory ({scope(rows, GREEDY)})."
    )


def ppo(rows: Rows) -> str:
    whole = {(r["task"], r["memory"]): r for r in rows if r["rollout"] == 64}
    names = ("lru", "gru", "none")
    cards, first = ([end(whole[task, name]) for name in names] for task in (CARDS, FIRST))
    return (
        f"On {CARDS} PPO ends at {cards[0]} with an LRU, which scans, at {cards[1]} with a GRU, "
        f"which walks, and at {cards[2]} without memory, while on {FIRST} it ends at {first[0]}, "
        f"{first[1]} and {first[2]} (rollouts of 64 steps, {scope(whole.values(), GREEDY)})."
    )


def staleness(rows: Rows) -> str:
    catch = {(row["proximal"], row["staleness"]): row for row in rows if row["task"] == "Catch"}
    late = [catch[name, 16] for name in ("decoupled", "behavior", "recent")]
    fresh = catch["behavior", 0]
    slow, best = min(fresh["rates"]), fresh["rates"][np.argmax(fresh["interquartile_mean"])]

    def areas(rate: float) -> list[str]:
        return [number(row["interquartile_mean"][row["rates"].index(rate)]) for row in late]

    (one, two, three), fast = areas(slow), areas(best)
    return (
        "Where PPO learns from what was played 16 iterations ago, at a learning rate of "
        f"{slow:g} the area under its curve of normalized returns is {one} if the proximal policy "
        f"is decoupled, {two} if it is the behavior policy and {three} if it is the recent one, "
        f"but {fast[0]}, {fast[1]} and {fast[2]} at {best:g}, the best rate for fresh rollouts "
        f"(Catch, no memory, {scope(late, GREEDY)})."
    )


def ewma(rows: Rows) -> str:
    at = {row["cell"]: row for row in rows}
    ppo, ppg = (at[f"{name}-EWMA against {name}"] for name in ("PPO", "PPG"))
    changes = [
        f"by {number(change)} on {task}"
        for task, change in zip(ppo["tasks"], ppo["area_difference"], strict=True)
    ]
    trained = [row for row in rows if "algorithm" in row]
    return (
        "An average as proximal policy changes the area under PPO's curve of normalized returns "
        f"{listed(changes)}, and under PPG's by "
        f"{max(map(abs, ppg['area_difference'])):.3f} at most, with p = "
        f"{number(ppo['p']['area'])} and {number(ppg['p']['area'])} over all tasks "
        f"(an LRU on RepeatPreviousEasy, elsewhere no memory, {scope(trained, GREEDY)})."
    )


def invariance(rows: Rows) -> str:
    pairs = list(dict.fromkeys((row["task"], row["agent"]) for row in rows))
    spreads = [
        stratified.spread(stratified.select(rows, agent, stratified.EVERY)[task], stratified.final)
        for task, agent in pairs
    ]
    most = max(row["c"] for row in rows)
    by_all, adjusted = (
        number(stratified.final(stratified.select(rows, "ppo", name)["Catch"][most]).mean())
        for name in ("linear step size", stratified.EVERY)
    )
    return (
        f"Where all settings are adjusted to a batch that is divided by up to {most}, the final "
        "returns, 0 for a random policy and 1 at best, spread over the batches by "
        f"{span(spreads, 3)}, depending on the task and the agent, but with a step size that is "
        f"divided by as much as the batch PPO-EWMA ends at {by_all} instead of {adjusted} on "
        f"Catch ({len(pairs)} pairs of task and agent, an LRU on RepeatPrevious, elsewhere no "
        f"memory, means over seeds, {scope(rows, SAMPLED)})."
    )


def forgetting(rows: Rows) -> str:
    at = {row["cell"]: row["sampled"] for row in rows}
    at_once = np.mean(at["Catch, simultaneous, V-trace"]["cumulative"]) - CHANCE

    def said(method: str) -> tuple[str, str]:
        one = at[f"Catch, sequential, {method}"]
        above = np.mean(one["cumulative"]) - CHANCE
        return percent(np.mean(one["retained"])), percent(above / at_once)

    alone, clear = said("V-trace"), said("CLEAR")
    own = [row for row in rows if row["cell"].startswith("Catch, sequential")]
    tasks = len(set(own[0]["order"]))
    return (
        f"Trained on {tasks} disguises of Catch in turn, V-trace alone keeps {alone[0]} of a "
        f"stage's gain until two stages later and reaches {alone[1]} of the score above chance "
        f"that training on all of them at once has, and CLEAR {clear[0]} and {clear[1]} "
        f"(no memory, means over seeds, {scope(own, SAMPLED)})."
    )


def minatar(rows: Rows) -> str:
    at = {(row["protocol"], row["method"]): row for row in rows}
    alone, clear = (at["sequential", name] for name in ("V-trace", "CLEAR"))
    separate = at["separate", "V-trace"]

    def kept(row: Row) -> str:
        """By seed, of the stages of the other games that gained anything."""
        shares = np.array(row["shares"], float)
        others = [stage for stage in range(shares.shape[1]) if row["order"][stage] != FREEWAY]
        low, *_, high = np.sort(np.nanmean(shares[:, others], axis=1))
        return f"{100 * low:.0f} to {percent(high)}"

    learned = [
        count(np.max(np.array(row["scores"])[:, :, FREEWAY], axis=1) > LEARNED)
        for row in (separate, alone, clear)
    ]
    return (
        f"Trained on {len(alone['games'])} games of MinAtar in turn, V-trace keeps "
        f"{kept(alone)} of its gains on Breakout and SpaceInvaders until two stages later, "
        f"depending on the seed, and CLEAR {kept(clear)}, but Freeway is learned by separate "
        f"networks on {learned[0]} seeds, by V-trace in turn on {learned[1]} and by CLEAR on "
        f"{learned[2]} (no memory, {scope(rows, GREEDY)})."
    )


def graphs(rows: Rows) -> str:
    windows = [row for row in rows if row["kind"] in ("time", "bytes") and row["n"]]
    of = {kind: [row for row in windows if row["kind"] == kind] for kind in ("time", "bytes")}

    def shares(kind: str, unit: str, m: int) -> str:
        return span(row[unit][f"ours, m = {m}"] / row[unit]["by hand"] for row in of[kind])

    return (
        f"REINFORCE with windows of {each(windows, 'n')} rewards, compiled from its equations, "
        f"takes {shares('time', 'ms', 16)} times as long in tiles of 16 steps as the same program "
        f"by hand and {shares('time', 'ms', 1)} times as long in single steps, but "
        f"{shares('bytes', 'bytes', 16)} and {shares('bytes', 'bytes', 1)} times its memory "
        f"(time for {each(of['time'], 'T')} steps of {each(of['time'], 'batch')} environments, "
        f"memory for observations of {each(of['bytes'], 'width')} numbers, on {device(rows)})."
    )


def baselines(rows: Rows) -> str:
    plain = [row for row in rows if not row.get("changes")]
    failed = [row["task"] for row in plain if row["learned_and_stayed"] < HELD]
    hardest = max(failed, key=failed.count, default="any of them")
    agents, tasks = (len({row[name] for row in plain}) for name in ("agent", "task"))
    return (
        "With nothing set but the task and the memory, an LRU or a GRU, an agent learns and stays "
        f"on at least {HELD} of {seeds(plain)} in {len(plain) - len(failed)} of "
        f"{len(plain)} cases, and of the {len(failed)} others {failed.count(hardest)} are of "
        f"{hardest} ({agents} agents, {tasks} tasks, {scope(plain, GREEDY)})."
    )


def popgym(rows: Rows) -> str:
    compared = [row for row in rows if reaches(row) is not None]
    short = sum(row["steps"] == "3M" for row in compared)
    tasks, memories = (len({row[name] for row in compared}) for name in ("task", "memory"))
    levels = " and ".join(sorted({row["level"] for row in compared}))
    return (
        f"Of {len(compared)} scores that compare with the POPGym paper's, "
        f"{count(map(reaches, compared))} are, to two decimals, at or above the best of them that "
        f"we know, though the paper's runs have 15 million steps and {short} of ours 3 "
        f"million ({memories} memories, {tasks} tasks at the levels {levels}, the largest mean "
        f"return during training, {SAMPLED}, means over {seeds(compared)})."
    )


def end(row: Row) -> str:
    return number(row["interquartile_mean"])


def apart(low: Row, high: Row) -> bool:
    """Whether the interval of one lies below that of the other."""
    return low["interval_95"][1] < high["interval_95"][0]


def count(found: Iterable[bool]) -> str:
    """How many are true, in a sentence."""
    return str(sum(map(bool, found)) or "none")


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def listed(parts: Collection[str]) -> str:
    *most, last = parts
    return " and ".join([", ".join(most), last] if most else [last])


def span(values: Iterable[float], places: int = 2) -> str:
    """The smallest and the largest of some numbers, or the one number that all of them are."""
    low, *_, high = sorted([*values] * 2)
    told = [f"{x:{',' if x >= 10_000 else ''}.{places}f}".replace(",", " ") for x in (low, high)]
    return " to ".join(dict.fromkeys(told))


def each(rows: Rows, name: str) -> str:
    """The whole numbers that rows have by this name."""
    return span((row[name] for row in rows), 0)


def seeds(rows: Rows) -> str:
    return f"{span((len(row['seeds']) for row in rows), 0)} seeds"


def scope(rows: Rows, policy: str) -> str:
    """Whose returns they are, after how many steps, on how many seeds."""
    steps = span((row["env_steps"][-1] for row in rows), 0)
    return f"{policy}, {steps} steps, {seeds(rows)}"


def device(rows: Rows) -> str:
    """On what something was timed, as the rows say it, without the kind."""
    return " and ".join(dict.fromkeys(row["device"].split(", ")[-1] for row in rows))
