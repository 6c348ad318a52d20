"""Base classes of wrappers.

A wrapper is itself a gymnax `Environment`. It transforms the results of the inner step
(`after_step`) and of the inner reset (`after_reset`) separately. Only `step` of the outermost
wrapper selects between the two, so `info["final_observation"]` and appended inputs, such as the
previous action, are correct at the end of an episode without special cases.
"""

import abc
import copy
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from mmrl._dtypes import with_promotion
from mmrl.envs._gymnax import environment, spaces
from mmrl.envs.base import AutoResetEnvironment, Ends, Obs, Reset, Step, never, step_and_reset


class Wrapper(AutoResetEnvironment):
    """Base class of wrappers. Without overrides, it behaves like the inner environment.

    Subclasses override the methods whose results they change. `env` is the inner environment, and
    `unwrapped` is the innermost one. Other attributes of the inner environment are not forwarded,
    so that wrappers can be copied, pickled and compared. Two wrappers are equal if they have equal
    arguments and equal inner environments; equal wrappers share compiled programs.

    Raises `ValueError` if the inner environment overrides `step`, as gymnax's wrappers and DeepSea
    do, because that `step` would never be called.
    """

    def __init__(self, env: Any):
        if getattr(type(env), "step", None) not in (
            environment.Environment.step,
            AutoResetEnvironment.step,
        ):
            raise ValueError(
                "`env` must be a gymnax Environment that does not override `step`, got "
                f"{type(env).__name__}. Apply the wrappers of mmrl.envs before any other wrappers, "
                "and VmapAutoReset last."
            )
        self.env = env

    def after_reset(self, key: PRNGKeyArray, reset: Reset, params: Any) -> Reset:
        """Transform the result of the inner reset. `key` is this wrapper's key, from `keys`."""
        return reset

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Step, params: Any
    ) -> Step:
        """Transform the result of the inner step.

        `before` is the state of this wrapper before the step.
        """
        return step

    def keys(self, key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray]:
        """Return a key for the inner environment and a key for this wrapper.

        By default, the keys are the same, because most wrappers do not use random numbers.
        """
        return key, key

    @with_promotion
    def reset_env(self, key: PRNGKeyArray, params: Any) -> Reset:
        """Return the initial observation and state."""
        inner, key = self.keys(key)
        reset = self.env.reset_env(inner, self.inner_params(params))
        return self.after_reset(key, reset, params)

    @with_promotion
    def step_env(self, key: PRNGKeyArray, state: Any, action: Any, params: Any) -> Step:
        """Take a step without automatic reset."""
        inner, key = self.keys(key)
        here = self.inner_state(state), self.inner_action(action, params), self.inner_params(params)
        step = self.env.step_env(inner, *here)
        return self.after_step(key, state, action, step, params)

    @with_promotion
    def step_and_reset(
        self, key: PRNGKeyArray, state: Any, action: Any, params: Any, ends: Ends = never
    ) -> tuple[Step, Reset]:
        """Return the results of a step and of the reset that follows if the episode ends."""
        inner, key = self.keys(key)
        here = self.inner_state(state), self.inner_action(action, params), self.inner_params(params)

        def ends_here(step: Step) -> Any:
            step = self.after_step(key, state, action, step, params)
            own = jnp.logical_or(step[3], self.is_truncated(step[1], params))
            return jnp.logical_or(own, ends(step))

        step, reset = step_and_reset(self.env, inner, *here, ends_here)
        step = self.after_step(key, state, action, step, params)
        return step, self.after_reset(jax.random.fold_in(key, 1), reset, params)

    @property
    def unwrapped(self) -> environment.Environment:
        """Innermost environment."""
        return self.env.unwrapped if isinstance(self.env, Wrapper) else self.env

    def inner_state(self, state: Any) -> Any:
        """Return the inner environment's state, by default `state` itself."""
        return state

    def inner_action(self, action: Any, params: Any) -> Any:
        """Return the inner environment's action, by default `action` itself."""
        return action

    def inner_params(self, params: Any) -> Any:
        """Return the inner environment's parameters."""
        return params

    def twin(self) -> "Wrapper":
        """Return this wrapper around the twin of the inner environment; see `StateObservation`."""
        outer = copy.copy(self)
        outer.env = self.env.twin() if hasattr(self.env, "twin") else self.env
        return outer

    def state_obs(self, state: Any, params: Any) -> Float[Array, " state"]:
        """Return the Markov state as a vector.

        Raises `ValueError` if the inner environment has no method `state_obs`.
        """
        if not hasattr(self.env, "state_obs"):
            raise ValueError(
                "`env` must have a method `state_obs(state, params)` if its state is observed; got "
                f"{self.env.name}. POPGym's tasks and the probes have this method. Define it in a "
                "subclass, unless the observation is already the state."
            )
        return self.env.state_obs(self.inner_state(state), self.inner_params(params))

    def action_mask(self, state: Any, params: Any) -> Bool[Array, " action"]:
        """Return the mask of legal actions, which is True for each legal action."""
        mask = self.env.action_mask(self.inner_state(state), self.inner_params(params))
        return self.outer_mask(mask, params)

    def outer_mask(self, mask: Bool[Array, " inner"], params: Any) -> Bool[Array, " action"]:
        """Transform the inner environment's mask of legal actions, by default unchanged."""
        return mask

    def is_terminated(self, state: Any, params: Any) -> Any:
        """Return True if the episode terminates in this state."""
        return self.env.is_terminated(self.inner_state(state), self.inner_params(params))

    def is_truncated(self, state: Any, params: Any) -> Any:
        """Return True if the episode is truncated in this state."""
        return self.env.is_truncated(self.inner_state(state), self.inner_params(params))

    @property
    def default_params(self) -> Any:
        """Default parameters."""
        return self.env.default_params

    @property
    def name(self) -> str:
        """Name of the environment."""
        return self.env.name

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return self.env.num_actions

    def action_space(self, params: Any = None) -> spaces.Space:
        """Return the action space."""
        params = self.default_params if params is None else params
        return self.env.action_space(self.inner_params(params))

    def observation_space(self, params: Any) -> spaces.Space:
        """Return the observation space."""
        return self.env.observation_space(self.inner_params(params))

    def state_space(self, params: Any) -> spaces.Space:
        """Return the state space."""
        return self.env.state_space(self.inner_params(params))

    @property
    def supports_transition_gradients(self) -> bool:
        """True if the inner environment has a differentiable version."""
        return self.env.supports_transition_gradients

    @property
    def transition_gradients_enabled(self) -> bool:
        """True if this is the differentiable version."""
        return self.env.transition_gradients_enabled

    def with_transition_gradients(self) -> "Wrapper":
        """Return this wrapper around the differentiable version of the inner environment."""
        twin = copy.copy(self)
        twin.env = self.env.with_transition_gradients()
        return twin

    def __repr__(self) -> str:
        own = [f", {name}={value!r}" for name, value in vars(self).items() if name != "env"]
        inner = repr(self.env) if isinstance(self.env, Wrapper) else self.env.name
        return f"{type(self).__name__}({inner}{''.join(own)})"


class ObservationWrapper(Wrapper):
    """Base class of wrappers that change only the observation. Subclasses define `view`."""

    @abc.abstractmethod
    def view(
        self, key: PRNGKeyArray, obs: Obs, state: Any, cause: tuple[Any, Any] | None, params: Any
    ) -> Obs:
        """Transform the observation.

        `cause` is the pair (action, reward) of the step before the observation, or None after a
        reset.
        """

    def after_reset(self, key: PRNGKeyArray, reset: Reset, params: Any) -> Reset:
        """Transform the observation of the inner reset."""
        obs, state = reset
        return self.view(key, obs, state, None, params), state

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Step, params: Any
    ) -> Step:
        """Transform the observation of the inner step."""
        obs, state, reward, terminated, info = step
        obs = self.view(key, obs, state, (action, reward), params)
        return obs, state, reward, terminated, info


def bounds(space: Any) -> tuple[Float[Array, "*obs"], Float[Array, "*obs"]]:
    """Return the lower and upper bounds of a Box, each with the shape of an observation."""
    low = jnp.broadcast_to(jnp.asarray(space.low, jnp.float32), space.shape)
    return low, jnp.broadcast_to(jnp.asarray(space.high, jnp.float32), space.shape)


def box(
    low: Float[Array, " obs"], high: Float[Array, " obs"], dtype: Any = jnp.float32
) -> spaces.Box:
    """Return the Box of vectors between `low` and `high`."""
    return spaces.Box(low, high, low.shape, dtype)


def flat(space: Any, obs: Any) -> Float[Array, " obs"]:
    """Flatten an observation to a vector. Discrete values are one-hot encoded.

    Arrays are flattened in row-major order, and dictionaries are sorted by key.
    """
    if isinstance(space, spaces.Dict):
        inner = [flat(space.spaces[key], obs[key]) for key in sorted(space.spaces)]
        return jnp.concatenate([jnp.zeros(0, jnp.float32), *inner])
    if isinstance(space, spaces.Discrete):
        return jax.nn.one_hot(obs, space.n, dtype=jnp.float32)
    return jnp.ravel(obs).astype(jnp.float32)


def flat_bounds(space: Any) -> tuple[Float[Array, " obs"], Float[Array, " obs"]]:
    """Return the lower and upper bounds of flattened observations."""
    if isinstance(space, spaces.Dict):
        inner = [flat_bounds(space.spaces[key]) for key in sorted(space.spaces)]
        low, high = zip((jnp.zeros(0), jnp.zeros(0)), *inner, strict=True)
        return jnp.concatenate(low), jnp.concatenate(high)
    if isinstance(space, spaces.Discrete):
        return jnp.zeros(space.n), jnp.ones(space.n)
    low, high = bounds(space)
    return low.ravel(), high.ravel()


def vector_size(env: Any, wrapper: str) -> int:
    """Return the size of a vector observation. Raises `ValueError` for any other observation."""
    space = env.observation_space(env.default_params)
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise ValueError(
            f"`env` must have vector observations for {wrapper}, got {space!r}. Wrap it in "
            "FlattenObservation first."
        )
    return int(space.shape[0])


def action_count(env: Any, params: Any = None) -> int:
    """Return the number of actions. Raises `ValueError` if the actions are not discrete."""
    space = env.action_space(env.default_params if params is None else params)
    if not isinstance(space, spaces.Discrete):
        raise ValueError(
            f"`env` must have discrete actions, got {space!r}. For continuous actions, use an "
            "agent that supports them, such as `ppo`."
        )
    return int(space.n)
