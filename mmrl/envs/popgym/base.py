"""The interface of all POPGym tasks: gymnax's, written once, over three pure functions.

The tasks equal popgym 1.0.7 step by step (Morad et al. 2023, "POPGym: Benchmarking Partially
Observable Reinforcement Learning"): rewards, lengths, flags, and observations as
`gymnasium.spaces.flatten` gives them. A task is `start(u)`, `advance(u, state, action)` and
`look(state)`, where u holds all of its chance: uniform numbers, so a task is deterministic.

Read `repeat_previous.py` first; every other file has its shape.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Integer, PRNGKeyArray

from mmrl._dtypes import promoting
from mmrl.envs._gymnax import environment, spaces
from mmrl.envs.base import Resetting

Action = Integer[Array, ""] | Float[Array, " action"] | int
Numbers = Float[Array, " numbers"]
Params = environment.EnvParams
Info = dict[str, Any]
Step = tuple[Float[Array, " obs"], Any, Float[Array, ""], Bool[Array, ""], Info]
Reset = tuple[Float[Array, " obs"], Any]
# A field of a state is an array, but jax also builds states around placeholders: not checked.
Leaf = Any


class Task(Resetting):
    """s_0 = start(u), (s_{t+1}, r_t) = advance(u, s_t, a_t), o_t = look(s_t), u ~ U[0, 1)ⁿ.

    A subclass sets the six sizes in `__init__` and writes `start`, `advance`, `look`,
    `is_terminated` and `state_obs`.
    """

    num_steps: int  # steps in the longest episode
    actions: int  # actions to choose from
    obs_size: int  # width of an observation
    state_size: int  # width of `state_obs`
    start_numbers: int  # uniform numbers that `start` takes
    step_numbers: int  # uniform numbers that `advance` takes

    @abc.abstractmethod
    def start(self, u: Numbers, params: Params) -> Any:
        """The first state of an episode."""

    @abc.abstractmethod
    def advance(
        self, u: Numbers, state: Any, action: Action, params: Params
    ) -> tuple[Any, Float[Array, ""]]:
        """The next state, time increased by one, and the reward."""

    @abc.abstractmethod
    def look(self, state: Any, params: Params) -> Float[Array, " obs"]:
        """The observation, a function of the state alone."""

    @abc.abstractmethod
    def is_terminated(self, state: Any, params: Params) -> Bool[Array, ""]:
        """Whether the episode ended by itself when this state was reached."""

    @abc.abstractmethod
    def state_obs(self, state: Any, params: Params) -> Float[Array, " state"]:
        """Return the Markov state as a vector: popgym's `get_state`, flattened.

        Where that is not Markov, more is added. A card that has not been dealt yet is not part of
        the state, because it is dealt at random when it is needed; what lies on a board is, even
        if it is hidden.
        """

    def twin(self) -> "Task":
        """Return this task in the form that `StateObservation` shows: here, itself."""
        return self

    def observe(
        self, key: PRNGKeyArray, state: Any, action: Action | None, params: Params
    ) -> Float[Array, " obs"]:
        """o = look(s): the key and the action change nothing."""
        return self.look(state, params)

    @promoting
    def reset_env(self, key: PRNGKeyArray, params: Params) -> Reset:
        """The first observation and state."""
        return self._reset(jax.random.uniform(key, (self.start_numbers,)), params)

    @promoting
    def step_env(self, key: PRNGKeyArray, state: Any, action: Action, params: Params) -> Step:
        """Take one step without reset: observation, state, reward, terminated, info."""
        u = jax.random.uniform(key, (self.step_numbers,))
        return self._step(u, state, action, params)

    @promoting
    def step_and_reset(
        self, key: PRNGKeyArray, state: Any, action: Action, params: Params
    ) -> tuple[Step, Reset]:
        """(`step_env`, `reset_env`) from one call of the generator.

        gymnax splits the key, and step and reset draw on their own: on a CPU those three calls
        take most of the time.
        """
        u = jax.random.uniform(key, (self.step_numbers + self.start_numbers,))
        step = self._step(u[: self.step_numbers], state, action, params)
        return step, self._reset(u[self.step_numbers :], params)

    def _step(self, u: Numbers, state: Any, action: Action, params: Params) -> Step:
        state, reward = jax.lax.stop_gradient(self.advance(u, state, action, params))
        obs = self.look(state, params)
        return obs, state, reward, jnp.asarray(self.is_terminated(state, params)), {}

    def _reset(self, u: Numbers, params: Params) -> Reset:
        state = jax.lax.stop_gradient(self.start(u, params))
        return self.look(state, params), state

    @property
    def default_params(self) -> Params:
        """`max_steps_in_episode` is the task's true length; a smaller one truncates."""
        return Params(max_steps_in_episode=self.num_steps)

    @property
    def num_actions(self) -> int:
        return self.actions

    def action_space(self, params: Params | None = None) -> spaces.Discrete:
        return spaces.Discrete(self.actions)

    def observation_space(self, params: Params | None = None) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (self.obs_size,), jnp.float32)

    def state_space(self, params: Params | None = None) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (self.state_size,), jnp.float32)


class Entry(NamedTuple):
    """A row of a file's `TASKS`: a task with its levels, and the scores of POPGym's paper.

    Scores are MMERs of Morad et al. 2023, Appendix B, Table 3, transcribed at second hand.
    """

    build: Callable[..., Task]
    levels: dict[str, dict[str, Any]]  # level: arguments of `build`
    gru: tuple[float, float, float] | None = None  # of its GRU: Easy, Medium, Hard
    # level: score and name of a better one of its thirteen models, as far as transcribed
    better: Mapping[str, tuple[float, str]] = {}
    changed: bool = False  # since the paper, so that its scores do not compare


def levels(**arguments: tuple[Any, Any, Any]) -> dict[str, dict[str, Any]]:
    """Return the arguments of each level, from those of Easy, Medium and Hard in turn."""
    each = zip(*arguments.values(), strict=True)
    rows = (dict(zip(arguments, values, strict=True)) for values in each)
    return dict(zip(("Easy", "Medium", "Hard"), rows, strict=True))


def one_hot(value: Int[Array, "*shape"], size: int) -> Float[Array, "*shape size"]:
    """The float32 one-hot encoding of 0..size-1; zeros for any other value."""
    return jax.nn.one_hot(value, size, dtype=jnp.float32)


def plus_minus(right: Bool[Array, ""], scale: float) -> Float[Array, ""]:
    """+scale for a right answer, -scale for a wrong one."""
    return jnp.where(right, jnp.float32(scale), jnp.float32(-scale))


def check_positive(name: str, value: Any, remedy: str) -> None:
    """Raise `ValueError` unless the argument is a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"`{name}` must be a positive integer, got {value!r}: {remedy}.")


def check_noise(sigma: Any, place: str) -> None:
    """Raise `ValueError` unless `sigma`, of the noise at a place, is a finite number ≥ 0."""
    if not 0 <= sigma < float("inf"):
        raise ValueError(
            f"`sigma` must be a finite number ≥ 0, got {sigma!r}: it is the standard deviation of "
            f"the noise {place}; 0.1 is the Easy level."
        )


def normal(u: Numbers) -> Float[Array, " numbers"]:
    """Return Φ⁻¹(u), with u moved to the middle of its cell of width 2⁻²³: never infinite."""
    return jnp.sqrt(2.0) * jax.scipy.special.erfinv(2 * u - 1 + 2.0**-23)
