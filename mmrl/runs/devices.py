"""The devices on which agents are trained: one, or several, in one process or in many."""

import warnings
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from mmrl._devices import ENVIRONMENTS
from mmrl.runs.checkpoint import unwrap_keys, wrap_keys

SEEDS = "seeds"


class Devices(NamedTuple):
    """A mesh of devices, [seeds, environments]; without one, all arrays are on a single device.

    Seeds are divided along the first axis, and the environments of each agent along the second.
    """

    mesh: Mesh | None = None

    @property
    def words(self) -> str:
        """Number of devices in words, if there are several."""
        return f", on {self.mesh.size} devices" if self.mesh else ""

    def put(self, tree: PyTree, specs: PyTree) -> PyTree:
        """Return the arrays on the devices, each divided by its entry of `specs`."""
        mesh = self.mesh
        if mesh is None:
            return tree

        def one(x: Any, spec: PartitionSpec) -> Any:
            if isinstance(x, Tracer):
                return x
            data, where = np.asarray(unwrap_keys(x)), NamedSharding(mesh, spec)
            placed = jax.make_array_from_callback(data.shape, where, lambda i: data[i])
            return wrap_keys(placed, like=x)

        return jax.tree.map(one, tree, specs)

    def whole(self, tree: PyTree) -> PyTree:
        """Return the arrays, gathered from several processes, all of which must call this."""
        if jax.process_count() == 1 or self.mesh is None:
            return tree
        return wrap_keys(multihost_utils.process_allgather(unwrap_keys(tree), tiled=True), tree)


ONE = Devices()
"""All agents on one device."""


def share(number: int | None, seeds: int, environments: int) -> Devices:
    """Return the division of agents among `number` devices; warn if fewer of them can be used.

    The default is all devices of several processes, or one device of a single process. Groups have
    equal numbers of seeds, and devices of a group equal numbers of environments. As many devices as
    possible are used, in as many groups as possible. Raises `ValueError` for more devices than
    there are, and if a process would be idle.
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
    used, groups = max(
        (groups * _largest_divisor(environments, number // groups), groups)
        for groups in range(1, number + 1)
        if seeds % groups == 0
    )
    each = used // groups
    fits = f"{seeds} seeds are divided among {groups}, and {environments} environments among {each}"
    if many and used < jax.device_count():
        raise ValueError(
            f"`devices` must be all {jax.device_count()} devices of the processes; got {number}, "
            f"and {fits}. Choose numbers of seeds or environments that are multiples of it."
        )
    if used < number:
        warnings.warn(f"{used} of {number} devices are used: {fits}.", stacklevel=3)
    if used == 1:
        return ONE
    return Devices(
        Mesh(np.asarray(jax.devices()[:used]).reshape(groups, each), (SEEDS, ENVIRONMENTS))
    )


def _largest_divisor(number: int, most: int) -> int:
    return max(n for n in range(1, most + 1) if number % n == 0)
