"""Memories to compare with: none, the last four observations, an LRU, a GRU.

They are evaluated like any entry, by `mmrl capstone run mmrl.course.capstone.baselines:lru`, and
must pass the same gates. One gate rightly refuses `none`, because it has no memory. `none`
remains on the leaderboard as a control, and so does the oracle, which is `none` with the Markov
state as its input.
"""

from jaxtyping import PRNGKeyArray

from mmrl.memory import GRU, LRU, FrameStack, Memoryless, SequenceModel

CONTROLS = ("none", "oracle")
"""Names reserved for baselines that entries are compared with and that are not ranked."""


def none(input_size: int, output_size: int, *, key: PRNGKeyArray) -> SequenceModel:
    """Build a network without memory, which uses only the current observation."""
    return Memoryless(input_size, output_size, key=key)


def frames(input_size: int, output_size: int, *, key: PRNGKeyArray) -> SequenceModel:
    """Build a memory that holds the last four observations."""
    return FrameStack(input_size, output_size, frames=4, key=key)


def lru(input_size: int, output_size: int, *, key: PRNGKeyArray) -> SequenceModel:
    """Build a linear recurrent unit with 64 complex numbers."""
    return LRU(input_size, output_size, state_size=64, key=key)


def gru(input_size: int, output_size: int, *, key: PRNGKeyArray) -> SequenceModel:
    """Build a gated recurrent unit with 64 numbers, which is not a monoid."""
    return GRU(input_size, output_size, state_size=64, key=key)
