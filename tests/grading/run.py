"""Grade planted submissions of a chapter in a fresh environment, without a network.

    python tests/grading/run.py                        chapter 05
    python tests/grading/run.py --chapter 03           another one
    python tests/grading/run.py --chapter all --only right open     every chapter, these alone
    python tests/grading/run.py --python PYTHON        an environment that has `mmrl-jax[grading]`

A right, a half-right and a wrong submission, one that was left open, and such as never end, end too
early or are no notebooks are handed in, and everybody must get their points, and a sentence. It
takes some ten CPU-minutes for a chapter, mostly because each notebook is run from top to bottom.
"""

import argparse
import ast
import csv
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CELL_SECONDS = 60  # less than a lecturer grants, so that who never ends is found out sooner

SLOW = "it took longer than"
DIED = "process had died"
OPEN = "it was left open"
RIGHT = "right, on"
ENDLESS = "while True:\n    pass"
# What Python cannot interrupt; nothing that comes later is run.
DEAF = "import jax\n\njax.jit(lambda: jax.lax.while_loop(lambda i: i < 1, lambda i: i * 0, 0))()"
DEAD = "import os\n\nos._exit(1)"


@dataclasses.dataclass(frozen=True)
class Planted:
    """A submission: an answer for each exercise, and points and words that it must get."""

    answers: tuple[str, str, str]  # "right", "mistake", "open", "gone" (with its check), or code
    points: tuple[int, int, int]
    said: tuple[str, str, str]


PLANTED = {
    "right": Planted(("right",) * 3, (1, 1, 1), (RIGHT,) * 3),
    "half": Planted(("right", "mistake", "open"), (1, 0, 0), (RIGHT, "Exercise", OPEN)),
    "wrong": Planted(("mistake",) * 3, (0, 0, 0), ("Exercise",) * 3),
    "open": Planted(("open",) * 3, (0, 0, 0), (OPEN,) * 3),
    "endless": Planted(("right", ENDLESS, "right"), (1, 0, 1), (RIGHT, "NameError", RIGHT)),
    "deaf": Planted(("right", DEAF, "right"), (1, 0, 0), (RIGHT, SLOW, SLOW)),
    "dead": Planted(("right", DEAD, "right"), (1, 0, 0), (RIGHT, DIED, DIED)),
    "gone": Planted(("right", "gone", "right"), (1, 0, 1), (RIGHT, "NameError", RIGHT)),
    "unreadable": Planted(("no notebook",) * 3, (0, 0, 0), ("could not be read",) * 3),
}


def submission(chapter: str, released: dict[str, Any], planted: Planted) -> str:
    """The text of a notebook with these answers, as a student would hand it in."""
    if planted.answers[0] == "no notebook":
        return "This is no notebook."
    source = json.loads((ROOT / "notebooks" / f"{chapter}.ipynb").read_text("utf-8"))
    solutions = [text_of(c) for c in source["cells"] if "solution" in c["metadata"].get("tags", [])]
    cells, wanted = [], iter(zip(planted.answers, solutions, strict=True))
    for number, cell in enumerate(released["cells"]):
        mark = cell["metadata"].get("nbgrader", {})
        if mark.get("solution"):
            answer, solution = next(wanted)
            check = text_of(released["cells"][number + 1])
            makers = {"right": right, "mistake": mistake, "gone": lambda *_: ""}
            if answer != "open":
                made = makers.get(answer, lambda *_: answer)(check, solution)  # noqa: B023
                cell = cell | {"source": made}
        if not (mark.get("grade") and answer == "gone"):
            cells.append(cell)
    return json.dumps(released | {"cells": cells})


def text_of(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def asked(text: str) -> ast.Call:
    """The call `check.name(answer)` in which a cell ends."""
    last = ast.parse(text).body[-1]
    assert isinstance(last, ast.Expr) and isinstance(last.value, ast.Call), text
    return last.value


def right(check: str, solution: str) -> str:
    """The solution, under the name that the check knows."""
    call, mine = asked(check), asked(solution)
    code = "\n".join(solution.split("\n")[: mine.lineno - 1])
    theirs, ours = (ast.unparse(one.args[0]) for one in (call, mine))
    return code if theirs == ours else f"{code}\n{theirs} = {ours}"


def mistake(check: str, _: str) -> str:
    """A known mistake, of which the exercise has a hint; or a function that gives 0."""
    call = asked(check)
    if isinstance(name := call.args[0], ast.Name):
        module = re.search(r"import (chapter_\w+) as check", check)
        assert module and isinstance(call.func, ast.Attribute)
        found = f"{module[1]}.{call.func.attr}.mistakes[0].answer"
        return f"from mmrl.course.exercises import {module[1]}\n\n{name.id} = {found}"
    names = [node.id for node in ast.walk(name) if isinstance(node, ast.Name)]
    return "".join(f"{name} = lambda *_: 0\n" for name in names if name != "check")


def environment(folder: Path) -> Path:
    """Python in a fresh environment with the course and nbgrader, of the versions in the lock."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
    lock = ["--constraint", str(ROOT / "requirements.lock")]
    subprocess.run([*uv, *lock, f"{ROOT}[grading]"], check=True)
    return python


def without_network(command: Sequence[str]) -> list[str]:
    """The command where no other machine can be reached, if this one lets us make such a place."""
    inside = ["unshare", "--map-root-user", "--net", "sh", "-c"]
    up = "ip link set lo up 2>/dev/null || ifconfig lo up"
    if shutil.which("unshare") and not subprocess.run([*inside, up], capture_output=True).returncode:
        return [*inside, f'{up}; exec "$@"', "sh", *command]
    print("This machine has no `unshare` or `ip`: the network is not taken away.")
    return list(command)


def grade(course: Path, chapter: str, names: Sequence[str], python: Path) -> list[dict[str, str]]:
    """Hand in, let nbgrader grade, and read the report."""
    released = course / "release" / chapter / f"{chapter}.ipynb"
    for name in names:
        folder = course / "submitted" / name / chapter
        folder.mkdir(parents=True)
        text = submission(chapter, json.loads(released.read_text("utf-8")), PLANTED[name])
        (folder / f"{chapter}.ipynb").write_text(text, "utf-8")
    path = os.pathsep.join((str(python.parent), os.environ["PATH"]))
    for step in (["autograde", chapter, f"--Bounded.timeout={CELL_SECONDS}"], ["export"]):
        command = without_network([str(python), "-m", "nbgrader", *step])
        subprocess.run(command, cwd=course, env=os.environ | {"PATH": path})
    with (course / "points.csv").open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["chapter"] == chapter]


def complaints(rows: Sequence[dict[str, str]], names: Sequence[str]) -> list[str]:
    """The differences between the report and what was planted."""
    found = []
    for name in names:
        mine = [row for row in rows if row["student"] == name]
        wanted = zip(PLANTED[name].points, PLANTED[name].said, strict=True)
        if len(mine) != 3:
            found.append(f"{name}: {len(mine)} rows in place of 3")
            continue
        for row, (points, said) in zip(mine, wanted, strict=True):
            if float(row["points"]) != points or said not in row["said"]:
                found.append(f"{name}: wanted {points} and “{said}”, got {row}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--chapter", default="05", help="its number, or `all`")
    parser.add_argument("--only", nargs="+", choices=list(PLANTED), default=list(PLANTED))
    parser.add_argument("--python", type=Path, help="of an environment that is there already")
    given = parser.parse_args()
    slugs = [path.stem for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    chapters = [s for s in slugs if given.chapter in ("all", s.partition("_")[0])]
    if not chapters:
        sys.exit(f"There is no chapter {given.chapter}; there are {', '.join(slugs)}.")
    with tempfile.TemporaryDirectory() as folder:
        python = given.python or environment(Path(folder) / "environment")
        course, wrong = Path(folder) / "course", []
        subprocess.run([python, ROOT / "book" / "tools" / "student.py", course], check=True)
        for chapter in chapters:
            began = time.monotonic()
            rows = grade(course, chapter, given.only, python)
            for row in rows:
                print(*row.values(), sep=" · ")
            wrong += complaints(rows, given.only)
            print(f"{chapter}: {len(given.only)} submissions, {time.monotonic() - began:.0f} s")
    sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
