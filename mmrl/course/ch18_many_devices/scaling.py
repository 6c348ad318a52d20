"""Costs of a scan over several devices, on paper: bytes, latency, and their share of the time.

    sizes = leaf_bytes(LRU(8, 8, state_size=64, key=key))     # what one element of it takes
    cost(sizes, 2**20, devices=8).share                       # 0.08

Computed from what has to be moved, not measured: no program is as quick as this.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax

from mmrl.memory.base import Memory
from mmrl.monoid import Resettable

MEMORY = 4.8e12  # bytes per second between an H200 and its memory
NODE = 8  # devices that share one


class Link(NamedTuple):
    """A network: seconds before the first byte arrives, and bytes per second from then on."""

    latency: float
    bandwidth: float


WITHIN = Link(10e-6, 450e9)  # the devices of one node
ACROSS = Link(30e-6, 50e9)  # several nodes


class Cost(NamedTuple):
    """Bytes on each device and seconds of one scan over several of them."""

    received: int  # bytes: the totals of all other devices
    prefixes: int  # bytes: one element for each of a device's steps
    memory: float  # seconds: reading and writing elements
    latency: float  # seconds: waiting for the first byte of each all-gather
    transfer: float  # seconds: receiving the rest

    @property
    def seconds(self) -> float:
        """The whole time: nothing waits in the shadow of something else."""
        return self.memory + self.latency + self.transfer

    @property
    def share(self) -> float:
        """The share of the time in which devices talk."""
        return (self.latency + self.transfer) / self.seconds

    @property
    def limit(self) -> str:
        """The name of the longest of the three times."""
        times = {"memory": self.memory, "latency": self.latency, "transfer": self.transfer}
        return max(times, key=times.__getitem__)


def leaf_bytes(memory: Memory) -> list[int]:
    """The bytes of each leaf of an element of `memory`'s scan, the flag of a reset among them."""
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
    """Bytes and seconds of a scan of `steps` elements over `devices`; `sizes` are of their leaves.

    One device reads every element and writes every prefix: 2 passes over its memory, of `bandwidth`
    bytes per second. Each of several devices makes 4, because its prefixes are read and written
    again when the past comes in from the left; and one all-gather brings the totals of the others.
    XLA unites the all-gathers of all leaves where it compiles for GPUs; where not `united`, as on
    CPUs, the latencies add up. The scan of the totals is left out, and arithmetic, which is quicker
    than memory here. `link` is `WITHIN` for up to 8 devices and `ACROSS` for more, unless you give
    one.

    Raises `ValueError` if `devices` is not positive or does not divide `steps`.
    """
    if devices < 1 or steps < 1 or steps % devices:
        raise ValueError(
            f"`devices` must divide `steps` = {steps}, so that each has as many; got {devices}."
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
