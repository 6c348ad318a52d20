"""Discounted returns of 1000 episodes of 1 to 99 steps on one tape, in many ways.

    python tests/benchmarks/bench_returns.py

Ours is one scan of the whole tape, backwards, in one compiled call. The baseline is the way of the
paper's code: a Python loop over the episodes around a compiled scan, here with every length
compiled beforehand. Its cost is one call per episode, not arithmetic, so that a plain numpy loop
beats it, and any single compiled call beats both: "three orders of magnitude" come from there.

The padded forms compute on [episode, step] arrays, half of which is padding. One row is no
rival but a bound: its input has already been padded and transposed. Ratios above 1 mean that ours
is faster; all forms are checked to give the same returns.
"""

import functools
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl import returns
from mmrl.monoid import Affine, Resettable
from mmrl.scan import scan

GAMMA, LONGEST = 0.99, 100


class Tape:
    """Rewards of consecutive episodes, flat and padded."""

    def __init__(self, episodes: int):
        rng = np.random.default_rng(0)
        lengths = rng.integers(1, LONGEST, episodes)
        self.ends = np.cumsum(lengths)
        self.rewards = rng.normal(size=self.ends[-1]).astype("f4")
        self.last = np.zeros(self.ends[-1], bool)
        self.last[self.ends - 1] = True
        self.mask = np.arange(LONGEST) < lengths[:, None]
        self.places = np.flatnonzero(self.mask)
        self.padded = np.zeros(self.mask.shape, "f4")
        self.padded[self.mask] = self.rewards


def ours(rewards: jax.Array, last: jax.Array) -> jax.Array:
    return returns.discounted(rewards, returns.discounts(GAMMA, last))


def by_scan(method: str, rewards: jax.Array, last: jax.Array) -> jax.Array:
    """The general resettable scan by a given method."""
    elements = (jnp.full_like(rewards, GAMMA), rewards), last
    return scan(Resettable(Affine()), elements, reverse=True, method=method)[0][1]


def one_episode(rewards: jax.Array) -> jax.Array:
    def step(g, r):
        g = r + GAMMA * g
        return g, g

    return jax.lax.scan(step, jnp.zeros(()), rewards, reverse=True)[1]


def padded(rewards: jax.Array, mask: jax.Array) -> jax.Array:
    return jnp.where(mask, jax.vmap(one_episode)(rewards), 0)


def pad_and_unpad(rewards: jax.Array, places: jax.Array, episodes: int) -> jax.Array:
    """From a tape to a tape: `places` are the real steps of the padded array."""
    array = jnp.zeros(episodes * LONGEST).at[places].set(rewards, unique_indices=True)
    return jax.vmap(one_episode)(array.reshape(episodes, LONGEST)).reshape(-1)[places]


def transposed(rewards: jax.Array) -> jax.Array:
    return jax.vmap(one_episode, in_axes=1, out_axes=1)(rewards)


def python_loop(tape: Tape) -> Callable[[], np.ndarray]:
    """One compiled call per episode, as in the paper's code: slice, scan, wait."""
    each = jax.jit(lambda r: scan(Affine(), (jnp.full_like(r, GAMMA), r), reverse=True)[1])
    rewards, edges = jnp.asarray(tape.rewards), [0, *tape.ends.tolist()]

    def loop() -> np.ndarray:
        parts = [each(rewards[a:b]).block_until_ready() for a, b in pairwise(edges)]
        return np.concatenate(parts)

    return loop


def numpy_loop(tape: Tape) -> Callable[[], np.ndarray]:
    def loop() -> np.ndarray:
        out, g = np.zeros_like(tape.rewards), 0.0
        for t in range(out.size - 1, -1, -1):
            out[t] = g = tape.rewards[t] + (0.0 if tape.last[t] else GAMMA) * g
        return out

    return loop


def compiled(function: Callable, *arguments: Any) -> Callable[[], jax.Array]:
    arrays = [jnp.asarray(x) for x in arguments]
    program = jax.jit(function).lower(*arrays).compile()
    return lambda: jax.block_until_ready(program(*arrays))


def forms(tape: Tape) -> dict[str, Callable[[], Any]]:
    """Every way to compute the returns, in one compiled call each except for the two loops."""
    flat = tape.rewards, tape.last
    unpad = functools.partial(pad_and_unpad, episodes=len(tape.ends))
    return {
        "ours": compiled(ours, *flat),
        "Python loop over episodes": python_loop(tape),
        "numpy loop over steps": numpy_loop(tape),
        "lax.associative_scan with resets": compiled(
            functools.partial(by_scan, "associative"), *flat
        ),
        "chunked scan with resets": compiled(functools.partial(by_scan, "chunked"), *flat),
        "pad, vmap(lax.scan), unpad": compiled(unpad, tape.rewards, tape.places),
        "vmap(lax.scan), already padded": compiled(padded, tape.padded, tape.mask),
        "vmap(lax.scan), already padded and transposed": compiled(transposed, tape.padded.T),
    }


LOOPS = ("Python loop over episodes", "numpy loop over steps")
BOUND = "vmap(lax.scan), already padded and transposed"


def flattened(result: Any, tape: Tape) -> np.ndarray:
    """The returns as a tape, whichever shape a form gives them."""
    result = np.asarray(result)
    if result.ndim == 1:
        return result
    return (result if result.shape == tape.mask.shape else result.T)[tape.mask]


def race(tape: Tape, rounds: int) -> dict[str, float]:
    """The least seconds of each form, after checking that all agree."""
    entrants = forms(tape)
    expected = entrants["numpy loop over steps"]()
    best = {}
    for name, form in entrants.items():
        np.testing.assert_allclose(flattened(form(), tape), expected, atol=1e-3, err_msg=name)
        best[name] = float("inf")
    for turn in range(rounds):
        for name, form in entrants.items():
            if name in LOOPS and turn % 20:  # seconds each: twenty times as rarely
                continue
            began = time.perf_counter()
            form()
            best[name] = min(best[name], time.perf_counter() - began)
    return best


def run(quick: bool = False) -> list[dict]:
    """Ours against every other form, and against the fastest of the single compiled calls."""
    times = race(Tape(20 if quick else 1000), rounds=2 if quick else 200)
    mine = times.pop("ours")

    def row(peer_name: str, seconds: float, target: float | None) -> dict:
        return {
            "name": "discounted returns",
            "ours": mine * 1e3,
            "peer": seconds * 1e3,
            "ratio": seconds / mine,
            "peer_name": peer_name,
            "unit": "ms",
            "target": target,
        }

    targets = {"Python loop over episodes": 1000.0}
    rows = [row(name, t, targets.get(name)) for name, t in times.items()]
    single = {name: t for name, t in times.items() if name not in (*LOOPS, BOUND)}
    fastest = min(single, key=single.__getitem__)
    return [*rows, row(f"fastest single call ({fastest})", single[fastest], 1.0)]


if __name__ == "__main__":
    for line in run():
        print(
            f"{line['name']:20s} {line['ours']:8.3f} {line['unit']}  {line['ratio']:8.2f} × "
            f"{line['peer_name']} (target {line['target']})",
            flush=True,
        )
