"""Each planted mistake of tests/mutants applies; `make mutants` runs the tests that catch it."""

import dataclasses
from pathlib import Path

import pytest

from tests.mutants import run


def test_every_mutant_applies():
    flaws = {mutant.name: run.flaws(mutant) for mutant in run.mutants()}
    assert {name: flaw for name, flaw in flaws.items() if flaw} == {}


def test_a_mutant_that_does_not_apply_is_named(tmp_path: Path):
    (tmp_path / "test_it.py").write_text("def test_two(): pass\n")
    (tmp_path / "it.py").write_text("one = 1\ntwo = 1 + 1\n")
    good = run.Mutant("two", "it.py", "1 + 1", "1 - 1", ("test_it.py::test_two",))
    assert run.flaws(good, tmp_path) == ""
    assert good.apply(tmp_path) == "one = 1\ntwo = 1 - 1\n"
    for change, message in [
        ({"old": "1"}, "once, got 3"),
        ({"old": "2"}, "once, got 0"),
        ({"new": "1 -"}, "invalid syntax"),
        ({"new": "1 + 1"}, "must differ"),
        ({"file": "that.py"}, "no file that.py"),
        ({"tests": ("test_that.py",)}, "no file test_that.py"),
        ({"tests": ("test_it.py::test_three",)}, "no test"),
        ({"tests": ()}, "must select something"),
    ]:
        assert message in run.flaws(dataclasses.replace(good, **change), tmp_path)


def test_fields_and_names_are_checked(tmp_path: Path):
    row = '[[mutant]]\nfile = "a"\nold = "b"\nnew = "c"\ntests = "d"\n'
    (tmp_path / "one.toml").write_text(row + row)
    assert [mutant.name for mutant in run.mutants(tmp_path)] == ["one: 1", "one: 2"]
    (tmp_path / "one.toml").write_text(2 * f'{row}name = "x"\n')
    with pytest.raises(ValueError, match="got twice"):
        run.mutants(tmp_path)
    (tmp_path / "one.toml").write_text(row + "more = 1\n")
    with pytest.raises(ValueError, match="number 1: fields are"):
        run.mutants(tmp_path)
