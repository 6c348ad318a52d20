"""Watch a deck, then repeat it in reverse order: a memory for an ordered list."""

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from mmrl._dtypes import promoting
from mmrl.envs._gymnax import environment
from mmrl.envs.popgym.base import Action, Entry, Leaf, Numbers, Params, levels, one_hot, plus_minus
from mmrl.envs.popgym.cards import DECK, SUITS, CardTask, check_decks, draw, full_deck

UNSEEN = -1
MODES = 2  # PLAY = 0, WATCH = 1


@struct.dataclass
class State(environment.EnvState):
    """State of an episode since the deck was shuffled."""

    time: Leaf  # int32: steps taken
    card: Leaf  # int32: the suit in view
    cards: Leaf  # int32 [n]: the deck, dealt from its end; UNSEEN where not dealt yet
    left: Leaf  # int32 [4]: cards of each suit still in the deck


class Autoencode(CardTask):
    """Game of repeating a deck of cards in reverse.

    r_t = 0 while t < n - 1 (WATCH), then ±1/n for a_t = suit_{2n-2-t} (PLAY); n = 52 num_decks. The
    n-th card is already shown with mode PLAY, and from then on the suit in view is 0. An episode
    takes 2n - 1 steps; its return lies in [-1, 1].
    """

    def __init__(self, num_decks: int = 1):
        check_decks(num_decks)
        self.num_decks, self.num_cards = num_decks, DECK * num_decks
        self.num_steps, self.actions = 2 * self.num_cards - 1, SUITS
        self.obs_size, self.state_size = MODES + SUITS, SUITS * self.num_cards + MODES + 1
        self.start_numbers = self.step_numbers = 1

    def start(self, u: Numbers, params: Params) -> State:
        """Return the first state of an episode."""
        card, left = draw(u[0], full_deck(self.num_decks, SUITS))
        unseen = jnp.full(self.num_cards - 1, UNSEEN, jnp.int32)
        cards = jnp.concatenate([unseen, card[None]])
        return State(time=jnp.int32(0), card=card, cards=cards, left=left)

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        place = jnp.arange(self.num_cards)
        asked = state.time - (self.num_cards - 1)
        suit = jnp.sum(jnp.where(place == asked, state.cards, 0))
        reward = jnp.where(asked < 0, 0.0, plus_minus(suit == action, 1 / self.num_cards))
        card, left = draw(u[0], state.left)
        # In mode PLAY the place is negative, so no card is written.
        cards = jnp.where(place == self.num_cards - 2 - state.time, card, state.cards)
        card = jnp.where(asked < 0, card, 0)
        return State(time=state.time + 1, card=card, cards=cards, left=left), reward

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return the mode (PLAY, WATCH) and the suit in view, each one-hot."""
        return jnp.concatenate([self._mode(state), one_hot(state.card, SUITS)])

    @promoting
    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return the deck's suits and the mode, each one-hot, and the share of cards to replay.

        popgym's state also shows the cards not dealt yet; here they are zeros, because they have
        not been drawn.
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
