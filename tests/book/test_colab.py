"""Run the setup cell and two chapters with the packages that Colab has: see `colab.toml`.

A fresh environment stands in for Colab's container, and a stub for `google.colab`. Its kernel finds
only the commands of this environment, so there is no git.
"""

import json
import re
import shutil
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.book.test_address import SCREEN, interpreter, wheel  # noqa: F401

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "book" / "tools")]
import address  # noqa: E402
import execute  # noqa: E402
from release import call, fresh, install  # noqa: E402

TABLE = tomllib.loads((ROOT / "tests" / "book" / "colab.toml").read_text("utf-8"))
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
CHAPTERS = ("00_start_here", "03_memory_monoids")
WIDGET = "application/vnd.jupyter.widget-view+json"
COLORS = re.compile(r"\x1b\[[\d;]*m")
# What the kernel imports before any cell runs. Colab may import less, which is easier to install.
STARTUP = "import google.colab, ipywidgets, matplotlib, numpy, pandas"
STUB = {
    "__init__.py": "from google.colab import output\n",
    "output.py": """\
class _widgets:
    _installed_url = None


def enable_custom_widget_manager(url="manager"):
    _widgets._installed_url = url
""",
}
BEFORE = """\
import importlib.metadata
import sys

owners = importlib.metadata.packages_distributions()
imported = {name.partition(".")[0] for name in sys.modules} & owners.keys()
loaded = {name: importlib.metadata.version(name) for top in imported for name in owners[top]}
assert {"ipywidgets", "numpy", "traitlets"} <= loaded.keys()
"""
# What pip reports if it cannot reach its index, before "no matching distribution".
NO_CONNECTION = re.compile("connection broken by|Max retries exceeded")
# Colab asks for a restart if the cell replaces a package that has been imported.
AFTER = """\
versions = {name: (old, importlib.metadata.version(name)) for name, old in loaded.items()}
replaced = {name: pair for name, pair in versions.items() if pair[0] != pair[1]}
assert not replaced, replaced
"""


class Session:
    """A session of Colab with one version of Python, and with ipywidgets 7 or 8."""

    def __init__(self, version: str, widgets: str, folder: Path):
        if not (python := interpreter(version)):
            pytest.skip(f"no Python {version}")
        column = TABLE["python"].index(version)
        installs = {name: row[column] for name, row in TABLE["packages"].items()}
        if widgets == "8":
            installs["ipywidgets"] = versions(LOCK)["ipywidgets"]
        self.python, self.content = fresh(python, folder), folder / "content"
        self.limits, self.kernels = folder / "limits.txt", folder / "jupyter"
        self.limits.write_text(pins(installs))
        try:
            install(self.python, ["install", "-q", "pip"], folder, self.limits)
        except AssertionError as error:
            if not NO_CONNECTION.search(str(error)):
                raise
            pytest.skip(f"the package registry cannot be reached: {str(error)[-300:]}")
        install(self.python, ["install", "-q", *installs], folder, self.limits)
        self.home = self.python.parents[1]
        argv = [str(self.python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        spec = {"argv": argv, "display_name": "Colab", "language": "python"}
        site = self.home / "lib" / f"python{version}" / "site-packages"
        files = {site / "google" / "colab" / name: text for name, text in STUB.items()}
        files[self.home / "ipython" / "profile_default" / "startup" / "colab.py"] = STARTUP
        files[self.kernels / "kernels" / "colab" / "kernel.json"] = json.dumps(spec)
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self.content.mkdir()

    def upload(self, package: Path) -> None:
        """Upload the wheel, and let pip install only locked versions of what is lacking."""
        shutil.copy(package, self.content)
        rows = call(self.python, "-m", "pip", "list", "--format=freeze", folder=self.content)
        self.limits.write_text(pins(lacking(package, versions(rows))))

    def run(self, notebook: Any) -> Any:
        """Run a notebook in a new kernel. Raises `CellExecutionError` at the first error."""
        from nbclient import NotebookClient

        variables = execute.environment() | {
            "PATH": str(self.python.parent),
            "SHELL": "/bin/sh",  # IPython otherwise looks for `sh` on this path
            "PYTHONPATH": "",
            "IPYTHONDIR": str(self.home / "ipython"),
            "PIP_CONSTRAINT": str(self.limits),
        }
        notebook.metadata.kernelspec = {"name": "colab", "display_name": "Colab"}
        where = {"metadata": {"path": str(self.content)}}
        client = NotebookClient(notebook, timeout=execute.CELL_SECONDS, resources=where)
        return client.execute(env=variables)


def pins(packages: dict[str, str]) -> str:
    """Return the text of a file of constraints."""
    return "".join(f"{name}=={version}\n" for name, version in packages.items())


def versions(text: str) -> dict[str, str]:
    """Return the version of each package in a file of constraints."""
    pairs = re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def lacking(package: Path, packages: dict[str, str]) -> dict[str, str]:
    """Return the locked versions of all packages but those that the wheel can use as they are."""
    from packaging.metadata import Metadata

    with zipfile.ZipFile(package) as archive:
        (name,) = (x for x in archive.namelist() if x.endswith(".dist-info/METADATA"))
        requires = Metadata.from_email(archive.read(name), validate=False).requires_dist or []
    for need in requires:
        extra = need.marker is None or need.marker.evaluate({"extra": "colab"})
        if extra and need.name in packages and packages[need.name] not in need.specifier:
            packages = {k: v for k, v in packages.items() if k != need.name}
    return {name: version for name, version in versions(LOCK).items() if name not in packages}


def outputs(notebook: Any) -> list[Any]:
    """Return the outputs of all code cells."""
    return [out for cell in notebook.cells for out in cell.get("outputs", [])]


@pytest.mark.parametrize(
    ("address", "is_reachable"), [("http://127.0.0.1:9/simple", False), ("", True)]
)
def test_only_an_index_that_cannot_be_reached_is_a_broken_connection(
    address: str, is_reachable: bool, tmp_path: Path
):
    """Without an address, pip searches an empty folder, which contains no version of a package."""
    places = ["--index-url", address] if address else ["--no-index", "--find-links", str(tmp_path)]
    words = ["-m", "pip", "--isolated", "install", "-q", "--retries", "1", "--timeout", "1"]
    with pytest.raises(AssertionError) as error:
        call(sys.executable, *words, *places, "--target", "x", "no-such-package", folder=tmp_path)
    assert "No matching distribution" in str(error.value)
    assert bool(NO_CONNECTION.search(str(error.value))) != is_reachable


@pytest.mark.full
@pytest.mark.parametrize(("version", "widgets"), [("3.11", "7"), ("3.12", "8"), ("3.13", "7")])
def test_the_setup_cell_prepares_chapters_on_colab(
    version: str,
    widgets: str,
    wheel: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    from nbclient.exceptions import CellExecutionError
    from nbformat.v4 import new_code_cell, new_notebook

    session = Session(version, widgets, tmp_path)
    monkeypatch.setenv("JUPYTER_PATH", str(session.kernels))
    alone = new_notebook(cells=[new_code_cell(address.cell(""))])
    with pytest.raises(CellExecutionError):
        session.run(alone)
    (error,) = (out for out in outputs(alone) if out.output_type == "error")
    assert COLORS.sub("", "\n".join(error.traceback)).strip() == SCREEN

    session.upload(wheel)
    for name in CHAPTERS:
        notebook = execute.node(execute.NOTEBOOKS / f"{name}.ipynb")
        count = sum("remove-input" in cell.metadata.get("tags", []) for cell in notebook.cells)
        notebook.cells[1].source = address.cell("")
        notebook.cells[1:2] = [new_code_cell(BEFORE), notebook.cells[1], new_code_cell(AFTER)]
        texts = outputs(session.run(notebook))
        assert sum(WIDGET in out.get("data", {}) for out in texts) >= count > 0
        # Pip reports packages that no longer fit together, and goes on.
        assert not [out for out in texts if re.search("Traceback|ERROR", out.get("text", ""))]
