"""Exercises of chapter 04: resets."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake

Flags = np.ndarray
Affines = tuple[np.ndarray, np.ndarray]


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
            "rolling is almost it, but it wraps round: the flag of the tape's last step lands on "
            "its first, and that one begins an episode in any case.",
        ),
        Mistake(
            lambda last: np.concatenate([[False], last[:-1]]),
            "all right but for step 0: this tape starts with a new episode.",
        ),
        Mistake(
            lambda last: np.concatenate([last[1:], [True]]),
            "the flags moved the wrong way: what ended at step t begins anew at step t + 1.",
        ),
    ),
)


def _fold(gains: np.ndarray, inputs: np.ndarray, begin: Flags, h0: float) -> Affines:
    return np.where(begin, 0, gains), np.where(begin, gains * h0 + inputs, inputs)


def _starts(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray, Flags, float]]:
    def draw(steps: int, h0: float) -> tuple[np.ndarray, np.ndarray, Flags, float]:
        begin = rng.random(steps) < 0.3
        begin[0] = True
        return rng.uniform(0.5, 1, steps), rng.normal(size=steps), begin, h0

    return [draw(1, 2.0), draw(12, -1.5), draw(40, 0.7), draw(12, 0.0)]


learned_start = Exercise(
    "4.2",
    wanted=_fold,
    cases=_starts,
    mistakes=(
        Mistake(
            lambda gains, inputs, begin, h0: (gains, _fold(gains, inputs, begin, h0)[1]),
            "h0 comes in, but the past is not forgotten: where an episode begins, the gain has to "
            "become 0.",
        ),
        Mistake(
            lambda gains, inputs, begin, h0: (
                np.where(begin, 0, gains),
                np.where(begin, h0 + inputs, inputs),
            ),
            "the first step fades h0 like any state: it contributes gain · h0, not h0.",
        ),
        Mistake(
            lambda gains, inputs, begin, h0: (
                np.where(begin, 0, gains),
                np.where(begin, gains * h0, inputs),
            ),
            "h0 replaces the first observation of each episode. It comes before it: add the input.",
        ),
        Mistake(
            lambda gains, inputs, begin, h0: (
                np.where(begin, 0, gains),
                np.where(begin, h0, inputs),
            ),
            "the first state of an episode is h0 itself here. It comes one step before: let the "
            "gain fade it, and add the input.",
        ),
        Mistake(
            lambda gains, inputs, begin, h0: (np.where(begin, h0, gains), inputs),
            "h0 is a state, not a gain. What does the first step of an episode turn h0 into?",
        ),
    ),
)


@dataclasses.dataclass(frozen=True)
class Memory:
    """h_t = a h_{t-1} + x_t, reset by flags that are `shift` steps late, or never."""

    gain: float
    shift: int | None = dataclasses.field(repr=False)

    def __call__(self, xs: np.ndarray, begin: Flags) -> np.ndarray:
        resets = np.zeros(len(xs), bool) if self.shift is None else np.roll(begin, self.shift)
        h, states = 0.0, []
        for x, reset in zip(np.asarray(xs), resets, strict=True):
            h = self.gain * (0.0 if reset else h) + x
            states.append(h)
        return np.array(states)


SHIFTS = {"right": 0, "late": 1, "early": -1, "never": None}
Case = tuple[Memory, np.ndarray, Flags]


def reach(memory: Callable[..., np.ndarray], xs: np.ndarray, begin: Flags) -> np.ndarray:
    """[t, s]: does output t change when observation s does?"""
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
        return Memory(float(rng.uniform(0.8, 0.95)), shift), rng.normal(size=len(begin)), begin

    return [draw(shift) for shift in (*SHIFTS.values(), *SHIFTS.values())]


diagnosis = Exercise(
    "4.3",
    wanted=_diagnose,
    cases=_memories,
    mistakes=(
        Mistake(
            _from_one_probe,
            "changing the first observation of the tape does not tell it all: a late reset looks "
            "like none, an early one like a right one. Change each observation in turn.",
        ),
        Mistake(
            _any_leak,
            "that tells right from wrong, but not what is wrong. Which observation crosses, and "
            "which one is missing from its own episode?",
        ),
        Mistake(
            _turned,
            "late and early are turned round. A late reset wipes out the first observation of an "
            "episode; an early one lets the last observation of the episode before through.",
        ),
    ),
)
