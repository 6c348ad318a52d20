"""The base of all wrappers: a wrapper *is* a gymnax `Environment`.

It changes the results of a step (`after_step`) and of a reset (`after_reset`) while the two are
still separate; only the outermost `step` merges them. So `info["final_observation"]`, the begin
flag and an empty previous action after a reset are correct without special code. Two wrappers with
equal arguments around equal environments are equal, and compile once.
"""

import abc
import copy
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from mmrl._dtypes import promoting
from mmrl.envs._gymnax import environment, spaces
from mmrl.envs.base import Obs, Reset, Resetting, Step, step_and_reset


class Wrapper(Resetting):
    """The inner environment unchanged; a subclass overrides what it changes.

    Attributes of the inner environment are under `.env` and `.unwrapped`; none are forwarded by
    name, so a wrapper copies, pickles and compares like any object.

    Raises `ValueError` around an environment that overrides `step` (a gymnax wrapper, DeepSea),
    because the effect of such a `step` would be lost.
    """

    def __init__(self, env: Any):
        if getattr(type(env), "step", None) not in (environment.Environment.step, Resetting.step):
            raise ValueError(
                "`env` must be a gymnax Environment that does not override step, got "
                f"{type(env).__name__}. Apply wrappers of mmrl.envs first, others around them, "
                "VmapAutoReset last."
            )
        self.env = env

    def after_reset(self, key: PRNGKeyArray, reset: Reset, params: Any) -> Reset:
        """Return our reset, from the inner environment's; `key` is the inner one's: see `keys`."""
        return reset

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Step, params: Any
    ) -> Step:
        """Return our step, from the inner environment's and our state `before`."""
        return step

    def keys(self, key: PRNGKeyArray) -> tuple[PRNGKeyArray, PRNGKeyArray]:
        """Return (the inner key, our key): the same one, because most wrappers use none."""
        return key, key

    @promoting
    def reset_env(self, key: PRNGKeyArray, params: Any) -> Reset:
        """Return the first observation and state."""
        inner, key = self.keys(key)
        reset = self.env.reset_env(inner, self.inner_params(params))
        return self.after_reset(key, reset, params)

    @promoting
    def step_env(self, key: PRNGKeyArray, state: Any, action: Any, params: Any) -> Step:
        """Take one step, without a reset."""
        inner, key = self.keys(key)
        here = self.inner_state(state), self.inner_action(action, params), self.inner_params(params)
        step = self.env.step_env(inner, *here)
        return self.after_step(key, state, action, step, params)

    @promoting
    def step_and_reset(
        self, key: PRNGKeyArray, state: Any, action: Any, params: Any
    ) -> tuple[Step, Reset]:
        """Return a step, and the reset that follows an end."""
        inner, key = self.keys(key)
        here = self.inner_state(state), self.inner_action(action, params), self.inner_params(params)
        step, reset = step_and_reset(self.env, inner, *here)
        step = self.after_step(key, state, action, step, params)
        return step, self.after_reset(jax.random.fold_in(key, 1), reset, params)

    @property
    def unwrapped(self) -> environment.Environment:
        """Innermost environment."""
        return self.env.unwrapped if isinstance(self.env, Wrapper) else self.env

    def inner_state(self, state: Any) -> Any:
        """Return the inner environment's state: ours, unless a wrapper has its own."""
        return state

    def inner_action(self, action: Any, params: Any) -> Any:
        """Return the inner environment's action: ours, unless a wrapper changes actions."""
        return action

    def inner_params(self, params: Any) -> Any:
        """Return the inner environment's parameters."""
        return params

    def twin(self) -> "Wrapper":
        """Return this wrapper around the inner environment's twin: see `StateObservation`."""
        outer = copy.copy(self)
        outer.env = self.env.twin() if hasattr(self.env, "twin") else self.env
        return outer

    def state_obs(self, state: Any, params: Any) -> Float[Array, " state"]:
        """Return the Markov state as a vector.

        Raises `ValueError` if the inner environment does not offer it.
        """
        if not hasattr(self.env, "state_obs"):
            raise ValueError(
                "`env` must have a method state_obs(state, params) to be observed by its state, as "
                f"POPGym's tasks and the probes do; got {self.env.name}, whose observation may be "
                "its state already: leave `observe` out, or write `state_obs` in a subclass."
            )
        return self.env.state_obs(self.inner_state(state), self.inner_params(params))

    def action_mask(self, state: Any, params: Any) -> Bool[Array, " action"]:
        """Return True for each legal action, as a method of the inner environment does."""
        mask = self.env.action_mask(self.inner_state(state), self.inner_params(params))
        return self.outer_mask(mask, params)

    def outer_mask(self, mask: Bool[Array, " inner"], params: Any) -> Bool[Array, " action"]:
        """Return our mask from the inner one: the same, unless a wrapper changes actions."""
        return mask

    def is_terminated(self, state: Any, params: Any) -> Any:
        """Return True if the episode terminates in this state."""
        return self.env.is_terminated(self.inner_state(state), self.inner_params(params))

    def is_truncated(self, state: Any, params: Any) -> Any:
        """Return True if the time limit cuts the episode in this state."""
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
        """Return the space of actions."""
        params = self.default_params if params is None else params
        return self.env.action_space(self.inner_params(params))

    def observation_space(self, params: Any) -> spaces.Space:
        """Return the space of observations."""
        return self.env.observation_space(self.inner_params(params))

    def state_space(self, params: Any) -> spaces.Space:
        """Return the space of states."""
        return self.env.state_space(self.inner_params(params))

    @property
    def supports_transition_gradients(self) -> bool:
        """True if the inner environment has a differentiable form."""
        return self.env.supports_transition_gradients

    @property
    def transition_gradients_enabled(self) -> bool:
        """True if this is the differentiable form."""
        return self.env.transition_gradients_enabled

    def with_transition_gradients(self) -> "Wrapper":
        """Return this wrapper around the inner environment's differentiable form."""
        twin = copy.copy(self)
        twin.env = self.env.with_transition_gradients()
        return twin

    def __repr__(self) -> str:
        own = [f", {name}={value!r}" for name, value in vars(self).items() if name != "env"]
        inner = repr(self.env) if isinstance(self.env, Wrapper) else self.env.name
        return f"{type(self).__name__}({inner}{''.join(own)})"


class ObservationWrapper(Wrapper):
    """A wrapper that only changes the observation, o ↦ view(o, …). A subclass defines `view`."""

    @abc.abstractmethod
    def view(
        self, key: PRNGKeyArray, obs: Obs, state: Any, cause: tuple[Any, Any] | None, params: Any
    ) -> Obs:
        """Return the new observation. `cause` is (action, reward), or None right after a reset."""

    def after_reset(self, key: PRNGKeyArray, reset: Reset, params: Any) -> Reset:
        """Return the inner reset with this wrapper's changes."""
        obs, state = reset
        return self.view(key, obs, state, None, params), state

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Step, params: Any
    ) -> Step:
        """Return the inner step with this wrapper's changes."""
        obs, state, reward, terminated, info = step
        obs = self.view(key, obs, state, (action, reward), params)
        return obs, state, reward, terminated, info


def bounds(space: Any) -> tuple[Float[Array, "*obs"], Float[Array, "*obs"]]:
    """Return the lowest and highest observation of a Box, each in the observation's shape."""
    low = jnp.broadcast_to(jnp.asarray(space.low, jnp.float32), space.shape)
    return low, jnp.broadcast_to(jnp.asarray(space.high, jnp.float32), space.shape)


def box(
    low: Float[Array, " obs"], high: Float[Array, " obs"], dtype: Any = jnp.float32
) -> spaces.Box:
    """Return the Box of vectors between `low` and `high`."""
    return spaces.Box(low, high, low.shape, dtype)


def flat(space: Any, obs: Any) -> Float[Array, " obs"]:
    """Return an observation as a vector: arrays row by row, a discrete one as one-hot.

    The parts of a dictionary follow each other in the order of their keys.
    """
    if isinstance(space, spaces.Dict):
        inner = [flat(space.spaces[key], obs[key]) for key in sorted(space.spaces)]
        return jnp.concatenate([jnp.zeros(0, jnp.float32), *inner])
    if isinstance(space, spaces.Discrete):
        return jax.nn.one_hot(obs, space.n, dtype=jnp.float32)
    return jnp.ravel(obs).astype(jnp.float32)


def flat_bounds(space: Any) -> tuple[Float[Array, " obs"], Float[Array, " obs"]]:
    """Return the lowest and the highest vector that `flat` returns."""
    if isinstance(space, spaces.Dict):
        inner = [flat_bounds(space.spaces[key]) for key in sorted(space.spaces)]
        low, high = zip((jnp.zeros(0), jnp.zeros(0)), *inner, strict=True)
        return jnp.concatenate(low), jnp.concatenate(high)
    if isinstance(space, spaces.Discrete):
        return jnp.zeros(space.n), jnp.ones(space.n)
    low, high = bounds(space)
    return low.ravel(), high.ravel()


def vector_size(env: Any, wrapper: str) -> int:
    """Return the width of the observation. Raise `ValueError` if it is not a vector."""
    space = env.observation_space(env.default_params)
    if not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise ValueError(
            f"`env` must observe a vector for {wrapper}, got {space!r}. Put FlattenObservation "
            "inside."
        )
    return int(space.shape[0])


def action_count(env: Any, params: Any = None) -> int:
    """Return the number of actions. Raises `ValueError` if they are not discrete."""
    space = env.action_space(env.default_params if params is None else params)
    if not isinstance(space, spaces.Discrete):
        raise ValueError(
            f"`env` must have discrete actions; got {space!r}. Where actions are vectors of "
            "numbers, train the agent `ppo` or `ppg`."
        )
    return int(space.n)
