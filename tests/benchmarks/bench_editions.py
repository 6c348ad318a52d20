"""The editions in one file against the library: speed in one run, and the scores of five seeds.

Equal on both sides: RepeatPreviousEasy, a network of width 64 with an LRU of 64 units, the default
sizes of the agents, rewards as they are, no dueling head, and an evaluation of 32 episodes at the
end of each block of 10 iterations. What the editions do less: PPO's edition computes values only
when it learns, and the library's also while it acts. What they do more: gymnax draws random numbers
for a step and for a reset separately, and the library's task draws them together.

    python tests/benchmarks/bench_editions.py
"""

import dataclasses
import importlib.util
import pathlib
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
from rival import cpu_seconds

import mmrl  # noqa: F401 (sets the XLA flag before the backend starts)
from mmrl.agents import dqn, ppo
from mmrl.envs import make
from mmrl.envs.wrappers import BeginFlag

FOLDER = pathlib.Path(__file__).parents[2] / "book" / "editions"
TASK = "popgym-RepeatPreviousEasy-v0"
PAIRS = {
    "dqn_tape_lru": (dqn, dqn.Config(dueling=False, normalize_rewards=False, reward_scale=8.0)),
    "ppo_lru": (ppo, ppo.Config(normalize_rewards=False)),
}
TARGET = 0.9
SEEDS = range(5)


def edition(name: str) -> Any:
    """Import an edition from its file."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Blocks:
    """Blocks of a run, one after another, each of ten iterations and an evaluation."""

    def __init__(self, init: Callable[[Any], Any], block: Callable[[Any], tuple[Any, Any]]):
        self.state, self.block = init(jax.random.key(0)), block
        self.round()  # compiles

    def round(self) -> float:
        """Return the CPU-seconds of a block."""
        began = cpu_seconds()
        self.state, outcome = self.block(self.state)
        jax.block_until_ready((self.state, outcome))
        return cpu_seconds() - began


def speed(name: str, quick: bool) -> dict[str, Any]:
    """Return a row: the steps per CPU-second of an edition and of the library, by turns."""
    module, (agent, config) = edition(name), PAIRS[name]
    env, params = make(TASK)
    env = BeginFlag(env)
    if quick:
        config = dataclasses.replace(config, block=1, episodes=1)
        module.BLOCK = module.EPISODES = 1
    library = Blocks(
        jax.jit(partial(agent.init, config, env, params)),
        jax.jit(partial(agent.block, config, env, params), donate_argnums=0),
    )
    own, times = Blocks(module.init, module.block), ([], [])
    for _ in range(1 if quick else 7):
        for program, seconds in zip((own, library), times, strict=True):
            seconds.append(program.round())
    ours, peer = (
        config.block * config.environments * config.rollout / t
        for t in map(statistics.median, times)
    )
    return {
        "name": f"{name}.py",
        "ours": ours,
        "peer": peer,
        "ratio": ours / peer,
        "peer_name": "mmrl",
        "unit": "env steps per CPU-second",
        "target": TARGET,
    }


def scores(name: str) -> dict[str, Any]:
    """Return a row: the lowest final score of five seeds, against 0.95."""
    module = edition(name)
    lowest = min(module.train(seed)[1] for seed in SEEDS)
    return {
        "name": f"{name}.py, lowest final score of five seeds",
        "ours": lowest,
        "peer": 0.95,
        "ratio": lowest / 0.95,
        "peer_name": "the score to reach",
        "unit": "return",
        "target": 1.0,
    }


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    """Yield a row for each comparison; quick runs leave out the scores."""
    for name in PAIRS:
        yield speed(name, quick)
    for name in () if quick else PAIRS:
        yield scores(name)


if __name__ == "__main__":
    for row in run():
        print(row, flush=True)
