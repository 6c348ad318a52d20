"""One strict setting for every test: exact types, no silent broadcasting, no warnings of ours."""

import gc
import importlib.metadata
import importlib.util
import os
import runpy
import signal
import sys
import time
from pathlib import Path

_CACHE = Path(__file__).parent.parent / ".cache" / "jax"

# Beside mmrl's own dependencies, which pip looks after.
_PEERS = ("beartype", "hypothesis", "flashbax", "gymnasium", "memax", "popgym", "rlax", "submitit")

# Compiling takes most of the time, so compiled programs are kept between runs. The environment,
# not jax.config, because the processes that tests start should share them.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
# Nobody reads from which line of Python an instruction comes, and to note it takes a tenth of all
# the time in which programs are lowered and compiled.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

if missing := [name for name in _PEERS if importlib.util.find_spec(name) is None]:
    sys.exit(f"Tests need {', '.join(missing)}: pip install -c requirements.lock -e '.[dev]'")

# Most tests compile more than they compute: without optimization they compile four times as
# quickly, and what comes out takes four times as long. A notebook computes more, so it gets the
# first level: compiled in half the time, and hardly slower. Who names flags has those, everywhere.
# XLA aborts at a name that it does not know, so only a version of jaxlib that was tried is asked.
_QUICK = "--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level="
if importlib.metadata.version("jaxlib").startswith("0.10.") and "XLA_FLAGS" not in os.environ:
    os.environ["XLA_FLAGS"] = _QUICK + "0 --xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE"
    # Short loops stay loops: a fifth less to compile, and as quick.
    os.environ["NOTEBOOK_XLA_FLAGS"] = f"{_QUICK}1 --xla_backend_extra_options=-unroll-threshold=0"

# XLA divides the work of a program among as many threads as there are processors, which takes more
# time in all. Where there is a worker for each processor, each has one, and one thread.
os.environ.setdefault("NPROC", "1")
if "PYTEST_XDIST_WORKER" in os.environ and hasattr(os, "sched_setaffinity"):
    _processors = sorted(os.sched_getaffinity(0))
    if len(_processors) == int(os.environ["PYTEST_XDIST_WORKER_COUNT"]):
        _number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
        # Who replaces a worker that crashed has a higher number.
        os.sched_setaffinity(0, {_processors[_number % len(_processors)]})

# As in an activated environment, where commands to copy begin with `mmrl`.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

# A shell tells what it starts in the background to ignore Ctrl-C; some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # until all tests are collected: what is imported stays

import mmrl  # noqa: E402, I001  first of all: it sets a flag that jax reads only once

from collections.abc import Iterator  # noqa: E402
from contextlib import closing  # noqa: E402
from importlib.machinery import ModuleSpec, PathFinder  # noqa: E402
from typing import Any  # noqa: E402

import jax  # noqa: E402
import jaxtyping  # noqa: E402
import pytest  # noqa: E402
from beartype.claw import beartype_packages  # noqa: E402

# From here on every annotation in mmrl is checked whenever a function of it is called.
jaxtyping.install_import_hook("mmrl", "beartype.beartype")

# These name no arrays and are called a million times: to look for arrays would take nine tenths of
# the time of a test of them, and beartype alone checks the same.
PLAIN = tuple(
    f"mmrl.pdg.{name}" for name in ("build.expr", "build.graph", "plan.code", "run.naive")
)


class _Plain(PathFinder):
    """Finds the modules in `PLAIN` before jaxtyping does."""

    @classmethod
    def find_spec(cls, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return super().find_spec(fullname, path, target) if fullname in PLAIN else None


sys.meta_path.insert(0, _Plain)
beartype_packages(PLAIN)

jax.config.update("jax_numpy_rank_promotion", "raise")

from mmrl import _random  # noqa: E402

_random.compile_quickly()  # as commands and runs do


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the cases that `full_except` does not name as `full`."""
    mark = item.get_closest_marker("full_except")
    if mark and item.name.partition("[")[2].removesuffix("]") not in mark.args:
        item.add_marker(pytest.mark.full)


# Here each case of a test compiles programs of its own; elsewhere cases are quick, and hundreds.
_SLOW_CASES = {"agents", "checks", "envs", "memory", "monoid", "nets", "pdg", "replay", "runs"}
_SLOW_CASES |= {"test_scan.py", "test_scan_devices.py", "test_returns.py", "test_rollout.py"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--one-case", action="store_true", help="the first case of what compiles")


def _one_case(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the first case of each test that compiles."""
    first_cases, others, tests = [], [], set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        again = (
            test in tests and item.path.relative_to(Path(__file__).parent).parts[0] in _SLOW_CASES
        )
        (others if again else first_cases).append(item)
        tests.add(test)
    items[:] = first_cases
    config.hook.pytest_deselected(items=others)


def _check_cases(items: list[pytest.Item]) -> None:
    """Raise `UsageError` if `full_except` names a case that its test does not have."""
    pairs = [(item, mark) for item in items if (mark := item.get_closest_marker("full_except"))]
    cases: dict[str, tuple[set[str], set[str]]] = {}
    for item, mark in pairs:
        test, _, case = item.nodeid.partition("[")
        cases.setdefault(test, (set(mark.args), set()))[1].add(case.removesuffix("]"))
    for test, (expected, there) in cases.items():
        if not expected <= there:
            raise pytest.UsageError(f"{test} has no cases {expected - there}: see `full_except`.")


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Every worker begins with its share of the notebooks; the site, made of all of them, is late.

    pytest-xdist deals the tests to its workers in runs of equal length. In the order of the files
    one worker would have all notebooks, and whoever wanted the site first would wait for them.
    """
    if not any("::" in argument for argument in config.args):
        _check_cases(items)
    yield  # to what leaves tests out
    if config.getoption("--one-case"):
        _one_case(config, items)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    notebooks = [item for item in items if item.name.startswith("test_a_notebook_runs_to_its_end")]
    site = [item for item in items if "site" in getattr(item, "fixturenames", ())]
    if workers == 1 or not notebooks:
        return
    others = [item for item in items if item not in {*notebooks, *site}]
    late = len(others) - len(others) // (2 * workers)  # in the middle of the last run
    others[late:late], items[:], count = site, [], len(items)
    for worker in range(workers):
        share = notebooks[worker::workers]
        more = max(0, (count - len(items)) // (workers - worker) - len(share))
        items += share + others[:more]
        del others[:more]


def pytest_collection_finish() -> None:
    """What was imported stays: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)  # to trace a program makes that many objects in no time
    gc.enable()


_last_count = [0.0]
# By its path: its package imports every agent, which takes longer than most tests.
_programs = runpy.run_path(
    str(Path(mmrl.__file__).parent / "course" / "experiments" / "programs.py")
)


@pytest.fixture(autouse=True)
def few_programs() -> Iterator[None]:
    """A worker that keeps the programs of hundreds of tests would crash.

    One test may add 16 000 mappings of memory, of the 65 530 that Linux allows. To count them takes
    longer than most tests.
    """
    yield
    if time.process_time() > _last_count[0] + 1:
        _programs["forget_programs"](40_000)
        _last_count[0] = time.process_time()


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One browser for all tests of a worker; without a Chromium they are skipped."""
    sys.path.append(str(Path(__file__).parent / "browser"))
    import chrome

    if not chrome.find_chromium():
        pytest.skip("no Chromium (Debian: apt install chromium)")
    with chrome.chromium() as browser:
        yield browser


@pytest.fixture
def tab(chromium: Any) -> Iterator[Any]:
    """A page of its own in the browser."""
    import chrome

    with closing(chrome.Tab(chromium)) as tab:
        yield tab


@pytest.fixture
def x64() -> Iterator[None]:
    """Run one test in 64-bit, where an exact algorithm agrees with its oracle to 1e-12."""
    with jax.enable_x64(True):
        yield
