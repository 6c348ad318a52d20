"""Why an entry of the leaderboard is refused: a sentence for each thing that is wrong with it."""

import ast
import dataclasses
import pathlib
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mmrl.course.capstone import baselines, evaluation, gates
from mmrl.course.capstone.evaluation import TUNING, Protocol

Entry = dict[str, Any]
Evaluate = Callable[..., dict[str, Any]]
MOST_BYTES = 20_000  # of a source: no weights that were trained before are in it
SLACK = 0.02  # of a return: two scores that differ by less agree, however narrow their intervals
SPEED = 8  # times as many CPU-seconds, or as few, may come on another machine
CALLS = {"__import__", "exec", "eval", "compile", "open"}
LOADERS = {"builtins", "code", "importlib", "_frozen_importlib", "pkgutil", "runpy", "zipimport"}
IMPORTS = {"mmrl", "jax", "jaxtyping", "equinox", "numpy", *sys.stdlib_module_names} - LOADERS


def described(protocol: Protocol) -> dict[str, Any]:
    own = {"name": protocol.name, "tasks": list(protocol.tasks), "width": protocol.width}
    return {**own, "env_steps": protocol.env_steps, "episodes": protocol.episodes}


def stated(entry: Entry, protocol: Protocol) -> Iterator[str]:
    """Tasks, steps, and reported seeds."""
    stated = entry["protocol"]
    if stated["name"] != protocol.name:
        yield (
            f"It was evaluated by the protocol {stated['name']!r}, which proves nothing here: run "
            f"it without --quick, by {protocol.name!r}."
        )
        return
    if stated != described(protocol) or set(entry["tasks"]) != set(protocol.tasks):
        yield "Its tasks, steps or sizes are not those of the protocol: run it again."
    steps = {one["env_steps"] for one in entry["tasks"].values()}
    if steps != {protocol.env_steps}:
        yield f"It took {max(steps)} steps of each task; the budget is {protocol.env_steps}."
    lengths = {len(one["returns"]) for one in entry["tasks"].values()}
    if tuple(entry["seeds"]) != protocol.seeds or lengths != {len(protocol.seeds)}:
        yield (
            f"It must report the seeds {protocol.seeds}, all of them and no others; it has "
            f"{entry['seeds']}."
        )


def tuned(tuning: dict[str, Any]) -> Iterator[str]:
    """Complaints about the tasks and seeds that an entry says it was tuned on."""
    if wrong := [seed for seed in tuning["seeds"] if seed < TUNING.first_seed]:
        yield (
            f"It was tuned on the seeds {wrong}, which are kept for reports: tune on seeds from "
            f"{TUNING.first_seed} on."
        )
    if wrong := [task for task in tuning["tasks"] if task not in TUNING.tasks]:
        yield (
            f"It was tuned on {', '.join(wrong)}: tune on {', '.join(TUNING.tasks)} alone, so that "
            "the other tasks stay held out."
        )


def named(name: str, file: pathlib.Path, oracle: bool) -> Iterator[str]:
    """The names of controls, and what an oracle is shown, are for baselines of the library."""
    baseline = file.resolve() == pathlib.Path(baselines.__file__).resolve()
    if (name in baselines.CONTROLS or oracle) and not baseline:
        yield "Only baselines of the library may be controls, or be shown the state of a task."
    if oracle != (name == "oracle"):
        yield "What is shown the state is called oracle, and nothing else is."


def short(file: pathlib.Path) -> Iterator[str]:
    """Is its source short enough to be read, and to hold no weights?"""
    if (size := file.stat().st_size) > MOST_BYTES:
        yield (
            f"Its source {file.name} has {size:,} bytes; at most {MOST_BYTES:,} are allowed, so "
            "that a peer can read it, and no weights that were trained before hide in it."
        )


def alone(file: pathlib.Path) -> Iterator[str]:
    """Does its source say that it needs another file than those of JAX, Equinox, NumPy and mmrl?

    It finds what somebody forgot, and not what somebody hides: who grades it reads it.
    """
    nodes = list(ast.walk(ast.parse(file.read_bytes())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    places = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    names += ["." * node.level + (node.module or "") for node in places]
    called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
    if calls := ", ".join(sorted(called & CALLS)):
        yield f"Its source {file.name} calls {calls}: write what that gives into the file itself."
    if others := sorted({name for name in names if name.partition(".")[0] not in IMPORTS}):
        yield (
            f"Its source {file.name} imports {', '.join(others)}; only JAX, Equinox, jaxtyping, "
            "NumPy, mmrl and Python's own modules, but for those that load others, are allowed: "
            "put all of it into one file."
        )


def gated(name: str, judged: gates.Judged) -> list[str]:
    ignored = ("memory",) if name in baselines.CONTROLS else ()
    refusals = judged.refusals.items()
    return [f"[{gate}] {said}" for gate, said in refusals if said and gate not in ignored]


def arithmetic(entry: Entry) -> Iterator[str]:
    """Does the score follow from the returns that stand beside it?"""
    for name, value in evaluation.summary(entry["tasks"]).items():
        if not np.allclose(np.float64(entry[name]), np.float64(value), atol=1e-3, rtol=1e-3):
            yield (
                f"Its {name} was edited: {entry[name]} is stated, and {value} follows from its own "
                "returns and times."
            )


def measured(
    entry: Entry,
    factory: gates.Factory,
    fresh: Sequence[int],
    protocol: Protocol,
    evaluate: Evaluate,
    say: Callable[[str], None],
) -> list[str]:
    """Measured again, on the reported seeds and on fresh ones: is it near what was stated?"""
    first = TUNING.first_seed + secrets.randbelow(10**9)
    fresh = fresh or range(first, first + len(protocol.seeds))
    whys = {
        protocol.seeds: "it was edited, or it does not reproduce",
        tuple(fresh): "its memory was fitted to the reported seeds",
    }
    for seeds, why in whys.items():
        say(f"Measuring again, with the seeds {', '.join(map(str, seeds))}.")
        new = dataclasses.replace(protocol, seeds=seeds)
        found = evaluate(factory, new, sees_state=entry["sees"] == "state", say=say)
        (low, high), (least, most) = entry["interval_95"], found["interval_95"]
        say(
            f"{entry['score']:.3f} [{low:.3f}, {high:.3f}] is stated, {found['score']:.3f} "
            f"[{least:.3f}, {most:.3f}] came, in {found['cpu_seconds']:.0f} CPU-s "
            f"({entry['cpu_seconds']:.0f} are stated)."
        )
        times = entry["cpu_seconds"] / max(found["cpu_seconds"], 1e-9)
        if not 1 / SPEED <= times <= SPEED:
            return [
                f"It states {entry['cpu_seconds']:.0f} CPU-seconds, and {found['cpu_seconds']:.0f} "
                f"came: no machine is {SPEED} times as fast; they were edited, or others computed "
                "beside it."
            ]
        if not (
            meet(entry["interval_95"], found["interval_95"])
            and near(entry["score"], found["interval_95"])
        ):
            return [
                f"Its score is not what comes of the seeds {', '.join(map(str, seeds))}: "
                f"{entry['score']:.3f} [{low:.3f}, {high:.3f}] is stated, {found['score']:.3f} "
                f"[{least:.3f}, {most:.3f}] came, and these are too far apart; {why}."
            ]
    return []


def ask_fresh(fresh: Sequence[int], protocol: Protocol, tuned: Sequence[int]) -> None:
    """Raise `ValueError` unless seeds, if any, are as many as the reported ones, and nobody's."""
    count, used = len(protocol.seeds), {*fresh} & {*tuned}
    many = len(fresh) == len({*fresh}) == count
    if fresh and (not many or used or min(fresh) < TUNING.first_seed):
        of = f" and none of {', '.join(map(str, tuned))}, on which it was tuned" if tuned else ""
        raise ValueError(
            f"`fresh` must be {count} different seeds, from {TUNING.first_seed} on{of}; "
            f"got {', '.join(map(str, fresh))}: leave it out, and they are drawn."
        )


def meet(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two intervals have a point in common, or lie less than `SLACK` apart."""
    return one[0] - SLACK <= other[1] and other[0] - SLACK <= one[1]


def near(score: float, interval: Sequence[float]) -> bool:
    """Whether a score lies in an interval that is made twice as wide, and by `SLACK` wider.

    Who edits returns chooses the width of their own interval, and not of the one that is found.
    """
    more = (interval[1] - interval[0]) / 2 + SLACK
    return interval[0] - more <= score <= interval[1] + more
