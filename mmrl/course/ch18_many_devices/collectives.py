"""Collectives of a compiled program: what its devices say to one another, and how much."""

import math
import re

_OPERATIONS = (
    "all-gather|all-reduce|all-to-all|collective-broadcast|collective-permute|reduce-scatter"
)
# An operation in two parts has its result where it is done.
_CALL = re.compile(rf"^.*? = (.*?) ({_OPERATIONS})(?:-done)?\(", re.MULTILINE)
_ARRAY = re.compile(r"\b[a-z]+(\d*)\w*\[([\d,]*)\]")


def traffic(text: str) -> list[tuple[str, int]]:
    """(operation, bytes of its result on one device) of every collective in a compiled program.

    `text` is `jax.jit(f).lower(…).compile().as_text()`. So an all-gather over n devices counts what
    it brings together, n times a device's own; a reduce-scatter, what it leaves on one device. An
    operation inside a loop is one entry, however often it runs; XLA may unite several into one.
    """
    return [(name, sum(map(_size, _ARRAY.findall(shapes)))) for shapes, name in _CALL.findall(text)]


def _size(array: tuple[str, str]) -> int:
    """The bytes of one array, from its bits and its lengths: ("32", "4,8")."""
    bits, lengths = array  # a flag, "pred", has no number and takes a byte
    return math.prod(int(n) for n in lengths.split(",") if n) * int(bits or 8) // 8
