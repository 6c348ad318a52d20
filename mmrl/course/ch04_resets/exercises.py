"""Exercises for chapter 04: resets."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from mmrl.course.exercises.answers import Exercise, Mistake

Flags = np.ndarray


def _tapes(rng: np.random.Generator) -> list[tuple[Flags]]:
    random = [(rng.random(n) < 0.3,) for n in (2, 9, 30)]
    return [
        *random,
        (np.array([False, False, True, False, True]),),  # stops at the end of an episode
        (np.array([True, True, False, True, False]),),  # stops in the middle of an episode
        (np.array([False]),),
    ]


begin_flags = Exercise(
    "4.1",
    solution=lambda last: np.concatenate([[True], last[:-1]]),
    cases=_tapes,
    mistakes=(
        Mistake(
            lambda last: last,
            "`last[t]` marks the final step of an episode, but `begin[t]` marks its first "
            "observation. Unshifted, these flags reset one step early.",
        ),
        Mistake(
            lambda last: np.roll(last, 1),
            "rolling is almost right, but it wraps around: the flag of the last step of the tape "
            "moves to step 0, where an episode begins in any case.",
        ),
        Mistake(
            lambda last: np.concatenate([[False], last[:-1]]),
            "right except for step 0: this tape starts with a new episode.",
        ),
        Mistake(
            lambda last: np.concatenate([last[1:], [True]]),
            "the flags are shifted the wrong way: if an episode ends at step t, the next one "
            "begins at step t + 1.",
        ),
    ),
)


def _from_learned_start(
    gains: np.ndarray,
    inputs: np.ndarray,
    begin: Flags,
    h0: float,
    forget: Callable[..., float] = lambda h, first, h0: h0 if first else h,
) -> np.ndarray:
    """Compute h_t = g_t `forget(h_{t-1}, begin_t, h0)` + x_t.

    The default `forget` selects h0 where an episode begins.
    """
    h, states = 0.0, []
    for gain, x, first in zip(gains, inputs, begin, strict=True):
        h = gain * forget(h, first, h0) + x
        states.append(h)
    return np.array(states)


def _by_product(gains: np.ndarray, inputs: np.ndarray, begin: Flags, h0: float) -> np.ndarray:
    return _from_learned_start(
        gains, inputs, begin, h0, lambda h, first, h0: h * (1 - first) + h0 * first
    )


def _from_zero(gains: np.ndarray, inputs: np.ndarray, begin: Flags, h0: float) -> np.ndarray:
    return _from_learned_start(gains, inputs, begin, 0.0)


def _starts(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray, Flags, float]]:
    def draw(h0: float, *nans: int) -> tuple[np.ndarray, np.ndarray, Flags, float]:
        begin = np.isin(np.arange(12), rng.choice(np.arange(2, 12), 3, replace=False))
        begin[0] = True
        inputs = rng.normal(size=12)
        inputs[list(nans)] = np.nan
        return rng.uniform(0.5, 1, 12), inputs, begin, h0

    return [draw(2.0), draw(-1.5), draw(0.7, 1), draw(0.0)]


learned_start = Exercise(
    "4.2",
    solution=_from_learned_start,
    cases=_starts,
    mistakes=(
        Mistake(
            _by_product,
            "this is right for finite numbers, but a NaN leaks from one episode into the next. "
            "Multiplying the past by 0 does not remove it, because 0 · NaN is NaN. Select with "
            "`where`, or let `Resettable` do the reset.",
        ),
        Mistake(
            _from_zero,
            "these are the states of episodes that start at 0, because h0 is not used. Apply the "
            "first map of an episode to h0, and use the result as its input.",
        ),
        Mistake(
            lambda gains, inputs, begin, h0: _from_learned_start(
                gains, np.where(begin, gains * h0 + inputs, inputs), begin * False, 0.0
            ),
            "h0 is used, but the past is not forgotten: pass the flags to the scan as well.",
        ),
        Mistake(
            lambda gains, inputs, begin, h0: _from_zero(
                gains, np.where(begin, h0 + inputs, inputs), begin, h0
            ),
            "the first step must multiply h0 by its gain, like any other state: add gain * h0, not "
            "h0.",
        ),
        Mistake(
            lambda gains, inputs, begin, h0: _from_zero(
                gains, np.where(begin, gains * h0, inputs), begin, h0
            ),
            "h0 replaces the first input of each episode. Keep that input, and add gain * h0 to "
            "it.",
        ),
        Mistake(
            lambda gains, inputs, begin, h0: _from_zero(
                gains, np.where(begin, h0, inputs), begin, h0
            ),
            "here the first state of an episode is h0 itself. h0 is the state before the first "
            "step, so multiply it by the gain, and add the input.",
        ),
        Mistake(
            lambda gains, inputs, begin, h0: _from_zero(gains, inputs + gains * h0, begin, h0),
            "h0 is added at every step. Add it only where an episode begins.",
        ),
        Mistake(
            lambda gains, inputs, begin, h0: _from_zero(gains, inputs, begin, h0) + h0,
            "h0 is added to every state, so it never decays. h0 is a state: apply the first map of "
            "an episode to it, and use the result as the input of that map.",
        ),
    ),
    stops=(
        (
            "has no attribute 'at'",
            "The arguments are NumPy arrays. Select with `np.where(begin, ..., inputs)`.",
        ),
    ),
)


@dataclasses.dataclass(frozen=True)
class Memory:
    """The memory h_t = a h_{t-1} + x_t, reset `shift` steps late, or never if `shift` is None."""

    gain: float
    shift: int | None = dataclasses.field(repr=False)

    def __call__(self, xs: ArrayLike, begin: Flags) -> np.ndarray:
        resets = np.zeros(len(begin), bool) if self.shift is None else np.roll(begin, self.shift)
        h, states = 0.0, []
        for x, reset in zip(np.asarray(xs, float), resets, strict=True):
            h = self.gain * (0.0 if reset else h) + x
            states.append(h)
        return np.array(states)


SHIFTS = {"right": 0, "late": 1, "early": -1, "never": None}
Case = tuple[Memory, np.ndarray, Flags]


def reach(memory: Callable[..., np.ndarray], xs: np.ndarray, begin: Flags) -> np.ndarray:
    """Return a matrix [t, s] that is True if output t depends on observation s."""
    outputs = [memory(xs + unit, begin) for unit in np.eye(len(xs))]
    return (np.array(outputs) != memory(xs, begin)).T


def _diagnose(memory: Callable[..., np.ndarray], xs: np.ndarray, begin: Flags) -> str:
    matrix = reach(memory, xs, begin)
    for name in ("right", "late", "early"):
        episode = np.cumsum(np.roll(begin, SHIFTS[name]))
        if np.array_equal(matrix, np.tril(episode[:, None] == episode)):
            return name
    return "never"


def _from_one_probe(memory: Callable[..., np.ndarray], xs: np.ndarray, begin: Flags) -> str:
    first = reach(memory, xs, begin)[:, 0]
    return "never" if first[np.flatnonzero(begin)[1] :].any() else "right"


def _any_leak(memory: Callable[..., np.ndarray], xs: np.ndarray, begin: Flags) -> str:
    return "right" if _diagnose(memory, xs, begin) == "right" else "never"


def _reverse(memory: Callable[..., np.ndarray], xs: np.ndarray, begin: Flags) -> str:
    name = _diagnose(memory, xs, begin)
    return {"late": "early", "early": "late"}.get(name, name)


def _memories(rng: np.random.Generator) -> list[Case]:
    def draw(shift: Any) -> Case:
        lengths = rng.integers(3, 8, 4)
        begin = np.concatenate([np.arange(n) == 0 for n in lengths])
        # Round to float32, so that JAX and NumPy compute with the same values.
        xs = rng.normal(size=len(begin)).astype(np.float32)
        return Memory(float(rng.uniform(0.8, 0.95)), shift), xs.astype(float), begin

    return [draw(shift) for shift in (*SHIFTS.values(), *SHIFTS.values())]


diagnosis = Exercise(
    "4.3",
    solution=_diagnose,
    cases=_memories,
    mistakes=(
        Mistake(
            _from_one_probe,
            "it is not enough to change the first observation of the tape: a late reset then looks "
            "like no reset, and an early reset looks correct. Change each observation in turn.",
        ),
        Mistake(
            _any_leak,
            "that detects wrong memories, but does not tell the faults apart. Which observation "
            "leaks into the next episode, and which one is missing from its own?",
        ),
        Mistake(
            _reverse,
            "late and early are swapped. A late reset erases the first observation of an episode. "
            "An early reset lets the last observation of the previous episode through.",
        ),
        Mistake(
            lambda memory, xs, begin: "right",
            "this answer calls every memory correct. Change one observation at a time, for example "
            "by adding 1, and check at which steps the outputs change.",
        ),
    ),
)
