"""Random rollouts of the POPGym tasks against popgym's numpy and against gymnax's CartPole.

    python tests/benchmarks/bench_envs.py

Ours is `env.step` with its automatic reset, vmapped and scanned in one compiled program; popgym is
one environment in a Python loop; CartPole is the cheapest of gymnax's own, rolled out as ours is.
Keys and actions are drawn beforehand for all three, so the environments alone are timed. Random
numbers are compiled as `mmrl train` compiles them.

A rollout stores its observations as float32. In Concentration they have 156 to 728 numbers, so
storing them takes about half of the time, and bounds the ratio. A third peer stores an array of the
same shape, filled with one number per environment and step, and computes nothing else. With 64
environments it is 22 to 44 times as fast as popgym's ConcentrationEasy, depending on the load.

Battleship is the task whose step costs popgym least: 3 to 5 µs. A step of 64 environments takes
ours about 10 µs, in 30 small kernels without a dominant one, so 40 times is out of reach unless
kernels are merged.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import popgym.envs as originals

from mmrl import _random
from mmrl.envs import make

TARGETS = {"RepeatPreviousEasy": 50.0}  # with 64 environments, against popgym; 40 for other tasks
TASKS = ("RepeatPreviousEasy", "RepeatFirstHard", "BattleshipEasy", "BattleshipHard")
TASKS += ("ConcentrationEasy", "ConcentrationHard")
STORE = "storing observations only"
COUNTS = (1, 64, 1024)  # environments
STEPS = {1: 40_000, 64: 10_000, 1024: 1_000}  # per environment and round
LOOP_STEPS = 40_000


def rollout(env: Any, count: int, steps: int) -> Callable[[], float]:
    """A function that makes one random rollout and returns environment steps per second."""
    params = env.default_params
    keys = jax.random.split(jax.random.key(0), (steps, count))
    actions = jax.random.randint(jax.random.key(1), (steps, count), 0, env.num_actions)

    def step(state, chance):
        key, action = chance
        obs, state, *flags, _ = jax.vmap(env.step, (0, 0, 0, None))(key, state, action, params)
        return state, (obs, flags)

    @jax.jit
    def roll(keys, actions):
        _, state = jax.vmap(env.reset, (0, None))(keys[0], params)
        return jax.lax.scan(step, state, (keys, actions))

    def rate() -> float:
        began = time.perf_counter()
        jax.block_until_ready(roll(keys, actions))
        return steps * count / (time.perf_counter() - began)

    rate()  # compiles
    return rate


def store(env: Any, count: int, steps: int) -> Callable[[], float]:
    """A function that stores constant observations and returns environment steps per second."""
    shape = (count, *env.observation_space(env.default_params).shape)
    numbers = jnp.arange(steps * count, dtype=jnp.float32).reshape(steps, count)

    def step(carry, row):
        return carry, jnp.broadcast_to(row.reshape(count, *[1] * (len(shape) - 1)), shape)

    roll = jax.jit(lambda numbers: jax.lax.scan(step, 0, numbers)[1])

    def rate() -> float:
        began = time.perf_counter()
        jax.block_until_ready(roll(numbers))
        return steps * count / (time.perf_counter() - began)

    rate()  # compiles
    return rate


def loop(env: Any, steps: int) -> Callable[[], float]:
    """The same of one original environment in a Python loop."""
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(steps)]
    env.reset(seed=0)

    def rate() -> float:
        began = time.perf_counter()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return steps / (time.perf_counter() - began)

    return rate


def measure(contestants: dict[Any, Callable[[], float]], rounds: int) -> dict[Any, float]:
    """The best rate of each, in interleaved rounds, so that a busy machine slows all alike."""
    rates: dict[Any, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, measure_rate in contestants.items():
            rates[name].append(measure_rate())
    return {name: max(numbers) for name, numbers in rates.items()}


def rows(task: str, rate: dict[Any, float]) -> list[dict]:
    """One row per number of environments and peer."""
    results = []
    for count in COUNTS:
        peers: dict[str, Any] = {"popgym in a Python loop": "popgym"}
        peers |= {f"gymnax CartPole × {count}": ("pole", count), STORE: (STORE, count)}
        for peer_name, peer in peers.items():
            target = TARGETS.get(task, 40.0) if peer == "popgym" and count == 64 else None
            results.append(
                {
                    "name": f"{task} × {count}",
                    "ours": rate["ours", count],
                    "peer": rate[peer],
                    "ratio": rate["ours", count] / rate[peer],
                    "peer_name": peer_name,
                    "unit": "env steps per second",
                    "target": target,
                }
            )
    return results


def run(quick: bool = False) -> Iterator[dict]:
    """Environment steps per second of some tasks, and their ratios to the three peers."""
    _random.compile_quickly()
    rounds, shrink = (1, 100) if quick else (15, 1)
    pole = make("CartPole-v1")[0]
    for task in TASKS:
        env = make(f"popgym-{task}-v0")[0]
        contestants: dict[Any, Callable[[], float]] = {
            "popgym": loop(getattr(originals, task)(), LOOP_STEPS // shrink)
        }
        for count in COUNTS:
            contestants["ours", count] = rollout(env, count, STEPS[count] // shrink)
            contestants["pole", count] = rollout(pole, count, STEPS[count] // shrink)
            contestants[STORE, count] = store(env, count, STEPS[count] // shrink)
        yield from rows(task, measure(contestants, rounds))


if __name__ == "__main__":
    for row in run():
        target = "" if row["target"] is None else f"  (target {row['target']:g})"
        print(
            f"{row['name']:26} {row['ours']:12,.0f} / {row['peer']:12,.0f} {row['unit']}"
            f" = {row['ratio']:7.2f} × {row['peer_name']}{target}"
        )
