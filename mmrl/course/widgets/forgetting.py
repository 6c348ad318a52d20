"""Explorer for forgetting and interference in a model with two parameters."""

from traitlets import Bool, Enum, Float, Int

from mmrl.course.widgets.base import END, Explorer, source, style


class ForgettingExplorer(Explorer):
    """Explorer for two or three tasks L = (u·θ - y)² / 2 that gradient descent learns in sequence.

    The direction u of each task is rotated by `angle` degrees from the task before. All tasks share
    a solution, except that the last task is shifted away from it by `conflict`. A stage has `steps`
    gradient steps with learning rate 0.1, and the sequence of tasks is repeated `cycles` times.

    `replay` is the fraction of the gradient from a uniform sample of all earlier steps. `ewc` is
    the weight λ of the penalty ½ λ Σ F (θ - θ*)², where F is the full Fisher matrix or its
    `diagonal`. Steps on the penalty are implicit and therefore stable for every λ. `step` is the
    visible step, or `END` for the last one.
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
