"""Guess whether the next card is higher: counting cards pays a little more than a threshold."""

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from mmrl.envs._gymnax import environment
from mmrl.envs.popgym.base import Action, Entry, Leaf, Numbers, Params, levels, one_hot, plus_minus
from mmrl.envs.popgym.cards import DECK, CardTask, check_decks, draw, full_deck, share_left

RANKS = 13  # ace, 2, …, 10, jack, queen, king, in ascending order


@struct.dataclass
class State(environment.EnvState):
    """The cards dealt since the deck was shuffled."""

    time: Leaf  # int32: steps taken
    card: Leaf  # int32: the rank in view
    left: Leaf  # int32 [13]: cards of each rank still in the deck


class HigherLower(CardTask):
    """Game of guessing whether the next card is higher.

    r_t = ±1/n for a right or a wrong guess, 0 if the rank is the same.

    Action 0 guesses that the next card is higher, action 1 that it is lower; n = 52 num_decks.
    An episode takes n - 1 steps; its return lies in [-1, 1].
    """

    def __init__(self, num_decks: int = 1):
        check_decks(num_decks)
        self.num_decks, self.num_cards = num_decks, DECK * num_decks
        self.num_steps, self.actions = self.num_cards - 1, 2
        self.obs_size, self.state_size = RANKS, 2 * RANKS
        self.start_numbers = self.step_numbers = 1

    def start(self, u: Numbers, params: Params) -> State:
        """Return the first state of an episode."""
        card, left = draw(u[0], full_deck(self.num_decks, RANKS))
        return State(jnp.int32(0), card, left)

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        card, left = draw(u[0], state.left)
        guess = plus_minus((card > state.card) == (action == 0), 1 / self.num_cards)
        reward = jnp.where(card == state.card, 0.0, guess)
        return State(state.time + 1, card, left), reward

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return the rank in view, one-hot."""
        return one_hot(state.card, RANKS)

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return the share of each rank shown so far, and the rank in view, one-hot.

        popgym's `get_state` ends before the rank in view, so it is not Markov.
        """
        shown = 1 - share_left(state.left, self.num_decks)
        return jnp.concatenate([shown, self.look(state, params)])


TASKS = {"HigherLower": Entry(HigherLower, levels(num_decks=(1, 2, 3)))}
