"""Scores and conditions for the expressions in `book/claims`.

Scores are arrays over seeds, normalized to 0 for a random policy and 1 for the best return.
`estimates` contains statistics of scores, times and counts.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from estimates import Scores, contrast, difference, exact, gap, mean, time_ratio
from jaxtyping import Float
from ledgers import Row, Rows, read

from mmrl.course.ch05_returns_are_monoids.experiment_returns_timing import LOOP
from mmrl.course.ch13_forgetting.figures import in_its_stage
from mmrl.course.experiments import stratified
from mmrl.course.experiments.stratified import EVERY

__all__ = [
    "EVERY",
    "LOOP",
    "contrast",
    "difference",
    "exact",
    "time_ratio",
]  # used only by the expressions in `book/claims`

SMALL = 0.05  # largest negligible difference of scores
LEAST_SCORE = 0.5  # score that the best arm must reach for a case to be decided
CEILING = 0.98  # scores above this value do not show which of two arms is better
REASONS = {  # reasons that the functions with these names return
    "no_learning": "the best arm does not learn the task",
    "ceiling": "every arm is at the ceiling",
    "saturated": "every arm is at the ceiling of a task with a highest return",
    "unlearned": "no arm is two standard deviations of random episodes above random actions",
    "full": "the other arm leaves no room for a gain",
    "forgets": "100 % replay does not resist forgetting",
    "edge": "a tuned setting is at the end of its grid",
}


# Conditions under which a case is undecided. Each function returns a reason, or "".


def no_learning(*scores: Any, level: float = LEAST_SCORE) -> str:
    """Report that no arm has learned, because the best arm's interval begins below `level`."""
    if flaw := gap(*scores):
        return flaw
    best = max(mean(x).interval(0.05) for x in scores)
    if best.low >= level:
        return ""
    return (
        f"{REASONS['no_learning']}: its score is {best.middle:z.2f} (lower bound {best.low:z.2f}), "
        f"and {level:g} is required"
    ).replace("-", "−")


def ceiling(*scores: Any, level: float = CEILING) -> str:
    """Report that all arms are so close to the best return that differences are not visible."""
    if flaw := gap(*scores):
        return flaw
    low = min(mean(x).interval(0.05).low for x in scores)
    return f"{REASONS['ceiling']}: all scores are above {level:g}" if low >= level else ""


def saturated(*rows: Row) -> str:
    """Report that all rows are at the ceiling, unless their task has no highest return."""
    if any("maximum" in row and row["maximum"] is None for row in rows):
        return ""
    return REASONS["saturated"] if ceiling(*map(final, rows)) else ""


def unlearned(*rows: Row) -> str:
    """Report that no row is two standard deviations of random episodes above random actions.

    This matters if a score of 1 is the return of a trained agent, which may have learned nothing.
    Rows without the field `deviation` have another scale, and are not tested.
    """
    levels = [2 * x["deviation"] / (x["best"] - x["worst"]) for x in rows if "deviation" in x]
    if not levels or not no_learning(*map(final, rows), level=max(levels)):
        return ""
    return REASONS["unlearned"]


def full(high: float, *others: Any) -> str:
    """Report that the arms in `others` score so high that a gain over them could not be measured.

    Such a score is closer than `SMALL` to the best return, so equal scores do not refute the
    claimed gain. A negative `high` does refute it, because the arm that should gain is then worse.
    """
    ends = [mean(x).interval(0.05).high for x in others]
    return REASONS["full"] if max(ends) > 1 - SMALL and high >= 0 else ""


def forgets(fractions: Scores, level: float = 0.8) -> str:
    """Report that 100 % replay may retain less than the fraction `level`."""
    if flaw := gap(fractions):
        return flaw
    low = mean(fractions).interval(0.05).low
    return "" if low >= level else f"{REASONS['forgets']}: the lower bound is {low:z.2f}"


def edge(*rows: Row) -> str:
    """Report a setting whose best value is the smallest or the largest value in its grid."""
    for row in rows:
        tuning = row.get("tuning") or {}
        if isinstance(tuning, dict):
            tuning = [{"learning_rate": float(rate)} for rate in tuning]
        for name, value in row.get("chosen", {"learning_rate": row.get("learning_rate")}).items():
            values = [one[name] for one in tuning]
            if values and value in (min(values), max(values)):
                setting = f"{name.replace('_', ' ')} {value:g}"
                return f"{REASONS['edge']}: {setting}"
    return ""


# Scores of rows


def final(row: Row) -> Scores:
    """Return the scores at the end of training."""
    if "finals" in row:
        return _at_its_rate(row, "finals")
    if "condition" in row:
        return stratified.final(row)
    returns = np.array(row["returns"], float)
    return _normalize(row, returns if returns.ndim == 1 else returns[:, -1])


def area(row: Row) -> Scores:
    """Return the mean scores over training, the area under the curve."""
    if "areas" in row:
        return _at_its_rate(row, "areas")
    return _normalize(row, np.mean(np.array(row["returns"], float), axis=1))


def _at_its_rate(row: Row, field: str) -> Scores:
    """Return the scores at the learning rate that was chosen on the tuning seeds."""
    values = np.array(row[field], float)
    return values if values.ndim == 1 else values[row["rates"].index(row["learning_rate"])]


def _normalize(row: Row, returns: Float[np.ndarray, " _seed"]) -> Scores:
    worst = row["worst"] if "worst" in row else chance(row["task"])
    return (returns - worst) / (row.get("best", 1.0) - worst)


def chance(task: str) -> float:
    """Return a random policy's mean return on a task, or on its Easy level if there is no other."""
    names = {row["cell"]: row["chance"] for row in read()["chance"]}
    plain = task.removeprefix("popgym-").removesuffix("-v0")
    easy = plain.removesuffix("Paper").removesuffix("Long") + "Easy"
    return names[plain if plain in names else easy]


def _on_catch(returns: Float[np.ndarray, " _seed"]) -> Scores:
    """Scale returns on a variant of Catch, whose rows lack the returns of a random policy."""
    return _normalize(Rows(read()["ewma"])["Catch, PPO"], returns)


def total(row: Row) -> Scores:
    """Return the cumulative scores of a continual learner, averaged over tasks.

    Rows with the field `learned` are already normalized.
    """
    scale = np.asarray if "learned" in row else _on_catch
    return scale(np.mean(np.array(row["cumulative"], float), axis=1))


def retention(row: Row) -> Scores:
    """Return the fraction of the gain of each stage that is retained two stages later."""
    return np.array(row["retained"], float)


def probe(row: Row) -> Scores:
    """Return the scores on the probe task during its stage."""
    return _on_catch(in_its_stage(row).mean(axis=1))


def swing(row: Row) -> float:
    """Return the median factor by which the deviation of the advantages changes in a block."""
    return float(np.median(row["advantage_swing"]))


def outside(row: Row, measure: str = "gradient", length: int = 10) -> Scores:
    """Return the fraction of a measure from observations at least `length` steps old."""
    sizes = np.array(row[measure], float)
    return sizes[:, length:].sum(axis=1) / sizes.sum(axis=1)


def oldest(row: Row, measure: str = "gradient") -> Scores:
    """Return the fraction of a measure from the first observation of the episode."""
    sizes = np.array(row[measure], float)
    last = np.array([np.flatnonzero(seed)[-1] for seed in sizes])
    return sizes[np.arange(len(sizes)), last] / sizes.sum(axis=1)


def affecting(row: Row, measure: str, least: float, length: int = 10) -> Scores:
    """Return the fraction of ages ≥ `length` whose measure is at least `least` × the maximum."""
    sizes = np.array(row[measure], float)
    return np.mean(sizes[:, length:] >= least * sizes.max(axis=1, keepdims=True), axis=1)


def log_time_ratios(row: Row, other: Row) -> Scores:
    """Return the logarithm of the ratio of two times, for each turn in which both were measured."""
    return np.log(np.array(row["seconds"], float) / np.array(other["seconds"], float))


def over_training(row: Row, *names: str) -> Scores:
    """Return the mean over training of a measure [time][seed], such as a cosine."""
    values = row
    for name in names:
        values = values[name]
    return np.mean(np.array(values, float), axis=0)


def log_gap(row: Row, start: str, place: str) -> Scores:
    """Return log ΔQ of each agent for one initial state of a sequence."""
    return np.log(np.array(row["delta_q"][start][place], float))


# Pairs of rows


def cuts(rows: Sequence[Row], memories: Sequence[str]) -> dict[str, dict[str, Row]]:
    """Pair rows of segments with the tape of the same task, memory and number of steps.

    Rows with quirks, or of algorithms as printed, are omitted. If a cell has pairs with different
    numbers of steps, only the pair with the most steps is returned.
    """

    def study(row: Row) -> tuple[Any, ...]:
        return row["task"], row["memory"], row["env_steps"][-1]

    plain = [row for row in rows if row["memory"] in memories]
    plain = [row for row in plain if not row["quirks"] and not row.get("printed")]
    tapes = {study(row): row for row in plain if not row["segment_length"]}
    pairs: dict[str, dict[str, Row]] = {}
    for row in sorted(plain, key=lambda row: row["env_steps"][-1]):
        if row["segment_length"] and study(row) in tapes:
            pairs[row["cell"]] = {"tape": tapes[study(row)], "cut": row}
    return {f"{name}, {pair['cut']['env_steps'][-1]} steps": pair for name, pair in pairs.items()}


def longer(rows: Sequence[Row], memories: Sequence[str]) -> dict[str, dict[str, Row]]:
    """Pair each row of segments with the row of the next longer segments."""
    studies: dict[int, list[Row]] = {}
    for pair in cuts(rows, memories).values():
        studies.setdefault(id(pair["tape"]), []).append(pair["cut"])
    by_length = [sorted(study, key=lambda row: row["segment_length"]) for study in studies.values()]
    return {
        f"{short['task']}, {short['memory']}, segments of {long['segment_length']} against "
        f"{short['segment_length']}, {short['env_steps'][-1]} steps": {"short": short, "long": long}
        for study in by_length
        for short, long in itertools.pairwise(study)
    }


def matches(rows: Sequence[Row], others: Sequence[Row], *fields: str) -> Iterator[tuple[Row, Row]]:
    """Pair each row with the row of `others` whose `fields` are equal, if there is one."""
    matching: dict[tuple[Any, ...], Row] = {}
    for row in others:
        key = tuple(row[name] for name in fields)
        if key in matching:
            raise ValueError(
                f"`others` must have one row for each combination of {', '.join(fields)}; got two "
                f"rows for {key}."
            )
        matching[key] = row
    for row in rows:
        if (key := tuple(row[name] for name in fields)) in matching:
            yield row, matching[key]


def by(rows: Rows, field: str, **arms: Any) -> dict[str, dict[str, Row]]:
    """Group rows that differ only in `field`, and return one row per arm for each group.

    For example, `by(r2d2, "strategy", with_="stored", without="zero")` returns a case for each task
    and memory with a row for both strategies.
    """
    others = ("task", "memory", "family", "protocol", "algorithm")
    keys = [name for name in others if name != field]
    groups: dict[tuple[Any, ...], dict[Any, Row]] = {}
    for row in rows:
        group = groups.setdefault(tuple(row.get(k) for k in keys), {})
        if row.get(field) in arms.values() and row.get(field) in group:
            raise ValueError(
                f"`rows` must have at most one row per arm of a case; {row['cell']!r} is a second "
                "row for its arm."
            )
        group[row.get(field)] = row
    return {
        ", ".join(x for x in key if x): {arm: group[value] for arm, value in arms.items()}
        for key, group in groups.items()
        if set(arms.values()) <= set(group)
    }


def scaling(invariance: Rows, condition: str, c: int) -> dict[str, dict[str, Any]]:
    """Return the cases that measure the effect of a condition at c, one per agent and task."""
    cases, arms_only = {}, [row for row in invariance if "condition" in row]
    for agent in dict.fromkeys(row["agent"] for row in arms_only):
        whole = stratified.select(arms_only, agent, EVERY)
        ablation = stratified.select(arms_only, agent, condition)
        for task, rows in whole.items():
            if {1, c} <= set(rows) and c in ablation.get(task, {}):
                arms = {"one": rows[1], "every": rows[c], "changed": ablation[task][c]}
                cases[f"{task}, {agent}, ÷ {c}"] = arms
    return cases


def steady(cases: dict[str, dict[str, Any]], factor: float = 10) -> dict[str, dict[str, Any]]:
    """Return the cases of `scaling` whose changed arm has deviations that swing less."""
    return {name: arms for name, arms in cases.items() if swing(arms["changed"]) < factor}


def learned(rows: Rows) -> list[Row]:
    """Return the rows of trained agents on games that separate V-trace learns.

    The scores of other games have no scale, so they decide no claim. The games of the experiment on
    Freeway are omitted.
    """
    agents = [row for row in rows if row["method"] != "scale" and row["family"] != "Freeway"]
    return [row for row in agents if all(row["learned"])]


def studies(rows: Rows, ten: Rows) -> list[tuple[str, Rows]]:
    """Return two tables of one experiment, with a suffix for the names of their cases."""
    return [("", rows), (", ten seeds", ten)]


def quickest(row: Row) -> float:
    """Return the time of the fastest of our ways to run a program."""
    return min(value for name, value in row["ms"].items() if name.startswith("ours"))


def speedup(row: Row) -> float:
    """Return the ratio of the hand-written program's time to the time of our fastest program."""
    return row["ms"]["by hand"] / quickest(row)
