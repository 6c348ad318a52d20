"""Autoencode: watch a deck of cards, then repeat it in reverse order. Tests memory of a list."""

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from mmrl._dtypes import with_promotion
from mmrl.envs._gymnax import environment
from mmrl.envs.popgym.base import Action, Entry, Leaf, Numbers, Params, levels, one_hot, plus_minus
from mmrl.envs.popgym.cards import DECK, SUITS, CardTask, check_decks, draw, full_deck

BLANK = -1
MODES = 2  # PLAY = 0, WATCH = 1


@struct.dataclass
class State(environment.EnvState):
    """State of an episode."""

    time: Leaf  # int32: number of steps taken
    card: Leaf  # int32: suit of the visible card
    cards: Leaf  # int32 [n]: suits, with the first card dealt at index n - 1; BLANK before dealing
    left: Leaf  # int32 [4]: number of cards of each suit that remain in the deck


class Autoencode(CardTask):
    """Task in which the agent watches a deck of n cards and repeats it in reverse order.

    The reward is 0 while the cards are shown (mode WATCH, t < n - 1). Afterwards (mode PLAY), it is
    1/n if a_t = suit_{2n-2-t} and -1/n otherwise. The last card is already shown in mode PLAY;
    after it, the visible suit is always 0. n = 52 num_decks. An episode takes 2n - 1 steps, and its
    return is in [-1, 1].
    """

    def __init__(self, num_decks: int = 1):
        check_decks(num_decks)
        self.num_decks, self.num_cards = num_decks, DECK * num_decks
        self.num_steps, self.actions = 2 * self.num_cards - 1, SUITS
        self.obs_size, self.state_size = MODES + SUITS, SUITS * self.num_cards + MODES + 1
        self.start_numbers = self.step_numbers = 1

    def start(self, u: Numbers, params: Params) -> State:
        """Return the initial state of an episode."""
        card, left = draw(u[0], full_deck(self.num_decks, SUITS))
        blanks = jnp.full(self.num_cards - 1, BLANK, jnp.int32)
        cards = jnp.concatenate([blanks, card[None]])
        return State(time=jnp.int32(0), card=card, cards=cards, left=left)

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        place = jnp.arange(self.num_cards)
        question = state.time - (self.num_cards - 1)
        suit = jnp.sum(jnp.where(place == question, state.cards, 0))
        reward = jnp.where(question < 0, 0.0, plus_minus(suit == action, 1 / self.num_cards))
        card, left = draw(u[0], state.left)
        # The index is negative in mode PLAY, so no card is written.
        cards = jnp.where(place == self.num_cards - 2 - state.time, card, state.cards)
        card = jnp.where(question < 0, card, 0)
        return State(time=state.time + 1, card=card, cards=cards, left=left), reward

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return the one-hot mode (PLAY, WATCH) and the one-hot suit of the visible card."""
        return jnp.concatenate([self._mode(state), one_hot(state.card, SUITS)])

    @with_promotion
    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return the one-hot suits of the deck, the one-hot mode, and the fraction left to repeat.

        popgym's state includes the cards that have not been dealt. Here the entries of such cards
        are zero, because a card is sampled when it is dealt.
        """
        hand = jnp.minimum(state.time + 1, self.num_steps - state.time)
        suits = one_hot(state.cards, SUITS).ravel()
        share = hand / jnp.float32(self.num_cards)
        return jnp.concatenate([suits, self._mode(state), share[None]])

    def _mode(self, state: State) -> Float[Array, " modes"]:
        return one_hot((state.time < self.num_cards - 1).astype(jnp.int32), MODES)


TASKS = {
    "Autoencode": Entry(
        Autoencode,
        levels(num_decks=(1, 2, 3)),
        gru=(-0.283, -0.425, -0.456),
        better={"Medium": (-0.420, "IndRNN"), "Hard": (-0.448, "IndRNN")},
    )
}
