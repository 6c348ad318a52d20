"""Examples in docstrings, the lines that begin with >>>, run and print what they show."""

import ast
import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def docstrings() -> Iterator[Any]:
    """Yield each docstring of the package that contains an example, without importing it."""
    for path in sorted((ROOT / "mmrl").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                name = module if isinstance(node, ast.Module) else f"{module}.{node.name}"
                if ">>> " in text:
                    yield pytest.param(module, name, text, id=name)


@pytest.mark.full
@pytest.mark.parametrize(("module", "name", "text"), list(docstrings()))
def test_an_example_prints_what_it_shows(module: str, name: str, text: str):
    names = dict(vars(importlib.import_module(module)))
    example = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    output: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=output.append)
    assert not output, "".join(output)
    assert example.examples
