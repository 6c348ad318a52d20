"""Notebooks for students: solutions are gone, the rest is there, and each exercise is graded.

How nbgrader gives them out, runs and grades them is seen by `make grading`, which takes minutes.
"""

import ast
import copy
import importlib
import io
import json
import os
import re
import runpy
import sys
import types
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode, v4
from traitlets import HasTraits
from traitlets.config import Config

import mmrl
from mmrl.course.exercises import Exercise
from tests.grading import run
from tests.helpers import passages

sys.path[:0] = [str(Path(__file__).parents[2] / "book" / "tools")]
import student  # noqa: E402

PATHS = sorted(student.NOTEBOOKS.glob("[0-9]*.ipynb"))
SOURCES = {path.stem: json.loads(path.read_text("utf-8")) for path in PATHS}
ASSIGNMENTS = {slug: student.for_students(data, slug) for slug, data in SOURCES.items()}
each_chapter = pytest.mark.parametrize("slug", SOURCES)


def of(cells: list[dict[str, Any]], tag: str) -> list[dict[str, Any]]:
    return [cell for cell in cells if tag in cell["metadata"].get("tags", [])]


def cells_of(slug: str, kind: str) -> list[dict[str, Any]]:
    cells = ASSIGNMENTS[slug]["cells"]
    return [cell for cell in cells if cell["metadata"].get("nbgrader", {}).get(kind)]


def lines(cells: list[dict[str, Any]]) -> set[str]:
    return {line.strip() for cell in cells for line in "".join(cell["source"]).split("\n")} - {""}


def release_text(cell: dict[str, Any]) -> str:
    """A cell's text without its hidden test, as nbgrader gives it out."""
    pattern = r"### BEGIN HIDDEN TESTS\n.*\n### END HIDDEN TESTS"
    return re.sub(pattern, "", run.text_of(cell), flags=re.DOTALL).rstrip()


def handed_in(slug: str, name: str) -> list[dict[str, Any]]:
    """The answers and checks of a planted submission."""
    student_cells = [cell | {"source": release_text(cell)} for cell in ASSIGNMENTS[slug]["cells"]]
    text = run.submission(slug, {"cells": student_cells}, run.SUBMISSIONS[name]).removeprefix(
        "\ufeff"
    )
    cells = json.loads(text)["cells"]
    return [cell for cell in cells if cell["metadata"].get("nbgrader")]


@each_chapter
def test_nothing_of_a_solution_is_left(slug: str):
    solutions = of(SOURCES[slug]["cells"], "solution")
    others = [cell for cell in SOURCES[slug]["cells"] if cell not in solutions]
    assert len(solutions) == 3
    # That they are told apart by their tag, tests/book/test_notebooks.py sees to.
    assert not lines(ASSIGNMENTS[slug]["cells"]) & (lines(solutions) - lines(others))
    assert not {cell["id"] for cell in ASSIGNMENTS[slug]["cells"]} & {
        cell["id"] for cell in solutions
    }
    assert "# Solution" not in "\n".join(map(run.text_of, ASSIGNMENTS[slug]["cells"]))


@each_chapter
def test_no_sentence_promises_a_solution(slug: str):
    for cell in ASSIGNMENTS[slug]["cells"]:
        for sentence in re.split(r"(?<=[.?!])\s", run.text_of(cell)):
            if cell["cell_type"] == "markdown" and re.search(r"\b[Tt]he solutions?\b", sentence):
                assert "unless your lecturer" in sentence, sentence


@each_chapter
def test_all_else_is_there(slug: str):
    """Texts, checks and widgets, in their order; links lead to the folders of other chapters."""
    cells = iter(ASSIGNMENTS[slug]["cells"])
    for cell in SOURCES[slug]["cells"]:
        if cell in of(SOURCES[slug]["cells"], "solution"):
            continue
        copy_of = next(cells)
        text = run.text_of(copy_of)
        if "exercise" in cell["metadata"].get("tags", []):
            check = release_text(next(cells))
            assert run.text_of(cell).startswith(text)
            assert run.text_of(cell).removeprefix(text).strip() == check.split("\n\n", 1)[1]
            continue
        assert copy_of["metadata"] == cell["metadata"] and copy_of["id"] == cell["id"]
        for path in re.findall(r"\]\(([^)]*\.ipynb)", text):
            up, folder, name = path.split("/")
            assert (up, f"{folder}.ipynb") == ("..", name) and folder in SOURCES
        assert re.sub(r"\]\(\.\./\w+/", "](", text) == run.text_of(cell)
    assert next(cells, None) is None


@each_chapter
def test_each_exercise_has_an_answer_that_is_open_and_a_check_that_is_graded(slug: str):
    number = slug.partition("_")[0]
    module = importlib.import_module(f"mmrl.course.ch{slug}.exercises")
    answers, checks = cells_of(slug, "solution"), cells_of(slug, "grade")
    names = [f"{re.sub('^0(?=.)', '', number)}-{k}" for k in (1, 2, 3)]
    for answer, check, name in zip(answers, checks, names, strict=True):
        cells = ASSIGNMENTS[slug]["cells"]
        assert cells[cells.index(answer) + 1] is check
        assert "..." in run.text_of(answer) and "..." not in run.text_of(check)
        mark = check["metadata"]["nbgrader"]
        assert mark["locked"] and not mark["solution"] and mark["points"] == student.POINTS
        assert (mark["grade_id"], answer["metadata"]["nbgrader"]["grade_id"]) == (
            name,
            f"{name}-answer",
        )
        visible, hidden_call = (
            run.check_call(release_text(check)),
            ast.parse(run.text_of(check)).body[-1],
        )
        exercise = getattr(module, visible.func.attr)  # type: ignore[attr-defined]
        assert isinstance(exercise, Exercise) and exercise.name == name.replace("-", ".")
        call, graded_call = map(ast.unparse, (visible, hidden_call))
        assert graded_call == call.replace("(", ".grade(", 1), (
            "the same answer, and it may not be open"
        )
    ids = [cell["id"] for cell in ASSIGNMENTS[slug]["cells"]]
    assert len(ids) == len(set(ids))


@each_chapter
def test_a_solution_handed_in_defines_what_the_check_asks_for(slug: str):
    """So that a right submission of `make grading` is one, of each chapter."""
    cells = handed_in(slug, "right")
    for answer, check in zip(cells[::2], cells[1::2], strict=True):
        names, tree = set(run.names(run.text_of(check))), ast.parse(run.text_of(answer))
        assert names and names <= {
            getattr(node, "name", None) or getattr(node, "id", None) for node in ast.walk(tree)
        }


def test_a_course_is_written_once_more_and_what_is_its_own_stays(tmp_path: Path):
    student.write(tmp_path)
    assert {path.name for path in (tmp_path / "source").iterdir()} == {*SOURCES}
    settings, picture = tmp_path / "nbgrader_config.py", re.compile(r"\]\((figures/[^)]*)\)")
    assert settings.read_text("utf-8") == student.SETTINGS.read_text("utf-8")
    settings.write_text("# mine")
    (tmp_path / "submitted").mkdir()
    (stale := tmp_path / "source" / "00_start_here" / "stale.txt").write_text("")
    student.write(tmp_path)
    assert settings.read_text() == "# mine" and (tmp_path / "submitted").is_dir()
    assert not stale.exists()
    for slug, assignment in ASSIGNMENTS.items():
        folder = tmp_path / "source" / slug
        assert json.loads((folder / f"{slug}.ipynb").read_text("utf-8")) == assignment
        for cell in assignment["cells"]:
            for path in picture.findall(run.text_of(cell)):
                assert (folder / path).is_file(), path


def test_the_sheet_has_each_rubric_whole():
    rows = student.rubrics()
    points: dict[str, int] = {}
    for row in rows:
        assert all(row[name] for name in student.RUBRIC[:-1]) and row["given"] == ""
        points[row["project"]] = points.get(row["project"], 0) + int(row["points"])
    assert len(points) == 5 and set(points.values()) == {20}
    pages = [
        (student.ROOT / "book" / f"{name}.md").read_text("utf-8")
        for name in ("projects", "capstone")
    ]
    assert all(
        f"| {row['criterion']} | {row['points']} | {row['full']} |" in "".join(pages)
        for row in rows
    )


def test_grading_ends():
    """Each cell and each notebook has its seconds, and nothing runs a notebook without them."""
    tree = ast.parse(student.SETTINGS.read_text("utf-8"))
    options = {
        ast.unparse(node.targets[0]): node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
    }
    seconds = [ast.literal_eval(options[name]) for name in ("CELL_SECONDS", "NOTEBOOK_SECONDS")]
    assert 0 < seconds[0] <= seconds[1] <= 900
    assert ast.unparse(options["c.Bounded.timeout"]) == "CELL_SECONDS"
    first, *others = map(ast.unparse, options["c.Autograde.autograde_preprocessors"].elts)  # type: ignore[attr-defined]
    assert first == "Bounded" and not any(name.endswith("Execute") for name in others)


class Execute(HasTraits):
    """As nbgrader's, but the sources of cells say what happens, and nothing runs them."""

    timeout = 60
    seconds: tuple[int, ...] = ()

    def preprocess(self, nb: NotebookNode, resources: Any, km: Any) -> None:
        for index, cell in enumerate(nb.cells):
            self.preprocess_cell(cell, resources, index)  # type: ignore[attr-defined]

    def preprocess_cell(self, cell: NotebookNode, resources: Any, index: int) -> None:
        self.seconds += (self.timeout_func(cell),)  # type: ignore[attr-defined]
        if "print" in cell.source:
            cell.outputs.append(v4.new_output("stream", text="✓ printed\n"))
        if "warn" in cell.source:
            cell.outputs.append(v4.new_output("stream", name="stderr", text="warned\n"))
        if "value" in cell.source:
            data = {"text/plain": "1.0"}
            cell.outputs.append(v4.new_output("execute_result", data=data, execution_count=1))
        if "fail" in cell.source:
            cell.outputs.append(v4.new_output("error", ename="NotYet", evalue="wrong"))
        if "die" in cell.source:
            raise DeadKernelError
        if "hang" in cell.source:
            raise CellTimeoutError
        if "skip" not in cell.source:
            self.on_cell_executed(cell_index=index)

    def on_cell_executed(self, **about: Any) -> None:
        assert "cell_index" in about


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The settings of a course in this folder, where nbgrader is not installed."""
    monkeypatch.chdir(tmp_path)
    names = ("preprocessors", "api", "plugins")
    modules = {name: types.ModuleType(f"nbgrader.{name}") for name in names}
    for module in modules.values():
        # Whatever else the settings name of nbgrader.
        module.__getattr__ = lambda name: type(name, (), {})  # type: ignore[method-assign]
        monkeypatch.setitem(sys.modules, module.__name__, module)
    modules["preprocessors"].Execute = Execute  # type: ignore[attr-defined]
    package = types.ModuleType("nbgrader")
    package.__dict__.update(modules)
    monkeypatch.setitem(sys.modules, "nbgrader", package)
    for name in ("COMPILATION_CACHE_DIR", "PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        monkeypatch.setenv(f"JAX_{name}", os.environ.get(f"JAX_{name}", ""))
    return runpy.run_path(str(student.SETTINGS), init_globals={"get_config": Config})


def give_out(*cells: NotebookNode) -> dict[str, Any]:
    """Makes these cells a chapter of the course, and names it as nbgrader does."""
    folder = Path("source", "05")
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(v4.new_notebook(cells=list(cells)), folder / "05.ipynb")
    return {"nbgrader": {"assignment": "05", "notebook": "05"}}


def outcomes(settings: dict[str, Any], *sources: str, seconds: int = 100) -> list[str]:
    """What is said last in graded cells of these sources; ✗ where they earn nothing.

    A source that begins with "lesson" is a cell of the course, with "own" one of the student's.
    """
    mark = {"nbgrader": {"grade": True, "points": 1}}
    marks = [{} if text.startswith(("lesson", "own")) else mark for text in sources]
    cells = zip(sources, marks, strict=True)
    notebook = v4.new_notebook(cells=[v4.new_code_cell(text, metadata=m) for text, m in cells])
    preprocessor = settings["Bounded"]()
    preprocessor.notebook_timeout = seconds
    lessons = [cell for cell in notebook.cells if cell.source.startswith("lesson")]
    preprocessor.preprocess(notebook, give_out(*lessons))
    # As nbgrader's `determine_grade` does.
    wrong = lambda out: out.output_type == "error" or out.get("name") == "stderr"  # noqa: E731
    says = settings["_last_line"]
    outputs = [cell.outputs for cell in notebook.cells if cell.metadata]
    for text, limit in zip(sources, preprocessor.seconds, strict=False):
        # What is the student's always has its seconds, and no more.
        assert 0 < limit <= seconds if text.startswith("lesson") else limit == 60
        assert limit > 60 or seconds < 60 or not text.startswith("lesson")
    # It takes the first value for the points, whatever comes later.
    assert not any(out.output_type == "execute_result" for each in outputs for out in each)
    return ["✗ " * any(map(wrong, each)) + says(each) for each in outputs]


def test_what_did_not_end_earns_nothing_whatever_it_printed(settings: dict[str, Any]):
    dead, slow, omission = ("✗ " + settings[name] for name in ("DIED", "SLOW", "SKIPPED"))
    right = "✓ printed"
    assert outcomes(settings, "print", "print, warn", "") == [right, right, ""]
    assert outcomes(settings, "print", "print, die", "print") == [right, dead, dead]
    assert outcomes(settings, "print", "print, hang", "print") == [right, slow, slow]
    assert outcomes(settings, "print", "skip", "print") == [right, omission, right]
    assert outcomes(settings, "value", "value, fail") == ["", "✗ wrong"]
    assert outcomes(settings, "hang", "print") == [slow, slow]


def test_a_slow_cell_of_the_course_is_no_fault_of_the_student(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    late, slow = ("✗ " + settings[name] for name in ("LATE", "SLOW"))
    assert outcomes(settings, "lesson", "print", seconds=500) == ["✓ printed"]
    assert outcomes(settings, "print", "lesson, hang", "print") == ["✓ printed", late]
    assert outcomes(settings, "print", "own, hang", "print") == ["✓ printed", slow]
    assert outcomes(settings, "print", "print", seconds=0) == [late, late]
    preprocessor = settings["Bounded"]
    original, clock = preprocessor.on_cell_executed, [0.0]
    stub = types.SimpleNamespace(monotonic=lambda: clock[0])
    monkeypatch.setitem(preprocessor.preprocess.__globals__, "time", stub)
    # The second cell, and then the first, takes all the time there is.
    for slowest, why in (("lesson", late), ("print", slow)):

        def slowly(self: Any, slowest: str = slowest, **about: Any) -> None:
            original(self, **about)
            if slowest == ("print", "lesson")[about["cell_index"]]:
                clock[0] += 1.2

        preprocessor.on_cell_executed = slowly
        assert outcomes(settings, "print", "lesson", "print", seconds=2)[1] == why


def test_what_other_programs_saved_is_graded(settings: dict[str, Any]):
    sources = [ASSIGNMENTS["05_returns_are_monoids"]["cells"][i] for i in (0, 1)]
    for kind in ("right", "colab", "bare"):
        text = run.file_text(kind, {"cells": sources})
        read, _ = settings["Lenient"]().from_file(io.StringIO(text))
        notebook = nbformat.reads(read, 4)
        assert [c.source for c in notebook.cells] == [*map(run.text_of, sources)]
        assert "widgets" not in notebook.metadata and all(cell.id for cell in notebook.cells)
    nulls = dict.fromkeys(("id", "attachments", "metadata", "outputs"))
    cells = [cell | nulls for cell in sources] + [sources[0] | {"metadata": {"tags": None}}]
    text = json.dumps({"cells": cells, "metadata": {"kernelspec": None}, "nbformat": None})
    notebook = nbformat.reads(settings["Lenient"]().from_file(io.StringIO(text))[0], 4)
    assert [cell.id for cell in notebook.cells][:2] == ["cell-1", "cell-2"]
    assert [dict(x.metadata) for x in (notebook, *notebook.cells)] == [{}] * 4
    cells = ('"x"', '{"source": "x"}', '{"cell_type": "code", "source": 3}')
    cells += ('{"cell_type": "markdown", "attachments": 3}',)
    wrong = ["", "no notebook", "[]", '{"a": 1}', '{"cells": 3}', '{"cells": [], "metadata": [1]}']
    for text in (*wrong, *(f'{{"cells": [{cell}]}}' for cell in cells)):
        with pytest.raises(ValueError, match="is not a notebook"):
            settings["Lenient"]().from_file(io.StringIO(text))


def test_feedback_forgets_a_widget_state_without_its_state(settings: dict[str, Any]):
    kind = "application/vnd.jupyter.widget-state+json"
    for state, remains in (
        ({}, False),
        (None, False),
        ({"state": None}, False),
        ({"state": {}}, True),
    ):
        notebook = v4.new_notebook(metadata={"widgets": {kind: state}})
        settings["Stateless"]().preprocess(notebook, {})
        assert ("widgets" in notebook.metadata) == remains


NAMES = ["5-1-answer", "5-1", "5-2-answer", "5-2"]
SOURCE = [
    v4.new_code_cell(
        f"source of {name}",
        id=name.replace("5-", "id-"),
        metadata={"nbgrader": {"grade_id": name, "grade": not name.endswith("answer")}},
    )
    for name in NAMES
]


def without(index: int) -> NotebookNode:
    cell = copy.deepcopy(SOURCE[index])
    return NotebookNode(cell | {"metadata": NotebookNode()})


def bearing(name: str, text: str = "own", **fields: Any) -> NotebookNode:
    mark = {"grade_id": name, "grade": False} | fields
    return v4.new_code_cell(text, metadata={"nbgrader": mark})


@pytest.mark.parametrize(
    ("cells", "texts"),
    {
        "as given out": (SOURCE, SOURCE),
        "split": ([SOURCE[0], bearing(NAMES[0]), *SOURCE[1:]], [SOURCE[0], "own", *SOURCE[1:]]),
        "copied": (
            [*SOURCE[:2], bearing("5-1", "copy", grade=True), *SOURCE[2:]],
            [*SOURCE[:2], "copy", *SOURCE[2:]],
        ),
        "of another chapter": ([bearing("4-1-answer"), *SOURCE], ["own", *SOURCE]),
        "both gone": (SOURCE[:2], [*SOURCE[:2], "", SOURCE[3]]),
        "the first two gone": (SOURCE[2:], ["", *SOURCE[1:]]),
        "all gone": ([], ["", SOURCE[1], "", SOURCE[3]]),
        "a check gone": ([SOURCE[0], *SOURCE[2:]], SOURCE),
        "stripped": ([without(i) for i in range(4)], SOURCE),
        "forged": ([*SOURCE[:3], bearing("5-2", "own", solution=True)], [*SOURCE[:3], "own"]),
        "turned into words": (
            [*SOURCE[:3], v4.new_markdown_cell("own", metadata=SOURCE[3].metadata)],
            [*SOURCE[:3], SOURCE[3], "own"],
        ),
    }.values(),
)
def test_marks_are_as_they_were_given_out(
    settings: dict[str, Any], cells: list[NotebookNode], texts: list[Any]
):
    """Each once, in its order; a submission loses nothing by one that is twice there, or gone."""
    resources = give_out(*SOURCE)
    notebook = v4.new_notebook(cells=copy.deepcopy(list(cells)))
    result, _ = settings["Marked"]().preprocess(notebook, resources)
    assert [cell.source for cell in result.cells] == [
        text if isinstance(text, str) else text.source for text in texts
    ]
    marks = [cell.metadata.nbgrader for cell in result.cells if "nbgrader" in cell.metadata]
    assert marks == [cell.metadata.nbgrader for cell in SOURCE]


class Row(types.SimpleNamespace):
    """A row of nbgrader's tables, with what is asked of it here."""


def test_points_name_who_handed_in_nothing_and_who_is_to_be_graded_again(
    settings: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):
    cells = [Row(name=f"5-{i}", max_score=1.0) for i in (1, 2)]
    students = [Row(id=name) for name in ("absent", "late", "right", "un read")]

    def submission(student: Row, score: float | None, *message: str) -> Row:
        grades = [Row(cell=cell, score=score) for cell in cells]
        if message:
            mark = [{"nbgrader": {"grade": True, "points": 1, "grade_id": c.name}} for c in cells]
            answers = [v4.new_code_cell("", metadata=m) for m in mark]
            for cell, line in zip(answers, message, strict=True):
                cell.outputs = [v4.new_output("stream", text=line)]
            folder = tmp_path / "autograded" / student.id / "05"
            folder.mkdir(parents=True)
            nbformat.write(v4.new_notebook(cells=answers), folder / "05.ipynb")
        return Row(student=student, notebooks=[Row(name="05", grades=grades)])

    handed_in = [
        submission(students[1], 0.0, settings["LATE"], settings["LATE"]),
        submission(students[2], 1.0, "✓ right", "✓ right"),
        submission(students[3], 1.0),  # the points of an earlier one, which could be read
    ]
    notebooks = [Row(name="05", grade_cells=cells)]
    book = Row(
        students=students,
        assignments=[
            Row(name="05", submissions=handed_in, notebooks=notebooks),
            Row(name="06", submissions=[], notebooks=notebooks),
        ],
    )
    points = settings["Points"]()
    points.assignment, points.student, points.to = [], [], "points.json"
    points.export(book)
    rows = json.loads((tmp_path / "points.json").read_text("utf-8"))
    says = {"absent": settings["ABSENT"], "late": settings["LATE"], "right": "✓ right"}
    says["un read"] = settings["UNREAD"]
    assert [(row["student"], row["said"]) for row in rows] == [
        (name, message) for name, message in says.items() for _ in cells
    ]
    assert [row["points"] for row in rows] == [0, 0, 0, 0, 1, 1, 0, 0]
    assert [row["exercise"] for row in rows[:2]] == ["5.1", "5.2"]
    output = capsys.readouterr().out
    assert output.count("--force") == 1 and "autograde --force --student late 05\n" in output


# What is planted


def test_planted_submissions_are_what_they_say():
    slug = "05_returns_are_monoids"
    texts = {name: [*map(run.text_of, handed_in(slug, name))] for name in [*run.SUBMISSIONS][:-1]}
    whole = texts["open"]
    assert whole == [
        release_text(c) for c in ASSIGNMENTS[slug]["cells"] if c["metadata"].get("nbgrader")
    ]
    assert len(texts["gone"]) == 5 and texts["edited"][3] == run.TICK
    for name, code in run.CODE.items():
        assert texts[name][2] == code.replace("NAME", "retrace") and texts[name][3] == whole[3]
    wrong = "retrace = planted.retrace.mistakes[0].answer"
    assert all(texts[name][2].endswith(wrong) for name in ("half", "wrong", "gone", "edited"))
    assert texts["half"][4] == whole[4]
    with pytest.raises(ValueError):
        json.loads(run.submission(slug, ASSIGNMENTS[slug], run.SUBMISSIONS["unreadable"]))


def test_a_difference_between_points_and_what_was_planted_is_named():
    right = [{"student": "right", "points": "1.0", "said": f"✓ {run.RIGHT}"}] * 3
    assert run.complaints(right, ["right"]) == []
    assert "2 rows" in run.complaints(right[:2], ["right"])[0]
    for wrong in ({"points": "0.0"}, {"said": "nothing"}):
        assert len(run.complaints([*right[:2], right[2] | wrong], ["right"])) == 1


def test_the_page_for_lecturers_says_what_each_planted_submission_gets():
    page = (student.ROOT / "book" / "grading.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)`: .*\| (\d) \| .* \|$", page, flags=re.MULTILINE)
    assert rows == [
        (name, str(sum(submission.points))) for name, submission in run.SUBMISSIONS.items()
    ]
    seconds = re.findall(
        r"^(\w+_SECONDS) = (\d+)$", student.SETTINGS.read_text("utf-8"), re.MULTILINE
    )
    assert passages.lacking([number for _, number in seconds], passages.normal(page)) == []
    assert f"'mmrl_jax-{mmrl.__version__}-py3-none-any.whl[notebooks]'" in page
