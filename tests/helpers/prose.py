"""Statistics of the text of a chapter, such as the length of its sentences.

`python tests/helpers/prose.py` prints them for all chapters, and `tests/book/test_notebooks.py`
contains the limits.
"""

import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).parents[2] / "book" / "tools")]
from readability import END, SHORT, minutes, prose  # noqa: E402
from reading import load  # noqa: E402

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

CONNECTIVES = (
    "because|so|but|for example|for instance|since|therefore|hence|thus|that is|which means|"
    "although|though|even if|whereas|while|unless|however|instead|otherwise|yet|as a result|"
    "in other words|in contrast|if|when|until|once|whenever|still|nevertheless"
)
_CONNECTIVE = re.compile(rf"\b(?:{CONNECTIVES})\b", re.IGNORECASE)
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
# Choices of a one-minute check, which are listed between its question and its answer.
_CHOICES = re.compile(r"(?<=\n\n)(?:- .*\n)+(?=\n<details>)")


class Reading(NamedTuple):
    """Statistics of a chapter's text."""

    words: int
    median: float  # median of the words per sentence
    p90: float  # 90th percentile of the words per sentence
    connectives: float  # connectives per 1,000 words


def sentences(text: str) -> list[str]:
    """Split Markdown into sentences, without headings, tables and choices."""
    lines = (line.strip() for line in prose(_CHOICES.sub("", text)).split("\n"))
    text_lines = ["" if re.match(r"#|\||-{3,}", line) else line for line in lines]
    blocks = re.split(r"\n\s*\n|\n(?=(?:[-*]|\d+\.)\s)", "\n".join(text_lines))
    match = []
    for block in blocks:
        block = re.sub(r"^(?:[-*>]|\d+\.)\s+|\n>\s?", " ", " ".join(block.split()))
        block = SHORT.sub(lambda match: match.group().replace(".", "\N{ONE DOT LEADER}"), block)
        match += [part for part in END.split(block) if re.search(r"\w", part)]
    return match


def texts(notebook: dict[str, Any]) -> list[str]:
    """Return the Markdown cells of a chapter, without its header and its references."""
    cells = [c for c in notebook["cells"][1:] if c["cell_type"] == "markdown"]
    results = ["".join(cell["source"]) for cell in cells]
    return [text for text in results if not text.startswith("## Further reading")]


def measure(notebook: dict[str, Any]) -> Reading:
    """Compute the statistics of a chapter."""
    lengths = [len(s.split()) for text in texts(notebook) for s in sentences(text)]
    text = " ".join(map(prose, texts(notebook)))
    words = len(text.split())
    matches = 1000 * len(_CONNECTIVE.findall(text)) / max(words, 1)
    if len(lengths) < 2:
        return Reading(words, sum(lengths), sum(lengths), matches)
    longest = statistics.quantiles(lengths, n=10)[-1]
    return Reading(words, statistics.median(lengths), longest, matches)


def symbols(text: str) -> Iterator[tuple[int, str]]:
    """Yield the position and the name of each symbol in the formulas of a text.

    An accented letter, such as ĥ, is a separate symbol.
    """
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


def missing_explanations(notebook: dict[str, Any], names: dict[str, str]) -> Iterator[str]:
    """Report each symbol that a chapter uses without an explanation.

    `names` maps each symbol to the words in the chapter that explain it. These words must precede
    the first formula with the symbol, or be in the same or the next paragraph.
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
            continue  # a mathematical constant
        message = text.find(names[symbol])
        if message < 0:
            yield f"the text does not have the words that name {symbol}: {names[symbol]!r}"
        # A display equation may be a separate paragraph, followed by one that begins with "where".
        elif paragraph(message) > paragraph(place) + 1:
            yield f"{symbol} is used before {names[symbol]!r}: {text[place : place + 60]!r}"
    for symbol in names.keys() - first.keys():
        yield f"{symbol} is named, but no formula has it"


def main() -> None:
    print(f"{'chapter':28}{'words':>7}{'median':>8}{'90 %':>7}{'joined':>8}{'read':>6}{'do':>5}")
    for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")):
        result, (read, do) = measure(load(path)), minutes(load(path))
        print(
            f"{path.stem:28}{result.words:7}{result.median:8.0f}{result.p90:7.0f}"
            f"{result.connectives:8.1f}{read:6}{do:5}"
        )
    print("words in a sentence: median, 90th percentile; connectives in 1,000 words; minutes")


if __name__ == "__main__":
    main()
