"""Minesweeper: uncover every square without a mine. Tests memory of numbers on a board."""

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

CLEAR, MINE, OPEN = 0, 1, 2


@struct.dataclass
class State(environment.EnvState):
    """State of an episode."""

    time: Leaf  # int32: number of steps taken
    squares: Leaf  # int32 [size²]: CLEAR, MINE or OPEN, in row-major order
    near: Leaf  # int32: number of mines in the 3 × 3 squares centered on the last square
    hit: Leaf  # bool: True if the last square was a mine


class MineSweeper(Task):
    """Task in which the agent uncovers all squares without a mine.

    Action `size` · row + column uncovers a square. The reward is 1/C for a clear square,
    -0.5/(C - 2) for one that was already uncovered, and -0.5 - 1/C for a mine, where
    C = size² - num_mines is the number of clear squares.

    The observation is the number of mines in the 3 × 3 squares centered on the last square. The
    position of this square is not observed, so agents need the previous action as an input. An
    episode terminates at a mine or when all clear squares are uncovered, and is truncated after C
    steps otherwise. The return is in [-1, 1].
    """

    def __init__(self, size: int = 4, num_mines: int = 2):
        check_positive("size", size, "the Easy level uses 4")
        check_positive("num_mines", num_mines, "the Easy level uses 2")
        clear = size * size - num_mines
        if clear < 3:
            raise ValueError(
                f"`num_mines` must leave at least 3 of {size * size} squares clear, "
                f"got {num_mines}. Use fewer mines or a larger `size`."
            )
        self.size, self.num_mines = size, num_mines
        self.num_steps, self.actions = clear, size * size
        self.obs_size, self.state_size = min(num_mines + 1, 10), 3 * size * size
        self.start_numbers, self.step_numbers = num_mines, 0

    def start(self, u: Numbers, params: Params) -> State:
        """Return the initial state of an episode."""
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
        kind = jnp.sum(jnp.where(square == action, state.squares, 0))
        rows = jnp.abs(square // self.size - action // self.size)
        columns = jnp.abs(square % self.size - action % self.size)
        around = (jnp.maximum(rows, columns) <= 1) & (state.squares == MINE)
        near, hit = jnp.sum(around, dtype=jnp.int32), kind == MINE
        viewed = (square == action) & ~hit
        squares = jnp.where(viewed, OPEN, state.squares)
        prizes = (1 / self.num_steps, -0.5 - 1 / self.num_steps, -0.5 / (self.num_steps - 2))
        reward = jnp.sum(one_hot(kind, 3) * jnp.array(prizes, jnp.float32))
        return State(state.time + 1, squares, near, hit), reward

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return the one-hot number of mines around the last square, 0 before the first step."""
        return one_hot(state.near, self.obs_size)

    def is_terminated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return True if a mine was hit, or if all clear squares are uncovered."""
        return state.hit | jnp.all(state.squares != CLEAR)

    def is_truncated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return True at the time limit, unless the episode terminates at the same step."""
        return (state.time >= params.max_steps_in_episode) & ~self.is_terminated(state, params)

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return the one-hot kind of each square: clear, mine or open (already uncovered)."""
        return one_hot(state.squares, 3).ravel()


def subset(u: Numbers, size: int) -> Int[Array, " numbers"]:
    """Sample m = `u.size` different integers from 0..size-1, by Floyd's algorithm.

    For each j from size - m to size - 1, take t = ⌊u (j + 1)⌋, or j if t has already been taken
    (Bentley and Floyd 1987, "A sample of brilliance"). This costs O(m²) and does not need the sort
    that a random permutation would.
    """
    choices: list[Array] = []
    for i in range(u.size):
        last = size - u.size + i
        t = jnp.floor(u[i] * (last + 1)).astype(jnp.int32)
        repeats = jnp.any(jnp.stack([*choices, jnp.int32(-1)]) == t)
        choices.append(jnp.where(repeats, last, t))
    return jnp.stack(choices)


TASKS = {
    "MineSweeper": Entry(MineSweeper, levels(size=(4, 6, 8), num_mines=(2, 6, 10)), changed=True)
}
