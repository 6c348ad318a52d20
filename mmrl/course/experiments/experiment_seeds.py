"""Environment steps per second as a function of the number of seeds.

As in `mmrl train`, one compiled program trains all seeds, with the agent's default settings. If one
seed does not saturate the device, several seeds take the same time. On a saturated device, the time
is proportional to the number of seeds. `seconds` is the minimum time of a block with its evaluation
over `BLOCKS` blocks.
"""

import itertools
import time
from typing import Any, NamedTuple

import jax

from mmrl.agents import AGENTS
from mmrl.course.experiments.fleet import QUICK
from mmrl.course.experiments.grid import Grid, Row, one_by_one
from mmrl.runs import program
from mmrl.runs.parallel import keys

ENV = "popgym-RepeatPreviousEasy-v0"
SEEDS = (1, 16, 256)
BLOCKS = 3  # timed blocks


class Cell(NamedTuple):
    """An agent and the number of seeds that are trained at once."""

    agent: str
    seeds: int

    @property
    def name(self) -> str:
        """A description in words, which identifies the cell in the results."""
        return f"{self.agent}, {self.seeds} seeds"


def measure(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    """Time the blocks after the first one, which compiles, and return the row."""
    config: Any = AGENTS[cell.agent].Config(**(QUICK if quick else {}))
    _, _, init, block, _ = program(cell.agent, ENV)
    state = init(config, keys(range(cell.seeds)))
    compiled = block.lower(config, state).compile()
    times = []
    for _ in range(1 + BLOCKS):
        start_time = time.perf_counter()
        state, _ = jax.block_until_ready(compiled(config, state))
        times.append(time.perf_counter() - start_time)
    steps = cell.seeds * config.block * config.environments * config.rollout
    return {
        **cell._asdict(),
        "env": ENV,
        "memory": config.memory,
        "width": config.width,
        "env_steps": steps,
        "seconds": min(times[1:]),
        "env_steps_per_s": round(steps / min(times[1:])),
        "blocks": BLOCKS,
        "quick": quick,
    }


def summarize(row: Row) -> str:
    """Summarize a row by its steps per second."""
    return f"{row['env_steps_per_s']:,} steps per second, summed over seeds"


def _cell_of(row: Row) -> str:
    return Cell(row["agent"], row["seeds"]).name


CELLS = [Cell(agent, many) for many, agent in itertools.product(SEEDS, AGENTS)]
GRID = Grid(
    "seeds",
    CELLS,
    one_by_one(measure),
    summarize,
    cell_of=_cell_of,
    small=(Cell("dqn", 2),),
    about="Environment steps per second, for growing numbers of seeds.",
    decides="how many seeds a device trains at once",
    turn=2,
)
