"""Former names of the compiler's modules, which can still be imported."""

from mmrl import _moved

_BUILD = ("expr", "graph", "sets")
_LANGUAGE = ("autodiff", "indexing", "ops", "tensor")
_PROGRAMS = ("programs", "programs.decoder", "programs.parts", "programs.policy_gradients")
SUCCESSORS = {
    **{name: f"mmrl.pdg.build.{name}" for name in _BUILD},
    **{f"language.{name}": f"mmrl.pdg.build.{name}" for name in _LANGUAGE},
    **{name: f"mmrl.course.{name}" for name in _PROGRAMS},
    "verify.naive": "mmrl.pdg.run.naive",
    "schedule.code": "mmrl.pdg.plan.code",
    "run.account": "mmrl.pdg.plan.account",
    "run.layout": "mmrl.pdg.plan.layout",
}
"""Map from former names below `mmrl.pdg` to current modules."""

SPLITS = {
    "language": ("mmrl.pdg.build.program",),
    "verify": ("mmrl.pdg.clean.validate",),
    "schedule.frees": (
        "mmrl.pdg.plan.frees",
        "mmrl.pdg.plan.swap",
        "mmrl.course.ch16_graphs_and_schedules.joint",
    ),
}
"""Map from former packages and modules to the modules that now hold their contents."""


def install() -> None:
    """Make the former names importable in this process."""
    _moved.install("mmrl.pdg", SUCCESSORS, SPLITS)
