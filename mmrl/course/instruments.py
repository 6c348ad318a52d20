"""Instruments: how old an agent's recurrent states are, and how much each observation matters.

    ΔQ_t = ‖Q(ĥ_t; θ) - Q(h_t; θ)‖₂ / |max_a Q(h_t; θ)|          Kapturowski et al. 2019, Section 3

is how far Q from a replayed recurrent state is from Q with the state of today's parameters: h_t
comes from unrolling θ over the true whole prefix of the episode, ĥ_t from one of four starts of the
sequence. A tape replays whole episodes: there ĥ = h and ΔQ = 0, with any memory.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from mmrl.agents.r2d2.r2d2 import State
from mmrl.memory.base import SequenceModel
from mmrl.nets import Net
from mmrl.replay import sequences

STARTS = ("zero", "burn_in", "stored", "stored_burn_in")
"""The initial state; that and a burn-in; the actor's; the actor's before the burn-in, and that."""


class DeltaQ(NamedTuple):
    """ΔQ of each sequence at its first and last trained step, for the four `STARTS`.

    `valid` is False where it says nothing: the sequence begins with its episode, or the beginning
    of the episode has been overwritten.
    """

    first: Float[Array, "start sequence"]
    last: Float[Array, "start sequence"]
    valid: Bool[Array, " sequence"]


def replay_delta_q(state: State, key: PRNGKeyArray, count: int, prefix: int) -> DeltaQ:
    """ΔQ of `count` sequences, drawn as for learning; the episode before one has ≤ `prefix` steps.

    All four starts are compared with one network on the same sequences, whatever the agent learns
    from. Raises ValueError for a count or prefix below 1, and unless the storage's `burn_in` is a
    positive multiple of its period, for only then are both stored states at hand.
    """
    for name, value in (("count", count), ("prefix", prefix)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1; got {value}.")
    stored = state.sequences
    burn_in, period = stored.cut.burn_in, stored.cut.period
    if burn_in < 1 or burn_in % period:
        raise ValueError(
            f"`burn_in` must be a positive multiple of `length` - `overlap` = {period}, so that a "
            f"state is stored at both ends of it; got {burn_in}."
        )
    rows = sequences.sample(stored, key, count).rows
    whole = sequences.window(stored, rows, prefix)
    with_prefix = sequences.window(stored, rows, burn_in)
    alone = sequences.window(stored, rows, 0)
    net, fresh = state.net, jax.tree.map(lambda x: jnp.stack([x] * count), state.net.init())
    truth = _q(net, fresh, whole, prefix)
    replayed = [
        _q(net, fresh, alone, 0),
        _q(net, fresh, with_prefix, burn_in),
        _q(net, alone.state, alone, 0),
        _q(net, with_prefix.state, with_prefix, burn_in),
    ]
    error = jnp.stack([delta_q(q, truth) for q in replayed])  # [start, sequence, time]
    end = jnp.maximum(jnp.sum(alone.trained, axis=1) - 1, 0)
    last = jnp.take_along_axis(error, end[None, :, None], axis=2)[..., 0]
    valid = jnp.any(whole.begin[:, :prefix], axis=1)
    return DeltaQ(error[..., 0], last, valid)


def delta_q(
    replayed: Float[Array, "*time action"], truth: Float[Array, "*time action"]
) -> Float[Array, "*time"]:
    """‖Q̂ - Q‖₂ / |max_a Q|."""
    return jnp.linalg.norm(replayed - truth, axis=-1) / jnp.abs(jnp.max(truth, axis=-1))


def _q(net: Net, state: PyTree, window: Any, before: int) -> Float[Array, "sequence time action"]:
    """Q at the steps of the sequences themselves, from a state `before` steps earlier."""
    _, q = jax.vmap(net)(state, window.steps.obs, window.begin)
    return q[:, before:]


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
