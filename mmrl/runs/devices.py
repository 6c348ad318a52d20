"""Assignment of agents to devices, in a run of one or several processes."""

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
    """Devices of a run: a mesh with the axes [seeds, environments], or None for a single device.

    Seeds are sharded along the first axis, and the environments of an agent along the second.
    """

    mesh: Mesh | None = None

    @property
    def words(self) -> str:
        """Number of devices as a phrase such as ", on 4 devices"; empty for a single device."""
        return f", on {self.mesh.size} devices" if self.mesh else ""

    def put(self, tree: PyTree, specs: PyTree) -> PyTree:
        """Place arrays on the devices, sharded according to `specs`."""
        mesh = self.mesh
        if mesh is None:
            return tree

        def one(x: Any, spec: PartitionSpec) -> Any:
            if isinstance(x, Tracer):
                return x
            data, where = np.asarray(unwrap_keys(x)), NamedSharding(mesh, spec)
            array = jax.make_array_from_callback(data.shape, where, lambda i: data[i])
            return wrap_keys(array, like=x)

        return jax.tree.map(one, tree, specs)

    def whole(self, tree: PyTree) -> PyTree:
        """Gather the complete arrays from all processes. All processes must call this method."""
        if jax.process_count() == 1 or self.mesh is None:
            return tree
        return wrap_keys(multihost_utils.process_allgather(unwrap_keys(tree), tiled=True), tree)


ONE = Devices()
"""A single device."""


def share(number: int | None, seeds: int, environments: int) -> Devices:
    """Return a mesh of at most `number` devices that divides seeds and environments evenly.

    The default is all devices if there are several processes, and one device otherwise. Each group
    of devices trains the same number of seeds, and each device of a group has the same number of
    environments. The mesh uses as many devices as possible, in as many groups as possible. A
    warning reports devices that cannot be used.

    Raises `ValueError` if JAX has fewer than `number` devices, or if a run of several processes
    would leave devices idle.
    """
    many = jax.process_count() > 1
    number = (jax.device_count() if many else 1) if number is None else number
    if not 1 <= number <= jax.device_count():
        more = (
            f" A CPU counts as {number} devices if XLA_FLAGS contains "
            f"--xla_force_host_platform_device_count={number} when Python starts."
        )
        most = jax.device_count()
        bounds = f"from 1 to {most}, which" if most > 1 else "1, the only device that"
        raise ValueError(
            f"`devices` must be {bounds} JAX sees here; got {number}.{more if number > 0 else ''}"
        )
    count, groups = max(
        (groups * _largest_divisor(environments, number // groups), groups)
        for groups in range(1, number + 1)
        if seeds % groups == 0
    )
    each = count // groups
    fits = (
        f"{seeds} seeds allow {groups} groups of devices, and {environments} environments allow "
        f"{each} per group"
    )
    if many and count < jax.device_count():
        every = jax.device_count()
        remedy = f"Choose a number of seeds or environments that is a multiple of {every}."
        raise ValueError(
            f"A run of several processes must use all {every} devices; got `devices` = {number}, "
            f"and {fits}. {remedy if number == every else 'Omit `devices`.'}"
        )
    if count < number:
        warnings.warn(f"{count} of {number} devices are used: {fits}.", stacklevel=3)
    if count == 1:
        return ONE
    return Devices(
        Mesh(np.asarray(jax.devices()[:count]).reshape(groups, each), (SEEDS, ENVIRONMENTS))
    )


def _largest_divisor(number: int, most: int) -> int:
    return max(n for n in range(1, most + 1) if number % n == 0)
