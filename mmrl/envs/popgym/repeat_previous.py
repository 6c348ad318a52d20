"""Repeat Previous: report the suit shown k - 1 steps ago. Tests recall at a fixed lag."""

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float, UInt8

from mmrl.envs._gymnax import environment
from mmrl.envs.popgym import pixels
from mmrl.envs.popgym.base import Action, Entry, Leaf, Numbers, Params, levels, one_hot, plus_minus
from mmrl.envs.popgym.cards import DECK, SUITS, CardTask, check_decks, draw, full_deck, share_left


@struct.dataclass
class State(environment.EnvState):
    """State of an episode."""

    time: Leaf  # int32: number of steps taken
    cards: Leaf  # int32 [k]: the last k suits, newest last; initially padded with zeros
    left: Leaf  # int32 [4]: number of cards of each suit that remain in the deck


class RepeatPrevious(CardTask):
    """Task in which the agent repeats the suit shown k - 1 steps ago.

    The reward is 1/(n - k) if a_t = suit_{t-(k-1)}, and -1/(n - k) otherwise; n = 52 num_decks. For
    t < k - 1, the reward is 0. As in popgym, k = 1 refers to the visible card, so the lag is k - 1
    steps. An episode takes n - 1 steps, and its return is in [-1, 1].
    """

    def __init__(self, num_decks: int = 1, k: int = 4):
        check_decks(num_decks)
        self.num_decks, self.k = num_decks, k
        cards = DECK * num_decks
        if not isinstance(k, int) or not 1 <= k < cards:
            raise ValueError(
                f"`k` must be an integer in 1..{cards - 1} if `num_decks` is {num_decks}, got "
                f"{k!r}. Increase `num_decks` for a longer lag; k = 1 is the visible card."
            )
        self.num_steps, self.actions = cards - 1, SUITS
        self.obs_size, self.state_size = SUITS, SUITS * k + SUITS
        self.start_numbers = self.step_numbers = 1

    def start(self, u: Numbers, params: Params) -> State:
        """Return the initial state of an episode."""
        card, left = draw(u[0], full_deck(self.num_decks, SUITS))
        cards = jnp.concatenate([jnp.zeros(self.k - 1, jnp.int32), card[None]])
        return State(time=jnp.int32(0), cards=cards, left=left)

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        answer = plus_minus(state.cards[0] == action, 1 / (DECK * self.num_decks - self.k))
        reward = jnp.where(state.time < self.k - 1, 0.0, answer)
        card, left = draw(u[0], state.left)
        cards = jnp.concatenate([state.cards[1:], card[None]])
        return State(time=state.time + 1, cards=cards, left=left), reward

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return the one-hot suit of the visible card."""
        return one_hot(state.cards[-1], SUITS)

    def pixels(self, obs: Float[Array, " obs"]) -> UInt8[Array, "20 20 3"]:
        """Return an image of the visible card."""
        return jnp.asarray(pixels.suits())[pixels.card_kind(obs, SUITS)[0]]

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return the one-hot last k suits, and the fraction of each suit that remains in the deck.

        Until k cards have been shown, the missing suits are encoded as suit 0.
        """
        suits = one_hot(state.cards, SUITS).ravel()
        return jnp.concatenate([suits, share_left(state.left, self.num_decks)])


_PAPER = {"Paper": dict(num_decks=2, k=10)}
TASKS = {
    "RepeatPrevious": Entry(
        RepeatPrevious,
        levels(num_decks=(1, 2, 3), k=(4, 32, 64)) | _PAPER,
        gru=(1.0, -0.315, -0.428),
        better={"Medium": (0.789, "LMU"), "Hard": (0.191, "LMU")},
    )
}
