"""The interface of all POPGym tasks: gymnax's, built from three pure functions.

The tasks equal popgym 1.0.7 step by step (Morad et al. 2023, "POPGym: Benchmarking Partially
Observable Reinforcement Learning"): rewards, lengths, flags, and observations as
`gymnasium.spaces.flatten` returns them. A task is `start(u)`, `advance(u, state, action)` and
`look(state)`. All randomness is in u, uniform numbers, so the functions are deterministic.

Read `repeat_previous.py` first; every other file has the same structure.
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
# Fields are not type-checked: a field is an array, but jax also builds states from placeholders.
Leaf = Any


class Task(Resetting):
    """A task of three functions: `start`, `advance` and `look`.

    s_0 = start(u), (s_{t+1}, r_t) = advance(u, s_t, a_t), o_t = look(s_t), u ~ U[0, 1)ⁿ. A subclass
    sets the six sizes in `__init__` and defines these functions, `is_terminated` and `state_obs`.
    """

    num_steps: int  # steps in the longest episode
    actions: int  # actions to choose from
    obs_size: int  # width of an observation
    state_size: int  # width of `state_obs`
    start_numbers: int  # uniform numbers that `start` takes
    step_numbers: int  # uniform numbers that `advance` takes

    @abc.abstractmethod
    def start(self, u: Numbers, params: Params) -> Any:
        """Return the first state of an episode."""

    @abc.abstractmethod
    def advance(
        self, u: Numbers, state: Any, action: Action, params: Params
    ) -> tuple[Any, Float[Array, ""]]:
        """Return the next state, with time increased by one, and the reward."""

    @abc.abstractmethod
    def look(self, state: Any, params: Params) -> Float[Array, " obs"]:
        """Return the observation, a function of only the state."""

    @abc.abstractmethod
    def is_terminated(self, state: Any, params: Params) -> Bool[Array, ""]:
        """Return True if the episode ended by itself when this state was reached."""

    @abc.abstractmethod
    def state_obs(self, state: Any, params: Params) -> Float[Array, " state"]:
        """Return the Markov state as a vector: popgym's `get_state`, flattened.

        If that is not Markov, the vector contains more. A card that has not been dealt is not part
        of the state, because it is dealt at random when it is needed. Everything on a board is part
        of it, even if it is hidden.
        """

    def twin(self) -> "Task":
        """Return this task in the form that `StateObservation` shows: here, itself."""
        return self

    def observe(
        self, key: PRNGKeyArray, state: Any, action: Action | None, params: Params
    ) -> Float[Array, " obs"]:
        """Return look(s), which does not depend on the key and the action."""
        return self.look(state, params)

    @promoting
    def reset_env(self, key: PRNGKeyArray, params: Params) -> Reset:
        """Return the first observation and state."""
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
        """Return (`step_env`, `reset_env`) from one call of the random generator.

        gymnax splits the key, and step and reset draw separately: on a CPU these three calls take
        most of the time.
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
        """Parameters with the true length of an episode as limit; a smaller limit truncates."""
        return Params(max_steps_in_episode=self.num_steps)

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return self.actions

    def action_space(self, params: Params | None = None) -> spaces.Discrete:
        """Return the space of actions."""
        return spaces.Discrete(self.actions)

    def observation_space(self, params: Params | None = None) -> spaces.Box:
        """Return the space of observations."""
        return spaces.Box(0.0, 1.0, (self.obs_size,), jnp.float32)

    def state_space(self, params: Params | None = None) -> spaces.Box:
        """Return the space of states."""
        return spaces.Box(0.0, 1.0, (self.state_size,), jnp.float32)


class Entry(NamedTuple):
    """A row of a file's `TASKS`: a task with its levels, and the scores of POPGym's paper.

    Scores are MMERs of Morad et al. 2023, Appendix B, Table 3, transcribed at second hand.
    """

    build: Callable[..., Task]
    levels: dict[str, dict[str, Any]]  # level: arguments of `build`
    gru: tuple[float, float, float] | None = None  # scores of its GRU: Easy, Medium, Hard
    # by level, score and name of a better model of its thirteen, as far as transcribed
    better: Mapping[str, tuple[float, str]] = {}
    changed: bool = False  # True if the task changed since the paper, so that scores do not compare


def levels(**arguments: tuple[Any, Any, Any]) -> dict[str, dict[str, Any]]:
    """Return the arguments of each level, from those of Easy, Medium and Hard in turn."""
    each = zip(*arguments.values(), strict=True)
    rows = (dict(zip(arguments, values, strict=True)) for values in each)
    return dict(zip(("Easy", "Medium", "Hard"), rows, strict=True))


def one_hot(value: Int[Array, "*shape"], size: int) -> Float[Array, "*shape size"]:
    """Return the float32 one-hot encoding of 0..size-1; zeros for any other value."""
    return jax.nn.one_hot(value, size, dtype=jnp.float32)


def plus_minus(right: Bool[Array, ""], scale: float) -> Float[Array, ""]:
    """Return +scale for a right answer, -scale for a wrong one."""
    return jnp.where(right, jnp.float32(scale), jnp.float32(-scale))


def check_positive(name: str, value: Any, remedy: str) -> None:
    """Raise `ValueError` unless the argument is a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"`{name}` must be a positive integer, got {value!r}: {remedy}.")


def check_noise(sigma: Any, place: str) -> None:
    """Raise `ValueError` unless `sigma`, the noise at a place, is a finite number ≥ 0."""
    if not 0 <= sigma < float("inf"):
        raise ValueError(
            f"`sigma` must be a finite number ≥ 0, got {sigma!r}. It is the standard deviation of "
            f"the noise {place}; 0.1 is the Easy level."
        )


def normal(u: Numbers) -> Float[Array, " numbers"]:
    """Return Φ⁻¹(u), with u moved to the middle of its cell of width 2⁻²³: never infinite."""
    return jnp.sqrt(2.0) * jax.scipy.special.erfinv(2 * u - 1 + 2.0**-23)
