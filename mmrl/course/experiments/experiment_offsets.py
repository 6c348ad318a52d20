"""Returns of every agent with an LRU if observations are shifted and scaled.

In `mmrl.envs.echo.Echo`, an agent that remembers the cue has a return of 4, and an agent that does
not has a mean return of 0. The observation space is unbounded, so every agent normalizes the cue by
default.

The first cell of each agent has offset 0 and scale 1. A run has `STEPS` environment steps; all
other settings are defaults. Each evaluation plays 32 episodes greedily, and `returns` contains
their means, [seed][evaluation].
"""

import dataclasses
import time
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.agents import AGENTS, find
from mmrl.course.experiments.grid import Grid, Row, Rows, round_list, settings
from mmrl.envs.echo import Echo
from mmrl.envs.wrappers.observation import with_inputs

SEEDS = (0, 1, 2)
NUMBERS = ((0, 1), (30, 1), (100, 1), (1000, 1), (30_000, 100), (0, 1e-3), (0, 1e4))
"""Pairs (offset, scale) of the cells of each agent."""
STEPS = dict.fromkeys(AGENTS, 40_000) | {"dqn": 20_000, "clear": 80_000, "ppg": 80_000}
"""Environment steps of each agent."""
QUICK: dict[str, Any] = {"block": 1, "blocks": 1, "episodes": 2, "width": 8}


@dataclasses.dataclass(frozen=True)
class Cell:
    """An agent that observes offset + scale · cue."""

    agent: str
    offset: float
    scale: float

    @property
    def name(self) -> str:
        """A description in words, which identifies the cell in the results."""
        return f"{self.agent}, {self.offset:g} + {self.scale:g} cue"

    def config(self, quick: bool = False) -> Any:
        """Return the default config of the agent with an LRU, for a short run."""
        config = find(self.agent).Config(memory="lru").for_steps(STEPS[self.agent])
        return dataclasses.replace(config, **QUICK) if quick else config


def cells() -> list[Cell]:
    """Return all cells, grouped by agent."""
    return [Cell(agent, float(a), float(b)) for agent in STEPS for a, b in NUMBERS]


def measure(together: Sequence[Cell], by_name: Rows, quick: bool) -> Iterable[Row]:
    """Train one agent in all cells and with all seeds at once, and yield the rows."""
    agent, config, task = find(together[0].agent), together[0].config(quick), Echo()
    env = with_inputs(task, task.default_params, agent.OBSERVES)

    def train(offset: Any, scale: Any, key: Any) -> Any:
        params = task.default_params.replace(offset=offset, scale=scale)
        return agent.train(config, env, params, key)[1].returns.mean(-1)

    every = jax.jit(jax.vmap(jax.vmap(train, (None, None, 0)), (0, 0, None)))
    offsets, scales = (
        jnp.array([getattr(x, name) for x in together]) for name in ("offset", "scale")
    )
    keys, began = jax.vmap(jax.random.key)(jnp.array(SEEDS)), time.process_time()
    returns = np.asarray(every(offsets, scales, keys))
    seconds = (time.process_time() - began) / returns[..., 0].size
    for cell, curves in zip(together, returns, strict=True):
        yield {
            "cell": cell.name,
            **dataclasses.asdict(cell),
            "memory": config.memory,
            "seeds": list(SEEDS),
            "final": round_list(curves[:, -1]),
            "returns": round_list(curves),
            "env_steps": config.block_steps * config.blocks,
            "cpu_seconds": round(seconds, 2),  # per seed, with compilation
            "settings": settings(config) | {"learning_rate": config.learning_rate},
            "quick": quick,
        }


def summarize(row: Row) -> str:
    """Summarize a row in a few words."""
    return ", ".join(f"{x:.2f}" for x in row["final"])


GRID = Grid(
    "offsets",
    cells(),
    measure,
    summarize,
    program=lambda cell: cell.agent,
    small=[Cell(agent, 30.0, 1.0) for agent in STEPS],
    about="Every agent on cues of any size: offsets to 30,000 and scales from 0.001 to 10,000.",
    decides="whether agents learn from numbers of any size",
    turn=25,
)
