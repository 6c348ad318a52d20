"""Exercises of chapter 00b: JAX in thirty minutes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake


def _average(xs: np.ndarray, begin: np.ndarray, beta: float) -> np.ndarray:
    h, states = 0.0, []
    for x, first in zip(xs, begin, strict=True):
        h = x if first else beta * h + (1 - beta) * x
        states.append(h)
    return np.array(states, np.float32)


def _from_zero(xs: np.ndarray, begin: np.ndarray, beta: float) -> np.ndarray:
    h, states = 0.0, []
    for x, first in zip(xs, begin, strict=True):
        h = beta * (0.0 if first else h) + (1 - beta) * x
        states.append(h)
    return np.array(states, np.float32)


def _tapes(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray, float]]:
    def tape(steps: int, begins: list[int], beta: float) -> tuple[np.ndarray, np.ndarray, float]:
        return rng.normal(size=steps).astype(np.float32), np.isin(np.arange(steps), begins), beta

    # The second tape continues an episode that began before it.
    return [tape(6, [0, 3], 0.5), tape(9, [4, 5], 0.9), tape(1, [0], 0.3), tape(30, [0, 11], 0.0)]


moving_average = Exercise(
    "0b.1",
    wanted=_average,
    cases=_tapes,
    mistakes=(
        Mistake(
            lambda xs, begin, beta: _average(xs, np.zeros_like(begin), beta),
            "the average continues across the begin flags. Choose with `jnp.where(first, x, ...)`, "
            "because an `if` cannot use the value of a tracer.",
        ),
        Mistake(
            _from_zero,
            "where an episode begins, this sets the state to 0 and then still averages, so the "
            "first input counts only by 1 - beta. The new state must be the input itself.",
        ),
        Mistake(
            lambda xs, begin, beta: _average(xs, begin, 1 - beta),
            "the two shares are exchanged: `beta` is what the state keeps, and the input gets the "
            "rest, 1 - beta.",
        ),
        Mistake(
            lambda xs, begin, beta: _average(xs, begin, beta)[-1],
            "that is the last carry. `scan` returns a pair: the last carry, and the outputs of all "
            "steps. Return the second.",
        ),
        Mistake(
            lambda xs, begin, beta: np.concatenate([[0], _average(xs, begin, beta)[:-1]]),
            "these are the states before each step. `step` must return the *new* state twice: as "
            "the carry, and as the output.",
        ),
    ),
    stops=(
        (
            "TracerBool",
            "A Python `if` has to know its flag while JAX traces, and a tracer has no value. "
            "Choose with `jnp.where(first, x, ...)`.",
        ),
    ),
)


def _walk(key: Any, steps: int) -> np.ndarray:
    return np.cumsum([jax.random.normal(k) for k in jax.random.split(key, steps)])


def _in_a_chain(key: Any, steps: int) -> np.ndarray:
    strides = []
    for _ in range(steps):
        key, now = jax.random.split(key)
        strides.append(jax.random.normal(now))
    return np.cumsum(strides)


walk = Exercise(
    "0b.2",
    wanted=_walk,
    cases=lambda rng: [(jax.random.key(seed), steps) for seed, steps in ((0, 3), (7, 8), (1, 1))],
    mistakes=(
        Mistake(
            lambda key, steps: jax.random.normal(key) * np.arange(1, steps + 1),
            "every stride is still the same, because one key gives one number. Let the scan run "
            "over `jax.random.split(key, steps)`, so that each step gets a separate key.",
        ),
        Mistake(
            lambda key, steps: (
                jax.random.normal(jax.random.split(key, steps)[0]) * np.arange(1, steps + 1)
            ),
            "the key was split, but every step uses the first of the new keys. Pass all of them to "
            "the scan as its inputs.",
        ),
        Mistake(
            lambda key, steps: np.array(
                [jax.random.normal(k) for k in jax.random.split(key, steps)]
            ),
            "these are the strides, and they are right. The walk is their running sum: the carry "
            "adds them up.",
        ),
        Mistake(
            lambda key, steps: np.cumsum(jax.random.normal(key, (steps,))),
            "this is a valid walk, because one key may draw many numbers at once. The exercise "
            "requires another one: one draw from each key of `jax.random.split(key, steps)`.",
        ),
        Mistake(
            _in_a_chain,
            "this is a valid walk: splitting the carried key at each step is the other usual way. "
            "The exercise requires the keys of one `jax.random.split(key, steps)`.",
        ),
    ),
    stops=(
        (
            "accepts a single key",
            "All keys arrive at once here. Pass them to `jax.lax.scan` as its inputs, so that the "
            "second argument of `step` is the one key of this step.",
        ),
    ),
)


def _discounted(rewards: np.ndarray, gamma: Any) -> np.ndarray:
    after, returns = 0.0, np.zeros(len(rewards), np.float32)
    for t in reversed(range(len(rewards))):
        returns[t] = after = rewards[t] + gamma * after
    return returns


def _all_returns(tapes: np.ndarray, gammas: np.ndarray) -> np.ndarray:
    return np.array([[_discounted(tape, gamma) for gamma in gammas] for tape in tapes])


def _batches(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    def batch(count: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        gammas = np.sort(rng.uniform(size=count)).astype(np.float32)
        return rng.normal(size=(count, steps)).astype(np.float32), gammas

    # One discount per tape: an answer that pairs them runs, so that its hint can be chosen.
    return [batch(2, 4), batch(3, 7), batch(4, 4)]


all_returns = Exercise(
    "0b.3",
    wanted=_all_returns,
    cases=_batches,
    mistakes=(
        Mistake(
            lambda tapes, gammas: np.stack(
                [_discounted(t, g) for t, g in zip(tapes, gammas, strict=True)]
            ),
            "this pairs tape 0 with discount 0, tape 1 with discount 1, and so on, because one "
            "`vmap` maps both arguments together. Use two, each over one argument, with None for "
            "the other in `in_axes`.",
        ),
        Mistake(
            lambda tapes, gammas: _all_returns(tapes, gammas).swapaxes(0, 1),
            "the numbers are right, but the axes are [discount, tape, time]. The outer `vmap` "
            "makes the first axis, so map over the tapes there.",
        ),
        Mistake(
            lambda tapes, gammas: _all_returns(tapes, gammas)[..., 0],
            "these are only the returns of step 0. Give the return of every step.",
        ),
        Mistake(
            lambda tapes, gammas: _all_returns(tapes[:, ::-1], gammas)[..., ::-1],
            "this looks back: a step gets the rewards before it. A return looks ahead, so the scan "
            "needs `reverse=True`.",
        ),
        Mistake(
            lambda tapes, gammas: jnp.moveaxis(jnp.asarray(_all_returns(tapes, gammas)), -1, 0),
            "the numbers are right, but time has become the first axis. `vmap` puts its new axis "
            "in front, so that time stays last without any transposing.",
        ),
    ),
    stops=(
        (
            "rank should be at least 1",
            "A `vmap` without `in_axes` removes an axis from both arguments, so the inner one "
            "receives single numbers. Each of the two must leave one argument whole: None for it.",
        ),
        (
            "must have equal types",
            "One `vmap` removes one axis, so `discounted` still gets all the tapes, or all the "
            "discounts, at once. Use a second `vmap` for the other argument.",
        ),
    ),
)
