"""The loop of V-trace, and of CLEAR, against PPO's at one epoch: what replay costs.

    python tests/benchmarks/bench_clear.py

Equal on all sides: the cart pole in 64 environments, unrolls of 20 steps, the two networks of an
`ActorCritic`, whose parameters are counted, and one gradient step of Adam per iteration on as many
steps as were just played; no evaluations. What PPO does more: it goes through the unrolls once
before the step, for advantages, and normalizes and shuffles them; V-trace finds its targets in the
pass that the gradient needs anyway. CLEAR adds a reservoir, from which half of its batch is drawn.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from bench_ppo import BARE, Ours, interleaved_medians

from mmrl.agents import clear, ppo
from mmrl.course import plain

SIZES: dict[str, Any] = {"environments": 64, "rollout": 20, "learning_rate": 2.5e-4}
ITERATIONS, ROUNDS = 20, 9
PPO = dataclasses.replace(BARE, **SIZES, epochs=1, minibatches=1)
VTRACE = dataclasses.replace(plain.CLEAR, **SIZES, replay_fraction=0.0, capacity=0)
CLEAR = dataclasses.replace(plain.CLEAR, **SIZES, replay_fraction=0.5, capacity=100_000)
MEMORIES = {"none": "without memory", "lru": "with an LRU"}


def compare(memory: str, quick: bool) -> Iterator[dict[str, Any]]:
    """Rows: both loops against PPO's, all with this memory."""
    iterations, rounds = (1, 1) if quick else (ITERATIONS, ROUNDS)
    loops = {
        name: Ours(dataclasses.replace(config, memory=memory), iterations, agent)
        for name, agent, config in (
            ("PPO", ppo, PPO),
            ("V-trace", clear, VTRACE),
            ("CLEAR", clear, CLEAR),
        )
    }
    if len({loop.parameters for loop in loops.values()}) > 1:
        raise RuntimeError(f"The networks differ: {[x.parameters for x in loops.values()]}.")
    seconds = interleaved_medians({name: loop.round for name, loop in loops.items()}, rounds)
    steps = iterations * PPO.environments * PPO.rollout
    for name in ("V-trace", "CLEAR"):
        yield {
            "name": f"{name} {MEMORIES[memory]}",
            "ours": steps / seconds[name],
            "peer": steps / seconds["PPO"],
            "ratio": seconds["PPO"] / seconds[name],
            "peer_name": "PPO, one epoch",
            "unit": "env steps per CPU-second",
            "target": 0.9,
        }


def rows(quick: bool) -> Iterator[dict[str, Any]]:
    """All comparisons, one by one."""
    for memory in MEMORIES:
        yield from compare(memory, quick)


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    """A row per comparison; of several rounds, the median counts."""
    return rows(quick)


if __name__ == "__main__":
    for line in rows(quick=False):
        print(
            f"{line['name']:24} {line['ours']:8.0f} / {line['peer']:8.0f} {line['unit']} = "
            f"{line['ratio']:5.2f} × the rate of {line['peer_name']}  (target {line['target']})",
            flush=True,
        )
