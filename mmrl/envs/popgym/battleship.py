"""Battleship: sink hidden ships. Requires memory of past shots and their results."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from mmrl._dtypes import with_promotion
from mmrl._random import as_words
from mmrl.envs._gymnax import environment
from mmrl.envs.base import Ends, never
from mmrl.envs.popgym import bits
from mmrl.envs.popgym.base import (
    Action,
    Entry,
    Leaf,
    Numbers,
    Params,
    Reset,
    Step,
    Task,
    check_positive,
    levels,
    one_hot,
)

OUTCOMES = 2  # miss = 0, hit = 1
TRY = 2  # number of uniform samples used by `_try`


@struct.dataclass
class State(environment.EnvState):
    """State of an episode, and the ships of the next one. For the boards, see `bits`."""

    time: Leaf  # int32: number of steps taken
    ships: Leaf  # uint32 [size]: board of squares with a ship
    guesses: Leaf  # uint32 [size]: board of squares that were guessed
    left: Leaf  # int32: number of squares with a ship that were not guessed
    hit: Leaf  # bool: True if the last guess was a new hit
    plan: Leaf  # uint32 [size]: board of ships placed for the next episode
    plan_size: Leaf  # int32: number of these ships


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
        self.start_numbers, self.step_numbers = len(self.ships), TRY

    def start(self, u: Numbers, params: Params) -> State:
        """Return the initial state of an episode."""
        board = jnp.zeros(self.size, jnp.uint32)
        for number, length in zip(u, self.ships, strict=True):
            board |= place(number, board, length)
        return self._begin(board)

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward. Ships of the next episode are placed with `u`."""
        action = jnp.asarray(action, jnp.int32)
        row = jax.lax.div(action, jnp.int32(self.size))
        guess = bits.square(row, action - row * self.size, self.size)
        hit = jnp.any(guess & state.ships & ~state.guesses != 0)
        miss = -1 / (self.num_steps - self.squares)
        reward = jnp.where(hit, jnp.float32(1 / self.squares), jnp.float32(miss))
        plan, placed = self._try(u, state.plan, state.plan_size)
        after = State(
            time=state.time + 1,
            ships=state.ships,
            guesses=state.guesses | guess,
            left=state.left - hit,
            hit=hit,
            plan=plan,
            plan_size=placed,
        )
        return after, reward

    @with_promotion
    def step_and_reset(
        self, key: PRNGKeyArray, state: Any, action: Action, params: Params, ends: Ends = never
    ) -> tuple[Step, Reset]:
        """Return the results of a step and of a reset, which uses the ships placed so far.

        If the episode ends before all ships are placed, the others are placed now.
        """
        key, rest = jax.random.split(key)
        u = jax.random.uniform(key, (self.step_numbers,), jnp.float32)
        step = self._step(u, state, action, params)
        after, terminated = step[1], step[3]
        last = terminated | self.is_truncated(after, params) | ends(step)
        fresh = self._begin(self._finish(after.plan, after.plan_size, last, rest))
        return step, (self.look(fresh, params), fresh)

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return the one-hot result of the last guess, which is "miss" before the first guess."""
        return one_hot(state.hit.astype(jnp.int32), OUTCOMES)

    def is_terminated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return True if all ships are sunk."""
        return state.left == 0

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return the one-hot ships and guesses of all squares, and the observation."""
        squares = bits.flags(jnp.stack([state.ships, state.guesses]), self.size).astype(jnp.int32)
        return jnp.concatenate([one_hot(squares, 2).ravel(), self.look(state, params)])

    def _begin(self, ships: bits.Rows) -> State:
        """Return the initial state with these ships, and none for the next episode."""
        empty, zero = jnp.zeros(self.size, jnp.uint32), jnp.int32(0)
        left = jnp.int32(self.squares)
        return State(zero, ships, empty, left, jnp.asarray(False), empty, zero)

    def _try(
        self, u: Float[Array, " 2"], plan: bits.Rows, placed: Int[Array, ""]
    ) -> tuple[bits.Rows, Int[Array, ""]]:
        """Place the next ship on a random segment, if all squares of the segment are free.

        Return the board and the number of ships placed. This is popgym's algorithm, except that
        each segment has one starting square instead of two. u is uniform in [0, 1)².
        """
        size = self.size
        length: Any = sum(jnp.where(placed == i, n, 0) for i, n in enumerate(self.ships))
        starts = size - length + 1  # number of possible starts along the segment's axis
        line = jnp.floor(u[0] * 2 * size).astype(jnp.int32)  # a row, or `size` + a column
        start = jnp.floor(u[1] * starts).astype(jnp.int32)
        row = jnp.arange(size)
        across = (bits.bits(1) << length.astype(jnp.uint32)) - bits.bits(1)
        across = jnp.where(row == line, across << start.astype(jnp.uint32), bits.bits(0))
        along = bits.bits(1) << jnp.maximum(line - size, 0).astype(jnp.uint32)
        along = jnp.where((start <= row) & (row < start + length), along, bits.bits(0))
        ship = jnp.where(line < size, across, along)
        fits = jnp.all(plan & ship == 0) & (placed < len(self.ships))
        return plan | jnp.where(fits, ship, bits.bits(0)), placed + fits

    def _finish(
        self, plan: bits.Rows, placed: Int[Array, ""], last: Bool[Array, ""], key: PRNGKeyArray
    ) -> bits.Rows:
        """Place the remaining ships if the episode has ended.

        Ships seldom remain, because the shortest episode has more steps than there are ships.
        """
        words, key_of = as_words(key)

        def more(state: tuple) -> tuple:
            now, later = jax.random.split(key_of(state[2]))
            u = jax.random.uniform(now, (TRY,), jnp.float32)
            return *self._try(u, *state[:2]), as_words(later)[0]

        return jax.lax.while_loop(
            lambda s: last & (s[1] < len(self.ships)), more, (plan, placed, words)
        )[0]


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
