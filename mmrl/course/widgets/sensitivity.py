"""Explorer for the sensitivity of a trained Q-function to past observations."""

from typing import Any

import numpy as np
import traitlets
from traitlets import Bool, Enum, Int

from mmrl.course.results import published_rows
from mmrl.course.widgets.base import Explorer, Series, source, style

TASK, MEMORY, LAG = "RepeatPreviousPaper", "lru", 9


class SensitivityExplorer(Explorer):
    """Explorer for |∂Q(s_n, a_n)/∂o_i| and for the fraction that a segment of L steps truncates.

    `tape` and `segments` are the sensitivities of two agents. Each is the lower triangle of a
    matrix [n, i], flattened row by row, as `lower` in the experiment of chapter 8 returns it. Only
    the first 44 steps are shown. The defaults are the published results of two LRUs on
    RepeatPreviousPaper. `lag` is the age of the observation that the task requires, -1 for none, or
    `END` for the first observation of the episode.
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
        names = [name for name in ("tape", "segments") if name in traits]
        if names:  # do not compare the user's agent with a published agent
            traits = {"tape": (), "segments": (), "agent": names[0], **traits}
        super().__init__(**traits)

    @traitlets.default("tape")
    def _tape(self):
        return _measured_or_nothing("tape")

    @traitlets.default("segments")
    def _segments(self):
        return _measured_or_nothing("segments")


def published_sensitivity(batching: str, task: str = TASK, memory: str = MEMORY) -> np.ndarray:
    """Return the published sensitivities of an agent, in the format of `SensitivityExplorer`.

    Raises `ValueError` if there are no published results for this agent.
    """
    names = {row["cell"]: row["example"] for row in published_rows("sensitivity")}
    name = f"{task}, {memory}, {batching}"
    if name not in names:
        raise ValueError(f"The cell must be one of {sorted(names)}; got {name!r}.")
    return np.array(names[name])


def _measured_or_nothing(batching: str) -> Any:
    """Return the published sensitivities of an agent, or an empty tuple if they are missing."""
    try:
        return published_sensitivity(batching)
    except ValueError:
        return ()
