"""Entries of the leaderboard: written with their provenance, checked before they are believed.

An entry is a file of JSON, and beside it lies the source of its memory. `run` writes both. `check`
says in sentences why an entry is refused: its gates, budgets, seeds, arithmetic and source are
looked at first, because that takes seconds, and then it is measured again twice. The reported seeds
must give the reported score, which finds a score that was edited. Seeds that are drawn at the
moment must give it too, which finds a memory that was chosen because it did well on the reported
ones.
"""

import contextlib
import hashlib
import os
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence

from mmrl.course.capstone import baselines, checks, evaluation, gates
from mmrl.course.capstone.checks import Entry, Evaluate
from mmrl.course.capstone.evaluation import FULL, Protocol
from mmrl.course.results import PUBLISHED
from mmrl.envs import own
from mmrl.runs import RunError, provenance
from mmrl.runs.checkpoint import dumps, loads, replace, writing

FIELDS = ("name", "memory", "sees", "source", "protocol", "seeds", "tuning", "gates", "state")
FIELDS += (
    "parameters",
    "tasks",
    "score",
    "interval_95",
    "cpu_seconds",
    "date",
    "command",
    "device",
    "versions",
)


def find(place: str, folder: pathlib.Path | None = None) -> tuple[gates.Factory, pathlib.Path]:
    """The class that "my_module:MyMemory" names, and the file that it is in.

    The module is looked for in `folder` first, then where Python looks. Raises `ValueError` if
    there is none.
    """
    with _first(folder, place.partition(":")[0]):
        found = own.find(place, "memory")
    module = sys.modules.get(getattr(found, "__module__", ""))
    file = getattr(module, "__file__", None) if callable(found) else None
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
    evaluate: Evaluate | None = None,
    say: Callable[[str], None] = print,
) -> Entry:
    """Judge a memory, evaluate it, and write its entry to `out`, with its source beside it.

    Raises `ValueError` if a gate refuses it, unless it is a control, and for tasks and seeds on
    which nobody may tune.
    """
    factory, file = find(place)
    name = name or place.rpartition(":")[2]
    tuning = {"tasks": list(tuned_on), "seeds": list(tuning_seeds)}
    if refused := [*checks.tuned(tuning), *checks.named(name, file, oracle), *checks.short(file)]:
        raise ValueError(" ".join(refused))
    judged = gates.judge(factory)
    if refused := checks.gated(name, judged):
        raise ValueError(" ".join(refused))
    evaluate = evaluate or evaluation.evaluate
    found = evaluate(factory, protocol, sees_state=oracle, say=say)
    entry = {
        "name": name,
        "memory": place,
        "sees": "state" if oracle else "observation",
        "source": {"file": file.name, "sha256": _hash(file)},
        "protocol": checks.described(protocol),
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
    evaluate: Evaluate | None = None,
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
    try:
        refused = [
            *checks.stated(entry, protocol),
            *checks.tuned(entry["tuning"]),
            *checks.arithmetic(entry),
        ]
    except (KeyError, TypeError, AttributeError) as error:
        return [f"It was not written by `mmrl capstone run` of this version: {error!r}."]
    try:
        factory, file = find(entry["memory"], path.parent)
    except ValueError as error:
        return [*refused, f"Its memory is not there: {error}"]
    refused += [*checks.named(entry["name"], file, entry["sees"] == "state"), *checks.short(file)]
    if _hash(file) != entry["source"]["sha256"]:
        refused.append(
            f"Its source has changed: {file.name} is not the file that was evaluated (sha256 "
            f"{entry['source']['sha256'][:12]}…). Run it again."
        )
    judged = gates.judge(factory)
    refused += checks.gated(entry["name"], judged)
    for size in ("state", "parameters"):
        if not refused and entry[size] != getattr(judged, size):
            refused.append(f"It says {size} {entry[size]}; its memory has {getattr(judged, size)}.")
    if again and not refused:
        evaluate = evaluate or evaluation.evaluate
        refused = checks.measured(entry, factory, fresh, protocol, evaluate, say)
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


def _hash(file: pathlib.Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _ours(file: pathlib.Path) -> bool:
    """Whether a file comes with mmrl, so that everybody has it."""
    return file.resolve().is_relative_to(pathlib.Path(own.__file__).resolve().parents[1])
