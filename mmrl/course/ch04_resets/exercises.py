"""Exercises of chapter 04: resets."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from mmrl.course.exercises.answers import Exercise, Mistake

Flags = np.ndarray


def _tapes(rng: np.random.Generator) -> list[tuple[Flags]]:
    drawn = [(rng.random(n) < 0.3,) for n in (2, 9, 30)]
    return [
        *drawn,
        (np.array([False, False, True, False, True]),),  # ends with an episode
        (np.array([True, True, False, True, False]),),  # stops within one
        (np.array([False]),),
    ]


begin_flags = Exercise(
    "4.1",
    wanted=lambda last: np.concatenate([[True], last[:-1]]),
    cases=_tapes,
    mistakes=(
        Mistake(
            lambda last: last,
            "`last[t]` belongs to the step that ended an episode, `begin[t]` to the observation "
            "that starts one. Used as they are, these flags reset one step early.",
        ),
        Mistake(
            lambda last: np.roll(last, 1),
            "rolling is almost right, but it wraps around: the flag of the tape's last step lands "
            "on its first, which begins an episode in any case.",
        ),
        Mistake(
            lambda last: np.concatenate([[False], last[:-1]]),
            "right except for step 0: this tape starts with a new episode.",
        ),
        Mistake(
            lambda last: np.concatenate([last[1:], [True]]),
            "the flags moved the wrong way: if an episode ends at step t, the next one begins at "
            "step t + 1.",
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
    """Compute h_t = g_t h + x_t with h = `forget(h_{t-1}, begin_t, h0)`, selecting h0."""
    h, states = 0.0, []
    for gain, x, first in zip(gains, inputs, begin, strict=True):
        h = gain * forget(h, first, h0) + x
        states.append(h)
    return np.array(states)


def _multiplied(gains: np.ndarray, inputs: np.ndarray, begin: Flags, h0: float) -> np.ndarray:
    return _from_learned_start(
        gains, inputs, begin, h0, lambda h, first, h0: h * (1 - first) + h0 * first
    )


def _from_zero(gains: np.ndarray, inputs: np.ndarray, begin: Flags, h0: float) -> np.ndarray:
    return _from_learned_start(gains, inputs, begin, 0.0)


def _starts(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray, Flags, float]]:
    def draw(h0: float, *broken: int) -> tuple[np.ndarray, np.ndarray, Flags, float]:
        begin = np.isin(np.arange(12), rng.choice(np.arange(2, 12), 3, replace=False))
        begin[0] = True
        inputs = rng.normal(size=12)
        inputs[list(broken)] = np.nan
        return rng.uniform(0.5, 1, 12), inputs, begin, h0

    return [draw(2.0), draw(-1.5), draw(0.7, 1), draw(0.0)]


learned_start = Exercise(
    "4.2",
    wanted=_from_learned_start,
    cases=_starts,
    mistakes=(
        Mistake(
            _multiplied,
            "on finite numbers this is right, but a NaN gets from one episode into the next. A "
            "gain of 0, or a factor 1 - begin, multiplies the past, and 0 · NaN is NaN. Select "
            "with `where`, or leave the forgetting to `Resettable`.",
        ),
        Mistake(
            _from_zero,
            "these are the states from 0, because h0 is not used. Apply the first map of an "
            "episode to h0, and put the result into its input.",
        ),
        Mistake(
            lambda gains, inputs, begin, h0: _from_learned_start(
                gains, np.where(begin, gains * h0 + inputs, inputs), begin * False, 0.0
            ),
            "h0 is used, but the past remains too: the flags have to reach the scan as well.",
        ),
        Mistake(
            lambda gains, inputs, begin, h0: _from_zero(
                gains, np.where(begin, h0 + inputs, inputs), begin, h0
            ),
            "the first step fades h0 like any state, so that it contributes gain * h0, not h0.",
        ),
        Mistake(
            lambda gains, inputs, begin, h0: _from_zero(
                gains, np.where(begin, gains * h0, inputs), begin, h0
            ),
            "h0 replaces the first input of each episode. It comes before that input: add the two.",
        ),
        Mistake(
            lambda gains, inputs, begin, h0: _from_zero(
                gains, np.where(begin, h0, inputs), begin, h0
            ),
            "the first state of an episode is h0 itself here. It comes one step before: let the "
            "gain fade it, and add the input.",
        ),
        Mistake(
            lambda gains, inputs, begin, h0: _from_zero(gains, inputs + gains * h0, begin, h0),
            "h0 is added at every step. It should be added only where an episode begins.",
        ),
        Mistake(
            lambda gains, inputs, begin, h0: _from_zero(gains, inputs, begin, h0) + h0,
            "h0 is added to every state, so it never fades. It is a state itself: apply the first "
            "map of an episode to it, and put the result into that map's input.",
        ),
    ),
    stops=(
        (
            "has no attribute 'at'",
            "The arguments are NumPy arrays. Choose with `np.where(begin, ..., inputs)`.",
        ),
    ),
)


@dataclasses.dataclass(frozen=True)
class Memory:
    """h_t = a h_{t-1} + x_t, reset by flags that are `shift` steps late, or never."""

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
    """Return a matrix [t, s] that is True where output t changes when observation s does."""
    moved = [memory(xs + unit, begin) for unit in np.eye(len(xs))]
    return (np.array(moved) != memory(xs, begin)).T


def _diagnose(memory: Callable[..., np.ndarray], xs: np.ndarray, begin: Flags) -> str:
    found = reach(memory, xs, begin)
    for name in ("right", "late", "early"):
        episode = np.cumsum(np.roll(begin, SHIFTS[name]))
        if np.array_equal(found, np.tril(episode[:, None] == episode)):
            return name
    return "never"


def _from_one_probe(memory: Callable[..., np.ndarray], xs: np.ndarray, begin: Flags) -> str:
    first = reach(memory, xs, begin)[:, 0]
    return "never" if first[np.flatnonzero(begin)[1] :].any() else "right"


def _any_leak(memory: Callable[..., np.ndarray], xs: np.ndarray, begin: Flags) -> str:
    return "right" if _diagnose(memory, xs, begin) == "right" else "never"


def _turned(memory: Callable[..., np.ndarray], xs: np.ndarray, begin: Flags) -> str:
    name = _diagnose(memory, xs, begin)
    return {"late": "early", "early": "late"}.get(name, name)


def _memories(rng: np.random.Generator) -> list[Case]:
    def draw(shift: Any) -> Case:
        lengths = rng.integers(3, 8, 4)
        begin = np.concatenate([np.arange(n) == 0 for n in lengths])
        # Float32, so that JAX and NumPy see the same numbers.
        xs = rng.normal(size=len(begin)).astype(np.float32)
        return Memory(float(rng.uniform(0.8, 0.95)), shift), xs.astype(float), begin

    return [draw(shift) for shift in (*SHIFTS.values(), *SHIFTS.values())]


diagnosis = Exercise(
    "4.3",
    wanted=_diagnose,
    cases=_memories,
    mistakes=(
        Mistake(
            _from_one_probe,
            "changing only the first observation of the tape does not reveal everything: a late "
            "reset looks like none, an early one like a right one. Change each observation in "
            "turn.",
        ),
        Mistake(
            _any_leak,
            "that separates right from wrong, but does not name the fault. Which observation "
            "crosses, and which one is missing from its own episode?",
        ),
        Mistake(
            _turned,
            "late and early are exchanged. A late reset erases the first observation of an "
            "episode; an early one lets the last observation of the episode before through.",
        ),
        Mistake(
            lambda memory, xs, begin: "right",
            "you call every memory right. Change one observation at a time, for example by adding "
            "1, and see at which steps the outputs change.",
        ),
    ),
)
