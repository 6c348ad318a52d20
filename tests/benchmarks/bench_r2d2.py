"""R2D2's training loop against memorax's: environment steps per CPU-second.

    MEMORAX_PYTHON=memorax/bin/python python tests/benchmarks/bench_r2d2.py

memorax comes with loggers that need dozens of packages, of which one does not go with the pinned
ones, so it lives in an environment of its own, and plays its rounds in a process of its own between
ours:

    python3.11 -m venv memorax
    memorax/bin/pip install memorax==1.0.1 jax==0.10.2 jaxlib==0.10.2 flax==0.12.8 \
        gymnax==1.0.1 flashbax==0.1.3 optax==0.2.8

Without MEMORAX_PYTHON, only the rows that compare storages of 16k and 131k steps are measured.

Equal on both sides: the environment (gymnax's MemoryChain, with episodes of 400 steps, so that
hardly a window is short), 16 of them; a network with one LSTM, whose parameters are counted; 32
windows a gradient step, each with a burn-in of 40 steps, 80 trained steps and 4 more for 5-step
double-Q targets; a gradient step for every 64 environment steps; XLA's scheduler. What memorax does
less: it stores no recurrent states (windows start from zero), neither rescales values nor looks
at the errors of new steps, starts windows anywhere and lets them cross episodes. What it does more:
it unrolls the network a third time for the next actions, and sampling reads every priority.

The limit: a gradient step is 1.15 GFLOP of matrix products, in 28.7 CPU-ms on two EPYC cores, of
which the products alone would take 12 at the 97 GFLOP per CPU-second that such a core reaches on
the products of one LSTM step. Acting, storing and sampling take 1 of 29. To take x_t's products out
of the loop over time, and those for the gradient of U as well, changed nothing that shows.
"""

import dataclasses
import math
import pathlib
from functools import partial
from typing import Any

import equinox as eqx
import jax
from rival import Rival, Theirs, cpu_seconds

import mmrl  # noqa: F401 (sets the XLA flag before the backend starts)
from mmrl.agents import r2d2
from mmrl.course import plain
from mmrl.envs import make

ENV, LENGTH = "MemoryChain-bsuite", {"memory_length": 398}
CAPACITIES = {"16k": 16_640, "131k": 131_200}  # whole periods of 40 steps in 16 rings
ITERATIONS, WARMUP = 8, 4096
RIVAL = Rival(pathlib.Path(__file__).with_name("memorax_r2d2.py"), "1.0.1")


def config(capacity: int) -> r2d2.Config:
    return dataclasses.replace(plain.R2D2, capacity=capacity, updates=4, dueling=False)


class Ours:
    """Rounds of `iterations` iterations, without evaluations."""

    def __init__(self, capacity: int, iterations: int):
        env, params = make(ENV)
        params = params.replace(**LENGTH)
        c = config(capacity)

        def loop(state: r2d2.State) -> tuple[r2d2.State, Any]:
            return jax.lax.scan(
                lambda s, _: r2d2.iterate(c, env, params, s), state, None, iterations
            )

        self.state = jax.jit(partial(r2d2.init, c, env, params))(jax.random.key(0))
        self.loop = jax.jit(loop, donate_argnums=0)
        self.steps = iterations * c.rollout * c.environments
        self.parameters = sum(
            x.size for x in jax.tree.leaves(eqx.filter(self.state.net, eqx.is_inexact_array))
        )
        for _ in range(math.ceil(WARMUP / self.steps)):  # compiles, and fills
            self.round()

    def round(self) -> float:
        """The CPU-seconds of one."""
        began = cpu_seconds()
        self.state, metrics = self.loop(self.state)
        jax.block_until_ready((self.state, metrics))
        return cpu_seconds() - began


def settings(capacity: int, steps: int) -> dict[str, Any]:
    """The same for memorax, whose rounds have so many steps."""
    c = config(capacity)
    names = ("capacity", "environments", "width", "batch", "length", "burn_in", "n_step")
    return {
        "env": ENV,
        "env_params": LENGTH,
        "steps": steps,
        "warmup": WARMUP,
        "steps_per_update": c.rollout * c.environments // c.updates,
        **{name: getattr(c, name) for name in (*names, "learning_rate", "gamma", "alpha")},
    }


def run(quick: bool = False) -> list[dict]:
    """A row per comparison; of several rounds, the fastest counts."""
    iterations, rounds = (2, 1) if quick else (ITERATIONS, 8)
    python = RIVAL.python("R2D2", __file__)
    programs: dict[tuple[str, str], Ours | Theirs] = {}
    try:
        for name, capacity in CAPACITIES.items():
            own = programs["ours", name] = Ours(capacity, iterations)
            if python is not None:
                theirs = Theirs(RIVAL, python, settings(capacity, own.steps))
                programs["theirs", name] = theirs
                if own.parameters != theirs.parameters:
                    raise RuntimeError(
                        f"The networks differ: {own.parameters} parameters, memorax's has "
                        f"{theirs.parameters}."
                    )
        best = dict.fromkeys(programs, math.inf)
        for _ in range(rounds):  # interleaved, so that a busy machine slows all alike
            for key, program in programs.items():
                best[key] = min(best[key], program.round())
    finally:
        for program in programs.values():
            if isinstance(program, Theirs):
                program.close()
    rates = {key: own.steps / seconds for key, seconds in best.items()}
    rows = [_row(rates, name, "theirs", name, 1.0) for name in CAPACITIES if python is not None]
    return [*rows, _row(rates, "131k", "ours", "16k", 0.85)]


def _row(rates: dict, name: str, against: str, size: str, target: float) -> dict:
    ours, peer = rates["ours", name], rates[against, size]
    return {
        "name": f"R2D2 with an LSTM, {name} steps stored",
        "ours": ours,
        "peer": peer,
        "ratio": ours / peer,
        "peer_name": "memorax" if against == "theirs" else f"the same with {size} steps",
        "unit": "env steps per CPU-second",
        "target": target,
    }


if __name__ == "__main__":
    for line in run():
        print(
            f"{line['name']:36} {line['ours']:7.0f} / {line['peer']:7.0f} {line['unit']} = "
            f"{line['ratio']:5.2f} × the rate of {line['peer_name']}  (target {line['target']:g})"
        )
