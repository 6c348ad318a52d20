"""Boards of at most 32 columns as rows of bits: column c of a row is bit c of a uint32.

A board of n × n squares is n numbers, and a step on it costs O(n), not O(n²).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

Rows = UInt32[Array, " row"]
Place = Int[Array, ""]


def bits(number: int) -> Array:
    """Return a Python integer as uint32."""
    return jnp.uint32(number)


def square(row: Place, column: Place, rows: int, width: int = 1) -> Rows:
    """Return a board with one square, or with the `width` squares from there on in its row."""
    stretch = jnp.left_shift(bits((1 << width) - 1), column.astype(jnp.uint32))
    return jnp.where(jnp.arange(rows) == row, stretch, bits(0))


def has(board: Rows, row: Place, column: Place) -> Bool[Array, ""]:
    """Return True if the square at (row, column) is on the board."""
    return jnp.any(board & square(row, column, board.size) != 0)


def count(board: Rows) -> Int[Array, " row"]:
    """Return the number of squares in each row."""
    return jax.lax.population_count(board).astype(jnp.int32)


def pick(u: Float[Array, ""], board: Rows, columns: int) -> tuple[Place, Place]:
    """Return the row and column of one square of the board, all equally likely.

    u is uniform in [0, 1). The square of an empty board is past its end.
    """
    upto = jnp.cumsum(count(board))
    number = jnp.floor(u * upto[-1]).astype(jnp.int32)
    row = jnp.sum(number >= upto, dtype=jnp.int32)
    here = jnp.arange(board.size) == row
    before = jnp.sum(jnp.where(jnp.arange(board.size) < row, count(board), 0))
    chosen = jnp.sum(jnp.where(here, board, 0), dtype=jnp.uint32)
    below = jnp.cumsum(flags(chosen, columns).astype(jnp.int32))
    return row, jnp.sum(below <= number - before, dtype=jnp.int32)


def flags(board: UInt32[Array, "*rows"], columns: int) -> Bool[Array, "*rows columns"]:
    """Return the board as one bool per square."""
    shifts = jnp.arange(columns, dtype=jnp.uint32).reshape(*[1] * board.ndim, columns)
    return (board[..., None] >> shifts) & bits(1) == 1
