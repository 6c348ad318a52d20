"""Wrappers that change the observations, rewards, actions or episodes of an environment.

- `base`: base classes, with an explanation of how wrappers work.
- `observation` and `views`: wrappers that change the observation.
- `mask`: wrappers for masks of legal actions.
- `episode`: wrappers that change rewards, time limits or resets.
- `trial`: wrapper that joins several episodes.
"""

from typing import TYPE_CHECKING

from mmrl._lazy import on_demand

if TYPE_CHECKING:
    from mmrl.envs.wrappers.base import ObservationWrapper as ObservationWrapper
    from mmrl.envs.wrappers.base import Wrapper as Wrapper
    from mmrl.envs.wrappers.episode import EpisodeState as EpisodeState
    from mmrl.envs.wrappers.episode import EpisodeStatistics as EpisodeStatistics
    from mmrl.envs.wrappers.episode import ScaleReward as ScaleReward
    from mmrl.envs.wrappers.episode import TimeLimit as TimeLimit
    from mmrl.envs.wrappers.episode import VmapAutoReset as VmapAutoReset
    from mmrl.envs.wrappers.mask import ActionMask as ActionMask
    from mmrl.envs.wrappers.observation import BeginFlag as BeginFlag
    from mmrl.envs.wrappers.observation import FlattenObservation as FlattenObservation
    from mmrl.envs.wrappers.observation import MaskObservation as MaskObservation
    from mmrl.envs.wrappers.observation import NoisyObservation as NoisyObservation
    from mmrl.envs.wrappers.observation import PreviousAction as PreviousAction
    from mmrl.envs.wrappers.observation import PreviousReward as PreviousReward
    from mmrl.envs.wrappers.observation import paper_stack as paper_stack
    from mmrl.envs.wrappers.trial import Trial as Trial
    from mmrl.envs.wrappers.views import PixelObservation as PixelObservation
    from mmrl.envs.wrappers.views import StateObservation as StateObservation

__all__, __getattr__, __dir__ = on_demand(__name__)
