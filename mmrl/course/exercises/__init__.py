"""Checks that readers run on their own work.

The `exercises` module of each chapter checks the answers to its exercises, with a hint for each
common mistake. `verdict` compares the result of a training run with the expected range; it prints
the outcome and never raises an error. To check whether your own operation is a monoid, use
`mmrl.monoid.laws`.
"""

from mmrl.course.exercises.answers import Exercise, Mistake, NotYet
from mmrl.course.exercises.verdicts import verdict

__all__ = ["Exercise", "Mistake", "NotYet", "verdict"]
