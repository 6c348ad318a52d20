"""Checks that readers run on their own work.

The modules `chapter_00`, `chapter_01`, … check the exercises of the course, with a hint for each
known mistake. `verdict` compares a training run with what was expected, and never stops a notebook.
To check whether your own operation is a monoid, use `mmrl.monoid.laws`.
"""

from mmrl.course.exercises.answers import Exercise, Mistake, NotYet
from mmrl.course.exercises.verdicts import verdict

__all__ = ["Exercise", "Mistake", "NotYet", "verdict"]
