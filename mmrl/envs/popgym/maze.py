"""Mazes by hunt and kill, carved one cell at a time, with the law of mazelib 0.9.16.

A walk carves from its cell to a uniform unvisited neighbor until there is none. Then uniform cells
are probed until one is visited and has an unvisited neighbor, and the next walk begins there. The
probes are limited to (2n + 1)² for a whole maze, so one maze in about 40 000 stays incomplete.
"""

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from mmrl.envs.popgym import bits
from mmrl.envs.popgym.base import Leaf
from mmrl.envs.popgym.cards import draw

NUMBERS = 3  # uniform numbers that `carve` takes


@struct.dataclass
class Plan:
    """A maze of n × n cells that is being carved. Boards are rows of bits: see `bits`."""

    cells: Leaf  # uint32 [n]: carved cells
    right: Leaf  # uint32 [n]: cells with a passage to the next one in the row
    down: Leaf  # uint32 [n]: cells with a passage to the next one in the column
    row: Leaf  # int32: the cell where the walk is
    column: Leaf  # int32
    probes: Leaf  # int32: remaining probes; negative once they did not suffice

    @property
    def done(self) -> Bool[Array, ""]:
        """True once `carve` no longer changes the maze."""
        return jnp.all(self.cells == _full(self.cells.shape[-1])) | (self.probes < 0)


def blank(u: Float[Array, ""], size: int) -> Plan:
    """Return a maze with one carved cell, a uniform one for u uniform in [0, 1)."""
    cell = jnp.floor(u * size * size).astype(jnp.int32)
    row, column, nothing = cell // size, cell % size, jnp.zeros(size, jnp.uint32)
    cells = bits.square(row, column, size)
    return Plan(cells, nothing, nothing, row, column, jnp.int32((2 * size + 1) ** 2))


def carve(plan: Plan, u: Float[Array, " 3"]) -> Plan:
    """Carve one more cell, after as many probes as that takes. u is uniform in [0, 1)³.

    The number of probes is geometric, so one number stands for all of them.
    """
    size, one = plan.cells.size, bits.bits(1)
    closed = ~plan.cells & _full(size)
    edge = jnp.zeros(1, jnp.uint32)
    # Cells whose neighbor above, below, left, right is there and not carved.
    above, below = jnp.append(edge, closed[:-1]), jnp.append(closed[1:], edge)
    around = jnp.stack([above, below, closed << one, closed >> one])
    frontier = plan.cells & (around[0] | around[1] | around[2] | around[3])
    walks = bits.has(frontier, plan.row, plan.column)
    share = jnp.sum(bits.count(frontier)) / jnp.float32(size * size)
    # A share of 1 divides by -inf: the first probe always succeeds.
    probes = 1 + jnp.floor(jnp.log1p(-u[0]) / jnp.log1p(-share)).astype(jnp.int32)
    probes = plan.probes - jnp.where(walks, 0, probes)
    row, column = bits.pick(u[1], frontier, size)
    row, column = jnp.where(walks, plan.row, row), jnp.where(walks, plan.column, column)
    here = bits.square(row, column, size)
    way = draw(u[2], jnp.any(around & here[None] != 0, axis=1).astype(jnp.int32))[0]
    to_row = row - (way == 0) + (way == 1)
    to_column = column - (way == 2) + (way == 3)
    there = bits.square(to_row, to_column, size)
    carved = Plan(
        cells=plan.cells | there,
        right=plan.right | jnp.where(way == 3, here, 0) | jnp.where(way == 2, there, 0),
        down=plan.down | jnp.where(way == 1, here, 0) | jnp.where(way == 0, there, 0),
        row=to_row,
        column=to_column,
        probes=probes,
    )
    # Without probes the walk ends here; `probes` itself changes unless the maze was done before.
    done = plan.done
    stopped = plan.replace(probes=jnp.where(done, plan.probes, probes))  # pyright: ignore
    stays = done | (probes < 0)
    return jax.tree.map(lambda old, new: jnp.where(stays, old, new), stopped, carved)


def _full(size: int) -> Array:
    return bits.bits((1 << size) - 1)


def entrances(u: Float[Array, " 3"], size: int) -> tuple[Int[Array, " 2"], Int[Array, " 2"]]:
    """Return the squares (row, column) of start and goal, on opposite borders of the grid."""
    last = 2 * size
    side = jnp.floor(4 * u[0]).astype(jnp.int32)
    start, goal = 2 * jnp.floor(size * u[1:]).astype(jnp.int32) + 1
    near = jnp.where(side % 2 == 0, 0, last)
    ends = jnp.stack([jnp.stack([near, start]), jnp.stack([last - near, goal])])
    ends = jnp.where(side < 2, ends, ends[:, ::-1])
    return ends[0], ends[1]


def squares(plan: Plan) -> bits.Rows:
    """Return the free squares of a maze, 2n + 1 a side: cell (i, j) is square (2i + 1, 2j + 1)."""
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
