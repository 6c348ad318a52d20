"""No test judges by elapsed time: speed is measured in tests/benchmarks, as a ratio to a peer."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CLOCK = re.compile(
    r"\b(?:perf_counter|monotonic|process_time|thread_time|default_timer|getrusage)(?:_ns)?\b"
    r"|\btime\.time(?:_ns)?\(|\btimeit\b|\bperformance\.(?:now|mark|measure)\b|\bDate\.now\b"
    r"|\.timeStamp\b"
)
# Files that may read a clock, and what for. None of them compares an elapsed time with a limit
# that a working test could miss.
ALLOWED = {
    "test_clocks.py": "names the clocks",
    "conftest.py": "spaces out how often programs are counted",
    "browser/chrome.py": "ends a hung wait",
    "commands/test_connect.py": "sets a clock by hand",
    "course/experiments/test_grid.py": "sets a clock by hand",
    "course/experiments/test_submit.py": "ends a hung wait; sets a clock by hand",
    "course/widgets/test_training.py": "ends a hung wait",
    "book/test_student.py": "sets a clock by hand",
    "grading/run.py": "prints how long it took",
    "mutants/run.py": "prints how long it took",
    "runs/test_distributed.py": "ends a hung wait",
    "runs/test_kill.py": "spreads kills over the time of a run",
}


def sources() -> list[Path]:
    files = [path for path in TESTS.rglob("*") if path.suffix in (".py", ".js", ".mjs", ".html")]
    return [path for path in files if path.relative_to(TESTS).parts[0] != "benchmarks"]


def test_only_these_tests_read_a_clock():
    reading = {
        path.relative_to(TESTS).as_posix()
        for path in sources()
        if CLOCK.search(path.read_text("utf-8"))
    }
    assert reading - ALLOWED.keys() == set(), "measure speed in tests/benchmarks"


@pytest.mark.parametrize(
    "line",
    [
        "began = time.monotonic()",
        "from time import perf_counter_ns",
        "time.process_time() < 3",
        "assert time.time() < end",
        "const start = performance.now();",
        "timeit.timeit(f)",
    ],
)
def test_a_clock_is_recognized(line: str):
    assert CLOCK.search(line)


SHORT = re.compile(
    r"(?:timeout=|\.wait\(|\.join\(|\.communicate\(timeout=|--timeout[= ])(\d+(?:\.\d+)?)\b"
)


def test_no_wait_ends_before_a_busy_machine_is_ready():
    """A limit only ends what hangs: below ten minutes it could end what works."""
    short = [
        f"{path.relative_to(TESTS).as_posix()}: {match.group()}"
        for path in sources()
        for match in SHORT.finditer(path.read_text("utf-8"))
        if float(match.group(1)) < 600
    ]
    assert short == []
