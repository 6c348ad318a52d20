"""Where agents are trained: on one device, or on several, of one process or of many."""

import warnings
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from mmrl import collectives
from mmrl.runs.checkpoint import unwrap_keys, wrap_keys

LANES = "lane"


class Devices(NamedTuple):
    """How lanes, or the shards of each, are divided among devices; without a mesh, all on one."""

    shards: int = 1  # of every agent
    mesh: Mesh | None = None

    @property
    def axis(self) -> str:
        """The name of what is divided: lanes, unless they are split into shards."""
        return LANES if self.shards == 1 else collectives.DEVICES

    @property
    def shards_of_each(self) -> int:
        """How many shards a device has."""
        return self.shards // (1 if self.mesh is None or self.shards == 1 else self.mesh.size)

    @property
    def words(self) -> str:
        """Shards and devices in a few words, where there are several."""
        shards = f", {self.shards} shards" if self.shards > 1 else ""
        return shards + (f", on {self.mesh.size} devices" if self.mesh else "")

    def spec(self, own: bool = False) -> PartitionSpec:
        """How an array is divided whose first axis is that of lanes.

        If lanes are split, what shards have of their `own` has their axis behind that, and all else
        is on every device.
        """
        if self.shards == 1:
            return PartitionSpec(self.axis)
        return PartitionSpec(None, self.axis) if own else PartitionSpec()

    def put(self, tree: PyTree, specs: PyTree) -> PyTree:
        """The arrays on the devices, each divided as its entry of `specs` says."""
        mesh = self.mesh
        if mesh is None:
            return tree

        def one(x: Any, spec: PartitionSpec) -> Any:
            where = NamedSharding(mesh, spec)
            if isinstance(x, Tracer) or getattr(x, "sharding", None) == where:
                return x
            data = np.asarray(unwrap_keys(x))
            placed = jax.make_array_from_callback(data.shape, where, lambda i: data[i])
            return wrap_keys(placed, like=x)

        return jax.tree.map(one, tree, specs)

    def whole(self, tree: PyTree) -> PyTree:
        """The arrays as they are, or, of several processes, gathered: all of them must call it."""
        if jax.process_count() == 1 or self.mesh is None:
            return tree
        return wrap_keys(multihost_utils.process_allgather(unwrap_keys(tree), tiled=True), tree)


ONE = Devices()
"""Agents that are not split, on one device."""


def share(number: int | None, lanes: int, shards: int) -> Devices:
    """The division among `number` devices; warns if fewer of them can be used.

    By default among all if there are several processes, else none. As many are used as divide the
    lanes, or the shards. Raises `ValueError` for more devices than there are, and if those of a
    process would have nothing to do.
    """
    many = jax.process_count() > 1
    number = (jax.device_count() if many else 1) if number is None else number
    if not 1 <= number <= jax.device_count():
        more = (
            f" A CPU counts as {number} if XLA_FLAGS has "
            f"--xla_force_host_platform_device_count={number} when Python starts."
        )
        most = jax.device_count()
        wanted = f"from 1 to {most}, which" if most > 1 else "1, the only device that"
        raise ValueError(
            f"`devices` must be {wanted} JAX sees here; got {number}.{more if number > 0 else ''}"
        )
    parts, kind = (lanes, "agents, one for each seed,") if shards == 1 else (shards, "shards")
    divisors = [n for n in range(1, parts + 1) if parts % n == 0]
    used = max(n for n in divisors if n <= number)
    fits = f"{parts} {kind} divide evenly among {', '.join(map(str, divisors))}"
    if many and used < jax.device_count():
        raise ValueError(
            f"`devices` must be all {jax.device_count()} of the processes; got {number}, and "
            f"{fits}."
        )
    if used < number:
        warnings.warn(f"{used} of {number} devices are used: {fits}.", stacklevel=3)
    mesh = Mesh(np.asarray(jax.devices()[:used]), (Devices(shards).axis,))
    return Devices(shards, mesh if used > 1 else None)
