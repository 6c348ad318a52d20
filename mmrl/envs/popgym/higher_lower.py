"""Higher Lower: guess whether the next card is higher or lower. Counting cards helps a little."""

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from mmrl.envs._gymnax import environment
from mmrl.envs.popgym.base import Action, Entry, Leaf, Numbers, Params, levels, one_hot, plus_minus
from mmrl.envs.popgym.cards import DECK, CardTask, check_decks, draw, full_deck, share_left

RANKS = 13  # ace, 2, …, 10, jack, queen and king, in ascending order


@struct.dataclass
class State(environment.EnvState):
    """State of an episode."""

    time: Leaf  # int32: number of steps taken
    card: Leaf  # int32: rank of the visible card
    left: Leaf  # int32 [13]: number of cards of each rank that remain in the deck


class HigherLower(CardTask):
    """Task in which the agent guesses whether the next card is higher or lower.

    Action 0 means "higher" and action 1 means "lower". With n = 52 num_decks, the reward is 1/n for
    a correct guess, -1/n for a wrong guess, and 0 if the next card has the same rank. An episode
    takes n - 1 steps, and its return is in [-1, 1].
    """

    def __init__(self, num_decks: int = 1):
        check_decks(num_decks)
        self.num_decks, self.num_cards = num_decks, DECK * num_decks
        self.num_steps, self.actions = self.num_cards - 1, 2
        self.obs_size, self.state_size = RANKS, 2 * RANKS
        self.start_numbers = self.step_numbers = 1

    def start(self, u: Numbers, params: Params) -> State:
        """Return the initial state of an episode."""
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
        """Return the one-hot rank of the visible card."""
        return one_hot(state.card, RANKS)

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return the fraction of each rank shown so far, and the one-hot rank of the visible card.

        popgym's `get_state` omits the visible card, so its result is not Markov.
        """
        share = 1 - share_left(state.left, self.num_decks)
        return jnp.concatenate([share, self.look(state, params)])


TASKS = {"HigherLower": Entry(HigherLower, levels(num_decks=(1, 2, 3)))}
