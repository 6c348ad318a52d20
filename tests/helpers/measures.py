"""Statistics of published rows, which the expressions in `tests/book/claims.toml` use."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from mmrl import memory
from mmrl.course.capstone import evaluation
from mmrl.course.ch05_returns_are_monoids.experiment_returns_timing import OURS
from mmrl.course.ch13_forgetting.figures import in_its_stage
from mmrl.course.ch14_clear.figures import FIGURE_8, first_lessons
from mmrl.course.ch18_many_devices import scaling
from mmrl.course.continual.cycles import forward_transfer
from mmrl.course.experiments import experiment_popgym as grid
from mmrl.course.experiments import stratified
from mmrl.course.experiments.experiment_baselines import LEVELS
from mmrl.course.experiments.experiment_failures import TASKS
from mmrl.course.experiments.tuning import is_stale
from mmrl.runs import interquartile_mean, interval
from tests.helpers.tables import Row, Rows, read

CHANCE = -0.6  # mean return of a random policy on Catch
AGENTS = tuple(dict.fromkeys(row["agent"] for row in read()["baselines"]))
CARDS, FIRST = "RepeatPreviousPaper", "RepeatFirstEasy"
EVERY = stratified.EVERY
CARD_AGE = 9  # age of the card that the task CARDS requests, in steps
LEAST_SEEDS = 4  # minimum number of seeds out of five that must have learned and stayed
MEMORIES = grid.MEMORIES
HELD_OUT = evaluation.HELD_OUT


# Formats of numbers in the book's passages


def columns(values: Iterable[float], form: str = ".2f") -> str:
    """Format numbers with the format `form`, separated by |."""
    return " | ".join(format(value, form) for value in values)


def span(values: Iterable[float], form: str = ".2f") -> str:
    """Format the minimum and the maximum of some numbers."""
    low, *_, high = sorted([*values] * 2)
    return columns((low, high), form)


def percent(shares: float | Iterable[float]) -> str:
    """Format fractions as percentages."""
    values = shares if isinstance(shares, Iterable) else [shares]
    return " | ".join(f"{100 * share:.0f} %" for share in values)


# Rows with learning curves


def end(row: Row) -> float:
    """Return the interquartile mean of the last returns over seeds, as stored in a row."""
    return row["interquartile_mean"]


def last(row: Row) -> float:
    """Compute the interquartile mean over seeds of the last returns."""
    returns = sorted(curve[-1] for curve in row["returns"])
    cut = len(returns) // 4
    return float(np.mean(returns[cut:-cut]))


def areas(row: Row) -> tuple[float, float, float]:
    """Compute the interquartile mean over seeds of the mean return, with its interval."""
    return interval(np.mean(row["returns"], axis=1))


def area(row: Row) -> float:
    """Compute the interquartile mean over seeds of the mean return."""
    return float(interquartile_mean(np.mean(row["returns"], axis=1)))


def apart(low: Row, high: Row) -> bool:
    """Return True if the interval of `low` is below the interval of `high`."""
    return low["interval_95"][1] < high["interval_95"][0]


def overlap(one: Row, other: Row) -> bool:
    """Return True if the intervals of two rows overlap."""
    return not apart(one, other) and not apart(other, one)


def older(rows: Rows) -> list[Row]:
    """Return the rows whose learning rate was chosen by an earlier rule."""
    return [row for row in rows if is_stale(row)]


def at_bound(row: Row) -> bool:
    """Return True if the learning rate is the smallest or the largest that was tried."""
    values = [*map(float, row["tuning"])]
    return row["learning_rate"] in (min(values), max(values))


# Chapters 03b to 09b


def segments(batching: Rows) -> list[tuple[Row, Row]]:
    """Pair each row of segments without quirks with the tape of the same task and memory."""
    tapes = batching(segment_length=0, quirks=[])
    cut = [row for row in batching(quirks=[]) if row["segment_length"]]
    return [(row, tapes.one(task=row["task"], memory=row["memory"])) for row in cut]


def gaps(r2d2: Rows, place: str, **fields: Any) -> np.ndarray:
    """Return ΔQ [start, agent], with the largest first according to the paper."""
    names = ("zero", "burn_in", "stored", "stored_burn_in")
    rows = [row["delta_q"] for row in r2d2(**fields) if row["delta_q"]]
    return np.array([np.concatenate([row[name][place] for row in rows]) for name in names])


def factors(rows: Rows, name: str, other: str = OURS) -> list[float]:
    """Return the time to compute returns by one method relative to another, for each batch."""
    return [row["ms"][name] / row["ms"][other] for row in rows]


def share(row: Row, measure: str, age: int) -> float:
    """Return the fraction of a measure that is due to a card of this age, averaged over seeds."""
    sizes = np.array(row[measure])
    return float(np.mean(sizes[:, age] / sizes.sum(axis=1)))


# Chapters 11 to 12b


def stale(staleness: Rows, task: str, proximal: str, late: int, rate: float = 0) -> float:
    """Return the area under the curve at a learning rate, or at the tuned rate if `rate` is 0."""
    row = staleness.one(task=task, proximal=proximal, staleness=late)
    return row["interquartile_mean"][row["rates"].index(rate or row["learning_rate"])]


def as_good(staleness: Rows, task: str, late: int, rate: float = 0) -> bool:
    """Return True if the intervals of "decoupled" and "behavior" overlap."""
    rows = (staleness.one(task=task, proximal=x, staleness=late) for x in ("decoupled", "behavior"))
    ends = [row["interval_95"][row["rates"].index(rate or row["learning_rate"])] for row in rows]
    (low, high), (other_low, other_high) = ends
    return low <= other_high and other_low <= high


def pairs(invariance: Rows) -> list[tuple[str, str]]:
    """Return the distinct pairs (task, agent) in the rows."""
    return list(dict.fromkeys((row["task"], row["agent"]) for row in invariance))


def by_factor(invariance: Rows, task: str, agent: str, condition: str) -> dict[int, Row]:
    """Return the rows keyed by the divisor c of the batch size."""
    return stratified.select(invariance, agent, condition)[task]


def final(invariance: Rows, task: str, agent: str, condition: str, c: int) -> float:
    """Return the mean final return over seeds."""
    return float(stratified.final(by_factor(invariance, task, agent, condition)[c]).mean())


def spread(
    invariance: Rows, task: str, agent: str, condition: str, figure: Any = stratified.final
) -> float:
    """Return the spread of a statistic over batch sizes (default: the final return)."""
    return stratified.spread(by_factor(invariance, task, agent, condition), figure)


def less(invariance: Rows, task: str, agent: str, condition: str) -> list[float]:
    """Return the loss in final return under a condition, for c = 4, 16 and 64."""
    both = [[final(invariance, task, agent, x, c) for c in (4, 16, 64)] for x in (EVERY, condition)]
    without, whole = np.array(both[1]), np.array(both[0])
    return list(whole - without)


def z(invariance: Rows, agent: str, condition: str, c: int) -> float:
    """Return Van Elteren's Z for the effect of a condition on final returns."""
    return stratified.effect(invariance, agent, condition, c, stratified.final).z


# Chapters 13 and 14


def retention(row: Row) -> float:
    """Return the fraction of a gain that is retained, averaged over seeds."""
    return float(np.mean(row["retained"]))


def cumulative(row: Row, above: float = 0) -> float:
    """Return the mean cumulative performance minus another score."""
    return float(np.mean(row["cumulative"])) - above


def above(row: Row, other: Row) -> np.ndarray:
    """Return cumulative performance above chance, divided by that of another row, [task]."""
    mine, theirs = (np.mean(x["cumulative"], axis=0) - CHANCE for x in (row, other))
    return mine / theirs


def most(row: Row) -> float:
    """Return the cumulative performance of a learner that masters a task in its first stage.

    The three tasks are trained for the first time after 1, 7 and 13 evaluations.
    """
    waits, begin = np.array([1, 7, 13]), np.array(row["scores"])[:, 0].mean(0)
    return float(np.mean((begin * waits + 73 - waits) / 73))


def retention_after(row: Row, stages: Sequence[int], evaluations: int = 12) -> float:
    """Return the fraction of the gains in `stages` that remains `evaluations` evaluations later."""
    scores, blocks = np.array(row["scores"]), 6
    gains = remains = 0.0
    for stage in stages:
        task, stop = row["order"][stage], (stage + 1) * blocks
        gains += np.sum(scores[:, stop, task] - scores[:, 0, task])
        remains += np.sum(scores[:, stop + evaluations, task] - scores[:, 0, task])
    return remains / gains


def at_ends(row: Row) -> np.ndarray:
    """Return the mean score of each stage's task at the end of the stage, [stage]."""
    scores = np.mean(row["scores"], axis=0)[6::6]
    return np.array([scores[stage, task] for stage, task in enumerate(row["order"])])


def lessons(row: Row) -> float:
    """Return the mean score in the first stage of each task."""
    return float(np.mean(first_lessons(row)))


def probe_rows(forgetting: Rows, method: str) -> list[Row]:
    """Return the rows in which a probe is trained after 0, 3, 6 and 9 stages."""
    return [forgetting[f"Catch, probed at {at}, {method}"] for at in (0, 3, 6, 9)]


def probe_score(row: Row) -> float:
    """Return the mean score on a probe while it is trained."""
    return float(in_its_stage(row).mean())


def transfer(row: Row, fresh: Row) -> float:
    """Return the forward transfer to a probe."""
    return float(forward_transfer(in_its_stage(row).ravel(), in_its_stage(fresh).ravel(), 1.0))


def at_an_end(row: Row) -> set[str]:
    """Return the names of settings whose best value is the smallest or largest that was tried."""
    values = {name: {x[name] for x in row["tuning"]} for name in row["chosen"]}
    return {k for k, x in values.items() if row["chosen"][k] in (min(x), max(x))}


def paper(name: str, other: str) -> np.ndarray:
    """Return a ratio of cumulative performances in Figure 8 of Rolnick et al. 2019, [task]."""
    return np.divide(FIGURE_8[name][2], FIGURE_8[other][2])


def freeway(row: Row) -> int:
    """Return the number of seeds that learned Freeway."""
    return int(np.sum(np.max(np.array(row["scores"])[:, :, 2], axis=1) > 5))


def other_games(row: Row) -> list[float]:
    """Return the fraction of other games' gains that each seed retains."""
    stages = [stage for stage, task in enumerate(row["order"][:4]) if task != 2]
    return [float(np.nanmean([seed[stage] for stage in stages])) for seed in row["shares"]]


# Chapters 17 and 18, and the guides


def by_hand(row: Row, unit: str = "ms", other: str = "by hand") -> dict[str, float]:
    """Return the cost of each way to run a program, divided by that of the handwritten program."""
    return {name: x / row[unit][other] for name, x in row[unit].items()}


@functools.cache
def element(name: str, **sizes: int) -> int:
    """Return the size of an element of a memory's monoid in bytes."""
    model = eqx.filter_eval_shape(lambda: memory.make(name, 8, 8, **sizes, key=jax.random.key(0)))
    return sum(scaling.leaf_bytes(model))


def scan_cost(size: int, log_steps: int, devices: int) -> Any:
    """Return the estimated cost of a scan across devices."""
    return scaling.cost([size], 2**log_steps, devices)


def default(baselines: Rows, task: str, agent: str) -> str:
    """Format the final returns and the failures of an agent with an LRU and a GRU, for README."""
    names = [f"{task}, {agent}, {memory}" for memory in ("lru", "gru")]
    texts = [score(baselines, task, name) + failed(task, name) for name in names]
    return ", ".join(texts)


def score(baselines: Rows, task: str, name: str) -> str:
    """Format the final return of a cell, in italics if it fails, or as a dash if it is missing."""
    if not any(row["cell"] == name for row in baselines):
        return "–"
    text = f"{end(baselines[name]):.{0 if LEVELS[task][1] > 1 else 2}f}"
    return text if baselines[name]["learned_and_stayed"] >= LEAST_SEEDS else f"*{text}*"


def failed(task: str, name: str) -> str:
    """Format the number of failed seeds of a cell: "" if the study omits it, "(–)" if missing."""
    if task not in TASKS:
        return ""
    rows = read().get("failures", [])
    counts = [row["failures"] for row in rows if row["cell"] == name and not row["quick"]]
    return f" ({counts[0]})" if counts else " (–)"
