"""What is public stays as it is, or whoever changes it is told what else to change."""

import ast
import re
import textwrap
from pathlib import Path

import pytest

from tests.helpers import public

ROOT = Path(__file__).parents[2]

EXAMPLE = """
import dataclasses
from collections.abc import Callable
from math import gcd as gcd, lcm
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")
NAMES = ("two", "one")
PAIR: dict[str, int] = {"b": 1, "a": 2}
Make = Callable[[int], int]
_HIDDEN = 1

def scan(xs: list[int], /, init: int | None = None, *, method: str = "auto", **more) -> int: ...
def _private(): ...

class Base:
    size: int
    def __init__(self, size: int, *, key): self.size = size
    def __call__(self, x): ...
    def _inner(self): ...
    @property
    def shown(self): ...
    @classmethod
    def of(cls, path: Path = Path("a") / "b"): ...

class Derived(Base):
    def more(self, f=gcd): ...

class Point(NamedTuple):
    x: int
    y: int = 0

class Promise(Protocol):
    def kept(self) -> bool: ...

@dataclasses.dataclass(frozen=True)
class Config:
    first_of_many_settings: str = "with a long default"
    second_of_many_settings: tuple[int, ...] = (1, 2, 3)
    third: object = object()
"""
LISTING = """\
mmrl_example.Base(size, *, key)
mmrl_example.Base.__call__(x)
mmrl_example.Base.of(path='a/b')
mmrl_example.Base.shown
mmrl_example.Config(
    first_of_many_settings='with a long default',
    second_of_many_settings=(1, 2, 3),
    third=object,
)
mmrl_example.Derived(size, *, key) : mmrl_example.Base
mmrl_example.Derived.more(f=gcd)
mmrl_example.Make
mmrl_example.NAMES = one two
mmrl_example.PAIR = a b
mmrl_example.Point(x, y=0)
mmrl_example.Promise
mmrl_example.Promise.kept()
mmrl_example.gcd
mmrl_example.scan(xs, /, init=None, *, method='auto', **more)
"""


@pytest.fixture(scope="module")
def public_text() -> str:
    return public.text()


def test_public_names_are_those_of_the_list(public_text: str):
    assert not (message := public.difference(public.SNAPSHOT.read_text("utf-8"), public_text)), (
        message
    )


def test_a_change_is_told_with_what_to_do():
    listing = "mmrl.a(x)\nmmrl.b\n"
    assert public.difference(listing, listing) == ""
    message = public.difference(listing, "mmrl.a(x, y)\nmmrl.b\n")
    assert "-mmrl.a(x)\n+mmrl.a(x, y)\n" in message and "mmrl.b" not in message
    assert "CHANGELOG.md" in message and "`python tests/helpers/public.py`" in message


def test_what_a_caller_writes_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "mmrl_example.py").write_text(EXAMPLE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(public, "doors", lambda: ["mmrl_example"])
    monkeypatch.setattr(public, "_commands", list)
    assert public.text() == LISTING


def test_what_the_guides_import_is_public(public_text: str):
    """But for what they take of the course, and for environments and examples of the reader."""
    texts = [ROOT / "README.md", *(ROOT / "book").glob("*.md")]
    blocks = [
        b for path in texts for b in re.findall(r"```python\n(.*?)```", path.read_text(), re.S)
    ]
    nodes = [node for block in blocks for node in ast.walk(ast.parse(textwrap.dedent(block)))]
    results = {
        f"{node.module}.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mmrl")
        for alias in node.names
    }
    entries = {*re.findall(r"^[\w.]+", public_text, re.MULTILINE), *public.doors()}
    assert len(results) > 20
    assert {name for name in results if not name.startswith("mmrl.course")} <= entries


def test_the_page_names_every_door():
    page = (ROOT / "book" / "stability.md").read_text("utf-8")
    names = set(re.findall(r"`(?:mmrl\.(?:\w+\.)?)?([\w.]+)`", page))
    assert {part for parts in public.PARTS.values() for part in parts} <= names
