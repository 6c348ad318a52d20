"""The folders of the course: who imports what, earlier names, and what scanning finds."""

import ast
import importlib
import json
import re
import sys
from pathlib import Path

import pytest

import mmrl.pdg  # noqa: F401
from mmrl import course
from mmrl._moved import Finder

FINDERS = [finder for finder in sys.meta_path if isinstance(finder, Finder)]
ROOT = Path(course.__path__[0])
NOTEBOOKS = sorted((ROOT.parents[1] / "notebooks").glob("[0-9]*.ipynb"))
FOLDER = re.compile(r"mmrl\.course\.(ch\d\w+)")


def folders(code: str) -> set[str]:
    """Return the folders of chapters from which Python code imports."""
    results = set()
    for node in ast.walk(ast.parse(code)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        results |= {match[1] for name in names if (match := FOLDER.match(name))}
    return results


def code_of(notebook: Path) -> str:
    """Return the code of a notebook without IPython's commands."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    lines = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return re.sub(r"^(\s*)[%!].*$", r"\1pass", lines, flags=re.MULTILINE)


def test_each_notebook_has_its_folder():
    chapters = {path.name for path in ROOT.glob("ch*")}
    assert chapters == {f"ch{path.stem}" for path in NOTEBOOKS}
    for chapter in chapters:
        assert (ROOT / chapter / "__init__.py").exists() and (
            ROOT / chapter / "exercises.py"
        ).exists()


def test_a_notebook_imports_from_its_own_folder_and_from_no_other():
    others = {path.stem: folders(code_of(path)) - {f"ch{path.stem}"} for path in NOTEBOOKS}
    assert {notebook: names for notebook, names in others.items() if names} == {}


def test_a_folder_is_imported_by_its_own_files_only():
    """What several chapters use is next to the folders, and needs none of them."""
    for path in ROOT.rglob("*.py"):
        own = path.relative_to(ROOT).parts[0]
        assert folders(path.read_text("utf-8")) <= {own}, path


@pytest.mark.parametrize(
    ("code", "results"),
    [
        ("from mmrl.course import ch09_r2d2", {"ch09_r2d2"}),
        ("def late():\n    from mmrl.course.ch02_x.figures import f", {"ch02_x"}),
        ("import mmrl.course.ch17_y.by_hand as z", {"ch17_y"}),
        ("from mmrl.course import plain, checks\nfrom mmrl.replay import tape", set()),
    ],
)
def test_an_import_of_a_chapter_is_seen(code: str, results: set[str]):
    assert folders(code) == results


@pytest.mark.parametrize("finder", FINDERS, ids=lambda finder: finder.package)
def test_earlier_names_lead_to_the_same_modules(finder: Finder):
    for old, new in finder.moved.items():
        package, _, name = f"{finder.package}.{old}".rpartition(".")
        module = importlib.import_module(new)
        assert importlib.import_module(f"{package}.{name}") is module
        assert getattr(importlib.import_module(package), name) is module
        assert module.__name__ == module.__spec__.name == new
        assert not source(finder, old).exists(), f"{old} has not moved"


@pytest.mark.parametrize("finder", FINDERS, ids=lambda finder: finder.package)
def test_a_module_that_was_split_has_the_names_of_its_heirs(finder: Finder):
    for old, heirs in finder.split.items():
        result = vars(importlib.import_module(f"{finder.package}.{old}"))
        modules = [vars(importlib.import_module(heir)) for heir in heirs]
        public = {name for names in modules for name in names if not name.startswith("_")}
        assert public <= set(result)
        for name in public:
            assert result[name] is next(names[name] for names in modules if name in names)
        assert not source(finder, old).exists(), f"{old} is still one"


def source(finder: Finder, name: str) -> Path:
    """Return the file that a module would have."""
    return ROOT.parents[1] / (f"{finder.package}.{name}".replace(".", "/") + ".py")


def test_an_unknown_name_is_still_an_error():
    with pytest.raises(ModuleNotFoundError, match="chapter_99"):
        importlib.import_module("mmrl.course.exercises.chapter_99")


@pytest.mark.parametrize("finder", FINDERS, ids=lambda finder: finder.package)
def test_names_outside_of_the_package_are_not_answered(finder: Finder):
    """A user's own `figures` or `segments` has no modules of the course."""
    for name in (*finder.moved, *finder.split):
        assert finder.find_spec(f"{finder.package}.{name}", None) is not None
        for foreign in (name, f"mine.{name}", f"mmrl.{name}"):
            assert finder.find_spec(foreign, None) is None
