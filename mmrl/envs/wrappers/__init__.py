"""Wrappers: an environment that changes what another one shows, pays or allows.

`base` says how they work, `observation` has those that change what the agent sees, `episode` those
that change the reward, the clock or the reset.
"""

from mmrl.envs.wrappers.base import ObservationWrapper, Wrapper
from mmrl.envs.wrappers.episode import (
    EpisodeState,
    EpisodeStatistics,
    ScaleReward,
    TimeLimit,
    VmapAutoReset,
)
from mmrl.envs.wrappers.observation import (
    BeginFlag,
    FlattenObservation,
    MaskObservation,
    NoisyObservation,
    PreviousAction,
    PreviousReward,
    StateObservation,
    paper_stack,
)

__all__ = [
    "BeginFlag",
    "EpisodeState",
    "EpisodeStatistics",
    "FlattenObservation",
    "MaskObservation",
    "NoisyObservation",
    "ObservationWrapper",
    "PreviousAction",
    "PreviousReward",
    "ScaleReward",
    "StateObservation",
    "TimeLimit",
    "VmapAutoReset",
    "Wrapper",
    "paper_stack",
]
