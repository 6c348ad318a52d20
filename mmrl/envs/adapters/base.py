"""Base class of adapters, which convert other libraries' environments to gymnax's interface."""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from mmrl._dtypes import with_promotion
from mmrl._spaces import holds
from mmrl.envs._gymnax import environment, spaces
from mmrl.envs.base import AutoResetEnvironment, Ends, Obs, Reset, Step, never


class Outcome(NamedTuple):
    """Result of a library's step, without automatic reset."""

    obs: Any
    state: Any
    reward: Any
    terminated: Any  # bool: True if a terminal state was reached
    truncated: Any  # bool: True if the library's time limit ended the episode


@struct.dataclass
class State(environment.EnvState):
    """State of an adapter."""

    time: Any  # int32: number of steps since the reset
    inner: Any  # state of the library's environment
    terminated: Any  # bool: True if the last step terminated the episode
    truncated: Any  # bool: True if the last step truncated the episode


class Adapter(AutoResetEnvironment):
    """Base class of adapters for the environments of a library.

    Subclasses implement `first`, `next` and the two spaces. The only parameter is
    `max_steps_in_episode`, whose default is the library's time limit. A smaller limit truncates
    episodes. If a library reports its time limit as a termination, the adapter also reports a
    termination, unless the adapter can detect the limit, as in Craftax.
    """

    python = False  # True if steps and resets call Python

    def __init__(self, env: Any, num_steps: int):
        self.env, self.num_steps, self.title = env, int(num_steps), type(self).__name__

    @abc.abstractmethod
    def first(self, key: PRNGKeyArray) -> tuple[Any, Any]:
        """Reset the library's environment; return its observation and state."""

    @abc.abstractmethod
    def next(self, key: PRNGKeyArray, inner: Any, action: Any) -> Outcome:
        """Step the library's environment from state `inner`, without automatic reset."""

    @with_promotion
    def reset_env(self, key: PRNGKeyArray, params: Any) -> Reset:
        """Return the initial observation and state."""
        return self._reset_result(*self.first(key))

    @with_promotion
    def step_env(self, key: PRNGKeyArray, state: State, action: Any, params: Any) -> Step:
        """Take a step without automatic reset."""
        obs, inner, reward, *ends = jax.lax.stop_gradient(self.next(key, state.inner, action))
        terminated, truncated = (jnp.asarray(x, bool) for x in ends)
        state = State(state.time + 1, inner, terminated, truncated)
        return self._observation(obs), state, jnp.asarray(reward, jnp.float32), terminated, {}

    def step_and_reset(
        self, key: PRNGKeyArray, state: Any, action: Any, params: Any, ends: Ends = never
    ) -> tuple[Step, Reset]:
        """Return the results of a step and of the reset that follows if the episode ends."""
        key_step, key_reset = jax.random.split(key)
        step = self.step_env(key_step, state, action, params)
        return step, self.reset_env(key_reset, params)

    def is_terminated(self, state: State, params: Any) -> Bool[Array, ""]:
        """Return True if the library terminated the episode."""
        return state.terminated

    def is_truncated(self, state: State, params: Any) -> Bool[Array, ""]:
        """Return True at the library's time limit or at `max_steps_in_episode`."""
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

    def _reset_result(self, obs: Any, inner: Any) -> Reset:
        no = jnp.asarray(False)
        return self._observation(obs), State(jnp.int32(0), inner, no, no)

    def _observation(self, obs: Any) -> Obs:
        return jnp.asarray(obs, self.observation_space().dtype)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def box(low: Any, high: Any, shape: Any, dtype: Any) -> spaces.Box:
    """Return a Box in JAX's version of `dtype`, or in float32 if that cannot hold the bounds."""
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    space = spaces.Box(low, high, tuple(int(n) for n in shape), jnp.dtype(dtype))
    return space if holds(space, space.dtype) else spaces.Box(low, high, space.shape, jnp.float32)


def flat(obs: Any) -> Float[Array, " obs"]:
    """Flatten a nested observation to a float32 vector."""
    return jnp.concatenate([jnp.ravel(x).astype(jnp.float32) for x in jax.tree.leaves(obs)])


def on_host(function: Callable, like: Any, *arguments: Any) -> Any:
    """Call a Python function from a compiled program, once for all environments in a `jax.vmap`.

    The results for one environment have the shapes and dtypes of `like`. The function receives and
    returns arrays with a leading axis of environments; the first of the `arguments` is a scalar.
    The function must be pure, because XLA may repeat or omit calls.
    """
    types = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), like)

    def call(*arguments: Any) -> Any:
        batch = np.shape(arguments[0])
        rows = [np.asarray(x).reshape(-1, *np.shape(x)[len(batch) :]) for x in arguments]
        shape = lambda x, kind: np.asarray(x, kind.dtype).reshape(*batch, *kind.shape)  # noqa: E731
        return jax.tree.map(shape, function(*rows), types)

    return jax.pure_callback(call, types, *arguments, vmap_method="broadcast_all")
