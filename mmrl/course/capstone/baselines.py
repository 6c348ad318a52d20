"""Baselines of the capstone: no memory, the last four observations, an LRU, and a GRU.

A baseline is run like an entry, as in `mmrl capstone run mmrl.course.capstone.baselines:lru`, and
has to pass the same gates. Only `none` fails one of them, as it should, because it remembers
nothing. It is on the leaderboard as a control, and so is the oracle, which is `none` with access to
the state.
"""

from jaxtyping import PRNGKeyArray

from mmrl.memory import GRU, LRU, FrameStack, Memoryless, SequenceModel

CONTROLS = ("none", "oracle")
"""Names reserved for baselines that are shown on the leaderboard but not ranked."""


def none(input_size: int, output_size: int, *, key: PRNGKeyArray) -> SequenceModel:
    """No memory, to measure how far the current observation alone suffices."""
    return Memoryless(input_size, output_size, key=key)


def frames(input_size: int, output_size: int, *, key: PRNGKeyArray) -> SequenceModel:
    """The last four observations, unchanged."""
    return FrameStack(input_size, output_size, frames=4, key=key)


def lru(input_size: int, output_size: int, *, key: PRNGKeyArray) -> SequenceModel:
    """A linear recurrent unit of 64 complex numbers."""
    return LRU(input_size, output_size, state_size=64, key=key)


def gru(input_size: int, output_size: int, *, key: PRNGKeyArray) -> SequenceModel:
    """A gated recurrent unit of 64 numbers, whose update is not a monoid."""
    return GRU(input_size, output_size, state_size=64, key=key)
