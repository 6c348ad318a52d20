"""How a chapter reads: its sentences, what joins them, its symbols, and the minutes it takes.

`python book/tools/readability.py` measures the chapters as they are, and `--revision REV` as they
were. `tests/book/test_notebooks.py` holds every chapter to it.
"""

import argparse
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from reading import load, loads

ROOT = Path(__file__).parent.parent.parent
NOTEBOOKS = ROOT / "notebooks"

CONNECTIVES = (
    "because|so|but|for example|for instance|since|therefore|hence|thus|that is|which means|"
    "although|though|even if|whereas|while|unless|however|instead|otherwise|yet|as a result|"
    "in other words|in contrast|if|when|until|once|whenever|still|nevertheless"
)
_CONNECTIVE = re.compile(rf"\b(?:{CONNECTIVES})\b", re.IGNORECASE)
# A full stop after these ends no sentence.
_SHORT = re.compile(r"\b(Eqs?|Figs?|al|e\.g|i\.e|vs|cf|ca|no|Dr|St)\.")
_END = re.compile(r"(?<=[.!?])[\"”’)*_]*\s+(?=[\"“‘(*_]*[A-Z\d])")

# A minute: words read to be understood, lines of code; and minutes: an equation, a widget.
WORDS, LINES, EQUATION, WIDGET, EXERCISE = 100, 5, 1.5, 3, 15

_GREEK = (
    "alpha|beta|gamma|delta|epsilon|varepsilon|zeta|eta|theta|vartheta|iota|kappa|lambda|mu|nu|xi|"
    "pi|rho|varrho|sigma|tau|upsilon|phi|varphi|chi|psi|omega|Gamma|Delta|Theta|Lambda|Xi|Pi|Sigma|"
    "Phi|Psi|Omega|ell"
)
_WORDS = re.compile(
    r"\\(?:text|textit|textbf|operatorname|mathrm|mathsf|mathtt|tag|begin|end|mbox)\*?\{[^{}]*\}"
)
_SYMBOL = re.compile(
    rf"\\(?:hat|bar|tilde|dot|vec)(?:\{{\s*(?P<a>\\?\w+)\s*\}}|\s+(?P<b>\\?\w))|"
    rf"\\(?P<c>{_GREEK})(?![A-Za-z])|\\[A-Za-z]+|(?P<d>[A-Za-z])"
)


class Reading(NamedTuple):
    """What is measured of a chapter's text."""

    words: int
    median: float  # words in a sentence
    p90: float
    connectives: float  # in 1,000 words


def prose(text: str) -> str:
    """What is read as words: no equations, pictures, code blocks, tags and addresses."""
    text = re.sub(r"```.*?```|\$\$.*?\$\$", " ", text, flags=re.DOTALL)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)|</?\w+>", " ", text)
    text = re.sub(r"\$[^$]+\$|`[^`]+`", "x", text)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def sentences(text: str) -> list[str]:
    """The sentences of a cell's Markdown: no headings, and no rows of a table."""
    lines = (line.strip() for line in prose(text).split("\n"))
    kept = ["" if re.match(r"#|\||-{3,}", line) else line for line in lines]
    blocks = re.split(r"\n\s*\n|\n(?=(?:[-*]|\d+\.)\s)", "\n".join(kept))
    found = []
    for block in blocks:
        block = re.sub(r"^(?:[-*>]|\d+\.)\s+|\n>\s?", " ", " ".join(block.split()))
        block = _SHORT.sub(lambda match: match.group().replace(".", "\N{ONE DOT LEADER}"), block)
        found += [part for part in _END.split(block) if re.search(r"\w", part)]
    return found


def first(text: str) -> str:
    """The first sentence of a paragraph, with its markup and a title that stands before it."""
    dots = _SHORT.sub(lambda match: match.group().replace(".", "\N{ONE DOT LEADER}"), text)
    ends = (match.end() for match in _END.finditer(dots))
    return text[: next((end for end in ends if len(text[:end].split()) > 6), None)].strip()


def texts(notebook: dict[str, Any]) -> list[str]:
    """The Markdown of a chapter that is read as prose: without its header and its references."""
    cells = [c for c in notebook["cells"][1:] if c["cell_type"] == "markdown"]
    found = ["".join(cell["source"]) for cell in cells]
    return [text for text in found if not text.startswith("## Further reading")]


def measure(notebook: dict[str, Any]) -> Reading:
    """Sentences and connectives of a chapter."""
    lengths = [len(s.split()) for text in texts(notebook) for s in sentences(text)]
    joined = " ".join(map(prose, texts(notebook)))
    words = len(joined.split())
    found = 1000 * len(_CONNECTIVE.findall(joined)) / max(words, 1)
    if len(lengths) < 2:
        return Reading(words, sum(lengths), sum(lengths), found)
    longest = statistics.quantiles(lengths, n=10)[-1]
    return Reading(words, statistics.median(lengths), longest, found)


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


def symbols(text: str) -> Iterator[tuple[int, str]]:
    """(where, which) of every letter in the formulas of a text; ĥ is another letter than h."""
    text = re.sub(r"```.*?```", lambda match: " " * len(match.group()), text, flags=re.DOTALL)
    for formula in re.finditer(r"\$\$.*?\$\$|\$[^$]+\$", text, flags=re.DOTALL):
        plain = _WORDS.sub(lambda match: " " * len(match.group()), formula.group())
        for match in _SYMBOL.finditer(plain):
            name = match["a"] or match["b"]
            if name:
                accent = match.group().split("{")[0].split()[0]
                yield formula.start(), f"{accent} {name}"
            elif match["c"]:
                yield formula.start(), f"\\{match['c']}"
            elif match["d"]:
                yield formula.start(), match["d"]


def unnamed(notebook: dict[str, Any], names: dict[str, str]) -> Iterator[str]:
    """Symbols that a chapter uses before it names them.

    `names` has, for each symbol, the words in which the chapter names it, as they stand in its
    Markdown. They must come before the first formula that has the symbol, in its paragraph, or in
    the paragraph after a displayed equation.
    """
    cells = [c for c in notebook["cells"][1:] if c["cell_type"] == "markdown"]
    text = "\n\n".join("".join(cell["source"]) for cell in cells)
    starts = [0, *(match.end() for match in re.finditer(r"\n\s*\n", text)), len(text)]

    def paragraph(place: int) -> int:
        return sum(start <= place for start in starts)

    first: dict[str, int] = {}
    for place, symbol in symbols(text):
        first.setdefault(symbol, place)
    for symbol, place in first.items():
        if symbol not in names:
            yield f"{symbol} is used but not named: {text[place : place + 60]!r}"
            continue
        if not names[symbol]:
            continue  # a constant of mathematics
        said = text.find(names[symbol])
        if said < 0:
            yield f"the text does not have the words that name {symbol}: {names[symbol]!r}"
        # The paragraph of a displayed equation is often the equation alone; then comes "where".
        elif paragraph(said) > paragraph(place) + 1:
            yield f"{symbol} is used before {names[symbol]!r}: {text[place : place + 60]!r}"
    for symbol in names.keys() - first.keys():
        yield f"{symbol} is named, but no formula has it"


def _chapters(revision: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    if revision is None:
        for path in sorted(NOTEBOOKS.glob("*.ipynb")):
            yield path.stem, load(path)
        return
    git = ["git", "-C", str(ROOT)]
    listed = subprocess.check_output(
        [*git, "ls-tree", "--name-only", revision, "notebooks/"], text=True
    )
    for name in listed.split():
        if name.endswith(".ipynb"):
            text = subprocess.check_output([*git, "show", f"{revision}:{name}"], text=True)
            yield Path(name).stem, loads(text, name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--revision", help="a commit, in place of the files as they are")
    revision = parser.parse_args().revision
    print(f"{'chapter':28}{'words':>7}{'median':>8}{'90 %':>7}{'joined':>8}{'read':>6}{'do':>5}")
    for name, notebook in _chapters(revision):
        found, (read, do) = measure(notebook), minutes(notebook)
        print(
            f"{name:28}{found.words:7}{found.median:8.0f}{found.p90:7.0f}{found.connectives:8.1f}"
            f"{read:6}{do:5}"
        )
    print("words in a sentence: median, 90th percentile; connectives in 1,000 words; minutes")


if __name__ == "__main__":
    sys.exit(main())
