"""PQN's training loop against memorax's: environment steps per CPU-second.

    MEMORAX_PYTHON=memorax/bin/python python tests/benchmarks/bench_pqn.py

bench_r2d2.py describes how to install memorax; without MEMORAX_PYTHON nothing is measured. memorax
plays its rounds in a separate process, between ours.

Equal on both sides: CartPole, 16 environments with rollouts of 128 steps, 4 epochs of 4 minibatches
of whole rollouts, λ-targets that are computed once per iteration, RAdam, width 64, and a GRU in a
network whose parameters are counted. What memorax does less: it does not scale rewards, and it
treats a truncation as a termination, so it needs no values of the states behind the steps. What it
does more: it computes losses' statistics, and returns every transition of a round.
"""

import math
import pathlib

from bench_ppo import ENV, Ours
from rival import Rival, Theirs

from mmrl.agents import pqn

ITERATIONS = 8
RIVAL = Rival(pathlib.Path(__file__).with_name("memorax_pqn.py"), "1.0.1")
CONFIG = pqn.Config(
    memory="gru",
    memory_sizes=(("state_size", 64),),
    encoder="dense",
    dueling=False,
    environments=16,
    rollout=128,
    minibatches=4,
    epochs=4,
    blocks=1,
    learning_rate=2.5e-4,
    epsilon_start=0.1,
    epsilon_end=0.1,
    anneal=0.0,
)
COMMON = ("environments", "rollout", "minibatches", "epochs", "width", "gamma", "lam")


def run(quick: bool = False) -> list[dict]:
    """Return one row; of several rounds, the fastest counts."""
    python = RIVAL.python("PQN", __file__)
    if python is None:
        return []
    iterations, rounds = (1, 1) if quick else (ITERATIONS, 8)
    names = (*COMMON, "learning_rate", "max_grad_norm")
    settings = {name: getattr(CONFIG, name) for name in names}
    theirs = Theirs(RIVAL, python, settings | {"env": ENV, "iterations": iterations})
    try:
        own = Ours(CONFIG, iterations, pqn)
        if own.parameters != theirs.parameters:
            raise RuntimeError(
                f"The networks differ: {own.parameters} parameters, memorax's has "
                f"{theirs.parameters}."
            )
        best = {"ours": math.inf, "theirs": math.inf}
        for _ in range(rounds):  # interleaved, so that a busy machine slows both alike
            for name, program in (("ours", own), ("theirs", theirs)):
                best[name] = min(best[name], program.round())
    finally:
        theirs.close()
    steps = iterations * CONFIG.rollout * CONFIG.environments
    return [
        {
            "name": "PQN with a GRU, 16 × 128",
            "ours": steps / best["ours"],
            "peer": steps / best["theirs"],
            "ratio": best["theirs"] / best["ours"],
            "peer_name": "memorax",
            "unit": "env steps per CPU-second",
            "target": 1.3,
        }
    ]


if __name__ == "__main__":
    for line in run():
        print(
            f"{line['name']:28} {line['ours']:7.0f} / {line['peer']:7.0f} {line['unit']} = "
            f"{line['ratio']:5.2f} × the rate of {line['peer_name']}  (target {line['target']:g})"
        )
