"""How much every past observation matters to what a network says now."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mmrl.memory.base import SequenceModel
from mmrl.nets.base import Net


def sensitivity(
    net: Net | SequenceModel,
    obs: Float[Array, "time *obs"],
    actions: Int[Array, " time"],
    begin: Bool[Array, " time"],
    at: Int[Array, " n"] | None = None,
) -> Float[Array, "n time *obs"]:
    """∂Q(s_n, a_n)/∂o_i for the steps n in `at`, or every step, and every i.  Eq. 36, without |·|.

    Exactly zero where o_i comes after step n, or before the `begin` that step n remembers: with
    flags at the starts of segments, it is what a gradient on segments can see. Costs one backward
    pass per n. Give `net` a memory alone, and `actions` choose a feature of its output.
    """

    def taken(obs):
        _, outputs = net(net.init(), obs, begin)
        return jnp.take_along_axis(outputs, actions[:, None], axis=-1)[:, 0]

    steps = jnp.arange(len(actions))
    q, backward = jax.vjp(taken, obs)
    chosen = steps[None] == (steps if at is None else at)[:, None]
    return jax.vmap(backward)(chosen.astype(q.dtype))[0]
