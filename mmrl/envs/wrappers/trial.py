"""Trials of several episodes, across which an agent keeps its memory, as in RL² (Duan et al. 2016).

The environment is reset after each episode, but the memory is reset only after each trial, so an
agent can infer the task from earlier episodes of the trial.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from mmrl.envs._gymnax import spaces
from mmrl.envs.wrappers.base import Obs, Reset, Step, Wrapper, bounds, box, vector_size


class TrialState(NamedTuple):
    """State of `Trial`."""

    env_state: Any  # state of the inner environment
    episodes: Array  # int32: number of completed episodes
    time: Array  # int32: number of steps since the start of the trial


class Trial(Wrapper):
    """Wrapper that joins several episodes into a trial, which agents treat as one long episode.

    The memory is reset only at the first step of a trial, where `begin` of the rollout is True.
    Returns and values extend over all remaining episodes of the trial. The wrapper appends a flag
    to the observation, which is 1 at the first step of each episode. The last observation of an
    episode is replaced by the first one of the next episode. A trial ends with its last episode,
    and is terminated or truncated like that episode. The parameter `max_steps_in_episode` limits
    the length of the trial.

    Apply `PreviousAction` and `PreviousReward` after this wrapper, as runs do for `observes`. At
    the first step of an episode, these wrappers then append the last action and reward of the
    previous episode.

    An environment may define a method `next_episode(key, state, params)`, which returns (obs,
    state) and preserves what is constant during a trial, such as the task. Without this method, the
    environment is reset at random. Inner wrappers, such as `FlattenObservation`, treat every
    episode separately.

    Raises `ValueError` if `episodes` is not positive, if the observation is not a vector, or if the
    environment calls Python, as gymnasium's environments do.
    """

    def __init__(self, env: Any, episodes: int):
        super().__init__(env)
        if not isinstance(episodes, int) or episodes < 1:
            raise ValueError(f"`episodes` must be a positive integer, got {episodes!r}.")
        vector_size(env, "Trial")
        task = env.unwrapped if isinstance(env, Wrapper) else env
        if getattr(task, "python", False):
            raise ValueError(
                f"`env` must be written in JAX, because Trial resets it at every step; got {env!r}."
            )
        self.episodes = episodes

    @property
    def default_params(self) -> Any:
        """Default parameters."""
        inner = self.env.default_params
        steps = self.episodes * inner.max_steps_in_episode
        return inner.replace(max_steps_in_episode=steps)

    def inner_params(self, params: Any) -> Any:
        """Return the inner environment's parameters."""
        steps = self.env.default_params.max_steps_in_episode
        return params.replace(max_steps_in_episode=steps)

    def inner_state(self, state: Any) -> Any:
        """Return the inner environment's state."""
        return state.env_state

    def after_reset(self, key: PRNGKeyArray, reset: Reset, params: Any) -> Reset:
        """Start a trial, and append the flag to the observation."""
        obs, env_state = reset
        zero = jnp.int32(0)
        return _with_flag(obs, True), TrialState(env_state, zero, zero)

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Step, params: Any
    ) -> Step:
        """Begin the next episode if one ends, and append the flag to the observation."""
        obs, env_state, reward, terminated, info = step
        inner = self.inner_params(params)
        last = jnp.logical_or(terminated, self.env.is_truncated(env_state, inner))
        episodes = before.episodes + last
        again = last & (episodes < self.episodes)
        following = next_episode(self.env, jax.random.fold_in(key, 2), env_state, inner)
        obs, env_state = jax.tree.map(
            lambda new, old: jnp.where(again, new, old), following, (obs, env_state)
        )
        state = TrialState(env_state, episodes, before.time + 1)
        return _with_flag(obs, again), state, reward, terminated & ~again, info

    def is_terminated(self, state: Any, params: Any) -> Any:
        """Return True if the trial terminates in this state."""
        inner = self.env.is_terminated(state.env_state, self.inner_params(params))
        return inner & (state.episodes >= self.episodes)

    def is_truncated(self, state: Any, params: Any) -> Any:
        """Return True if the trial is truncated in this state."""
        inner = self.env.is_truncated(state.env_state, self.inner_params(params))
        return (inner & (state.episodes >= self.episodes)) | (
            state.time >= params.max_steps_in_episode
        )

    def state_obs(self, state: Any, params: Any) -> Float[Array, " state"]:
        """Return the inner state, and the fractions of episodes and of steps completed."""
        inner = self.env.state_obs(state.env_state, self.inner_params(params))
        shares = state.episodes / self.episodes, state.time / params.max_steps_in_episode
        return jnp.concatenate([inner, jnp.stack(shares).astype(inner.dtype)])

    def state_space(self, params: Any) -> spaces.Box:
        """Return the state space."""
        low, high = bounds(self.env.state_space(self.inner_params(params)))
        return box(jnp.append(low, jnp.zeros(2)), jnp.append(high, jnp.ones(2)))

    def observation_space(self, params: Any) -> spaces.Box:
        """Return the observation space, including the flag."""
        space = self.env.observation_space(self.inner_params(params))
        low, high = bounds(space)
        return box(jnp.append(low, 0.0), jnp.append(high, 1.0), space.dtype)


def next_episode(env: Any, key: PRNGKeyArray, state: Any, params: Any) -> Reset:
    """Return the first observation and state of the next episode of a trial.

    This function calls the method `next_episode` of `env` or of the environment inside its
    wrappers. Without this method, the environment is reset.
    """
    if hasattr(env, "next_episode"):
        return env.next_episode(key, state, params)
    if not _keeps(env):
        return env.reset_env(key, params)
    inner, key = env.keys(key)
    reset = next_episode(env.env, inner, env.inner_state(state), env.inner_params(params))
    return env.after_reset(key, reset, params)


def _keeps(env: Any) -> bool:
    """Return True if `env` or one of its inner environments has a method `next_episode`."""
    return hasattr(env, "next_episode") or (isinstance(env, Wrapper) and _keeps(env.env))


def _with_flag(obs: Obs, begin: Any) -> Obs:
    return jnp.append(obs, jnp.asarray(begin, obs.dtype))
