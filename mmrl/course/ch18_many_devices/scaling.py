"""Estimated costs of a scan over several devices: bytes, latency, and their share of the time.

    sizes = leaf_bytes(LRU(8, 8, state_size=64, key=key))     # bytes of one element
    cost(sizes, 2**20, devices=8).share                       # 0.08

These are computed from the data that must be moved, not measured: real programs are slower.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax

from mmrl.memory.base import Memory
from mmrl.monoid import Resettable

MEMORY = 4.8e12  # bytes per second between an H200 and its memory
NODE = 8  # devices in a node


class Link(NamedTuple):
    """A network: seconds before the first byte arrives, and bytes per second afterwards."""

    latency: float
    bandwidth: float


WITHIN = Link(10e-6, 450e9)  # between devices of one node
ACROSS = Link(30e-6, 50e9)  # between nodes


class Cost(NamedTuple):
    """Bytes on each device and seconds of one scan over several devices."""

    received: int  # bytes: the totals of all other devices
    prefixes: int  # bytes: one element for each of a device's steps
    memory: float  # seconds: reading and writing elements
    latency: float  # seconds: waiting for the first byte of each all-gather
    transfer: float  # seconds: receiving the rest

    @property
    def seconds(self) -> float:
        """Total seconds; no part overlaps another."""
        return self.memory + self.latency + self.transfer

    @property
    def share(self) -> float:
        """The share of the time that is spent on communication."""
        return (self.latency + self.transfer) / self.seconds

    @property
    def limit(self) -> str:
        """The name of the longest of the three times."""
        times = {"memory": self.memory, "latency": self.latency, "transfer": self.transfer}
        return max(times, key=times.__getitem__)


def leaf_bytes(memory: Memory) -> list[int]:
    """Return the bytes of each leaf of an element of `memory`'s scan, including the reset flag."""
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
    """Compute bytes and seconds of a scan of `steps` elements with leaf `sizes` over `devices`.

    One device reads every element and writes every prefix: 2 passes over its memory, at `bandwidth`
    bytes per second. Each of several devices makes 4, because its prefixes are read and written
    again when the past arrives from the left; and one all-gather fetches the totals of the others.
    On GPUs XLA unites the all-gathers of all leaves; if not `united`, as on CPUs, the latencies add
    up. The estimate leaves out the scan of the totals, and arithmetic, which is faster than memory
    here. `link` defaults to `WITHIN` for up to 8 devices and to `ACROSS` for more.

    Raises `ValueError` if `devices` is not positive or does not divide `steps`.
    """
    if devices < 1 or steps < 1 or steps % devices:
        raise ValueError(
            f"`devices` must divide `steps` = {steps} into equal parts; got {devices}."
        )
    link = link or (WITHIN if devices <= NODE else ACROSS)
    several, element = devices > 1, sum(sizes)
    prefixes, received = steps // devices * element, (devices - 1) * element
    gathers = (1 if united else len(sizes)) * several
    return Cost(
        received=received,
        prefixes=prefixes,
        memory=(4 if several else 2) * prefixes / bandwidth,
        latency=gathers * link.latency,
        transfer=received / link.bandwidth,
    )
