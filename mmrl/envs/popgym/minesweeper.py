"""Uncover every square without a mine, seeing one number at a time: a spatial memory."""

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from mmrl.envs._gymnax import environment
from mmrl.envs.popgym.base import (
    Action,
    Entry,
    Leaf,
    Numbers,
    Params,
    Task,
    check_positive,
    levels,
    one_hot,
)

CLEAR, MINE, VIEWED = 0, 1, 2


@struct.dataclass
class State(environment.EnvState):
    """The board, and the result of the last look at it."""

    time: Leaf  # int32: steps taken
    squares: Leaf  # int32 [size²]: CLEAR, MINE or VIEWED, row by row
    near: Leaf  # int32: mines in the 3 × 3 around the last square
    hit: Leaf  # bool: the last square was a mine


class MineSweeper(Task):
    """Game of uncovering all squares without a mine.

    r_t = 1/C for a clear square, -0.5/(C - 2) for a viewed one, -0.5 - 1/C for a mine. C = size² -
    num_mines squares are clear. An episode terminates on a mine or when all are viewed, and is
    truncated after C steps otherwise; its return lies in [-1, 1]. Action `size` row + column looks
    at a square and shows the number of mines in the 3 × 3 around it, including its own, but not
    where: give the agent its previous action.
    """

    def __init__(self, size: int = 4, num_mines: int = 2):
        check_positive("size", size, "size=4 is the Easy level")
        check_positive("num_mines", num_mines, "num_mines=2 is the Easy level")
        clear = size * size - num_mines
        if clear < 3:
            raise ValueError(
                f"`num_mines` must leave at least 3 of {size * size} squares clear, "
                f"got {num_mines}: take fewer mines or a larger `size`."
            )
        self.size, self.num_mines = size, num_mines
        self.num_steps, self.actions = clear, size * size
        self.obs_size, self.state_size = min(num_mines + 1, 10), 3 * size * size
        self.start_numbers, self.step_numbers = num_mines, 0

    def start(self, u: Numbers, params: Params) -> State:
        """Return the first state of an episode."""
        mine = jnp.any(
            jnp.arange(self.actions)[None, :] == subset(u, self.actions)[:, None], axis=0
        )
        zero = jnp.int32(0)
        return State(zero, jnp.where(mine, MINE, CLEAR), near=zero, hit=jnp.asarray(False))

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        square = jnp.arange(self.actions)
        found = jnp.sum(jnp.where(square == action, state.squares, 0))
        rows = jnp.abs(square // self.size - action // self.size)
        columns = jnp.abs(square % self.size - action % self.size)
        around = (jnp.maximum(rows, columns) <= 1) & (state.squares == MINE)
        near, hit = jnp.sum(around, dtype=jnp.int32), found == MINE
        viewed = (square == action) & ~hit
        squares = jnp.where(viewed, VIEWED, state.squares)
        prizes = (1 / self.num_steps, -0.5 - 1 / self.num_steps, -0.5 / (self.num_steps - 2))
        reward = jnp.sum(one_hot(found, 3) * jnp.array(prizes, jnp.float32))
        return State(state.time + 1, squares, near, hit), reward

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return the number of mines in the 3 × 3 around the last square, one-hot; 0 at first."""
        return one_hot(state.near, self.obs_size)

    def is_terminated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return True if a mine was hit, or no clear square is left."""
        return state.hit | jnp.all(state.squares != CLEAR)

    def is_truncated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return True if t ≥ max_steps_in_episode, unless terminated."""
        return (state.time >= params.max_steps_in_episode) & ~self.is_terminated(state, params)

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return each square (clear, mine, viewed), one-hot."""
        return one_hot(state.squares, 3).ravel()


def subset(u: Numbers, size: int) -> Int[Array, " numbers"]:
    """Draw a uniform random subset of 0..size-1, one element per number, by Floyd's algorithm.

    For j = size - m .. size - 1: take t = ⌊u (j + 1)⌋, or j if t is already taken (Bentley and
    Floyd 1987, "A sample of brilliance"). O(m²), without the sort of a permutation.
    """
    taken: list[Array] = []
    for i in range(u.size):
        last = size - u.size + i
        t = jnp.floor(u[i] * (last + 1)).astype(jnp.int32)
        repeated = jnp.any(jnp.stack([*taken, jnp.int32(-1)]) == t)
        taken.append(jnp.where(repeated, last, t))
    return jnp.stack(taken)


TASKS = {
    "MineSweeper": Entry(MineSweeper, levels(size=(4, 6, 8), num_mines=(2, 6, 10)), changed=True)
}
