"""The page of projects: its four files run, and its rubrics and hours are there."""

import pathlib
import re
import runpy

import pytest

PAGE = (pathlib.Path(__file__).parents[2] / "book" / "projects.md").read_text("utf-8")
PROJECTS = ("A memory of your own", "The same curve from a quarter of the machine")
PROJECTS += ("A curriculum that forgets", "An algorithm as equations")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, flags=re.DOTALL))
TINY = {
    "project_2.py": {
        "WIDTH = 32": "WIDTH = 8",
        "blocks=16": "blocks=1, block=1, environments=4, rollout=4, updates=1, episodes=2",
    },
    "project_3.py": {
        "environments=64, rollout=32, minibatches=4": "environments=16, rollout=4, minibatches=1",
        "block=4, blocks=10, episodes=64": "width=8, block=1, blocks=1, episodes=2",
    },
    "project_4.py": {
        "width=32, environments=24, rollout=16": "width=8, environments=2, rollout=4",
        "block=25, blocks=8, episodes=64": "block=1, blocks=1, episodes=2",
        "capacity=4_800": "capacity=64",
    },
    "project_5.py": {"5, 0.02, 500, 64": "5, 0.02, 3, 16"},
}


def rows(table: str) -> list[list[str]]:
    """The cells of a table's rows, without its two first lines."""
    return [[cell.strip() for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]


def tables(name: str, head: str) -> list[list[str]]:
    """The rows of the one table of a project whose first line begins so."""
    matches = re.findall(r"^\| " + head + r".*\n(?:\|.*\n)+", SECTIONS[name], flags=re.MULTILINE)
    assert len(matches) == 1
    return rows(matches[0])


@pytest.mark.full
@pytest.mark.parametrize("name", TINY)
def test_a_file_runs(
    name: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    """With sizes that are tiny."""
    text = FILES[name]
    for old, new in TINY[name].items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text(text)
    runpy.run_path(name)
    output = capsys.readouterr().out
    expected = {
        "project_2.py": r"'left identity': 0\.0.*parameters: 80\n.* fading 16 \[",
        "project_3.py": r"^64 steps.*c =  1: +1 grad.*c = 16: +16 grad",
        "project_4.py": r"V-trace 0 learned \[.*CLEAR 1 learned \[",
        "project_5.py": r"as written: .*'place', 0\): 16, .*tiles of 8: .*'walk', 1\): 16",
    }
    assert re.search(expected[name], output, flags=re.DOTALL), output


def test_there_are_four_files_with_places_to_change():
    assert [*FILES] == [*TINY]
    for name, text in FILES.items():
        assert text.count("CHANGE") >= 2, name
        assert 25 <= len(text.splitlines()) <= 85, name
        assert f"# {name}" in SECTIONS[PROJECTS[int(name[8]) - 2]]


@pytest.mark.parametrize("name", PROJECTS)
def test_a_rubric_adds_up_to_twenty(name: str):
    rubric = tables(name, r"criterion \| points")
    assert 4 <= len(rubric) <= 6
    assert all(len(row) == 5 and all(row) for row in rubric)
    assert sum(int(row[1]) for row in rubric) == 20


@pytest.mark.parametrize("name", PROJECTS)
def test_the_hours_are_those_of_the_steps(name: str):
    (hours,) = re.findall(r"\*\*Time:\*\* (\d) hours", SECTIONS[name])
    assert sum(float(row[-1]) for row in tables(name, r"step \| hours")) == int(hours)
    assert re.search(rf"^\| \[{name}\]\(#.*\| {hours} \|", PAGE, flags=re.MULTILINE)
    assert 4 <= int(hours) <= 6
