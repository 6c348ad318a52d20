"""Find the arm that pays best: explore, keep a statistic of each arm, exploit."""

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
    """The arms of this episode and the result of the last pull."""

    time: Leaf  # int32: steps taken
    won: Leaf  # int32: 1 if the last pull paid
    odds: Leaf  # float32 [arms]: the probability that an arm pays


class MultiarmedBandit(Task):
    """Bandit whose arms pay with unknown probabilities, redrawn in every episode.

    r_t = ±1/T: + with probability p_a of the arm pulled, p ~ U[0, 1). An episode is truncated after
    T = num_steps steps; its return lies in [-1, 1]. The observation does not show which arm was
    pulled: give the agent its previous action.
    """

    def __init__(self, num_arms: int = 10, num_steps: int = 200):
        check_positive("num_arms", num_arms, "num_arms=10 is the Easy level")
        check_positive("num_steps", num_steps, "num_steps=200 is the Easy level")
        self.num_steps, self.actions = num_steps, num_arms
        self.obs_size, self.state_size = OUTCOMES, num_arms
        self.start_numbers, self.step_numbers = num_arms, 1

    def start(self, u: Numbers, params: Params) -> State:
        """Return the first state of an episode."""
        return State(time=jnp.int32(0), won=jnp.int32(0), odds=u)

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        pulled = jnp.arange(self.actions) == action
        won = u[0] < jnp.sum(jnp.where(pulled, state.odds, 0.0))
        state = State(time=state.time + 1, won=won.astype(jnp.int32), odds=state.odds)
        return state, plus_minus(won, 1 / self.num_steps)

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return whether the last pull paid, one-hot; "lost" on the first observation."""
        return one_hot(state.won, OUTCOMES)

    def is_terminated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return False: only the time limit ends an episode."""
        return jnp.asarray(False)

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return each arm's probability of paying."""
        return state.odds


TASKS = {
    "MultiarmedBandit": Entry(
        MultiarmedBandit,
        levels(num_arms=(10, 20, 30), num_steps=(200, 400, 600)),
        gru=(0.619, 0.538, 0.516),
        better={"Easy": (0.631, "Elman"), "Medium": (0.598, "TCN"), "Hard": (0.574, "TCN")},
    )
}
