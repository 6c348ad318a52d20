"""Sharding of arrays over the devices that train one agent."""

import warnings

import jax
from jax.sharding import PartitionSpec
from jaxtyping import Array, PyTree, Shaped

ENVIRONMENTS = "mmrl: environments"
"""Mesh axis over which the environments of an agent are sharded.

Only `mmrl.runs` creates a mesh with this axis, so no other code triggers sharding.
"""


def split_rows(
    tree: PyTree[Shaped[Array, "rows ..."]], what: str = "The number of rows"
) -> PyTree[Shaped[Array, "rows ..."]]:
    """Shard arrays along their first axis over the devices of an agent.

    Without a mesh that has the axis `ENVIRONMENTS`, return the arrays unchanged. Otherwise each
    device computes its own rows, and the compiler inserts an all-reduce where rows are summed. The
    values do not change.

    If the number of rows is not a multiple of the number of devices, the array is replicated
    instead, and a warning is issued. `what` describes the rows in that warning.
    """
    devices = dict(jax.sharding.get_abstract_mesh().shape).get(ENVIRONMENTS, 1)
    if uneven := sorted({len(x) for x in jax.tree.leaves(tree) if len(x) % devices}):
        warnings.warn(
            f"{what} should be a multiple of {devices}, the number of devices that share an agent; "
            f"got {uneven[0]}. These rows are replicated on every device, which saves no time.",
            stacklevel=2,
        )

    def split(x: Array) -> Array:
        if len(x) % devices:
            return x
        # Replicate first, so that rows from several devices are gathered in one all-reduce.
        whole = jax.lax.with_sharding_constraint(x, PartitionSpec())
        return jax.lax.with_sharding_constraint(whole, PartitionSpec(ENVIRONMENTS))

    return tree if devices == 1 else jax.tree.map(split, tree)
