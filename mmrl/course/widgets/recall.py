"""Explorer for the observations that determine an action, for agents from the zoo."""

from typing import Any

import numpy as np
import traitlets
from traitlets import Enum, Int

from mmrl.course.results import published_rows
from mmrl.course.widgets.base import Explorer, Series, source, style

AGENTS = {
    "first": "RepeatFirstEasy-dqn-lru",
    "previous": "RepeatPreviousEasy-r2d2-lru",
    "none": "RepeatFirstEasy-dqn-none",
}


class RecallExplorer(Explorer):
    """Explorer for the fraction of actions that change if an earlier observation is replaced.

    `first`, `previous` and `none` contain the results of `mmrl experiment inspect` for three agents
    of the zoo. Each is the lower triangle of a matrix [step, observation], flattened row by row.
    Only the first 44 steps are shown.
    """

    _esm = source("recall_explorer")
    _css = style()
    first = Series()
    previous = Series()
    none = Series()
    agent = Enum(tuple(AGENTS), "first").tag(sync=True)
    step = Int(30, min=0).tag(sync=True)

    @traitlets.default("first")
    def _first(self):
        return _results("first")

    @traitlets.default("previous")
    def _previous(self):
        return _results("previous")

    @traitlets.default("none")
    def _none(self):
        return _results("none")


def _results(agent: str) -> Any:
    """Return the published results of an agent, or an empty tuple if they are missing."""
    try:
        rows = {row["cell"]: row for row in published_rows("inspect")}
        return np.concatenate([np.array(row) for row in rows[AGENTS[agent]]["decides"]])
    except (KeyError, ValueError):
        return ()
