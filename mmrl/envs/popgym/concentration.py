"""Turn over pairs of equal cards: a memory that associates values with places."""

import math

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, UInt8

from mmrl.envs._gymnax import environment
from mmrl.envs.popgym import pixels
from mmrl.envs.popgym.base import Action, Entry, Leaf, Numbers, Params, Task, levels, one_hot
from mmrl.envs.popgym.cards import DECK, check_decks, draw, full_deck

TYPES = (2, 13)  # colours, ranks: popgym has no suits here, of which there are 13 cards each
UNKNOWN = -1


@struct.dataclass
class State(environment.EnvState):
    """The table, and the cards of the last step."""

    time: Leaf  # int32: steps taken
    values: Leaf  # int32 [n]: type of the card at each place; UNKNOWN until it is dealt
    left: Leaf  # int32 [types]: cards of each type that are not dealt yet
    up: Leaf  # bool [n]: cards that stay face up
    first: Leaf  # int32: place of the earlier card of the last step, n if there is none
    second: Leaf  # int32: place of its later card, n if there is none


class Concentration(Task):
    """Game of turning over pairs of equal cards.

    r_t = 2/n for the second card of a pair, -2/T for a wrong one, -k/T for one that is up.

    Action a turns over the card at place a; k counts the cards in play, this one included, and a
    first card pays 0. After a second card, or one that was up already, no card is in play. A wrong
    pair is seen once, together, and is face down in the next observation. n = 52 num_decks, and
    `types` is 2 or 13: cards match by colour or by rank. An episode terminates when all cards are
    up and is truncated after T = ⌈2n - n/(2n - 1)⌉ steps; both may happen at once. A return lies
    in [-1, 1].

    A card is dealt when it is first turned over, which has the law of a shuffled deck and leaves
    no future in the state: `state_obs` is what a perfect memory contains. With `shuffled` all are
    dealt at the start, so that the state shows every card, as popgym's does; the twin is shuffled.
    """

    def __init__(self, num_decks: int = 1, types: int = 2, shuffled: bool = False):
        check_decks(num_decks)
        if types not in TYPES:
            raise ValueError(
                f"`types` must be one of {TYPES} (colors, ranks), got {types!r}: types=2 is the "
                "Easy level."
            )
        self.num_decks, self.types, self.shuffled = num_decks, types, bool(shuffled)
        self.cards = self.actions = DECK * num_decks
        self.num_steps = math.ceil(2 * self.cards - self.cards / (2 * self.cards - 1))
        self.obs_size, self.state_size = self.cards * (types + 1), self.cards * (types + 3)
        self.start_numbers, self.step_numbers = (self.cards, 0) if shuffled else (0, 1)

    def start(self, u: Numbers, params: Params) -> State:
        """Return the first state of an episode."""
        left, none = full_deck(self.num_decks, self.types), jnp.int32(self.cards)
        values = jnp.full(self.cards, UNKNOWN, jnp.int32)
        if self.shuffled:
            values, left = jnp.argsort(u).astype(jnp.int32) % self.types, jnp.zeros_like(left)
        return State(jnp.int32(0), values, left, jnp.zeros(self.cards, bool), none, none)

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        place, none = jnp.arange(self.cards), jnp.int32(self.cards)
        values, left = state.values, state.left
        if not self.shuffled:
            values, left = self._deal(u[0], state, action)
        here, before = place == action, place == state.first
        up = jnp.any(here & state.up)
        # A first card waits for a second one, unless it was up already.
        waiting = (state.first < none) & (state.second == none) & ~jnp.any(before & state.up)
        same = jnp.sum(jnp.where(here, values, 0)) == jnp.sum(jnp.where(before, values, 0))
        pair = waiting & ~up & same & (state.first != action)
        lost = jnp.where(waiting, -2.0, jnp.where(up, -1.0, 0.0)) / self.num_steps
        reward = jnp.where(pair, jnp.float32(2 / self.cards), lost.astype(jnp.float32))
        first = jnp.where(waiting, state.first, action).astype(jnp.int32)
        second = jnp.where(waiting, action, none).astype(jnp.int32)
        kept = state.up | (pair & (here | before))
        return State(state.time + 1, values, left, kept, first, second), reward

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return the type of each card in view, or "face down", one-hot."""
        place = jnp.arange(self.cards)
        seen = state.up | (place == state.first) | (place == state.second)
        return one_hot(jnp.where(seen, state.values, self.types), self.types + 1).ravel()

    def pixels(self, obs: Float[Array, " obs"]) -> UInt8[Array, "rows columns 3"]:
        """Return the table as a picture, in rows of 13 cards."""
        kinds = pixels.shown(obs, self.types + 1)
        return pixels.table(kinds, pixels.faces(self.types), columns=13)

    def is_terminated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return True if all cards are up."""
        return jnp.all(state.up)

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return each card's type, whether it is up, and the last step's places, one-hot.

        Zeros stand for a card that is not dealt yet, and for no card; popgym shows every card,
        and writes "no card" as place `types`, which is also a place on the table.
        """
        values, up = one_hot(state.values, self.types).ravel(), state.up.astype(jnp.float32)
        places = jnp.stack([state.first, state.second])
        return jnp.concatenate([values, up, one_hot(places, self.cards).ravel()])

    def twin(self) -> "Concentration":
        """Return the task with all cards on the table at the start."""
        return Concentration(self.num_decks, self.types, shuffled=True)

    def _deal(
        self, u: Float[Array, ""], state: State, action: Action
    ) -> tuple[Int[Array, " n"], Int[Array, " types"]]:
        """Return the values and the cards that are left, with a card at the place of `action`."""
        card, fewer = draw(u, state.left)
        new = (jnp.arange(self.cards) == action) & (state.values == UNKNOWN)
        left = jax.lax.select(jnp.any(new), fewer, state.left)
        return jnp.where(new, card, state.values), left


TASKS = {
    "Concentration": Entry(Concentration, levels(num_decks=(1, 2, 1), types=(2, 2, 13))),
}
