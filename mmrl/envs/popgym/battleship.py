"""Battleship: sink hidden ships. Requires memory of past shots and their results."""

from collections.abc import Sequence
from functools import reduce

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float

from mmrl.envs._gymnax import environment
from mmrl.envs.popgym import bits
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

OUTCOMES = 2  # miss = 0, hit = 1


@struct.dataclass
class State(environment.EnvState):
    """State of an episode."""

    time: Leaf  # int32: number of steps taken
    ships: Leaf  # bool [size²]: True on squares with a ship, in row-major order
    guesses: Leaf  # bool [size²]: True on squares that were guessed, in row-major order
    hit: Leaf  # bool: True if the last guess was a new hit


class Battleship(Task):
    """Task in which the agent sinks hidden ships by guessing squares.

    r_t = 1/h for a new hit and -1/(size² - h) for any other guess, where the ships occupy h squares
    in total.

    Action `size` · row + column guesses a square. The observation only shows whether the guess was
    a new hit, so agents need the previous action as an input. Guessing a square again counts as a
    miss. An episode terminates when all ships are sunk and is truncated after size² steps; both can
    happen at the same step. The return is in [-size²/(size² - h), 1].
    """

    def __init__(self, size: int = 8, ships: Sequence[int] = (2, 3, 3, 4)):
        check_positive("size", size, "the Easy level uses 8")
        if size > 32:
            raise ValueError(f"`size` must be at most 32, got {size}.")
        for length in ships:
            check_positive("ships", length, "list the length of each ship, as in (2, 3, 3, 4)")
        # A ship of length n has at least size * (size // n) disjoint positions. The ship always
        # fits if the other ships occupy fewer squares than this number.
        misfits = [n for n in ships if sum(ships) - n >= size * (size // n)]
        if not ships or misfits or sum(ships) >= size * size:
            raise ValueError(
                f"`ships` must be lengths of ships that always fit on {size} × {size} squares, got "
                f"{tuple(ships)}. Use fewer or shorter ships (at least one), or a larger `size`."
            )
        self.size, self.ships, self.squares = size, tuple(ships), sum(ships)
        self.num_steps = self.actions = size * size
        self.obs_size, self.state_size = OUTCOMES, 4 * size * size + OUTCOMES
        self.start_numbers, self.step_numbers = len(self.ships), 0

    def start(self, u: Numbers, params: Params) -> State:
        """Return the initial state of an episode."""
        board = jnp.zeros(self.size, jnp.uint32)
        for number, length in zip(u, self.ships, strict=True):
            board |= place(number, board, length)
        guesses = jnp.zeros(self.actions, bool)
        ships = bits.flags(board, self.size).ravel()
        return State(jnp.int32(0), ships, guesses, jnp.asarray(False))

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        square = jnp.arange(self.actions) == action
        hit = jnp.any(square & state.ships & ~state.guesses)
        miss = -1 / (self.num_steps - self.squares)
        reward = jnp.where(hit, jnp.float32(1 / self.squares), jnp.float32(miss))
        return State(state.time + 1, state.ships, state.guesses | square, hit), reward

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return the one-hot result of the last guess, which is "miss" before the first guess."""
        return one_hot(state.hit.astype(jnp.int32), OUTCOMES)

    def is_terminated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return True if all ships are sunk."""
        return jnp.all(state.guesses >= state.ships)

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return the one-hot ships and guesses of all squares, and the observation."""
        squares = jnp.concatenate([state.ships, state.guesses]).astype(jnp.int32)
        return jnp.concatenate([one_hot(squares, 2).ravel(), self.look(state, params)])


def place(u: Float[Array, ""], board: bits.Rows, length: int) -> bits.Rows:
    """Sample the position of another ship uniformly from all free segments.

    `u` is uniform in [0, 1), and `board` contains the squares that are occupied. popgym instead
    samples squares and directions until the ship fits. The distribution is the same, because popgym
    can sample each segment in two ways, one from each end.
    """
    size = board.size
    starts = size - length + 1  # number of possible starts along the segment's axis
    right = reduce(jnp.bitwise_or, [board >> bits.bits(k) for k in range(length)])
    down = reduce(jnp.bitwise_or, [board[k : k + starts] for k in range(length)])
    full, short = bits.bits((1 << size) - 1), bits.bits((1 << starts) - 1)
    row, column = bits.pick(u, jnp.concatenate([~right & short, ~down & full]), size)
    across = bits.square(row, column, size, width=length)
    along = sum(
        (bits.square(row - size + k, column, size) for k in range(length)), start=bits.bits(0)
    )
    return jnp.where(row < size, across, along)


TASKS = {"Battleship": Entry(Battleship, levels(size=(8, 10, 12)))}
