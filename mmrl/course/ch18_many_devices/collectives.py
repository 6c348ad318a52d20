"""Collectives of a compiled program: the data that its devices exchange."""

import math
import re

_OPERATIONS = (
    "all-gather|all-reduce|all-to-all|collective-broadcast|collective-permute|reduce-scatter"
)
# If an operation has two parts, the second one, "-done", has its result.
_CALL = re.compile(rf"^.*? = (.*?) ({_OPERATIONS})(?:-done)?\(", re.MULTILINE)
_ARRAY = re.compile(r"\b[a-z]+(\d*)\w*\[([\d,]*)\]")


def traffic(text: str) -> list[tuple[str, int]]:
    """Return (operation, bytes of its result on one device) of every collective in a program.

    `text` is `jax.jit(f).lower(…).compile().as_text()`. So an all-gather over n devices counts the
    gathered array, n times a device's part; a reduce-scatter counts the part that stays on one
    device. An operation inside a loop is one entry for all its repetitions; XLA may combine several
    into one.
    """
    return [(name, sum(map(_size, _ARRAY.findall(shapes)))) for shapes, name in _CALL.findall(text)]


def _size(array: tuple[str, str]) -> int:
    """Return the bytes of one array, from its bits and its lengths: ("32", "4,8")."""
    bits, lengths = array  # a flag, "pred", has no number and takes one byte
    return math.prod(int(n) for n in lengths.split(",") if n) * int(bits or 8) // 8
