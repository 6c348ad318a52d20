"""Claims of the course about measured rows, read from `tests/book/claims.toml` and evaluated."""

import ast
import functools
import itertools
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.helpers import measures

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "book" / "claims.toml"
WORDS = ["none", "one", "two", "three", "four", "five", "six"]
WORDS += ["seven", "eight", "nine", "ten", "eleven", "twelve"]
PARTS = {"half": 2, "third": 3, "quarter": 4, "fifth": 5, "tenth": 10}
NUMBER = re.compile(r"(?<![\w.−])−?\d+(?:[./]\d+)?(?: %|×)?")


class Claim(NamedTuple):
    """One statement: where it stands, when it is true, and which numbers it must contain."""

    id: str
    page: str  # a file, by its path in the repository
    section: str  # a heading of it, or a heading's part before a colon
    row: str  # the begin of a row of a table, if the numbers are its other cells
    let: str  # Python statements that name things
    holds: list[str]  # Python expressions
    numbers: list[str]  # f-strings, each of one number or of several with | between them
    each: str  # the case, if the claim has several

    @property
    def place(self) -> str:
        return f"{self.page}, section “{self.section}”" + f", row “{self.row}”" * bool(self.row)


def claims() -> list[Claim]:
    """All claims; one with `each` is expanded to a claim for each of its cases."""
    found = []
    for name, entry in tomllib.loads(FILE.read_text("utf-8")).items():
        fields = {"row": "", "let": "", "holds": [], "numbers": []} | entry
        cases = fields.pop("each", [""])
        for case in eval(cases, vars(measures)) if isinstance(cases, str) else cases:
            own = fields | {"row": fields["row"].format(each=case)}
            found.append(Claim(id=f"{name}[{case}]" if case else name, each=case, **own))
    return found


def complaints(claim: Claim, tables: Mapping[str, Any]) -> list[str]:
    """Evaluate a claim; return its expressions that fail, and the numbers that are missing."""
    scope = {**vars(measures), **tables, "each": claim.each}
    exec(claim.let, scope)
    wrong = [_false(code, scope) for code in claim.holds if not eval(code, scope)]
    texts = [eval("f" + repr(text), scope) for text in claim.numbers]
    wanted = [normal(part.strip()) for text in texts for part in text.split("|")]
    told = passage(claim.page, claim.section, claim.row)
    shown = _cells(told) if claim.row else [*dict.fromkeys(NUMBER.findall(told))]
    lacking = wanted * (wanted != shown) if claim.row else _lacking(wanted, told)
    if lacking:
        found = f"the passage lacks {', '.join(lacking)}\n    and contains {', '.join(shown)}"
        wrong.append(f"the rows give {', '.join(wanted)}; {found}")
    return wrong


def message(claim: Claim, wrong: list[str]) -> str:
    """Name the claim and its passage, and list its complaints."""
    return "\n  ".join([f"claim `{claim.id}` ({claim.place}):", *wrong])


def _false(code: str, scope: dict[str, Any]) -> str:
    """Report an expression that is false, with its sides if it is one comparison."""
    sides = re.split(r" (?:<=|>=|==|<|>) ", code)
    if len(sides) == 1 or any(word in code for word in (" for ", " and ", " or ", "not ")):
        return f"`{code}` is false"
    return f"`{code}` is false: {'; '.join(f'{side} is {eval(side, scope)}' for side in sides)}"


def _lacking(wanted: list[str], told: str) -> list[str]:
    """The numbers that do not stand in a text, each as often as it is wanted."""
    return [
        number
        for number, times in Counter(wanted).items()
        if len(re.findall(rf"(?<![\w.−]){re.escape(number)}(?!\w|\.\d)", told)) < times
    ]


def _cells(told: str) -> list[str]:
    return [cell.strip() for cell in told.split("|")]


def normal(text: str) -> str:
    """Write the numbers of a text in one form: 1,000 and 1 000 as 1000, two thirds as 2/3."""
    text = re.sub(r"(?<=\d)(?:[,  ]|\{,\})(?=\d{3}(?!\d))", "", " ".join(text.split()))
    text = re.sub(r"(?<![\w)}])-(?=\d)", "−", text)
    text = re.sub(r"(?<=\d) ?\\?%", " %", text)
    for i, word in enumerate(WORDS):
        text = re.sub(rf"\b{word}\b", str(i), text, flags=re.IGNORECASE)
    for word, parts in PARTS.items():
        many = rf"\b(?:(\d) |an? )?{word}s?\b"
        text = re.sub(many, lambda m, parts=parts: f"{m[1] or 1}/{parts}", text, flags=re.I)
    return text


@functools.cache
def passage(page: str, section: str, row: str = "") -> str:
    """The text of a section, or of a row of a table in it, with its numbers in one form."""
    if page == "book/results.md":
        return normal(measures.sentence(section))
    heads = [head for head, _ in sections(page)]
    found = [
        text for head, text in sections(page) if head == section or head.startswith(f"{section}:")
    ]
    assert len(found) == 1, (
        f"{page} must have one section “{section}”; it has {'; '.join(heads)}. Name its new "
        f"heading in {FILE.relative_to(ROOT)}."
    )
    if not row:
        return normal(found[0])
    lines = re.findall(rf"^\| {re.escape(row)}(?: [^|]*)?\|(.*)\|$", found[0], re.MULTILINE)
    assert len(lines) == 1, f"{page}, section “{section}”, must have one row “{row}”; got {lines}."
    return normal(lines[0])


@functools.cache
def sections(page: str) -> list[tuple[str, str]]:
    """The headings of a page or a chapter, each with the text below it, to the next heading."""
    text = (ROOT / page).read_text("utf-8")
    if page.endswith(".ipynb"):
        cells = json.loads(text)["cells"]
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        text = "\n\n".join(texts)
    parts = re.split(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), flags=re.M)
    return [(parts[i], parts[i + 1]) for i in range(1, len(parts), 2)]


def read_by(claim: Claim, tables: Iterable[str]) -> list[str]:
    """The tables that a claim names."""
    codes = [claim.let, *claim.holds, *("f" + repr(text) for text in claim.numbers)]
    nodes = itertools.chain.from_iterable(ast.walk(ast.parse(code)) for code in codes)
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return [table for table in tables if table in names]


def changed(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Rows with all measurements changed, and then with one field changed, for each field."""
    yield [*map(measures.Noise(float), rows)]
    for field in dict.fromkeys(itertools.chain.from_iterable(rows)):
        for change in (measures.Noise(int, float), measures.shorter):
            yield [row | {field: change(row[field])} if field in row else row for row in rows]
