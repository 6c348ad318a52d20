"""Update the files that repeat information from the headers of the notebooks.

`make chapters` runs this script. The first cell of a notebook is its header. The header contains
the title of the chapter and the minutes that it takes, and its metadata `course` contains the part
of the course and the session in class. The script updates the site's table of contents, the tables
of chapters in README.md and book/intro.md, the sessions and minutes in book/teach.md, the untested
pages in book/accessibility.md, and the `__init__.py` of each chapter's folder in mmrl/course. The
minutes are computed from the numbers of words, equations and lines of code in a notebook.
"""

import json
import re
import textwrap
from collections.abc import Callable, Iterable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import api
import readability
import yaml
from reading import load

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"\d\db?")
CHAPTER = re.compile(r"notebooks/\d")
NEWER = re.compile(r"^- Pages that are newer than the last test: .*\n(?:  .*\n)*", re.M)
PLAN = re.compile(
    r"^\| (week|part) \| chapters \| to read \| exercises \| to set \|\n.*\n((?:\|.*\n)+)", re.M
)


class Chapter(NamedTuple):
    """The header of a notebook."""

    slug: str
    title: str
    course: dict[str, Any]  # keys: part, week, room (work in class), home, symbols
    minutes: tuple[int, int]  # minutes for reading and for the exercises

    @property
    def number(self) -> str:
        """The number of the chapter in its file name, such as 03 or 03b."""
        return self.slug.partition("_")[0]

    @property
    def part(self) -> str:
        """The part of the course that contains the chapter."""
        return self.course["part"]


def chapter(path: Path) -> Chapter:
    """Read the header of a notebook."""
    notebook = load(path)
    head = notebook["cells"][0]
    title = "".join(head["source"]).partition("\n")[0].partition(" · ")[2]
    return Chapter(path.stem, title, head["metadata"]["course"], readability.minutes(notebook))


def copies(root: Path = ROOT) -> dict[Path, str]:
    """Return the up-to-date contents of each file that contains information from the headers."""
    paths = sorted(root.glob("notebooks/[0-9]*.ipynb"))
    headers = [chapter(path) for path in paths]
    writers: dict[str, Callable[[str, list[Chapter]], str]] = {
        "book/_toc.yml": contents,
        "README.md": readme,
        "book/intro.md": intro,
        "book/teach.md": teach,
        "book/accessibility.md": partial(access, root),
    }
    texts = {
        root / name: make((root / name).read_text(), headers) for name, make in writers.items()
    }
    texts |= {root / f"mmrl/course/ch{one.slug}/__init__.py": package(one) for one in headers}
    return texts | {path: with_minutes(path, one) for path, one in zip(paths, headers, strict=True)}


def package(chapter: Chapter) -> str:
    """Return the contents of the `__init__.py` in a chapter's folder."""
    return f'"""Chapter {re.sub("^0(?=.)", "", chapter.number)}: {chapter.title}."""\n'


def with_minutes(path: Path, chapter: Chapter) -> str:
    """Return a notebook as JSON, with the computed minutes in its header."""
    notebook = load(path)
    words = "about {} minutes to read, and {} for the exercises"
    pattern, new = words.format(r"\d+", r"\d+"), words.format(*chapter.minutes)
    head = notebook["cells"][0]
    head["source"] = [re.sub(pattern, new, line) for line in head["source"]]
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def contents(text: str, chapters: list[Chapter]) -> str:
    """Return the site's table of contents, in which the chapters of a part precede its other pages.

    Notebooks whose names do not begin with a number count as other pages.
    """
    toc = yaml.safe_load(text)
    for part in toc["parts"]:
        own = [f"notebooks/{one.slug}" for one in chapters if one.part == part["caption"]]
        others = [page for page in part["chapters"] if not CHAPTER.match(page["file"])]
        part["chapters"] = [{"file": name} for name in own] + others
        for page in others:
            if page["file"] == "api/index":
                page["sections"] = [{"file": f"api/{rung}"} for rung in api.rungs()]
    return yaml.safe_dump(toc, sort_keys=False, allow_unicode=True)


def access(root: Path, text: str, chapters: list[Chapter]) -> str:
    """Return book/accessibility.md with the list of pages that have not been tested."""
    toc = yaml.safe_load(contents((root / "book" / "_toc.yml").read_text("utf-8"), chapters))
    tests = json.loads((root / "book" / "accessibility.json").read_text("utf-8"))["pages"]["asked"]
    pages = {page["file"] for part in toc["parts"] for page in part["chapters"]}
    pages |= {
        x["file"]
        for part in toc["parts"]
        for page in part["chapters"]
        for x in page.get("sections", ())
    }
    untested_pages = [f"`{page}`" for page in sorted(pages - {row["page"] for row in tests})]
    line = f"- Pages that are newer than the last test: {', '.join(untested_pages) or 'none'}.\n"
    lines = textwrap.wrap(line, 110, subsequent_indent="  ", break_on_hyphens=False)
    return NEWER.sub("\n".join(lines) + "\n", text)


def readme(text: str, chapters: list[Chapter]) -> str:
    """Return README.md with a table of the chapters of each part."""
    rows = []
    for part, members in by_part(chapters).items():
        titles = " · ".join(f"{one.number} {_lower(one.title)}" for one in members)
        rows.append([part.replace(" ·", "."), titles])
    return table(text, "| part | chapters |", rows)


def _lower(title: str) -> str:
    """Return the part of a title before its colon, with its first letter in lower case."""
    short = title.partition(":")[0]
    name = short.split()[0]  # keep names such as R2D2 and JAX
    return short[0].lower() + short[1:] if name[1:] == name[1:].lower() else short


def by_part(chapters: list[Chapter]) -> dict[str, list[Chapter]]:
    """Group chapters by part, in order."""
    return {part: [*members] for part, members in groupby(chapters, lambda one: one.part)}


def intro(text: str, chapters: list[Chapter]) -> str:
    """Return book/intro.md with the numbers of the first and the last chapter of each part."""
    for part, members in by_part(chapters).items():
        roman, _, name = part.partition(" · ")
        ends = dict.fromkeys(one.number.rstrip("b") for one in (members[0], members[-1]))
        row = f"| {roman} | {'–'.join(ends)} · {name} |"
        text = re.sub(rf"^\| {roman} \| [^|]+ \|", row, text, flags=re.M)
    return text


def teach(text: str, chapters: list[Chapter]) -> str:
    """Return book/teach.md with a table of sessions and the minutes of each plan.

    A chapter whose header lacks `room` belongs to the same session as the chapter before it.
    """
    sessions: list[list[Chapter]] = []
    for one in chapters:
        if "room" in one.course:
            sessions.append([])
        sessions[-1].append(one)
    rows = [
        [
            str(number),
            ", ".join(one.number for one in members),
            members[0].course["room"],
            ", ".join(one.course["home"] for one in members),
        ]
        for number, members in enumerate(sessions, 1)
    ]
    text = table(text, "| session | chapters | in the room | at home |", rows)
    # The first plan covers a term and has weeks. The other plans do not.
    whole = PLAN.sub(lambda match: _with_weeks(match[0], chapters), text, count=1)
    return PLAN.sub(lambda match: _with_totals(match, chapters), whole)


def _with_weeks(plan: str, chapters: list[Chapter]) -> str:
    """Return a plan in which each week has the chapters that the headers assign to it."""
    for week, members in groupby(chapters, lambda one: one.course["week"]):
        row = f"| {week} | {', '.join(one.number for one in members)} |"
        plan = re.sub(rf"^\| {week} \| [^|]+ \|", row, plan, flags=re.M)
    return plan


def _with_totals(match: re.Match[str], chapters: list[Chapter]) -> str:
    """Return a plan with the minutes of its chapters.

    A plan for parts of a day includes only a third of the time for exercises.
    """
    minutes = {one.number: one.minutes for one in chapters}

    def total(numbers: list[str]) -> tuple[int, int]:
        read, work = (sum(each) for each in zip(*map(minutes.get, numbers), strict=True))
        return read, work // 3 if match[1] == "part" else work

    *lines, _ = match[2].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rows = [[*row[:2], *map(str, total(NUMBER.findall(row[1]))), *row[4:]] for row in cells]
    numbers = [number for row in cells for number in NUMBER.findall(row[1])]
    hours = [f"{time / 60:.0f} hour" + "s" * (time >= 90) for time in total(numbers)]
    rows.append(["together", f"{len(numbers)} chapters", *hours, ""])
    return match[0].removesuffix(match[2]) + "".join(map(_row, rows))


def table(text: str, head: str, rows: Iterable[list[str]]) -> str:
    """Replace the rows of the table whose header line is `head`."""
    body = "".join(map(_row, rows))
    pattern = rf"^({re.escape(head)}\n\|[-|]+\|\n)(?:\|.*\n)*"
    return re.sub(pattern, lambda match: match[1] + body, text, count=1, flags=re.M)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |\n".replace("|  |", "| |")


def write(texts: dict[Path, str]) -> list[Path]:
    """Write the files whose contents are outdated, and return their paths."""
    paths = outdated_paths(texts)
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text(texts[path], "utf-8")
    return paths


def outdated_paths(texts: dict[Path, str]) -> list[Path]:
    """Return the files whose contents differ from `texts`."""
    return sorted(
        path for path, text in texts.items() if not path.exists() or path.read_text("utf-8") != text
    )


if __name__ == "__main__":
    for path in write(copies()):
        print(f"Renewed {path.relative_to(ROOT)}")
