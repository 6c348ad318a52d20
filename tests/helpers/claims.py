"""Evaluation of claims about measured rows, which are listed in `tests/book/claims.toml`."""

import ast
import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tests.helpers import measures, passages, tables

FILE = passages.ROOT / "tests" / "book" / "claims.toml"


class Claim(NamedTuple):
    """A claim in a passage, with its conditions and the numbers that the passage must contain."""

    id: str
    page: str  # path of the page in the repository
    section: str  # heading of the section, or the part of the heading before a colon
    row: str  # first cell of a table row, if the numbers are its other cells
    let: str  # Python statements that define variables
    holds: list[str]  # Python expressions that must be true
    numbers: list[str]  # f-strings, each with a number or with several numbers separated by |
    each: str  # name of the case, if the claim has several cases

    @property
    def place(self) -> str:
        return f"{self.page}, section “{self.section}”" + f", row “{self.row}”" * bool(self.row)


def claims() -> list[Claim]:
    """Read all claims. A claim with `each` is expanded to a claim per case."""
    results = []
    for name, entry in tomllib.loads(FILE.read_text("utf-8")).items():
        fields = {"row": "", "let": "", "holds": [], "numbers": []} | entry
        cases = fields.pop("each", [""])
        for case in eval(cases, vars(measures)) if isinstance(cases, str) else cases:
            own = fields | {"row": fields["row"].format(each=case)}
            results.append(Claim(id=f"{name}[{case}]" if case else name, each=case, **own))
    return results


def complaints(claim: Claim, names: Mapping[str, Any]) -> list[str]:
    """Evaluate a claim; return a complaint for each false expression and for missing numbers."""
    scope = {**vars(measures), **names, "each": claim.each}
    exec(claim.let, scope)
    wrong = [_false(code, scope) for code in claim.holds if not eval(code, scope)]
    texts = [eval("f" + repr(text), scope) for text in claim.numbers]
    expected = [passages.normal(cell) for text in texts for cell in passages.cells(text)]
    report = passage(claim)
    numbers = passages.cells(report) if claim.row else passages.numbers(report)
    lacking = expected * (expected != numbers) if claim.row else passages.lacking(expected, report)
    if lacking:
        result = f"the passage lacks {', '.join(lacking)}\n    and contains {', '.join(numbers)}"
        wrong.append(f"the rows give {', '.join(expected)}; {result}")
    return wrong


def passage(claim: Claim) -> str:
    """Return the text of a claim's passage."""
    return passages.passage(claim.page, claim.section, claim.row)


def message(claim: Claim, wrong: list[str]) -> str:
    """Format the complaints about a claim, with its id and its passage."""
    return "\n  ".join([f"claim `{claim.id}` ({claim.place}):", *wrong])


def _false(code: str, scope: dict[str, Any]) -> str:
    """Describe a false expression, with the values of both sides if it is a single comparison."""
    sides = re.split(r" (?:<=|>=|==|<|>) ", code)
    if len(sides) == 1 or any(word in code for word in (" for ", " and ", " or ", "not ")):
        return f"`{code}` is false"
    return f"`{code}` is false: {'; '.join(f'{side} is {eval(side, scope)}' for side in sides)}"


def read_by(claim: Claim, names: Iterable[str]) -> list[str]:
    """Return the names of the tables that a claim uses."""
    codes = [claim.let, *claim.holds, *("f" + repr(text) for text in claim.numbers)]
    nodes = itertools.chain.from_iterable(ast.walk(ast.parse(code)) for code in codes)
    words = {node.id for node in nodes if isinstance(node, ast.Name)}
    return [name for name in names if name in words]


def changed_rows(rows: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield copies of rows with all floats changed, and then with each field changed."""
    yield [*map(tables.Noise(float), rows)]
    for field in dict.fromkeys(itertools.chain.from_iterable(rows)):
        for change in (tables.Noise(int, float), tables.shorter):
            yield [row | {field: change(row[field])} if field in row else row for row in rows]
