"""The tape as it grows, and against flashbax: calls per CPU-second of add and sample.

    python tests/benchmarks/bench_replay.py

Every program makes its calls in one compiled loop that carries the storage, as training does:
`add` of 16 workers × 16 steps, `sample` of 512 steps (segments and flashbax: 51 rows of 10), and
the two in turn. The first rows compare a tape of 1M steps with one of 131k: 1 is a cost that does
not grow, the target is that it grows less than 1.5 times. The others compare with flashbax at 131k.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flashbax
import jax
import jax.numpy as jnp
from rival import cpu_seconds

import mmrl  # noqa: F401 (sets the XLA flag before the backend starts)
from mmrl.replay import segments, tape

CAPACITIES = {"16k": 1 << 14, "131k": 1 << 17, "1M": 1 << 20}
WORKERS = TIME = 16
BATCH, ROWS, LENGTH, EPISODE, SEEDS = 512, 51, 10, 51, 5


class Step(eqx.Module):
    """A transition of 8 + 8 numbers, an action, a reward and two flags: 43 bytes or so."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    next_obs: jax.Array
    terminated: jax.Array
    last: jax.Array


def steps(shape: tuple[int, ...], last: Any) -> Step:
    flags = jnp.broadcast_to(last, shape)
    obs, action = jnp.ones((*shape, 8)), jnp.ones(shape, jnp.int32)
    return Step(obs, action, jnp.ones(shape), obs, flags, flags)


def rollout(i: jax.Array) -> Step:
    """The i-th rollout: episodes of 51 steps, which end at different times in each worker."""
    time = i * TIME + jnp.arange(TIME)[None] + 7 * jnp.arange(WORKERS)[:, None]
    return steps((WORKERS, TIME), time % EPISODE == EPISODE - 1)


def total(tree: Any) -> jax.Array:
    """A number that depends on every element, so that none is optimised away."""
    return sum(x.sum().astype(jnp.float32) for x in jax.tree.leaves(tree))


Body = Callable[[Any, jax.Array, jax.Array], tuple[Any, jax.Array]]


def add(t: Any, i: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
    return tape.add(t, rollout(i)), jnp.float32(0)


def sample(t: Any, i: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
    return t, total(tape.sample(t, key, BATCH))


def rows(t: Any, i: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
    return t, total(segments.sample(t, key, ROWS * LENGTH, LENGTH))


def both(t: Any, i: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
    return sample(tape.add(t, rollout(i)), i, key)


class Program:
    """`calls` calls of `body` in one compiled loop, for one storage or several seeds of it."""

    def __init__(self, body: Body, state: Any, calls: int, seeds: int = 1):
        self.calls, self.seeds, self.state, self.best = calls, seeds, state, float("inf")

        def loop(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            def call(state: Any, x: tuple) -> tuple[Any, jax.Array]:
                return body(state, *x)

            xs = (jnp.arange(calls), jax.random.split(key, calls))
            state, sums = jax.lax.scan(call, state, xs)
            return state, sums.sum()

        self.loop = jax.jit(loop if seeds == 1 else jax.vmap(loop), donate_argnums=0)

    def run(self, number: int) -> None:
        """One round, with keys of its own; remembers the CPU-seconds of the fastest."""
        key = jax.random.key(number)
        key = key if self.seeds == 1 else jax.random.split(key, self.seeds)
        jax.block_until_ready(key)
        began = cpu_seconds()
        self.state, result = self.loop(self.state, key)
        jax.block_until_ready((self.state, result))
        if number:  # the first compiles
            self.best = min(self.best, cpu_seconds() - began)

    def rate(self) -> float:
        return self.calls * self.seeds / self.best


def full(capacity: int) -> tape.Tape:
    """A tape that has wrapped around."""
    t = tape.init(steps((), True), capacity, workers=WORKERS)
    t = jax.tree.map(jnp.array, t)  # arrays of its own, which can be donated
    program = Program(add, t, capacity // (WORKERS * TIME) + EPISODE)
    program.run(0)
    return program.state


def ours(calls: int) -> dict[tuple[str, str], Program]:
    results = {}
    for name, capacity in CAPACITIES.items():
        for label, body in (("add", add), ("sample", sample), ("segments", rows), ("both", both)):
            results[label, name] = Program(body, full(capacity), calls)
        seeds = jax.tree.map(lambda x: jnp.stack([x] * SEEDS), full(capacity))
        results["seeds", name] = Program(both, seeds, -(-calls // SEEDS), SEEDS)
    return results


def theirs(calls: int) -> dict[str, Program]:
    """flashbax's trajectory buffer and its prioritised one, of 131k steps."""
    options = {
        "add_batch_size": WORKERS,
        "sample_batch_size": ROWS,
        "sample_sequence_length": LENGTH,
        "period": 1,
        "min_length_time_axis": 4 * TIME,
        "max_length_time_axis": CAPACITIES["131k"] // WORKERS,
    }
    buffers = {
        "": flashbax.make_trajectory_buffer(**options),
        "prioritised ": flashbax.make_prioritised_trajectory_buffer(
            **options, priority_exponent=0.6, device=jax.default_backend()
        ),
    }
    results = {}
    for kind, buffer in buffers.items():

        def put(state: Any, i: jax.Array, key: jax.Array, b: Any = buffer) -> tuple:
            return b.add(state, rollout(i)), jnp.float32(0)

        def take(state: Any, i: jax.Array, key: jax.Array, b: Any = buffer) -> tuple:
            return state, total(b.sample(state, key).experience)

        for label, body in (("add", put), ("sample", take)):
            empty = jax.tree.map(jnp.array, buffer.init(steps((), True)))
            fill = Program(put, empty, options["max_length_time_axis"] // TIME + EPISODE)
            fill.run(0)
            results[kind + label] = Program(body, fill.state, calls)
    return results


GROWTH = {
    "add": "tape: add 16 × 16",
    "sample": "tape: sample 512",
    "both": "tape: add, then sample",
    "seeds": f"the same, vmap over {SEEDS} seeds",
    "segments": "segments: sample 51 × 10",
}
RIVALS = [
    ("add", "add"),
    ("sample", "sample"),
    ("segments", "sample"),
    ("add", "prioritised add"),
    ("sample", "prioritised sample"),
]


def run(quick: bool = False) -> list[dict]:
    """A row per comparison, in calls per CPU-second; of several rounds, the fastest counts."""
    calls, rounds = (20, 2) if quick else (2000, 5)
    programs, rivals = ours(calls), theirs(calls)
    for number in range(rounds + 1):  # interleaved, so that a busy machine slows all alike
        for program in (*programs.values(), *rivals.values()):
            program.run(number)

    def row(name: str, own: Program, peer: Program, peer_name: str, target: float | None) -> dict:
        return {
            "name": name,
            "ours": own.rate(),
            "peer": peer.rate(),
            "ratio": own.rate() / peer.rate(),
            "peer_name": peer_name,
            "unit": "calls per CPU-second",
            "target": target,
        }

    results = []
    for label, name in GROWTH.items():
        base = programs[label, "131k"]
        for size, target in (("16k", None), ("1M", 1 / 1.5)):
            own = programs[label, size]
            results.append(row(f"{name}, {size}", own, base, "the same at 131k", target))
    for label, rival in RIVALS:
        own, peer = programs[label, "131k"], rivals[rival]
        results.append(row(f"{GROWTH[label]}, 131k", own, peer, f"flashbax {rival}", None))
    return results


if __name__ == "__main__":
    for line in run():
        target = "" if line["target"] is None else f"  (target {line['target']:.2f})"
        print(
            f"{line['name']:38} {1e6 / line['ours']:6.1f} / {1e6 / line['peer']:6.1f} CPU-µs a call"
            f" = {line['ratio']:5.2f} × the rate of {line['peer_name']}{target}"
        )
