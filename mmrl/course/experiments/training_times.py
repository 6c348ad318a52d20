"""Seconds per gradient step, drawing the batch included, on a tape and on segments (cf. Table 1).

The five ways of batching take turns, and the fastest turn of each counts, so that a busy machine
slows all of them alike.
"""

import dataclasses
import functools
import json
import pathlib
import time
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax

from mmrl.agents import dqn
from mmrl.course.experiments.batching import LENGTHS, MEMORIES, TAPE
from mmrl.runs import append, program

ENV = "popgym-RepeatFirstEasy-v0"
STEPS = 20  # gradient steps in a turn
TURNS = 15


def run(out: pathlib.Path, minutes: float, quick: bool) -> Iterator[str]:
    """Time every memory that `out/training_times.jsonl` lacks, while there is time for another."""
    path, began, last = out / "training_times.jsonl", time.monotonic(), 0.0
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    done = {json.loads(line)["memory"] for line in lines}
    waiting = [memory for memory in MEMORIES if memory not in done]
    while waiting and time.monotonic() + last <= began + 60 * minutes:
        started = time.monotonic()
        rows = measure(waiting[0], quick)
        for row in rows:
            append(path, row)
        last = time.monotonic() - started
        times = [f"{row['batching_name']} {1000 * row['seconds']:.2f} ms" for row in rows]
        yield f"{waiting.pop(0)}: {', '.join(times)}"
    yield f"{len(waiting)} memories remain{': ' if waiting else ''}{', '.join(waiting)}."


def measure(memory: str, quick: bool = False) -> list[dict[str, Any]]:
    """One row for every way of batching."""
    sizes = {"width": 8, "batch": 100, "capacity": 4096} if quick else {}
    programs = {length: _steps(_config(memory, length, **sizes)) for length in (TAPE, *LENGTHS)}
    wall: dict[int, list[float]] = {length: [] for length in programs}
    cpu: dict[int, list[float]] = {length: [] for length in programs}
    for _ in range(2 if quick else TURNS):
        for length, turn in programs.items():
            began, used = time.perf_counter(), time.process_time()
            turn()
            wall[length].append((time.perf_counter() - began) / STEPS)
            cpu[length].append((time.process_time() - used) / STEPS)
    config = _config(memory, TAPE, **sizes)
    return [
        {
            "memory": memory,
            "batching": "segments" if length else "tape",
            "batching_name": f"segments of {length}" if length else "tape",
            "segment_length": length,
            "seconds": min(wall[length]),
            "cpu_seconds": min(cpu[length]),
            "batch": config.batch,
            "width": config.width,
            "env": ENV,
            "turns": len(wall[length]),
            "quick": quick,
        }
        for length in programs
    ]


def _config(memory: str, length: int, **changes: Any) -> dqn.Config:
    config = dqn.Config(memory=memory, batching="segments" if length else "tape", **changes)
    return dataclasses.replace(config, segment_length=length or 1)


def _steps(config: dqn.Config):
    """A function that takes `STEPS` gradient steps on a full tape; compiled and run once."""
    env, params, *_ = program("dqn", ENV, False, True)
    dqn.check(config, env, params)
    rollouts = 2 * config.capacity // (config.environments * config.rollout)

    @jax.jit
    def fill(key):
        state = dqn.init(config, env, params, key)
        act = functools.partial(dqn.act_and_store, config, env, params)
        keys = jax.random.split(key, rollouts)
        return jax.lax.scan(lambda s, k: (act(s, k)[0], None), state, keys)[0]

    @jax.jit
    def turn(state, key):
        learner, held = eqx.partition(state, dqn._is_learner(state))

        def step(learner, key):
            after, _ = dqn.learn(config, eqx.combine(learner, held), key)
            return eqx.filter(after, dqn._is_learner(after)), None

        return jax.lax.scan(step, learner, jax.random.split(key, STEPS))[0]

    state = fill(jax.random.key(0))

    def again() -> None:
        jax.block_until_ready(jax.tree.leaves(turn(state, jax.random.key(1))))

    again()
    return again
