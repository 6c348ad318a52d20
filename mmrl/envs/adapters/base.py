"""The interface of gymnax over an environment of another library."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from mmrl._dtypes import promoting
from mmrl._spaces import holds
from mmrl.envs._gymnax import environment, spaces
from mmrl.envs.base import Obs, Reset, Resetting, Step


class Outcome(NamedTuple):
    """One step of a library, without a reset."""

    obs: Any
    state: Any
    reward: Any
    terminated: Any  # the task is over, so the target has no bootstrap
    truncated: Any  # the library's clock ended the episode, so the target bootstraps


@struct.dataclass
class State(environment.EnvState):
    """The library's state, and how its last step ended."""

    time: Any  # int32: steps since the reset
    inner: Any
    terminated: Any  # bool
    truncated: Any  # bool


class Adapter(Resetting):
    """An environment of another library, `env`. A subclass writes `first`, `next` and two spaces.

    Its parameters consist of `max_steps_in_episode`, by default the library's own limit; a smaller
    one truncates. An end that the library itself counts as a termination is one, also by a clock.
    """

    python = False  # True if each step and each reset calls Python

    def __init__(self, env: Any, num_steps: int):
        self.env, self.num_steps, self.title = env, int(num_steps), type(self).__name__

    @abc.abstractmethod
    def first(self, key: PRNGKeyArray) -> tuple[Any, Any]:
        """Return the first observation of an episode, and the library's state."""

    @abc.abstractmethod
    def next(self, key: PRNGKeyArray, inner: Any, action: Any) -> Outcome:
        """Return a step from the library's state, without its automatic reset."""

    @promoting
    def reset_env(self, key: PRNGKeyArray, params: Any) -> Reset:
        """Return the first observation and state."""
        return self._begun(*self.first(key))

    @promoting
    def step_env(self, key: PRNGKeyArray, state: State, action: Any, params: Any) -> Step:
        """Take one step, without a reset."""
        obs, inner, reward, *ends = jax.lax.stop_gradient(self.next(key, state.inner, action))
        terminated, truncated = (jnp.asarray(x, bool) for x in ends)
        state = State(state.time + 1, inner, terminated, truncated)
        return self._shown(obs), state, jnp.asarray(reward, jnp.float32), terminated, {}

    def step_and_reset(
        self, key: PRNGKeyArray, state: Any, action: Any, params: Any
    ) -> tuple[Step, Reset]:
        """Return a step, and the reset that follows an end."""
        key_step, key_reset = jax.random.split(key)
        step = self.step_env(key_step, state, action, params)
        return step, self.reset_env(key_reset, params)

    def is_terminated(self, state: State, params: Any) -> Bool[Array, ""]:
        """Return True if the library ended the task itself."""
        return state.terminated

    def is_truncated(self, state: State, params: Any) -> Bool[Array, ""]:
        """Return True at the library's limit of steps, or at the parameters' limit."""
        return state.truncated | (state.time >= params.max_steps_in_episode)

    @property
    def default_params(self) -> environment.EnvParams:
        """Default parameters."""
        return environment.EnvParams(max_steps_in_episode=self.num_steps)

    @property
    def name(self) -> str:
        """Name of the environment."""
        return self.title

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return int(self.action_space().n)

    @abc.abstractmethod
    def action_space(self, params: Any = None) -> Any: ...

    @abc.abstractmethod
    def observation_space(self, params: Any = None) -> spaces.Box: ...

    def _begun(self, obs: Any, inner: Any) -> Reset:
        no = jnp.asarray(False)
        return self._shown(obs), State(jnp.int32(0), inner, no, no)

    def _shown(self, obs: Any) -> Obs:
        return jnp.asarray(obs, self.observation_space().dtype)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def box(low: Any, high: Any, shape: Any, dtype: Any) -> spaces.Box:
    """Return a Box in JAX's precision, of float32 where its bounds do not fit into `dtype`."""
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    space = spaces.Box(low, high, tuple(int(n) for n in shape), jnp.dtype(dtype))
    return space if holds(space, space.dtype) else spaces.Box(low, high, space.shape, jnp.float32)


def flat(obs: Any) -> Float[Array, " obs"]:
    """Return all numbers of a nested observation as one vector."""
    return jnp.concatenate([jnp.ravel(x).astype(jnp.float32) for x in jax.tree.leaves(obs)])


def on_host(function: Callable, like: Any, *given: Any) -> Any:
    """Call a Python function of one environment at a time; its result has the types of `like`.

    The program may call it more or less often than it is written, so it must be pure.
    """
    types = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), like)
    return jax.pure_callback(function, types, *given, vmap_method="sequential")
