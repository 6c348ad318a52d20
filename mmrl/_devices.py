"""Rows of arrays that are divided among the devices which compute one agent together."""

import jax
from jax.sharding import PartitionSpec
from jaxtyping import Array, PyTree, Shaped

ENVIRONMENTS = "mmrl: environments"
"""The axis of a mesh of devices along which the environments of one agent are divided.

No mesh of a caller has an axis of this name, so that only `mmrl.runs` divides rows.
"""


def split_rows(tree: PyTree[Shaped[Array, "rows ..."]]) -> PyTree[Shaped[Array, "rows ..."]]:
    """Divide the rows of arrays among the devices of an agent, where these divide their number.

    Otherwise each device computes all rows. Values do not change, and without a mesh that has the
    axis `ENVIRONMENTS` this is the identity.
    The compiler computes from each row on its device, and adds up over rows in one all-reduce.
    """
    devices = dict(jax.sharding.get_abstract_mesh().shape).get(ENVIRONMENTS, 1)

    def split(x: Array) -> Array:
        if len(x) % devices:
            return x
        # Whole first: rows that lie on several devices are then brought together in one all-reduce.
        whole = jax.lax.with_sharding_constraint(x, PartitionSpec())
        return jax.lax.with_sharding_constraint(whole, PartitionSpec(ENVIRONMENTS))

    return tree if devices == 1 else jax.tree.map(split, tree)
