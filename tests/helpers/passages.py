"""Passages of pages and chapters, and the numbers in them, independent of the words."""

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = ["none", "one", "two", "three", "four", "five", "six"]
WORDS += ["seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen"]
WORDS += ["fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"]
PARTS = {"half": 2, "third": 3, "quarter": 4, "fifth": 5, "tenth": 10}
NUMBER = re.compile(r"(?<![\w.−])−?\d+(?:[./]\d+)?(?: %|×)?")


def normal(text: str) -> str:
    """Write the numbers of a text in one form: 1,000 and 1 000 as 1000, two thirds as 2/3."""
    text = re.sub(r"(?<=\d)(?:[,  ]|\{,\})(?=\d{3}(?!\d))", "", " ".join(text.split()))
    text = re.sub(r"(?<![\w)}])-(?=\d)", "−", text)
    for i, word in enumerate(WORDS):
        text = re.sub(rf"\b{word}\b", str(i), text, flags=re.IGNORECASE)
    text = re.sub(r"(?<=\d) ?(?:\\?%|per ?cent\b)", " %", text)
    for word, parts in PARTS.items():
        many = rf"\b(?:(\d)[ -]|an? )?{word}s?\b"
        text = re.sub(many, lambda m, parts=parts: f"{m[1] or 1}/{parts}", text, flags=re.I)
    return text


def numbers(text: str) -> list[str]:
    """Return the different numbers of a text in normal form."""
    return [*dict.fromkeys(NUMBER.findall(text))]


def lacking(wanted: Iterable[str], text: str) -> list[str]:
    """Return the numbers that a text in normal form lacks, as often as they are missing."""
    return [
        number
        for number, times in Counter(wanted).items()
        if len(re.findall(rf"(?<![\w.−]){re.escape(number)}(?!\w|\.\d)", text)) < times
    ]


def cells(row: str) -> list[str]:
    """Return the cells of a row of a table."""
    return [cell.strip() for cell in row.split("|")]


@functools.cache
def passage(page: str, section: str, row: str = "") -> str:
    """Return the text of a section, or of a row of a table in it, with its numbers in one form."""
    heads = [head for head, _ in sections(page)]
    found = [
        text for head, text in sections(page) if head == section or head.startswith(f"{section}:")
    ]
    assert len(found) == 1, (
        f"{page} must have one section “{section}”; it has {'; '.join(heads)}. If the heading is "
        "new, name it in the claim."
    )
    if not row:
        return normal(found[0])
    lines = re.findall(rf"^\| {re.escape(row)}(?: [^|]*)?\|(.*)\|$", found[0], re.MULTILINE)
    assert len(lines) == 1, f"{page}, section “{section}”, must have one row “{row}”; got {lines}."
    return normal(lines[0])


@functools.cache
def sections(page: str) -> list[tuple[str, str]]:
    """Return the headings of a page or a chapter, each with the text up to the next heading."""
    text = (ROOT / page).read_text("utf-8")
    if page.endswith(".ipynb"):
        sources = json.loads(text)["cells"]
        texts = ["".join(cell["source"]) for cell in sources if cell["cell_type"] == "markdown"]
        text = "\n\n".join(texts)
    parts = re.split(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), flags=re.M)
    return [(parts[i], parts[i + 1]) for i in range(1, len(parts), 2)]
