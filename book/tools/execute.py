"""Run the notebooks, each once, with nbmake; the book and the tests share what came out.

A run is kept until its code cells, anything in mmrl, or requirements.lock change. Text may change
freely. Several processes may ask at once: each notebook is run by one of them, the others wait.
MyST-NB's own cache is not used: it sees neither a change in mmrl nor one of a picture's alt text.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from locks import lock

if TYPE_CHECKING:
    from nbformat import NotebookNode

ROOT = Path(__file__).parent.parent.parent
NOTEBOOKS = ROOT / "notebooks"
CACHE = ROOT / ".cache" / "notebooks"
CELL_SECONDS = 600
SUFFIXES = {".py", ".mjs", ".css", ".jsonl"}
# These compute for longer than they compile: the flags of the tests would make them slower.
UNHURRIED = {"16_graphs_and_schedules"}


class Failed(Exception):
    """A notebook stopped with an error; the message is nbmake's report."""


@cache
def library_key() -> str:
    """What the output of every notebook depends on: mmrl, the book's results, the lock file.

    Once per process: a build does not change its mind while somebody edits.
    """
    paths = [*(ROOT / "mmrl").rglob("*"), *(ROOT / "book" / "results").rglob("*")]
    digest = hashlib.sha256((ROOT / "requirements.lock").read_bytes())
    for path in sorted(path for path in paths if path.suffix in SUFFIXES and path.is_file()):
        digest.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return digest.hexdigest()


def chapters() -> list[Path]:
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def execute(path: Path) -> bool:
    """Run one notebook unless it was run already; whether it was run now.

    Raises `Failed` with the cell and its traceback if it stops, or takes too long.
    """
    import nbformat  # takes two seconds, which not every test has to wait

    with lock(store() / f"{path.stem}.lock"):
        target = _kept(nbformat.read(path, 4))
        if target.exists():
            return False
        for attempt in (1, 2):
            done = _nbmake(path, target)
            # A kernel that dies says nothing of the notebook: once in a while one does.
            if attempt == 2 or "Kernel died" not in done.stdout:
                break
        if done.returncode:
            raise Failed(f"{path.name} does not run:\n{done.stdout}{done.stderr}")
    return True


def execute_all() -> None:
    """Run every notebook that was not run yet. Raises `Failed` with all reports at once."""
    reports = []
    for path in chapters():
        print(f"  {path.name:40}", end="", flush=True)
        try:
            print("run" if execute(path) else "unchanged", flush=True)
        except Failed as error:
            print("FAILED", flush=True)
            reports.append(str(error))
    if reports:
        raise Failed("\n".join(reports))


def read(text: str) -> "NotebookNode":
    """A notebook as MyST-NB wants it: as it stands in its file, with the outputs of its run."""
    import nbformat

    notebook = nbformat.reads(text, 4)
    path = _kept(notebook)
    if path.exists():
        run = nbformat.read(path, 4)
        for cell, ran in zip(_code(notebook), _code(run), strict=True):
            cell.outputs, cell.execution_count = ran.outputs, ran.execution_count
        notebook.metadata |= {k: v for k, v in run.metadata.items() if k == "widgets"}
    return notebook


def _kept(notebook: "NotebookNode") -> Path:
    """Where the run of these code cells is kept; one of the tests is not that of a reader."""
    code = "\0".join([hurry(), *(cell.source for cell in _code(notebook))])
    return store() / f"{hashlib.sha256(code.encode()).hexdigest()[:20]}.ipynb"


def _code(notebook: "NotebookNode") -> "list[NotebookNode]":
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@cache
def store() -> Path:
    """The folder of this library's runs. Those of another library are removed."""
    runs = CACHE / library_key()[:20]
    with lock(CACHE / "lock"):
        for other in CACHE.iterdir():
            if other.is_dir() and other != runs:
                shutil.rmtree(other)
        runs.mkdir(exist_ok=True)
    return runs


def _nbmake(path: Path, target: Path) -> subprocess.CompletedProcess[str]:
    """Run a copy of a notebook in a folder of its own, and keep it if it ran to its end."""
    work = store() / path.stem
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    copy = Path(shutil.copy(path, work))
    (work / "pytest.ini").write_text("[pytest]\n")  # none of the tests' own settings
    command = [sys.executable, "-m", "pytest", "--nbmake", "--overwrite", "-q"]
    command += ["-p", "no:cacheprovider", f"--nbmake-timeout={CELL_SECONDS}"]
    done = subprocess.run(
        [*command, "-c", str(work / "pytest.ini"), str(copy)],
        cwd=work,
        env=environment(hurried=path.stem not in UNHURRIED),
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        copy.replace(target)
    return done


def environment(hurried: bool = True) -> dict[str, str]:
    """That of the kernels: compiled programs are kept, and the kernel is this Python's."""
    kept = {
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        "JUPYTER_PREFER_ENV_PATH": "1",
    }
    # A notebook does not run under the settings of the tests that may have asked for it.
    tests = ("PYTEST_", "COV_")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(tests)}
    flags = {"XLA_FLAGS": hurry() if hurried else ""} if hurry() else {}
    return {**kept, **inherited, **flags}


def hurry() -> str:
    """The flags of XLA with which tests run notebooks: see tests/conftest.py. Readers have none."""
    return os.environ.get("NOTEBOOK_XLA_FLAGS", "")
