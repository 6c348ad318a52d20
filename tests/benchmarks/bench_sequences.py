"""Sequence replay against flashbax's prioritised trajectory buffer: calls per CPU-second.

    python tests/benchmarks/bench_sequences.py

Every program makes its calls in one compiled loop that carries the storage, as training does, at
131k steps of 16 workers: `add` of 16 × 16 steps with the LSTM states before them (2 × 64 numbers
each) and their errors, `sample`, the two in turn, and `set_priority` of a batch. Twice:

- R2D2's sequences: 80 steps, one every 40, with a prefix of 40 and a tail of 4; 16 in a batch;
- short ones: 10 steps, one every 5, without prefix and tail; 51 in a batch.

flashbax samples windows of as many steps, one every 40 or 5. What it does is less: its windows go
on across the ends of episodes, so it keeps no account of them; a new window gets the largest
priority so far, where ours folds its errors; and it has no importance weights. R2D2 needs the
recurrent state, which flashbax can only store with every step ("with states"; only the first of a
window is used). The rows "without states" leave it out, so there flashbax stores 512 bytes a step
less than R2D2 needs, of which ours keeps one in 40 or 5. The target is to be no slower all the
same.

The limit: of the 64 CPU-µs of a `sample` of 51 short ones (2 EPYC cores, 2026-11-25), 12 draw, 36
read the steps and 17 the two states. XLA gathers number by number, at 1 to 3 ns each, and neither
barriers around the indices nor slices in their place changed that. flashbax reads as many numbers
of steps, and no masks. What is left is little beside learning: a gradient step of R2D2 takes 28.7
CPU-ms (`bench_r2d2.py`), and its sample 0.03.
"""

import dataclasses
from typing import Any

import flashbax
import jax
import jax.numpy as jnp
from bench_replay import EPISODE, TIME, WORKERS, Program, rollout, steps, total

from mmrl.replay import sequences

STATE, ALPHA = 64, 0.9


@dataclasses.dataclass(frozen=True)
class Setting:
    """A cut of episodes into sequences; `batch` of them are sampled."""

    length: int
    period: int
    burn_in: int
    tail: int
    batch: int

    @property
    def window(self) -> int:
        return self.burn_in + self.length + self.tail

    @property
    def capacity(self) -> int:
        """As near to 131k steps as whole periods in every ring allow."""
        whole = WORKERS * self.period
        return whole * round((1 << 17) / whole)

    @property
    def calls(self) -> int:
        """Rollouts until every ring has wrapped around."""
        return self.capacity // (WORKERS * TIME) + EPISODE


SETTINGS = {
    "80 every 40": Setting(length=80, period=40, burn_in=40, tail=4, batch=16),
    "10 every 5": Setting(length=10, period=5, burn_in=0, tail=0, batch=51),
}


def states(i: jax.Array) -> tuple[jax.Array, jax.Array]:
    """An LSTM's state before every step of the i-th rollout."""
    h = jnp.broadcast_to(jnp.asarray(i, jnp.float32), (WORKERS, TIME, STATE))
    return h, h + 1


def errors(i: jax.Array) -> jax.Array:
    """|δ| of its steps: any numbers that cost nothing."""
    return jnp.broadcast_to(i % 7 + jnp.arange(TIME, dtype=jnp.float32), (WORKERS, TIME))


def ours(setting: Setting, calls: int) -> dict[str, Program]:
    def add(state: Any, i: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        state = sequences.add(state, rollout(i), states(i), errors(i))
        return state, jnp.float32(0)

    def sample(state: Any, i: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        return state, total(sequences.sample(state, key, setting.batch, 0.6))

    def both(state: Any, i: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        return sample(add(state, i, key)[0], i, key)

    def full() -> Any:
        empty = sequences.init(
            steps((), True),
            (jnp.zeros(STATE), jnp.zeros(STATE)),
            setting.capacity,
            workers=WORKERS,
            length=setting.length,
            overlap=setting.length - setting.period,
            burn_in=setting.burn_in,
            tail=setting.tail,
            alpha=ALPHA,
        )
        # Arrays of its own, which can be donated.
        return full_storage(add, jax.tree.map(jnp.array, empty), setting)

    rows = jnp.flatnonzero(full().available)

    def put(state: Any, i: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        at, value = priorities(key, setting.batch, rows.size)
        return sequences.set_priority(state, rows[at], value), jnp.float32(0)

    bodies = {"add": add, "sample": sample, "add, then sample": both, "set_priority": put}
    return {name: Program(body, full(), calls) for name, body in bodies.items()}


def theirs(setting: Setting, calls: int, with_states: bool) -> dict[str, Program]:
    """flashbax, whose steps hold the recurrent state or not."""
    buffer = flashbax.make_prioritised_trajectory_buffer(
        add_batch_size=WORKERS,
        sample_batch_size=setting.batch,
        sample_sequence_length=setting.window,
        period=setting.period,
        min_length_time_axis=setting.window,
        max_length_time_axis=setting.capacity // WORKERS,
        priority_exponent=ALPHA,
        device=jax.default_backend(),
    )

    def experience(i: jax.Array) -> tuple:
        return (rollout(i), states(i)) if with_states else (rollout(i),)

    def add(state: Any, i: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        return buffer.add(state, experience(i)), jnp.float32(0)

    def sample(state: Any, i: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        batch = buffer.sample(state, key)
        window, *before = batch.experience
        first = jax.tree.map(lambda x: x[:, 0], before)
        return state, total((window, first, batch.indices, batch.probabilities))

    def both(state: Any, i: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        return sample(add(state, i, key)[0], i, key)

    def put(state: Any, i: jax.Array, key: jax.Array) -> tuple[Any, jax.Array]:
        at, value = priorities(key, setting.batch, setting.capacity // setting.period)
        return buffer.set_priorities(state, at, value), jnp.float32(0)

    def full() -> Any:
        example = jax.tree.map(lambda x: x[0, 0], experience(jnp.zeros((), jnp.int32)))
        empty = jax.tree.map(jnp.array, buffer.init(example))
        return full_storage(add, empty, setting)

    bodies = {"add": add, "sample": sample, "add, then sample": both, "set_priority": put}
    return {name: Program(body, full(), calls) for name, body in bodies.items()}


def priorities(key: jax.Array, count: int, among: int) -> tuple[jax.Array, jax.Array]:
    """`count` of `among` sequences, and the priorities to give them."""
    at, value = jax.random.split(key)
    return jax.random.randint(at, (count,), 0, among), jax.random.uniform(value, (count,))


def full_storage(add: Any, empty: Any, setting: Setting) -> Any:
    """The storage after so many rollouts that it has wrapped around."""
    program = Program(add, empty, setting.calls)
    program.run(0)
    return program.state


def run(quick: bool = False) -> list[dict]:
    """A row per comparison, in calls per CPU-second; of several rounds, the fastest counts."""
    calls, rounds = (20, 2) if quick else (2000, 8)
    programs: dict[tuple[str, str], dict[str, Program]] = {}
    for name, setting in SETTINGS.items():
        programs[name, "ours"] = ours(setting, calls)
        programs[name, "with states"] = theirs(setting, calls, True)
        programs[name, "without states"] = theirs(setting, calls, False)
    for number in range(rounds + 1):  # interleaved, so that a busy machine slows all alike
        for group in programs.values():
            for program in group.values():
                program.run(number)
    results = []
    for name, setting in SETTINGS.items():
        for kind in ("with states", "without states"):
            for call, own in programs[name, "ours"].items():
                peer = programs[name, kind][call]
                row = {
                    "name": f"sequences: {call}, {setting.batch} of {name}",
                    "ours": own.rate(),
                    "peer": peer.rate(),
                    "ratio": own.rate() / peer.rate(),
                    "peer_name": f"flashbax, {kind}",
                    "unit": "calls per CPU-second",
                    "target": 1.0,
                }
                results.append(row)
    return results


if __name__ == "__main__":
    for line in run():
        print(
            f"{line['name']:50} {1e6 / line['ours']:6.1f} / {1e6 / line['peer']:6.1f} CPU-µs a call"
            f" = {line['ratio']:5.2f} × the rate of {line['peer_name']}  (target 1)"
        )
