"""Collective operations of a compiled program, and the bytes that they transfer."""

import math
import re

_OPERATIONS = (
    "all-gather|all-reduce|all-to-all|collective-broadcast|collective-permute|reduce-scatter"
)
# If an operation is split into two instructions, only the second one, "-done", has the result.
_CALL = re.compile(rf"^.*? = (.*?) ({_OPERATIONS})(?:-done)?\(", re.MULTILINE)
_ARRAY = re.compile(r"\b[a-z]+(\d*)\w*\[([\d,]*)\]")


def traffic(text: str) -> list[tuple[str, int]]:
    """Return the name and the bytes of every collective in a compiled program.

    `text` is `jax.jit(f).lower(…).compile().as_text()`. Bytes count the result on one
    device: the gathered array for an all-gather, and one shard for a reduce-scatter. An operation
    inside a loop is listed once. XLA may combine several operations into one.
    """
    return [(name, sum(map(_size, _ARRAY.findall(shapes)))) for shapes, name in _CALL.findall(text)]


def _size(array: tuple[str, str]) -> int:
    """Return the bytes of an array, given its bits per element and its shape: ("32", "4,8")."""
    bits, lengths = array  # a boolean, "pred", has no number of bits and takes one byte
    return math.prod(int(n) for n in lengths.split(",") if n) * int(bits or 8) // 8
