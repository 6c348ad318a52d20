"""Entries of the leaderboard: written with their provenance, checked before they are believed.

An entry is a file of JSON, and next to it lies the source of its memory, under the same name. `run`
writes both. `check` returns sentences that say why an entry is refused: its gates, budgets, seeds,
arithmetic and source come first, because that takes seconds, and then it is measured again twice.
The reported seeds must give the reported score, which finds a score that was edited. Seeds that are
drawn at the moment must give it too, which finds a memory that was chosen because it did well on
the reported ones. Whoever grades an entry reads its source: what it imports is not checked.
"""

import hashlib
import importlib.util
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence

from mmrl import _own
from mmrl.course.capstone import baselines, checks, evaluation, gates
from mmrl.course.capstone.checks import Entry, Evaluate
from mmrl.course.capstone.evaluation import FULL, QUICK, Protocol
from mmrl.course.results import PUBLISHED
from mmrl.runs import RunError, provenance
from mmrl.runs.checkpoint import dumps, loads
from mmrl.runs.files import create, expanded, replace, writing


def find(place: str, source: pathlib.Path | None = None) -> tuple[gates.Factory, pathlib.Path]:
    """The class that "my_module:MyMemory" names, and the file that it is in.

    The class is looked for in `source`, whatever that file is called, and if there is none where
    Python looks for the module. Raises `ValueError` if nothing is found.
    """
    if source is not None and source.exists():
        place = f"{_loaded(source)}:{place.partition(':')[2]}"
    found = _own.find(place, "memory")
    module = sys.modules.get(getattr(found, "__module__", ""))
    file = getattr(module, "__file__", None) if callable(found) else None
    if file is None:
        raise ValueError(
            f"`memory` must name a class or a function of a Python file that builds a memory; got "
            f"{place!r}, which is {found!r}."
        )
    return found, pathlib.Path(file)


def _loaded(source: pathlib.Path) -> str:
    """The name under which a file is imported: one for each content, and nobody else's."""
    name = f"{source.stem}_{_hash(source)[:12]}"
    spec = importlib.util.spec_from_file_location(name, source)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ValueError(
            f"`memory` must be in a file that can be imported by itself; {source} raised "
            f"{_own.told(error)}."
        ) from error
    return name


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
    """Judge a memory, evaluate it, and write its entry to `out`, with its source next to it.

    The source is called as the entry is. Raises `ValueError` if a gate refuses the memory, unless
    it is a control, for tasks and seeds on which no entry may be tuned, and before a file would be
    replaced. Only a quick look replaces another one; it comes without a source.
    """
    factory, file = find(place)
    out = expanded(out)
    name, copied = name or place.rpartition(":")[2], not (protocol.quick or _ours(file))
    source = out.with_suffix(".py") if copied else file
    tuning = {"tasks": list(tuned_on), "seeds": list(tuning_seeds)}
    written = (out, source) if copied else (out,)
    refused = [*checks.tuned(tuning), *checks.short(file), *_taken(written, protocol)]
    if refused:
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
        "source": {"file": source.name, "sha256": _hash(file)},
        "protocol": checks.described(protocol),
        "seeds": list(protocol.seeds),
        "tuning": tuning,
        "gates": judged.refusals,
        **{"state": judged.state, "parameters": judged.parameters, "remembers": judged.remembers},
        **found,
        **provenance(),
    }
    if refused := [*_taken(written, protocol)]:  # by a run at the same time
        raise ValueError(" ".join(refused))
    with writing(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        (replace if protocol.quick else create)(out, dumps(entry, indent=1).encode() + b"\n")
        if copied:
            create(source, file.read_bytes())
    return entry


def _taken(written: Sequence[pathlib.Path], protocol: Protocol) -> Iterator[str]:
    """Yield complaints about files that would be replaced, other than a quick look by another."""
    for path in written:
        if path.exists() and not (protocol.quick and _quick(path)):
            yield f"`out` must be a new file; {path} is there already: choose another name."


def _quick(path: pathlib.Path) -> bool:
    try:
        return read(path)["protocol"]["name"] == QUICK.name
    except (RunError, KeyError, TypeError):
        return False


def check(
    path: pathlib.Path,
    *,
    again: bool = True,
    fresh: Sequence[int] = (),
    protocol: Protocol = FULL,
    evaluate: Evaluate | None = None,
    say: Callable[[str], None] = print,
) -> list[str]:
    """Return why an entry is refused, a sentence each; an empty list if it is what it says.

    With `again` it is measured again, unless it is refused already: with the reported seeds, and
    with as many `fresh` ones, which are drawn if they are not given. Raises `RunError` if it cannot
    be read, and `ValueError` for another number of fresh seeds.
    """
    path, count = expanded(path), len(protocol.seeds)
    entry = read(path)
    if fresh and not len(fresh) == len({*fresh}) == count:
        raise ValueError(f"`fresh` must be {count} different seeds; got {fresh}.")
    try:
        source = path.parent / pathlib.Path(entry["source"]["file"]).name
        refused = [
            *checks.budgets(entry, protocol),
            *checks.tuned(entry["tuning"]),
            *checks.arithmetic(entry),
        ]
        factory, file = find(entry["memory"], source)
    except (KeyError, TypeError, AttributeError) as error:
        return [f"It was not written by `mmrl capstone run` of this version: {error!r}."]
    except ValueError as error:
        return [f"Its memory is not there: {error}"]
    refused += checks.short(file)
    if _hash(file) != entry["source"]["sha256"]:
        refused.append(f"Its source has changed: {file.name} is not what was evaluated.")
    judged = gates.judge(factory)
    refused += checks.gated(entry["name"], judged)
    for size in ("state", "parameters", "remembers"):
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
    """Check whether an entry is not ranked: by its name, or because it was shown the state."""
    return entry["name"] in baselines.CONTROLS or entry.get("sees") == "state"


def _hash(file: pathlib.Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _ours(file: pathlib.Path) -> bool:
    """Whether a file comes with mmrl, so that everybody has it."""
    return file.resolve().is_relative_to(pathlib.Path(_own.__file__).resolve().parent)
