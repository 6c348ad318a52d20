"""Wrappers for rewards, time limits, episode statistics and resets."""

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from mmrl._dtypes import accumulate
from mmrl._spaces import keep_stuck
from mmrl.envs.wrappers.base import Obs, Reset, Step, Wrapper


class ScaleReward(Wrapper):
    """Wrapper that multiplies rewards by `scale`."""

    def __init__(self, env: Any, scale: float):
        super().__init__(env)
        self.scale = float(scale)

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Step, params: Any
    ) -> Step:
        """Multiply the reward of the inner step by `scale`."""
        obs, state, reward, terminated, info = step
        return obs, state, jnp.asarray(self.scale * reward, jnp.float32), terminated, info


class TimeLimit(Wrapper):
    """Wrapper that truncates episodes after `steps` steps.

    The limit is also stored as `max_steps_in_episode` in the parameters, where it may be traced and
    lowered. The inner environment keeps its own limit, because its rewards or terminations may
    depend on that limit. A limit above the inner one therefore has no effect.
    """

    def __init__(self, env: Any, steps: int):
        super().__init__(env)
        if steps < 1:
            raise ValueError(f"`steps` must be at least 1, got {steps}.")
        if _contains(env, EpisodeStatistics):
            raise ValueError(
                "`env` must not contain EpisodeStatistics, which would miss the episodes that "
                f"TimeLimit truncates, got {env!r}. Use EpisodeStatistics(TimeLimit(env, steps))."
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
        """Return True if the episode is truncated in this state."""
        inner = self.env.is_truncated(state, self.inner_params(params))
        limit = jnp.minimum(self.steps, params.max_steps_in_episode)
        return jnp.logical_or(inner, state.time >= limit)


class EpisodeState(NamedTuple):
    """State of `EpisodeStatistics`."""

    env_state: Any  # state of the inner environment
    total: Any  # float32: sum of rewards since the reset
    length: Any  # int32: number of steps since the reset
    rest: Any  # float32: rounding error of `total`

    @property
    def time(self) -> Any:
        """Number of steps since the reset, which every gymnax state has."""
        return self.env_state.time


class EpisodeStatistics(Wrapper):
    """Wrapper that records the return and the length of the episode in `info["episode"]`.

    `info["episode"]` is a dictionary with the keys "return" (undiscounted), "length" and "ended".
    All values include the current step. Apply this wrapper before `ScaleReward`, so that it records
    unscaled rewards, and after `TimeLimit`.
    """

    def __init__(self, env: Any):
        super().__init__(env)
        if _contains(env, ScaleReward):
            raise ValueError(
                "`env` must have unscaled rewards for EpisodeStatistics, got an environment with "
                "ScaleReward. Use ScaleReward(EpisodeStatistics(env), scale)."
            )

    def inner_state(self, state: Any) -> Any:
        """Return the inner environment's state."""
        return state.env_state

    def after_reset(self, key: PRNGKeyArray, reset: Reset, params: Any) -> Reset:
        """Start the statistics of an episode."""
        obs, env_state = reset
        return obs, EpisodeState(env_state, jnp.float32(0), jnp.int32(0), jnp.float32(0))

    def after_step(
        self, key: PRNGKeyArray, before: Any, action: Any, step: Step, params: Any
    ) -> Step:
        """Update the statistics, and add them to `info`."""
        obs, env_state, reward, terminated, info = step
        total, rest = accumulate((before.total, before.rest), jnp.asarray(reward, jnp.float32))
        length = before.length + 1
        last = jnp.logical_or(terminated, self.env.is_truncated(env_state, params))
        info = {**info, "episode": {"return": total, "length": length, "ended": last}}
        return obs, EpisodeState(env_state, total, length, rest), reward, terminated, info


class VmapAutoReset(Wrapper):
    """Wrapper that vectorizes an environment, and computes resets only when an episode ends.

    `reset` and `step` take a single key. All other arrays have a leading axis of size `num_envs`.
    gymnax computes a reset at every step and usually discards it. Here `lax.cond` skips the reset
    if no episode ends, which saves time on a CPU when resets are expensive and episodes end at the
    same steps. Inside another `vmap`, both branches are always computed.

    This must be the outermost wrapper. Its spaces describe a single environment.
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
        """Step all environments, and reset those whose episode ends."""
        params = self.default_params if params is None else params
        key_step, key_reset = jax.random.split(key)
        keys = jax.random.split(key_step, self.num_envs)
        step = jax.vmap(self.env.step_env, in_axes=(0, 0, 0, None))
        obs, state, reward, terminated, info = step(keys, state, action, params)
        truncated = jax.vmap(self.env.is_truncated, in_axes=(0, None))(state, params)
        last = jnp.logical_or(terminated, truncated)
        ends = {"terminated": terminated, "truncated": truncated, "final_observation": obs}
        before = state
        obs, state = jax.lax.cond(
            last.any(),
            lambda: _where(last, self.reset(key_reset, params), (obs, state)),
            lambda: (obs, state),
        )
        state = keep_stuck(state, before)
        return obs, state, reward, terminated, truncated, {**info, **ends}


def _where(last: Bool[Array, " env"], new: Any, old: Any) -> Any:
    """Select `new` in environments where `last` is True, and `old` elsewhere."""

    def pick(x: Array, y: Array) -> Array:
        return jnp.where(jnp.reshape(last, last.shape + (1,) * (y.ndim - 1)), x, y).astype(y.dtype)

    return jax.tree.map(pick, new, old)


def _contains(env: Any, kind: type) -> bool:
    """Return True if `env` or one of its inner environments is an instance of `kind`."""
    return isinstance(env, kind) or (isinstance(env, Wrapper) and _contains(env.env, kind))
