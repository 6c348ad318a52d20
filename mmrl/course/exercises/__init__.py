"""Checks that a reader can run on work of their own.

The modules `chapter_00`, `chapter_01`, … check the exercises of the course, and answer a known
mistake with a hint. `verdict` says whether a training run gave what was expected, and stops
nothing. Whether an operation of your own is a monoid, `mmrl.monoid.laws` tells.
"""

from mmrl.course.exercises.answers import Exercise, Mistake, NotYet
from mmrl.course.exercises.verdicts import verdict

__all__ = ["Exercise", "Mistake", "NotYet", "verdict"]
