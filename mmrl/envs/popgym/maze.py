"""Maze generation with the hunt-and-kill algorithm, one cell at a time.

The mazes have the same distribution as in mazelib 0.9.16. A walk repeatedly carves a passage to a
random unvisited neighbor, until it reaches a dead end. Then random cells are probed, and a new walk
starts at the first cell that is visited and has an unvisited neighbor. At most (2n + 1)² cells are
probed per maze, so about one maze in 40 000 remains incomplete.
"""

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from mmrl.envs.popgym import bits
from mmrl.envs.popgym.base import Leaf
from mmrl.envs.popgym.cards import draw

NUMBERS = 3  # number of uniform samples used by `carve`


@struct.dataclass
class Plan:
    """Partially carved maze of n × n cells. For the boards, see `bits`."""

    cells: Leaf  # uint32 [n]: board of carved cells
    right: Leaf  # uint32 [n]: board of cells with a passage to their right neighbor
    down: Leaf  # uint32 [n]: board of cells with a passage to the neighbor below
    row: Leaf  # int32: row of the walk's current cell
    column: Leaf  # int32: column of the walk's current cell
    probes: Leaf  # int32: number of remaining probes; negative once the limit is exceeded

    @property
    def done(self) -> Bool[Array, ""]:
        """True if the maze is complete, or if no probes remain."""
        return jnp.all(self.cells == _full(self.cells.shape[-1])) | (self.probes < 0)


def blank(u: Float[Array, ""], size: int) -> Plan:
    """Return a maze with a single, randomly chosen carved cell. u is uniform in [0, 1)."""
    cell = jnp.floor(u * size * size).astype(jnp.int32)
    row, column, empty = cell // size, cell % size, jnp.zeros(size, jnp.uint32)
    cells = bits.square(row, column, size)
    return Plan(cells, empty, empty, row, column, jnp.int32((2 * size + 1) ** 2))


def carve(plan: Plan, u: Float[Array, " 3"]) -> Plan:
    """Carve another cell, probing cells first if the walk is at a dead end.

    The number of probes has a geometric distribution, so a single sample determines it. u is
    uniform in [0, 1)³.
    """
    size, one = plan.cells.size, bits.bits(1)
    walls = ~plan.cells & _full(size)
    edge = jnp.zeros(1, jnp.uint32)
    # Four boards: the cells whose upper, lower, left or right neighbor is not carved.
    above, below = jnp.append(edge, walls[:-1]), jnp.append(walls[1:], edge)
    around = jnp.stack([above, below, walls << one, walls >> one])
    frontier = plan.cells & (around[0] | around[1] | around[2] | around[3])
    walks = bits.has(frontier, plan.row, plan.column)
    share = jnp.sum(bits.count(frontier)) / jnp.float32(size * size)
    # If `share` is 1, the denominator is -inf and the quotient is 0, so a single probe is counted.
    probes = 1 + jnp.floor(jnp.log1p(-u[0]) / jnp.log1p(-share)).astype(jnp.int32)
    probes = plan.probes - jnp.where(walks, 0, probes)
    row, column = bits.pick(u[1], frontier, size)
    row, column = jnp.where(walks, plan.row, row), jnp.where(walks, plan.column, column)
    here = bits.square(row, column, size)
    way = draw(u[2], jnp.any(around & here[None] != 0, axis=1).astype(jnp.int32))[0]
    to_row = row - (way == 0) + (way == 1)
    to_column = column - (way == 2) + (way == 3)
    there = bits.square(to_row, to_column, size)
    next_plan = Plan(
        cells=plan.cells | there,
        right=plan.right | jnp.where(way == 3, here, 0) | jnp.where(way == 2, there, 0),
        down=plan.down | jnp.where(way == 1, here, 0) | jnp.where(way == 0, there, 0),
        row=to_row,
        column=to_column,
        probes=probes,
    )
    # If no probes remain, the cells do not change. A negative `probes` marks the maze as done.
    done = plan.done
    final = plan.replace(probes=jnp.where(done, plan.probes, probes))  # pyright: ignore
    stays = done | (probes < 0)
    return jax.tree.map(lambda old, new: jnp.where(stays, old, new), final, next_plan)


def _full(size: int) -> Array:
    return bits.bits((1 << size) - 1)


def entrances(u: Float[Array, " 3"], size: int) -> tuple[Int[Array, " 2"], Int[Array, " 2"]]:
    """Sample start and goal, given as (row, column), on opposite borders."""
    last = 2 * size
    side = jnp.floor(4 * u[0]).astype(jnp.int32)
    start, goal = 2 * jnp.floor(size * u[1:]).astype(jnp.int32) + 1
    near = jnp.where(side % 2 == 0, 0, last)
    ends = jnp.stack([jnp.stack([near, start]), jnp.stack([last - near, goal])])
    ends = jnp.where(side < 2, ends, ends[:, ::-1])
    return ends[0], ends[1]


def squares(plan: Plan) -> bits.Rows:
    """Return the board of free squares, with 2n + 1 rows and columns.

    Cell (i, j) becomes square (2i + 1, 2j + 1).
    """
    size, one = plan.cells.size, bits.bits(1)
    rows = (_spread(plan.cells) | _spread(plan.right) << one) << one
    between = _spread(plan.down) << one
    both = jnp.stack([rows, between], axis=1).ravel()
    return jnp.append(jnp.zeros(1, jnp.uint32), both[: 2 * size])


def _spread(board: bits.Rows) -> bits.Rows:
    """Move bit j of each row to bit 2j."""
    places = jnp.arange(board.size, dtype=jnp.uint32)[None]
    each = (board[:, None] >> places & bits.bits(1)) << (2 * places)
    return jnp.sum(each, axis=1, dtype=jnp.uint32)
