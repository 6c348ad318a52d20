"""Echo: repeat the cue of the previous step.

The observation is an affine function of the cue, such as 30,000 + 100 cue, so the task also tests
observation normalization.

| agent | average return |
|---|---|
| remembers the previous cue | 4 |
| has no memory | 0 |
"""

from typing import Any

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from mmrl.envs._gymnax import environment, spaces
from mmrl.envs.popgym.base import Action, Leaf, Numbers, Task, plus_minus


@struct.dataclass
class Params(environment.EnvParams):
    """Parameters of `Echo`. The observation is `offset` + `scale` · cue."""

    max_steps_in_episode: Leaf = 5
    offset: Leaf = 0.0
    scale: Leaf = 1.0


@struct.dataclass
class State(environment.EnvState):
    """State with the number of steps, the current cue and the previous cue."""

    time: Leaf
    cue: Leaf
    previous: Leaf


class Echo(Task):
    """Task in which the agent repeats the cue of the previous step.

    An episode has five steps, each with a new random cue of 0 or 1. The observation is
    offset + scale · cue. Starting at the second step, the reward is +1 if the action equals the
    previous cue, and -1 otherwise. `offset` and `scale` are parameters and may be traced.
    """

    optimal_return = 4.0
    num_steps, actions, obs_size, state_size = 5, 2, 1, 3
    start_numbers = step_numbers = 1

    @property
    def default_params(self) -> Any:
        """Default parameters, with offset 0 and scale 1."""
        return Params(max_steps_in_episode=self.num_steps)

    def start(self, u: Numbers, params: Params) -> State:
        """Return the initial state of an episode."""
        zero = jnp.int32(0)
        return State(time=zero, cue=_cue(u), previous=zero)

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        reward = plus_minus(jnp.asarray(action) == state.previous, 1.0)
        reward = jnp.where(state.time > 0, reward, 0.0)
        return State(time=state.time + 1, cue=_cue(u), previous=state.cue), reward

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return offset + scale · cue."""
        return jnp.asarray(params.offset + params.scale * state.cue, jnp.float32)[None]

    def is_terminated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return True after `num_steps` steps."""
        return jnp.asarray(state.time >= self.num_steps)

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return the current cue, the previous cue and t / num_steps."""
        share = jnp.asarray(state.time, jnp.float32) / self.num_steps
        return jnp.stack([state.cue, state.previous, share]).astype(jnp.float32)

    def observation_space(self, params: Any = None) -> spaces.Box:
        """Return the observation space, which is unbounded."""
        return spaces.Box(-jnp.inf, jnp.inf, (1,), jnp.float32)


def _cue(u: Numbers) -> Int[Array, ""]:
    return (u[0] < 0.5).astype(jnp.int32)
