"""Explorer for the observations that determine an action, for agents from the zoo."""

from typing import Any

import numpy as np
from traitlets import Enum, Int

from mmrl.course.results import published_rows
from mmrl.course.widgets.base import Explorer, Series, source, style

AGENTS = {
    "first": "RepeatFirstEasy-dqn-lru",
    "previous": "RepeatPreviousEasy-r2d2-lru",
    "none": "RepeatFirstEasy-dqn-none",
    "s6": "RepeatFirstEasy-pqn-s6",
    "mlstm": "RepeatFirstEasy-pqn-mlstm",
    "window": "RepeatPreviousEasy-pqn-window",
    "gtrxl": "RepeatPreviousEasy-pqn-gtrxl",
    "lmu": "RepeatPreviousPaper-pqn-lmu",
}


class Results(Series):
    """Series whose default value is the published result of the agent that it is named after."""

    def default(self, obj: Any = None) -> Any:
        """Return the published result, or an empty series if it is missing."""
        return self.validate(obj, _results(self.name or ""))


class RecallExplorer(Explorer):
    """Explorer for the fraction of actions that change if an earlier observation is replaced.

    Each series contains the result of `mmrl experiment inspect` for an agent of the zoo: the lower
    triangle of a matrix [step, observation], flattened row by row. Only the first 44 steps are
    shown.
    """

    _esm = source("recall_explorer")
    _css = style()
    first = Results()
    previous = Results()
    none = Results()
    s6 = Results()
    mlstm = Results()
    window = Results()
    gtrxl = Results()
    lmu = Results()
    agent = Enum(tuple(AGENTS), "first").tag(sync=True)
    step = Int(30, min=0).tag(sync=True)


def _results(agent: str) -> Any:
    """Return the published results of an agent, or an empty tuple if they are missing."""
    try:
        rows = {row["cell"]: row for row in published_rows("inspect")}
        return np.concatenate([np.array(row) for row in rows[AGENTS[agent]]["decides"]])
    except (KeyError, ValueError):
        return ()
