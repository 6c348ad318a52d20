"""Environments of gymnasium in Python: "gymnasium:Acrobot-v1", for acting and evaluation.

Every step calls Python from the compiled program, one environment after another. Repeating the last
step of a game repeats the answer. A checkpoint does not hold games, so no run continues exactly.
"""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from mmrl.envs._gymnax import spaces
from mmrl.envs.adapters.base import Adapter, Outcome, box, on_host
from mmrl.envs.base import Reset, Step

MOST, LIMIT = 4096, 1000  # games at a time; steps of one, where gymnasium has no limit


@dataclasses.dataclass
class Game:
    """A game, None once it is over, and its last step."""

    env: Any
    time: int = -1
    action: Any = None
    answer: tuple[Any, ...] = ()


class Gymnasium(Adapter):
    """Games of gymnasium, each made by `build()`; a state is a game's number and its step."""

    python = True

    def __init__(self, build: Callable[[], Any]):
        super().__init__(game := build(), getattr(game.spec, "max_episode_steps", None) or LIMIT)
        kinds = gymnasium.spaces.Discrete, gymnasium.spaces.Box
        if not isinstance(game.action_space, kinds):
            raise ValueError(f"`env` must have Discrete or Box actions; got {game.action_space}.")
        self.build, self.games, self.count = build, {}, 0
        self.start = int(getattr(game.action_space, "start", 0))
        self.empty = np.zeros(game.observation_space.shape, self.observation_space().dtype)

    def first(self, key: Any, needed: Any = True) -> tuple[Any, Any]:
        """Return the first observation of an episode, and the library's state."""
        like, seed = (self.empty, np.int32(0)), jax.random.bits(key, dtype=jnp.uint32)
        obs, number = on_host(self._start, like, seed, needed)
        return obs, (number, jnp.int32(0))

    def next(self, key: Any, inner: Any, action: Any) -> Outcome:
        """Return a step from the library's state, without its automatic reset."""
        like = self.empty, np.float32(0), np.bool_(0), np.bool_(0), np.int32(0)
        obs, *rest, number = on_host(self._step, like, *inner, action)
        return Outcome(obs, (number, inner[1] + 1), *rest)

    def step_and_reset(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Step, Reset]:
        """Return a step, and the reset that follows an end."""
        step = self.step_env(key, state, action, params)
        ended = step[3] | self.is_truncated(step[1], params)
        return step, self._begun(*self.first(jax.random.fold_in(key, 1), ended))

    def action_space(self, params: Any = None) -> Any:
        """Return the space of actions."""
        if isinstance(space := self.env.action_space, gymnasium.spaces.Discrete):
            return spaces.Discrete(int(space.n))
        return spaces.Box(space.low, space.high, space.shape)

    def observation_space(self, params: Any = None) -> spaces.Box:
        """Return the space of observations."""
        space = self.env.observation_space
        return box(space.low, space.high, space.shape, space.dtype)

    def _start(self, seed: Any, needed: Any) -> tuple[Any, Any]:
        if not needed:
            return self.empty, np.int32(-1)
        game, number = self.build(), self.count
        self.games[number], self.count = Game(game), number + 1
        if len(self.games) > MOST:  # those that are over first
            self.games.pop(min(self.games, key=lambda n: (self.games[n].env is not None, n)))
        return np.asarray(game.reset(seed=int(seed))[0], self.empty.dtype), np.int32(number)

    def _step(self, number: Any, time: Any, action: Any) -> tuple[Any, ...]:
        game, action = self.games.get(int(number)), np.asarray(action)
        if game and game.time == time and np.array_equal(game.action, action):
            return game.answer
        if game is None or game.env is None or game.time + 1 != time:
            raise RuntimeError(
                "A game of gymnasium can only be played forward, by the process that began it: "
                f"step {time} of game {number} cannot be taken. Begin a new run."
            )
        obs, reward, *ends = game.env.step((action + self.start)[()])[:4]
        answer = np.asarray(obs, self.empty.dtype), np.float32(reward), *map(np.bool_, ends)
        game.time, game.action, game.answer = int(time), action, (*answer, np.asarray(number))
        if any(ends):
            game.env.close()
            game.env = None
        return game.answer


def make(name: str, **kwargs: Any) -> Gymnasium:
    """Return the games of `gymnasium.make`; observations other than boxes are flattened."""
    warnings.warn(f"{name} runs in Python, slowly: use it to act and to evaluate.", stacklevel=4)

    def build() -> Any:
        game = gymnasium.make(name, **kwargs)
        flat = isinstance(game.observation_space, gymnasium.spaces.Box)
        return game if flat else gymnasium.wrappers.FlattenObservation(game)

    return Gymnasium(build)
