"""Drawings of recorded episodes, which convert NumPy arrays to an SVG string.

The drawings are pure functions of the recorded arrays and do not import a plotting library, JAX or
gymnax. A notebook shows the string, which has a few kilobytes, with `IPython.display.SVG`. Every
drawing has a name for screen readers, is legible without color, and supports dark themes.
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
