"""Functions that use the result of a comparison as a truth value in different ways."""

import operator
from collections.abc import Callable
from typing import Any


def _while(a: Any, b: Any) -> int:
    turns = 0
    while a == b and turns < 2:
        turns += 1
    return turns


def _assert(a: Any, b: Any) -> None:
    assert a == b


def _match(a: Any, b: Any) -> str:
    match a:
        case 0:
            return "zero"
        case _:
            return "other"


def _if(a: Any, b: Any) -> str:
    if a == b:
        return "equal"
    return "different"


BRANCHES: dict[str, Callable[[Any, Any], Any]] = {
    "if": _if,
    "x if": lambda a, b: 1 if a == b else 2,
    "x if !=": lambda a, b: 1 if a != b else 2,
    "elif": lambda a, b: 1 if b is None else 2 if a != b else 3,
    "if not": lambda a, b: 1 if not a == b else 2,  # noqa: SIM201
    "assert": _assert,
    "while": _while,
    "match": _match,
    "and": lambda a, b: a == b and 1,
    "or": lambda a, b: a == b or 1,
    "not": lambda a, b: not (a == b),  # noqa: SIM201
    "not !=": lambda a, b: not (a != b),  # noqa: SIM202
    "bool": lambda a, b: bool(a == b),
    "bool !=": lambda a, b: bool(a != b),
    "truth": lambda a, b: operator.truth(a == b),
    "stored": lambda a, b: [1 if same else 2 for same in [a == b]],
    "if <": lambda a, b: 1 if a < b else 2,
    "bool >=": lambda a, b: bool(a >= b),
    "chain <": lambda a, b: b <= a < b,
    "chain ==": lambda a, b: a == b == a,
    "in list": lambda a, b: a in [b],
    "in tuple": lambda a, b: a in (b, None),
    "in set": lambda a, b: a in {b, None},
    "in dict": lambda a, b: a in {b: 1},
    "not in frozenset": lambda a, b: a not in frozenset([b]),
    "not in": lambda a, b: a not in [b],
    "list of it": lambda a, b: b in [a],
    "index": lambda a, b: [b].index(a),
    "count": lambda a, b: [b].count(a),
    "remove": lambda a, b: [b].remove(a),
    "tuples": lambda a, b: (a, 1) == (b, 1),
    "lists": lambda a, b: [a] != [b],
    "dict values": lambda a, b: {"x": a} == {"x": b},
    "sorted": lambda a, b: sorted([a, b]),
    "sort": lambda a, b: [b, a].sort(),
    "max": lambda a, b: max(a, b),
    "min": lambda a, b: min(b, a),
    "any": lambda a, b: any([a == b]),
    "all": lambda a, b: all(x == b for x in [a]),
    "filter": lambda a, b: list(filter(lambda x: x == b, [a])),
    "if in comprehension": lambda a, b: [x for x in [a] if x == b],
}
