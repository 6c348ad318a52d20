"""Count Recall: report how often a card was shown. Tests counting, independent of the order."""

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Float

from mmrl.envs._gymnax import environment
from mmrl.envs.popgym.base import Action, Entry, Leaf, Numbers, Params, levels, one_hot, plus_minus
from mmrl.envs.popgym.cards import DECK, CardTask, check_decks, draw, full_deck, share_left

TYPES = (2, 4, 13)  # number of card types at each level: colors, suits or ranks


@struct.dataclass
class State(environment.EnvState):
    """State of an episode."""

    time: Leaf  # int32: number of steps taken
    value: Leaf  # int32: type of the visible card
    query: Leaf  # int32: type to count
    values_left: Leaf  # int32 [types]: cards of each type that remain in the value deck
    queries_left: Leaf  # int32 [types]: cards of each type that remain in the query deck


class CountRecall(CardTask):
    """Task in which the agent counts the cards of the queried type.

    At each step, a card is dealt from a value deck and a query from a second deck. The reward is
    1/(n - 1) if a_t = #{i ≤ t : value_i = query_t}, and -1/(n - 1) otherwise; n = 52 num_decks. The
    count includes the current card. Cards differ by color (`types` = 2), suit (4) or rank (13). An
    episode takes n - 1 steps, and its return is in [-1, 1].
    """

    def __init__(self, num_decks: int = 1, types: int = 2):
        check_decks(num_decks)
        if types not in TYPES:
            raise ValueError(
                f"`types` must be one of {TYPES} (colors, suits, ranks), got {types!r}. The Easy "
                "level uses 2."
            )
        self.num_decks, self.types = num_decks, types
        self.per_type = DECK * num_decks // types
        self.num_steps, self.actions = DECK * num_decks - 1, self.per_type + 1
        self.obs_size, self.state_size = 2 * types, 4 * types
        self.start_numbers = self.step_numbers = 2

    def start(self, u: Numbers, params: Params) -> State:
        """Return the initial state of an episode."""
        deck = full_deck(self.num_decks, self.types)
        return self._deal(u, jnp.int32(0), deck, deck)

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        query = jnp.arange(self.types) == state.query
        count = jnp.sum(jnp.where(query, self.per_type - state.values_left, 0))
        reward = plus_minus(count == action, 1 / self.num_steps)
        return self._deal(u, state.time + 1, state.values_left, state.queries_left), reward

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return the one-hot type of the visible card and the one-hot query."""
        return jnp.concatenate([one_hot(state.value, self.types), one_hot(state.query, self.types)])

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return the fractions of each type shown and queried so far, and the observation."""
        values = 1 - share_left(state.values_left, self.num_decks)
        queries = 1 - share_left(state.queries_left, self.num_decks)
        return jnp.concatenate([values, queries, self.look(state, params)])

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
