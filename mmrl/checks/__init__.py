"""Checks that a reader can run on work of their own.

`laws` says whether a binary operation is a monoid at all: a scan trusts that it is, and gives
wrong answers without complaint if it is not. `verdict` says whether a training run gave what was
expected, and stops nothing. The modules `chapter_00`, `chapter_01`, … check the exercises of the
course, and answer a known mistake with a hint.
"""

from mmrl.checks.answers import Exercise, Mistake, NotYet
from mmrl.checks.laws import laws, products
from mmrl.checks.verdicts import verdict

__all__ = ["Exercise", "Mistake", "NotYet", "laws", "products", "verdict"]
