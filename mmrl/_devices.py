"""Rows of arrays, divided among the devices that compute one agent together."""

import jax
from jax.sharding import PartitionSpec
from jaxtyping import Array, PyTree, Shaped

ENVIRONMENTS = "mmrl: environments"
"""Mesh axis along which the environments of one agent are divided over devices.

The name is private to mmrl: meshes of other code do not have it, so only `mmrl.runs` divides rows.
"""


def split_rows(tree: PyTree[Shaped[Array, "rows ..."]]) -> PyTree[Shaped[Array, "rows ..."]]:
    """Divide the rows of arrays among the devices of an agent, if their number is a multiple.

    Otherwise each device computes all rows. Values do not change, and without a mesh that has the
    axis `ENVIRONMENTS` this is the identity. The compiler then computes each row on its device, and
    sums over rows in one all-reduce.
    """
    devices = dict(jax.sharding.get_abstract_mesh().shape).get(ENVIRONMENTS, 1)

    def split(x: Array) -> Array:
        if len(x) % devices:
            return x
        # Replicate first: rows from several devices are then gathered in one all-reduce.
        whole = jax.lax.with_sharding_constraint(x, PartitionSpec())
        return jax.lax.with_sharding_constraint(whole, PartitionSpec(ENVIRONMENTS))

    return tree if devices == 1 else jax.tree.map(split, tree)
