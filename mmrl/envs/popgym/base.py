"""Base class of the POPGym tasks.

The tasks reproduce popgym 1.0.7 step by step (Morad et al. 2023, "POPGym: Benchmarking Partially
Observable Reinforcement Learning"), with the same rewards, episode lengths and flags. Observations
are flattened as by `gymnasium.spaces.flatten`.

A task consists of three deterministic functions: `start(u)`, `advance(u, state, action)` and
`look(state)`. The only source of randomness is u, a vector of uniform samples.

Start reading with `repeat_previous.py`. All other tasks have the same structure.
"""

import abc
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Integer, PRNGKeyArray

from mmrl._dtypes import with_promotion
from mmrl.envs._gymnax import environment, spaces
from mmrl.envs.base import AutoResetEnvironment, Ends, never

Action = Integer[Array, ""] | Float[Array, " action"] | int
Numbers = Float[Array, " numbers"]
Params = environment.EnvParams
Info = dict[str, Any]
Step = tuple[Float[Array, " obs"], Any, Float[Array, ""], Bool[Array, ""], Info]
Reset = tuple[Float[Array, " obs"], Any]
# Fields of a state are arrays. Their type is Any, because JAX also fills states with placeholders.
Leaf = Any


class Task(AutoResetEnvironment):
    """Base class of tasks, defined by the functions `start`, `advance` and `look`.

    s_0 = start(u), (s_{t+1}, r_t) = advance(u, s_t, a_t), o_t = look(s_t), with u ~ U[0, 1)ⁿ.

    Subclasses implement these functions, `is_terminated` and `state_obs`, and set the attributes
    from `num_steps` to `step_numbers`.
    """

    num_steps: int  # number of steps in the longest episode
    actions: int  # number of actions
    obs_size: int  # size of an observation
    state_size: int  # size of the vector that `state_obs` returns
    start_numbers: int  # number of uniform samples used by `start`
    step_numbers: int  # number of uniform samples used by `advance`

    @abc.abstractmethod
    def start(self, u: Numbers, params: Params) -> Any:
        """Return the initial state of an episode."""

    @abc.abstractmethod
    def advance(
        self, u: Numbers, state: Any, action: Action, params: Params
    ) -> tuple[Any, Float[Array, ""]]:
        """Return the next state and the reward. The state's `time` increases by one."""

    @abc.abstractmethod
    def look(self, state: Any, params: Params) -> Float[Array, " obs"]:
        """Return the observation of a state."""

    @abc.abstractmethod
    def is_terminated(self, state: Any, params: Params) -> Bool[Array, ""]:
        """Return True if the episode terminates in this state."""

    @abc.abstractmethod
    def state_obs(self, state: Any, params: Params) -> Float[Array, " state"]:
        """Return the Markov state as a vector.

        The vector is popgym's `get_state`, flattened, plus any information needed to make it
        Markov. It includes the hidden squares of a board, but not cards that have not been dealt,
        because a card is sampled when it is dealt.
        """

    def twin(self) -> "Task":
        """Return the task that `StateObservation` wraps, by default this task."""
        return self

    def observe(
        self, key: PRNGKeyArray, state: Any, action: Action | None, params: Params
    ) -> Float[Array, " obs"]:
        """Return `look(state)`. Neither the key nor the action is used."""
        return self.look(state, params)

    @with_promotion
    def reset_env(self, key: PRNGKeyArray, params: Params) -> Reset:
        """Return the initial observation and state."""
        return self._reset(jax.random.uniform(key, (self.start_numbers,), jnp.float32), params)

    @with_promotion
    def step_env(self, key: PRNGKeyArray, state: Any, action: Action, params: Params) -> Step:
        """Take a step without automatic reset; return (obs, state, reward, terminated, info)."""
        u = jax.random.uniform(key, (self.step_numbers,), jnp.float32)
        return self._step(u, state, action, params)

    @with_promotion
    def step_and_reset(
        self, key: PRNGKeyArray, state: Any, action: Action, params: Params, ends: Ends = never
    ) -> tuple[Step, Reset]:
        """Return the results of a step and of a reset, sampling all random numbers at once.

        gymnax calls the random generator three times: to split the key, for the step, and for the
        reset. On a CPU, these calls would dominate the cost of a step.
        """
        u = jax.random.uniform(key, (self.step_numbers + self.start_numbers,), jnp.float32)
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
        """Default parameters, with `num_steps` as time limit. A smaller limit truncates."""
        return Params(max_steps_in_episode=self.num_steps)

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return self.actions

    def action_space(self, params: Params | None = None) -> spaces.Discrete:
        """Return the action space."""
        return spaces.Discrete(self.actions)

    def observation_space(self, params: Params | None = None) -> spaces.Box:
        """Return the observation space."""
        return spaces.Box(0.0, 1.0, (self.obs_size,), jnp.float32)

    def state_space(self, params: Params | None = None) -> spaces.Box:
        """Return the space of `state_obs`."""
        return spaces.Box(0.0, 1.0, (self.state_size,), jnp.float32)


class Entry(NamedTuple):
    """Entry of `TASKS`: a task, its levels, and published scores.

    The scores are MMERs, maxima over training of the mean episodic return. The values of Morad et
    al. 2023, Appendix B, Table 3, were copied from a secondary source.
    """

    build: Callable[..., Task]
    levels: dict[str, dict[str, Any]]  # arguments of `build` for each level
    gru: tuple[float, float, float] | None = None  # scores of the GRU on Easy, Medium and Hard
    # Per level, the score and name of another model in the paper that outperforms the GRU.
    better: Mapping[str, tuple[float, str]] = {}
    changed: bool = False  # True if the task has changed since the paper was published


def levels(**arguments: tuple[Any, Any, Any]) -> dict[str, dict[str, Any]]:
    """Return the arguments of each level, given values for Easy, Medium and Hard."""
    each = zip(*arguments.values(), strict=True)
    rows = (dict(zip(arguments, values, strict=True)) for values in each)
    return dict(zip(("Easy", "Medium", "Hard"), rows, strict=True))


def one_hot(value: Int[Array, "*shape"], size: int) -> Float[Array, "*shape size"]:
    """Return float32 one-hot encodings of `value`. Values outside 0..size-1 become zeros."""
    return jax.nn.one_hot(value, size, dtype=jnp.float32)


def plus_minus(right: Bool[Array, ""], scale: float) -> Float[Array, ""]:
    """Return `scale` where `right` is True, and -`scale` elsewhere."""
    return jnp.where(right, jnp.float32(scale), jnp.float32(-scale))


def check_positive(name: str, value: Any, remedy: str) -> None:
    """Raise `ValueError` unless `value` is a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"`{name}` must be a positive integer, got {value!r}: {remedy}.")


def check_noise(sigma: Any, place: str) -> None:
    """Raise `ValueError` unless `sigma` is finite and nonnegative."""
    if not 0 <= sigma < float("inf"):
        raise ValueError(
            f"`sigma` must be finite and nonnegative, got {sigma!r}. It is the standard deviation "
            f"of the noise {place}. The Easy level uses 0.1."
        )


def normal(u: Numbers) -> Float[Array, " numbers"]:
    """Convert uniform samples u to standard normal samples Φ⁻¹(u).

    The samples are multiples of 2⁻²³, including 0. Adding 2⁻²⁴ to them keeps the result finite.
    """
    return jnp.sqrt(2.0) * jax.scipy.special.erfinv(2 * u - 1 + 2.0**-23)
