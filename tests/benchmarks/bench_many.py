"""One PPO agent on many environments, against PureJaxRL's and memorax's: steps per second.

    MEMORAX_PYTHON=memorax/bin/python python tests/benchmarks/bench_many.py

bench_r2d2.py describes how to install memorax; without MEMORAX_PYTHON its row is left out.

Equal on both sides: CartPole, the number of environments and of steps per iteration, 4 epochs of 4
minibatches of whole rollouts, width 64, and a GRU, in networks whose parameters are counted. One
network for policy and value against PureJaxRL (`purejaxrl_ppo.py`, in this process), two against
memorax (in a separate process, between our rounds). What both do less: they treat a truncation as a
termination. What both do more: they clip the value loss. The rows with an LRU have the same width.
memorax also returns every transition of a round.

Unlike the other benchmarks this one measures seconds on the clock, of alternating rounds, because a
GPU's work takes no CPU time. The last row of a size compares our LRU with our GRU, which computes
the steps of a rollout one after another.
"""

import dataclasses
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import jax
from bench_ppo import ENV, Ours, PureJaxRL
from rival import Rival, Theirs

from mmrl.course import plain

RIVAL = Rival(pathlib.Path(__file__).with_name("memorax_ppo.py"), "1.0.1")
BASE = dataclasses.replace(
    plain.PPO,
    memory="gru",
    memory_sizes=(("state_size", 64),),
    width=64,
    learning_rate=2.5e-4,
    max_grad_norm=0.5,
    adam_eps=1e-5,
)
GPU = ((4096, 128), (8192, 128), (512, 1024))  # environments × steps of an iteration
CPU = ((512, 32), (16, 1024))
QUICK = ((8, 4),)
LONG = 1024  # steps, from which an LRU is to be 5 times as fast as a GRU on a GPU


def run(quick: bool = False, done: Collection[str] = ()) -> Iterator[dict]:
    """Rows for every size."""
    gpu = jax.default_backend() == "gpu"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # for the rival's process
    python = RIVAL.python("PPO on many environments", __file__)
    for size in QUICK if quick else GPU if gpu else CPU:
        if f"PPO, lru, {size[0]} × {size[1]}" not in done:
            yield from rows(*size, 1 if quick else 5, gpu, python)


def rows(
    environments: int, rollout: int, rounds: int, gpu: bool, python: str | None
) -> Iterator[dict]:
    """All comparisons of one size."""
    base = dataclasses.replace(BASE, environments=environments, rollout=rollout)
    shared = dataclasses.replace(base, shared=True)
    named = {"gru": shared, "lru": dataclasses.replace(shared, memory="lru")}
    own = {name: Ours(config, 1) for name, config in named.items()}
    programs: dict[str, Any] = {**own, "PureJaxRL": PureJaxRL(shared, 1)}
    check(programs["gru"].parameters - programs["PureJaxRL"].parameters)
    rival = None
    try:
        if python is not None:
            settings = {**dataclasses.asdict(base), "env": ENV, "iterations": 1}
            rival = programs["memorax"] = Theirs(RIVAL, python, settings)
            programs["gru, two networks"] = Ours(base, 1)
            # Our policy has one output more, the auxiliary value of PPG.
            more = base.width + 1
            check(programs["gru, two networks"].parameters - rival.parameters - more)
        seconds = alternating(programs, rounds)
    finally:
        if rival is not None:
            rival.close()
    steps, size = environments * rollout, f"{environments} × {rollout}"
    row = partial(_row, seconds, steps, size)
    best = 1.5 if gpu else None
    for name in own:
        yield row(name, "PureJaxRL", best)
    if rival is not None:
        yield row("gru, two networks", "memorax", best)
    yield row("lru", "gru", 5.0 if gpu and rollout >= LONG else None)


def alternating(programs: dict[str, Any], rounds: int) -> dict[str, float]:
    """Return the median of each program's seconds per round."""
    took: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            took[name].append(_clocked(program.round))
    return {name: statistics.median(seconds) for name, seconds in took.items()}


def _clocked(play: Callable[[], float]) -> float:
    began = time.perf_counter()
    play()
    return time.perf_counter() - began


def check(more: int) -> None:
    """Raise `RuntimeError` unless two networks have the same number of parameters."""
    if more:
        raise RuntimeError(f"The networks differ by {more} parameters.")


def _row(
    seconds: dict[str, float], steps: int, size: str, ours: str, peer: str, target: float | None
) -> dict:
    return {
        "name": f"PPO, {ours}, {size}",
        "ours": steps / seconds[ours],
        "peer": steps / seconds[peer],
        "ratio": seconds[peer] / seconds[ours],
        "peer_name": {"gru": "our GRU", "PureJaxRL": "PureJaxRL with a GRU"}.get(peer, peer),
        "unit": "env steps per second",
        "target": target,
    }


if __name__ == "__main__":
    for line in run():
        print(
            f"{line['name']:34} {line['ours']:9.0f} / {line['peer']:9.0f} {line['unit']} = "
            f"{line['ratio']:5.2f} × the rate of {line['peer_name']}  (target {line['target']})",
            flush=True,
        )
