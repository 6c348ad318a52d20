"""Extraction of prose and sentences from notebooks, and estimates of the reading time."""

import re
from typing import Any

# Abbreviations whose period does not end a sentence.
SHORT = re.compile(r"\b(Eqs?|Figs?|al|e\.g|i\.e|vs|cf|ca|no|Dr|St)\.")
END = re.compile(r"(?<=[.!?])[\"”’)*_]*\s+(?=[\"“‘(*_]*[A-Z\d])")

# Reading speed: words and lines of code per minute; minutes per equation, widget and exercise.
WORDS, LINES, EQUATION, WIDGET, EXERCISE = 100, 5, 1.5, 3, 15


def prose(text: str) -> str:
    """Remove equations, images, code blocks, tags and URLs from Markdown."""
    text = re.sub(r"```.*?```|\$\$.*?\$\$", " ", text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)|</?\w+>", " ", text)
    text = re.sub(r"\$[^$]+\$|`[^`]+`", "x", text)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def first(text: str) -> str:
    """Return the first sentence of a paragraph, with its markup and a preceding title."""
    dots = SHORT.sub(lambda match: match.group().replace(".", "\N{ONE DOT LEADER}"), text)
    ends = (match.end() for match in END.finditer(dots))
    return text[: next((end for end in ends if len(text[:end].split()) > 6), None)].strip()


def minutes(notebook: dict[str, Any]) -> tuple[int, int]:
    """Estimate how many minutes a notebook and its exercises take.

    The reading time is rounded to a multiple of five. A reader needs a minute for 100 words or
    five lines of code, 1.5 minutes for an equation, 3 minutes for a widget, and 15 minutes for an
    exercise. Hidden cells are ignored.
    """
    time = 0.0
    for cell in notebook["cells"]:
        source, tags = "".join(cell["source"]), set(cell["metadata"].get("tags", ()))
        if cell["cell_type"] == "markdown":
            time += len(prose(source).split()) / WORDS + EQUATION * source.count(r"\tag{")
        elif "remove-input" in tags:
            time += WIDGET
        elif not tags & {"setup", "solution", "exercise", "hide-input"}:
            time += len(source.strip().split("\n")) / LINES
    count = sum("exercise" in cell["metadata"].get("tags", ()) for cell in notebook["cells"])
    return 5 * round(time / 5), EXERCISE * count
