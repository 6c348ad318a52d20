"""The form of every chapter: so that all of them read, check and publish alike.

Each rule yields what is wrong with a notebook and what its author should do about it.
`pytest -n0 tests/book/test_notebooks.py -k 03` examines chapter 03 alone.
"""

import ast
import copy
import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mmrl.course.exercises import Exercise

sys.path[:0] = [str(Path(__file__).parents[2] / "book" / "tools")]
import address  # noqa: E402
import chapters  # noqa: E402
import readability  # noqa: E402

from tests.helpers import prose  # noqa: E402

FOLDER = Path(__file__).parents[2] / "notebooks"
PATHS = sorted(FOLDER.glob("[0-9]*.ipynb"))
SLUGS = [path.stem for path in PATHS]
SECTIONS = (
    "Predict",
    "The idea in one picture",
    "Derive and build",
    "Compare",
    "Explore",
    "Train",
    "Measured",
    "What did not reproduce",
    "Pitfalls",
    "Exercises",
    "Takeaways",
    "Further reading",
)
# These begin the course, and have other sections beside these.
FIRST_SECTIONS = {
    "0": ("Predict", "Train", "Measured", "Exercises", "Takeaways", "Further reading"),
    "0b": ("Predict", "Exercises", "Takeaways", "Further reading"),
}
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# Metadata of the header: the part, the week of a term, the session (a chapter without `room` shares
# that of the one before it), and the words in which the chapter names its letters: see `unnamed`.
COURSE = {"part": "", "week": 0, "home": "", "symbols": {}}
SETUP = address.cell(address.address())
HEADER = ("> ", "**You will be able to**", "**Before:**", "**Time:**", "**Source:**")
TIME = re.compile(
    r"\*\*Time:\*\* about (\d+) minutes to read, and (\d+) for the exercises; "
    r"the notebook runs in \S.*"
)
TAGS = {"setup", "remove-cell", "remove-input", "hide-input", "hide-cell", "exercise", "solution"}
TAGS |= {"raises-exception"}
SLIDES = {"slide", "-", "fragment", "notes", "skip"}
FEWEST_SLIDES, MOST_SLIDES = 8, 21
MOST_CELLS, MOST_LINES, MOST_WORDS_A_CELL = 60, 20, 200
WORDS, FIRST_WORDS = (1200, 3600), (300, 3600)
# Words in a sentence, and connectives in a thousand words: see tests/helpers/prose.py.
MEDIAN, P90, CONNECTIVES = (13, 22), 36, 20
MOST_BYTES = 15_000  # of a picture
HOST = re.compile(r"https?:|//\w|\bwww\.|\b[\w-]+\.(?:com|org|net|edu)\b", re.IGNORECASE)
MYST = re.compile(r"^\s*(?:`{3,}|:{3,})\s*\{|\{[\w:-]+\}`", re.MULTILINE)
BRITISH = re.compile(
    r"\b\w*(?:colour|behaviour|neighbour|favour|centre\b|labell|modell|artefact|analys(?:e|ing)\b|"
    r"(?:optim|normal|initial|general|minim|maxim|summar|real|recogn|visual|priorit|final|"
    r"regular|penal|util|discret|vector)is(?:e|ed|es|er|ing|ation)s?\b)",
    re.IGNORECASE,
)


class Cell:
    """One cell, with what the rules ask about it."""

    def __init__(self, data: dict[str, Any], number: int):
        self.data, self.number = data, number
        self.source = "".join(data["source"])
        self.code = data["cell_type"] == "code"
        self.metadata = data["metadata"]
        self.tags = self.metadata.get("tags", [])
        self.hidden = self.metadata.get("jupyter", {}).get("source_hidden", False)
        self.section = ""  # filled in by Chapter

    def __str__(self) -> str:
        first = self.source.strip().split("\n")[0][:50]
        return f"cell {self.number} ({first!r})"

    @property
    def tree(self) -> ast.Module:
        lines = ("" if re.match(r"\s*[%!]", line) else line for line in self.source.split("\n"))
        return ast.parse(re.sub(r":\n+$", ": ...", "\n".join(lines)))

    @property
    def last(self) -> ast.expr | None:
        """The last expression, which a notebook shows; None if the cell ends otherwise."""
        body = self.tree.body if self.code and "setup" not in self.tags else []
        return body[-1].value if body and isinstance(body[-1], ast.Expr) else None

    @property
    def widget(self) -> bool:
        kinds = (
            r"\w+(Explorer|Player|Cutter|Calculator|Debugger|Evolution|Inspector)|episode_player"
        )
        return isinstance(self.last, ast.Call) and bool(
            re.fullmatch(kinds, name_of(self.last.func))
        )

    @property
    def words(self) -> int:
        return len(readability.prose(self.source).split())


class Chapter:
    """A notebook, cut into sections."""

    def __init__(self, slug: str, data: dict[str, Any]):
        self.slug, self.data = slug, data
        self.number = slug.partition("_")[0]  # 03, 03b
        self.chapter = re.sub("^0(?=.)", "", self.number)  # 3, 3b
        self.cells = [Cell(cell, i + 1) for i, cell in enumerate(data["cells"])]
        self.headings: list[str] = []
        for cell in self.cells:
            if not cell.code:
                self.headings += re.findall(r"^## (.*)$", cell.source, re.MULTILINE)
            cell.section = title(self.headings[-1]) if self.headings else ""
        self.text = [cell for cell in self.cells if not cell.code]
        self.codes = [cell for cell in self.cells if cell.code]
        self.first = self.chapter in FIRST_SECTIONS
        self.course = COURSE | self.cells[0].metadata.get("course", {})

    def section(self, name: str) -> list[Cell]:
        return [cell for cell in self.cells if cell.section == name]


def title(heading: str) -> str:
    """A heading without the free text behind its colon."""
    return heading.partition(":")[0].strip()


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


# The rules


def form(chapter: Chapter) -> Iterator[str]:
    data = chapter.data
    if (data["nbformat"], data["nbformat_minor"]) != (4, 5):
        yield "the format must be 4.5: `jupytext --to ipynb --update` keeps it"
    if data["metadata"] != METADATA:
        yield f"the notebook's metadata must be just {json.dumps(METADATA)}"
    ids = [cell.data.get("id") for cell in chapter.cells]
    if None in ids or len(set(ids)) < len(ids):
        yield "every cell needs an id of its own: convert with `jupytext --to ipynb --update`"
    if len(chapter.cells) > MOST_CELLS:
        yield f"{len(chapter.cells)} cells; at most {MOST_CELLS}: merge or cut"
    for cell in chapter.cells:
        if cell.data.get("outputs") or cell.data.get("execution_count") is not None:
            yield f"{cell} has outputs or an execution count: clear all outputs"
        if extra := set(cell.tags) - TAGS:
            yield f"{cell} has unknown tags {sorted(extra)}; known are {sorted(TAGS)}"
        keys = {"tags", "jupyter", "mystnb", "slideshow"} | (
            {"course"} if cell.number == 1 else set()
        )
        if foreign := set(cell.metadata) - keys:
            yield f"{cell} has metadata {sorted(foreign)} that nothing reads: remove it"
        if not cell.source.strip():
            yield f"{cell} is empty"


def slides(chapter: Chapter) -> Iterator[str]:
    kinds = [c.metadata.get("slideshow", {}).get("slide_type", "skip") for c in chapter.cells]
    if extra := set(kinds) - SLIDES:
        yield f"slides are of {sorted(SLIDES)}, and not {sorted(extra)}"
    if not FEWEST_SLIDES <= kinds.count("slide") <= MOST_SLIDES:
        yield (
            f"{kinds.count('slide')} cells begin a slide; wanted are {FEWEST_SLIDES} to "
            f"{MOST_SLIDES}: `slideshow.slide_type` in their metadata"
        )
    if kinds[0] != "slide" or chapter.section("Takeaways")[0].metadata.get("slideshow") is None:
        yield "the slides must begin with cell 1, and show the takeaways"


def header(chapter: Chapter) -> Iterator[str]:
    head, setup = chapter.cells[:2]
    lines = [line.strip() for line in head.source.split("\n") if line.strip()]
    if head.code or not re.match(rf"# {chapter.number} · \S", lines[0]):
        yield f"cell 1 must be text and begin with `# {chapter.number} · Title`"
    starts = [next((h for h in HEADER if line.startswith(h)), None) for line in lines[1:]]
    if starts != list(HEADER):
        yield (
            "after its title cell 1 must have five paragraphs: a practitioner's complaint as a "
            f"quotation, `> …`, and lines that begin with {', '.join(HEADER[1:])}"
        )
    elif lines[2].count(";") != 2:
        yield "`**You will be able to**` must name three things, separated by two semicolons"
    elif "CPU cores" not in lines[4]:
        yield "`**Time:**` must say how long the notebook runs on 2 CPU cores"
    elif not (match := TIME.fullmatch(lines[4])):
        yield f"`**Time:**` must be of the form {TIME.pattern}"
    elif (result := readability.minutes(chapter.data)) != (
        message := (int(match[1]), int(match[2]))
    ):
        yield (
            f"`**Time:**` says {message} minutes to read and to do; by its words and lines it is "
            f"{result}"
        )
    if set(chapter.course) - {"room", "compiles"} != set(COURSE) or not chapter.course["part"]:
        yield f"`course` in the metadata of cell 1 must have {[*COURSE]}; see CONTRIBUTING.md"
    if setup.source.strip() != SETUP or sorted(setup.tags) != ["remove-cell", "setup"]:
        yield f"cell 2 must be exactly, with tags remove-cell and setup:\n{SETUP}"


def sections(chapter: Chapter) -> Iterator[str]:
    expected = FIRST_SECTIONS.get(chapter.chapter, SECTIONS)
    results = [title(heading) for heading in chapter.headings]
    if chapter.first:
        results = [heading for heading in results if heading in expected]
    if results != list(expected):
        missing = [name for name in expected if name not in results]
        yield (
            f"the `##` headings must be {', '.join(expected)}, in this order (text after a colon "
            f"is free); got {', '.join(results)}" + (f"; missing {missing}" if missing else "")
        )
    for cell in chapter.text:
        if len(re.findall(r"^## ", cell.source, re.MULTILINE)) > 1:
            yield f"{cell} opens two sections: one cell each, or a reader of the cell list is lost"


def lengths(chapter: Chapter) -> Iterator[str]:
    low, high = FIRST_WORDS if chapter.first else WORDS
    total = sum(cell.words for cell in chapter.text)
    if not low <= total <= high:
        yield f"{total} words of text; wanted are {low} to {high}"
    for cell in chapter.text:
        if cell.words > MOST_WORDS_A_CELL:
            yield f"{cell} has {cell.words} words: split it, at most {MOST_WORDS_A_CELL}"
    for cell in chapter.codes:
        imports = (n for n in ast.walk(cell.tree) if isinstance(n, ast.Import | ast.ImportFrom))
        lines_of_imports = sum(
            (node.end_lineno or node.lineno) - node.lineno + 1 for node in imports
        )
        if (count := len(cell.source.strip().split("\n")) - lines_of_imports) > MOST_LINES:
            yield (
                f"{cell} has {count} lines without its imports; at most {MOST_LINES}: move a part "
                "into mmrl/"
            )


def language(chapter: Chapter) -> Iterator[str]:
    for cell in chapter.cells:
        source = cell.source if "setup" not in cell.tags else ""
        # In code, `state.net` is an attribute: what ends like a host is one only in quotes.
        hosts = source if not cell.code else re.sub(r"(?<![/\w.-])\w+(\.\w+)*\.net\b", "", source)
        if match := HOST.search(hosts):
            yield (
                f"{cell} names a host, {match.group()!r}: give papers by arXiv number or DOI, "
                "and link to chapters by file name"
            )
        if match := re.search(r"(?<![\w.])/(?:work|tmp|home|root|Users)/", source):
            yield f"{cell} has a path of one machine, {match.group()!r}"
        if match := re.search(r"^\s*(?:%|!(?!\[)).*|\binteract(?:ive)?\(", source, re.MULTILINE):
            yield (
                f"{cell} has {match.group()!r}: no magic, no shell, and no `interact`, which is "
                "frozen on the site"
            )
    for cell in chapter.text:
        if match := MYST.search(cell.source):
            yield f"{cell} has a MyST directive or role, {match.group()!r}: plain Markdown only"
        if match := BRITISH.search(readability.prose(cell.source)):
            yield f"{cell} spells {match.group()!r}: American spelling (color, normalize)"
        if re.search(r"\bTODO\b|\bTBD\b|\bXXX\b|[Ll]orem ipsum", cell.source):
            yield f"{cell} has a note to yourself in it"


def equations(chapter: Chapter) -> Iterator[str]:
    text = "\n".join(cell.source for cell in chapter.text)
    tags = re.findall(r"\\tag\{([^}]*)\}", text)
    expected = [f"{chapter.chapter}.{i + 1}" for i in range(len(tags))]
    if tags != expected:
        yield f"equations must be tagged {expected} in order of appearance; found {tags}"
    for number in re.findall(rf"\bEqs?\. ({chapter.chapter}\.\d+)", text):
        if number not in tags:
            yield f"Eq. {number} is referred to, but no equation has `\\tag{{{number}}}`"
    if not chapter.first and not any(
        r"\tag{" in c.source for c in chapter.section("Derive and build")
    ):
        yield "the section Derive and build has no numbered equation"
    if text.count("$$") % 2:
        yield "a `$$` is not closed"


def pictures(chapter: Chapter) -> Iterator[str]:
    images = [
        (cell, *image)
        for cell in chapter.text
        for image in re.findall(r"!\[([^\]]*)\]\(([^)]*)\)", cell.source)
    ]
    for cell, alt, path in images:
        if len(alt) < 30:
            yield f"{cell}: the alt text {alt!r} is too short to say what one sees in {path}"
        if not re.fullmatch(rf"figures/{chapter.number}_\w+\.svg", path):
            yield f"{cell}: {path} must be figures/{chapter.number}_name.svg"
        elif not (FOLDER / path).exists():
            yield f"{cell}: {path} does not exist"
        else:
            yield from (f"{path} {text}" for text in drawing((FOLDER / path).read_text("utf-8")))
    heading = "The idea in one picture"
    if not chapter.first and not any(cell.section == heading for cell, *_ in images):
        yield f"the section {heading} has no picture: `![what one sees](figures/…svg)`"
    for cell in chapter.text:
        if re.search(r"<(?:img|script|iframe)\b", cell.source):
            yield f"{cell} has raw HTML for what Markdown can do"


def drawing(text: str) -> Iterator[str]:
    """What is wrong with an SVG file."""
    if len(text.encode()) > MOST_BYTES:
        yield f"has {len(text.encode())} bytes; at most {MOST_BYTES}"
    box = re.search(r'viewBox="([\d. -]+)"', text)
    if not box:
        yield "needs a viewBox, so that it scales"
        return
    if re.search(r"https?://(?!www\.w3\.org/)", text) or "@import" in text:
        yield "loads something from elsewhere"
    shape = re.search(r"<(?:rect|circle|path|line|text|ellipse|poly\w+)\b[^>]*>", text)
    if not shape or not re.search(r'<rect.*\brx=.*fill="(?:#fff(?:fff)?|white)"', shape.group()):
        yield 'must begin with a white background, `<rect … rx="12" fill="#fff"/>`, for dark pages'
    scale = 720 / float(box.group(1).split()[2])
    fonts = re.findall(r"font-size[:=]\s*\"?([\d.]+)|\bfont:[^;\"}]*?([\d.]+)px", text)
    sizes = sorted(float(one or other) for one, other in fonts)
    if "<text" in text and (not sizes or sizes[0] * scale < 12.99):
        yield f"has text below 13 px at a width of 720 px, or of no stated size: {sizes[:1]}"
    if "<text" in text and "sans-serif" not in text:
        yield "must use font-family sans-serif"


DRAWS = re.compile(r"mmrl\.(show|course\.figures|course\.ch\w+\.figures)\b")


def drawers(chapter: Chapter) -> set[str]:
    """What the notebook imported that makes figures."""
    names = set()
    for cell in chapter.codes:
        nodes = ast.walk(cell.tree) if "setup" not in cell.tags else iter(())
        for node in nodes:
            module = getattr(node, "module", None) or ""
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                if DRAWS.match(f"{module}.{alias.name}"):
                    names.add(alias.asname or alias.name)
    return {name for name in names if name[0].islower()} - {"provenance_note"}


def figures(chapter: Chapter) -> Iterator[str]:
    draws = drawers(chapter)
    for cell in chapter.codes:
        calls = [n for n in ast.walk(cell.tree) if isinstance(n, ast.Call)]
        roots = {n.func.value if isinstance(n.func, ast.Attribute) else n.func for n in calls}
        figures_drawn = {getattr(root, "id", "") for root in roots} & (draws | {"plt"})
        says = [n for n in calls if name_of(n.func) == "provenance_note"]
        figures_drawn -= {name_of(n.func.value) for n in says if isinstance(n.func, ast.Attribute)}
        alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
        if figures_drawn and len(alt) < 30:
            yield (
                f"{cell} draws with {sorted(figures_drawn)}: say what one sees in its metadata, "
                '{"mystnb": {"image": {"alt": "…"}}}, in 30 characters or more'
            )
        if figures_drawn and cell.last is None:
            yield f"{cell} draws, but does not end with the figure: write `fig` as its last line"


def widgets(chapter: Chapter) -> Iterator[str]:
    for cell in chapter.codes:
        if cell.widget and not ("remove-input" in cell.tags and cell.hidden):
            yield (
                f"{cell} shows a widget: tag it remove-input and set its metadata "
                '"jupyter": {"source_hidden": true}'
            )
        if "remove-input" in cell.tags and not cell.widget:
            yield f"{cell} is tagged remove-input, but its last line is no widget"
    if chapter.first:
        return
    for name in ("Predict", "Explore"):
        if not any(cell.widget for cell in chapter.section(name)):
            yield f"the section {name} has no widget as the last line of a cell"
    kinds = [cell.widget for cell in chapter.section("Predict")]
    if True in kinds and (kinds[0] or kinds[-1]):
        yield "in Predict the widget stands between the question and what to look at"
    for cell in chapter.section("Predict"):
        if cell.widget and not any(word.arg == "question" for word in cell.last.keywords):
            yield f'{cell} shows the answer to what was just asked: give it `question="…"`'


def commitments(chapter: Chapter) -> Iterator[str]:
    def text(name: str) -> str:
        return "\n".join(cell.source for cell in chapter.section(name))

    if "> **Predict.**" not in text("Predict"):
        yield "the section Predict must ask in a box, `> **Predict.** …`, before anything is shown"
    for box in re.findall(r"^> \*\*Predict\.\*\*.*(?:\n>.*)*", text("Predict"), re.MULTILINE):
        if box.count("?") != 1:
            yield f"a prediction is one question, for one number: {box[:60]!r} has {box.count('?')}"
    if "Train" in FIRST_SECTIONS.get(chapter.chapter, SECTIONS):
        yield from training_problems(chapter, text("Measured"))
    if not chapter.first and "assert" not in text("Compare"):
        yield "the section Compare must assert that both are equal: np.testing.assert_allclose"


def training_problems(chapter: Chapter, text: str) -> Iterator[str]:
    if not any(cell.code for cell in chapter.section("Train")):
        yield "the section Train trains nothing: it needs a code cell"
    if "published_rows(" in text and "provenance_note(" not in text:
        yield "the section Measured must print `provenance_note(rows)` under its figure"
    if not re.search(r"published_rows\(|entries\.leaderboard\(|just now|your machine", text):
        yield (
            "the section Measured needs `published_rows(…)`, or must say that the numbers were "
            "measured just now on your machine"
        )


def teaching(chapter: Chapter) -> Iterator[str]:
    """Worked cases, quick checks, takeaways, and sentences that hang together."""
    text = "\n\n".join(cell.source for cell in chapter.text)
    equations_by_hand: set[str] = set()
    for report in re.findall(r"\*\*By hand\*\* \(Eqs?\. ([^)]*)\)", text):
        equations_by_hand |= set(re.findall(r"\d+b?\.\d+", report))
    for tag in re.findall(r"\\tag\{([^}]*)\}", text):
        if tag not in equations_by_hand:
            yield f"Eq. {tag} has no worked case: a paragraph `**By hand** (Eq. {tag}). …`"
    check = r"\*\*One-minute check\.\*\*(?:(?!\*\*One-minute).)*?<details>"
    quick = re.findall(check, text, re.DOTALL)
    if len(quick) < 2:
        yield (
            f"{len(quick)} one-minute checks; at least two: `**One-minute check.** …`, and its "
            "answer in <details><summary>Answer</summary>"
        )
    closing = "\n".join(cell.source for cell in chapter.section("Takeaways"))
    if len(re.findall(r"^- ", closing, re.MULTILINE)) != 3 or "**Used next:**" not in closing:
        yield "the section Takeaways has three points, `- …`, and a line `**Used next:** …`"
    result = prose.measure(chapter.data)
    if not MEDIAN[0] <= result.median <= MEDIAN[1] or result.p90 > P90:
        yield (
            f"sentences have {result.median:.0f} words in the middle, and a tenth more than "
            f"{result.p90:.0f}; wanted are {MEDIAN[0]} to {MEDIAN[1]}, and {P90} at most"
        )
    if result.connectives < CONNECTIVES:
        yield (
            f"{result.connectives:.1f} connectives (because, so, but, for example) in 1,000 words; "
            f"at least {CONNECTIVES}: join sentences by their reasons"
        )
    yield from prose.missing_explanations(chapter.data, chapter.course["symbols"])


def links(chapter: Chapter) -> Iterator[str]:
    for cell in chapter.text:
        plain = re.sub(r"!\[.*?\)|\$[^$]*\$|`[^`]*`", " ", cell.source, flags=re.DOTALL)
        for path in re.findall(r"\[[^\]]*\]\(([^)]*)\)", plain):
            target = path.partition("#")[0].removesuffix(".ipynb")
            if target not in SLUGS or target == path:
                most = SLUGS[-1].partition("_")[0]
                yield f"{cell} links to {path!r}: only to chapters 00 to {most}, by file name"
            if target == chapter.slug:
                yield f"{cell} links to its own chapter"


def exercises(chapter: Chapter) -> Iterator[str]:
    cells = chapter.section("Exercises")
    expected = [f"{chapter.chapter}.{k}" for k in (1, 2, 3)]
    text = "\n".join(cell.source for cell in cells if not cell.code)
    matches = re.findall(r"^### Exercise (\S+?): \S", text, re.MULTILINE)
    if matches != expected:
        yield (
            f"the headings must be `### Exercise {expected[0]}: …` to {expected[2]}; got {matches}"
        )
        return
    check = f"from mmrl.course.ch{chapter.slug} import exercises as check"
    if check not in "\n".join(cell.source for cell in cells if cell.code):
        yield f"the section Exercises must begin with `{check}`"
    stubs = [cell for cell in cells if cell.code and "check." in cell.source]
    if [sorted(cell.tags) for cell in stubs] != [["exercise"], ["hide-cell", "solution"]] * 3:
        yield (
            "each exercise is a text cell, a code cell tagged exercise, and right after it a code "
            "cell tagged solution and hide-cell; both call `check.name(answer)`"
        )
        return
    for number, stub, solution in zip(expected, stubs[::2], stubs[1::2], strict=True):
        yield from (f"Exercise {number}: {text}" for text in exercise(number, stub, solution))
        yield from check_problems(chapter, number, checked_name(stub))


def exercise(number: str, stub: Cell, solution: Cell) -> Iterator[str]:
    """What is wrong with a stub and its solution."""
    nodes = list(ast.walk(stub.tree))
    if not any(isinstance(n, ast.Constant) and n.value is ... for n in nodes):
        yield "the stub must leave `...` for the reader to replace"
    if not checked_name(stub):
        yield "the stub must end with `check.name(answer)`"
    if checked_name(stub) != checked_name(solution):
        yield "the solution must end with the same `check.name(…)` as the stub"
    if solution.number != stub.number + 1:
        yield "the solution must follow its stub directly"
    if not solution.source.startswith("# Solution") or not solution.hidden:
        yield 'the solution begins with `# Solution`; metadata "jupyter": {"source_hidden": true}'


def checked_name(cell: Cell) -> str:
    """name in a last line check.name(…), or nothing."""
    func = cell.last.func if isinstance(cell.last, ast.Call) else None
    whole = isinstance(func, ast.Attribute) and name_of(func.value) == "check"
    return func.attr if whole else ""


def check_problems(chapter: Chapter, number: str, name: str) -> Iterator[str]:
    """Is there such a check, with this number?"""
    if not name or chapter.slug not in SLUGS:
        return
    module = f"mmrl.course.ch{chapter.slug}.exercises"
    try:
        value = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError:
        yield f"Exercise {number}: there is no {module} yet"
        return
    if not isinstance(value, Exercise) or value.name != number:
        yield f'Exercise {number}: {module}.{name} must be an `Exercise("{number}", …)`'


RULES: tuple[Callable[[Chapter], Iterator[str]], ...] = (
    form, slides, header, sections, lengths, language, equations,
    pictures, figures, widgets, commitments, teaching, links, exercises,
)  # fmt: skip


def complaints(chapter: Chapter) -> list[str]:
    return [f"{text} [{rule.__name__}]" for rule in RULES for text in rule(chapter)]


# The chapters


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_chapter_has_the_form_of_all_chapters(path: Path):
    result = complaints(Chapter(path.stem, json.loads(path.read_text("utf-8"))))
    assert not result, f"{path.name}:\n- " + "\n- ".join(result)


def test_the_scroll_is_short_complete_and_linked_to_the_chapters():
    path = FOLDER / "memory_in_one_scroll.ipynb"
    scroll = Chapter(path.stem, json.loads(path.read_text("utf-8")))
    codes = [cell for cell in scroll.codes if "setup" not in cell.tags]
    assert sum(cell.words for cell in scroll.text) <= 3000
    assert sum(len(cell.source.strip().split("\n")) for cell in codes) <= 200
    visible = [cell for cell in codes if "remove-input" in cell.tags]
    assert len(visible) == 3 and all(cell.hidden for cell in visible)
    nodes = [node for cell in codes for node in ast.walk(cell.tree)]
    modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    widgets = {"mmrl.course.widgets", "mmrl.course.widgets.training"}
    assert modules == {"mmrl.envs", "mmrl.show"} | widgets
    assert scroll.codes[0].source.strip() == SETUP
    rules = (form, language, figures, links)
    assert [text for rule in rules for text in rule(scroll)] == []
    for heading in (cell for cell in scroll.text if re.match(r"## \d", cell.source)):
        name = title(heading.source[3:].split("\n")[0])
        section = "".join(cell.source for cell in scroll.section(name) if not cell.code)
        assert ".ipynb)" in section, f"{heading} needs a link to a chapter"
    measures = prose.measure(scroll.data)
    assert measures.median <= MEDIAN[1] and measures.p90 <= P90
    kinds = [c.metadata.get("slideshow", {}).get("slide_type", "skip") for c in scroll.cells]
    assert set(kinds) <= SLIDES and FEWEST_SLIDES <= kinds.count("slide") <= MOST_SLIDES
    pairs = zip(scroll.cells, kinds, strict=True)
    assert {kind for cell, kind in pairs if not cell.code and cell.source[0] == "#"} == {"slide"}


def test_every_copy_of_a_header_is_current():
    paths = chapters.outdated_paths(chapters.copies())
    assert not paths, f"`make chapters` renews {paths}"


def test_chapters_are_numbered_in_the_order_of_the_site_and_links_lead_to_them():
    site = (FOLDER.parent / "book" / "_toc.yml").read_text("utf-8")
    assert re.findall(r"file: notebooks/(\d\w+)", site) == SLUGS, (
        "no part of book/_toc.yml has them"
    )
    numbers = [slug.partition("_")[0] for slug in SLUGS]
    whole = [number for number in numbers if number.isdigit()]
    assert whole == [f"{n:02d}" for n in range(len(whole))]
    assert {number.removesuffix("b") for number in numbers} == set(whole)
    for path in PATHS:
        links = set(re.findall(r"\]\((\w+)\.ipynb", path.read_text("utf-8")))
        missing = links - set(SLUGS)
        assert not missing, f"{path.name} links to {sorted(missing)}, not written yet"


def test_the_readme_lists_every_chapter():
    readme = (FOLDER.parent / "README.md").read_text("utf-8")
    entries = re.findall(r"(?:\||·) (\d\db?) \w", readme)
    assert entries == [slug.partition("_")[0] for slug in SLUGS]


def test_every_picture_is_used():
    texts = [path.read_text("utf-8") for path in PATHS]
    matches = {name for text in texts for name in re.findall(r"figures/(\w+\.svg)", text)}
    extra = {path.name for path in (FOLDER / "figures").glob("*.svg")} - matches
    assert not extra, f"no chapter shows {sorted(extra)}"


# The rules themselves


def text_cell(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source}


def code_cell(source: str, **metadata: Any) -> dict[str, Any]:
    cell = {"cell_type": "code", "metadata": metadata, "source": source}
    return cell | {"execution_count": None, "outputs": []}


NO_SOURCE = {"source_hidden": True}
WIDGET = code_cell("ScanPlayer(length=8)", tags=["remove-input"], jupyter=NO_SOURCE)
ALT = {"image": {"alt": "Two lines that cross in the middle of the picture."}}


SENTENCE = "It holds because each of the steps that we take keeps what the one before it had. "
WITHOUT_BECAUSE = SENTENCE.replace("because", "and")
ANSWER = "<details><summary>Answer</summary>\n\nIt is.\n\n</details>"
CHECK = f"**One-minute check.** Is it so?\n\n{ANSWER}"


def example() -> dict[str, Any]:
    """A chapter 02 with nothing wrong and nothing in it."""
    words = text_cell(SENTENCE * 9)
    head = "# 02 · Title\n\n> “It is slow.”\n\n**You will be able to** a; b; c.\n\n"
    head += "**Before:** none.\n\n"
    time = "**Time:** about 20 minutes to read, and 45 for the exercises; "
    time += "the notebook runs in no time"
    cells = [
        text_cell(head + time + " on 2 CPU cores.\n\n**Source:** a paper."),
        code_cell(SETUP, tags=["remove-cell", "setup"]),
        code_cell("from mmrl.show import figure\nfrom mmrl.course.widgets import ScanPlayer"),
        text_cell("## Predict: this\n\n> **Predict.** Which?"),
        code_cell('ScanPlayer(question="Which?")', tags=["remove-input"], jupyter=NO_SOURCE),
        text_cell("Look. See [chapter 03](03_memory_monoids.ipynb)."),
        text_cell("## The idea in one picture"),
        text_cell("## Derive and build\n\n$$ 1 = 1 \\tag{2.1} $$\n\nEq. 2.1 is `colour`-less."),
        text_cell("**By hand** (Eq. 2.1). One is one."),
        *[text_cell(CHECK)] * 2,
        text_cell("## Compare"),
        code_cell("assert True"),
        text_cell("## Explore"),
        WIDGET,
        text_cell("## Train"),
        code_cell("fig, ax = figure()\nfig", mystnb=ALT),
        text_cell("## Measured\n\nMeasured just now on your machine."),
        text_cell("## What did not reproduce"),
        text_cell("## Pitfalls"),
        *[words] * 8,
        text_cell("## Exercises"),
        code_cell("from mmrl.course.ch02_example import exercises as check"),
    ]
    for k in (1, 2, 3):
        cells += [
            text_cell(f"### Exercise 2.{k}: do it"),
            code_cell("x = ...\n\ncheck.one(x)", tags=["exercise"]),
            code_cell(
                "# Solution\ncheck.one(1)", tags=["solution", "hide-cell"], jupyter=dict(NO_SOURCE)
            ),
        ]
    cells.append(text_cell("## Takeaways\n\n- One\n- Two\n- Three\n\n**Used next:** nowhere."))
    cells.append(text_cell("## Further reading"))
    cells = [copy.deepcopy(cell) | {"id": f"c{i}"} for i, cell in enumerate(cells)]
    for cell in [cell for cell in cells if cell["cell_type"] == "markdown"][:8] + cells[-2:-1]:
        cell["metadata"]["slideshow"] = {"slide_type": "slide"}
    cells[0]["metadata"]["course"] = {"part": "I", "week": 1, "home": "2.1", "symbols": {}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": copy.deepcopy(METADATA), "cells": cells}


def examine(data: dict[str, Any]) -> list[str]:
    # Not a slug of the course, so that no picture and no check module need be there.
    result = complaints(Chapter("02_example", data))
    return [text for text in result if "has no picture" not in text and "is named, but" not in text]


def find(data: dict[str, Any], beginning: str) -> dict[str, Any]:
    return next(cell for cell in data["cells"] if cell["source"].startswith(beginning))


def test_a_chapter_with_nothing_wrong_is_left_alone():
    assert examine(example()) == []


FLAWS: dict[str, tuple[str, str, str]] = {
    # where a cell begins, what is put in its place, and what is said about it
    "title": ("# 02", "# 3 · Title", "must be text and begin"),
    "header": ("# 02", "# 02 · Title\n\n**Time:** long.", "five paragraphs"),
    "setup": ("import sys", "import sys", "exactly"),
    "section": ("## Explore", "## Play", "missing ['Explore']"),
    "two sections": ("## Explore", "## Explore\n\n## Train\n", "opens two sections"),
    "long code": ("assert True", "x = 1\n" * 21 + "assert True", "imports; at most 20"),
    "long text": ("It holds", SENTENCE * 15, "split it"),
    "few words": ("It holds", "word", "words of text"),
    "short sentences": ("It holds", "It is so because it is. " * 26, "words in the middle"),
    "unjoined": ("It holds", WITHOUT_BECAUSE * 9, "connectives"),
    "minutes": ("It holds", SENTENCE * 3, "minutes to read"),
    "by hand": ("**By hand**", "By hand: one is one.", "has no worked case"),
    "checks": ("**One-minute", "Look closely.", "one-minute checks"),
    "takeaways": ("## Takeaways", "## Takeaways\n\n- One", "three points"),
    "symbol": ("Look.", "Here $z$ is two.", "z is used but not named"),
    "two questions": ("## Predict", "## Predict\n\n> **Predict.** Which? Why?", "one question"),
    "shown": ("ScanPlayer(q", "ScanPlayer()", "question="),
    "url": ("Look.", "See https://example.org/x.", "names a host"),
    "host": ("Look.", "See example.com for it.", "names a host"),
    "path": ("assert True", "assert open('/home/me/x')", "path of one machine"),
    "magic": ("assert True", "%matplotlib inline\nassert True", "no magic"),
    "interact": ("assert True", "interact(f)\nassert True", "frozen"),
    "directive": ("Look.", "```{note}\nA note\n```", "MyST"),
    "role": ("Look.", "See {ref}`there`.", "MyST"),
    "british": ("Look.", "The behaviour is normalised.", "American"),
    "tag": ("## Derive", "## Derive and build\n\n$$ x \\tag{2.2} $$", "tagged"),
    "reference": ("Look.", "Look at Eq. 2.7.", "no equation"),
    "no equation": ("## Derive", "## Derive and build", "no numbered equation"),
    "open equation": ("Look.", "$$ x", "not closed"),
    "picture": ("Look.", "![A picture](figures/02_no.svg)", "alt text"),
    "no picture": ("Look.", f"![{'A picture. ' * 4}](figures/02_no.svg)", "does not exist"),
    "its place": ("Look.", f"![{'A picture. ' * 4}](other.svg)", "must be figures/"),
    "figure": ("fig, ax", "fig, ax = figure()", "does not end with the figure"),
    "late link": ("Look.", "See [chapter 99](99_late.ipynb).", "only to chapters 00 to"),
    "predict": ("## Predict", "## Predict\n\nWhich?", "must ask in a box"),
    "measured": ("## Measured", "## Measured\n\nIt is so.", "needs `published_rows"),
    "provenance": ("## Measured", "## Measured\n\n`published_rows(x)`", "provenance_note"),
    "assert": ("assert True", "print(True)", "must assert"),
    "numbers": ("### Exercise 2.2", "### Exercise 2.4: do it", "headings must be"),
    "stub": ("x = ...", "x = 1\n\ncheck.one(x)", "must leave `...`"),
    "end": ("x = ...", "x = ...\n\ncheck.one(x)\nx = 1", "must end with"),
    "solution": ("# Solution", "check.one(1)", "begins with `# Solution`"),
    "other check": ("# Solution", "# Solution\ncheck.two(1)", "same `check.name"),
    "import": ("from mmrl.course.ch02_example", "import mmrl", "must begin with"),
    "note": ("Look.", "TODO: say more", "note to yourself"),
    "empty": ("Look.", " ", "is empty"),
}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_seen(flaw: str):
    beginning, instead, message = FLAWS[flaw]
    data = example()
    for cell in data["cells"]:
        if cell["source"].startswith(beginning):
            cell["source"] = instead
            if flaw == "setup":
                cell["metadata"]["tags"] = ["setup"]
    assert any(message in text for text in examine(data)), examine(data)


METADATA_FLAWS: dict[str, tuple[str, dict[str, Any], str]] = {
    "widget shown": ("ScanPlayer(l", {}, "shows a widget"),
    "no widget": ("assert True", {"tags": ["remove-input"]}, "no widget"),
    "no alt": ("fig, ax", {}, "say what one sees"),
    "short alt": ("fig, ax", {"mystnb": {"image": {"alt": "A plot"}}}, "say what one sees"),
    "unknown tag": ("assert True", {"tags": ["important"]}, "unknown tags"),
    "foreign": ("assert True", {"collapsed": True}, "nothing reads"),
    "solution shown": ("# Solution", {"tags": ["solution", "hide-cell"]}, "source_hidden"),
    "no first slide": ("# 02", {}, "must begin with cell 1"),
    "no part": ("# 02", {"course": {"home": "2.1"}}, "must have ['part'"),
    "strange slide": ("Look.", {"slideshow": {"slide_type": "page"}}, "and not ['page']"),
    "untagged": ("# Solution", {}, "right after it"),
}


@pytest.mark.parametrize("flaw", METADATA_FLAWS)
def test_wrong_metadata_is_seen(flaw: str):
    beginning, instead, message = METADATA_FLAWS[flaw]
    data = example()
    find(data, beginning)["metadata"] = instead
    assert any(message in text for text in examine(data)), examine(data)


def test_outputs_ids_and_the_notebook_s_own_metadata_are_seen():
    data = example()
    data["cells"][2]["execution_count"] = 3
    data["cells"][4]["id"] = data["cells"][3]["id"]
    data["metadata"]["jupytext"] = {}
    data["nbformat_minor"] = 4
    message = "\n".join(examine(data))
    assert all(word in message for word in ("clear all outputs", "id of its own", "be just", "4.5"))


GOOD_SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 300" font-family="sans-serif">'
    '<rect width="720" height="300" rx="12" fill="#fff"/><text font-size="14">a</text></svg>'
)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('viewBox="0 0 720 300" ', "", "viewBox"),
        ('fill="#fff"', 'fill="none"', "white background"),
        ('font-size="14"', 'font-size="12"', "below 13 px"),
        ('font-size="14"', 'style="font: 600 12px serif"', "below 13 px"),
        ("0 0 720", "0 0 900", "below 13 px"),
        ("sans-serif", "Arial", "sans-serif"),
        ("</svg>", '<image href="https://example.org/x.png"/></svg>', "from elsewhere"),
        ("</svg>", " " * MOST_BYTES + "</svg>", "bytes"),
    ],
)
def test_a_flawed_picture_is_seen(old: str, new: str, message: str):
    assert list(drawing(GOOD_SVG)) == []
    assert any(message in text for text in drawing(GOOD_SVG.replace(old, new)))
