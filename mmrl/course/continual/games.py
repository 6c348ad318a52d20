"""Families of different environments, of which the parameter `task` selects one.

`cycles.cycle` can then train on all of them at once, with one program for all tasks. In contrast to
`PermutedTasks`, the tasks are different environments. With `jax.vmap` over tasks, JAX computes the
steps of all environments and selects one, so a step costs as much as one step of each.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from mmrl.envs import make
from mmrl.envs._gymnax import spaces
from mmrl.envs.base import AutoResetEnvironment, Ends, Obs, Reset, Step, never
from mmrl.envs.continual import FamilyParams, minatar
from mmrl.envs.wrappers import FlattenObservation, ObservationWrapper


class GameState(NamedTuple):
    """States of all environments, of which only that of the selected one changes."""

    states: tuple[Any, ...]
    time: Array  # steps since the reset


class Games(AutoResetEnvironment):
    """Family of environments with equal observation and action spaces.

    `max_steps` truncates the episodes of all tasks. Raises `ValueError` if the spaces differ.
    """

    def __init__(self, envs: Sequence[Any], max_steps: int):
        shapes = {
            (tuple(env.observation_space(env.default_params).shape), env.num_actions)
            for env in envs
        }
        if len(shapes) != 1:
            raise ValueError(
                f"`envs` must have equal observation shapes and numbers of actions; got {shapes}. "
                "Use `mmrl.envs.continual.share` to pad them."
            )
        self.envs, self.max_steps = tuple(envs), max_steps

    @property
    def default_params(self) -> FamilyParams:
        """Default parameters of all environments, and task 0."""
        inner = tuple(env.default_params for env in self.envs)
        return FamilyParams(max_steps_in_episode=self.max_steps, inner=inner, task=0)

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return self.envs[0].num_actions

    def action_space(self, params: Any = None) -> spaces.Discrete:
        """Return the space of actions."""
        return self.envs[0].action_space()

    def observation_space(self, params: Any) -> spaces.Box:
        """Return the space of observations of the first environment."""
        return self.envs[0].observation_space(self.envs[0].default_params)

    def reset_env(self, key: PRNGKeyArray, params: Any) -> Reset:
        """Return the first observation of the selected environment, and the state."""
        pairs = zip(self.envs, params.inner, strict=True)
        resets = [env.reset_env(jax.random.clone(key), inner) for env, inner in pairs]
        obs = jnp.stack([jnp.asarray(x[0], jnp.float32) for x in resets])[params.task]
        return obs, GameState(tuple(x[1] for x in resets), jnp.zeros((), jnp.int32))

    def step_env(self, key: PRNGKeyArray, state: GameState, action: Any, params: Any) -> Step:
        """Take a step in the selected environment."""

        def of(k: int) -> Callable[[], tuple[Obs, Any, Array, Array]]:
            def step() -> tuple[Obs, Any, Array, Array]:
                env, inner = self.envs[k], params.inner[k]
                inner = inner.replace(max_steps_in_episode=params.max_steps_in_episode)
                obs, new, reward, _, _ = env.step_env(key, state.states[k], action, inner)
                states = (*state.states[:k], new, *state.states[k + 1 :])
                ended = jnp.asarray(env.is_terminated(new, inner), bool)
                numbers = jnp.asarray(obs, jnp.float32), jnp.asarray(reward, jnp.float32)
                return numbers[0], states, numbers[1], ended

            return step

        branches = [of(k) for k in range(len(self.envs))]
        obs, states, reward, ended = jax.lax.switch(params.task, branches)
        return obs, GameState(states, state.time + 1), reward, ended, {}

    def step_and_reset(
        self, key: PRNGKeyArray, state: Any, action: Any, params: Any, ends: Ends = never
    ) -> tuple[Step, Reset]:
        """Return the results of a step and of the reset that follows if the episode ends."""
        step_key, reset_key = jax.random.split(key)
        return self.step_env(step_key, state, action, params), self.reset_env(reset_key, params)

    def is_truncated(self, state: GameState, params: Any) -> Any:
        """Return True if the episode has had the highest number of steps."""
        return state.time >= params.max_steps_in_episode


class LowerRows(ObservationWrapper):
    """Wrapper that adds empty rows above an image, so that its lower rows keep their places."""

    def __init__(self, env: Any, rows: int):
        super().__init__(env)
        self.rows = rows

    def observation_space(self, params: Any) -> spaces.Box:
        """Return the space of images with `rows` rows."""
        space = self.env.observation_space(params)
        return spaces.Box(0, 1, (self.rows, *space.shape[1:]), space.dtype)

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        """Return the image with empty rows above it."""
        return jnp.pad(obs, [(self.rows - len(obs), 0), *[(0, 0)] * (obs.ndim - 1)])


def minatar_games(names: Sequence[str], max_steps: int = 1000) -> Games:
    """Return a family of MinAtar games, padded to 10 channels and 6 actions."""
    return Games([minatar(name)[0] for name in names], max_steps)


def catch_pair(rows: tuple[int, int] = (7, 10)) -> Games:
    """Return two tasks of Catch that require the same behavior, and can help each other.

    The ball falls through a different number of rows. The lower rows of both images are equal, so
    the best actions in the last steps are the same functions of the same pixels.
    """
    envs = [LowerRows(make("Catch-bsuite", rows=n)[0], max(rows)) for n in rows]
    return Games([FlattenObservation(env) for env in envs], max(rows))
