"""Checks of agents' settings, with errors that name the setting and the remedy."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

_KINDS = {
    bool: (bool, "True or False"),
    int: (int | np.integer, "a whole number"),
    float: (int | float | np.number | np.ndarray | jax.Array, "a number"),
    str: (str, "a name"),
}


def check_numbers(config: Any, shares: Sequence[str], from_zero: Sequence[str] = ()) -> None:
    """Raises `ValueError` for a setting of another type, or out of range; what is traced passes.

    A whole number is at least 1, or 0 if it is in `from_zero`, and fits into 32 bits; a scalar in
    `shares` lies between 0 and 1, one in `from_zero` between 0 and ∞; all others are positive and
    finite.
    """
    for field in dataclasses.fields(config):
        name, value = field.name, getattr(config, field.name)
        least = 0 if name in from_zero else 1
        kind, wanted = _KINDS.get(field.type, (object, ""))
        if not isinstance(value, kind) or (isinstance(value, bool) and kind not in (bool, object)):
            raise ValueError(f"`{name}` must be {wanted}; got {value!r}.")
        if field.type is int and value < least:
            raise ValueError(f"`{name}` must be at least {least}; got {value}.")
        if field.type is int and value >= 2**31:
            raise ValueError(f"`{name}` must be below 2³¹; got {value}.")
        if field.type is not float or not isinstance(value, int | float):
            continue
        fits, wanted = 0 < value < math.inf, "positive and finite"
        if name in shares:
            fits, wanted = 0 <= value <= 1, "between 0 and 1"
        elif name in from_zero:
            fits, wanted = value >= 0, "at least 0"
        if not fits:
            raise ValueError(f"`{name}` must be {wanted}; got {value}.")


def check_discrete(env: Any, params: Any) -> None:
    """Raises `ValueError` unless the environment has a finite number of actions."""
    if not hasattr(env.action_space(params), "n"):
        raise ValueError(
            "`env` must have discrete actions for Q-learning; got a continuous action space."
        )
