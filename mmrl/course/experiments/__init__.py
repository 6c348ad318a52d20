"""Experiments of the course: every number and curve of the book comes from one of these.

A study has a module with a `GRID`: `grid.Grid` says how it becomes rows of `out/<name>.jsonl`, each
with its provenance. A run skips what the file already holds, stops before `minutes` are over, and
ends by saying what remains. `quick` asks for sizes that only show that everything runs; such rows
say `"quick": true`.
"""

import importlib
import pathlib
from collections.abc import Iterator
from typing import Any

from mmrl.course.experiments.programs import forget_programs

EXPERIMENTS = {
    "baselines": "What every agent reaches with its defaults: two memories, six tasks, five seeds.",
    "batching": "Tapes against segments: five memories, four tasks, and the source code's quirks.",
    "ewma": "PPO and PPG with an average of θ as proximal policy, against themselves without.",
    "ffm": "Fast and forgetful memory as in the code of its paper, and as printed.",
    "forgetting": "Tasks in cycles: CLEAR, its parts, EWC, Progress & Compress, and who forgets.",
    "graphs": "Recurrence equations, compiled, against the same by hand (Figures 9 to 11).",
    "invariance": "PPO-EWMA and PPG-EWMA with batches up to 64 times smaller, and ablations.",
    "minatar": "MinAtar games in cycles: V-trace, CLEAR, and a network for each game.",
    "popgym": "The POPGym table: its tasks and levels, PPO with four memories, three trials each.",
    "ppo": "PPO with two memories and with none, and with rollouts cut short or forgotten.",
    "r2d2": "Zero states, stored states and burn-in against the tape, and how stale states are.",
    "returns_timing": "Discounted returns of many episodes, in nine ways (Figure 4 of the paper).",
    "seeds": "Environment steps a second, as more seeds are trained at once.",
    "sensitivity": "How much each past observation matters to Q (Figures 3 and 7 of the paper).",
    "speed": "Environment steps per second of one agent, and the share of each part.",
    "staleness": "PPO that learns from old rollouts, with three proximal policies.",
    "training_times": "Seconds per gradient step, on a tape and on segments.",
}
"""Name of the module and what it measures."""


def run(
    name: str,
    out: pathlib.Path,
    minutes: float = float("inf"),
    quick: bool = False,
    only: str = "",
) -> Iterator[str]:
    """Run an experiment, one line of progress at a time. Raises `ValueError` for no such name."""
    for line in load(name).run(out, minutes, quick, only):
        yield line
        forget_programs()


def load(name: str) -> Any:
    """The `grid.Grid` of an experiment. Raises `ValueError` for no such name."""
    if name not in EXPERIMENTS:
        raise ValueError(f"`name` must be one of {', '.join(EXPERIMENTS)}; got {name!r}.")
    return importlib.import_module(f"{__name__}.{name}").GRID
