"""Modules of the compiler that have moved: their earlier names still lead to them."""

from mmrl import _moved

_BUILD = ("expr", "graph", "sets")
_LANGUAGE = ("autodiff", "indexing", "ops", "tensor")
_PROGRAMS = ("programs", "programs.decoder", "programs.parts", "programs.policy_gradients")
MOVED = {
    **{name: f"mmrl.pdg.build.{name}" for name in _BUILD},
    **{f"language.{name}": f"mmrl.pdg.build.{name}" for name in _LANGUAGE},
    **{name: f"mmrl.course.{name}" for name in _PROGRAMS},
    "verify.naive": "mmrl.pdg.run.naive",
    "schedule.code": "mmrl.pdg.plan.code",
    "run.account": "mmrl.pdg.plan.account",
    "run.layout": "mmrl.pdg.plan.layout",
}
"""Earlier name below `mmrl.pdg`, and present name, of each."""

SPLIT = {
    "language": ("mmrl.pdg.build.program",),
    "verify": ("mmrl.pdg.clean.validate",),
    "schedule.frees": (
        "mmrl.pdg.plan.frees",
        "mmrl.pdg.plan.swap",
        "mmrl.course.ch16_graphs_and_schedules.joint",
    ),
}
"""Packages that are one module now, and modules that were split."""


def install() -> None:
    """Make the earlier names importable in this process."""
    _moved.install("mmrl.pdg", MOVED, SPLIT)
