"""Recurrent PPO against PureJaxRL's: seconds of an iteration, in turns in one process.

Equal on both sides: CartPole, the sizes of a cell, 4 epochs of 4 minibatches of whole rollouts, one
network for policy and value, whose parameters are counted. `purejaxrl` describes what either side
does more. Theirs has a GRU; ours has a GRU as well, or an LRU of as many units.
"""

import dataclasses
import time
from functools import partial
from typing import NamedTuple

import jax

from mmrl.agents import ppo
from mmrl.course import plain
from mmrl.course.experiments import purejaxrl
from mmrl.course.experiments.grid import Grid, Row, alone
from mmrl.course.experiments.speed import PRECISIONS, count
from mmrl.envs import make

ENV = "CartPole-v1"
ROUNDS = 10
OURS, THEIRS = {"ours, LRU": "lru", "ours, GRU": "gru"}, "PureJaxRL, GRU"


class Cell(NamedTuple):
    """Sizes that both sides have."""

    environments: int
    rollout: int
    width: int = 64

    @property
    def name(self) -> str:
        """Name the cell in words."""
        return f"{self.environments} × {self.rollout}, width {self.width}"


def measure(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    """Time iterations of each side in turns; of several rounds, the fastest counts."""
    with jax.default_matmul_precision(PRECISIONS["float32"]):
        return _measured(cell, 1 if quick else ROUNDS, quick)


def _measured(cell: Cell, rounds: int, quick: bool) -> Row:
    config = dataclasses.replace(
        plain.PPO, memory="gru", shared=True, max_grad_norm=0.5, adam_eps=1e-5, **cell._asdict()
    )
    env, params = make(ENV)
    programs, states, parameters = {}, {}, {}
    for name, memory in OURS.items():
        own = dataclasses.replace(config, memory=memory, memory_sizes=(("state_size", cell.width),))
        states[name] = jax.jit(partial(ppo.init, own, env, params))(jax.random.key(0))
        programs[name] = jax.jit(
            lambda s, c=own: ppo.iterate(c, env, params, s)[0], donate_argnums=0
        )
        parameters[name] = count(states[name].net)
    theirs = purejaxrl.PPO(config, ENV)
    states[THEIRS] = jax.jit(theirs.init)(jax.random.key(0))
    programs[THEIRS] = jax.jit(theirs.iterate, donate_argnums=0)
    parameters[THEIRS] = count(states[THEIRS].learner.params)
    best = dict.fromkeys(programs, float("inf"))
    for turn in range(rounds + 1):  # the first one compiles
        for name, program in programs.items():
            began = time.perf_counter()
            states[name] = jax.block_until_ready(program(states[name]))
            seconds = time.perf_counter() - began
            best[name] = min(best[name], seconds) if turn else best[name]
    steps = cell.environments * cell.rollout
    return {
        **cell._asdict(),
        "cell": cell.name,
        "env": ENV,
        "parameters": parameters,
        "env_steps": steps,
        "seconds": best,
        "env_steps_per_s": {name: round(steps / seconds) for name, seconds in best.items()},
        "rounds": rounds,
        "seeds": [0],
        "quick": quick,
    }


def say(row: Row) -> str:
    """Report how many times faster than theirs."""
    seconds = row["seconds"]
    ratios = (f"{name} {seconds[THEIRS] / seconds[name]:.2f} ×" for name in OURS)
    return f"{', '.join(ratios)} the rate of {THEIRS}"


CELLS = [Cell(4096, 128), Cell(512, 1024), Cell(64, 128), Cell(8192, 32), Cell(4096, 128, 256)]
GRID = Grid(
    "rival_ppo",
    CELLS,
    alone(measure),
    say,
    cost=lambda cell: cell.environments * cell.rollout * cell.width**2,
    small=(Cell(4, 8, 8),),
)
