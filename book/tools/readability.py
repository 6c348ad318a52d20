"""What is read in a chapter: its words, the ends of its sentences, and the minutes it takes."""

import re
from typing import Any

# A full stop after these ends no sentence.
SHORT = re.compile(r"\b(Eqs?|Figs?|al|e\.g|i\.e|vs|cf|ca|no|Dr|St)\.")
END = re.compile(r"(?<=[.!?])[\"”’)*_]*\s+(?=[\"“‘(*_]*[A-Z\d])")

# A minute: words read to be understood, lines of code; and minutes: an equation, a widget.
WORDS, LINES, EQUATION, WIDGET, EXERCISE = 100, 5, 1.5, 3, 15


def prose(text: str) -> str:
    """What is read as words: no equations, pictures, code blocks, tags and addresses."""
    text = re.sub(r"```.*?```|\$\$.*?\$\$", " ", text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)|</?\w+>", " ", text)
    text = re.sub(r"\$[^$]+\$|`[^`]+`", "x", text)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def first(text: str) -> str:
    """The first sentence of a paragraph, with its markup and a title that stands before it."""
    dots = SHORT.sub(lambda match: match.group().replace(".", "\N{ONE DOT LEADER}"), text)
    ends = (match.end() for match in END.finditer(dots))
    return text[: next((end for end in ends if len(text[:end].split()) > 6), None)].strip()


def minutes(notebook: dict[str, Any]) -> tuple[int, int]:
    """(to read, for the exercises), each to the next five minutes.

    A hundred words or five lines of code a minute, a minute and a half for each equation, three for
    each widget, a quarter of an hour for each exercise. Hidden cells are not read.
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
