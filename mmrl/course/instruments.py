"""Measures of the staleness of recurrent states and of the effect of each observation.

    ΔQ_t = ‖Q(ĥ_t; θ) - Q(h_t; θ)‖₂ / |max_a Q(h_t; θ)|          Kapturowski et al. 2019, Section 3

compares the Q-values of a replayed recurrent state ĥ_t and of the correct state h_t. The
correct state is computed by running the current parameters over the episode from its beginning. The
replayed state is computed from one of four initial states of the sequence, see `STARTS`. A tape
replays complete episodes, so ĥ = h and ΔQ = 0 for every memory.
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
"""Initial states of a sequence: zero or the actor's stored state, without and with burn-in."""


class DeltaQ(NamedTuple):
    """ΔQ of each sequence at its first and last trained step, for the four `STARTS`.

    `valid` is False where ΔQ cannot be computed, because the sequence begins with its episode or
    the beginning of the episode is not in the stored prefix.
    """

    first: Float[Array, "start sequence"]
    last: Float[Array, "start sequence"]
    valid: Bool[Array, " sequence"]


def replay_delta_q(state: State, key: PRNGKeyArray, count: int, prefix: int) -> DeltaQ:
    """Measure ΔQ on `count` sequences that are sampled from the replay buffer.

    At most `prefix` steps before each sequence are used to compute the correct state. All four
    starts are evaluated on the same sequences with the agent's current network, whichever start the
    agent learns with. Raises `ValueError` for a `count` or `prefix` below 1. Also raises
    `ValueError` unless the `burn_in` of the buffer is a positive multiple of its period, because
    otherwise a state is not stored at both ends of the burn-in.
    """
    for name, value in (("count", count), ("prefix", prefix)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1; got {value}.")
    storage = state.sequences
    burn_in, period = storage.cut.burn_in, storage.cut.period
    if burn_in < 1 or burn_in % period:
        raise ValueError(
            f"`burn_in` must be a positive multiple of `length` - `overlap` = {period}, so that a "
            f"state is stored at both ends of it; got {burn_in}."
        )
    rows = sequences.sample(storage, key, count).rows
    whole = sequences.window(storage, rows, prefix)
    with_prefix = sequences.window(storage, rows, burn_in)
    alone = sequences.window(storage, rows, 0)
    net, fresh = state.net, jax.tree.map(lambda x: jnp.stack([x] * count), state.net.init())
    truth = _q(net, fresh, whole, prefix)
    values = [
        _q(net, fresh, alone, 0),
        _q(net, fresh, with_prefix, burn_in),
        _q(net, alone.state, alone, 0),
        _q(net, with_prefix.state, with_prefix, burn_in),
    ]
    error = jnp.stack([delta_q(q, truth) for q in values])  # [start, sequence, time]
    end = jnp.maximum(jnp.sum(alone.loss_mask, axis=1) - 1, 0)
    last = jnp.take_along_axis(error, end[None, :, None], axis=2)[..., 0]
    valid = jnp.any(whole.begin[:, :prefix], axis=1)
    return DeltaQ(error[..., 0], last, valid)


def delta_q(
    values: Float[Array, "*time action"], truth: Float[Array, "*time action"]
) -> Float[Array, "*time"]:
    """Compute ΔQ = ‖Q̂ - Q‖₂ / |max_a Q|, where Q̂ is `values` and Q is `truth`."""
    return jnp.linalg.norm(values - truth, axis=-1) / jnp.abs(jnp.max(truth, axis=-1))


def _q(net: Net, state: PyTree, window: Any, before: int) -> Float[Array, "sequence time action"]:
    """Compute Q at the steps of the sequences, from a state that is `before` steps earlier."""
    _, q = jax.vmap(net)(state, window.steps.obs, window.begin)
    return q[:, before:]


def sensitivity(
    net: Net | SequenceModel,
    obs: Float[Array, "time *obs"],
    actions: Int[Array, " time"],
    begin: Bool[Array, " time"],
    at: Int[Array, " n"] | None = None,
) -> Float[Array, "n time *obs"]:
    """Compute ∂Q(s_n, a_n)/∂o_i for the steps n in `at` (default: all) and every i.

    This is Eq. 36 without the absolute value. The result is exactly zero if o_i comes after step n
    or belongs to an earlier episode. If `begin` is also set at the start of each segment, the
    result shows which steps the gradient of a segment can reach. The cost is one backward pass per
    entry of `at`. If `net` is only a memory, `actions` select features of its output.
    """

    def value(obs):
        _, outputs = net(net.init(), obs, begin)
        return jnp.take_along_axis(outputs, actions[:, None], axis=-1)[:, 0]

    steps = jnp.arange(len(actions))
    q, backward = jax.vjp(value, obs)
    basis = steps[None] == (steps if at is None else at)[:, None]
    return jax.vmap(backward)(basis.astype(q.dtype))[0]
