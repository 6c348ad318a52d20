"""Build an nbgrader course from the notebooks, without their solutions.

`python book/tools/student.py build/student` writes a course with an assignment per chapter to that
folder. The folder `release` contains the files for students. If you run the script again, the
settings, the gradebook and the submissions are kept.
"""

import ast
import copy
import csv
import json
import os
import re
import shlex
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
    """Convert the notebook `slug`, for example "09_r2d2", to a source notebook of nbgrader.

    Solutions are removed, and each exercise is split into an answer cell and a check cell. Links
    between chapters are adjusted, because each chapter has a separate folder.
    """
    assignment, exercises = copy.deepcopy(notebook), 0
    assignment["cells"] = []
    for cell in copy.deepcopy(notebook["cells"]):
        tags = cell["metadata"].get("tags", [])
        if "exercise" in tags:
            exercises += 1
            assignment["cells"] += _answer_and_check(cell, slug, exercises)
        elif "solution" not in tags:
            if cell["cell_type"] == "markdown":
                cell["source"] = _lines(_with_links("".join(cell["source"])))
            assignment["cells"].append(cell)
    return assignment


def _with_links(text: str) -> str:
    return re.sub(r"\]\((\w+)\.ipynb", r"](../\1/\1.ipynb", text)


def _answer_and_check(cell: Cell, slug: str, exercise: int) -> tuple[Cell, Cell]:
    """Return the cell for the student's answer, and the locked cell that nbgrader grades."""
    lines = "".join(cell["source"]).split("\n")
    begin = ast.parse("\n".join(lines)).body[-1].lineno - 1
    call = "\n".join(lines[begin:])  # check.name(answer)
    hidden_call = re.sub(r"^check\.\w+", r"\g<0>.grade", call)
    text = f"""# Run this cell to check the answer above, which is graded.
from mmrl.course.ch{slug} import exercises as check

{call}
### BEGIN HIDDEN TESTS
{hidden_call}
### END HIDDEN TESTS"""
    name = f"{re.sub('^0(?=.)', '', slug.partition('_')[0])}-{exercise}"
    answer = cell | {"source": _lines("\n".join(lines[:begin]).rstrip())}
    answer["metadata"] = cell["metadata"] | {"nbgrader": _mark(f"{name}-answer", solution=True)}
    check = copy.deepcopy(cell) | {"id": f"{cell['id']}-check", "source": _lines(text)}
    check["metadata"] = {"nbgrader": _mark(name, grade=True, locked=True, points=POINTS)}
    return answer, check


def _mark(name: str, **fields: Any) -> dict[str, Any]:
    """Return the nbgrader metadata of a cell, in version 3 of the schema."""
    mark = {"grade": False, "locked": False, "solution": False, "task": False}
    return mark | {"grade_id": name, "schema_version": 3} | fields


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def rubrics() -> list[dict[str, str]]:
    """Return the grading criteria of the projects and the capstone, one row per criterion."""
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
    """Write the sources of all assignments, rubrics.csv, and settings if there are none."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "nbgrader_config.py").exists():
        shutil.copy(SETTINGS, folder)
    with (folder / "rubrics.csv").open("w", newline="", encoding="utf-8") as file:
        sheet = csv.DictWriter(file, RUBRIC)
        sheet.writeheader()
        sheet.writerows(rubrics())
    for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        number = path.stem.partition("_")[0]
        chapter = folder / "source" / path.stem
        shutil.rmtree(chapter, ignore_errors=True)
        (chapter / "figures").mkdir(parents=True)
        for picture in (NOTEBOOKS / "figures").glob(f"{number}_*.svg"):
            shutil.copy(picture, chapter / "figures")
        assignment = for_students(load(path), path.stem)
        text = json.dumps(assignment, indent=1, ensure_ascii=False)
        (chapter / path.name).write_text(f"{text}\n", "utf-8")


def release(folder: Path) -> None:
    """Run nbgrader to write the files for students and to record the assignments."""
    # nbgrader starts another program, which is in the folder of the Python executable.
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    command = [sys.executable, "-m", "nbgrader", "generate_assignment", "*", "--force"]
    command += ["--log-level=WARN"]
    subprocess.run(command, cwd=folder, env=os.environ | {"PATH": path}, check=True)


def install(folder: Path) -> str:
    """Write a wheel and the lock file, and return the wheel's name."""
    shutil.rmtree(folder, ignore_errors=True)
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    subprocess.run([*wheel, str(folder), str(ROOT)], check=True)
    shutil.copy(ROOT / "requirements.lock", folder)
    (name,) = (path.name for path in folder.glob("*.whl"))
    return name


NEXT = """
Give students the notebooks in {folder}/release and the files in {folder}/install. They type
    python3 -m venv course
    course/bin/pip install -c requirements.lock {wheel}
Put submissions into {folder}/submitted/STUDENT/CHAPTER/CHAPTER.ipynb, and type
    . .venv/bin/activate && cd {folder} && nbgrader autograde CHAPTER && nbgrader export
"""

if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    write(FOLDER)
    WHEEL = install(FOLDER / "install")
    release(FOLDER)
    print(NEXT.format(folder=shlex.quote(str(FOLDER)), wheel=shlex.quote(f"{WHEEL}[notebooks]")))
