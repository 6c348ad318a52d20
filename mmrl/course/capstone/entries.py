"""Entries of the leaderboard: written with their provenance, checked before they are believed.

An entry is a file of JSON, and beside it lies the source of its memory. `run` writes both. `check`
says in sentences why an entry is refused: its gates, budgets, seeds, arithmetic and source are
looked at first, because that takes seconds, and then it is measured again twice. The reported seeds
must give the reported score, which finds a score that was edited. Seeds that are drawn at the
moment must give it too, which finds a memory that was chosen because it did well on the reported
ones.
"""

import contextlib
import dataclasses
import hashlib
import inspect
import os
import pathlib
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mmrl.course.capstone import baselines, evaluation, gates
from mmrl.course.capstone.evaluation import FULL, TUNING, Protocol
from mmrl.course.results import PUBLISHED
from mmrl.envs import own
from mmrl.runs import RunError, provenance
from mmrl.runs.checkpoint import dumps, loads, replace, writing

Entry = dict[str, Any]
Evaluate = Callable[..., dict[str, Any]]
FIELDS = ("name", "memory", "source", "protocol", "seeds", "tuning", "gates", "state", "parameters")
FIELDS += ("tasks", "score", "interval_95", "cpu_seconds", "date", "command", "device", "versions")
SLACK = 0.02  # of a return: two scores that differ by less agree, however narrow their intervals


def find(place: str, folder: pathlib.Path | None = None) -> tuple[gates.Factory, pathlib.Path]:
    """What "my_module:MyMemory" names, and the file that it is in.

    The module is looked for in `folder` first, then where Python looks. Raises `ValueError` if
    there is none.
    """
    with _first(folder, place.partition(":")[0]):
        found = own.find(place, "memory")
    file = inspect.getsourcefile(found) if callable(found) else None
    if file is None:
        raise ValueError(
            f"`memory` must name a class or a function of a Python file that builds a memory; got "
            f"{place!r}, which is {found!r}."
        )
    return found, pathlib.Path(file)


@contextlib.contextmanager
def _first(folder: pathlib.Path | None, module: str) -> Iterator[None]:
    """A module of a folder is found there, even if another one of its name is loaded already."""
    before = list(sys.path)
    if folder is not None:
        sys.path[:0] = [str(folder.resolve()), os.getcwd()]
        if (folder / f"{module}.py").exists():
            sys.modules.pop(module, None)
    try:
        yield
    finally:
        sys.path[:] = before


def run(
    place: str,
    out: pathlib.Path,
    *,
    name: str = "",
    oracle: bool = False,
    tuned_on: Sequence[str] = (),
    tuning_seeds: Sequence[int] = (),
    protocol: Protocol = FULL,
    evaluate: Evaluate = evaluation.evaluate,
    say: Callable[[str], None] = print,
) -> Entry:
    """Judge a memory, evaluate it, and write its entry to `out`, with its source beside it.

    Raises `ValueError` if a gate refuses it, unless it is a control, and for tasks and seeds on
    which nobody may tune.
    """
    factory, file = find(place)
    name = name or place.rpartition(":")[2]
    tuning = {"tasks": list(tuned_on), "seeds": list(tuning_seeds)}
    if refused := [*_tuned(tuning), *_named(name, file, oracle)]:
        raise ValueError(" ".join(refused))
    judged = gates.judge(factory)
    if refused := _gates(name, judged):
        raise ValueError(" ".join(refused))
    found = evaluate(factory, protocol, sees_state=oracle, say=say)
    entry = {
        "name": name,
        "memory": place,
        "sees": "state" if oracle else "observation",
        "source": {"file": file.name, "sha256": _hash(file)},
        "protocol": _described(protocol),
        "seeds": list(protocol.seeds),
        "tuning": tuning,
        "gates": judged.refusals,
        **{"state": judged.state, "parameters": judged.parameters, "remembers": judged.remembers},
        **found,
        **provenance(),
    }
    with writing(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        replace(out, dumps(entry, indent=1).encode() + b"\n")
        beside = out.parent / file.name
        if not _ours(file) and beside.resolve() != file.resolve():
            replace(beside, file.read_bytes())
    return entry


def check(
    path: pathlib.Path,
    *,
    again: bool = True,
    fresh: Sequence[int] = (),
    protocol: Protocol = FULL,
    evaluate: Evaluate = evaluation.evaluate,
    say: Callable[[str], None] = print,
) -> list[str]:
    """Why an entry is refused, a sentence each; an empty list if it is what it says.

    With `again` it is measured again, unless it is refused already: on the reported seeds, and on
    as many `fresh` ones, which are drawn if they are not given. Raises `RunError` if it cannot be
    read.
    """
    entry = read(path)
    if missing := [field for field in FIELDS if field not in entry]:
        return [f"It lacks {', '.join(missing)}: write it by `mmrl capstone run`."]
    refused = [*_stated(entry, protocol), *_tuned(entry["tuning"]), *_arithmetic(entry)]
    try:
        factory, file = find(entry["memory"], path.parent)
    except ValueError as error:
        return [*refused, f"Its memory is not there: {error}"]
    refused += _named(entry["name"], file, entry["sees"] == "state")
    if _hash(file) != entry["source"]["sha256"]:
        refused.append(
            f"Its source has changed: {file.name} is not the file that was evaluated (sha256 "
            f"{entry['source']['sha256'][:12]}…). Run it again."
        )
    judged = gates.judge(factory)
    refused += _gates(entry["name"], judged)
    for size in ("state", "parameters"):
        if not refused and entry[size] != getattr(judged, size):
            refused.append(f"It says {size} {entry[size]}; its memory has {getattr(judged, size)}.")
    if again and not refused:
        refused = _measured(entry, factory, fresh, protocol, evaluate, say)
    return refused


def read(path: pathlib.Path) -> Entry:
    """An entry as it was written. Raises `RunError` if there is none."""
    try:
        entry = loads(path.read_bytes())
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from None
    except ValueError:
        raise RunError(
            f"{path} is not JSON: give the file that `mmrl capstone run` wrote."
        ) from None
    if not isinstance(entry, dict):
        raise RunError(f"{path} is no entry: give the file that `mmrl capstone run` wrote.")
    return entry


def published() -> list[Entry]:
    """The entries of the leaderboard, the best first."""
    found = [read(path) for path in sorted((PUBLISHED / "capstone").glob("*.json"))]
    return sorted(found, key=lambda entry: -entry["score"])


def control(entry: Entry) -> bool:
    """Whether an entry is compared with and not ranked."""
    return entry["name"] in baselines.CONTROLS


def _described(protocol: Protocol) -> dict[str, Any]:
    own = {"name": protocol.name, "tasks": list(protocol.tasks), "width": protocol.width}
    return {**own, "env_steps": protocol.env_steps, "episodes": protocol.episodes}


def _stated(entry: Entry, protocol: Protocol) -> Iterator[str]:
    """Tasks, steps, and reported seeds."""
    stated = entry["protocol"]
    if stated["name"] != protocol.name:
        yield (
            f"It was evaluated by the protocol {stated['name']!r}, which proves nothing here: run "
            f"it without --quick, by {protocol.name!r}."
        )
        return
    if stated != _described(protocol) or set(entry["tasks"]) != set(protocol.tasks):
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


def _tuned(tuning: dict[str, Any]) -> Iterator[str]:
    """What it was tuned on, by what it says itself."""
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


def _named(name: str, file: pathlib.Path, oracle: bool) -> Iterator[str]:
    """The names of controls, and what an oracle is shown, are for baselines of the library."""
    if (name in baselines.CONTROLS or oracle) and not _ours(file):
        yield "Only baselines of the library may be controls, or be shown the state of a task."
    if oracle != (name == "oracle"):
        yield "What is shown the state is called oracle, and nothing else is."


def _gates(name: str, judged: gates.Judged) -> list[str]:
    ignored = ("memory",) if name in baselines.CONTROLS else ()
    refusals = judged.refusals.items()
    return [f"[{gate}] {said}" for gate, said in refusals if said and gate not in ignored]


def _arithmetic(entry: Entry) -> Iterator[str]:
    """Does the score follow from the returns that stand beside it?"""
    for name, value in evaluation.summary(entry["tasks"]).items():
        if not np.allclose(np.float64(entry[name]), np.float64(value), atol=1e-3, rtol=1e-3):
            yield (
                f"Its {name} was edited: {entry[name]} is stated, and {value} follows from its own "
                "returns and times."
            )


def _measured(
    entry: Entry,
    factory: gates.Factory,
    fresh: Sequence[int],
    protocol: Protocol,
    evaluate: Evaluate,
    say: Callable[[str], None],
) -> list[str]:
    """Measured again, on the reported seeds and on fresh ones: do the intervals meet?"""
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
        if low - SLACK > most or least - SLACK > high:
            return [
                f"Its score is not what comes of the seeds {', '.join(map(str, seeds))}: "
                f"{entry['score']:.3f} [{low:.3f}, {high:.3f}] is stated, {found['score']:.3f} "
                f"[{least:.3f}, {most:.3f}] came, and these do not meet; {why}."
            ]
    return []


def _hash(file: pathlib.Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _ours(file: pathlib.Path) -> bool:
    return file.resolve() == pathlib.Path(baselines.__file__).resolve()
