"""The course for a class: notebooks without solutions, which nbgrader can grade.

`python book/tools/student.py build/student` makes that folder a course of nbgrader's, with an
assignment for each chapter. Students get what is in `release`.
"""

import ast
import copy
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
POINTS = 1  # of each exercise

Cell = dict[str, Any]
Notebook = dict[str, Any]


def for_students(notebook: Notebook, number: str) -> Notebook:
    """The notebook of chapter `number`, "03b", as nbgrader's source: solutions are left out, and
    each exercise becomes an answer and a check.

    Nothing else changes, but for links between chapters, each of which has a folder here.
    """
    made, exercises = copy.deepcopy(notebook), 0
    made["cells"] = []
    for cell in copy.deepcopy(notebook["cells"]):
        tags = cell["metadata"].get("tags", [])
        if "exercise" in tags:
            exercises += 1
            made["cells"] += _answer_and_check(cell, number, exercises)
        elif "solution" not in tags:
            if cell["cell_type"] == "markdown":
                cell["source"] = _lines(_linked("".join(cell["source"])))
            made["cells"].append(cell)
    return made


def _linked(text: str) -> str:
    return re.sub(r"\]\((\w+)\.ipynb", r"](../\1/\1.ipynb", text)


def _answer_and_check(cell: Cell, number: str, exercise: int) -> tuple[Cell, Cell]:
    """The student's cell, and one that nbgrader locks, restores and grades."""
    lines = "".join(cell["source"]).split("\n")
    begin = ast.parse("\n".join(lines)).body[-1].lineno - 1
    call = "\n".join(lines[begin:])  # check.name(answer)
    graded = re.sub(r"^check\.\w+", r"\g<0>.graded", call)
    text = f"""# Run this cell to check the answer above. It is graded: {_points(POINTS)}.
from mmrl.course.exercises import chapter_{number} as check

{call}
### BEGIN HIDDEN TESTS
{graded}
### END HIDDEN TESTS"""
    name = f"{re.sub('^0(?=.)', '', number)}-{exercise}"
    answer = cell | {"source": _lines("\n".join(lines[:begin]).rstrip())}
    answer["metadata"] = cell["metadata"] | {"nbgrader": _mark(f"{name}-answer", solution=True)}
    check = copy.deepcopy(cell) | {"id": f"{cell['id']}-check", "source": _lines(text)}
    check["metadata"] = {"nbgrader": _mark(name, grade=True, locked=True, points=POINTS)}
    return answer, check


def _points(number: int) -> str:
    return f"{number} point" + "s" * (number != 1)


def _mark(name: str, **fields: Any) -> dict[str, Any]:
    """What nbgrader wants to know of a cell, by version 3 of its format."""
    mark = {"grade": False, "locked": False, "solution": False, "task": False}
    return mark | {"grade_id": name, "schema_version": 3} | fields


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def write(folder: Path) -> None:
    """The sources of all assignments, and nbgrader's settings."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name("nbgrader_config.py"), folder)
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        number = path.stem.partition("_")[0]
        chapter = folder / "source" / path.stem
        shutil.rmtree(chapter, ignore_errors=True)
        (chapter / "figures").mkdir(parents=True)
        for picture in (NOTEBOOKS / "figures").glob(f"{number}_*.svg"):
            shutil.copy(picture, chapter / "figures")
        made = for_students(json.loads(path.read_text("utf-8")), number)
        text = json.dumps(made, indent=1, ensure_ascii=False)
        (chapter / path.name).write_text(f"{text}\n", "utf-8")


def release(folder: Path) -> None:
    """What students get, by nbgrader, which notes what it has given out."""
    # It calls a program that stands beside Python.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    command = [sys.executable, "-m", "nbgrader", "generate_assignment", "*", "--force"]
    subprocess.run(command, cwd=folder, env=os.environ | {"PATH": path}, check=True)


if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    write(FOLDER)
    release(FOLDER)
    print(f"Notebooks for students are in {FOLDER / 'release'}.")
