"""Write book/api, the pages with the docstrings of the library."""

import importlib
import inspect
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
API = ROOT / "book" / "api"
OPEN = re.compile(
    r"mmrl\.(agents\.\w+|course\.(ch\w+|capstone|continual|figures|widgets)"
    r"|pdg\.(build|clean|plan|run|schedule))$"
)
PRIVATE = re.compile(
    r"mmrl\.(course\.ch\w+\.(exercises|experiment_\w+)"
    r"|pdg\.(build\.derivative|plan\.cost|run\.lowering))$"
)
ROW = re.compile(r"^\| `mmrl\.(\w+)` \| (.+) \|$", flags=re.MULTILINE)


def rungs() -> dict[str, str]:
    """Return the modules in the README's table (rungs) with descriptions, in reading order."""
    return dict(ROW.findall((ROOT / "README.md").read_text("utf-8")))


def modules(rung: str) -> list[str]:
    """Return the modules that the page of a rung (a row of the README's table) documents.

    The submodules of a package are omitted if the package defines `__all__` or does not match
    `OPEN`, because the page then documents their names under the package. A module is also omitted
    if its parent packages export at least half of its names.
    """
    base = ROOT / "mmrl" / rung
    paths = [path.relative_to(ROOT).with_suffix("") for path in base.rglob("*.py")]
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    return [name for name in sorted(names | {f"mmrl.{rung}"}) if "._" not in name and _adds(name)]


def _adds(name: str) -> bool:
    parts = name.split(".")
    first, *others = [".".join(parts[:i]) for i in range(2, len(parts))] or [name]
    if first == name:
        return True
    exports = [
        getattr(importlib.import_module(package), "__all__", ()) for package in (first, *others)
    ]
    if exports[0] or PRIVATE.match(name) or not all(map(OPEN.match, others)):
        return False
    module = importlib.import_module(name)
    members = inspect.getmembers(module, lambda x: inspect.isroutine(x) or inspect.isclass(x))
    own = {key for key, value in members if key[0] != "_" and value.__module__ == name}
    reexports = own.intersection(set().union(*exports))
    return hasattr(module, "__path__") or 2 * len(reexports) < len(own)


def page(rung: str) -> str:
    """Return the page of a rung, with a heading and the documentation of its modules."""
    parts = [f"# mmrl.{rung}"]
    for name in modules(rung):
        parts += [] if name == f"mmrl.{rung}" else [f"## {name}"]
        parts.append(_directive(name))
    return "\n\n".join(parts) + "\n"


def _directive(module: str) -> str:
    return f"```{{eval-rst}}\n.. automodule:: {module}\n```"


def index() -> str:
    """Return the page that lists all rungs."""
    rows = "\n".join(f"| [`mmrl.{rung}`]({rung}.md) | {words} |" for rung, words in rungs().items())
    return (
        "# The library\n\n"
        "From bottom to top: that is the reading order, and the only direction in which modules "
        "import each other. These pages are generated from the docstrings; *[source]* "
        "next to a name leads to the code, which is short and meant to be read.\n\n"
        f"| module | what it holds |\n|---|---|\n{rows}\n"
    )


def write() -> None:
    """Write all pages, and delete pages of modules that no longer exist."""
    API.mkdir(exist_ok=True)
    for path in API.glob("*.md"):
        path.unlink()
    for name, text in {**{rung: page(rung) for rung in rungs()}, "index": index()}.items():
        (API / f"{name}.md").write_text(text, "utf-8")
