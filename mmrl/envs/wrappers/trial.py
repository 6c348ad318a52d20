"""Trials of several episodes, over which a memory is kept: RL² (Duan et al. 2016).

An agent that remembers earlier episodes can learn, within a trial, which task it plays. So the
environment is reset after each episode, and the memory only after each trial.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from mmrl.envs._gymnax import spaces
from mmrl.envs.wrappers.base import Obs, Reset, Step, Wrapper, bounds, box, vector_size


class TrialState(NamedTuple):
    """The inner state, and the progress of the trial."""

    env_state: Any
    episodes: Array  # int32: number of episodes that have ended
    time: Array  # int32: steps since the trial began


class Trial(Wrapper):
    """`episodes` episodes joined into one, so that a memory is reset only where the trial begins.

    There are two flags. `begin` of a rollout marks the first step of a trial, where the memory is
    reset. The last element that this wrapper appends to the observation is 1 at the first
    observation of each episode, where the environment was reset. The end of an episode inside a
    trial does not end the return: values look ahead to the next one. A trial ends with its last
    episode, and is terminated or truncated as that one is.

    Put `PreviousAction` and `PreviousReward` around it (`observes` of a run does): they then show
    the last step of an episode with the first observation of the next one. The last observation of
    the episode itself is not shown.

    An environment with a method `next_episode(key, state, params)` -> (obs, state) keeps everything
    there that belongs to the trial, such as the task. Others are reset as usual, at random.
    `max_steps_in_episode` of the parameters limits the whole trial.

    Raises `ValueError` if `episodes` is not positive, if the observation is not a vector, and for
    environments that call Python, such as gymnasium's.
    """

    def __init__(self, env: Any, episodes: int):
        super().__init__(env)
        if not isinstance(episodes, int) or episodes < 1:
            raise ValueError(f"`episodes` must be an integer of at least 1, got {episodes!r}.")
        vector_size(env, "Trial")
        task = env.unwrapped if isinstance(env, Wrapper) else env
        if getattr(task, "python", False):
            raise ValueError(
                f"`env` must be written in JAX, because Trial resets it at every step; got {env!r}."
            )
        if hasattr(task, "next_episode") and task is not env:
            raise ValueError(
                f"`env` must be {task.name} itself, which keeps its task over a trial; got "
                f"{env!r}. Write the other wrappers around Trial({task.name}, {episodes})."
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
        """Return the inner reset with this wrapper's changes."""
        obs, env_state = reset
        zero = jnp.int32(0)
        return _flagged(obs, True), TrialState(env_state, zero, zero)

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Step, params: Any
    ) -> Step:
        """Return the inner step with this wrapper's changes."""
        obs, env_state, reward, terminated, info = step
        inner = self.inner_params(params)
        ended = jnp.logical_or(terminated, self.env.is_truncated(env_state, inner))
        episodes = before.episodes + ended
        again = ended & (episodes < self.episodes)
        following = self._next_episode(jax.random.fold_in(key, 2), env_state, inner)
        obs, env_state = jax.tree.map(
            lambda new, old: jnp.where(again, new, old), following, (obs, env_state)
        )
        state = TrialState(env_state, episodes, before.time + 1)
        return _flagged(obs, again), state, reward, terminated & ~again, info

    def is_terminated(self, state: Any, params: Any) -> Any:
        """Return True if the episode terminates in this state."""
        inner = self.env.is_terminated(state.env_state, self.inner_params(params))
        return inner & (state.episodes >= self.episodes)

    def is_truncated(self, state: Any, params: Any) -> Any:
        """Return True if the time limit cuts the episode in this state."""
        inner = self.env.is_truncated(state.env_state, self.inner_params(params))
        return (inner & (state.episodes >= self.episodes)) | (
            state.time >= params.max_steps_in_episode
        )

    def state_obs(self, state: Any, params: Any) -> Float[Array, " state"]:
        """Return the inner state, and the shares of the trial's episodes and steps so far."""
        inner = self.env.state_obs(state.env_state, self.inner_params(params))
        shares = state.episodes / self.episodes, state.time / params.max_steps_in_episode
        return jnp.concatenate([inner, jnp.stack(shares).astype(inner.dtype)])

    def state_space(self, params: Any) -> spaces.Box:
        """Return the space of states."""
        low, high = bounds(self.env.state_space(self.inner_params(params)))
        return box(jnp.append(low, jnp.zeros(2)), jnp.append(high, jnp.ones(2)))

    def observation_space(self, params: Any) -> spaces.Box:
        """Return the space of observations."""
        space = self.env.observation_space(self.inner_params(params))
        low, high = bounds(space)
        return box(jnp.append(low, 0.0), jnp.append(high, 1.0), space.dtype)

    def _next_episode(self, key: PRNGKeyArray, state: Any, params: Any) -> Reset:
        if hasattr(self.env, "next_episode"):
            return self.env.next_episode(key, state, params)
        return self.env.reset_env(key, params)


def _flagged(obs: Obs, begin: Any) -> Obs:
    return jnp.append(obs, jnp.asarray(begin, obs.dtype))
