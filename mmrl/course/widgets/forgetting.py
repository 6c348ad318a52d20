"""The explorer of forgetting and interference in a plane."""

from traitlets import Bool, Enum, Float, Int

from mmrl.course.widgets.base import END, Explorer, source, style


class ForgettingExplorer(Explorer):
    """Two or three valleys, L = (u·θ - y)² / 2, learned by gradient descent, one after another.

    Each valley is rotated by `angle` degrees from the one before. All meet in one point, which
    solves every task, except that the last is moved off it by `conflict`. A stage has `steps` steps
    of 0.1; after all tasks, the next of the `cycles` begins. `replay` is the share of the gradient
    from a uniform sample of all steps so far. `ewc` is λ of ½ λ Σ F (θ - θ*)², with the full F or
    its `diagonal`, integrated implicitly, so that every λ is stable. `step` is the visible one, or
    `END` for the last.
    """

    _esm = source("forgetting_explorer")
    _css = style()
    tasks = Int(2, min=2, max=3).tag(sync=True)
    protocol = Enum(("sequential", "simultaneous"), "sequential").tag(sync=True)
    angle = Float(45.0, min=0.0, max=90.0).tag(sync=True)
    conflict = Float(0.0, min=0.0, max=1.5).tag(sync=True)
    steps = Int(60, min=1, max=80).tag(sync=True)
    cycles = Int(1, min=1, max=8).tag(sync=True)
    replay = Float(0.0, min=0.0, max=1.0).tag(sync=True)
    ewc = Float(0.0, min=0.0, max=10.0).tag(sync=True)
    diagonal = Bool(True).tag(sync=True)
    step = Int(END, min=0).tag(sync=True)
