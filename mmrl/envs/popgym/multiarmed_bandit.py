"""Multi-armed bandit: find the best arm. Tests memory of the results of each arm."""

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float

from mmrl.envs._gymnax import environment
from mmrl.envs.popgym.base import (
    Action,
    Entry,
    Leaf,
    Numbers,
    Params,
    Task,
    check_positive,
    levels,
    one_hot,
    plus_minus,
)

OUTCOMES = 2  # lost = 0, won = 1


@struct.dataclass
class State(environment.EnvState):
    """State of an episode."""

    time: Leaf  # int32: number of steps taken
    win: Leaf  # int32: 1 if the last pull paid, otherwise 0
    odds: Leaf  # float32 [arms]: probability of winning with each arm


class MultiarmedBandit(Task):
    """Bandit with unknown probabilities p ~ U[0, 1), sampled at the start of each episode.

    Pulling arm a has reward 1/T with probability p_a, and -1/T otherwise. An episode is truncated
    after T = num_steps steps, and its return is in [-1, 1]. The observation does not show which arm
    was pulled, so agents need the previous action as an input.
    """

    def __init__(self, num_arms: int = 10, num_steps: int = 200):
        check_positive("num_arms", num_arms, "the Easy level uses 10")
        check_positive("num_steps", num_steps, "the Easy level uses 200")
        self.num_steps, self.actions = num_steps, num_arms
        self.obs_size, self.state_size = OUTCOMES, num_arms
        self.start_numbers, self.step_numbers = num_arms, 1

    def start(self, u: Numbers, params: Params) -> State:
        """Return the initial state of an episode."""
        return State(time=jnp.int32(0), win=jnp.int32(0), odds=u)

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        arm = jnp.arange(self.actions) == action
        win = u[0] < jnp.sum(jnp.where(arm, state.odds, 0.0))
        state = State(time=state.time + 1, win=win.astype(jnp.int32), odds=state.odds)
        return state, plus_minus(win, 1 / self.num_steps)

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return the one-hot result of the last pull, which is "lost" before the first pull."""
        return one_hot(state.win, OUTCOMES)

    def is_terminated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return False, because only the time limit ends an episode."""
        return jnp.asarray(False)

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return the probability of winning with each arm."""
        return state.odds


TASKS = {
    "MultiarmedBandit": Entry(
        MultiarmedBandit,
        levels(num_arms=(10, 20, 30), num_steps=(200, 400, 600)),
        gru=(0.619, 0.538, 0.516),
        better={"Easy": (0.631, "Elman"), "Medium": (0.598, "TCN"), "Hard": (0.574, "TCN")},
    )
}
