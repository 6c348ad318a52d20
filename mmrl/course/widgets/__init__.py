"""Explorers that compute in the browser, so that they answer on a page without a kernel too.

    from mmrl.course.widgets import ScanPlayer
    ScanPlayer(method="blelloch")

Each is a class of traits: what a control sets, and the arrays that it starts from. In a notebook
the traits are live, `player.method`, and may be set from Python.
"""

try:
    from mmrl.course.widgets.base import END
    from mmrl.course.widgets.episodes import EpisodePlayer, episode_player
    from mmrl.course.widgets.explorers import (
        AttentionExplorer,
        MemoryExplorer,
        ResetExplorer,
        ReturnsExplorer,
        ScanPlayer,
        SegmentsExplorer,
    )
    from mmrl.course.widgets.forgetting import ForgettingExplorer
    from mmrl.course.widgets.graphs import AccessPatternExplorer, ScheduleExplorer, TileExplorer
    from mmrl.course.widgets.policies import BatchCalculator, ClipExplorer, RubberBandExplorer
    from mmrl.course.widgets.programs import GraphEvolution, StepDebugger
    from mmrl.course.widgets.recurrences import LiftInspector
    from mmrl.course.widgets.replay import ReservoirExplorer, VtraceExplorer
    from mmrl.course.widgets.scaling import ScalingCalculator, ShardedScanPlayer
    from mmrl.course.widgets.sensitivity import SensitivityExplorer
    from mmrl.course.widgets.sequences import PriorityExplorer, SequenceCutter
    from mmrl.course.widgets.staleness import RescalingExplorer, StalenessExplorer
except ModuleNotFoundError as error:
    if error.name not in ("anywidget", "traitlets"):
        raise
    text = "Widgets need anywidget: pip install anywidget."
    raise ModuleNotFoundError(text, name=error.name) from error

__all__ = [
    "END",
    "AccessPatternExplorer",
    "AttentionExplorer",
    "BatchCalculator",
    "ClipExplorer",
    "EpisodePlayer",
    "ForgettingExplorer",
    "GraphEvolution",
    "LiftInspector",
    "MemoryExplorer",
    "PriorityExplorer",
    "RescalingExplorer",
    "ReservoirExplorer",
    "ResetExplorer",
    "ReturnsExplorer",
    "RubberBandExplorer",
    "ScalingCalculator",
    "ScanPlayer",
    "ScheduleExplorer",
    "SegmentsExplorer",
    "SensitivityExplorer",
    "SequenceCutter",
    "ShardedScanPlayer",
    "StalenessExplorer",
    "StepDebugger",
    "TileExplorer",
    "VtraceExplorer",
    "episode_player",
]
