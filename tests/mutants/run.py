"""Plant one mistake at a time in a copy of the repository, and run the tests that must notice it.

    python tests/mutants/run.py                  every mutant of tests/mutants/*.toml
    python tests/mutants/run.py --only pdg       mutants whose name, file or tests contain a text
    python tests/mutants/run.py --again          also mutants that were caught before

A mutant is a table of one of these files:

    [[mutant]]
    name = "an empty slice counts one"           # optional
    file = "mmrl/pdg/build/expr.py"
    old = "return self.hi - self.lo"             # stands in the file exactly once
    new = "return self.hi - self.lo + 1"
    tests = ["tests/pdg/test_expr.py"]           # tests to run; at least one must fail

The tests of the first tier run first (`make test`), and those marked `full` only if the first tier
does not notice the mistake. The summary counts how many mistakes each tier catches.

Mutants that were caught are recorded in `.cache/mutants.jsonl` until the library or its tests
change, so an interrupted run continues where it stopped. The exit status is 1 if a mutant survives
or does not apply.
"""

import argparse
import ast
import concurrent.futures
import dataclasses
import hashlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
CACHE = ROOT / ".cache" / "mutants.jsonl"
LIMIT = 600  # CPU-seconds, however busy the machine is; a mutant that computes for ever is caught
WITH_LIMITS = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[1]), resource.RLIM_INFINITY))
os.execv(sys.argv[2], sys.argv[2:])
"""
FIELDS = {"file", "old", "new", "tests"}
FIRST, SECOND = "not full", "full"  # expressions of marks: the tests of each tier


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A mistake, and the tests of which at least one must fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> str:
        """The text of the file with the mistake. Raises `ValueError` if it does not apply."""
        text = (root / self.file).read_text("utf-8")
        if text.count(self.old) != 1:
            raise ValueError(f"`old` must stand in {self.file} once, got {text.count(self.old)}")
        return text.replace(self.old, self.new)


def mutants(folder: Path = Path(__file__).parent) -> list[Mutant]:
    """All mutants of all files, each with a name of its own. Raises `ValueError` for bad fields."""
    results: list[Mutant] = []
    for path in sorted(folder.glob("*.toml")):
        for k, row in enumerate(tomllib.loads(path.read_text("utf-8"))["mutant"], 1):
            if not row.keys() >= FIELDS or not row.keys() <= FIELDS | {"name"}:
                raise ValueError(f"{path.name}, number {k}: fields are {sorted(FIELDS)} and `name`")
            tests = [row["tests"]] if isinstance(row["tests"], str) else row["tests"]
            name = f"{path.stem}: {row.get('name', k)}"
            results.append(Mutant(name, row["file"], row["old"], row["new"], tuple(tests)))
    names = [mutant.name for mutant in results]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"`name` must be of one mutant alone, got twice: {twice}")
    return results


def flaws(mutant: Mutant, root: Path = ROOT) -> str:
    """What keeps a mutant from being one, short of running it; nothing if all is well."""
    if not (root / mutant.file).is_file():
        return f"there is no file {mutant.file}"
    try:
        text = mutant.apply(root)
        if mutant.file.endswith(".py"):
            ast.parse(text)
    except (SyntaxError, ValueError) as error:
        return str(error)
    if mutant.old == mutant.new or not mutant.tests:
        return "`new` must differ from `old`, and `tests` must select something"
    for selection in mutant.tests:
        path, _, test = selection.partition("::")
        if not (root / path).is_file():
            return f"there is no file {path}"
        name = test.partition("[")[0].rpartition("::")[-1]
        if test and f"def {name}(" not in (root / path).read_text("utf-8"):
            return f"there is no test {selection}"
    return ""


def state(mutant: Mutant) -> str:
    """A digest of the mutant, the library, its tests, and what tests share."""
    paths = {ROOT / test.partition("::")[0] for test in mutant.tests}
    helpers = {path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_")}
    sources = {
        path for path in (ROOT / "mmrl").rglob("*") if path.suffix in (".py", ".mjs", ".css")
    }
    digest = hashlib.sha256(repr(mutant).encode())
    for path in sorted({*sources, *(ROOT / "book" / "tools").glob("*.py"), *paths, *helpers}):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def pytest(
    copy: Path, selection: Sequence[str], marks: str = "", limit: int = LIMIT
) -> tuple[int, str]:
    """Run the selected tests with these marks; return pytest's exit status and its last line."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p"]
    command += ["no:xdist", "--no-header", "--tb=no", "-m", marks, *selection]
    environment = {"JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax")} | dict(os.environ)
    environment["PYTHONPATH"] = str(copy)
    process = subprocess.run(
        [sys.executable, "-c", WITH_LIMITS, str(limit), *command],
        **{"cwd": copy, "env": environment, "capture_output": True, "text": True},
    )
    if process.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return 1, f"computed for more than {limit} seconds"
    lines = [line for line in process.stdout.splitlines() if line.strip()]
    failures = [line for line in lines if line.startswith("FAILED")] or lines[-1:] or [""]
    return process.returncode, failures[0].removeprefix("FAILED ")


def copy_repository(parent: Path) -> Path:
    """A copy of the repository, in which mistakes may be planted."""
    patterns = shutil.ignore_patterns(".git", ".venv", ".*cache", ".hypothesis", "_build")

    def leave(folder: str, names: list[str]) -> set[str]:
        folders = {"build"} if Path(folder) == ROOT else set()  # mmrl.pdg.build is not made by make
        return patterns(folder, names) | folders

    return shutil.copytree(ROOT, parent / "repository", ignore=leave, symlinks=True)


def verdict(mutant: Mutant, copy: Path) -> tuple[str, str]:
    """Return "caught", "caught by full tests", "survived" or "does not apply", with details."""
    if wrong := flaws(mutant, copy):
        return "does not apply", wrong
    path = copy / mutant.file
    before = path.read_text("utf-8")
    path.write_text(mutant.apply(copy), "utf-8")
    try:
        for marks, word in ((FIRST, "caught"), (SECOND, "caught by full tests")):
            status, line = pytest(copy, mutant.tests, marks)
            if status == 1:
                return word, line
            if status not in (0, 5):  # 5: no test of this tier is selected
                return "does not apply", f"pytest: {line}"
    finally:
        path.write_text(before, "utf-8")
    return "survived", line


def earlier_verdicts() -> dict[str, str]:
    """Return the verdict of each state of a mutant that was caught before."""
    if not CACHE.exists():
        return {}
    rows = map(json.loads, CACHE.read_text("utf-8").splitlines())
    return {row["state"]: row.get("verdict", "caught") for row in rows}


def remember(mutant: Mutant, was: str, verdict: str) -> None:
    """Record that a mutant was caught, in the state in which it was copied."""
    CACHE.parent.mkdir(exist_ok=True)
    with CACHE.open("a", encoding="utf-8") as file:
        row = {"name": mutant.name, "state": was, "verdict": verdict}
        file.write(json.dumps(row) + "\n")


def run(expected: Iterable[Mutant], jobs: int) -> dict[str, str]:
    """The verdict on each, which is printed as soon as it is known.

    Raises `ValueError` if the tests fail without any mistake: then they would catch everything.
    """
    states, verdicts = {mutant: state(mutant) for mutant in expected}, {}
    with tempfile.TemporaryDirectory() as temporary:
        copies: queue.Queue[Path] = queue.Queue()
        for job in range(jobs):
            copies.put(copy_repository(Path(temporary) / str(job)))
        first = copies.get()
        selection = dict.fromkeys(test for mutant in states for test in mutant.tests)
        status, message = pytest(first, list(selection), limit=10 * LIMIT)
        copies.put(first)
        if status:
            raise ValueError(f"the tests fail without a mutant: {message}")

        def one(mutant: Mutant) -> tuple[Mutant, str, str, float]:
            copy, began = copies.get(), time.monotonic()
            try:
                return mutant, *verdict(mutant, copy), time.monotonic() - began
            finally:
                copies.put(copy)

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for mutant, result, message, seconds in pool.map(one, states):
                verdicts[mutant.name] = result
                print(f"{result:20}  {mutant.name}  ({seconds:.0f} s)  {message}", flush=True)
                if result.startswith("caught"):
                    remember(mutant, states[mutant], result)
    return verdicts


def main() -> int:
    """Run the mutants that the command line selects, and print which of them survived."""
    parser = argparse.ArgumentParser(description="Plant mistakes, and check that tests find them.")
    parser.add_argument("--only", default="", help="mutants whose name, file or tests contain this")
    parser.add_argument("--again", action="store_true", help="also mutants that were caught before")
    parser.add_argument("--jobs", type=int, default=1, help="number of mutants at a time")
    options = parser.parse_args()
    verdicts_before = {} if options.again else earlier_verdicts()
    expected = [
        mutant
        for mutant in mutants()
        if any(options.only in text for text in (mutant.name, mutant.file, *mutant.tests))
    ]
    before = {
        mutant.name: verdicts_before[key]
        for mutant in expected
        if (key := state(mutant)) in verdicts_before
    }
    waiting = [mutant for mutant in expected if mutant.name not in before]
    print(f"{len(expected)} mutants, of which {len(before)} were caught before")
    try:
        verdicts = before | (run(waiting, options.jobs) if waiting else {})
    except ValueError as error:
        print(error)
        return 1
    first = sum(verdict == "caught" for verdict in verdicts.values())
    bad = {name: result for name, result in verdicts.items() if not result.startswith("caught")}
    print(
        f"{len(expected) - len(bad)} of {len(expected)} caught, {first} of them by the first tier"
    )
    for name, result in bad.items():
        print(f"{result}: {name}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
