"""Images of cards, used as observations instead of one-hot vectors.

An image contains the same information as the vector, so the task requires the same memory. The
agent must additionally learn to recognize the cards.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

WHITE, BLACK, RED, BLUE, TABLE = (
    (255, 255, 255),
    (20, 20, 20),
    (220, 30, 30),
    (40, 70, 200),
    (30, 110, 60),
)
SIGNS = (
    "...##... ..####.. .######. ######## ######## .######. ...##... ..####..",  # ♠
    "...##... ..####.. .######. ######## ######## .######. ..####.. ...##...",  # ♦
    "..####.. ..####.. ..####.. ######## ######## ######## ...##... ..####..",  # ♣
    ".##..##. ######## ######## ######## .######. ..####.. ...##... ...##...",  # ♥
)
"""Bitmaps of the suits in popgym's order, each with 8 × 8 pixels."""


def suits() -> UInt8[np.ndarray, "suit 20 20 3"]:
    """Return images of the four suits, with each bitmap scaled by two on a white card."""
    cards = np.full((len(SIGNS), 20, 20, 3), WHITE, np.uint8)
    for card, sign, color in zip(cards, SIGNS, (BLACK, RED, BLACK, RED), strict=True):
        lines = np.array([[x == "#" for x in line] for line in sign.split()])
        card[2:-2, 2:-2][lines.repeat(2, axis=0).repeat(2, axis=1)] = color
    return cards


def faces(types: int) -> UInt8[np.ndarray, "face 5 5 3"]:
    """Return images of `types` kinds of cards, followed by an image of a face-down card.

    If there are two kinds, they are black and red. Otherwise, kind k has k + 1 black pixels.
    """
    cards = np.full((types + 1, 5, 5, 3), WHITE, np.uint8)
    cards[-1] = BLUE
    for kind, card in enumerate(cards[:-1]):
        if types == 2:
            card[1:-1, 1:-1] = (BLACK, RED)[kind]
        else:
            card.reshape(25, 3)[: kind + 1] = BLACK
    return cards


def table(
    kinds: Int[Array, " card"], cards: UInt8[np.ndarray, "face height width 3"], columns: int
) -> UInt8[Array, "rows columns 3"]:
    """Return an image of a table, with cards in row-major order and one pixel between them."""
    height, width = cards.shape[1:3]
    shape = len(kinds) // columns, height + 1, columns, width + 1, 3
    table = jnp.broadcast_to(jnp.array(TABLE, jnp.uint8), shape)
    each = jnp.asarray(cards)[kinds].reshape(-1, columns, height, width, 3)
    table = table.at[:, 1:, :, 1:].set(each.transpose(0, 2, 1, 3, 4))
    return table.reshape(table.shape[0] * (height + 1), -1, 3)


def card_kind(obs: Float[Array, " obs"], kinds: int) -> Int[Array, " card"]:
    """Return the kind of each card in a one-hot observation."""
    return jnp.argmax(obs.reshape(-1, kinds), axis=1)
