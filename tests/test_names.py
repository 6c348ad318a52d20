"""Names in module and class scope of `mmrl` are not participles."""

from pathlib import Path

import pytest

from tests.helpers.names import bindings, is_participle, participles


def test_names_in_module_and_class_scope_are_not_participles():
    assert participles() == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("found = 1", ["found"]),
        ("class A:\n    running: int\n    padding: int\n    shared: bool = False", ["running"]),
        ("def trained() -> Array: ...\ndef passed() -> bool: ...", ["trained"]),
        ("def f():\n    found = 1", []),
        ("if True:\n    def waiting(): ...", ["waiting"]),
    ],
)
def test_participles_are_recognized(code: str, expected: list[str], tmp_path: Path):
    path = tmp_path / "module.py"
    path.write_text(code)
    assert [name.text for name in bindings(path) if is_participle(name)] == expected
