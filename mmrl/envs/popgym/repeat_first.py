"""Repeat First: report the first suit of the episode at every step. Tests memory of one item."""

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from mmrl.envs._gymnax import environment
from mmrl.envs.popgym.base import Action, Entry, Leaf, Numbers, Params, levels, one_hot, plus_minus
from mmrl.envs.popgym.cards import DECK, SUITS, CardTask, check_decks, draw, full_deck, share_left


@struct.dataclass
class State(environment.EnvState):
    """State of an episode."""

    time: Leaf  # int32: number of steps taken
    first: Leaf  # int32: suit of the first card, which the agent must repeat
    card: Leaf  # int32: suit of the visible card
    left: Leaf  # int32 [4]: number of cards of each suit that remain in the deck


class RepeatFirst(CardTask):
    """Task in which the agent repeats the first suit at every step.

    The reward is 1/(n - 1) if a_t = suit_0, and -1/(n - 1) otherwise, with n = 52 num_decks. An
    episode takes n - 1 steps, and its return is in [-1, 1].
    """

    def __init__(self, num_decks: int = 1):
        check_decks(num_decks)
        self.num_decks = num_decks
        self.num_steps, self.actions = DECK * num_decks - 1, SUITS
        self.obs_size, self.state_size = SUITS, SUITS + SUITS
        self.start_numbers = self.step_numbers = 1

    def start(self, u: Numbers, params: Params) -> State:
        """Return the initial state of an episode."""
        card, left = draw(u[0], full_deck(self.num_decks, SUITS))
        return State(time=jnp.int32(0), first=card, card=card, left=left)

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        reward = plus_minus(state.first == action, 1 / self.num_steps)
        card, left = draw(u[0], state.left)
        return State(time=state.time + 1, first=state.first, card=card, left=left), reward

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return the one-hot suit of the visible card."""
        return one_hot(state.card, SUITS)

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return the one-hot first suit, and the fraction of each suit that remains in the deck."""
        return jnp.concatenate(
            [one_hot(state.first, SUITS), share_left(state.left, self.num_decks)]
        )


TASKS = {
    "RepeatFirst": Entry(
        RepeatFirst,
        levels(num_decks=(1, 8, 16)),
        gru=(1.0, 1.0, 0.940),
        better={"Hard": (0.969, "IndRNN")},
    )
}
