"""DQN's training loop as the tape grows: env steps per CPU-second at 10k, 100k and 1M steps.

    python tests/benchmarks/bench_dqn.py

Acting, storing, sampling and learning in one compiled program, as in `mmrl train`. During the runs
the smallest tape wraps around and the larger ones fill. The ratio is the throughput against that of
the smallest tape: 1 is flat, the target is within 15 % of it.
"""

import dataclasses
import time
from functools import partial

import jax

import mmrl  # noqa: F401 (sets the XLA flag before the backend starts)
from mmrl.agents import dqn
from mmrl.course import plain
from mmrl.envs import make
from mmrl.envs.wrappers import BeginFlag

CAPACITIES = {"10k": 10_240, "100k": 102_400, "1M": 1_024_000}


def run(quick: bool = False) -> list[dict]:
    """One row per capacity: env steps per CPU-second, and their ratio to the smallest tape's."""
    env, params = make("popgym-RepeatPreviousEasy-v0")
    env = BeginFlag(env)
    rounds, iterations = (2, 4) if quick else (7, 40)
    programs, states = {}, {}
    for name, capacity in CAPACITIES.items():
        config = dataclasses.replace(plain.DQN, capacity=capacity, block=iterations, episodes=1)
        states[name] = jax.jit(lambda key, c=config: dqn.init(c, env, params, key))(
            jax.random.key(0)
        )
        step = jax.jit(partial(dqn.block, config, env, params), donate_argnums=0)
        programs[name] = step
        states[name], _ = step(states[name])  # compiles
    seconds: dict[str, list[float]] = {name: [] for name in CAPACITIES}
    for _ in range(rounds):  # interleaved, so that a busy machine slows all alike
        for name, step in programs.items():
            began = time.process_time()
            states[name], metrics = step(states[name])
            jax.block_until_ready(metrics)
            seconds[name].append(time.process_time() - began)
    steps = iterations * 16 * 16
    rate = {name: steps / min(times) for name, times in seconds.items()}
    return [
        {
            "name": f"DQN with a tape of {name} steps",
            "ours": rate[name],
            "peer": rate["10k"],
            "ratio": rate[name] / rate["10k"],
            "peer_name": "the same with 10k steps",
            "unit": "env steps per CPU-second",
            "target": 0.85,
        }
        for name in CAPACITIES
    ]


if __name__ == "__main__":
    for row in run():
        print(f"{row['name']:32s} {row['ours']:9.0f} {row['unit']}  ratio {row['ratio']:.2f}")
