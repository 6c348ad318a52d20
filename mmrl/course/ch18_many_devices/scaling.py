"""Estimated cost of a scan over several devices.

    sizes = leaf_bytes(LRU(8, 8, state_size=64, key=key))     # bytes of one element
    cost(sizes, 2**20, devices=8).share                       # 0.08

Estimates include only the time to move data, so real programs are slower.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax

from mmrl.memory.base import Memory
from mmrl.monoid import Resettable

MEMORY = 4.8e12  # bytes per second between an H200 and its memory
NODE = 8  # devices per node


class Link(NamedTuple):
    """A network's latency (seconds) and bandwidth (bytes per second)."""

    latency: float
    bandwidth: float


WITHIN = Link(10e-6, 450e9)  # between devices of a node
ACROSS = Link(30e-6, 50e9)  # between nodes


class Cost(NamedTuple):
    """Bytes per device, and seconds, of a scan over several devices."""

    received_bytes: int  # bytes of the totals of all other devices
    prefixes: int  # bytes of one element per step on a device
    memory: float  # seconds for reading and writing elements
    latency: float  # seconds until the first byte of each all-gather arrives
    transfer: float  # seconds for receiving the rest

    @property
    def seconds(self) -> float:
        """Total seconds, assuming that nothing overlaps."""
        return self.memory + self.latency + self.transfer

    @property
    def share(self) -> float:
        """Fraction of the time that is spent on communication."""
        return (self.latency + self.transfer) / self.seconds

    @property
    def limit(self) -> str:
        """Name of the largest of the three times."""
        times = {"memory": self.memory, "latency": self.latency, "transfer": self.transfer}
        return max(times, key=times.__getitem__)


def leaf_bytes(memory: Memory) -> list[int]:
    """Return the bytes of each leaf of one scan element of `memory`, including the reset flag."""
    element = jax.eval_shape(Resettable(memory.monoid).identity)
    return [math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(element)]


def cost(
    sizes: Sequence[int],
    steps: int,
    devices: int,
    link: Link | None = None,
    *,
    bandwidth: float = MEMORY,
    united: bool = True,
) -> Cost:
    """Estimate the cost of a scan of `steps` elements over `devices`.

    `sizes` are the bytes of each leaf of an element. A single device makes 2 passes over its
    memory, at `bandwidth` bytes per second: it reads every element and writes every prefix. Several
    devices make 4 passes each, because they read and write their prefixes again when the totals of
    the other devices have arrived in an all-gather. With `united`, all leaves are gathered at once,
    as by XLA on GPUs. Otherwise each leaf has its own all-gather, as on CPUs, and the latencies add
    up. The estimate ignores the scan of the totals, and arithmetic, which is faster than memory
    here. `link` defaults to `WITHIN` for up to 8 devices and to `ACROSS` for more.

    Raises `ValueError` if `devices` is not positive or does not divide `steps`.
    """
    if devices < 1 or steps < 1 or steps % devices:
        raise ValueError(f"`devices` must divide `steps` = {steps} evenly, got {devices}.")
    link = link or (WITHIN if devices <= NODE else ACROSS)
    several, element = devices > 1, sum(sizes)
    prefixes, arrivals = steps // devices * element, (devices - 1) * element
    gathers = (1 if united else len(sizes)) * several
    return Cost(
        received_bytes=arrivals,
        prefixes=prefixes,
        memory=(4 if several else 2) * prefixes / bandwidth,
        latency=gathers * link.latency,
        transfer=arrivals / link.bandwidth,
    )
