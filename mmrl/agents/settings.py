"""The base class of every agent's `Config`: the length of a run in steps of the environment."""

import dataclasses
import math
from typing import TypeVar

import equinox as eqx

from mmrl._dtypes import whole

Own = TypeVar("Own", bound="Settings")


class Settings(eqx.Module):
    """Settings of an agent, of which each seed plays `blocks` blocks of `block` iterations."""

    block: eqx.AbstractVar[int]
    blocks: eqx.AbstractVar[int]
    environments: eqx.AbstractVar[int]
    rollout: eqx.AbstractVar[int]

    @property
    def block_steps(self) -> int:
        """Steps in the environment per seed and block."""
        return math.prod(map(int, (self.block, self.rollout, self.environments)))

    def for_steps(self: Own, steps: int) -> Own:
        """Return the settings of a run with at least `steps` environment steps per seed.

        `blocks` becomes the smallest number that reaches them; everything else stays.
        """
        blocks = -(-whole("steps", steps) // self.block_steps)
        return dataclasses.replace(self, blocks=blocks)
