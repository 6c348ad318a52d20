"""The ladder: imports point down, heavy packages stay on their rung, files stay short."""

import ast
import graphlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from mmrl._lazy import homes

PACKAGE = Path(__file__).parent.parent / "mmrl"
MOST_LINES = 320  # the aim is 300
MOST_OF_A_COMPILER = 560  # few files, each of which is one idea whole
MOST_LOADED = 32  # files of mmrl behind a DQN and an LRU

# Bottom to top, which is also the reading order: what each rung may import of the others.
LADDER: dict[str, set[str]] = {
    "monoid": set(),
    "schedules": set(),
    "kernel": {"monoid"},
    "scan": {"monoid", "schedules", "kernel"},
    "returns": {"monoid", "scan"},
    "memory": {"monoid", "scan"},
    "envs": set(),
    "rollout": {"envs"},
    "checks": {"envs", "rollout"},
    "replay": {"monoid", "scan"},
    "nets": {"monoid", "scan", "memory"},
    # Not replay: a loss is the same on a tape as on segments.
    "losses": {"monoid", "scan", "returns"},
}
LADDER["agents"] = set(LADDER)
LADDER["pdg"] = {"monoid", "scan"}
LADDER["runs"] = {*LADDER["agents"], "agents", "pdg"}
LADDER["show"] = set(LADDER)
LADDER["inspect"] = set(LADDER)
LADDER["course"] = set(LADDER)

# Programs stand on the top rung: they may import everything, nothing below may import them.
PROGRAMS = {"__main__", "commands"}
# What runs before everything else, and imports nothing of mmrl; any rung may import `COMMON`.
COMMON = {"_random", "_own", "_devices", "_dtypes", "_lazy", "_moved", "_spaces"}
FOUNDATION = {"__init__", "_xla", *COMMON}

# Packages that only these rungs, or a program, may import.
OWNERS = {
    "gymnax": {"envs"},
    "islpy": {"pdg"},
    "flax": {"envs"},
    "optax": {"agents"},
    "matplotlib": {"show", "inspect", "course"},
    "ipywidgets": {"course"},
    "anywidget": {"course"},
}

FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def rung_of(file: Path) -> str:
    return file.parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[str]:
    """Every module a source imports, wherever it does so; "." stands for a relative import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield "."
        elif isinstance(node, ast.ImportFrom) and node.module == "mmrl":
            yield from (f"mmrl.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def complaint(rung: str, module: str) -> str | None:
    """Why a file of `rung` may not import `module`, or None if it may."""
    top, _, rest = module.partition(".")
    if module == ".":
        return "imports are absolute"
    if rung not in OWNERS.get(top, {rung}):
        return f"only {' and '.join(sorted(OWNERS[top]))} may import {top}"
    if top != "mmrl" or rung in PROGRAMS or rest == "__version__":
        return None
    rungs = {"_xla"} if rung == "__init__" else LADDER.get(rung, set()) | {rung, *COMMON}
    target = rest.partition(".")[0] or "mmrl itself"
    return None if target in rungs else f"{rung} may not import {target}"


def complaints(rung: str, source: str) -> list[str]:
    result = (complaint(rung, module) for module in imports(ast.parse(source)))
    return [text for text in result if text]


def test_imports_point_down_the_ladder():
    assert {
        f"{file}: {text}"
        for file in FILES
        for text in complaints(rung_of(file), (PACKAGE / file).read_text("utf-8"))
    } == set()


def circle(sources: dict[str, str]) -> list[str]:
    """Modules that import each other in a circle, if there is one; `sources` are by module.

    Imports count wherever they stand, but not those that only annotations need.
    """
    graph: dict[str, set[str]] = {}
    for module, source in sources.items():
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                node.body = []
        names = {module for module in imports(tree) if module in sources}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):  # of a package: its files, or its front door
                files = {f"{node.module}.{alias.name}" for alias in node.names}
                names |= files & set(sources)
                names -= {node.module} if files <= set(sources) else set()
        graph[module] = names - {module}
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_no_files_import_each_other_in_a_circle():
    def name(file: Path) -> str:
        return ".".join(("mmrl", *file.with_suffix("").parts)).removesuffix(".__init__")

    assert circle({name(file): (PACKAGE / file).read_text("utf-8") for file in FILES}) == []


LATE, FOR_TYPES = "def late():\n    ", "if TYPE_CHECKING:\n    "


@pytest.mark.parametrize(
    ("below", "above", "expected"),
    [
        ("from mmrl.x.b import f", "from mmrl.x.a import g", True),
        (LATE + "from mmrl.x import b", "import mmrl.x.a", True),
        ("from mmrl.x import b", "from mmrl.x import f", True),  # through the front door
        (FOR_TYPES + "from mmrl.x.b import f", "from mmrl.x.a import g", False),
        ("import jax", "from mmrl.x import a", False),
    ],
)
def test_a_circle_is_seen(below: str, above: str, expected: bool):
    door = "from mmrl.x.a import f"
    assert bool(circle({"mmrl.x": door, "mmrl.x.a": below, "mmrl.x.b": above})) == expected


def test_an_agent_and_a_memory_load_few_files():
    code = "import sys, mmrl.agents.dqn, mmrl.memory.lru; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = [name for name in run.stdout.split() if name.partition(".")[0] == "mmrl"]
    assert len(modules) <= MOST_LOADED, sorted(modules)


LAZY = [
    ".".join(("mmrl", *file.parent.parts))
    for file in FILES
    if file.name == "__init__.py" and "on_demand(" in (PACKAGE / file).read_text("utf-8")
]


@pytest.mark.parametrize("package", LAZY)
def test_a_name_that_is_loaded_on_demand_is_not_a_file_beside_it(package: str):
    # Importing such a file would put the module in the place of the name.
    files = {file.name for file in pkgutil.iter_modules(import_module(package).__path__)}
    assert homes(package) and not files & set(homes(package))


def test_files_stay_short():
    lines = {file: len((PACKAGE / file).read_text("utf-8").splitlines()) for file in FILES}
    most = {file: MOST_OF_A_COMPILER if rung_of(file) == "pdg" else MOST_LINES for file in FILES}
    assert {str(file): n for file, n in lines.items() if n > most[file]} == {}


# Beside `__init__`, the methods that refine one case of what their base class does.
REFINEMENTS = {("course", "_compare"), ("course", "step_and_reset"), ("pdg", "__bool__")}


def test_super_is_called_where_contributing_says():
    results = {
        (rung_of(file), method.name)
        for file in FILES
        for method in ast.walk(ast.parse((PACKAGE / file).read_text("utf-8")))
        if isinstance(method, ast.FunctionDef)
        and any(isinstance(n, ast.Name) and n.id == "super" for n in ast.walk(method))
    }
    assert {place for place in results if place[1] != "__init__"} == REFINEMENTS


def test_every_file_stands_on_a_rung():
    assert {rung_of(file) for file in FILES} <= {*LADDER, *PROGRAMS, *FOUNDATION}


def test_the_readme_shows_the_ladder():
    readme = (PACKAGE.parent / "README.md").read_text("utf-8")
    matches = re.findall(r"^\| `mmrl\.(\w+)`", readme, flags=re.MULTILINE)
    rungs = {rung_of(file) for file in FILES}
    assert matches == [rung for rung in LADDER if rung in rungs]


def test_the_ladder_has_no_cycle():
    below: set[str] = set()
    for rung, lower in LADDER.items():
        assert lower <= below, f"{rung} reaches up to {lower - below}"
        below.add(rung)


@pytest.mark.parametrize(
    ("rung", "source"),
    [
        ("monoid", "from mmrl.scan import scan"),
        ("monoid", "import mmrl.scan"),
        ("monoid", "def late():\n    from mmrl import scan"),
        ("memory", "from mmrl.memory.base import Memory\nfrom mmrl.replay import tape"),
        ("replay", "from mmrl.envs import make"),
        ("losses", "from mmrl.replay.tape import sample"),
        ("agents", "from mmrl.runs import run"),
        ("runs", "from mmrl.__main__ import main"),
        ("runs", "from mmrl.course import experiments"),
        ("show", "from mmrl.course.widgets import ScanPlayer"),
        ("schedules", "from mmrl.scan import scan"),
        ("memory", "from . import base"),
        ("memory", "import mmrl"),
        ("rollout", "import gymnax.environments"),
        ("losses", "import optax"),
        ("agents", "from matplotlib import pyplot"),
        ("scan", "import islpy"),
        ("pdg", "import optax"),
        ("commands", "import matplotlib.pyplot"),
        ("_xla", "from mmrl.monoid import Sum"),
        ("elsewhere", "from mmrl.monoid import Sum"),
    ],
)
def test_a_step_up_is_seen(rung: str, source: str):
    assert complaints(rung, source)


@pytest.mark.parametrize(
    ("rung", "source"),
    [
        ("scan", "import jax\nfrom mmrl.monoid import Monoid"),
        ("memory", "from mmrl.memory.base import Memory\nfrom mmrl import monoid"),
        ("envs", "import gymnax"),
        ("pdg", "import islpy\nfrom mmrl.scan import scan"),
        ("agents", "import optax\nfrom mmrl.replay import tape"),
        ("show", "import matplotlib.pyplot as plt\nfrom mmrl.runs import load"),
        ("course", "import anywidget\nfrom mmrl.show import figure"),
        ("commands", "import mmrl\nfrom mmrl.course import experiments"),
        ("runs", "from mmrl import __version__"),
        ("__init__", "from mmrl._xla import avoid_cpu_deadlock"),
    ],
)
def test_a_step_down_is_allowed(rung: str, source: str):
    assert complaints(rung, source) == []
