"""Count phrases that sound like a translation, by kind of text.

    python tests/helpers/voice.py                  # a table: hits per 10,000 words
    python tests/helpers/voice.py --list beside    # every hit of one phrase, as file:line

A hit is not necessarily an error. `RIGHT_USES` contains exceptions, and `tests/book/test_voice.py`
limits the number of hits.
"""

import argparse
import ast
import io
import json
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDERS = ("mmrl/**/*.py", "book/tools/*.py", "book/*.md", "notebooks/*.ipynb", "*.md")

_PATTERNS = {
    "headless who": r"(?:^|[.;:] |\n)(?:and |or |but )?[Ww]ho (?!(?:is|are|was|am)\b[^.]*\?)"
    r"[a-z]+s? [^?\n]{0,90}[,.]",
    "is no X": r"\b(?:is|are|was|were|be|been) no (?!longer|more|less|fewer|better|worse|need|"
    r"doubt|such|way|one)\w+",
    "no such": r"\bno such\b(?! (?:file|key|name|module))",
    "go on": r"\b(?:goes|go|went|going) on\b",
    "beside": r"\bbeside\b",
    "shall": r"\bshall\b",
    "of which each": r"\b(?:of|in|to|by|from|with) wh(?:ich|om) "
    r"(?:each|one|none|some|all|both|every|the first|only|a\b)",
    "that of": r"\b(?:that|those) of\b",
    "of its own": r"\bof (?:its|their|his|your|our|one's) own\b",
    "leading Of": r"(?:^|[.:] |\n)Of (?!course)[a-z]",
    "nobody, nothing": r"\b(?:nobody|somebody|nothing|no one)\b",
    "says, tells": r"\b(?:says|say|said|tells|tell|told)\b",
    "asks": r"\b(?:asks|asked|ask) (?:for|of|each|it|whether|the|a|nobody|all|both)\b",
    "code knows": r"\b(?:it|they|which|that|module|checks?|code|library|function|program|class|"
    r"test) (?:alone )?knows?\b",
    "mend": r"\bmend(?:s|ed|ing)?\b",
    "be it": r"\blest\b|, be it\b|\bbe they\b",
    "so many times": r"\bso many (?!\w+ that)\w+ (?:times|steps|in)\b",
    "alone": r"\b\w+ alone\b",
    "let it be": r"\b[Ll]ets? \w+(?: \w+){0,5} be \w+",
    "likewise": r"\b(?:the same|likewise) (?:for|of|with)\b|, likewise\b",
    "as many as": r"\bas (?:many|much) (?:as|of)\b",
    "whatever the": r"\b(?:whatever|however) the\b",
    "seldom": r"\b(?:hardly|seldom)\b",
    "made of": r"\b(?:is|are|was|were) made (?:of|by|from)\b",
    "come to an end": r"\bcomes? (?:to an end|of|with it)\b",
    "opens with what": r"(?:^|\n)(?:What|Where|Whether|How) (?!is |are |does |do |can |should |if )"
    r"[a-z][^?\n]*[.:](?:\n|$)",
    "opens with those": r"(?:^|\n)(?:Those|That|Ones?|The ones?) (?:of|that|which|in|with)\b",
}
PATTERNS = {name: re.compile(pattern, re.M) for name, pattern in _PATTERNS.items()}

# Correct uses, such as fixed phrases.
RIGHT_USES = re.compile(
    r"\b(?:tells? (?:\w+ )?apart|that is to say|say, |nothing but|next to nothing|"
    r"as much as possible|as many as possible)\b",
    re.IGNORECASE,
)


class Text(NamedTuple):
    """A passage of English in a file."""

    path: Path
    line: int
    kind: str
    words: str


class Hit(NamedTuple):
    """An occurrence of a phrase in a passage."""

    text: Text
    name: str
    line: int
    context: str


def _prose(markdown: str) -> str:
    """Remove formulas, code and link targets from Markdown."""
    markdown = re.sub(r"```.*?```", " ", markdown, flags=re.S)
    markdown = re.sub(r"\$\$.*?\$\$|\$[^$\n]*\$|`[^`\n]*`", "X", markdown, flags=re.S)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)


def _of_notebook(path: Path) -> Iterator[Text]:
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "markdown":
            yield Text(path, 0, "notebooks", _prose("".join(cell["source"])))


def _of_module(path: Path) -> Iterator[Text]:
    """Yield the docstrings, the messages of raised errors, and the comments of a module."""
    source = path.read_text("utf-8")
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                yield Text(path, node.lineno, "docstrings", node.value.value)
        elif isinstance(node, ast.Raise) and node.exc is not None:
            parts = (x.value for x in ast.walk(node.exc) if isinstance(x, ast.Constant))
            words = " ".join(x for x in parts if isinstance(x, str))
            yield Text(path, node.lineno, "errors", words)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Text(path, token.start[0], "comments", token.string.lstrip("# "))


@cache
def texts() -> tuple[Text, ...]:
    """Return all passages in the library, the course, the site and the top-level pages."""
    pieces: list[Text] = []
    for path in sorted({path for pattern in FOLDERS for path in ROOT.glob(pattern)}):
        if path.suffix == ".py":
            pieces += _of_module(path)
        elif path.suffix == ".ipynb":
            pieces += _of_notebook(path)
        else:
            kind = "top-level pages" if path.parent == ROOT else "book pages"
            pieces.append(Text(path, 0, kind, _prose(path.read_text("utf-8"))))
    return tuple(pieces)


def hits(text: Text) -> Iterator[Hit]:
    """Yield each occurrence of `PATTERNS` in a passage, without those in `RIGHT_USES`."""
    right = [match.span() for match in RIGHT_USES.finditer(text.words)]
    for name, pattern in PATTERNS.items():
        for match in pattern.finditer(text.words):
            start, end = match.span()
            if not any(low <= start < high for low, high in right):
                context = " ".join(text.words[max(0, start - 40) : end + 40].split())
                line = text.line + text.words[:start].count("\n")
                yield Hit(text, name, line, context)


@cache
def rates() -> dict[str, float]:
    """Return the number of hits per 10,000 words, keyed by kind of text."""
    words, number = Counter(), Counter()
    for text in texts():
        words[text.kind] += len(text.words.split())
        number[text.kind] += sum(1 for _ in hits(text))
    return {kind: 1e4 * number[kind] / words[kind] for kind in sorted(words)}


def main() -> None:
    """Print the table, or the hits of a single phrase."""
    parser = argparse.ArgumentParser(description="Count phrases that sound like a translation.")
    parser.add_argument("--list", choices=PATTERNS, metavar="PHRASE", help=", ".join(PATTERNS))
    options = parser.parse_args()
    if options.list is None:
        for kind, rate in rates().items():
            print(f"{kind:18s}{rate:7.1f} per 10,000 words")
        return
    for hit in (hit for text in texts() for hit in hits(text) if hit.name == options.list):
        print(f"{hit.text.path.relative_to(ROOT)}:{hit.line}: [{hit.text.kind}] {hit.context}")


if __name__ == "__main__":
    main()
