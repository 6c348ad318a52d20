"""Concentration: find pairs of matching cards. Tests memory of cards and their positions."""

import math

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt8

from mmrl.envs._gymnax import environment
from mmrl.envs.popgym import pixels
from mmrl.envs.popgym.base import Action, Entry, Leaf, Numbers, Params, Task, levels, one_hot
from mmrl.envs.popgym.cards import DECK, check_decks, draw, full_deck

TYPES = (2, 13)  # numbers of colors and of ranks; popgym has no variant with suits
NO_CARD = -1


@struct.dataclass
class State(environment.EnvState):
    """State of an episode."""

    time: Leaf  # int32: number of steps taken
    values: Leaf  # int32 [n]: type of the card at each position; NO_CARD if not yet dealt
    left: Leaf  # int32 [types]: number of cards of each type that have not been dealt
    up: Leaf  # bool [n]: True for cards that stay face up
    down: Leaf  # int32: number of the other cards
    first: Leaf  # int32: position of the first card in play; n if there is none
    second: Leaf  # int32: position of the second card in play; n if there is none


class Concentration(Task):
    """Task in which the agent finds pairs of matching cards among n face-down cards.

    Action a turns over the card at position a. The reward is

    - 0 for the first card of a pair, if it was face down;
    - 2/n for a second card that matches, and -2/T for one that does not match;
    - -k/T for a card that is already face up, where k is the number of cards in play, including
      this one.

    No card is in play after a second card, or after a card that was already face up. Two cards that
    do not match are visible in one observation only. Cards match by color (`types` = 2) or by rank
    (`types` = 13). n = 52 num_decks. An episode terminates when all cards are face up and is
    truncated after T = ⌈2n - n/(2n - 1)⌉ steps; both can happen at the same step. The return is in
    [-1, 1].

    A card is sampled when it is first turned over, which has the distribution of a shuffled deck.
    The state contains only cards that the agent has seen, so `state_obs` represents a perfect
    memory. If `shuffled` is True, all cards are sampled at reset, and the state includes all of
    them, as in popgym. The twin has `shuffled=True`.
    """

    def __init__(self, num_decks: int = 1, types: int = 2, shuffled: bool = False):
        check_decks(num_decks)
        if types not in TYPES:
            raise ValueError(
                f"`types` must be one of {TYPES} (colors, ranks), got {types!r}. The Easy level "
                "uses 2."
            )
        self.num_decks, self.types, self.shuffled = num_decks, types, bool(shuffled)
        self.cards = self.actions = DECK * num_decks
        self.num_steps = math.ceil(2 * self.cards - self.cards / (2 * self.cards - 1))
        self.obs_size, self.state_size = self.cards * (types + 1), self.cards * (types + 3)
        self.start_numbers, self.step_numbers = (self.cards, 0) if shuffled else (0, 1)

    def start(self, u: Numbers, params: Params) -> State:
        """Return the initial state of an episode."""
        left, none = full_deck(self.num_decks, self.types), jnp.int32(self.cards)
        values = jnp.full(self.cards, NO_CARD, jnp.int32)
        if self.shuffled:
            values, left = jnp.argsort(u).astype(jnp.int32) % self.types, jnp.zeros_like(left)
        up, down = jnp.zeros(self.cards, bool), jnp.int32(self.cards)
        return State(jnp.int32(0), values, left, up, down, none, none)

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        none, values, left = jnp.int32(self.cards), state.values, state.left
        card = at(values, action, NO_CARD)
        if not self.shuffled:
            card, left = self._deal(u[0], card, left)
        up, first_up = at(state.up, action, False), at(state.up, state.first, False)
        # True if this action turns over a second card. A first card that was already face up does
        # not count.
        is_second = (state.first < none) & (state.second == none) & ~first_up
        pair = (
            is_second & ~up & (state.first != action) & (card == at(values, state.first, NO_CARD))
        )
        penalty = jnp.where(is_second, -2.0, jnp.where(up, -1.0, 0.0)) / self.num_steps
        reward = jnp.where(pair, jnp.float32(2 / self.cards), penalty.astype(jnp.float32))
        place = jnp.arange(self.cards)
        here, before = place == action, place == state.first
        after = State(
            time=state.time + 1,
            values=jnp.where(here, card, values),
            left=left,
            up=state.up | (pair & (here | before)),
            down=state.down - 2 * pair,
            first=jnp.where(is_second, state.first, action).astype(jnp.int32),
            second=jnp.where(is_second, action, none).astype(jnp.int32),
        )
        return after, reward

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return the one-hot type of each card. Face-down cards have a separate type."""
        place = jnp.arange(self.cards)
        visible = state.up | (place == state.first) | (place == state.second)
        return one_hot(jnp.where(visible, state.values, self.types), self.types + 1).ravel()

    def pixels(self, obs: Float[Array, " obs"]) -> UInt8[Array, "rows columns 3"]:
        """Return an image of the table, with 13 cards per row."""
        kinds = pixels.card_kind(obs, self.types + 1)
        return pixels.table(kinds, pixels.faces(self.types), columns=13)

    def is_terminated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return True if all cards are face up."""
        return state.down == 0

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return the type of each card, which cards are up, and the positions of cards in play.

        Types and positions are one-hot. A card that has not been dealt, and a position without a
        card, are encoded as zeros. popgym includes all cards, and encodes a missing card as
        position `types`, which is ambiguous.
        """
        values, up = one_hot(state.values, self.types).ravel(), state.up.astype(jnp.float32)
        places = jnp.stack([state.first, state.second])
        return jnp.concatenate([values, up, one_hot(places, self.cards).ravel()])

    def twin(self) -> "Concentration":
        """Return the task in which all cards are sampled at reset."""
        return Concentration(self.num_decks, self.types, shuffled=True)

    def _deal(
        self, u: Float[Array, ""], card: Int[Array, ""], left: Int[Array, " types"]
    ) -> tuple[Int[Array, ""], Int[Array, " types"]]:
        """Deal a card if `card` is `NO_CARD`; return the card and `left`."""
        new, fewer = draw(u, left)
        is_new = card == NO_CARD
        return jnp.where(is_new, new, card), jax.lax.select(is_new, fewer, left)


def at(row: Shaped[Array, " n"], place: Action, missing: int | bool) -> Shaped[Array, ""]:
    """Return the element of `row` at a place, or `missing` if the place is out of bounds."""
    return row.at[place].get(mode="fill", fill_value=missing)


TASKS = {
    "Concentration": Entry(Concentration, levels(num_decks=(1, 2, 1), types=(2, 2, 13))),
}
