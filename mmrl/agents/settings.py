"""Base class for the settings of agents, and fields with a valid range.

    class Config(Settings):
        batching: str = choice("tape", "segments")  # static: a new value triggers recompilation
        batch: int | None = count(None)  # None: a size that fits the environment
        gamma: float = share(0.98)  # traced: a new value never triggers recompilation

Static fields (sizes and names) determine the compiled program. Traced fields may differ between
seeds that are trained in the same program.
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
"""Settings that are True, False or None.

On the command line, these settings are followed by one of the three words, whereas other boolean
settings are flags.
"""


class Range(NamedTuple):
    """Range of valid values of a setting."""

    words: str  # phrase after "must be" in an error
    holds: Callable[[Any], Any]  # True for a valid value, elementwise for an array
    off: float = math.nan  # endpoint that would disable learning, and is therefore invalid


def choice(default: str, *others: str) -> Any:
    """Declare a static field that is one of several names."""
    *first, last = names = (default, *others)
    words = f"{', '.join(map(repr, first))} or {last!r}"
    return _field(default, Range(words, lambda x: x in names), static=True)


def count(default: int | None, least: int = 1) -> Any:
    """Declare a static field that is a whole number of at least `least`."""
    return _field(default, Range(f"at least {least}", lambda x: x >= least), static=True)


def share(default: float, off: float = math.nan) -> Any:
    """Declare a field that is a number between 0 and 1.

    `off` is an endpoint that would disable learning, and is therefore invalid.
    """
    return _field(default, Range("between 0 and 1", lambda x: (x >= 0) & (x <= 1), off))


def positive(default: float) -> Any:
    """Declare a field that is a positive finite number."""
    return _field(default, Range("positive and finite", lambda x: (x > 0) & (x < math.inf)))


def weight(default: float) -> Any:
    """Declare a field that is a nonnegative finite number."""
    return _field(default, Range("at least 0 and finite", lambda x: (x >= 0) & (x < math.inf)))


def limit(default: float | None, zero: bool = False) -> Any:
    """Declare a field that is a positive number, or ∞ for no limit.

    With `zero`, the number may also be 0.
    """
    if zero:
        return _field(default, Range("at least 0", lambda x: x >= 0))
    return _field(default, Range("positive", lambda x: x > 0))


def _field(default: Any, bounds: Range, **kind: Any) -> Any:
    return eqx.field(default=default, metadata={"range": bounds}, **kind)


Own = TypeVar("Own", bound="Settings")


class Settings(eqx.Module):
    """Base class for the settings of an agent.

    A run trains for `blocks` blocks of `block` iterations each.
    """

    block: eqx.AbstractVar[int]
    blocks: eqx.AbstractVar[int]
    environments: eqx.AbstractVar[int]
    rollout: eqx.AbstractVar[int]
    horizon: eqx.AbstractVar[float | None]

    @property
    def block_steps(self) -> int:
        """Number of environment steps per block and seed."""
        return math.prod(map(int, (self.block, self.rollout, self.environments)))

    def for_steps(self: Own, steps: int) -> Own:
        """Return the settings of a run with at least `steps` environment steps per seed.

        Only `blocks` changes; it becomes the smallest sufficient number.
        """
        blocks = -(-whole("steps", steps) // self.block_steps)
        return dataclasses.replace(self, blocks=blocks)

    def check_ranges(self) -> None:
        """Check the types and ranges of all settings.

        Real numbers are compared in float32, and traced numbers are not checked. `memory_sizes`
        must not contain the name of another setting. Raises `ValueError` for an invalid setting.
        """
        others = {"key", "continuous", "bounds", "normalized", "picture", *vars(self)}
        if clash := others & dict(getattr(self, "memory_sizes", ())).keys():
            raise ValueError(
                "`memory_sizes` must name sizes of the memory; got "
                f"{min(clash)}, which is a separate setting. Remove it from `memory_sizes`."
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
    """Return the types that a field accepts, such as (int,) or (int, NoneType)."""
    return typing.get_args(field.type) or (field.type,)


def _check_field(field: dataclasses.Field, kinds: tuple[Any, ...], value: Any) -> None:
    name, (kind, meaning) = field.name, _KINDS.get(kinds[0], (object, ""))
    if not isinstance(value, kind) or (isinstance(value, bool) and kind not in (bool, object)):
        raise ValueError(f"`{name}` must be {meaning}; got {value!r}.")
    if kinds[0] is int and value >= 2**31:
        raise ValueError(f"`{name}` must be below 2³¹; got {value}.")
    bounds = field.metadata.get("range")
    if bounds is None or isinstance(value, Tracer):
        return
    with np.errstate(over="ignore"):
        x = np.asarray(value, np.float32) if kinds[0] is float else value
    if not np.all(bounds.holds(x)):
        fits = ", or None to choose it automatically" if type(None) in kinds else ""
        raise ValueError(f"`{name}` must be {bounds.words}{fits}; got {value!r}.")
    if np.any(x == bounds.off):
        side = "above 0" if bounds.off == 0 else f"below {bounds.off:g}"
        raise ValueError(f"`{name}` must be {side}; got {value}, which disables learning.")


def resize(config: Own, **sizes: int) -> Own:
    """Return the settings with new `sizes`.

    All other settings, including traced ones, are unchanged.
    """
    numbers, _ = jax.tree.flatten(config)
    config = dataclasses.replace(jax.tree.map(lambda _: 0.0, config), **sizes)
    return jax.tree.unflatten(jax.tree.structure(config), numbers)


def repeatable(config: Own) -> Own:
    """Return the settings with a single block and an explicit `horizon`.

    Runs of any length can then share a compiled program. If `horizon` is None, it becomes the
    number of blocks. In sweeps that earlier versions saved, `horizon` may be 0 instead of None.
    """
    return dataclasses.replace(config, blocks=1, horizon=float(config.horizon or config.blocks))


class Paper(NamedTuple):
    """Settings of a published source.

    `settings` maps each place in the source, such as a table, to the settings specified there.
    """

    source: str
    settings: Mapping[str, Mapping[str, Any]]
    notes: Sequence[str]  # differences between the source and our agent, and advice
    observes: tuple[str, ...] | None = None  # inputs of the network; None: default of the agent
