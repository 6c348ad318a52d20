"""Card decks that are dealt lazily, without shuffling.

gymnax computes a reset at every step, so a deck that is shuffled at reset would be shuffled at
every step. Here each card is sampled from the counts of the remaining cards, which gives the same
distribution and costs O(types). Since the state does not contain future cards, it cannot leak them.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mmrl._dtypes import with_promotion
from mmrl.envs.popgym.base import Params, Task, check_positive

DECK = 52  # number of cards in a deck
SUITS = 4  # number of suits; popgym's order is ♠ ♦ ♣ ♥


class CardTask(Task):
    """Base class of card tasks, which terminate after `num_steps` steps."""

    num_decks: int

    def is_terminated(self, state: Any, params: Params) -> Bool[Array, ""]:
        """Return True after `num_steps` steps."""
        return jnp.asarray(state.time >= self.num_steps)

    def is_truncated(self, state: Any, params: Params) -> Bool[Array, ""]:
        """Return True at the time limit, unless the episode terminates at the same step.

        A time limit of at least `num_steps` never truncates.
        """
        return (state.time >= params.max_steps_in_episode) & ~self.is_terminated(state, params)


def full_deck(num_decks: int, types: int) -> Int[Array, " types"]:
    """Return the number of cards of each type in `num_decks` decks."""
    return jnp.full((types,), DECK * num_decks // types, jnp.int32)


def draw(
    u: Float[Array, ""], left: Int[Array, " types"]
) -> tuple[Int[Array, ""], Int[Array, " types"]]:
    """Sample a card from the remaining ones; return its type and the updated counts.

    Type i has probability leftᵢ / Σ left, as in a shuffled deck. u is uniform in [0, 1). If the
    deck is empty, the type is `len(left)`, whose one-hot encoding is zeros.
    """
    upto = jnp.cumsum(left)
    card = jnp.sum(u * upto[-1] >= upto, dtype=jnp.int32)
    return card, left - (jnp.arange(left.size) == card)


@with_promotion
def share_left(left: Int[Array, " types"], num_decks: int) -> Float[Array, " types"]:
    """Return the fraction of the cards of each type that have not been dealt."""
    return left / jnp.float32(DECK * num_decks // left.size)


def check_decks(num_decks: Any) -> None:
    """Raise `ValueError` unless `num_decks` is a positive integer."""
    check_positive("num_decks", num_decks, "a deck has 52 cards, and the Easy level has one deck")
