"""Docstrings on the pages of the library: formulas outside code are typeset."""

import ast
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "book" / "tools")]
import pages  # noqa: E402


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("G_t = v'_t + λ G_{t+1}", "G{sub}`t` = v'{sub}`t` + λ G{sub}`t+1`"),
        ("γ^{t-s} v̂_s, max_a Q_θ", "γ{sup}`t-s` v̂{sub}`s`, max{sub}`a` Q{sub}`θ`"),
        ('`x_t`, "n_step" and stop_gradient', '`x_t`, "n_step" and stop\\_gradient'),
        ("Returns:\n\n    x_t = y_{t+1}", "Returns:\n\n    x_t = y_{t+1}"),
    ],
)
def test_formulas_outside_code_get_subscripts(text: str, expected: str):
    assert pages.typeset(text) == expected


def test_an_example_below_a_single_line_is_code():
    lines = ["Return x_t.", "", ">>> f(x_t)", "1", ""]
    block = ["    Return x{sub}`t`.", "    ", "        >>> f(x_t)", "        1"]
    assert pages.markdown(lines)[2:6] == block


def broken_paragraphs(text: str) -> Iterator[str]:
    """Yield lines within a paragraph that Markdown reads as the first item of a list."""
    lines = text.splitlines()
    for before, line in itertools.pairwise(lines):
        item = re.match(r" {0,3}(?:1[.)]|[*+]) ", line)
        if item and before.strip() and not before.startswith(("    ", "1", "*", "+")):
            yield line


def test_no_line_of_a_docstring_becomes_a_list():
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef
    results = []
    for path in (ROOT / "mmrl").rglob("*.py"):
        nodes = (node for node in ast.walk(ast.parse(path.read_text("utf-8"))))
        texts = (ast.get_docstring(node) or "" for node in nodes if isinstance(node, kinds))
        results += [f"{path}: {line}" for text in texts for line in broken_paragraphs(text)]
    assert results == []
    assert list(broken_paragraphs("The map y ↦ x\n+ g y\n\n+ item")) == ["+ g y"]
