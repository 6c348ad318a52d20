"""Dependence graphs: what an index expression reads, and the schedules that follow from it."""

import anywidget
from traitlets import Enum, Int

from mmrl.show.widgets.base import source, style

PATTERNS = ("t", "t+3", "t-1", "0:T", "t:T", "0:t+1", "t:min(t+n,T)", "max(0,t-n):t+1")
PATTERNS += ("t//2", "t%8", "T-1-t")


class AccessPatternExplorer(anywidget.AnyWidget):
    """y[t] reads x[φ(t)]: a matrix of readers and elements, the inverse φ⁻¹, and what must be kept.

    `pattern` is φ, one of `PATTERNS`, with x and y of length `T` and a window of `n`. `t` and `k`
    are the row and the column in view. Readers run in order and x is made in order, as late as they
    allow; the greatest number alive is the size of a ring that x fits into. The inverses are those
    of `mmrl.pdg.polyhedra.invert`.
    """

    _esm = source("access_pattern_explorer")
    _css = style()
    pattern = Enum(PATTERNS, "t:min(t+n,T)").tag(sync=True)
    T = Int(12, min=4, max=24).tag(sync=True)
    n = Int(4, min=1, max=8).tag(sync=True)
    t = Int(3, min=0).tag(sync=True)
    k = Int(6, min=0).tag(sync=True)
