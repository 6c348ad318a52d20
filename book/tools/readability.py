"""Measures of a chapter's text: its words, the ends of its sentences, and its reading time."""

import re
from typing import Any

# A full stop after these abbreviations does not end a sentence.
SHORT = re.compile(r"\b(Eqs?|Figs?|al|e\.g|i\.e|vs|cf|ca|no|Dr|St)\.")
END = re.compile(r"(?<=[.!?])[\"”’)*_]*\s+(?=[\"“‘(*_]*[A-Z\d])")

# Words and lines of code per minute of study; then minutes per equation and per widget.
WORDS, LINES, EQUATION, WIDGET, EXERCISE = 100, 5, 1.5, 3, 15


def prose(text: str) -> str:
    """Return the prose of a text, without equations, pictures, code blocks, tags and addresses."""
    text = re.sub(r"```.*?```|\$\$.*?\$\$", " ", text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)|</?\w+>", " ", text)
    text = re.sub(r"\$[^$]+\$|`[^`]+`", "x", text)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def first(text: str) -> str:
    """Return the first sentence of a paragraph, with its markup and any title in front of it."""
    dots = SHORT.sub(lambda match: match.group().replace(".", "\N{ONE DOT LEADER}"), text)
    ends = (match.end() for match in END.finditer(dots))
    return text[: next((end for end in ends if len(text[:end].split()) > 6), None)].strip()


def minutes(notebook: dict[str, Any]) -> tuple[int, int]:
    """Estimate (minutes to read, minutes for the exercises), in multiples of five, rounded up.

    A minute covers a hundred words or five lines of code. Each equation adds a minute and a half,
    each widget three minutes, and each exercise a quarter of an hour. Hidden cells do not count.
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
