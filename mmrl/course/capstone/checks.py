"""Checks of a leaderboard entry, each of which yields sentences about the faults it finds."""

import dataclasses
import math
import pathlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mmrl.course.capstone import baselines, evaluation, gates
from mmrl.course.capstone.evaluation import TUNING, Protocol

Entry = dict[str, Any]
Evaluate = Callable[..., dict[str, Any]]
MOST_BYTES = 20_000  # maximum size of a source file, too small for pretrained weights
SLACK = 0.02  # scores that differ by less than this value agree, even if their intervals are narrow


def describe(protocol: Protocol) -> dict[str, Any]:
    """Return the fields of a protocol that an entry records."""
    own = {"name": protocol.name, "tasks": list(protocol.tasks), "width": protocol.width}
    return {**own, "env_steps": protocol.env_steps, "episodes": protocol.episodes}


def budgets(entry: Entry, protocol: Protocol) -> Iterator[str]:
    """Yield a complaint if the tasks, steps or seeds of an entry differ from the protocol."""
    if (name := entry["protocol"]["name"]) != protocol.name:
        yield f"Run it without --quick: results of the protocol {name!r} do not count."
        return
    if entry["protocol"] != describe(protocol) or set(entry["tasks"]) != set(protocol.tasks):
        yield "Its tasks, steps or sizes differ from the protocol: run it again."
    if any(one["env_steps"] != protocol.env_steps for one in entry["tasks"].values()):
        yield f"It did not take {protocol.env_steps} steps, the budget of each task."
    lengths = {len(one["returns"]) for one in entry["tasks"].values()}
    if tuple(entry["seeds"]) != protocol.seeds or lengths != {len(protocol.seeds)}:
        yield f"It must report the seeds {protocol.seeds}; it has {entry['seeds']}."


def tuning_complaints(tuning: dict[str, Any]) -> Iterator[str]:
    """Yield a complaint if an entry was tuned on held-out tasks or reported seeds."""
    wrong = [seed for seed in tuning["seeds"] if seed < TUNING.first_seed]
    wrong += [task for task in tuning["tasks"] if task not in TUNING.tasks]
    if wrong:
        yield (
            f"It was tuned on {', '.join(map(str, wrong))}: tune on {', '.join(TUNING.tasks)}, and "
            f"on seeds from {TUNING.first_seed} on; the others are reserved for the reported score."
        )


def short(file: pathlib.Path) -> Iterator[str]:
    """Yield a complaint if the source is too long for a peer to read."""
    if (size := file.stat().st_size) > MOST_BYTES:
        yield f"Its source {file.name} has {size:,} bytes; at most {MOST_BYTES:,} are allowed."


def gate_refusals(name: str, verdict: gates.GateResult) -> list[str]:
    """List the reasons why gates refuse a memory. A control is allowed to fail the memory gate."""
    exempt = ("memory",) if name in baselines.CONTROLS else ()
    refusals = verdict.refusals.items()
    return [f"[{gate}] {refusal}" for gate, refusal in refusals if refusal and gate not in exempt]


def arithmetic(entry: Entry) -> Iterator[str]:
    """Yield a complaint unless the score of an entry follows from its returns."""
    for name, value in evaluation.summary(entry["tasks"]).items():
        if not np.allclose(np.float64(entry[name]), np.float64(value), atol=1e-3, rtol=1e-3):
            yield (
                f"Its {name} was edited: {entry[name]} is reported, but its returns and times "
                f"yield {value}."
            )
    if not 0 < entry["cpu_seconds"] < math.inf:
        yield f"Its cpu_seconds must be positive and finite; got {entry['cpu_seconds']}."


def measure_again(
    entry: Entry,
    factory: gates.Factory,
    fresh: Sequence[int],
    protocol: Protocol,
    evaluate: Evaluate,
    log: Callable[[str], None],
) -> list[str]:
    """Measure an entry again with the reported and with fresh seeds.

    Returns a list with a complaint if a measured score disagrees with the reported score.
    """
    first = TUNING.first_seed + secrets.randbelow(10**9)
    fresh = fresh or range(first, first + len(protocol.seeds))
    whys = {
        protocol.seeds: "it was edited, or the run cannot be reproduced",
        tuple(fresh): "its memory was fitted to the reported seeds",
    }
    (low, high), score = entry["interval_95"], f"{entry['score']:.3f}"
    for seeds, why in whys.items():
        numbers = ", ".join(map(str, seeds))
        log(f"Measuring again, with the seeds {numbers}.")
        new = dataclasses.replace(protocol, seeds=seeds)
        again = evaluate(factory, new, sees_state=entry["sees"] == "state", log=log)
        least, most = again["interval_95"]
        comparison = (
            f"{score} [{low:.3f}, {high:.3f}] was reported, and {again['score']:.3f} "
            f"[{least:.3f}, {most:.3f}] was measured"
        )
        seconds = f"{again['cpu_seconds']:.0f} CPU-s ({entry['cpu_seconds']:.0f} were reported)"
        log(f"{comparison}, in {seconds}.")
        if not (meet((low, high), (least, most)) and near(entry["score"], (least, most))):
            return [
                f"Its score is not reproduced with the seeds {numbers}: {comparison}, and "
                f"these scores are too far apart; {why}."
            ]
    return []


def meet(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return True if two intervals overlap, or are less than `SLACK` apart."""
    return one[0] - SLACK <= other[1] and other[0] - SLACK <= one[1]


def near(score: float, interval: Sequence[float]) -> bool:
    """Return True if a score is in an interval that is doubled and then widened by `SLACK`.

    Pass the interval of the new measurement, because the reported interval may have been edited
    together with the returns of the entry.
    """
    more = (interval[1] - interval[0]) / 2 + SLACK
    return interval[0] - more <= score <= interval[1] + more
