"""A small game, implemented with the interface of each library that has an adapter.

The observation is (t, last action), where t counts the steps. Action 2 in step 3 terminates the
game with a reward of 1, and all other steps have a reward of 0.5. The game is truncated after
5 steps. If the `step` function of a library resets environments automatically, so does that of its
game. `plain` is a reference implementation in plain Python.
"""

import dataclasses
import types
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

LIMIT, ACTIONS = 5, 3
Row = tuple[list[int], float, bool, bool]


def plain(actions: Any) -> Iterator[Row]:
    """Yield the expected (next observation, reward, terminated, truncated) of each step."""
    t = 0
    for action in np.asarray(actions).tolist():
        t += 1
        terminated = t == 3 and action == 2
        truncated = not terminated and t == LIMIT
        yield [t, action], 1.0 if terminated else 0.5, terminated, truncated
        t = 0 if terminated or truncated else t


def play_step(t: Any, action: Any) -> tuple[Any, Any, Any, Any]:
    """Return t + 1, the reward, and the flags for termination and truncation."""
    terminated = (t == 2) & (action == 2)
    return t + 1, jnp.where(terminated, 1.0, 0.5), terminated, ~terminated & (t + 1 == LIMIT)


def view_of(t: Any, action: Any) -> Any:
    return jnp.stack([jnp.asarray(t), jnp.asarray(action)]).astype(jnp.uint8)


@struct.dataclass
class Game:
    time: Any
    cache: Any = None

    @property
    def timestep(self) -> Any:  # name in Craftax
        return self.time


@struct.dataclass
class Step:
    """A time step as in navix, XLand-MiniGrid and jumanji."""

    state: Any
    observation: Any
    reward: Any
    discount: Any
    step_type: Any  # as in navix, 1 where truncated and 2 where terminated

    def last(self) -> Any:
        return self.step_type > 0

    def is_termination(self) -> Any:
        return self.step_type == 2

    def is_truncation(self) -> Any:
        return self.step_type == 1


def first() -> Step:
    zero, game = jnp.int32(0), Game(jnp.int32(0), cache=jnp.zeros(7))
    return Step(game, view_of(0, 0), jnp.float32(0), jnp.float32(1), zero)


def after(step: Step, action: Any) -> Step:
    t, reward, terminated, truncated = play_step(step.state.time, action)
    kind = jnp.where(terminated, 2, jnp.where(truncated, 1, 0)).astype(jnp.int32)
    discount = jnp.where(terminated, 0.0, 1.0)
    return Step(Game(t, step.state.cache), view_of(t, action), reward, discount, kind)


class Navix:
    action_set, max_steps = (0,) * ACTIONS, LIMIT
    observation_space = types.SimpleNamespace(
        minimum=jnp.asarray(0), maximum=jnp.asarray(8), shape=(2,), dtype=jnp.uint8
    )

    def reset(self, key: Any, cache: Any = None) -> Step:
        return first()

    def _step(self, step: Step, action: Any) -> Step:
        return after(step, action)

    def step(self, step: Step, action: Any) -> Step:
        return jax.lax.cond(step.last(), lambda: first(), lambda: after(step, action))


class XLand:
    def num_actions(self, params: Any) -> int:
        return ACTIONS

    def observation_shape(self, params: Any) -> tuple[int]:
        return (2,)

    def reset(self, params: Any, key: Any) -> Step:
        return first()

    def step(self, params: Any, step: Step, action: Any) -> Step:
        return after(step, action)


class Jumanji:
    time_limit = LIMIT
    action_spec = types.SimpleNamespace(
        num_values=jnp.asarray(ACTIONS), shape=(), dtype=jnp.dtype("int32")
    )

    @property
    def unwrapped(self) -> Any:
        return self

    def reset(self, key: Any) -> tuple[Any, Step]:
        return first(), self._nest(first())

    def step(self, state: Step, action: Any) -> tuple[Any, Step]:
        step = after(state, action)
        return step, self._nest(step)

    def _nest(self, step: Step) -> Step:
        parts = {"a": step.observation[:1], "b": {"c": step.observation[1]}}
        return dataclasses.replace(step, observation=parts)


@struct.dataclass
class Settings:
    max_timesteps: int = LIMIT


class Gymnax:
    """The interface of Craftax and of POPGym Arcade, where `done` includes truncation."""

    num_actions, max_episode_length, default_params = ACTIONS, LIMIT, Settings()

    def observation_space(self, params: Any) -> Any:
        return types.SimpleNamespace(low=0, high=8)

    def action_space(self, params: Any) -> Any:
        return types.SimpleNamespace(n=ACTIONS)

    def reset_env(self, key: Any, params: Any) -> tuple[Any, Game]:
        return view_of(0, 0), Game(jnp.int32(0), cache=jnp.asarray(False))

    def step_env(self, key: Any, state: Game, action: Any, params: Any) -> tuple[Any, ...]:
        t, reward, terminated, _ = play_step(state.time, action)
        state = Game(t, cache=terminated)
        return view_of(t, action), state, reward, self.is_terminal(state, params), {}

    def is_terminal(self, state: Game, params: Any) -> Any:
        return state.cache | (state.time >= params.max_timesteps)


class Gymnasium(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 8, (2,), np.uint8)
    action_space = gymnasium.spaces.Discrete(ACTIONS)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict]:
        self.t = 0
        return np.zeros(2, np.uint8), {}

    def step(self, action: Any) -> tuple[Any, ...]:
        self.t += 1
        terminated = self.t == 3 and action == 2
        obs = np.array([self.t, action], np.uint8)
        return obs, 1.0 if terminated else 0.5, terminated, not terminated and self.t == LIMIT, {}


def module(name: str, **names: Any) -> types.ModuleType:
    new = types.ModuleType(name)
    vars(new).update(names)
    return new


def _craftax(name: str, auto_reset: bool) -> Gymnax:
    assert not auto_reset
    return Gymnax()


def _make(kind: Callable[[], Any]) -> Callable[..., Any]:
    return lambda name, **kwargs: kind(**kwargs)


LIBRARIES: dict[str, dict[str, types.ModuleType]] = {
    "navix": {"navix": module("navix", make=_make(Navix))},
    "xland": {
        "xminigrid": module("xminigrid", make=lambda name: (XLand(), Navix())),
        "xminigrid.core": module("xminigrid.core"),
        "xminigrid.core.constants": module("constants", NUM_TILES=13, NUM_COLORS=12),
    },
    "jumanji": {"jumanji": module("jumanji", make=_make(Jumanji))},
    "craftax": {
        "craftax": module("craftax"),
        "craftax.craftax_env": module("env", make_craftax_env_from_name=_craftax),
    },
    "popgym-arcade": {
        "popgym_arcade": module("popgym_arcade", make=lambda name: (Gymnax(), Settings()))
    },
    "gymnasium": {},
}
"""Modules of each library that its adapter imports."""
