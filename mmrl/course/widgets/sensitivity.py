"""The explorer of a trained Q's dependence on the past, and agents that were measured."""

from typing import Any

import numpy as np
import traitlets
from traitlets import Bool, Enum, Int

from mmrl.course.results import published
from mmrl.course.widgets.base import Explorer, Series, source, style

TASK, MEMORY, LAG = "RepeatPreviousPaper", "lru", 9


class SensitivityExplorer(Explorer):
    """|∂Q(s_n, a_n)/∂o_i| along an episode, and the share that a segment of L steps cuts off.

    `tape` and `segments` are two agents, each a matrix [n, i] written row after row up to its
    diagonal, as `lower(matrix)` of the experiment in chapter 8 returns it. Only the first 44
    steps are shown. The defaults are two LRUs of the book's results, on RepeatPreviousPaper. `lag`
    is the age of the observation that the task needs: -1 for none, `END` for the first of the
    episode.
    """

    _esm = source("sensitivity_explorer")
    _css = style()
    tape = Series()
    segments = Series()
    agent = Enum(("tape", "segments"), "segments").tag(sync=True)
    n = Int(39, min=0).tag(sync=True)
    segment = Int(10, min=1, max=44).tag(sync=True)
    lag = Int(LAG, min=-1).tag(sync=True)
    log = Bool(False).tag(sync=True)

    def __init__(self, **traits: Any):
        given = [name for name in ("tape", "segments") if name in traits]
        if given:  # do not compare a user's agent with a published one
            traits = {"tape": (), "segments": (), "agent": given[0], **traits}
        super().__init__(**traits)

    @traitlets.default("tape")
    def _tape(self):
        return _measured_or_nothing("tape")

    @traitlets.default("segments")
    def _segments(self):
        return _measured_or_nothing("segments")


def measured(batching: str, task: str = TASK, memory: str = MEMORY) -> np.ndarray:
    """Return the example of an agent in the book's results, as `SensitivityExplorer` takes it.

    Raises `ValueError` if the results do not contain this agent.
    """
    names = {row["cell"]: row["example"] for row in published("sensitivity")}
    name = f"{task}, {memory}, {batching}"
    if name not in names:
        raise ValueError(f"The agent must be one of {sorted(names)}; got {name!r}.")
    return np.array(names[name])


def _measured_or_nothing(batching: str) -> Any:
    """Return a measured example, or an empty one if the book's results are missing."""
    try:
        return measured(batching)
    except ValueError:
        return ()
