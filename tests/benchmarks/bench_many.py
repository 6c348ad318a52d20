"""One PPO agent on many environments, against PureJaxRL's and memorax's: steps per second.

    MEMORAX_PYTHON=memorax/bin/python python tests/benchmarks/bench_many.py

bench_r2d2.py describes how to install memorax; without MEMORAX_PYTHON its row is left out.

Equal on both sides: CartPole, the number of environments and of steps per iteration, 4 epochs of 4
minibatches of whole rollouts, width 64, and a GRU, in networks whose parameters are counted. One
network for policy and value against PureJaxRL (`purejaxrl_ppo.py`, in this process), two against
memorax (in a separate process, between our rounds). What both do less: they treat a truncation as a
termination. What both do more: they clip the value loss, and PureJaxRL normalizes advantages in
each minibatch. The rows with an LRU have the same width. memorax also returns every transition of a
round.

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
from typing import Any

import jax
from bench_ppo import ENV, Ours, PureJaxRL
from rival import Rival, Theirs

from mmrl.agents import ppo
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
BEST = 1.5  # least ratio to a rival on a GPU
LONG, WALK = 1024, 5.0  # steps from which an LRU has to be this many times as fast as a GRU there


def run(quick: bool = False, done: Collection[str] = ()) -> Iterator[list[dict]]:
    """Two lists of rows for every size: against PureJaxRL and our GRU, and against memorax."""
    gpu = jax.default_backend() == "gpu"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # for the rival's process
    python, rounds = RIVAL.python("PPO on many environments", __file__), 1 if quick else 5
    for environments, rollout in QUICK if quick else GPU if gpu else CPU:
        base = dataclasses.replace(BASE, environments=environments, rollout=rollout)
        if _name("lru, not gru", base) not in done:
            yield list(here(base, rounds, gpu))
        if python is not None and _name("gru, two networks", base) not in done:
            yield [there(base, rounds, gpu, python)]


def here(base: ppo.Config, rounds: int, gpu: bool) -> Iterator[dict]:
    """Rows of one size: our GRU and LRU against PureJaxRL's GRU, and against each other."""
    base_net = dataclasses.replace(base, shared=True)
    configs = {"gru": base_net, "lru": dataclasses.replace(base_net, memory="lru")}
    programs: dict[str, Any] = {name: Ours(config, 1) for name, config in configs.items()}
    programs["PureJaxRL with a GRU"] = theirs = PureJaxRL(base_net, 1)
    check(programs["gru"].parameters - theirs.parameters)
    seconds = alternating(programs, rounds)
    target = BEST if gpu else None
    for name in configs:
        yield _row(seconds, base, name, "PureJaxRL with a GRU", target)
    long = gpu and base.rollout >= LONG
    yield _row(seconds, base, "lru", "gru", WALK if long else None) | {
        "name": _name("lru, not gru", base),
        "peer_name": "our GRU",
    }


def there(base: ppo.Config, rounds: int, gpu: bool, python: str) -> dict:
    """A row of one size: two networks with a GRU against memorax's."""
    settings = {**dataclasses.asdict(base), "env": ENV, "iterations": 1}
    own, rival = Ours(base, 1), Theirs(RIVAL, python, settings)
    try:
        # Our policy has one output more, the auxiliary value of PPG.
        check(own.parameters - rival.parameters - base.width - 1)
        seconds = alternating({"gru, two networks": own, "memorax": rival}, rounds)
    finally:
        rival.close()
    return _row(seconds, base, "gru, two networks", "memorax", BEST if gpu else None)


def alternating(programs: dict[str, Any], rounds: int) -> dict[str, float]:
    """Return the median of each program's seconds per round."""
    took: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, program in programs.items():
            took[name].append(_seconds(program.round))
    return {name: statistics.median(seconds) for name, seconds in took.items()}


def _seconds(play: Callable[[], float]) -> float:
    began = time.perf_counter()
    play()
    return time.perf_counter() - began


def check(more: int) -> None:
    """Raise `RuntimeError` unless two networks have the same number of parameters."""
    if more:
        raise RuntimeError(f"The networks differ by {more} parameters.")


def _name(ours: str, config: ppo.Config) -> str:
    return f"PPO, {ours}, {config.environments} × {config.rollout}"


def _row(
    seconds: dict[str, float], config: ppo.Config, ours: str, peer: str, target: float | None
) -> dict:
    steps = config.environments * config.rollout
    return {
        "name": _name(ours, config),
        "ours": steps / seconds[ours],
        "peer": steps / seconds[peer],
        "ratio": seconds[peer] / seconds[ours],
        "peer_name": peer,
        "unit": "env steps per second",
        "target": target,
    }


if __name__ == "__main__":
    for line in (line for some in run() for line in some):
        print(
            f"{line['name']:34} {line['ours']:9.0f} / {line['peer']:9.0f} {line['unit']} = "
            f"{line['ratio']:5.2f} × the rate of {line['peer_name']}  (target {line['target']})",
            flush=True,
        )
