"""Entries of the leaderboard, which are checked before they are accepted.

An entry is a JSON file, next to a source file of the same name that defines the memory. `run`
writes both files. `check` returns reasons to refuse an entry. It first checks the gates, budgets,
seeds, arithmetic and source, which takes seconds, and then measures the entry twice. The first
measurement uses the reported seeds and detects edited scores. The second measurement uses random
seeds and detects a memory that was selected because it scored well on the reported seeds by chance.
Graders must read the source of an entry, because its imports are not checked.
"""

import hashlib
import importlib.util
import operator
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence

from mmrl import _own
from mmrl.course.capstone import baselines, checks, evaluation, gates
from mmrl.course.capstone.checks import Entry, Evaluate
from mmrl.course.capstone.evaluation import FULL, QUICK, Protocol
from mmrl.course.results import RESULTS
from mmrl.runs import RunError, provenance
from mmrl.runs.checkpoint import dumps, loads
from mmrl.runs.files import create, expand, replace, write_errors

SIZES = ("state", "parameters", "remembers")  # of a memory, as the gates measure them
FIELDS = ("name", "sees", "score", "interval_95", "cpu_seconds", *SIZES)


def find(place: str, source: pathlib.Path | None = None) -> tuple[gates.Factory, pathlib.Path]:
    """Find the class that "my_module:MyMemory" names, and its file.

    If the file `source` exists, the class is loaded from it, and the name of the module is ignored.
    Otherwise the module is imported. Raises `ValueError` if the class is not found.
    """
    if source is not None and source.exists():
        place = f"{_load(source)}:{place.partition(':')[2]}"
    factory = _own.find(place, "memory")
    module = sys.modules.get(getattr(factory, "__module__", ""))
    file = getattr(module, "__file__", None) if callable(factory) else None
    if file is None:
        raise ValueError(
            f"`memory` must name a class or a function in a Python file that builds a memory; got "
            f"{place!r}, which is {factory!r}."
        )
    return factory, pathlib.Path(file)


def _load(source: pathlib.Path) -> str:
    """Import a file as a module whose name depends on its contents; return this name."""
    name = f"{source.stem}_{_hash(source.read_bytes())[:12]}"
    spec = importlib.util.spec_from_file_location(name, source)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ValueError(
            f"`memory` must be in a file that can be imported by itself; {source} raised "
            f"{_own.one_line(error)}."
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
    log: Callable[[str], None] = print,
) -> Entry:
    """Run the gates on a memory, evaluate it, and write its entry to `out`.

    The source is copied to a file of the same name next to the entry, except in a quick run. Raises
    `ValueError` if a gate refuses the memory, if it was tuned on held-out tasks or reported seeds,
    or if a file already exists. A control may fail the memory gate, and a quick run may replace the
    entry of another quick run.
    """
    factory, file = find(place)
    content, out = file.read_bytes(), expand(out)  # the file may be edited during the evaluation
    name, needs_copy = name or place.rpartition(":")[2], not (protocol.quick or _ours(file))
    source = out.with_suffix(".py") if needs_copy else file
    tuning = {"tasks": list(tuned_on), "seeds": list(tuning_seeds)}
    paths = (out, source) if needs_copy else (out,)
    refusals = [
        *checks.tuning_complaints(tuning),
        *checks.short(file),
        *_file_complaints(paths, protocol),
    ]
    if refusals:
        raise ValueError(" ".join(refusals))
    verdict = gates.judge(factory)
    if refusals := checks.gate_refusals(name, verdict):
        raise ValueError(" ".join(refusals))
    evaluate = evaluate or evaluation.evaluate
    results = evaluate(factory, protocol, sees_state=oracle, log=log)
    entry = {
        "name": name,
        "memory": place,
        "sees": "state" if oracle else "observation",
        "source": {"file": source.name, "sha256": _hash(content)},
        "protocol": checks.describe(protocol),
        "seeds": list(protocol.seeds),
        "tuning": tuning,
        "gates": verdict.refusals,
        **{size: getattr(verdict, size) for size in SIZES},
        **results,
        **provenance(),
    }
    # Another run may have written the files meanwhile.
    if refusals := [*_file_complaints(paths, protocol)]:
        raise ValueError(" ".join(refusals))
    with write_errors(out.parent):
        out.parent.mkdir(parents=True, exist_ok=True)
        (replace if protocol.quick else create)(out, dumps(entry, indent=1).encode() + b"\n")
        if needs_copy:
            create(source, content)
    return entry


def _file_complaints(paths: Sequence[pathlib.Path], protocol: Protocol) -> Iterator[str]:
    """Yield a complaint about each file that already exists and must not be replaced."""
    for path in paths:
        if path.exists() and not (protocol.quick and _quick(path)):
            yield f"`out` must be a new file; {path} exists already. Choose another name."


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
    log: Callable[[str], None] = print,
) -> list[str]:
    """Check an entry and return the reasons to refuse it.

    If `again` is True and no check fails, the entry is also measured again, with the reported seeds
    and with the same number of `fresh` seeds, which are random by default. Raises `RunError` if the
    entry cannot be read, and `ValueError` if the number of fresh seeds is wrong.
    """
    path, count = expand(path), len(protocol.seeds)
    entry = read(path)
    if fresh and not len(fresh) == len({*fresh}) == count:
        raise ValueError(f"`fresh` must be {count} different seeds; got {fresh}.")
    try:
        source = path.parent / pathlib.Path(entry["source"]["file"]).name
        refusals = [
            *checks.budgets(entry, protocol),
            *checks.tuning_complaints(entry["tuning"]),
            *checks.arithmetic(entry),
        ]
        factory, file = find(entry["memory"], source)
        operator.itemgetter(*FIELDS)(entry)  # raises KeyError for a missing field
        sha256 = entry["source"]["sha256"]
    except (KeyError, TypeError, AttributeError) as error:
        return [f"It was not written by `mmrl capstone run` of this version: {error!r}."]
    except ValueError as error:
        return [f"Its memory cannot be loaded: {error}"]
    refusals += checks.short(file)
    if _hash(file.read_bytes()) != sha256:
        refusals.append(f"Its source has changed: {file.name} is not what was evaluated.")
    try:
        verdict = gates.judge(factory)
        refusals += checks.gate_refusals(entry["name"], verdict)
        for size in SIZES:
            if not refusals and entry[size] != (size_of := getattr(verdict, size)):
                refusals.append(f"Its `{size}` must be {size_of}, got {entry[size]}.")
        if again and not refusals:
            evaluate = evaluate or evaluation.evaluate
            refusals = checks.measure_again(entry, factory, fresh, protocol, evaluate, log)
    except (Exception, SystemExit) as error:  # a student's memory can raise anything
        refusals.append(f"Its memory raised {_own.one_line(error)} while it was checked.")
    return refusals


def read(path: pathlib.Path) -> Entry:
    """Read an entry from its file. Raises `RunError` if it is not an entry."""
    try:
        entry = loads(path.read_bytes())
    except OSError as error:
        raise RunError(f"Cannot read {path}: {error.strerror}.") from None
    except ValueError:
        raise RunError(
            f"{path} is not JSON. Pass the file that `mmrl capstone run` wrote."
        ) from None
    if not isinstance(entry, dict):
        raise RunError(f"{path} is not an entry. Pass the file that `mmrl capstone run` wrote.")
    return entry


def leaderboard() -> list[Entry]:
    """Return the entries of the leaderboard, best first."""
    entries = [read(path) for path in sorted((RESULTS / "capstone").glob("*.json"))]
    return sorted(entries, key=lambda entry: -entry["score"])


def control(entry: Entry) -> bool:
    """Return True if an entry is a control, which is not ranked."""
    return entry["name"] in baselines.CONTROLS or entry.get("sees") == "state"


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _ours(file: pathlib.Path) -> bool:
    """Return True if a file is a part of mmrl."""
    return file.resolve().is_relative_to(pathlib.Path(_own.__file__).resolve().parent)
