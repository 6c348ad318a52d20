"""Names in module and class scope are nouns, verbs or adjectives, and not participles.

python tests/helpers/names.py    # list the participles in mmrl/; there should be none
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PARTICIPLE = re.compile(
    r"[a-z]+(?:ed|ing)|begun|bought|built|caught|done|drawn|found|frozen|given|gone|grown|held|"
    r"kept|known|lost|made|meant|said|seen|sent|shown|spent|taken|thrown|told|unseen|won|written"
)
# Nouns, adjectives and verbs that look like participles, and standard terms of the field.
WORDS = re.compile(
    "aligned|ceiling|embed|ragged|red|ring|seed|speed|swing|heading|meaning|nothing|reading|"
    "setting|timing|batching|clipping|cloning|finding|lowering|padding|rounding|training|tuning|"
    "compiled|done|terminated|truncated|unwrapped"
)
FORMER = re.compile("composed|fitting|Made|renamed|replaced|unproved")
"""Former names, which can still be imported."""


class Name(NamedTuple):
    """A name that is bound in a module or in a class."""

    path: Path
    line: int
    text: str
    is_flag: bool  # True if its annotation contains bool; `shared` is then an adjective


def bindings(path: Path) -> Iterator[Name]:
    """Yield the names that a module and its classes bind, without those of functions."""
    bodies = [ast.parse(path.read_text("utf-8")).body]
    for node in (node for body in bodies for node in body):
        annotation, names = None, []
        if isinstance(node, ast.ClassDef):
            bodies.append(node.body)
            names = [node.name]
        elif isinstance(node, ast.FunctionDef):
            annotation, names = node.returns, [node.name]
        elif isinstance(node, ast.AnnAssign):
            annotation, names = node.annotation, [ast.unparse(node.target)]
        elif isinstance(node, ast.Assign):
            targets = [x for target in node.targets for x in ast.walk(target)]
            names = [x.id for x in targets if isinstance(x, ast.Name)]
        elif isinstance(node, ast.If | ast.Try | ast.With):
            bodies.append(node.body)
        text = "" if annotation is None else ast.unparse(annotation)
        value = getattr(node, "value", None)
        text += "" if value is None else ast.unparse(value).partition("(")[0]
        is_flag = re.search("bool", text, re.I) is not None
        yield from (Name(path, node.lineno, name, is_flag) for name in names)


def is_participle(name: Name) -> bool:
    """Return True for a participle that is neither a flag nor an exception."""
    word = name.text.strip("_").lower()
    is_exception = name.is_flag or WORDS.fullmatch(word) or FORMER.fullmatch(name.text)
    return bool(PARTICIPLE.fullmatch(word)) and not is_exception


def participles() -> list[str]:
    """Return all participles among the names in the library and the course."""
    names = (name for path in sorted(ROOT.glob("mmrl/**/*.py")) for name in bindings(path))
    return [f"{x.path.relative_to(ROOT)}:{x.line}: {x.text}" for x in names if is_participle(x)]


if __name__ == "__main__":
    results = participles()
    print(*results, f"{len(results)} participles in module or class scope", sep="\n")
