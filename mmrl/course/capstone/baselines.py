"""Memories to compare with: none, the last four observations, an LRU, a GRU.

They are built as an entry is, `mmrl capstone run mmrl.course.capstone.baselines:lru`, and go
through the same gates. `none` is refused by one of them, as it should be: it remembers nothing. It
stands on the leaderboard as a control, as does the oracle, which is `none` that is shown the state.
"""

from jaxtyping import PRNGKeyArray

from mmrl.memory import GRU, LRU, FrameStack, Memoryless, SequenceModel

CONTROLS = ("none", "oracle")
"""Names that only baselines may have, which are compared with and not ranked."""


def none(input_size: int, output_size: int, *, key: PRNGKeyArray) -> SequenceModel:
    """No memory: what the observation of the moment is worth."""
    return Memoryless(input_size, output_size, key=key)


def frames(input_size: int, output_size: int, *, key: PRNGKeyArray) -> SequenceModel:
    """The last four observations as they are."""
    return FrameStack(input_size, output_size, frames=4, key=key)


def lru(input_size: int, output_size: int, *, key: PRNGKeyArray) -> SequenceModel:
    """A linear recurrent unit of 64 complex numbers."""
    return LRU(input_size, output_size, state_size=64, key=key)


def gru(input_size: int, output_size: int, *, key: PRNGKeyArray) -> SequenceModel:
    """A gated recurrent unit of 64 numbers, which is no monoid."""
    return GRU(input_size, output_size, state_size=64, key=key)
