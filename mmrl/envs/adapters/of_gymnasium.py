"""Gymnasium adapter, as in "gymnasium:Acrobot-v1".

Every step calls back into Python, for one environment after another, so these environments are slow
to train on. If a program repeats the last step of a game, the adapter returns the stored result.
Checkpoints do not contain games, so a resumed run starts new games and is not an exact
continuation.
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

# Maximum number of open games, and the time limit, in steps, of games for which gymnasium defines
# no limit.
MOST, LIMIT = 4096, 1000


@dataclasses.dataclass
class Game:
    """Game of gymnasium, with the index, action and result of its last step."""

    env: Any  # None if the game is over
    time: int = -1  # index of the last step, or -1 before the first step
    action: Any = None  # action of the last step
    answer: tuple[Any, ...] = ()  # result of the last step


class Gymnasium(Adapter):
    """Adapter for the games that `build` returns.

    The state of this adapter consists of the index of a game and the index of a step.
    """

    python = True

    def __init__(self, build: Callable[[], Any]):
        super().__init__(game := build(), getattr(game.spec, "max_episode_steps", None) or LIMIT)
        kinds = gymnasium.spaces.Discrete, gymnasium.spaces.Box
        if not isinstance(game.action_space, kinds):
            raise ValueError(f"`env` must have Discrete or Box actions, got {game.action_space}.")
        self.build, self.games, self.count = build, {}, 0
        self.start = int(getattr(game.action_space, "start", 0))
        self.empty = np.zeros(game.observation_space.shape, self.observation_space().dtype)

    def first(self, key: Any, create: Any = True) -> tuple[Any, Any]:
        """Reset the library's environment; return its observation and state.

        If `create` is False, no game is created.
        """
        like, seed = (self.empty, np.int32(0)), jax.random.bits(key, dtype=jnp.uint32)
        obs, number = on_host(self._start, like, seed, create)
        return obs, (number, jnp.int32(0))

    def next(self, key: Any, inner: Any, action: Any) -> Outcome:
        """Step the library's environment from state `inner`, without automatic reset."""
        like = self.empty, np.float32(0), np.bool_(0), np.bool_(0), np.int32(0)
        obs, *rest, number = on_host(self._step, like, *inner, action)
        return Outcome(obs, (number, inner[1] + 1), *rest)

    def step_and_reset(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Step, Reset]:
        """Return the results of a step and of the reset that follows if the episode ends."""
        step = self.step_env(key, state, action, params)
        last = step[3] | self.is_truncated(step[1], params)
        return step, self._reset_result(*self.first(jax.random.fold_in(key, 1), last))

    def action_space(self, params: Any = None) -> Any:
        """Return the action space."""
        if isinstance(space := self.env.action_space, gymnasium.spaces.Discrete):
            return spaces.Discrete(int(space.n))
        return spaces.Box(space.low, space.high, space.shape)

    def observation_space(self, params: Any = None) -> spaces.Box:
        """Return the observation space."""
        space = self.env.observation_space
        return box(space.low, space.high, space.shape, space.dtype)

    def _start(self, seed: Any, create: Any) -> tuple[Any, Any]:
        if not create:
            return self.empty, np.int32(-1)
        game, number = self.build(), self.count
        self.games[number], self.count = Game(game), number + 1
        if len(self.games) > MOST:  # remove the oldest finished game, or else the oldest game
            self.games.pop(min(self.games, key=lambda n: (self.games[n].env is not None, n)))
        return np.asarray(game.reset(seed=int(seed))[0], self.empty.dtype), np.int32(number)

    def _step(self, number: Any, time: Any, action: Any) -> tuple[Any, ...]:
        game, action = self.games.get(int(number)), np.asarray(action)
        if game and game.time == time and np.array_equal(game.action, action):
            return game.answer
        if game is None or game.env is None or game.time + 1 != time:
            raise RuntimeError(
                f"Step {time} of game {number} cannot be computed, because gymnasium's games can "
                "only be played forward, in the process that started them. Start a new run."
            )
        obs, reward, *ends = game.env.step((action + self.start)[()])[:4]
        answer = np.asarray(obs, self.empty.dtype), np.float32(reward), *map(np.bool_, ends)
        game.time, game.action, game.answer = int(time), action, (*answer, np.asarray(number))
        if any(ends):
            game.env.close()
            game.env = None
        return game.answer


def make(name: str, **kwargs: Any) -> Gymnasium:
    """Return an adapter for `gymnasium.make(name, **kwargs)`, and warn that it is slow.

    Observations that are not arrays are flattened.
    """
    warnings.warn(
        f"{name} runs in Python and is slow. Use it to act and to evaluate.", stacklevel=4
    )

    def build() -> Any:
        game = gymnasium.make(name, **kwargs)
        flat = isinstance(game.observation_space, gymnasium.spaces.Box)
        return game if flat else gymnasium.wrappers.FlattenObservation(game)

    return Gymnasium(build)
