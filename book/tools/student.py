"""Build the course for a class: notebooks without solutions, which nbgrader can grade.

`python book/tools/student.py build/student` turns that folder into an nbgrader course with an
assignment per chapter. Students receive the contents of `release`. A repeated call keeps the other
contents of the folder: the settings, the gradebook and the submissions.
"""

import ast
import copy
import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from reading import load

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
SETTINGS = ROOT / "book" / "grading" / "nbgrader_config.py"
POINTS = 1  # points per exercise
RUBRIC: tuple[str, ...] = ("project", "criterion", "points", "full", "half", "none", "given")

Cell = dict[str, Any]
Notebook = dict[str, Any]


def for_students(notebook: Notebook, slug: str) -> Notebook:
    """Return the notebook `slug`, such as "09_r2d2", as a source for nbgrader.

    Solutions are left out, and each exercise becomes an answer and a check. Links between chapters
    are adjusted, because each chapter has a separate folder.
    """
    made, exercises = copy.deepcopy(notebook), 0
    made["cells"] = []
    for cell in copy.deepcopy(notebook["cells"]):
        tags = cell["metadata"].get("tags", [])
        if "exercise" in tags:
            exercises += 1
            made["cells"] += _answer_and_check(cell, slug, exercises)
        elif "solution" not in tags:
            if cell["cell_type"] == "markdown":
                cell["source"] = _lines(_linked("".join(cell["source"])))
            made["cells"].append(cell)
    return made


def _linked(text: str) -> str:
    return re.sub(r"\]\((\w+)\.ipynb", r"](../\1/\1.ipynb", text)


def _answer_and_check(cell: Cell, slug: str, exercise: int) -> tuple[Cell, Cell]:
    """Return the student's cell, and the cell that nbgrader locks, restores and grades."""
    lines = "".join(cell["source"]).split("\n")
    begin = ast.parse("\n".join(lines)).body[-1].lineno - 1
    call = "\n".join(lines[begin:])  # check.name(answer)
    graded = re.sub(r"^check\.\w+", r"\g<0>.graded", call)
    text = f"""# Run this cell to check the answer above, which is graded.
from mmrl.course.ch{slug} import exercises as check

{call}
### BEGIN HIDDEN TESTS
{graded}
### END HIDDEN TESTS"""
    name = f"{re.sub('^0(?=.)', '', slug.partition('_')[0])}-{exercise}"
    answer = cell | {"source": _lines("\n".join(lines[:begin]).rstrip())}
    answer["metadata"] = cell["metadata"] | {"nbgrader": _mark(f"{name}-answer", solution=True)}
    check = copy.deepcopy(cell) | {"id": f"{cell['id']}-check", "source": _lines(text)}
    check["metadata"] = {"nbgrader": _mark(name, grade=True, locked=True, points=POINTS)}
    return answer, check


def _mark(name: str, **fields: Any) -> dict[str, Any]:
    """Return the metadata by which nbgrader recognizes a cell, in version 3 of its format."""
    mark = {"grade": False, "locked": False, "solution": False, "task": False}
    return mark | {"grade_id": name, "schema_version": 3} | fields


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def rubrics() -> list[dict[str, str]]:
    """List the criteria of projects and capstone: what earns full, half and no points."""
    rows = []
    for page in ("projects", "capstone"):
        text = (ROOT / "book" / f"{page}.md").read_text("utf-8")
        for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
            name = page if part.startswith("Points") else part.partition("\n")[0]
            _, _, table = part.partition("| criterion | points | full | half | none |\n")
            for line in table.partition("\n\n")[0].splitlines()[1:]:
                cells = [name, *(cell.strip() for cell in line.split("|")[1:-1]), ""]
                rows.append(dict(zip(RUBRIC, cells, strict=True)))
    return rows


def write(folder: Path) -> None:
    """Write the sources of all assignments, a sheet of rubrics, and missing settings."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "nbgrader_config.py").exists():
        shutil.copy(SETTINGS, folder)
    with (folder / "rubrics.csv").open("w", newline="", encoding="utf-8") as file:
        sheet = csv.DictWriter(file, RUBRIC)
        sheet.writeheader()
        sheet.writerows(rubrics())
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        number = path.stem.partition("_")[0]
        chapter = folder / "source" / path.stem
        shutil.rmtree(chapter, ignore_errors=True)
        (chapter / "figures").mkdir(parents=True)
        for picture in (NOTEBOOKS / "figures").glob(f"{number}_*.svg"):
            shutil.copy(picture, chapter / "figures")
        made = for_students(load(path), path.stem)
        text = json.dumps(made, indent=1, ensure_ascii=False)
        (chapter / path.name).write_text(f"{text}\n", "utf-8")


def release(folder: Path) -> None:
    """Write the files for students with nbgrader, which records the released assignments."""
    # nbgrader calls a program in the same folder as Python.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    command = [sys.executable, "-m", "nbgrader", "generate_assignment", "*", "--force"]
    command += ["--log-level=WARN"]
    subprocess.run(command, cwd=folder, env=os.environ | {"PATH": path}, check=True)


def install(folder: Path) -> str:
    """Write what students install into a folder: the library as a wheel, and the lock file.

    Returns the name of the wheel.
    """
    shutil.rmtree(folder, ignore_errors=True)
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    subprocess.run([*wheel, str(folder), str(ROOT)], check=True)
    shutil.copy(ROOT / "requirements.lock", folder)
    (name,) = (path.name for path in folder.glob("*.whl"))
    return name


NEXT = """
Give out {folder}/release, the notebooks, and {folder}/install, with which a student types
    python3 -m venv course
    course/bin/pip install -c requirements.lock '{wheel}[notebooks]'
Put submissions into {folder}/submitted/STUDENT/CHAPTER/CHAPTER.ipynb; then
    . .venv/bin/activate && cd {folder} && nbgrader autograde CHAPTER && nbgrader export
"""

if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    write(FOLDER)
    WHEEL = install(FOLDER / "install")
    release(FOLDER)
    print(NEXT.format(folder=FOLDER, wheel=WHEEL))
