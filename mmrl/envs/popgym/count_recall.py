"""Report how often a card was shown so far: counting, where order does not matter."""

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from mmrl.envs._gymnax import environment
from mmrl.envs.popgym.base import Action, Entry, Leaf, Numbers, Params, levels, one_hot, plus_minus
from mmrl.envs.popgym.cards import DECK, CardTask, check_decks, draw, full_deck, share_left

TYPES = (2, 4, 13)  # colours, suits, ranks


@struct.dataclass
class State(environment.EnvState):
    """State of an episode since the two decks were shuffled."""

    time: Leaf  # int32: steps taken
    value: Leaf  # int32: the type shown
    query: Leaf  # int32: the type in question
    values_left: Leaf  # int32 [types]: cards of each type still in the deck shown
    queries_left: Leaf  # int32 [types]: cards of each type still in the deck of questions


class CountRecall(CardTask):
    """Game of counting how often a card was shown.

    r_t = ±1/(n - 1) for a_t = #{i ≤ t : value_i = query_t}; n = 52 num_decks. The count includes
    the card shown together with the query. An episode takes n - 1 steps; its return lies in [-1,
    1]. `types` is 2, 4 or 13: cards differ by color, suit or rank.
    """

    def __init__(self, num_decks: int = 1, types: int = 2):
        check_decks(num_decks)
        if types not in TYPES:
            raise ValueError(
                f"`types` must be one of {TYPES} (colors, suits, ranks), got {types!r}: "
                "types=2 is the Easy level."
            )
        self.num_decks, self.types = num_decks, types
        self.per_type = DECK * num_decks // types
        self.num_steps, self.actions = DECK * num_decks - 1, self.per_type + 1
        self.obs_size, self.state_size = 2 * types, 4 * types
        self.start_numbers = self.step_numbers = 2

    def start(self, u: Numbers, params: Params) -> State:
        """Return the first state of an episode."""
        deck = full_deck(self.num_decks, self.types)
        return self._deal(u, jnp.int32(0), deck, deck)

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        asked = jnp.arange(self.types) == state.query
        count = jnp.sum(jnp.where(asked, self.per_type - state.values_left, 0))
        reward = plus_minus(count == action, 1 / self.num_steps)
        return self._deal(u, state.time + 1, state.values_left, state.queries_left), reward

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return the card shown and the card in question, each one-hot."""
        return jnp.concatenate([one_hot(state.value, self.types), one_hot(state.query, self.types)])

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return the shares of each type shown and queried so far, then the observation."""
        shown = 1 - share_left(state.values_left, self.num_decks)
        asked = 1 - share_left(state.queries_left, self.num_decks)
        return jnp.concatenate([shown, asked, self.look(state, params)])

    def _deal(self, u: Numbers, time: Leaf, values: Leaf, queries: Leaf) -> State:
        value, values = draw(u[0], values)
        query, queries = draw(u[1], queries)
        return State(time, value, query, values, queries)


TASKS = {
    "CountRecall": Entry(
        CountRecall,
        levels(num_decks=(1, 2, 4), types=(2, 4, 13)),
        gru=(0.177, -0.528, -0.475),
        better={"Easy": (0.509, "LSTM")},
        changed=True,
    )
}
