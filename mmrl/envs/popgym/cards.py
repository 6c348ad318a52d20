"""Lazy dealing: draw a card from the remaining ones instead of shuffling a deck.

gymnax resets inside every step, so a deck shuffled at reset would be shuffled at every step and
discarded. Dealing from the counts of the remaining cards has the same distribution, costs O(types),
and keeps no future in the state, so the state cannot reveal it.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mmrl._dtypes import promoting
from mmrl.envs.popgym.base import Params, Task, check_positive

DECK = 52  # cards
SUITS = 4  # popgym's order: ♠ ♦ ♣ ♥


class CardTask(Task):
    """A task over `num_decks` decks, which terminates after `num_steps` steps, never truncated."""

    num_decks: int

    def is_terminated(self, state: Any, params: Params) -> Bool[Array, ""]:
        """Return True if t ≥ num_steps."""
        return jnp.asarray(state.time >= self.num_steps)

    def is_truncated(self, state: Any, params: Params) -> Bool[Array, ""]:
        """Return True if t ≥ max_steps_in_episode, unless terminated.

        Only a limit below num_steps truncates.
        """
        return (state.time >= params.max_steps_in_episode) & ~self.is_terminated(state, params)


def full_deck(num_decks: int, types: int) -> Int[Array, " types"]:
    """Return the number of cards of each type in `num_decks` decks."""
    return jnp.full((types,), DECK * num_decks // types, jnp.int32)


def draw(
    u: Float[Array, ""], left: Int[Array, " types"]
) -> tuple[Int[Array, ""], Int[Array, " types"]]:
    """Deal one card: type i with probability leftᵢ / Σ left, as from a shuffled deck.

    u is uniform in [0, 1). Returns the type and the remaining cards. An empty deck deals the type
    `len(left)`, which one-hot encodes as zeros.
    """
    upto = jnp.cumsum(left)
    card = jnp.sum(u * upto[-1] >= upto, dtype=jnp.int32)
    return card, left - (jnp.arange(left.size) == card)


@promoting
def share_left(left: Int[Array, " types"], num_decks: int) -> Float[Array, " types"]:
    """Return the share of each type that has not been dealt, in [0, 1]."""
    return left / jnp.float32(DECK * num_decks // left.size)


def check_decks(num_decks: Any) -> None:
    """Raise `ValueError` unless `num_decks` is a positive integer."""
    check_positive("num_decks", num_decks, "a deck has 52 cards; num_decks=1 is the Easy level")
