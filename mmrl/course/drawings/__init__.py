"""Pictures of recorded episodes: numpy arrays in, one SVG string out.

Drawings need no plotting library, jax or gymnax: a picture is a pure function of the recorded
arrays, a few kilobytes of text that a notebook shows with `IPython.display.SVG`. Every picture has
a name for screen readers, never relies on colour only, and follows the reader's dark theme.
"""

from mmrl.course.drawings.bandit import bandit
from mmrl.course.drawings.boards import battleship, concentration, labyrinth
from mmrl.course.drawings.cards import card_strip, count_recall
from mmrl.course.drawings.cart_pole import cart_pole
from mmrl.course.drawings.episode import episode_svg
from mmrl.course.drawings.mine_sweeper import mine_sweeper
from mmrl.course.drawings.pendulum import pendulum

__all__ = [
    "bandit",
    "battleship",
    "card_strip",
    "cart_pole",
    "concentration",
    "count_recall",
    "episode_svg",
    "labyrinth",
    "mine_sweeper",
    "pendulum",
]
