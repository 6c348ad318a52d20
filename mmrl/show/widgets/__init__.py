"""Explorers that compute in the browser, so that they answer on a page without a kernel too.

    from mmrl.show.widgets import ScanPlayer
    ScanPlayer(method="blelloch")

Each is a class of traits: what a control sets, and the arrays that it starts from. In a notebook
the traits are live, `player.method`, and may be set from Python.
"""

try:
    from mmrl.show.widgets.episodes import EpisodePlayer, episode_player
    from mmrl.show.widgets.explorers import (
        END,
        AttentionExplorer,
        MemoryExplorer,
        ResetExplorer,
        ReturnsExplorer,
        ScanPlayer,
        SegmentsExplorer,
    )
    from mmrl.show.widgets.forgetting import ForgettingExplorer
    from mmrl.show.widgets.graphs import AccessPatternExplorer, ScheduleExplorer, TileExplorer
    from mmrl.show.widgets.policies import BatchCalculator, ClipExplorer, RubberBandExplorer
    from mmrl.show.widgets.programs import GraphEvolution, StepDebugger
    from mmrl.show.widgets.recurrences import LiftInspector
    from mmrl.show.widgets.replay import ReservoirExplorer, VtraceExplorer
    from mmrl.show.widgets.sensitivity import SensitivityExplorer
    from mmrl.show.widgets.sequences import PriorityExplorer, SequenceCutter
    from mmrl.show.widgets.staleness import RescalingExplorer, StalenessExplorer
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
    "ScanPlayer",
    "ScheduleExplorer",
    "SegmentsExplorer",
    "SensitivityExplorer",
    "SequenceCutter",
    "StalenessExplorer",
    "StepDebugger",
    "TileExplorer",
    "VtraceExplorer",
    "episode_player",
]
