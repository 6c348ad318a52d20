"""How nbgrader makes assignments of the course, runs what was handed in, and reports points.

`make student` puts a copy of this file into the folder that it makes, where you may change it.
"""

import copy
import csv
import json
import os
import shlex
import time
import warnings
from pathlib import Path
from typing import Any

import nbformat
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbconvert.exporters import NotebookExporter
from nbgrader import preprocessors
from nbgrader.api import Gradebook
from nbgrader.plugins import ExportPlugin
from traitlets import Integer

COURSE = Path.cwd()
CELL_SECONDS = 120
NOTEBOOK_SECONDS = 600

SLOW = f"it took longer than a cell ({CELL_SECONDS} s) or the notebook ({NOTEBOOK_SECONDS} s) may."
LATE = "cells of the course itself took all the time that a notebook may take: grade this again."
DIED = "it did not end, because the notebook's process had died by then."
SKIPPED = "it was not run, because its tags say so."
MISSING = "the cell that checks it is not in the notebook."
UNREAD = "the notebook was not there, or could not be read: see what `nbgrader autograde` said."
ABSENT = "nothing was handed in."


def _given_out(resources: Any) -> list[Any]:
    """The cells of the notebook that a submission was made of, with hidden tests."""
    name = resources["nbgrader"]
    path = COURSE / "source" / name["assignment"] / f"{name['notebook']}.ipynb"
    return nbformat.read(path, 4).cells


class Lenient(NotebookExporter):
    """Read what Colab, an editor or a kernel that died saved, as far as it can be graded."""

    def from_file(self, file_stream: Any, resources: Any = None, **options: Any) -> Any:
        try:
            saved = json.loads(file_stream.read().removeprefix("\ufeff"))
            cells, metadata = map(_present, saved["cells"]), _present(saved.get("metadata"))
            metadata.pop("widgets", None)  # of another run, sometimes without its state
            saved["cells"] = [_complete(cell, number) for number, cell in enumerate(cells, 1)]
            saved |= {"metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
            notebook = nbformat.reads(json.dumps(saved), 4)
        except (ValueError, KeyError, TypeError, AttributeError, nbformat.ValidationError):
            raise ValueError(
                f"{getattr(file_stream, 'name', 'A file')} is not a notebook."
            ) from None
        return self.from_notebook_node(notebook, resources, **options)


class Stateless(preprocessors.NbGraderPreprocessor):
    """Forget a state of widgets that holds no `state`, at which a page of feedback would stop."""

    def preprocess(self, nb: Any, resources: Any) -> Any:
        states = nb.metadata.get("widgets") or {}
        if not all(isinstance((state or {}).get("state"), dict) for state in states.values()):
            del nb.metadata["widgets"]
        return nb, resources


class Marked(preprocessors.NbGraderPreprocessor):
    """Give each answer and check the mark that it had: nbgrader stops at one that is twice there,
    of another chapter, edited or gone. Cells are known by their marks, and otherwise by their ids.
    """

    def preprocess(self, nb: Any, resources: Any) -> Any:
        known = {c.metadata.nbgrader.grade_id: c for c in _given_out(resources) if _mark(c)}
        names, found = {cell.id: name for name, cell in known.items()}, {}
        for index, cell in enumerate(nb.cells):
            name = cell.metadata.pop("nbgrader", {}).get("grade_id")
            name = name if name in known else names.get(cell.get("id"))
            if name in known and cell.cell_type == "code":
                found.setdefault(name, index)
        for name, index in found.items():
            nb.cells[index].metadata["nbgrader"] = copy.deepcopy(known[name].metadata.nbgrader)
        place = min(found.values(), default=len(nb.cells))
        for name, cell in known.items():
            if name in found:
                place = found[name] + 1
                continue
            cell = copy.deepcopy(cell)
            cell.source = cell.source if cell.metadata.nbgrader.grade else ""
            nb.cells.insert(place, cell)
            found = {other: at + (at >= place) for other, at in found.items()}
            place += 1
        return nb, resources


class Bounded(preprocessors.Execute):
    """Run a notebook within its time; a check that was stopped, or never run, earns nothing.

    A check, and what a student has written, has the seconds of a cell. A cell of the course has
    what is left of the notebook's: on a busy machine it may be slow without a fault of theirs.
    """

    notebook_timeout = Integer(NOTEBOOK_SECONDS, help="seconds for a notebook").tag(config=True)

    def preprocess(self, nb: Any, resources: Any = None, km: Any = None) -> Any:
        self.deadline, self.ended = time.monotonic() + self.notebook_timeout, set()
        self.course = {cell.id: cell.source for cell in _given_out(resources) if not _mark(cell)}
        self.taken = 0.0  # seconds of what is not the course's
        why = SKIPPED
        try:
            preprocessors.Execute.preprocess(self, nb, resources, km)
        except CellTimeoutError:
            why = SLOW if self.theirs or self.taken > self.notebook_timeout / 2 else LATE
        except DeadKernelError:
            why = DIED
        for index, cell in enumerate(nb.cells):
            if _points_of(cell):
                # To nbgrader a warning is a mistake, a cell that printed and died is right, and a
                # value is points: a check has none, but an answer that it calls may show one.
                cell.outputs = [
                    out
                    for out in cell.outputs
                    if out.get("name") != "stderr" and out.output_type != "execute_result"
                ]
                cell.outputs += [] if index in self.ended else [_error(why)]
        return nb, resources

    def preprocess_cell(self, cell: Any, resources: Any, index: int) -> Any:
        began = time.monotonic()
        left = int(self.deadline - began)
        if left < 1:
            self.theirs = False
            raise CellTimeoutError(SLOW)
        self.theirs = self.course.get(cell.get("id")) != cell.source
        self.timeout_func = lambda _: self.timeout if self.theirs else left
        try:
            return preprocessors.Execute.preprocess_cell(self, cell, resources, index)
        finally:
            self.taken += self.theirs * (time.monotonic() - began)

    def on_cell_executed(self, **about: Any) -> None:
        preprocessors.Execute.on_cell_executed(self, **about)
        self.ended.add(about["cell_index"])


class Restored(preprocessors.OverwriteCells):
    """Put back what a student must not change, without a warning for each hidden test put back."""

    def report_change(self, name: str, attr: str, old: Any, new: Any) -> None:
        if attr != "checksum":
            preprocessors.OverwriteCells.report_change(self, name, attr, old, new)


class Points(ExportPlugin):
    """A row for each exercise and student, as CSV or, if the file is called so, as JSON.

    Of a chapter that nobody has handed in there are none.
    """

    def export(self, gradebook: Gradebook) -> None:
        rows = [
            row
            for assignment in gradebook.assignments
            if not self.assignment or assignment.name in self.assignment
            if assignment.submissions
            for student in gradebook.students
            if not self.student or student.id in self.student
            for row in self.rows(assignment, student.id)
        ]
        target = Path(self.to or "points.csv")
        with target.open("w", newline="", encoding="utf-8") as file:
            if target.suffix == ".json":
                json.dump(rows, file, indent=1, ensure_ascii=False)
            else:
                heads = ("student", "chapter", "exercise", "points", "of", "said")
                table = csv.DictWriter(file, heads)
                table.writeheader()
                table.writerows(rows)
        students = {row["student"] for row in rows}
        print(f"{target}: {len(rows)} exercises of {len(students)} students")
        late = {(row["student"], row["chapter"]) for row in rows if row["said"] == LATE}
        for student, chapter in sorted(late):
            name = shlex.quote(student)
            print(f"Grade again: nbgrader autograde --force --student {name} {chapter}")

    def rows(self, assignment: Any, student: str) -> list[dict[str, Any]]:
        """The exercises of a chapter, as one student has answered them."""
        handed_in = {
            notebook.name: {grade.cell.name: grade.score for grade in notebook.grades}
            for submission in assignment.submissions
            if submission.student.id == student
            for notebook in submission.notebooks
        }
        rows = []
        for notebook in assignment.notebooks:
            path = Path("autograded", student, assignment.name, f"{notebook.name}.ipynb")
            points = handed_in.get(notebook.name)
            said = {} if points is None else _said(path)
            nothing = ABSENT if points is None else MISSING if said else UNREAD
            for cell in sorted(notebook.grade_cells, key=lambda cell: cell.name):
                rows.append(
                    {
                        "student": student,
                        "chapter": assignment.name,
                        "exercise": cell.name.replace("-", "."),
                        "points": (points.get(cell.name) or 0.0) if points and said else 0.0,
                        "of": cell.max_score,
                        "said": said.get(cell.name, nothing),
                    }
                )
        return rows


def _present(fields: Any) -> dict[str, Any]:
    """Return a mapping without its null fields."""
    return {name: value for name, value in (fields or {}).items() if value is not None}


def _complete(cell: dict[str, Any], number: int) -> dict[str, Any]:
    """Return a cell with all fields that grading reads, without outputs of an earlier run."""
    source = "".join(cell.get("source", "")).replace("\r\n", "\n")
    ran = {"outputs": [], "execution_count": None} if cell["cell_type"] == "code" else {}
    own = {"id": f"cell-{number}"} | cell
    return own | ran | {"source": source, "metadata": _present(cell.get("metadata"))}


def _mark(cell: Any) -> Any:
    return cell.metadata.get("nbgrader", {})


def _points_of(cell: Any) -> float:
    mark = _mark(cell)
    return mark.get("points", 0) if mark.get("grade") else 0


def _error(why: str) -> Any:
    return nbformat.v4.new_output("error", ename="NotGraded", evalue=why, traceback=[f"✗ {why}"])


def _said(path: Path) -> dict[str, str]:
    """The last line that each graded cell of a notebook said."""
    if not path.exists():
        return {}
    cells = [cell for cell in nbformat.read(path, 4).cells if _points_of(cell)]
    return {cell.metadata.nbgrader.grade_id: _last_line(cell.outputs) for cell in cells}


def _last_line(outputs: list[Any]) -> str:
    texts = [
        f"{out.ename}: {out.evalue}" if out.output_type == "error" else out.get("text", "")
        for out in outputs
    ]
    lines = [line for line in "\n".join(texts).splitlines() if line.strip()]
    return lines[-1].removeprefix("NotYet: ").removeprefix("NotGraded: ") if lines else ""


# A second submission, and a second student, find compiled programs of the first.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path.cwd() / ".jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

# Of SQLAlchemy 2.1, about what nbgrader 0.9 adds a line later itself.
warnings.filterwarnings("ignore", message="Object of type <Submitted")

c = get_config()
# All but `ClearSolutions`, which would put its own line in the place of a stub.
c.GenerateAssignment.preprocessors = [
    getattr(preprocessors, name)
    for name in (
        "LockCells",
        "ClearOutput",
        "CheckCellMetadata",
        "ComputeChecksums",
        "SaveCells",
        "ClearHiddenTests",
        "ComputeChecksums",
        "CheckCellMetadata",
    )
]
c.Autograde.autograde_preprocessors = [
    Bounded,
    preprocessors.LimitOutput,
    preprocessors.SaveAutoGrades,
    preprocessors.AssignLatePenalties,
    preprocessors.CheckCellMetadata,
]
c.Autograde.sanitize_preprocessors = [
    preprocessors.ClearOutput,
    Marked,
    preprocessors.OverwriteKernelspec,
    Restored,
    preprocessors.CheckCellMetadata,
]
c.Autograde.exporter_class = Lenient
c.GenerateFeedback.preprocessors = [
    Stateless,
    preprocessors.GetGrades,
    "nbconvert.preprocessors.CSSHTMLHeaderPreprocessor",
]
c.Bounded.timeout = CELL_SECONDS
c.Bounded.iopub_timeout = 30  # seconds until a cell that cannot be interrupted ends its notebook
c.Bounded.error_on_timeout = {"ename": "TooSlow", "evalue": SLOW, "traceback": [f"✗ {SLOW}"]}
c.OverwriteCells.add_missing_cells = True
c.ExportApp.plugin_class = Points
