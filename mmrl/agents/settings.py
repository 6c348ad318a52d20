"""Settings of agents: fields that declare their range, and the base of configs, which checks it.

    class Config(Settings):
        batching: str = choice("tape", "segments")  # static: a change compiles anew
        batch: int | None = count(None)  # None: a size that fits the environment
        gamma: float = share(0.98)  # traced: a change never recompiles

Static fields (sizes, names) shape the program; traced numbers can differ between seeds.
"""

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer

from mmrl._dtypes import whole

static = partial(eqx.field, static=True)

WORDS = ("normalize_observations",)
"""Settings that are True, False or None: a word on the command line instead of a flag."""


class Range(NamedTuple):
    """Values that a setting may have."""

    words: str  # text after "must be"
    holds: Callable[[Any], Any]  # True if a value, or an element of an array, is allowed
    off: float = math.nan  # an end of the range that switches learning off


def choice(default: str, *others: str) -> Any:
    """Declare a static field with one of these names."""
    *first, last = names = (default, *others)
    words = f"{', '.join(map(repr, first))} or {last!r}"
    return _field(default, Range(words, lambda x: x in names), static=True)


def count(default: int | None, least: int = 1) -> Any:
    """Declare a static field with a whole number."""
    return _field(default, Range(f"at least {least}", lambda x: x >= least), static=True)


def share(default: float, off: float = math.nan) -> Any:
    """Declare a number between 0 and 1; `off` is an end that switches learning off."""
    return _field(default, Range("between 0 and 1", lambda x: (x >= 0) & (x <= 1), off))


def positive(default: float) -> Any:
    """Declare a number above 0."""
    return _field(default, Range("positive and finite", lambda x: (x > 0) & (x < math.inf)))


def weight(default: float) -> Any:
    """Declare a number of at least 0."""
    return _field(default, Range("at least 0 and finite", lambda x: (x >= 0) & (x < math.inf)))


def limit(default: float | None, zero: bool = False) -> Any:
    """Declare a number above 0, or with `zero` of at least 0, where ∞ means no limit."""
    if zero:
        return _field(default, Range("at least 0", lambda x: x >= 0))
    return _field(default, Range("positive", lambda x: x > 0))


def _field(default: Any, allowed: Range, **kind: Any) -> Any:
    return eqx.field(default=default, metadata={"range": allowed}, **kind)


Own = TypeVar("Own", bound="Settings")


class Settings(eqx.Module):
    """Settings of an agent that trains for `blocks` blocks, each of `block` iterations."""

    block: eqx.AbstractVar[int]
    blocks: eqx.AbstractVar[int]
    environments: eqx.AbstractVar[int]
    rollout: eqx.AbstractVar[int]
    horizon: eqx.AbstractVar[float | None]

    @property
    def block_steps(self) -> int:
        """Environment steps per seed and block."""
        return math.prod(map(int, (self.block, self.rollout, self.environments)))

    def for_steps(self: Own, steps: int) -> Own:
        """Return the settings of a run with at least `steps` environment steps per seed.

        `blocks` becomes the smallest number that reaches them; everything else is unchanged.
        """
        blocks = -(-whole("steps", steps) // self.block_steps)
        return dataclasses.replace(self, blocks=blocks)

    def check_ranges(self) -> None:
        """Raise `ValueError` for a setting of the wrong type or outside the range of its field.

        Real numbers are compared as float32, and traced ones pass. `memory_sizes` must not contain
        sizes that are set elsewhere.
        """
        others = {"key", "continuous", "bounds", "normalized", "picture", *vars(self)}
        if taken := others & dict(getattr(self, "memory_sizes", ())).keys():
            raise ValueError(
                "`memory_sizes` must name only sizes of the memory; got "
                f"{min(taken)}, which is set elsewhere."
            )
        for field in dataclasses.fields(self):
            value, kinds = getattr(self, field.name), kinds_of(field)
            if value is not None or type(None) not in kinds:
                _check_field(field, kinds, value)


_KINDS = {
    bool: (bool, "True or False"),
    int: (int | np.integer, "a whole number"),
    float: (int | float | np.number | np.ndarray | jax.Array, "a number"),
    str: (str, "a name"),
}


def kinds_of(field: dataclasses.Field) -> tuple[Any, ...]:
    """Return the type of a field, and None's type if it may be None."""
    return typing.get_args(field.type) or (field.type,)


def _check_field(field: dataclasses.Field, kinds: tuple[Any, ...], value: Any) -> None:
    name, (kind, wanted) = field.name, _KINDS.get(kinds[0], (object, ""))
    if not isinstance(value, kind) or (isinstance(value, bool) and kind not in (bool, object)):
        raise ValueError(f"`{name}` must be {wanted}; got {value!r}.")
    if kinds[0] is int and value >= 2**31:
        raise ValueError(f"`{name}` must be below 2³¹; got {value}.")
    allowed = field.metadata.get("range")
    if allowed is None or isinstance(value, Tracer):
        return
    with np.errstate(over="ignore"):
        x = np.asarray(value, np.float32) if kinds[0] is float else value
    if not np.all(allowed.holds(x)):
        fits = ", or None to choose it automatically" if type(None) in kinds else ""
        raise ValueError(f"`{name}` must be {allowed.words}{fits}; got {value!r}.")
    if np.any(x == allowed.off):
        side = "above 0" if allowed.off == 0 else f"below {allowed.off:g}"
        raise ValueError(f"`{name}` must be {side}; got {value}, which switches learning off.")


def resized(config: Own, **sizes: int) -> Own:
    """Return the settings with other sizes; all numbers, including traced ones, are unchanged."""
    numbers, _ = jax.tree.flatten(config)
    config = dataclasses.replace(jax.tree.map(lambda _: 0.0, config), **sizes)
    return jax.tree.unflatten(jax.tree.structure(config), numbers)


def repeatable(config: Own) -> Own:
    """Return the settings of one block, whose program serves runs of any length.

    The number of blocks is then a traced number, `horizon`, for schedules that need it. Sweeps of
    earlier versions may have 0 there, which meant None.
    """
    return dataclasses.replace(config, blocks=1, horizon=float(config.horizon or config.blocks))


class Paper(NamedTuple):
    """Settings of a source, each under its place in the source."""

    source: str
    settings: Mapping[str, Mapping[str, Any]]
    notes: Sequence[str]  # what the source has and the config has not, and what to change
    observes: tuple[str, ...] | None = None  # what the network is shown; None: the agent's own
