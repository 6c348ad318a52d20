"""Benchmark of methods that compute the discounted returns of many episodes.

This is Figure 4 of Morad et al. (2024) with more competitors. The paper compares its monoid only
with a Python loop that calls a compiled function once per episode. Each call has a fixed cost, so
the time of the loop grows with the number of episodes and hardly depends on their lengths.

Each row is one batch. Lengths are drawn uniformly from 1 to `longest` - 1, as in the paper's code.
The time of a method is the minimum over many rounds, in which all methods take turns. Compilation
is not included. The loop is compiled once for each length, and its first call takes `first_call_s`
seconds. The benchmark checks that all methods return the same values. Two methods receive input
that is already padded, so their times are lower bounds that exclude the cost of padding.
"""

import functools
import os
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.signal import lfilter

from mmrl import returns
from mmrl.course.experiments.grid import Grid, Row, one_by_one
from mmrl.monoid import Affine, Resettable
from mmrl.scan import scan

GAMMA = 0.99
ROUNDS, SELDOM = 160, 4  # slow methods run only in every fourth round

OURS = "ours: one backward scan with resets"
LOOP = "compiled call per episode"
LFILTER = "scipy lfilter per episode"
STEPS = "Python loop over steps"
ASSOCIATIVE = "associative scan with resets"
CHUNKS = "chunked scan with resets"
UNPAD = "pad, vmap(lax.scan), unpad"
RECTANGLE = "vmap(lax.scan), already padded"
COLUMNS = "numpy over padded columns"


class Cell(NamedTuple):
    """Size of a batch: the number of episodes, and an exclusive bound on their lengths."""

    episodes: int
    longest: int

    @property
    def name(self) -> str:
        """Name of the cell in the results."""
        return f"{self.episodes} episodes below {self.longest} steps"


SIZES = (Cell(10, 100), Cell(100, 100), Cell(1000, 100), Cell(1000, 10), Cell(100, 1000))
QUICK = Cell(3, 8)


class Batch:
    """Rewards of a batch of episodes, as one tape and as a padded array."""

    def __init__(self, episodes: int, longest: int, seed: int = 0):
        rng = np.random.default_rng(seed)
        lengths = rng.integers(1, longest, episodes)
        self.longest, self.lengths = longest, lengths
        self.edges = [0, *np.cumsum(lengths).tolist()]
        self.rewards = rng.normal(size=self.edges[-1]).astype("f4")
        self.last = np.zeros(self.edges[-1], bool)
        self.last[np.cumsum(lengths) - 1] = True
        self.mask = np.arange(longest) < lengths[:, None]
        self.padded = np.zeros(self.mask.shape, "f4")
        self.padded[self.mask] = self.rewards

    def tape(self, result: np.ndarray | jax.Array) -> np.ndarray:
        """Return a method's result as a tape. Two-dimensional results are [step, episode]."""
        result = np.asarray(result)
        return result if result.ndim == 1 else result.T[self.mask]


def summarize(row: Row) -> str:
    """Summarize a row: the time of our method, and its speedup over one call per episode."""
    times = row["ms"]
    return f"{times[OURS]:.3f} ms, {times[LOOP] / times[OURS]:.0f} times as fast as a {LOOP}"


def measure(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    """Measure the time of each method on one batch."""
    batch, load = Batch(*cell), os.getloadavg()[0]
    entrants = forms(batch)
    start_time = time.perf_counter()
    expected = entrants[LOOP]()
    first = time.perf_counter() - start_time
    for name, form in entrants.items():
        np.testing.assert_allclose(batch.tape(form()), expected, atol=2e-3, err_msg=name)
    rounds = 2 if quick else ROUNDS
    return {
        **cell._asdict(),
        "steps": batch.edges[-1],
        "distinct_lengths": len(set(batch.lengths.tolist())),
        "gamma": GAMMA,
        "seeds": [0],
        "rounds": rounds,
        "ms": race(entrants, rounds),
        "first_call_s": round(first, 3),
        "load": round(load, 2),
        "quick": quick,
    }


def race(entrants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Time all entrants in alternating rounds, and return the minimum milliseconds of each.

    Slow entrants run only in every `SELDOM`-th round.
    """
    best = dict.fromkeys(entrants, float("inf"))
    for turn in range(rounds):
        for name, form in entrants.items():
            if turn % SELDOM == 0 or name not in (LOOP, LFILTER, STEPS):
                start_time = time.perf_counter()
                form()
                best[name] = min(best[name], time.perf_counter() - start_time)
    return {name: float(f"{seconds * 1e3:.4g}") for name, seconds in best.items()}


def forms(batch: Batch) -> dict[str, Callable[[], Any]]:
    """Return each method of computing the returns of `batch`, as a function without arguments."""
    flat, places = (batch.rewards, batch.last), np.flatnonzero(batch.mask)
    unpad = functools.partial(pad_and_unpad, shape=batch.mask.shape)
    columns_first = np.ascontiguousarray(batch.padded.T)
    return {
        OURS: compile_and_wait(ours, *flat),
        ASSOCIATIVE: compile_and_wait(functools.partial(resettable, "associative"), *flat),
        CHUNKS: compile_and_wait(functools.partial(resettable, "chunked"), *flat),
        UNPAD: compile_and_wait(unpad, batch.rewards, places),
        RECTANGLE: compile_and_wait(jax.vmap(one_episode, 1, 1), columns_first),
        COLUMNS: functools.partial(columns, columns_first),
        LFILTER: functools.partial(by_filter, batch),
        STEPS: functools.partial(stepwise, *flat),
        LOOP: call_per_episode(batch),
    }


def compile_and_wait(function: Callable, *arguments: np.ndarray) -> Callable[[], jax.Array]:
    """Compile `function`, and return a function that runs it and waits for the result."""
    arrays = [jnp.asarray(x) for x in arguments]
    program = jax.jit(function).lower(*arrays).compile()
    return lambda: jax.block_until_ready(program(*arrays))


def ours(rewards: jax.Array, last: jax.Array) -> jax.Array:
    """Compute returns with `mmrl.returns.discounted_return`."""
    return returns.discounted_return(rewards, returns.discounts(GAMMA, last))


def resettable(method: str, rewards: jax.Array, last: jax.Array) -> jax.Array:
    """Compute returns with the monoid of Theorems 3.3 and 3.4 and one method of `mmrl.scan`."""
    elements = (jnp.full_like(rewards, GAMMA), rewards), last
    return scan(Resettable(Affine()), elements, reverse=True, method=method)[0][1]


def one_episode(rewards: jax.Array) -> jax.Array:
    """Compute the returns of one episode with `lax.scan`."""

    def step(g, r):
        g = r + GAMMA * g
        return g, g

    return jax.lax.scan(step, jnp.zeros(()), rewards, reverse=True)[1]


def pad_and_unpad(rewards: jax.Array, places: jax.Array, shape: tuple[int, int]) -> jax.Array:
    """Compute returns on a tape by padding it.

    `places` contains the flat indices of the real steps in the padded array.
    """
    array = jnp.zeros(shape[0] * shape[1]).at[places].set(rewards, unique_indices=True)
    return jax.vmap(one_episode)(array.reshape(shape)).reshape(-1)[places]


def columns(rewards: np.ndarray) -> np.ndarray:
    """Compute returns in NumPy, one step of all episodes at a time.

    `rewards` is [step, episode]. The padding after each episode is 0, so no mask is needed.
    """
    out, g = np.empty_like(rewards), np.zeros(rewards.shape[1], "f4")
    for t in range(len(rewards) - 1, -1, -1):
        out[t] = g = rewards[t] + np.float32(GAMMA) * g
    return out


def by_filter(batch: Batch) -> np.ndarray:
    """Compute returns by filtering each episode backward, as many code bases do."""
    tape = batch.rewards
    parts = [lfilter([1], [1, -GAMMA], tape[a:b][::-1])[::-1] for a, b in pairwise(batch.edges)]
    return np.concatenate(parts)


def stepwise(rewards: np.ndarray, last: np.ndarray) -> np.ndarray:
    """Compute returns one step at a time in Python."""
    out, g = np.zeros_like(rewards), 0.0
    for t in range(out.size - 1, -1, -1):
        out[t] = g = rewards[t] + (0.0 if last[t] else GAMMA) * g
    return out


def call_per_episode(batch: Batch) -> Callable[[], np.ndarray]:
    """Compute returns as the paper's code does, with one call of a compiled scan per episode.

    The scan is compiled once for each length.
    """
    each = jax.jit(lambda r: scan(Affine(), (jnp.full_like(r, GAMMA), r), reverse=True)[1])
    rewards = jnp.asarray(batch.rewards)

    def loop() -> np.ndarray:
        parts = [each(rewards[a:b]).block_until_ready() for a, b in pairwise(batch.edges)]
        return np.concatenate(parts)

    return loop


def _cell_of(row: Row) -> str:
    return Cell(row["episodes"], row["longest"]).name


GRID = Grid(
    "returns_timing",
    SIZES,
    one_by_one(measure),
    summarize,
    cell_of=_cell_of,
    small=(QUICK,),
    about="Discounted returns of many episodes, in nine ways (Figure 4 of the paper).",
    decides="how much faster one scan of all returns is (Figure 4)",
    turn=4,
)
