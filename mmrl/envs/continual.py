"""Sequences of tasks: families of environments that share their spaces.

Continual learning needs several tasks that one network can play, with one shape of observations and
one number of actions. There are two kinds:

- A *family* is one environment whose parameters include the task: `Permuted`. The task is an
  array, so one compiled program serves all tasks, and environments that are stepped together may
  play different ones. `permuted_catch` is small enough to train in minutes on a CPU.
- *Different* environments, padded to shared spaces: `share`, `minatar`, `popgym`. Each needs a
  separate program.

The agent is never told the task.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Int, PRNGKeyArray

from mmrl.envs import make
from mmrl.envs._gymnax import environment, spaces
from mmrl.envs.wrappers import FlattenObservation, ObservationWrapper
from mmrl.envs.wrappers.base import Obs, action_count, bounds, box, vector_size

MINATAR = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")


@struct.dataclass
class FamilyParams(environment.EnvParams):
    """Parameters of the inner environment, and the task: an array, to trace and to batch."""

    # Redeclared because tests check types and jax fills leaves with tracers.
    max_steps_in_episode: Any = 1
    inner: Any = None
    task: Any = 0


class Permuted(ObservationWrapper):
    """One game as several tasks: task k shows o[σ_k] and reads action a as a + k mod n.

    Each task is as hard as the inner one for a network without convolutions, and none helps with
    another, because pixels and actions have other meanings; only the pixels themselves reveal the
    task. Task 0 is the inner environment. The pixel orders σ_k of the others are drawn at random
    from `seed`.

    The task is `task` in the parameters, from 0 to `tasks` - 1. Raises `ValueError` if the
    observation is not a vector or actions are not discrete.
    """

    def __init__(self, env: Any, tasks: int = 3, seed: int = 0):
        super().__init__(env)
        if tasks < 1:
            raise ValueError(f"`tasks` must be at least 1, got {tasks}.")
        self.size, self.actions = vector_size(env, "Permuted"), action_count(env)
        self.tasks, self.seed = int(tasks), int(seed)

    def orders(self) -> Int[np.ndarray, "task obs"]:
        """Return σ, the pixel shown at each place: task k shows o[σ[k]]."""
        draw = np.random.default_rng(self.seed)
        others = [draw.permutation(self.size) for _ in range(1, self.tasks)]
        return np.stack([np.arange(self.size), *others])

    @property
    def default_params(self) -> FamilyParams:
        """Parameters of the inner environment, with task 0."""
        inner = self.env.default_params
        return FamilyParams(max_steps_in_episode=inner.max_steps_in_episode, inner=inner, task=0)

    def inner_params(self, params: Any) -> Any:
        """Return the inner environment's parameters."""
        return params.inner.replace(max_steps_in_episode=params.max_steps_in_episode)

    def inner_action(self, action: Any, params: Any) -> Any:
        """Return the inner environment's action."""
        return (action + params.task) % self.actions

    def outer_mask(self, mask: Any, params: Any) -> Any:
        """Return the mask of legal actions, shifted as the actions are."""
        return jnp.roll(mask, -params.task)

    def observation_space(self, params: Any) -> spaces.Box:
        """Return the space of permuted observations."""
        space = self.env.observation_space(self.inner_params(params))
        low, high = bounds(space)
        return box(jnp.full_like(low, low.min()), jnp.full_like(high, high.max()), space.dtype)

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        """Return the permuted observation."""
        return obs[jnp.asarray(self.orders())[params.task]]


def permuted_catch(
    tasks: int = 3, *, rows: int = 10, columns: int = 5, seed: int = 0
) -> tuple[Permuted, FamilyParams]:
    """Return bsuite's Catch as several tasks: catch a falling ball, for +1 or otherwise -1.

    The ball falls `rows` - 1 steps. Always catching earns 1, and never looking earns 2/columns - 1.
    """
    env, _ = make("Catch-bsuite", rows=rows, columns=columns)
    family = Permuted(FlattenObservation(env), tasks, seed)
    return family, family.default_params


class Padded(ObservationWrapper):
    """Observations padded with zeros along every axis up to `shape`, and `actions` to choose from.

    An action that the inner environment lacks acts like its action 0. Raises `ValueError` if the
    inner observation or number of actions is larger.
    """

    def __init__(self, env: Any, shape: Sequence[int], actions: int):
        super().__init__(env)
        inner = env.observation_space(env.default_params)
        own = tuple(int(n) for n in getattr(inner, "shape", ()) or ())
        if len(own) != len(shape) or any(n > m for n, m in zip(own, shape, strict=True)):
            raise ValueError(
                f"`shape` must be at least that of the observation, {own}, got {tuple(shape)}."
            )
        if actions < action_count(env):
            raise ValueError(f"`actions` must be at least {action_count(env)}, got {actions}.")
        self.shape, self.actions = tuple(int(n) for n in shape), int(actions)

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return self.actions

    def inner_action(self, action: Any, params: Any) -> Any:
        """Return the inner environment's action, or 0 if it lacks this one."""
        return jnp.where(action < action_count(self.env), action, 0)

    def outer_mask(self, mask: Any, params: Any) -> Any:
        """Return the mask of legal actions, padded."""
        return jnp.pad(mask, (0, self.actions - mask.size))

    def action_space(self, params: Any = None) -> spaces.Discrete:
        """Return the space of all actions."""
        return spaces.Discrete(self.actions)

    def observation_space(self, params: Any) -> spaces.Box:
        """Return the space of padded observations."""
        low, high = (self._pad(x) for x in bounds(self.env.observation_space(params)))
        return spaces.Box(low, high, self.shape, jnp.float32)

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        """Return the padded observation."""
        return self._pad(obs)

    def _pad(self, obs: Obs) -> Obs:
        more = [(0, n - m) for n, m in zip(self.shape, obs.shape, strict=True)]
        return jnp.pad(jnp.asarray(obs, jnp.float32), more)


def share(envs: Sequence[Any]) -> list[Padded]:
    """Return the environments, padded to one observation shape and one number of actions.

    Raises `ValueError` if their observations have different numbers of axes.
    """
    shapes = [tuple(env.observation_space(env.default_params).shape) for env in envs]
    if len({len(shape) for shape in shapes}) != 1:
        raise ValueError(
            f"`envs` must have observations with equal numbers of axes, got {shapes}. Wrap "
            "them in FlattenObservation."
        )
    shape = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    actions = max(action_count(env) for env in envs)
    return [Padded(env, shape, actions) for env in envs]


def minatar(game: str) -> tuple[Padded, Any]:
    """Return a MinAtar game with the 10 channels and 6 actions that all of them fit in.

    Names are in `MINATAR`. There are no sticky actions. Seaquest is slow on a CPU.
    """
    if game not in MINATAR:
        raise ValueError(f"`game` must be one of {MINATAR}, got {game!r}.")
    env, params = make(f"{game}-MinAtar", use_minimal_action_set=False)
    return Padded(env, (10, 10, 10), 6), params


def popgym(names: Sequence[str], seed: int = 0) -> list[tuple[Permuted, FamilyParams]]:
    """Return POPGym tasks with shared spaces, such as "RepeatFirstEasy", as separate tasks.

    Some of them look similar but require different answers: RepeatFirst and RepeatPrevious each
    show a suit. So an observation has room for those of all tasks; task k writes its own to places
    that are drawn from `seed`, with zeros elsewhere, and its actions are shifted by k, as by
    `Permuted`. The number of actions is the largest of all tasks. Raises `ValueError` for a name
    that is not registered, or without any.
    """
    if not names:
        raise ValueError("`names` must have at least one task, such as 'RepeatFirstEasy'.")
    envs = [make(f"popgym-{name}-v0")[0] for name in names]
    size = sum(vector_size(env, "popgym") for env in envs)
    actions = max(action_count(env) for env in envs)
    disguised = [Permuted(Padded(env, (size,), actions), len(envs), seed) for env in envs]
    return [(x, dataclasses.replace(x.default_params, task=k)) for k, x in enumerate(disguised)]
