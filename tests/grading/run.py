"""Grade planted submissions of a chapter in a fresh environment, without a network.

    python tests/grading/run.py                        chapter 05
    python tests/grading/run.py --chapter 03           another one
    python tests/grading/run.py --chapter all --only right open     every chapter, these alone
    python tests/grading/run.py --python PYTHON        an environment that has `mmrl-jax[grading]`

A right, a half-right and a wrong submission, one that was left open, and such as never end, end too
early, edit the check or are no notebooks are handed in, and everybody must get their points, and a
sentence. It takes minutes for each, because each notebook is run from top to bottom.
"""

import argparse
import ast
import csv
import dataclasses
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# For a cell less than a lecturer grants, so that what never ends is found out sooner.
CELL_SECONDS, NOTEBOOK_SECONDS = 60, 600

SLOW = "it took longer than"
DEAD = "process had died"
OPEN = "it was left open"
RIGHT = "right, on"
NAME_ERROR = "NameError"

TICK = 'print("✓ Exercise: right, on all 5 cases.")'
# Code in the place of an answer; NAME is what the check asks for.
CODE = {
    "endless": 'while True:\n    print("again")',
    "stuck": "def NAME(*_):\n    while True:\n        pass",
    # Python cannot interrupt it, so nothing that comes later is run.
    "deaf": "from jax.lax import while_loop\n\nwhile_loop(lambda i: i < 9, lambda i: i % 7, 0)",
    "dead": "import os\n\nos._exit(1)",
    "boast": f"import os\n\n\ndef NAME(*_):\n    {TICK[:-1]}, flush=True)\n    os._exit(0)",
    "garbled": "def NAME(:",
    # nbgrader takes the first value that a cell shows for its points.
    "claim": "def NAME(*_):\n    get_ipython().displayhook(1.0)\n    return 0.0",
}


@dataclasses.dataclass(frozen=True)
class Submission:
    """A submission: an answer for each exercise, and points and words that it must get."""

    # "colab" and "bare" (right, as other programs save it),
    # "right", "mistake", "open", "gone" and "edited" (the check, of a mistake), "bothgone", right
    # with marks that are "split", "pasted" or "stripped", or a key of CODE
    answers: tuple[str, ...]
    points: tuple[int, ...]
    messages: tuple[str, ...]


def amid(answer: str, message: str, *, last: str = RIGHT) -> Submission:
    """A submission that would be right but for its second answer, which may spoil the third."""
    points = (1, 0, int(last == RIGHT))
    return Submission(("right", answer, "right"), points, (RIGHT, message, last))


SUBMISSIONS = {
    "right": Submission(("right",) * 3, (1, 1, 1), (RIGHT,) * 3),
    "half": Submission(("right", "mistake", "open"), (1, 0, 0), (RIGHT, "Exercise", OPEN)),
    "wrong": Submission(("mistake",) * 3, (0, 0, 0), ("Exercise",) * 3),
    "open": Submission(("open",) * 3, (0, 0, 0), (OPEN,) * 3),
    "endless": amid("endless", NAME_ERROR),
    "stuck": amid("stuck", SLOW),
    "deaf": amid("deaf", SLOW, last=SLOW),
    "dead": amid("dead", DEAD, last=DEAD),
    "boast": amid("boast", DEAD, last=DEAD),
    "claim": amid("claim", "Exercise"),
    "garbled": amid("garbled", NAME_ERROR),
    "gone": amid("gone", "Exercise"),
    "bothgone": amid("bothgone", NAME_ERROR),
    "split": Submission(("right", "split", "right"), (1, 1, 1), (RIGHT,) * 3),
    "pasted": Submission(("right", "pasted", "right"), (1, 1, 1), (RIGHT,) * 3),
    "stripped": Submission(("stripped",) * 3, (1, 1, 1), (RIGHT,) * 3),
    "colab": Submission(("colab",) * 3, (1, 1, 1), (RIGHT,) * 3),
    "bare": Submission(("bare",) * 3, (1, 1, 1), (RIGHT,) * 3),
    "edited": amid("edited", "Exercise"),
    "unreadable": Submission(("no notebook",) * 3, (0, 0, 0), ("could not be read",) * 3),
}


def submission(chapter: str, notebook: dict[str, Any], answers_of: Submission) -> str:
    """The text of a notebook with these answers, as a student would hand it in."""
    if answers_of.answers[0] == "no notebook":
        return "This is no notebook."
    source = json.loads((ROOT / "notebooks" / f"{chapter}.ipynb").read_text("utf-8"))
    solutions = [text_of(c) for c in source["cells"] if "solution" in c["metadata"].get("tags", [])]
    cells, answer = [], ""
    expected = iter(zip(answers_of.answers, solutions, strict=True))
    for cell, following in itertools.pairwise([*notebook["cells"], {}]):
        mark = cell["metadata"].get("nbgrader", {})
        if mark.get("solution"):
            answer, solution = next(expected)
            if answer == "bothgone":
                continue
            if answer != "open":
                cell = cell | {"source": answer_code(answer, text_of(following), solution)}
            if answer in ("split", "pasted"):  # a cell of its mark, or one of another chapter's
                name = mark | ({"grade_id": "99-1-answer"} if answer == "pasted" else {})
                twin = {"source": "", "id": "another", "metadata": {"nbgrader": name}}
                cells.append(cell | twin)
        if mark.get("grade") and answer == "edited":
            cell = cell | {"source": TICK}
        if answer == "stripped":
            cell = cell | {"metadata": {}}
        if not (mark.get("grade") and answer in ("gone", "bothgone")):
            cells.append(cell)
    return file_text(answers_of.answers[0], notebook | {"cells": cells})


def file_text(kind: str, notebook: dict[str, Any]) -> str:
    """The text of a notebook as JupyterLab saves it, or Colab, or a program of Windows."""
    if kind == "colab":
        widgets = {"application/vnd.jupyter.widget-state+json": {}}
        notebook["metadata"] = notebook.get("metadata", {}) | {"widgets": widgets}
    if kind == "bare":
        notebook = {"cells": [without(cell, "id", "outputs") for cell in notebook["cells"]]}
        return "\ufeff" + json.dumps(notebook | {"nbformat": 4}, indent=1).replace("\n", "\r\n")
    return json.dumps(notebook)


def without(cell: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in cell.items() if name not in names}


def text_of(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def answer_code(answer: str, check: str, solution: str) -> str:
    """The code of an answer to what a cell checks."""
    if answer in ("right", "split", "pasted", "stripped", "colab", "bare"):
        return right(check, solution)
    if answer in CODE:
        return CODE[answer].replace("NAME", names(check)[0])
    return mistake(check)


def check_call(text: str) -> ast.Call:
    """The call `check.name(answer)` in which a cell ends."""
    last = ast.parse(text).body[-1]
    assert isinstance(last, ast.Expr) and isinstance(last.value, ast.Call), text
    return last.value


def names(check: str) -> list[str]:
    """The student's names that a check asks for."""
    results = [
        node.id for node in ast.walk(check_call(check).args[0]) if isinstance(node, ast.Name)
    ]
    return [name for name in results if name != "check"]


def right(check: str, solution: str) -> str:
    """The solution, under the name that the check knows."""
    call, mine = check_call(check), check_call(solution)
    code = "\n".join(solution.split("\n")[: mine.lineno - 1])
    theirs, ours = (ast.unparse(one.args[0]) for one in (call, mine))
    return code if theirs == ours else f"{code}\n{theirs} = {ours}"


def mistake(check: str) -> str:
    """A known mistake, of which the exercise has a hint; or functions that give 0."""
    call = check_call(check)
    if isinstance(name := call.args[0], ast.Name):
        module = re.search(r"from ([\w.]+) import exercises as check", check)
        assert module and isinstance(call.func, ast.Attribute)
        result = f"planted.{call.func.attr}.mistakes[0].answer"
        return f"from {module[1]} import exercises as planted\n\n{name.id} = {result}"
    return "".join(f"{name} = lambda *_: 0\n" for name in names(check))


def environment(folder: Path) -> Path:
    """Python in a fresh environment with the course and nbgrader, of the versions in the lock."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", str(python)]
    lock = ["--constraint", str(ROOT / "requirements.lock")]
    subprocess.run([*uv, *lock, f"{ROOT}[grading]"], check=True)
    return python


def without_network() -> list[str]:
    """The words before a command that take the network away from it, if this machine lets us."""
    inside = ["unshare", "--map-root-user", "--net", "sh", "-c"]
    up = "ip link set lo up 2>/dev/null || ifconfig lo up"
    try:
        subprocess.run([*inside, up], capture_output=True, check=True)
        return [*inside, f'{up}; exec "$@"', "sh"]
    except (FileNotFoundError, subprocess.CalledProcessError):
        print("Here is no `unshare` or `ip`, or they are forbidden: the network is not taken away.")
        return []


def grade(course: Path, chapter: str, who: Sequence[str], python: Path) -> list[dict[str, str]]:
    """Hand in, let nbgrader grade one after the other, and read the report."""
    notebook = json.loads((course / "release" / chapter / f"{chapter}.ipynb").read_text("utf-8"))
    bounds = [f"--Bounded.timeout={CELL_SECONDS}", f"--Bounded.notebook_timeout={NOTEBOOK_SECONDS}"]
    for name in who:
        folder = course / "submitted" / name / chapter
        folder.mkdir(parents=True)
        text = submission(chapter, notebook, SUBMISSIONS[name])
        (folder / f"{chapter}.ipynb").write_text(text, "utf-8")
        began = time.monotonic()
        nbgrader(python, course, "autograde", chapter, "--student", name, *bounds)
        print(f"{chapter}, {name}: {time.monotonic() - began:.0f} s", flush=True)
    nbgrader(python, course, "export")
    nbgrader(python, course, "generate_feedback", chapter)
    with (course / "points.csv").open(encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["chapter"] == chapter]


def nbgrader(python: Path, course: Path, *command: str) -> None:
    """One of its commands, without a network; raises if it takes longer than a notebook may."""
    path = os.pathsep.join((str(python.parent), os.environ["PATH"]))
    with (course / "nbgrader.log").open("a", encoding="utf-8") as log:
        subprocess.run(
            [*without_network(), str(python), "-m", "nbgrader", *command],
            cwd=course,
            env=os.environ | {"PATH": path},
            stdout=log,
            stderr=log,
            timeout=NOTEBOOK_SECONDS + 120,
        )


def complaints(rows: Sequence[dict[str, str]], names: Sequence[str]) -> list[str]:
    """The differences between the report and what was planted."""
    results = []
    for name in names:
        mine = [row for row in rows if row["student"] == name]
        expected = zip(SUBMISSIONS[name].points, SUBMISSIONS[name].messages, strict=True)
        if len(mine) != 3:
            results.append(f"{name}: {len(mine)} rows in place of 3")
            continue
        for row, (points, message) in zip(mine, expected, strict=True):
            if float(row["points"]) != points or message not in row["said"]:
                results.append(f"{name}: wanted {points} and “{message}”, got {row}")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description="Grade planted submissions of a chapter.")
    parser.add_argument("--chapter", default="05", help="its number, or `all`")
    parser.add_argument("--only", nargs="+", choices=list(SUBMISSIONS), default=list(SUBMISSIONS))
    parser.add_argument(
        "--python",
        type=lambda p: Path(p).absolute(),
        help="of an environment that is there already",
    )
    options = parser.parse_args()
    slugs = [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))]
    chapters = [s for s in slugs if options.chapter in ("all", s.partition("_")[0])]
    if not chapters:
        sys.exit(f"There is no chapter {options.chapter}; there are {', '.join(slugs)}.")
    with tempfile.TemporaryDirectory() as folder:
        python = (
            options.python.absolute()
            if options.python
            else environment(Path(folder) / "environment")
        )
        course, wrong = Path(folder) / "course", []
        subprocess.run([python, ROOT / "book" / "tools" / "student.py", course], check=True)
        for chapter in chapters:
            began = time.monotonic()
            rows = grade(course, chapter, options.only, python)
            for row in rows:
                print(*row.values(), sep=" · ")
            wrong += complaints(rows, options.only)
            pages = {path.parts[-3] for path in course.glob(f"feedback/*/{chapter}/*.html")}
            wrong += [f"{name}: no feedback" for name in {*options.only} - pages - {"unreadable"}]
            print(f"{chapter}: {len(options.only)} submissions, {time.monotonic() - began:.0f} s")
    sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
