"""Wrappers around an episode: its reward, its clock, its statistics, and its reset."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from mmrl._dtypes import accumulate
from mmrl.envs.wrappers.base import Obs, Reset, Step, Wrapper


class ScaleReward(Wrapper):
    """Rewards multiplied by `scale`, for the learner."""

    def __init__(self, env: Any, scale: float):
        super().__init__(env)
        self.scale = float(scale)

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Step, params: Any
    ) -> Step:
        """Return the inner step with this wrapper's changes."""
        obs, state, reward, terminated, info = step
        return obs, state, jnp.asarray(self.scale * reward, jnp.float32), terminated, info


class TimeLimit(Wrapper):
    """Truncation after T steps: an episode is cut, but never terminated, by the limit.

    T is `max_steps_in_episode` of this wrapper's parameters, so it may be traced. The inner
    environment keeps its own limit, on which the scale of a reward or a natural end may depend; so
    a limit beyond the inner one has no effect.
    """

    def __init__(self, env: Any, steps: int):
        super().__init__(env)
        if steps < 1:
            raise ValueError(f"`steps` must be at least 1, got {steps}.")
        if _contains(env, EpisodeStatistics):
            raise ValueError(
                "`env` must not count episodes yet, or it would miss those that are cut here. "
                "Write EpisodeStatistics(TimeLimit(env, steps))."
            )
        self.steps = int(steps)

    @property
    def default_params(self) -> Any:
        """Default parameters."""
        inner = self.env.default_params
        steps = min(self.steps, inner.max_steps_in_episode)
        return dataclasses.replace(inner, max_steps_in_episode=steps)

    def inner_params(self, params: Any) -> Any:
        """Return the inner environment's parameters."""
        steps = self.env.default_params.max_steps_in_episode
        return dataclasses.replace(params, max_steps_in_episode=steps)

    def is_truncated(self, state: Any, params: Any) -> Any:
        """Return True if the time limit cuts the episode in this state."""
        inner = self.env.is_truncated(state, self.inner_params(params))
        return jnp.logical_or(inner, state.time >= params.max_steps_in_episode)


class EpisodeState(NamedTuple):
    """The inner state, with the return and the length so far."""

    env_state: Any
    total: Any
    length: Any
    rest: Any  # rounding error of the total

    @property
    def time(self) -> Any:
        """Steps since the reset, as in every gymnax state."""
        return self.env_state.time


class EpisodeStatistics(Wrapper):
    """Statistics of the episode in info["episode"]: {"return": Σ r, "length": steps, "ended":
    bool}.

    Sums are undiscounted and include this step. Where "ended" is False they are the sums so far.
    Put it inside every `ScaleReward`, to count the task's rewards, and outside every `TimeLimit`.
    """

    def __init__(self, env: Any):
        super().__init__(env)
        if _contains(env, ScaleReward):
            raise ValueError(
                "`env` must pay the task's own rewards, got scaled ones. Write "
                "ScaleReward(EpisodeStatistics(env), scale)."
            )

    def inner_state(self, state: Any) -> Any:
        """Return the inner environment's state."""
        return state.env_state

    def after_reset(self, key: PRNGKeyArray, reset: Reset, params: Any) -> Reset:
        """Return the inner reset with this wrapper's changes."""
        obs, env_state = reset
        return obs, EpisodeState(env_state, jnp.float32(0), jnp.int32(0), jnp.float32(0))

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Step, params: Any
    ) -> Step:
        """Return the inner step with this wrapper's changes."""
        obs, env_state, reward, terminated, info = step
        total, rest = accumulate((before.total, before.rest), jnp.asarray(reward, jnp.float32))
        length = before.length + 1
        ended = jnp.logical_or(terminated, self.env.is_truncated(env_state, params))
        info = {**info, "episode": {"return": total, "length": length, "ended": ended}}
        return obs, EpisodeState(env_state, total, length, rest), reward, terminated, info


class VmapAutoReset(Wrapper):
    """`num_envs` environments under `jax.vmap`, with resets computed only when they are due.

    `reset` and `step` take one key, and take and return leaves [env, ...]. gymnax computes a reset
    at every step and mostly discards it; here a `lax.cond` skips it while no episode ends. That
    pays off on a CPU if resets are expensive and episodes end together (inside a further `vmap`
    both branches run anyway). It is the outermost wrapper; its spaces are those of one environment.
    """

    def __init__(self, env: Any, num_envs: int):
        super().__init__(env)
        if num_envs < 1:
            raise ValueError(f"`num_envs` must be at least 1, got {num_envs}.")
        self.num_envs = int(num_envs)

    @partial(jax.jit, static_argnames="self")
    def reset(self, key: PRNGKeyArray, params: Any = None) -> Reset:
        """Reset all environments."""
        params = self.default_params if params is None else params
        keys = jax.random.split(key, self.num_envs)
        return jax.vmap(self.env.reset_env, in_axes=(0, None))(keys, params)

    @partial(jax.jit, static_argnames="self")
    def step(
        self, key: PRNGKeyArray, state: Any, action: Any, params: Any = None
    ) -> tuple[Obs, Any, Any, Any, Any, dict[Any, Any]]:
        """Step all environments, with automatic resets."""
        params = self.default_params if params is None else params
        key_step, key_reset = jax.random.split(key)
        keys = jax.random.split(key_step, self.num_envs)
        step = jax.vmap(self.env.step_env, in_axes=(0, 0, 0, None))
        obs, state, reward, terminated, info = step(keys, state, action, params)
        truncated = jax.vmap(self.env.is_truncated, in_axes=(0, None))(state, params)
        last = jnp.logical_or(terminated, truncated)
        ends = {"terminated": terminated, "truncated": truncated, "final_observation": obs}
        obs, state = jax.lax.cond(
            last.any(),
            lambda: _where(last, self.reset(key_reset, params), (obs, state)),
            lambda: (obs, state),
        )
        return obs, state, reward, terminated, truncated, {**info, **ends}


def _where(last: Bool[Array, " env"], new: Any, old: Any) -> Any:
    """Return, leaf by leaf, `new` in those environments where `last`, otherwise `old`."""

    def pick(x: Array, y: Array) -> Array:
        return jnp.where(jnp.reshape(last, last.shape + (1,) * (y.ndim - 1)), x, y).astype(y.dtype)

    return jax.tree.map(pick, new, old)


def _contains(env: Any, kind: type) -> bool:
    """Return True if `env` or an environment inside it is of this kind."""
    return isinstance(env, kind) or (isinstance(env, Wrapper) and _contains(env.env, kind))
