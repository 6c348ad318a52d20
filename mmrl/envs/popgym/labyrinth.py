"""Labyrinth: escape from a maze or explore it, with a view of the adjacent squares only.

As popgym warns, an agent does well without a recurrent memory. Following the left wall, which only
requires the last action, has average returns of 0.96, 0.90 and 0.84 on the three levels of
LabyrinthEscape.

gymnax computes a reset at every step, and carving an entire maze each time would dominate the cost
of a step. Therefore the maze of the next episode is carved during the current episode, a few cells
per step.
"""

import abc
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from mmrl._dtypes import with_promotion
from mmrl._random import as_words
from mmrl.envs._gymnax import environment
from mmrl.envs.base import Ends, never
from mmrl.envs.popgym import bits, maze
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

FREE, WALL, START, GOAL = 0, 1, 2, 3  # kinds of squares
KINDS = 5  # number of kinds of squares in popgym, including hidden squares
LEFT, RIGHT, UP, DOWN, NONE = 0, 1, 2, 3, 4  # actions; NONE means no action yet
PENALTY = -1 / 1024
ENTER = 4  # number of uniform samples used by `_enter`


@struct.dataclass
class State(environment.EnvState):
    """State of an episode, and the maze of the next one. For the boards, see `bits`."""

    time: Leaf  # int32: number of steps taken
    open: Leaf  # uint32 [H + 2]: board of squares without a wall, padded with walls on all sides
    trail: Leaf  # uint32 [H]: board of squares that the agent has visited
    free: Leaf  # int32: number of free squares, excluding the entrances
    left: Leaf  # int32: number of free squares not yet visited
    start: Leaf  # int32 [2]: row and column of the start
    goal: Leaf  # int32 [2]: row and column of the goal
    place: Leaf  # int32 [2]: row and column of the agent
    action: Leaf  # int32: last action; NONE before the first step
    plan: maze.Plan  # maze of the next episode


class Labyrinth(Task):
    """Base class of mazes with `size` × `size` cells.

    The maze has H × H squares, H = 2 size + 1, and the agent starts on its border. The actions are
    left, right, up and down; moving into a wall has no effect. The observation consists of the
    3 × 3 squares around the agent and the last action, all one-hot. An episode is truncated after
    `num_steps` steps, even if it terminates at that step.

    If the agent is on the top or left border, popgym's view does not extend beyond the maze.
    Instead, walls are added at the bottom or on the right of the view, and the agent is not in its
    center. If `centered` is True, the agent is always in the center.
    """

    ends_at_goal: bool  # if False, the maze has no goal, and the goal's square remains a wall

    def __init__(self, size: int = 5, num_steps: int = 1023, centered: bool = False):
        check_positive("num_steps", num_steps, "all levels use 1023")
        if not isinstance(size, int) or not 3 <= size <= 14:
            raise ValueError(f"`size` must be 3 to 14 cells, got {size!r}. The Easy level uses 5.")
        self.size, self.num_steps, self.centered = size, num_steps, bool(centered)
        self.side, self.actions = 2 * size + 1, 4
        self.obs_size = 10 * KINDS
        self.state_size = self.side**2 * KINDS + 2 * self.side
        # The shortest episode has H - 1 steps, after which the next maze must be complete.
        self.cells_per_step = -(-(size**2 - 1) // (self.side - 1))
        self.start_numbers = maze.NUMBERS * (size**2 - 1) + 1 + ENTER
        self.step_numbers = maze.NUMBERS * self.cells_per_step

    def start(self, u: Numbers, params: Params) -> State:
        """Return the initial state of an episode."""
        plan = maze.blank(u[0], self.size)
        return self._enter(self._carve(plan, u[1:-ENTER]), u[-ENTER:])

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        action = jnp.asarray(action, jnp.int32)
        down = jnp.where(action == DOWN, 1, jnp.where(action == UP, -1, 0))
        right = jnp.where(action == RIGHT, 1, jnp.where(action == LEFT, -1, 0))
        to = state.place + jnp.stack([down, right])
        place = jnp.where(bits.has(state.open, to[0] + 1, to[1] + 1), to, state.place)
        here = bits.square(place[0], place[1], self.side)
        new = jnp.all(here & state.trail == 0)
        after = State(
            time=state.time + 1,
            open=state.open,
            trail=state.trail | here,
            free=state.free,
            left=state.left - new,
            start=state.start,
            goal=state.goal,
            place=place,
            action=action,
            plan=self._carve(state.plan, u),
        )
        return after, self.reward(after, new)

    @abc.abstractmethod
    def reward(self, state: State, new: Bool[Array, ""]) -> Float[Array, ""]:
        """Return the reward of a step, given whether the agent's square is `new`."""

    @with_promotion
    def step_and_reset(
        self, key: PRNGKeyArray, state: Any, action: Action, params: Params, ends: Ends = never
    ) -> tuple[Step, Reset]:
        """Return the results of a step and of a reset, which uses the maze carved so far.

        If the episode ends before the maze is complete, the remaining cells are carved.
        """
        key, rest = jax.random.split(key)
        u = jax.random.uniform(key, (self.step_numbers + ENTER,), jnp.float32)
        step = self._step(u[:-ENTER], state, action, params)
        after, terminated = step[1], step[3]
        last = terminated | self.is_truncated(after, params) | ends(step)
        fresh = self._enter(self._finish(after.plan, last, rest), u[-ENTER:])
        fresh = jax.lax.stop_gradient(fresh)
        return step, (self.look(fresh, params), fresh)

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return the 3 × 3 squares around the agent and the last action, all one-hot."""
        shifted = (state.place == 0) & (not self.centered)
        corner = state.place + shifted  # top left corner of the view, as indices of `open`
        rows = jax.lax.dynamic_slice(state.open, corner[:1], (3,))
        free = bits.flags(rows >> corner[1].astype(jnp.uint32), 3)
        inside = ~shifted[:, None] | (jnp.arange(3) < 2)[None]
        free &= inside[0][:, None] & inside[1][None]
        around = corner[:, None] + jnp.arange(-1, 2)[None]
        view = self._kinds(free, around[0], around[1], state)
        return one_hot(jnp.append(view.ravel(), state.action), KINDS).ravel()

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return the kinds of all squares, which ones were visited, and the agent's position.

        Kinds, rows and columns are one-hot. popgym's `get_state` hides squares that have not been
        visited and omits the position, so its result is not Markov.
        """
        square = jnp.arange(self.side)
        free = bits.flags(state.open[1:-1] >> bits.bits(1), self.side)
        kinds = one_hot(self._kinds(free, square, square, state), KINDS - 1)
        trail = bits.flags(state.trail, self.side).astype(kinds.dtype)
        squares = jnp.concatenate([kinds, trail[..., None]], axis=-1)
        return jnp.append(squares.ravel(), one_hot(state.place, self.side).ravel())

    def _kinds(
        self,
        free: Bool[Array, "rows columns"],
        rows: Int[Array, " rows"],
        columns: Int[Array, " columns"],
        state: State,
    ) -> Int[Array, "rows columns"]:
        """Return the kind of each square in `rows` and `columns`, given which squares are free."""

        def at(place: Int[Array, " 2"]) -> Bool[Array, "rows columns"]:
            return free & (rows == place[0])[:, None] & (columns == place[1])[None]

        kinds = jnp.where(at(state.goal), GOAL, jnp.where(free, FREE, WALL))
        return jnp.where(at(state.start), START, kinds)

    def _carve(self, plan: maze.Plan, u: Numbers) -> maze.Plan:
        numbers = u.reshape(-1, maze.NUMBERS)
        return jax.lax.scan(lambda plan, u: (maze.carve(plan, u), None), plan, numbers)[0]

    def _finish(self, plan: maze.Plan, last: Bool[Array, ""], key: PRNGKeyArray) -> maze.Plan:
        """Carve the remaining cells of a maze if the episode has ended.

        Cells remain only if the episode was truncated by a time limit below `num_steps`.
        """
        words, key_of = as_words(key)

        def more(state: tuple) -> tuple:
            now, later = jax.random.split(key_of(state[1]))
            u = jax.random.uniform(now, (maze.NUMBERS,), jnp.float32)
            return maze.carve(state[0], u), as_words(later)[0]

        return jax.lax.while_loop(lambda s: last & ~s[0].done, more, (plan, words))[0]

    def _enter(self, plan: maze.Plan, u: Numbers) -> State:
        """Return the initial state in a maze, with random entrances.

        The first three entries of `u` determine the entrances, and the fourth determines the first
        cell of the next maze.
        """
        start, goal = maze.entrances(u[:3], self.size)
        squares, trail = maze.squares(plan), bits.square(start[0], start[1], self.side)
        free = jnp.sum(bits.count(squares))
        entrances = trail | bits.square(goal[0], goal[1], self.side) if self.ends_at_goal else trail
        return State(
            time=jnp.int32(0),
            open=jnp.pad((squares | entrances) << bits.bits(1), 1),
            trail=trail,
            free=free,
            left=free,
            start=start,
            goal=goal,
            place=start,
            action=jnp.int32(NONE),
            plan=maze.blank(u[3], self.size),
        )


class LabyrinthEscape(Labyrinth):
    """Labyrinth from which the agent must escape.

    The goal is on the border opposite the start. The reward is -1/1024 per step, plus 1 for
    reaching the goal, which terminates the episode.
    """

    ends_at_goal = True

    def reward(self, state: State, new: Bool[Array, ""]) -> Float[Array, ""]:
        """Return 1 - 1/1024 on the goal, and -1/1024 elsewhere."""
        at_goal = jnp.all(state.place == state.goal)
        return jnp.where(at_goal, jnp.float32(1 + PENALTY), jnp.float32(PENALTY))

    def is_terminated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return True if the agent is on the goal."""
        return jnp.all(state.place == state.goal)


class LabyrinthExplore(Labyrinth):
    """Labyrinth that the agent must explore completely.

    The maze has F free squares and no goal. The reward is 1/F on a square that the agent has not
    visited before, and -1/1024 elsewhere. An episode terminates when all free squares have been
    visited.
    """

    ends_at_goal = False

    def reward(self, state: State, new: Bool[Array, ""]) -> Float[Array, ""]:
        """Return 1/F on a new square, and -1/1024 elsewhere."""
        return jnp.where(new, 1 / state.free.astype(jnp.float32), jnp.float32(PENALTY))

    def is_terminated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return True if all free squares have been visited."""
        return state.left == 0


TASKS = {
    "LabyrinthEscape": Entry(LabyrinthEscape, levels(size=(5, 7, 9))),
    "LabyrinthExplore": Entry(LabyrinthExplore, levels(size=(5, 7, 9))),
}
