"""Tasks for continual learning, with the same observation and action spaces.

There are two ways to build such tasks:

- `PermutedTasks` turns one environment into a *family* of tasks. The task is a parameter of the
  environment and may be traced, so a single compiled program handles all tasks, and the
  environments of a batch may play different tasks. `permuted_catch` trains in minutes on a CPU.
- `share`, `minatar` and `popgym` pad different environments to common spaces. Each environment is
  compiled separately.

The task is not part of the observation.
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
    """Parameters of a family of tasks. The task may be traced or batched."""

    # The type is Any, because JAX replaces leaves with tracers and tests check types at run time.
    max_steps_in_episode: Any = 1
    inner: Any = None
    task: Any = 0


class PermutedTasks(ObservationWrapper):
    """Family of tasks that differ in the order of pixels and of actions.

    In task k, the observation is o[σ_k], and action a acts as (a + k) mod n in the inner
    environment. Task 0 is the inner environment itself; for the other tasks, the permutations σ_k
    are sampled with `seed`. The parameter `task` selects the task, from 0 to `tasks` - 1.

    To a network without convolutions, all tasks are equally difficult. Pixels and actions have a
    different meaning in each task, so training on one task does not help with another. Agents can
    recognize the task only from the pixels.

    Raises `ValueError` if the observation is not a vector or the actions are not discrete.
    """

    def __init__(self, env: Any, tasks: int = 3, seed: int = 0):
        super().__init__(env)
        if tasks < 1:
            raise ValueError(f"`tasks` must be at least 1, got {tasks}.")
        self.size, self.actions = vector_size(env, "PermutedTasks"), action_count(env)
        self.tasks, self.seed = int(tasks), int(seed)

    def orders(self) -> Int[np.ndarray, "task obs"]:
        """Return the permutations σ: the observation in task k is o[σ[k]]."""
        draw = np.random.default_rng(self.seed)
        others = [draw.permutation(self.size) for _ in range(1, self.tasks)]
        return np.stack([np.arange(self.size), *others])

    @property
    def default_params(self) -> FamilyParams:
        """Default parameters of the inner environment, and task 0."""
        inner = self.env.default_params
        return FamilyParams(max_steps_in_episode=inner.max_steps_in_episode, inner=inner, task=0)

    def inner_params(self, params: Any) -> Any:
        """Return the inner environment's parameters."""
        return params.inner.replace(max_steps_in_episode=params.max_steps_in_episode)

    def inner_action(self, action: Any, params: Any) -> Any:
        """Return the inner environment's action."""
        return (action + params.task) % self.actions

    def outer_mask(self, mask: Any, params: Any) -> Any:
        """Return the mask of legal actions, shifted like the actions."""
        return jnp.roll(mask, -params.task)

    def observation_space(self, params: Any) -> spaces.Box:
        """Return the observation space, with the same bounds for all elements."""
        space = self.env.observation_space(self.inner_params(params))
        low, high = bounds(space)
        return box(jnp.full_like(low, low.min()), jnp.full_like(high, high.max()), space.dtype)

    def view(self, key: PRNGKeyArray, obs: Obs, state: Any, cause: Any, params: Any) -> Obs:
        """Return the permuted observation."""
        return obs[jnp.asarray(self.orders())[params.task]]


def permuted_catch(
    tasks: int = 3, *, rows: int = 10, columns: int = 5, seed: int = 0
) -> tuple[PermutedTasks, FamilyParams]:
    """Return a family of `tasks` permuted versions of bsuite's Catch, and its parameters.

    An episode takes `rows` - 1 steps. Its return is +1 if the ball is caught, and -1 otherwise. The
    optimal return is 1. A policy that ignores observations earns 2/columns - 1 on average.

        >>> family, params = permuted_catch(rows=7)
        >>> family.observation_space(params).shape
        (35,)
    """
    env, _ = make("Catch-bsuite", rows=rows, columns=columns)
    family = PermutedTasks(FlattenObservation(env), tasks, seed)
    return family, family.default_params


class PadObservation(ObservationWrapper):
    """Wrapper that pads observations with zeros to `shape`, and adds actions.

    The additional actions have the same effect as action 0. Raises `ValueError` if the inner
    observation is larger than `shape`, or if there are already more than `actions` actions.
    """

    def __init__(self, env: Any, shape: Sequence[int], actions: int):
        super().__init__(env)
        inner = env.observation_space(env.default_params)
        own = tuple(int(n) for n in getattr(inner, "shape", ()) or ())
        if len(own) != len(shape) or any(n > m for n, m in zip(own, shape, strict=True)):
            raise ValueError(
                f"`shape` must be at least the observation's shape, {own}, got {tuple(shape)}."
            )
        if actions < action_count(env):
            raise ValueError(f"`actions` must be at least {action_count(env)}, got {actions}.")
        self.shape, self.actions = tuple(int(n) for n in shape), int(actions)

    @property
    def num_actions(self) -> int:
        """Number of actions."""
        return self.actions

    def inner_action(self, action: Any, params: Any) -> Any:
        """Return the inner environment's action; additional actions become 0."""
        return jnp.where(action < action_count(self.env), action, 0)

    def outer_mask(self, mask: Any, params: Any) -> Any:
        """Return the mask of legal actions, in which the additional actions are illegal."""
        return jnp.pad(mask, (0, self.actions - mask.size))

    def action_space(self, params: Any = None) -> spaces.Discrete:
        """Return the action space, including the additional actions."""
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


def share(envs: Sequence[Any]) -> list[PadObservation]:
    """Return the environments, padded to the same observation shape and number of actions.

    Raises `ValueError` if their observations have different numbers of axes.
    """
    shapes = [tuple(env.observation_space(env.default_params).shape) for env in envs]
    if len({len(shape) for shape in shapes}) != 1:
        raise ValueError(
            f"`envs` must have observations with the same number of axes, got shapes {shapes}. "
            "Wrap the environments in FlattenObservation."
        )
    shape = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    actions = max(action_count(env) for env in envs)
    return [PadObservation(env, shape, actions) for env in envs]


def minatar(game: str) -> tuple[PadObservation, Any]:
    """Return a MinAtar game, padded to 10 channels and 6 actions, and its parameters.

    `MINATAR` lists the names of the games. There are no sticky actions. Seaquest is slow on a CPU.
    """
    if game not in MINATAR:
        raise ValueError(f"`game` must be one of {MINATAR}, got {game!r}.")
    env, params = make(f"{game}-MinAtar", use_minimal_action_set=False)
    return PadObservation(env, (10, 10, 10), 6), params


def popgym(names: Sequence[str], seed: int = 0) -> list[tuple[PermutedTasks, FamilyParams]]:
    """Return POPGym tasks that share observation and action spaces, and their parameters.

    Each task has a different observation encoding and a different order of actions, because some
    tasks have equal observations but require different answers: for example, RepeatFirst and
    RepeatPrevious both show a suit. The observation size is the sum of the tasks' sizes. Task k
    places its observation at random indices, sampled with `seed`, and sets the other elements to
    zero. The actions of task k are shifted by k, as in `PermutedTasks`. The number of actions is
    the maximum over all tasks. `names` lists tasks such as "RepeatFirstEasy".

    Raises `ValueError` if `names` is empty or contains a name that is not registered.
    """
    if not names:
        raise ValueError("`names` must contain at least one task, such as 'RepeatFirstEasy'.")
    envs = [make(f"popgym-{name}-v0")[0] for name in names]
    size = sum(vector_size(env, "popgym") for env in envs)
    actions = max(action_count(env) for env in envs)
    tasks = [PermutedTasks(PadObservation(env, (size,), actions), len(envs), seed) for env in envs]
    return [(x, dataclasses.replace(x.default_params, task=k)) for k, x in enumerate(tasks)]
