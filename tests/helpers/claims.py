"""Claims of the course about measured rows, read from `tests/book/claims.toml` and evaluated."""

import ast
import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tests.helpers import measures, passages, tables

FILE = passages.ROOT / "tests" / "book" / "claims.toml"


class Claim(NamedTuple):
    """One statement: its place, its conditions, and the numbers that it must contain."""

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
    """Return all claims; one with `each` is expanded to a claim for each of its cases."""
    found = []
    for name, entry in tomllib.loads(FILE.read_text("utf-8")).items():
        fields = {"row": "", "let": "", "holds": [], "numbers": []} | entry
        cases = fields.pop("each", [""])
        for case in eval(cases, vars(measures)) if isinstance(cases, str) else cases:
            own = fields | {"row": fields["row"].format(each=case)}
            found.append(Claim(id=f"{name}[{case}]" if case else name, each=case, **own))
    return found


def complaints(claim: Claim, known: Mapping[str, Any]) -> list[str]:
    """Evaluate a claim; return its expressions that fail, and the numbers that are missing."""
    scope = {**vars(measures), **known, "each": claim.each}
    exec(claim.let, scope)
    wrong = [_false(code, scope) for code in claim.holds if not eval(code, scope)]
    texts = [eval("f" + repr(text), scope) for text in claim.numbers]
    wanted = [passages.normal(cell) for text in texts for cell in passages.cells(text)]
    told = passage(claim)
    shown = passages.cells(told) if claim.row else passages.numbers(told)
    lacking = wanted * (wanted != shown) if claim.row else passages.lacking(wanted, told)
    if lacking:
        found = f"the passage lacks {', '.join(lacking)}\n    and contains {', '.join(shown)}"
        wrong.append(f"the rows give {', '.join(wanted)}; {found}")
    return wrong


def passage(claim: Claim) -> str:
    """Return the text of a claim's passage."""
    return passages.passage(claim.page, claim.section, claim.row)


def message(claim: Claim, wrong: list[str]) -> str:
    """Name the claim and its passage, and list its complaints."""
    return "\n  ".join([f"claim `{claim.id}` ({claim.place}):", *wrong])


def _false(code: str, scope: dict[str, Any]) -> str:
    """Report an expression that is false, with its sides if it is one comparison."""
    sides = re.split(r" (?:<=|>=|==|<|>) ", code)
    if len(sides) == 1 or any(word in code for word in (" for ", " and ", " or ", "not ")):
        return f"`{code}` is false"
    return f"`{code}` is false: {'; '.join(f'{side} is {eval(side, scope)}' for side in sides)}"


def read_by(claim: Claim, names: Iterable[str]) -> list[str]:
    """Return the tables that a claim names."""
    codes = [claim.let, *claim.holds, *("f" + repr(text) for text in claim.numbers)]
    nodes = itertools.chain.from_iterable(ast.walk(ast.parse(code)) for code in codes)
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    return [name for name in names if name in used]


def changed(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield rows with all measurements changed, and then with one field changed, for each field."""
    yield [*map(tables.Noise(float), rows)]
    for field in dict.fromkeys(itertools.chain.from_iterable(rows)):
        for change in (tables.Noise(int, float), tables.shorter):
            yield [row | {field: change(row[field])} if field in row else row for row in rows]
