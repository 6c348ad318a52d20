"""Bitboards of at most 32 columns.

Each row is a uint32 whose bit c represents column c. An operation on a board of n × n squares costs
O(n) instead of O(n²).
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
    """Return a board with `width` adjacent squares of a row, starting at (row, column)."""
    stretch = jnp.left_shift(bits((1 << width) - 1), column.astype(jnp.uint32))
    return jnp.where(jnp.arange(rows) == row, stretch, bits(0))


def has(board: Rows, row: Place, column: Place) -> Bool[Array, ""]:
    """Return True if the square at (row, column) is set."""
    return jnp.any(board & square(row, column, board.size) != 0)


def count(board: Rows) -> Int[Array, " row"]:
    """Return the number of squares set in each row."""
    return jax.lax.population_count(board).astype(jnp.int32)


def pick(u: Float[Array, ""], board: Rows, columns: int) -> tuple[Place, Place]:
    """Sample the row and column of a square uniformly from the squares that are set.

    u is uniform in [0, 1). If no square is set, the result is out of bounds.
    """
    upto = jnp.cumsum(count(board))
    number = jnp.floor(u * upto[-1]).astype(jnp.int32)
    row = jnp.sum(number >= upto, dtype=jnp.int32)
    here = jnp.arange(board.size) == row
    before = jnp.sum(jnp.where(jnp.arange(board.size) < row, count(board), 0))
    row_bits = jnp.sum(jnp.where(here, board, 0), dtype=jnp.uint32)
    below = jnp.cumsum(flags(row_bits, columns).astype(jnp.int32))
    return row, jnp.sum(below <= number - before, dtype=jnp.int32)


def flags(board: UInt32[Array, "*rows"], columns: int) -> Bool[Array, "*rows columns"]:
    """Unpack a board to one bool per square."""
    shifts = jnp.arange(columns, dtype=jnp.uint32).reshape(*[1] * board.ndim, columns)
    return (board[..., None] >> shifts) & bits(1) == 1
