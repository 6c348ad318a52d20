"""Relative links of all Markdown and all notebooks lead to a file of the clone.

Pages that a build writes are the exception: the paragraph of such a link names `make book`.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(
    r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)"
    r"|(?:src|href)=\"([^\"]+)\"|^\[[^\]]+\]:\s*(\S+)",
    flags=re.MULTILINE,
)
CODE = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)|(?<!`)`[^`\n]+`(?!`)", flags=re.M | re.S)
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|#|//")
API_PAGES = "book/api/"  # what `make book` writes and git ignores


def pages() -> list[Path]:
    """Markdown and notebooks of the clone, without what it ignores."""
    patterns = ("*.md", "book/*.md", "notebooks/*.ipynb")
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def text_of(path: Path) -> str:
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


def dead(path: Path, text: str) -> Iterator[str]:
    """Relative links of a page whose target is neither there nor explained."""
    for paragraph in re.split(r"\n\s*\n|\n(?=[-*] )", CODE.sub(code_without_links, text)):
        for match in LINK.finditer(paragraph):
            link = next(filter(None, match.groups()))
            if ELSEWHERE.match(link):
                continue
            target = (path.parent / re.sub(r"[#?].*", "", link)).resolve()
            is_output = target.is_relative_to(ROOT / API_PAGES)
            if "`make book`" not in paragraph if is_output else not target.exists():
                yield f"{path.relative_to(ROOT).as_posix()}: {link}"


def code_without_links(match: re.Match[str]) -> str:
    return match.group() if match.group() == "`make book`" else ""


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_relative_links_lead_to_files_of_the_clone(path: Path):
    assert list(dead(path, text_of(path))) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[x](intro.md) and [y](intro.md#z), `[no](link)`, <https://a.b>", 0),
        ("[x](notebooks/05_returns_are_monoids)", 1),
        ("![x](static/none.svg)", 1),
        ('<a href="none.html">x</a>', 1),
        ("[x]: none.md", 1),
        ("[x](api/index.md)", 1),
        ("[x](api/index.md), which `make book` writes", 0),
        ("[x](api/index.md)\n\nThe command is `make book`.", 1),
    ],
)
def test_a_dead_link_is_found(text: str, count: int):
    assert len(list(dead(ROOT / "book" / "page.md", text))) == count
