"""Write book/api: one page for each module of the ladder in the README, from its docstrings."""

import ast
import pkgutil
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
API = ROOT / "book" / "api"
OPEN = re.compile(
    r"mmrl\.(agents\.(clear|ppo|r2d2)|course\.(ch\w+|capstone|continual|figures|widgets)"
    r"|pdg\.(language|run|schedule|verify))$"
)
HIDDEN = re.compile(r"mmrl\.course\.ch\w+\.(exercises|experiment_\w+)$")
ROW = re.compile(r"^\| `mmrl\.(\w+)` \| (.+) \|$", flags=re.MULTILINE)


def rungs() -> dict[str, str]:
    """The modules of the ladder and what each holds, in reading order, as the README says it."""
    return dict(ROW.findall((ROOT / "README.md").read_text("utf-8")))


def modules(rung: str) -> list[str]:
    """The modules that the page of a rung shows: of a chapter, all but exercises and experiments.

    A package with `__all__` is shown as one; of others all public modules are shown. What a package
    in `OPEN` is made of is shown after it, but for what its `__all__` has shown already.
    """
    name, folder = f"mmrl.{rung}", ROOT / "mmrl" / rung
    init = folder / "__init__.py"
    if not folder.is_dir() or (init.exists() and _given(init)):
        return [name]
    shown = [name] if init.exists() else []
    for part in _parts(name, folder):
        below = _parts(part, folder / part.rpartition(".")[2]) if OPEN.match(part) else []
        shown += [part, *(module for module in below if not HIDDEN.match(module))]
    return shown


def _parts(name: str, folder: Path) -> list[str]:
    """List the public modules of a package of which its `__all__` shows less than half."""
    init = folder / "__init__.py"
    given = _given(init) if init.exists() else {}
    parts = sorted(info.name for info in pkgutil.iter_modules([str(folder)]))
    public = [f"{name}.{part}" for part in parts if not part.startswith("_")]
    return [part for part in public if not _shown(part, given.get(part, set()))]


def _shown(module: str, names: set[str]) -> bool:
    """Check whether these are at least half of the public names of a module."""
    source = (ROOT / module.replace(".", "/")).with_suffix(".py")
    if not names or not source.exists():
        return bool(names)
    body = ast.parse(source.read_text("utf-8")).body
    defined = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    public = {name for name in defined if not name.startswith("_")}
    return 2 * len(public & names) >= len(public)


def _given(init: Path) -> dict[str, set[str]]:
    """Find the modules of which a package passes on names in its `__all__`, and those names."""
    body = ast.parse(init.read_text("utf-8")).body
    assigned = [t for node in body if isinstance(node, ast.Assign) for t in node.targets]
    names = [node.id for t in assigned for node in ast.walk(t) if isinstance(node, ast.Name)]
    if "__all__" not in names:
        return {}
    nodes = [node for part in body for node in ast.walk(part) if isinstance(node, ast.ImportFrom)]
    given: dict[str, set[str]] = {}
    for node in nodes:
        given.setdefault(node.module or "", set()).update(alias.name for alias in node.names)
    return given


def page(rung: str) -> str:
    parts = [f"# mmrl.{rung}"]
    for name in modules(rung):
        parts += [] if name == f"mmrl.{rung}" else [f"## {name}"]
        parts.append(_directive(name))
    return "\n\n".join(parts) + "\n"


def _directive(module: str) -> str:
    return f"```{{eval-rst}}\n.. automodule:: {module}\n```"


def index() -> str:
    rows = "\n".join(f"| [`mmrl.{rung}`]({rung}.md) | {words} |" for rung, words in rungs().items())
    return (
        "# The library\n\n"
        "From bottom to top: that is the reading order, and the only direction in which modules "
        "import each other. These pages are made of the docstrings; *[source]* "
        "beside a name leads to the code, which is short and meant to be read.\n\n"
        f"| module | what it holds |\n|---|---|\n{rows}\n"
    )


def write() -> None:
    """Write all pages, and remove those of modules that are gone."""
    API.mkdir(exist_ok=True)
    for path in API.glob("*.md"):
        path.unlink()
    for name, text in {**{rung: page(rung) for rung in rungs()}, "index": index()}.items():
        (API / f"{name}.md").write_text(text, "utf-8")
