"""Exercises for chapter 00b: JAX in thirty minutes."""

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

    # The second tape starts in the middle of an episode.
    return [tape(6, [0, 3], 0.5), tape(9, [4, 5], 0.9), tape(1, [0], 0.3), tape(30, [0, 11], 0.0)]


moving_average = Exercise(
    "0b.1",
    solution=_average,
    cases=_tapes,
    mistakes=(
        Mistake(
            lambda xs, begin, beta: _average(xs, np.zeros_like(begin), beta),
            "the average continues across the begin flags. Select with `jnp.where(first, x, ...)`, "
            "because an `if` cannot read the value of a tracer.",
        ),
        Mistake(
            _from_zero,
            "at the start of an episode, this sets the state to 0 and then averages, so the first "
            "input gets the weight 1 - beta. The new state must be the input itself.",
        ),
        Mistake(
            lambda xs, begin, beta: _average(xs, begin, 1 - beta),
            "the two weights are swapped: the old state has the weight `beta`, and the input has "
            "the weight 1 - beta.",
        ),
        Mistake(
            lambda xs, begin, beta: _average(xs, begin, beta)[-1],
            "that is the final carry. `scan` returns the final carry and the stacked outputs of "
            "all steps: return the outputs.",
        ),
        Mistake(
            lambda xs, begin, beta: np.concatenate([[0], _average(xs, begin, beta)[:-1]]),
            "these are the states before each step. `step` must return the *new* state twice, as "
            "the carry and as the output.",
        ),
    ),
    stops=(
        (
            "TracerBool",
            "A Python `if` needs a concrete value, but during tracing the flag is a tracer. Select "
            "with `jnp.where(first, x, ...)`.",
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
    solution=_walk,
    cases=lambda rng: [(jax.random.key(seed), steps) for seed, steps in ((0, 3), (7, 8), (1, 1))],
    mistakes=(
        Mistake(
            lambda key, steps: jax.random.normal(key) * np.arange(1, steps + 1),
            "every stride is the same, because the same key always gives the same number. Scan "
            "over `jax.random.split(key, steps)`, so that each step gets its own key.",
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
            "these are the correct strides. The walk is their running sum, which the carry must "
            "accumulate.",
        ),
        Mistake(
            lambda key, steps: np.cumsum(jax.random.normal(key, (steps,))),
            "this is a valid walk, because one key may be used to draw an array. The exercise asks "
            "for a different one: one draw from each key of `jax.random.split(key, steps)`.",
        ),
        Mistake(
            _in_a_chain,
            "this is a valid walk, because you may also carry the key and split it at each step. "
            "The exercise asks for the keys of a single `jax.random.split(key, steps)`.",
        ),
    ),
    stops=(
        (
            "accepts a single key",
            "This call receives all keys at once. Pass the keys to `jax.lax.scan` as `xs`, so that "
            "the second argument of `step` is a single key.",
        ),
    ),
)


def _discount(rewards: np.ndarray, gamma: Any) -> np.ndarray:
    after, returns = 0.0, np.zeros(len(rewards), np.float32)
    for t in reversed(range(len(rewards))):
        returns[t] = after = rewards[t] + gamma * after
    return returns


def _all_returns(tapes: np.ndarray, gammas: np.ndarray) -> np.ndarray:
    return np.array([[_discount(tape, gamma) for gamma in gammas] for tape in tapes])


def _batches(rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    def batch(count: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
        gammas = np.sort(rng.uniform(size=count)).astype(np.float32)
        return rng.normal(size=(count, steps)).astype(np.float32), gammas

    # Use as many discounts as tapes. A wrong answer that pairs them then runs without an error, and
    # the check can print the matching hint.
    return [batch(2, 4), batch(3, 7), batch(4, 4)]


all_returns = Exercise(
    "0b.3",
    solution=_all_returns,
    cases=_batches,
    mistakes=(
        Mistake(
            lambda tapes, gammas: np.stack(
                [_discount(t, g) for t, g in zip(tapes, gammas, strict=True)]
            ),
            "this pairs tape 0 with discount 0, tape 1 with discount 1, and so on, because one "
            "`vmap` maps both arguments together. Nest two `vmap`s. Each of them maps over one "
            "argument, with None for the other one in `in_axes`.",
        ),
        Mistake(
            lambda tapes, gammas: _all_returns(tapes, gammas).swapaxes(0, 1),
            "the values are right, but the axes are [discount, tape, time]. The outer `vmap` adds "
            "the first axis, so it must map over the tapes.",
        ),
        Mistake(
            lambda tapes, gammas: _all_returns(tapes, gammas)[..., 0],
            "these are only the returns of step 0. Compute the return of every step.",
        ),
        Mistake(
            lambda tapes, gammas: _all_returns(tapes[:, ::-1], gammas)[..., ::-1],
            "this sums the rewards before each step. A return sums the rewards after it, so the "
            "scan needs `reverse=True`.",
        ),
        Mistake(
            lambda tapes, gammas: jnp.moveaxis(jnp.asarray(_all_returns(tapes, gammas)), -1, 0),
            "the values are right, but time has become the first axis. `vmap` puts its new axis in "
            "front by default, so no transpose is needed to keep time last.",
        ),
    ),
    stops=(
        (
            "rank should be at least 1",
            "A `vmap` without `in_axes` maps over both arguments, so the inner function receives "
            "scalars. Each of the two `vmap`s must leave one argument unmapped: set its entry of "
            "`in_axes` to None.",
        ),
        (
            "must have equal types",
            "A single `vmap` removes a single axis, so `discounted_return` still receives all "
            "tapes or all discounts at once. Use a second `vmap` for the other argument.",
        ),
    ),
)
