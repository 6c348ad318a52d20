"""No test judges by elapsed time: speed is measured in tests/benchmarks, as a ratio to a peer."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CLOCK = re.compile(
    r"\b(?:perf_counter|monotonic|process_time|thread_time|default_timer|getrusage)(?:_ns)?\b"
    r"|\btime\.time(?:_ns)?\(|\btimeit\b|\bperformance\.(?:now|mark|measure)\b|\bDate\.now\b"
    r"|\.timeStamp\b|\bfrom time import\b|\bimport time as\b|\bclock_gettime\b|\bos\.times\b"
    r"|\bdatetime\.(?:now|utcnow|today)\b|\bnew Date\b|\bconsole\.time\b|\bcpu_times\b"
)
# Files that may read a clock, and what for. None of them compares an elapsed time with a limit
# that a working test could miss.
EXCEPTIONS = {
    "test_clocks.py": "names the clocks",
    "conftest.py": "spaces out how often programs are counted",
    "browser/access.py": "prints the date of a report",
    "commands/test_connect.py": "sets a clock by hand",
    "course/experiments/test_grid.py": "sets a clock by hand",
    "course/experiments/test_plan.py": "sets a clock by hand",
    "course/experiments/test_submit.py": "ends a hung wait; sets a clock by hand",
    "course/widgets/test_training.py": "ends a hung wait",
    "book/test_student.py": "sets a clock by hand",
    "envs/train_each.py": "prints how long it took",
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
    assert reading - EXCEPTIONS.keys() == set(), "measure speed in tests/benchmarks"


@pytest.mark.parametrize(
    "line",
    [
        "began = time.monotonic()",
        "from time import perf_counter_ns",
        "time.process_time() < 3",
        "assert time.time() < end",
        "const start = performance.now();",
        "timeit.timeit(f)",
        "resource.getrusage(resource.RUSAGE_SELF).ru_utime",
        "from time import time",
        "datetime.datetime.now() - began",
        "page.evaluate('new Date() - began')",
    ],
)
def test_a_clock_is_recognized(line: str):
    assert CLOCK.search(line)


LIMIT = 600  # seconds: a limit only ends what hangs; below this it could end what works
# Functions whose numbers are limits; elsewhere a limit is an argument `timeout`.
WAITS = ("wait", "join", "communicate", "wait_for", "settimeout", "alarm", "timeout", "acquire")


def limits(source: str) -> Iterator[float]:
    """Yield the limits in seconds of all waits in a Python source, also if they have a name."""
    yield from map(float, re.findall(r"--timeout[= ](\d+)", source))
    tree = ast.parse(source)
    constants = {
        ast.unparse(node.targets[0]): node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
    }
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        values = [word.value for word in node.keywords if word.arg == "timeout"]
        for value in [*values, *(node.args if name in WAITS else ())]:
            number = getattr(constants.get(ast.unparse(value), value), "value", None)
            if isinstance(number, int | float) and not isinstance(number, bool):
                yield number


@pytest.mark.full
def test_no_wait_ends_before_a_busy_machine_is_ready():
    python = [path for path in sources() if path.suffix == ".py"]
    short = {
        path.relative_to(TESTS).as_posix(): results
        for path in python
        if (results := [x for x in limits(path.read_text("utf-8")) if 0 < x < LIMIT])
    }
    assert short == {} and len(python) > 100


@pytest.mark.parametrize(
    "source",
    ["f(x, timeout=30)", "SOON = 9.5\np.wait(SOON)", "page.wait('f()', 5)", "signal.alarm(1)"],
)
def test_a_short_limit_is_recognized(source: str):
    assert min(limits(source)) < LIMIT


def test_generated_examples_have_no_deadline():
    texts = {path.name: path.read_text("utf-8") for path in sources() if path.suffix == ".py"}
    assert [
        name
        for name, text in texts.items()
        if len(re.findall(r"^@given\(", text, re.MULTILINE)) > text.count("deadline=None")
    ] == []
