"""What importing mmrl does, and does not do, to a process."""

import ast
import contextlib
import importlib
import importlib.metadata
import itertools
import os
import re
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from beartype.roar import BeartypeCallHintParamViolation

import mmrl
from mmrl import _xla
from mmrl._xla import avoid_cpu_deadlock
from mmrl.commands.doctor import JAX_PREFIX
from mmrl.pdg.build import expr, graph
from mmrl.pdg.plan import code
from mmrl.pdg.run import naive
from mmrl.scan import scan

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
FLAG = "--xla_cpu_enable_concurrency_optimized_scheduler"


def run(code: str, xla_flags: str = "") -> str:
    """Standard output of a fresh interpreter with no memory of this one's XLA_FLAGS."""
    env = {**os.environ, "XLA_FLAGS": xla_flags}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", code]
    process = subprocess.run(command, env=env, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout.strip()


@pytest.mark.slow
def test_types_are_right():
    """As `make lint` checks them; here it takes no longer than other tests beside it."""
    process = subprocess.run(
        [sys.executable, "-m", "pyright"], cwd=ROOT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout


# Versions and dependencies


def test_version_is_that_of_the_installed_package():
    assert importlib.metadata.version(PROJECT["name"]) == mmrl.__version__


def distribution(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")


def missing_modules(nodes: Iterable[ast.AST], distributions: set[str]) -> set[str]:
    """Third-party modules imported by `nodes` that no declared distribution provides."""
    nodes = list(nodes)
    modules = {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
    modules |= {n.module or "" for n in nodes if isinstance(n, ast.ImportFrom) and not n.level}
    outside = {module.partition(".")[0] for module in modules} - ours() - sys.stdlib_module_names
    return {
        m for m in outside if not distributions & set(map(distribution, providers().get(m, [])))
    }


@cache
def providers() -> Mapping[str, list[str]]:
    """The distributions of each package that is installed: to ask takes a second."""
    return importlib.metadata.packages_distributions()


@cache
def ours() -> set[str]:
    """The modules of the repository itself."""
    folders = ROOT / "tests", ROOT / "book" / "tools"
    return {"mmrl", "tests", *(path.stem for folder in folders for path in folder.rglob("*.py"))}


@cache
def modules_in(folder: str) -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in (ROOT / folder).rglob("*.py")}


def dependencies() -> tuple[set[str], set[str]]:
    """The distributions that everybody installs, and those of the extras."""
    extras = itertools.chain.from_iterable(PROJECT["optional-dependencies"].values())
    # An extra may contain another one of ours.
    ours = {PROJECT["name"]}
    return set(map(distribution, PROJECT["dependencies"])), set(map(distribution, extras)) - ours


def test_the_lock_pins_every_dependency_and_names_no_index():
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    pins = {distribution(line) for line in lock.splitlines() if "==" in line}
    assert set.union(*dependencies()) <= pins
    assert "://" not in lock


# Packages of a rival that are not named like its script.
RIVALS = {"sb3": {"sb3_contrib", "stable_baselines3"}}


def adapted(path: Path) -> set[str]:
    """The library of which `path` is the adapter, or a part of no other adapter."""
    if path.parent.name != "adapters" or path.stem == "__init__":
        return set()
    importing = f"from mmrl.envs.adapters.{path.stem} import"
    adapters = (ROOT / "mmrl/envs/adapters").glob("of_*.py")
    names = {x.stem for x in adapters if x.stem == path.stem or importing in x.read_text("utf-8")}
    return {name.removeprefix("of_") for name in names} if len(names) == 1 else set()


@pytest.mark.full
def test_every_imported_package_is_declared():
    runtime, extras = dependencies()
    for path, tree in {**modules_in("mmrl"), **modules_in("tests")}.items():
        missing = missing_modules(ast.walk(tree), runtime | extras)
        # A rival that cannot live beside ours has an environment, and a script named after it.
        rival = path.stem.partition("_")[0]
        missing -= RIVALS.get(rival, {rival}) if "benchmarks" in path.parts else set()
        missing -= adapted(path)
        assert not missing, f"{path.name} imports {missing}"
    for path, tree in modules_in("mmrl").items():
        # Widgets come with the notebooks; the rest must import without an extra, or with its own.
        plots = {"show", "course"} & set(path.parts)
        rung = path.relative_to(ROOT / "mmrl").parts[0]
        own = set(map(distribution, PROJECT["optional-dependencies"].get(rung, ())))
        missing = set() if plots else missing_modules(tree.body, runtime | own) - adapted(path)
        assert not missing, f"{path.name} needs {missing} at run time"


@pytest.mark.full
def test_only_the_compiler_needs_isl():
    code = """
import sys
sys.modules["islpy"] = None  # as if it were not installed
import mmrl.agents, mmrl.checks, mmrl.runs, mmrl.show, mmrl.course.experiments
import mmrl.commands.experiment, mmrl.commands.train
try:
    import mmrl.pdg
except ModuleNotFoundError as error:
    print(error.name)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["islpy"]


# Names that texts and comments cite


def stands(name: str) -> bool:
    """Whether a dotted name leads to something."""
    with contextlib.suppress(AttributeError, ModuleNotFoundError):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError:
            module, _, last = name.rpartition(".")
            return hasattr(importlib.import_module(module), last)
        return True
    return False


def test_every_cited_name_stands():
    texts = ["*.md", "book/*.md", "notebooks/*.ipynb", "mmrl/**/*.py", "mmrl/**/*.mjs"]
    names = re.compile(r"(?<![\w/.-])mmrl(?:\.[A-Za-z_]\w*)+")
    citations = {
        (str(path.relative_to(ROOT)), name)
        for pattern in texts
        for path in ROOT.glob(pattern)
        for name in names.findall(path.read_text("utf-8"))
    }
    stand = {name: stands(name) for name in {name for _, name in citations}}
    assert not {(path, name) for path, name in citations if not stand[name]}


# Docstrings

MID_AIR = re.compile(r"(What|Those|It|That|Its|The same|Of)\b")


def in_mid_air(tree: ast.AST) -> list[str]:
    """First lines of docstrings that say nothing to a reader who sees only them."""
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef
    texts = (ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds))
    return [text.splitlines()[0] for text in texts if MID_AIR.match(text)]


def test_first_lines_of_docstrings_can_be_read_alone():
    results = {
        str(path): lines for path, tree in modules_in("mmrl").items() if (lines := in_mid_air(tree))
    }
    assert results == {}
    assert in_mid_air(ast.parse('def f():\n    """What it does."""')) == ["What it does."]


# What an import costs


@pytest.mark.full
def test_an_import_brings_no_more_than_it_needs():
    """Nor does it start XLA, whose threads do not survive a fork."""
    code = """
import sys
def loaded(*names): return sorted({*names} & {*sys.modules})
import mmrl
print(loaded("jax"))
import mmrl.monoid, mmrl.scan, mmrl.returns, mmrl.memory
print(loaded("gymnax", "gymnasium", "flax", "optax", "matplotlib"))
import mmrl.agents
from jax._src.xla_bridge import backends_are_initialized as started
print(started())
import jax.numpy as jnp
jnp.zeros(())
print(started())
import mmrl.runs
print(loaded("pandas", "scipy.stats", "seaborn", "matplotlib", "matplotlib.pyplot", "flax.linen"))
from gymnax.environments.misc import pong
print(len(pong.sns.color_palette("husl", 2)), *loaded("seaborn"))
import flax
print(flax.linen.Dense.__name__, pong.plt.subplots.__name__, *loaded("flax.linen"))"""
    results = ["[]", "[]", "False", "True", "[]", "2", "seaborn", "Dense", "subplots", "flax.linen"]
    assert run(code).split() == results


# The scheduler flag


@pytest.fixture
def quiet_start(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As at the start of a process: no flags, no backend, a jaxlib that knows the flag."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setattr(_xla, "_backend_has_started", lambda: False)
    monkeypatch.setattr(_xla, "_jaxlib_version", lambda: "0.10.2")
    return monkeypatch


def test_flag_is_set_once(quiet_start: pytest.MonkeyPatch):
    avoid_cpu_deadlock()
    avoid_cpu_deadlock()
    assert os.environ["XLA_FLAGS"] == f"{FLAG}=false"


def test_flag_is_appended_to_the_flags_of_the_user(quiet_start: pytest.MonkeyPatch):
    quiet_start.setenv("XLA_FLAGS", "--xla_dump_to=dump")
    avoid_cpu_deadlock()
    assert os.environ["XLA_FLAGS"] == f"--xla_dump_to=dump {FLAG}=false"


@pytest.mark.parametrize(
    "choice",
    [
        f"{FLAG}=true",
        f"--xla_dump_to=dump {FLAG}=false",
        "--xla_cpu_scheduler_type=CPU_SCHEDULER_TYPE_DEFAULT",
        "flags.txt",
    ],
)
def test_a_choice_of_the_user_stands(quiet_start: pytest.MonkeyPatch, choice: str):
    quiet_start.setenv("XLA_FLAGS", choice)
    avoid_cpu_deadlock()
    assert os.environ["XLA_FLAGS"] == choice


@pytest.mark.parametrize("version", ["0.9.2", "0.11.0", "0.100.0", "1.10.0", "2.0"])
def test_an_untried_jaxlib_gets_no_flag(quiet_start: pytest.MonkeyPatch, version: str):
    quiet_start.setattr(_xla, "_jaxlib_version", lambda: version)
    avoid_cpu_deadlock()
    assert "XLA_FLAGS" not in os.environ


def test_only_tried_versions_of_jax_are_installed():
    """Later ones compile some programs for ever."""
    extras = itertools.chain.from_iterable(PROJECT["optional-dependencies"].values())
    lines = [line for line in (*PROJECT["dependencies"], *extras) if re.match(r"jax\W", line)]
    assert len(lines) == 2  # for a CPU, and for a GPU
    assert all(line.endswith(">=0.10.2,<0.11") for line in lines) and JAX_PREFIX == "0.10."


def test_a_late_import_warns_with_the_remedy(monkeypatch: pytest.MonkeyPatch):
    jnp.zeros(()).block_until_ready()
    monkeypatch.delenv("XLA_FLAGS")
    with pytest.warns(RuntimeWarning, match="Import `mmrl` before running any JAX computation"):
        avoid_cpu_deadlock()
    with warnings.catch_warnings(action="error"):
        avoid_cpu_deadlock()


@pytest.mark.parametrize("first", ["import mmrl, jax", "import jax, mmrl"])
def test_flag_reaches_xla(first: str, tmp_path: Path):
    run(f"{first}\njax.jit(lambda x: x + 1)(1.0)", f"--xla_dump_to={tmp_path}")
    options = "".join(path.read_text() for path in tmp_path.glob("*debug_options"))
    assert "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED" in options


# The README


def examples() -> list[str]:
    """The Python in the README."""
    readme = (ROOT / "README.md").read_text("utf-8")
    return [part.split("```")[0] for part in readme.split("```python\n")[1:]]


@pytest.mark.full
def test_the_examples_in_the_readme_run_and_its_own_memory_trains(
    capsys: pytest.CaptureFixture[str],
):
    names: dict[str, Any] = {}
    first, *others = examples()
    exec(first, names)
    np.testing.assert_allclose(names["returns"], [0.81, 0.9, 1.0], rtol=1e-6)
    assert names["features"].shape == (100, 32)
    assert names["feature"].shape == (32,)
    for example in others:
        exec(example, names)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["1", "2"]
    assert type(names["run"].state.net.memory).__name__ == "Trace"


# The tests' own strictness (conftest.py)


def test_annotations_are_checked_at_run_time():
    with pytest.raises(jaxtyping.TypeCheckError):
        scan("not a monoid", jnp.zeros(3))  # type: ignore[arg-type]


def test_annotations_without_arrays_are_checked_too():
    for call in (
        lambda: naive.check("not a graph", []),  # type: ignore[arg-type]
        lambda: graph.Domain.of(3),  # type: ignore[arg-type]
        lambda: expr.Sym("t").evaluate(3),  # type: ignore[arg-type]
        lambda: expr.leaves("t", expr.Min),  # type: ignore[arg-type]
        lambda: code.trace("not a node"),  # type: ignore[arg-type]
    ):
        with pytest.raises(BeartypeCallHintParamViolation):
            call()


def test_silent_broadcasting_is_an_error():
    with pytest.raises(ValueError, match="rank_promotion"):
        jnp.zeros((3, 2)) + jnp.zeros(2)


def test_x64_is_for_those_who_ask(x64: None):
    assert jnp.zeros(()).dtype == jnp.float64
