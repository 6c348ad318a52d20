"""Passages of pages and chapters, and extraction of the numbers in them."""

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
    """Normalize the numbers in a text, for example 1,000 to 1000 and two thirds to 2/3."""
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
    """Return the distinct numbers in a normalized text."""
    return [*dict.fromkeys(NUMBER.findall(text))]


def lacking(expected: Iterable[str], text: str) -> list[str]:
    """Return the numbers that occur less often in a normalized text than in `expected`."""
    return [
        number
        for number, times in Counter(expected).items()
        if len(re.findall(rf"(?<![\w.−]){re.escape(number)}(?!\w|\.\d)", text)) < times
    ]


def cells(row: str) -> list[str]:
    """Split a table row into its cells."""
    return [cell.strip() for cell in row.split("|")]


@functools.cache
def passage(page: str, section: str, row: str = "") -> str:
    """Return the normalized text of a section, or of a table row in it."""
    heads = [head for head, _ in sections(page)]
    results = [
        text for head, text in sections(page) if head == section or head.startswith(f"{section}:")
    ]
    assert len(results) == 1, (
        f"{page} must have one section “{section}”; it has {'; '.join(heads)}. If the heading is "
        "new, name it in the claim."
    )
    if not row:
        return normal(results[0])
    lines = re.findall(rf"^\| {re.escape(row)}(?: [^|]*)?\|(.*)\|$", results[0], re.MULTILINE)
    assert len(lines) == 1, f"{page}, section “{section}”, must have one row “{row}”; got {lines}."
    return normal(lines[0])


@functools.cache
def sections(page: str) -> list[tuple[str, str]]:
    """Return pairs (heading, text up to the next heading) of a page or a chapter."""
    text = (ROOT / page).read_text("utf-8")
    if page.endswith(".ipynb"):
        sources = json.loads(text)["cells"]
        texts = ["".join(cell["source"]) for cell in sources if cell["cell_type"] == "markdown"]
        text = "\n\n".join(texts)
    parts = re.split(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), flags=re.M)
    return [(parts[i], parts[i + 1]) for i in range(1, len(parts), 2)]
