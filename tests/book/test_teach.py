"""The lecturer's page counts the minutes of the chapters, and what it hands out is there."""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import dropwhile, takewhile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEACH = (ROOT / "book" / "teach.md").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def header(path: Path) -> str:
    return "".join(json.loads(path.read_text("utf-8"))["cells"][0]["source"])


CHAPTERS = {
    path.name.partition("_")[0]: header(path)
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
}


def minutes(chapter: str) -> tuple[int, int]:
    """(to read, for the exercises), as the chapter's Time line has them."""
    match = re.search(r"about (\d+) minutes to read, and (\d+) for", CHAPTERS[chapter])
    assert match, chapter
    return int(match[1]), int(match[2])


def before(chapter: str) -> set[str]:
    """The chapters that a chapter asks for."""
    line = re.search(r"\*\*Before:\*\*(.*?)\n\n", CHAPTERS[chapter], re.DOTALL)
    return set(re.findall(r"\((\w+?)_\w+\.ipynb\)", line[1])) if line else set()


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, or below the bold words of a paragraph."""
    below = TEACH.partition(heading)[2].splitlines()
    table = list(takewhile(lambda x: x[:1] == "|", dropwhile(lambda x: x[:1] != "|", below)))
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[2:]]


def chapters(cell: str) -> list[str]:
    return re.findall(r"\d\db?", cell)


PLANS = {
    "**A term of twelve weeks**": 12,
    "**Half a term, six weeks**": 6,
    "**The one-day plan**": 3,
}


def total_minutes(plan: str, chapters: list[str]) -> list[int]:
    """[minutes to read, minutes for the exercises that a plan asks for] of these chapters."""
    read, work = (sum(each) for each in zip(*map(minutes, chapters), strict=True))
    # Of each chapter it sets the first exercise alone, of three that are counted alike.
    return [read, work // 3 if plan == "**The one-day plan**" else work]


@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_counts_what_its_chapters_say(plan: str):
    *parts, (_, number, read, work, *_) = rows(plan)
    assert len(parts) == PLANS[plan]
    numbers: list[str] = []
    for part, names, *times, _ in parts:
        here = chapters(names)
        expected = total_minutes(plan, here)
        assert [int(time) for time in times] == expected, f"{plan}, {part}"
        for chapter in here:
            assert before(chapter) <= {*numbers}, f"{plan}: {chapter} comes too early"
            numbers.append(chapter)
    totals = total_minutes(plan, numbers)
    assert number == f"{len(numbers)} chapters"
    hours = [f"{total / 60:.0f} hour" + "s" * (total >= 90) for total in totals]
    assert [read, work] == hours, f"{plan} takes {hours}"
    assert len(set(numbers)) == len(numbers)
    assert plan != "**A term of twelve weeks**" or set(numbers) == set(CHAPTERS)


def test_every_chapter_has_its_session():
    sessions = rows(" sessions\n")
    names = [chapter for _, names, *_ in sessions for chapter in chapters(names)]
    assert sorted(names) == sorted(CHAPTERS)
    assert len(sessions) < 2 * 12  # the last session of a term is for the capstones


# What Docker and Binder read


def instructions() -> list[tuple[str, str]]:
    """(instruction, arguments) of each line of the image's Dockerfile."""
    text = (ROOT / "book" / "hub" / "Dockerfile").read_text("utf-8")
    for name, value in re.findall(r"^ARG (\w+)=(.+)$", text, flags=re.MULTILINE):
        text = text.replace(f"${{{name}}}", value)
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [(name, rest.strip()) for name, _, rest in (x.partition(" ") for x in lines if x)]


def arguments(name: str) -> Iterator[str]:
    return (rest for instruction, rest in instructions() if instruction == name)


def asked_for(version: str) -> bool:
    """Whether a Python of this version, as "3.12", is one that the package takes."""
    least = re.fullmatch(r">=(\d+)\.(\d+)", PROJECT["requires-python"])
    assert least
    return [*map(int, version.split("."))] >= [*map(int, least.groups())]


def test_the_image_is_built_of_what_is_there():
    assert instructions()[0][0] == "FROM"
    (base,) = arguments("FROM")
    assert (match := re.fullmatch(r"python:(3\.\d+)-slim", base)) and asked_for(match[1])
    targets = {}
    for line in arguments("COPY"):
        *sources, target = line.split()
        targets |= {s: f"{target}/{Path(s).name}" if target == "./" else target for s in sources}
    assert all((ROOT / source).exists() for source in targets)
    assert {"pyproject.toml", "requirements.lock", PROJECT["readme"]} <= set(targets)
    assert set(PROJECT["license-files"]) <= set(targets)
    link = ROOT / "mmrl" / "course" / "published"  # leads out of what is copied with it
    assert str(link.resolve().relative_to(ROOT)) in targets.values()
    patterns = (ROOT / "book" / "hub" / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert patterns[1] == "*"
    others = {line[1:] for line in patterns if line[:1] == "!"} - {*targets}
    # What students get in place of the chapters, as `make student` names it.
    assert (
        others == {"build/student/release"}
        and "--build-arg NOTEBOOKS=build/student/release" in TEACH
    )


def test_the_image_installs_the_locked_versions_and_extras_that_exist():
    (install,) = (line for line in arguments("RUN") if "pip install" in line)
    assert "-c requirements.lock" in install and "jupyterhub==" in install
    (extras,) = re.findall(r"-e '\.\[(.+?)\]'", install)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    order = [name for name, rest in instructions() if name != "RUN" or "pip" in rest]
    assert order.index("RUN") > order.index("COPY")


def test_nobody_is_root_in_the_image():
    names = [name for name, _ in instructions()]
    (user,) = arguments("USER")
    (line,) = (line for line in arguments("RUN") if "useradd" in line)
    assert user.isdigit() and int(user) > 0 and f"--uid {user}" in line
    (after,) = (i for i, name in enumerate(names) if name == "USER")
    assert not {"RUN", "COPY"} & set(names[after:])  # what comes later is the student's


def test_a_student_gets_a_copy_of_the_chapters_and_keeps_it(tmp_path: Path):
    image, home = tmp_path / "image", tmp_path / "home"
    (image / "notebooks").mkdir(parents=True)
    (image / "notebooks" / "00.ipynb").write_text("as published")
    home.mkdir()
    (entry,), (command,) = arguments("ENTRYPOINT"), arguments("CMD")
    program = [part.replace("/srv/mmrl", str(image)) for part in json.loads(entry)]
    assert json.loads(command) == ["jupyterhub-singleuser"]
    for content in ("as published", "as the student left it"):
        process = subprocess.run(
            [*program, "echo", "a b"], cwd=home, capture_output=True, text=True
        )
        assert (process.stdout, process.stderr) == ("a b\n", "")
        assert [path.name for path in (home / "notebooks").iterdir()] == ["00.ipynb"]
        assert (home / "notebooks" / "00.ipynb").read_text() == content
        (home / "notebooks" / "00.ipynb").write_text("as the student left it")


def test_binder_finds_the_lock_the_extra_and_a_python():
    folder = ROOT / ".binder"
    lines = (folder / "requirements.txt").read_text("utf-8").split("\n")
    locks = [folder / line[3:] for line in lines if line.startswith("-c ")]
    assert [path.resolve() for path in locks] == [ROOT / "requirements.lock"]
    extras = re.findall(r"^-e \.\[(\w+)\]$", "\n".join(lines), re.MULTILINE)
    assert extras and set(extras) <= set(PROJECT["optional-dependencies"])
    runtime = (folder / "runtime.txt").read_text("utf-8").strip()
    assert (match := re.fullmatch(r"python-(3\.\d+)", runtime)) and asked_for(match[1])
