"""Find the way out of a maze, or walk all of it, seeing only the squares around.

popgym itself warns that these tasks do not need a memory: following the left wall, which needs only
the last action, returns 0.96, 0.90 and 0.84 on the three levels of LabyrinthEscape.

While an episode runs, the maze of the next one is carved, some cells in each step. gymnax resets in
every step, and carving a whole maze each time would take longer than the rest of the step.
"""

import abc
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from mmrl._dtypes import promoting
from mmrl._random import as_words
from mmrl.envs._gymnax import environment
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
KINDS = 5  # as popgym counts them, which hides some squares
LEFT, RIGHT, UP, DOWN, NONE = 0, 1, 2, 3, 4  # actions, with NONE before the first step
PENALTY = -1 / 1024
ENTER = 4  # uniform numbers to enter a maze, and to begin the next


@struct.dataclass
class State(environment.EnvState):
    """The maze, what was walked of it, and the next maze. Boards are rows of bits."""

    time: Leaf  # int32: steps taken
    open: Leaf  # uint32 [H + 2]: squares without a wall, with a ring of walls around the maze
    walked: Leaf  # uint32 [H]: squares that the agent has visited
    free: Leaf  # int32: free squares of the maze, without its entrances
    left: Leaf  # int32: free squares not yet visited
    start: Leaf  # int32 [2]: row and column of the start
    goal: Leaf  # int32 [2]: row and column of the goal
    place: Leaf  # int32 [2]: row and column of the agent
    action: Leaf  # int32: the last action, NONE at first
    plan: maze.Plan  # the maze of the next episode


class Labyrinth(Task):
    """Maze of size × size cells, H = 2 size + 1 squares a side, entered at its border.

    Actions go left, right, up and down; into a wall, the agent stays where it is. The observation
    is the 3 × 3 squares around it and the last action, each one-hot. An episode is truncated after
    `num_steps` steps, also when it terminates there.

    At the border, where an episode starts, popgym cuts the view at the grid and fills it up with
    walls at the bottom and at the right, so that the agent does not stand in its middle. With
    `centered` it always does.
    """

    ends_at_goal: bool  # False: the goal is a wall

    def __init__(self, size: int = 5, num_steps: int = 1023, centered: bool = False):
        check_positive("num_steps", num_steps, "num_steps=1023 is that of every level")
        if not isinstance(size, int) or not 3 <= size <= 14:
            raise ValueError(f"`size` must be 3 to 14 cells, got {size!r}; size=5 is Easy.")
        self.size, self.num_steps, self.centered = size, num_steps, bool(centered)
        self.side, self.actions = 2 * size + 1, 4
        self.obs_size = 10 * KINDS
        self.state_size = self.side**2 * KINDS + 2 * self.side
        # An episode takes at least H - 1 steps, by the end of which the next maze is complete.
        self.cells_per_step = -(-(size**2 - 1) // (self.side - 1))
        self.start_numbers = maze.NUMBERS * (size**2 - 1) + 1 + ENTER
        self.step_numbers = maze.NUMBERS * self.cells_per_step

    def start(self, u: Numbers, params: Params) -> State:
        """Return the first state of an episode."""
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
        new = jnp.all(here & state.walked == 0)
        after = State(
            time=state.time + 1,
            open=state.open,
            walked=state.walked | here,
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
        """Return the reward of a step to a square that is `new` or was walked before."""

    @promoting
    def step_and_reset(
        self, key: PRNGKeyArray, state: Any, action: Action, params: Params
    ) -> tuple[Step, Reset]:
        """Step, and enter the next maze, whose rest is carved if the episode ends."""
        key, rest = jax.random.split(key)
        u = jax.random.uniform(key, (self.step_numbers + ENTER,))
        step = self._step(u[:-ENTER], state, action, params)
        after, terminated = step[1], step[3]
        ended = terminated | self.is_truncated(after, params)
        fresh = self._enter(self._finish(after.plan, ended, rest), u[-ENTER:])
        fresh = jax.lax.stop_gradient(fresh)
        return step, (self.look(fresh, params), fresh)

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return the 3 × 3 squares around the agent and the last action, each one-hot."""
        shifted = (state.place == 0) & (not self.centered)
        corner = state.place + shifted  # corner of the view, in squares with the ring of walls
        rows = jax.lax.dynamic_slice(state.open, corner[:1], (3,))
        free = bits.flags(rows >> corner[1].astype(jnp.uint32), 3)
        inside = ~shifted[:, None] | (jnp.arange(3) < 2)[None]
        free &= inside[0][:, None] & inside[1][None]
        around = corner[:, None] + jnp.arange(-1, 2)[None]
        view = self._kinds(free, around[0], around[1], state)
        return one_hot(jnp.append(view.ravel(), state.action), KINDS).ravel()

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return the kind of each square, one-hot, and whether it was stood on; then the place.

        The row and the column of the place are one-hot. popgym's `get_state` hides squares that
        were never stood on, and ends before the place, so it is not Markov.
        """
        square = jnp.arange(self.side)
        free = bits.flags(state.open[1:-1] >> bits.bits(1), self.side)
        kinds = one_hot(self._kinds(free, square, square, state), KINDS - 1)
        walked = bits.flags(state.walked, self.side).astype(kinds.dtype)
        squares = jnp.concatenate([kinds, walked[..., None]], axis=-1)
        return jnp.append(squares.ravel(), one_hot(state.place, self.side).ravel())

    def _kinds(
        self,
        free: Bool[Array, "rows columns"],
        rows: Int[Array, " rows"],
        columns: Int[Array, " columns"],
        state: State,
    ) -> Int[Array, "rows columns"]:
        """Return the kind of each square at these rows and columns, some of them `free`."""

        def at(place: Int[Array, " 2"]) -> Bool[Array, "rows columns"]:
            return free & (rows == place[0])[:, None] & (columns == place[1])[None]

        kinds = jnp.where(at(state.goal), GOAL, jnp.where(free, FREE, WALL))
        return jnp.where(at(state.start), START, kinds)

    def _carve(self, plan: maze.Plan, u: Numbers) -> maze.Plan:
        numbers = u.reshape(-1, maze.NUMBERS)
        return jax.lax.scan(lambda plan, u: (maze.carve(plan, u), None), plan, numbers)[0]

    def _finish(self, plan: maze.Plan, ended: Bool[Array, ""], key: PRNGKeyArray) -> maze.Plan:
        """Carve the missing cells if an episode ended; the task's own limit leaves none."""
        words, key_of = as_words(key)

        def more(state: tuple) -> tuple:
            now, later = jax.random.split(key_of(state[1]))
            u = jax.random.uniform(now, (maze.NUMBERS,))
            return maze.carve(state[0], u), as_words(later)[0]

        return jax.lax.while_loop(lambda s: ended & ~s[0].done, more, (plan, words))[0]

    def _enter(self, plan: maze.Plan, u: Numbers) -> State:
        """Return the first state in a maze, with its entrances and a cell of the next maze."""
        start, goal = maze.entrances(u[:3], self.size)
        squares, walked = maze.squares(plan), bits.square(start[0], start[1], self.side)
        free = jnp.sum(bits.count(squares))
        entrances = (
            walked | bits.square(goal[0], goal[1], self.side) if self.ends_at_goal else walked
        )
        return State(
            time=jnp.int32(0),
            open=jnp.pad((squares | entrances) << bits.bits(1), 1),
            walked=walked,
            free=free,
            left=free,
            start=start,
            goal=goal,
            place=start,
            action=jnp.int32(NONE),
            plan=maze.blank(u[3], self.size),
        )


class LabyrinthEscape(Labyrinth):
    """Labyrinth to leave.

    r_t = -1/1024, and 1 more on the goal, opposite of the start, where an episode terminates.
    """

    ends_at_goal = True

    def reward(self, state: State, new: Bool[Array, ""]) -> Float[Array, ""]:
        """Return -1/1024, or 1 - 1/1024 on the goal."""
        done = jnp.all(state.place == state.goal)
        return jnp.where(done, jnp.float32(1 + PENALTY), jnp.float32(PENALTY))

    def is_terminated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return True if the agent stands on the goal."""
        return jnp.all(state.place == state.goal)


class LabyrinthExplore(Labyrinth):
    """Labyrinth to walk all of.

    r_t = 1/F on a square that the agent has not stood on before, else -1/1024.

    F free squares lie inside the maze, and there is no goal. An episode terminates when the agent
    has stood on all of them.
    """

    ends_at_goal = False

    def reward(self, state: State, new: Bool[Array, ""]) -> Float[Array, ""]:
        """Return 1/F on a new square, else -1/1024."""
        return jnp.where(new, 1 / state.free.astype(jnp.float32), jnp.float32(PENALTY))

    def is_terminated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return True if no free square is left."""
        return state.left == 0


TASKS = {
    "LabyrinthEscape": Entry(LabyrinthEscape, levels(size=(5, 7, 9))),
    "LabyrinthExplore": Entry(LabyrinthExplore, levels(size=(5, 7, 9))),
}
