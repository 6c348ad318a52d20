"""Cells of the experiment on games: families of tasks, protocols, methods and their settings.

The family "MinAtar" has three games and a convolutional network. The family "Pair" has two tasks of
Catch that require the same behavior. The family "Freeway" has Breakout and Freeway, and its cells
are trained with the settings of `minatar`, in which CLEAR did not learn Freeway.
"""

import dataclasses
import functools
from typing import Any

import numpy as np

from mmrl.agents import clear
from mmrl.course import plain
from mmrl.course.continual import schedules
from mmrl.course.continual.games import Games, catch_pair, minatar_games
from mmrl.course.experiments import protocols

GAMES = ("Breakout", "SpaceInvaders", "Freeway")
CYCLES = {"MinAtar": 2, "Pair": 2, "Freeway": 1}
CONV = dataclasses.replace(
    plain.CLEAR,
    encoder="small",
    memory="none",
    environments=32,
    rollout=10,
    capacity=64_000,  # 1/18 of all steps
    storage_dtype="uint8",
    block=200,
    blocks=3,
    episodes=8,
    learning_rate=3e-3,
    entropy_weight=0.003,
)
PAIR = dataclasses.replace(protocols.CATCH, block=50, blocks=6)  # 36 000 steps in a stage
QUICK: dict[str, Any] = {"block": 1, "blocks": 1, "episodes": 2, "width": 8, "environments": 6}

ALONE = protocols.ALONE
METHODS: dict[str, dict[str, Any]] = {
    "V-trace": ALONE,
    "CLEAR": {},
    "without cloning": {"policy_cloning": 0.0, "value_cloning": 0.0},
    "25 % replay": {"replay_fraction": 0.25},
    "75 % replay": {"replay_fraction": 0.75},
    "100 % replay": {"replay_fraction": 1.0},
    "cloning 0.01": {"policy_cloning": 0.01, "value_cloning": 0.005},  # weights in the paper
    "entropy 0.03": {"entropy_weight": 0.03},
    "EWC": ALONE,
    "Progress & Compress": {**ALONE, "compress": 300},
}
"""Settings that each method changes in the config of a family. CLEAR has 50 % replay."""
GRIDS: dict[str, tuple[float, ...]] = {
    "learning_rate": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    "entropy_weight": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1),
    "consolidation": (0.1, 1.0, 10.0, 100.0, 1000.0, 10000.0),
}


@dataclasses.dataclass(frozen=True)
class Cell:
    """A family of tasks, a protocol and a method. The method "scale" measures the scale."""

    method: str
    protocol: str = "sequential"  # or "reversed", "separate", "simultaneous"
    family: str = "MinAtar"  # or "Pair", "Freeway"

    @property
    def name(self) -> str:
        """Name that identifies the cell in the results."""
        return f"{self.family}, {self.protocol}, {self.method}"

    @property
    def tasks(self) -> int:
        """Number of tasks."""
        return len(family(self.family)[1].envs)

    @property
    def agent(self) -> str:
        """Key of the agent in `protocols.AGENTS`."""
        return {"EWC": "consolidation", "Progress & Compress": "progress"}.get(self.method, "clear")

    @property
    def scale(self) -> "Cell":
        """Cell that measures the scale of the family."""
        return Cell("scale", "separate", self.family)

    @property
    def judge(self) -> "Cell":
        """Cell whose tuned settings this cell uses. Cells of "Freeway" are not tuned."""
        if self.family == "Freeway" or self.method in ("EWC", "Progress & Compress"):
            return self
        if self.method == "V-trace":
            return Cell("V-trace", "simultaneous", self.family)
        return Cell("CLEAR", "sequential", self.family)

    def plans(self, config: Any) -> list[np.ndarray]:
        """Return the schedule of each network."""
        width, count, turns = config.environments, self.tasks, CYCLES[self.family]
        if self.protocol == "separate":
            return [schedules.separate(task, turns, width) for task in range(count)]
        if self.protocol == "simultaneous":
            return [schedules.simultaneous(count, count * turns, width)]
        order = range(count) if self.protocol == "sequential" else range(count)[::-1]
        return [schedules.sequential(order, turns, width)]

    def config(self, setting: dict[str, float], quick: bool = False) -> Any:
        """Return the settings of the cell, including those that its judge chose."""
        base = family(self.family)[0]
        method = ALONE if self.method == "scale" else METHODS[self.method]
        settings: dict[str, Any] = dataclasses.asdict(base) | setting | method
        if self.family == "MinAtar" and self.protocol == "simultaneous":
            settings |= {"environments": 33, "capacity": settings["capacity"] // 330 * 330}
        if quick:
            settings |= {**QUICK, "capacity": min(settings["capacity"], 120)}
        settings |= {"compress": 2, "fisher_unrolls": 1} if quick and self.agent != "clear" else {}
        return restrict(protocols.AGENTS[self.agent][1], settings)


def restrict(kind: Any, settings: dict[str, Any]) -> Any:
    """Build a config of type `kind` from those settings that it has."""
    names = {field.name for field in dataclasses.fields(kind)}
    return kind(**{name: value for name, value in settings.items() if name in names})


@functools.cache  # JAX caches programs by the identity of the environment
def family(name: str) -> tuple[clear.Config, Games]:
    """Return the config and the environment of a family."""
    if name == "Pair":
        return PAIR, catch_pair()
    return CONV, minatar_games(GAMES if name == "MinAtar" else ("Breakout", "Freeway"))


def cells() -> list[Cell]:
    """Return all cells, in the order in which they are measured."""
    judges = [("V-trace", "simultaneous"), ("CLEAR", "sequential")]
    others = [("V-trace", "sequential"), ("CLEAR", "simultaneous")]
    alone = [("V-trace", "separate"), ("CLEAR", "separate")]
    pair = [Cell(*x, "Pair") for x in (*judges, *others, *alone)]
    bounds = [Cell("V-trace", x) for x in ("simultaneous", "separate", "sequential")]
    rest = [Cell(method) for method in METHODS if method not in ("V-trace", "entropy 0.03")]
    both = [Cell("CLEAR", x) for x in ("simultaneous", "separate")]
    scales = [Cell("scale", "separate", x) for x in CYCLES]
    freeway = [
        Cell(method, protocol, "Freeway")
        for protocol in ("sequential", "reversed", "separate")
        for method in ("CLEAR", "V-trace", "without cloning", "entropy 0.03")
    ]
    return [*scales, *pair, *bounds, *rest, *both, *freeway]


def after(cell: Cell) -> list[str]:
    """Return the names of the cells on which a cell depends."""
    if cell.method == "scale":
        return []
    return [cell.scale.name, *([] if cell.judge == cell else [cell.judge.name])]
