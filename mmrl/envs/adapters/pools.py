"""Vector environments of gymnasium, whose games take a step in one call of Python.

`flat` converts the observations of a game to arrays.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from mmrl._spaces import MASK
from mmrl.envs._gymnax import spaces as jax_spaces
from mmrl.envs.adapters.base import box

MOST = 64  # maximum number of open vector environments


@dataclasses.dataclass
class Pool:
    """Vector environment, with the result of its last step.

    `mode` specifies when it resets finished games. "SameStep" and "Disabled" do not change
    episodes. In the mode "NextStep", the environment ignores the action of the step that resets a
    game, and this step is an additional episode, which terminates with reward 0.
    """

    env: Any
    mode: str  # Disabled, SameStep or NextStep
    resets_one: bool  # True if single games can be reset
    obs: Any  # observation of each game, after resets
    time: int = 0  # number of steps
    reset_time: int = 0  # number of steps before the last reset
    actions: Any = None  # actions of the last step
    answer: tuple[Any, ...] = ()  # result of the last step
    done: Any = False  # True for each finished game that needs no reset
    late: Any = False  # True for each game that the next step resets

    def step(self, time: int, actions: Any) -> tuple[Any, ...]:
        """Take step `time` in all games; return (obs, reward, terminated, truncated).

        If the last step is repeated, return its stored result. Raises `RuntimeError` for other
        steps that are not the next one.
        """
        if time == self.time - 1 and np.array_equal(actions, self.actions):
            return self.answer
        if time != self.time:
            raise RuntimeError(
                f"Step {time} cannot be computed after {self.time} steps, because gymnasium's "
                "games can only be played forward. Start a new run."
            )
        space = self.env.single_action_space
        moves = np.asarray(actions, space.dtype) + getattr(space, "start", 0)
        obs, reward, terminated, truncated, info = self.env.step(moves)
        ended, self.obs, self.done = terminated | truncated, obs, np.zeros(len(obs), bool)
        if self.mode == "SameStep" and ended.any():
            obs, self.done = obs.copy(), ended
            obs[ended] = np.stack(info["final_obs"][ended])
        elif self.mode == "NextStep":
            terminated, self.done, self.late = terminated | self.late, ended | self.late, ended
        self.time, self.actions, self.answer = (
            time + 1,
            actions,
            (obs, reward, terminated, truncated),
        )
        return self.answer

    def reset(self, time: int, last: Any) -> Any:
        """Reset the games in `last` after `time` steps, and return the observations of all games.

        Raises `RuntimeError` if the environment cannot reset a single game that has not ended.
        """
        early = last & ~self.done
        if self.reset_time != time and early.any():
            if not self.resets_one:
                raise RuntimeError(
                    "`max_steps_in_episode` must not be less than the time limit of gymnasium, "
                    "because this vector environment cannot reset a single game. Increase it."
                )
            self.obs, _ = self.env.reset(options={"reset_mask": early})
        self.reset_time = time
        return self.obs


class MaskedBox(spaces.Box):
    """Box whose last `mask_size` entries are the mask of legal actions."""

    mask_size = 0


def flat(game: Any) -> Any:
    """Flatten observations that are not arrays, and move a mask of actions to the end."""
    space = game.observation_space
    if isinstance(space, spaces.Box):
        return game
    if not isinstance(space, spaces.Dict) or MASK not in space.spaces:
        return gymnasium.wrappers.FlattenObservation(game)
    rest = spaces.Dict({key: part for key, part in space.items() if key != MASK})
    inner: Any = spaces.flatten_space(rest)
    legal = np.zeros(int(game.action_space.n), np.float32)
    low, high = np.append(inner.low, legal), np.append(inner.high, legal + 1)
    joined = MaskedBox(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
    joined.mask_size = len(legal)

    def join(obs: Any) -> Any:
        others: Any = spaces.flatten(rest, {key: obs[key] for key in rest.spaces})
        return np.append(others, obs[MASK]).astype(np.float32)

    return gymnasium.wrappers.TransformObservation(game, join, joined)


def jax_space(space: Any, whole: bool = False) -> Any:
    """Return the JAX space of arrays from `space`, without separating the mask if `whole`."""
    n = getattr(space, "mask_size", 0)
    if whole or not n:
        return box(space.low, space.high, space.shape, space.dtype)
    low, high = space.low[:-n], space.high[:-n]
    rest = box(low, high, low.shape, space.dtype)
    return jax_spaces.Dict({MASK: box(0, 1, (n,), bool), "obs": rest})


def split(space: Any, obs: Any) -> Any:
    """Separate the mask of legal actions from an array, if `space` has a mask."""
    if not (n := getattr(space, "mask_size", 0)):
        return jnp.asarray(obs, jax_space(space).dtype)
    return {MASK: obs[-n:] > 0, "obs": obs[:-n]}


class Pools:
    """Open vector environments, each with n games, which `build(n)` returns."""

    def __init__(self, build: Callable[[int], Any]):
        self.build, self.open, self.count = build, {}, 0

    def start(self, seeds: Any) -> tuple[Any, ...]:
        """Start one game per seed; return observations and places (pool, game, step)."""
        env, number = self.build(len(seeds)), self.count
        if len(self.open) == MOST:
            self.open.pop(next(iter(self.open))).env.close()
        own = type(env.unwrapped).__module__.startswith("gymnasium.vector")
        # Environments of one class may share their `metadata`, so the mode is read at once.
        mode = env.metadata["autoreset_mode"].value
        obs, _ = env.reset(seed=[int(seed) for seed in seeds] if own else int(seeds[0]))
        self.open[number], self.count = Pool(env, mode, own, obs), number + 1
        return obs, (np.full(len(obs), number), np.arange(len(obs)), np.zeros(len(obs)))

    def step(self, numbers: Any, games: Any, times: Any, actions: Any) -> tuple[Any, ...]:
        """Take a step; return (obs, place, reward, terminated, truncated)."""
        obs, *rest = self._pool(numbers, games).step(int(times[0]), actions)
        return obs, (numbers, games, times + 1), *rest

    def reset(self, numbers: Any, games: Any, times: Any, last: Any) -> tuple[Any, ...]:
        """Reset the games in `last`; return their observations and places."""
        return self._pool(numbers, games).reset(int(times[0]), last), (numbers, games, times)

    def _pool(self, numbers: Any, games: Any) -> Pool:
        pool = self.open.get(int(numbers[0]))
        if pool is None or len(set(numbers)) > 1 or list(games) != list(range(len(pool.obs))):
            raise RuntimeError(
                "Games of gymnasium must be stepped in the process that started them, and together "
                "with the games that were started in the same `jax.vmap`. Start a new run."
            )
        self.open[int(numbers[0])] = self.open.pop(int(numbers[0]))  # the most recent pool is last
        return pool
