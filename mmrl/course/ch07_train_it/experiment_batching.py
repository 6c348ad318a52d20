"""Comparison of tapes (TBB) with segments of L steps (SBB), each with a tuned learning rate.

A cell is a task, a memory and a batching method. All cells use the same network, batch size, loss,
and numbers of steps and updates, but each cell has its own learning rate. `tuning` chooses the
rate, starting with `RATES`, on seeds that are not reported. All agents of a cell train in one
program.

The code of Morad et al. (2024) has two quirks, and some cells reproduce them to test whether the
conclusion depends on them. With "loss", segments use the Huber loss of the mean absolute error,
whereas the tape uses the mean of Huber losses. With "target", the states of the targets come from a
scan over the next observations, which skips the first observation of each episode.
"""

import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from mmrl.agents import dqn
from mmrl.course import plain
from mmrl.course.ch07_train_it import quirks
from mmrl.course.experiments import fleet, tuning
from mmrl.course.experiments.fleet import Fleet, FleetResult
from mmrl.course.experiments.grid import Grid, Row, by_an_earlier_rule, interval_at_rate, one_by_one
from mmrl.runs import program

RATES = (1e-3, 3e-3, 1e-2)  # Adam learning rates to try first
SEEDS = (0, 1, 2, 3, 4, 5)
# Three rates and these two seeds give six agents, equal to the number of reported seeds, so
# that tuning and training share one compiled program.
TUNING_SEEDS = (1000, 1001)
TAPE = 0  # the length of a cell that trains on complete episodes
LENGTHS = (10, 20, 50, 100)  # L, steps
MEMORIES = ("lru", "gru", "ffm", "s5", "linear_attention")


ACTION = ("previous_action", *dqn.OBSERVES)


@dataclasses.dataclass(frozen=True)
class Task:
    """Settings of a task, shared by all batching methods."""

    name: str
    gamma: float = 0.5  # γ, chosen on tuning seeds
    observes: tuple[str, ...] = dqn.OBSERVES
    span: float = 2.0  # best return minus worst return
    blocks: int = 16
    epsilon_decay: float = 80.0  # iterations


TASKS = {
    task.name: task
    for task in (
        Task("RepeatPreviousPaper"),
        Task("RepeatFirstEasy"),
        Task("CountRecallEasy", observes=ACTION),
        Task("PositionOnlyCartPoleEasy", gamma=0.99, observes=ACTION, span=1.0),
    )
}

NAMES_IN_ROWS = {"use_mlp": "printed"}
"""Former names of sizes, which the names of published cells contain."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """A task, a memory and a batching method."""

    task: str
    memory: str
    length: int = TAPE  # L, or TAPE
    quirky: tuple[str, ...] = ()  # a subset of quirks.NAMES
    sizes: tuple[tuple[str, int], ...] = ()  # sizes of the memory that differ from its defaults

    @property
    def name(self) -> str:
        """Name that identifies the cell in the results."""
        batching = f"segments of {self.length}" if self.length else "tape"
        sizes = [f"{NAMES_IN_ROWS.get(name, name)} {value}" for name, value in self.sizes]
        return ", ".join([self.task, self.memory, *sizes, batching, *self.quirky])

    @property
    def config(self) -> dqn.Config:
        """Settings of the cell."""
        task = TASKS[self.task]
        return dataclasses.replace(
            plain.DQN,
            memory=self.memory,
            memory_sizes=self.sizes,
            batching="segments" if self.length else "tape",
            segment_length=self.length or 1,
            gamma=task.gamma,
            blocks=task.blocks,
            epsilon_decay=task.epsilon_decay,
        )


def cells() -> list[Cell]:
    """Return all cells, the most informative first."""
    (lag, hold), rest = list(TASKS)[:2], list(TASKS)[2:]
    loss, target = quirks.NAMES
    main = [
        *(Cell(task, "lru", n) for task in (lag, hold) for n in (TAPE, 10, 50)),
        *(Cell(lag, "gru", n) for n in (TAPE, 10)),
        *(Cell(lag, "lru", n, q) for n, q in ((TAPE, (target,)), (10, (loss, target)))),
        *(Cell(task, "gru", n) for task in (hold, lag) for n in (TAPE, *LENGTHS)),
        *(Cell(task, "lru", n) for task in (lag, *rest) for n in (TAPE, *LENGTHS)),
        *(Cell(lag, "lru", 10, (q,)) for q in (loss, target)),
        *(Cell(lag, m, n) for m in ("ffm", "s5", "linear_attention") for n in (TAPE, 10)),
        *(Cell(hold, "lru", n, q) for n, q in ((TAPE, (target,)), (10, (loss, target)))),
    ]
    several = ((loss,), (target,), (loss, target))
    quirky = [Cell(task, "lru", n, q) for task in (lag, hold) for n in (10, 50) for q in several]
    whole = [Cell(t, m, n) for m in MEMORIES for t in TASKS for n in (TAPE, *LENGTHS)]
    return list(dict.fromkeys([*main, *whole, *quirky]))


QUICK: dict[str, Any] = {**fleet.QUICK, "batch": 200}


def measure(
    cell: Any, quick: bool = False, row: Row | None = None, seeds: Sequence[int] = SEEDS
) -> Row:
    """Choose the learning rate of a cell, train its agents, and return their results.

    `cell` is a `Cell`, or has the same fields.
    """
    start_time, cpu = time.perf_counter(), time.process_time()
    config = dataclasses.replace(cell.config, **(QUICK if quick else {}))

    def to_row(result: FleetResult) -> Row:
        return {
            "cell": cell.name,
            "task": cell.task,
            "memory": cell.memory,
            "batching": config.batching,
            "segment_length": cell.length,
            "quirks": list(cell.quirky),
            **fleet.return_fields(config, result.returns),
            "fill": round(float(np.mean(result.metrics.fill)), 4),
            "gamma": config.gamma,
            "batch": config.batch,
            "updates": config.blocks * config.block * config.updates,
            "previous_action": TASKS[cell.task].observes == ACTION,
            "seconds": round(time.perf_counter() - start_time, 1),
            "cpu_seconds": round(time.process_time() - cpu, 1),
            "quick": quick,
        }

    going = functools.partial(train, cell, config)
    rule = {"span": TASKS[cell.task].span, "row": row}
    return tuning.tune(going, to_row, RATES, TUNING_SEEDS, seeds, **rule)


def train(
    cell: Any, config: dqn.Config, rates: Sequence[float], seeds: Sequence[int]
) -> FleetResult:
    """Train one agent per rate and seed."""
    return _fleet(cell.task, cell.quirky).train(config, {"learning_rate": rates}, seeds)


@functools.lru_cache(4)  # few, because compiled programs use a lot of memory
def _fleet(name: str, quirky: tuple[str, ...]) -> Fleet:
    env, params, *_ = program("dqn", f"popgym-{name}-v0", TASKS[name].observes)
    return Fleet(dqn, env, params, quirks.learn(quirky) if quirky else None)


GRID = Grid(
    "batching",
    cells(),
    one_by_one(measure),
    interval_at_rate,
    outdated=by_an_earlier_rule,
    agents=lambda row: 1,  # `cpu_seconds` is the time of all agents
    about="Tapes against segments: five memories, four tasks, and the source code's quirks.",
    decides="whether tapes learn better than segments",
    turn=7,
)
