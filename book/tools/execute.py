"""Run notebooks with nbmake and cache the outputs, which the book and the tests share.

A cached run is valid until one of the following changes: the notebook's code cells, a module of
mmrl that these cells import (directly or indirectly), or requirements.lock. Editing the text does
not invalidate it. If several processes need the same notebook, one of them runs it and the others
wait. The cache of MyST-NB is not used, because it ignores changes in mmrl and in the alt text of
images.
"""

import ast
import hashlib
import json
import os
import shutil
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import grimp
from locks import lock
from reading import NotRead, load, loads

if TYPE_CHECKING:
    from nbformat import NotebookNode

ROOT = Path(__file__).parent.parent.parent
NOTEBOOKS = ROOT / "notebooks"
CACHE = ROOT / ".cache" / "notebooks"
CELL_SECONDS = 600
SUFFIXES = {".py", ".mjs", ".css", ".jsonl", ".npz"}
# Modules that read files other than Python files, and the folders of these files.
DATA = {
    "mmrl.course.widgets": ROOT / "mmrl" / "course" / "widgets",
    "mmrl.course.results": ROOT / "book" / "results",
    "mmrl.runs.zoo": ROOT / "mmrl" / "zoo",
}

# Cell that is appended to each run. Its output becomes metadata, which the status page shows.
RECORD = """\
import json, sys
record = {}
if "jax" in sys.modules:
    from mmrl.runs.results import provenance
    record = {k: v for k, v in provenance().items() if k in ("device", "python", "versions")}
print(json.dumps(record))
"""


class ExecutionError(Exception):
    """Exception for a notebook that failed, with the cell and the traceback as its message."""


@cache
def library_key() -> str:
    """Return a digest of mmrl, the published results and the lock file.

    It is computed once per process, so that an edit during a build does not change the key.
    """
    paths = [*(ROOT / "mmrl").rglob("*"), *(ROOT / "book" / "results").rglob("*")]
    digest = hashlib.sha256((ROOT / "requirements.lock").read_bytes())
    for path in sorted(path for path in paths if path.suffix in SUFFIXES and path.is_file()):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def chapters() -> list[Path]:
    """Return the notebooks whose names begin with a number."""
    return sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))


def notebooks() -> list[Path]:
    """Return the paths of all notebooks, chapters first."""
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def execute(path: Path) -> bool:
    """Run a notebook unless it has a valid run, and return True if it was run.

    Raises `ExecutionError` with the cell and the traceback if a cell fails or exceeds the time
    limit.
    """
    with lock(CACHE / f"{path.stem}.lock"):
        try:
            runs = CACHE / path.stem / _flags_key(path.stem)
            target = runs / f"{_key(node(path))}.ipynb"
        except NotRead as error:
            raise ExecutionError(str(error)) from error
        except SyntaxError as error:
            raise ExecutionError(f"{path.name} is not Python: {error}") from error
        runs.mkdir(parents=True, exist_ok=True)
        for other in {*runs.iterdir()} - {target}:
            other.unlink()
        if target.exists():
            return False
        _nbmake(path, target)
    return True


def execute_all(paths: list[Path] | None = None) -> None:
    """Run the notebooks in `paths` (default: all) that have changed.

    Runs of notebooks that no longer exist are deleted. Raises `ExecutionError` with the
    messages of all notebooks that failed.
    """
    reports, names = [], {path.stem for path in notebooks()}
    for runs in CACHE.glob("[0-9]*/"):
        if runs.name not in names:
            shutil.rmtree(runs)
    for path in notebooks() if paths is None else paths:
        print(f"  {path.name:40}", end="", flush=True)
        try:
            print("run" if execute(path) else "unchanged", flush=True)
        except ExecutionError as error:
            print("FAILED", flush=True)
            reports.append(str(error))
    if reports:
        raise ExecutionError("\n".join(reports))


def node(path: Path) -> "NotebookNode":
    """Read a notebook from a file. Raises `NotRead` if it is not a notebook."""
    return _node(load(path))


def _node(notebook: dict[str, Any]) -> "NotebookNode":
    import nbformat  # imported here, because the import takes two seconds

    return nbformat.reads(json.dumps(notebook), 4)


def read(text: str, name: str = "the notebook") -> "NotebookNode":
    """Parse a notebook for MyST-NB, and add the outputs of its run.

    Call `execute` first, because it deletes runs with other versions of mmrl.
    """
    notebook = _node(loads(text, name))
    if run := run_of(notebook):
        for cell, ran in zip(_code(notebook), _code(run), strict=True):
            cell.outputs, cell.execution_count = ran.outputs, ran.execution_count
        notebook.metadata |= {k: v for k, v in run.metadata.items() if k == "widgets"}
    return notebook


def run_of(notebook: "NotebookNode") -> "NotebookNode | None":
    """Return the cached run of a notebook for the current XLA flags, or None."""
    for path in CACHE.glob(f"*/*/{_code_key(notebook)}-*.ipynb"):
        if path.parent.name == _flags_key(path.parents[1].name):
            return node(path)
    return None


def _flags_key(stem: str) -> str:
    """Return a folder name for the current XLA flags, which differ between tests and the book."""
    flags = environment(not _compiles(stem)).get("XLA_FLAGS", "").split()
    # mmrl sets the flag `concurrency_optimized` itself.
    own = [flag for flag in flags if "concurrency_optimized" not in flag]
    return hashlib.sha256(" ".join(own).encode()).hexdigest()[:8]


@cache
def _compiles(stem: str) -> bool:
    """Return True if the header of a chapter states that most of its time is compilation.

    Tests run such a chapter with the XLA flags of all other tests, which shorten compilation.
    """
    path = NOTEBOOKS / f"{stem}.ipynb"
    header = load(path)["cells"][0]["metadata"] if path.exists() else {}
    return header.get("course", {}).get("compiles", False)


def _code_key(notebook: "NotebookNode") -> str:
    """Return a digest of the code cells."""
    cells = "\0".join(cell.source for cell in _code(notebook))
    return hashlib.sha256(cells.encode()).hexdigest()[:20]


def _key(notebook: "NotebookNode") -> str:
    """Return a digest of the code cells, the modules that they import, and the lock file."""
    digest = hashlib.sha256((ROOT / "requirements.lock").read_bytes())
    for path in sources("\n".join(cell.source for cell in _code(notebook))):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return f"{_code_key(notebook)}-{digest.hexdigest()[:20]}"


def sources(code: str) -> list[Path]:
    """Return the modules of mmrl that code imports, and the files that these modules read."""
    from IPython.core.inputtransformer2 import TransformerManager

    names = set()
    for node in ast.walk(ast.parse(TransformerManager().transform_cell(code))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    paths = set()
    for name in _imports(names):
        paths.add(_path(name))
        if folder := DATA.get(name):
            paths |= {path for path in folder.rglob("*") if path.suffix in SUFFIXES}
    return sorted(paths)


def _imports(names: set[str]) -> set[str]:
    """Return the modules of mmrl among `names`, with their parent packages and imports."""
    graph, modules, new = _graph(), set(), names
    while new:
        modules |= new
        imports = (graph.find_modules_directly_imported_by(name) for name in new & graph.modules)
        new = set().union({name.rpartition(".")[0] for name in new}, *imports) - modules
    return modules & graph.modules


@cache
def _graph() -> grimp.ImportGraph:
    """Return the import graph of mmrl, including imports by pkgutil."""
    graph = grimp.build_graph("mmrl", cache_dir=None)
    for name in graph.modules:
        scans = (init := _path(name)).name == "__init__.py" and "pkgutil" in init.read_text("utf-8")
        for part in graph.find_children(name) if scans else ():
            graph.add_import(importer=name, imported=part)
    return graph


def _path(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _code(notebook: "NotebookNode") -> "list[NotebookNode]":
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _nbmake(path: Path, target: Path) -> None:
    """Run a copy of a notebook in a temporary folder, and save it if every cell succeeds."""
    import nbformat
    from nbclient.exceptions import DeadKernelError
    from nbformat.v4 import new_code_cell
    from nbmake.nb_run import NotebookRun

    work = CACHE / "running" / path.stem
    for attempt in (1, 2):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        notebook = node(path)
        notebook.cells.append(new_code_cell(RECORD))
        nbformat.write(notebook, copy := work / path.name)
        variables = environment(not _compiles(path.stem)) | {"IPYTHONDIR": str(work)}
        # This profile replaces the user's profile, and hides a warning about unencrypted sockets.
        profile = work / "profile_default"
        profile.mkdir()
        (profile / "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 40\n")
        try:
            with mock.patch.dict(os.environ, variables, clear=True):
                run = NotebookRun(copy, CELL_SECONDS).execute()
            break
        except DeadKernelError:  # retry, because kernels occasionally die for no apparent reason
            if attempt == 2:
                raise ExecutionError(f"{path.name}: the kernel died twice") from None
    if run.error is not None:
        at = f"{path.name} failed in cell {run.error.failing_cell_index + 1}"
        raise ExecutionError(f"{at}: {run.error.summary}\n{run.error.trace}")
    record = (o.text for o in run.nb.cells.pop().outputs if o.get("name") == "stdout")
    run.nb.metadata["provenance"] = json.loads("".join(record))
    nbformat.write(run.nb, copy)
    copy.replace(target)


def environment(computing: bool = True) -> dict[str, str]:
    """Return the environment variables of kernels, which enable JAX's compilation cache."""
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        "JUPYTER_PREFER_ENV_PATH": "1",
    }
    # Variables of pytest and coverage must not influence a notebook.
    tests = ("PYTEST_", "COV_")
    variables = {k: v for k, v in os.environ.items() if not k.startswith(tests)}
    flags = {"XLA_FLAGS": hurry()} if hurry() and computing else {}
    return {**settings, **variables, **flags}


def hurry() -> str:
    """Return the XLA flags with which tests run notebooks (see tests/conftest.py)."""
    return os.environ.get("NOTEBOOK_XLA_FLAGS", "")
