"""Encoder, memory, head: one network for value functions and policies.

    obs ──encoder──► x ──memory──► s ──┐
                     └─────────────────┴──head──► outputs

The head sees the encoded observation beside the Markov state, so that a memory needs to hold only
the past. Same calls as `mmrl.memory`: a tape, a step, a lookahead.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from mmrl import memory
from mmrl.memory.base import SequenceModel, dense


class Dense(eqx.Module):
    """leaky_relu(norm(W x + b)): a linear layer, layer norm without parameters, a nonlinearity."""

    linear: eqx.nn.Linear

    def __init__(self, input_size: int, output_size: int, *, key: PRNGKeyArray):
        self.linear = eqx.nn.Linear(input_size, output_size, key=key)

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        y = dense(self.linear, x)
        y = (y - jnp.mean(y)) * jax.lax.rsqrt(jnp.var(y) + 1e-5)
        return jax.nn.leaky_relu(y)


class LinearHead(eqx.Module):
    """W x + b: logits, values or action values."""

    linear: eqx.nn.Linear

    def __init__(self, input_size: int, output_size: int, *, key: PRNGKeyArray):
        self.linear = eqx.nn.Linear(input_size, output_size, key=key)

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        return dense(self.linear, x)


class DuelingHead(eqx.Module):
    """Q(s, a) = V(s) + A(s, a) - mean_a A(s, a).  Wang et al. 2016, Eq. 9."""

    value: eqx.nn.Linear
    advantage: eqx.nn.Linear

    def __init__(self, input_size: int, actions: int, *, key: PRNGKeyArray):
        value_key, advantage_key = jax.random.split(key)
        self.value = eqx.nn.Linear(input_size, 1, key=value_key)
        self.advantage = eqx.nn.Linear(input_size, actions, key=advantage_key)

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " action"]:
        advantage = dense(self.advantage, x)
        return dense(self.value, x) + advantage - jnp.mean(advantage)


class Net(eqx.Module):
    """obs → encoder → memory → head; the observation may have any shape and is flattened.

    The `begin` flags reset the memory and nothing else. A network that should *see* where an
    episode starts gets that in its observation (`mmrl.envs.wrappers.BeginFlag`): on segments, which
    reset the memory in mid-episode, the two are not the same.
    """

    encoder: Dense
    memory: SequenceModel
    trunk: tuple[Dense, Dense]
    head: LinearHead | DuelingHead

    def __init__(
        self,
        obs_size: int,
        outputs: int,
        *,
        memory_name: str = "lru",
        width: int = 64,
        dueling: bool = False,
        key: PRNGKeyArray,
        **memory_sizes: int,
    ):
        keys = jax.random.split(key, 5)
        self.encoder = Dense(obs_size, width, key=keys[0])
        self.memory = memory.make(memory_name, width, width, key=keys[1], **memory_sizes)
        self.trunk = (Dense(2 * width, width, key=keys[2]), Dense(width, width, key=keys[3]))
        self.head = (DuelingHead if dueling else LinearHead)(width, outputs, key=keys[4])

    def init(self) -> PyTree:
        """The memory's state before the first observation."""
        return self.memory.init()

    def __call__(
        self, state: PyTree, obs: Float[Array, "time *obs"], begin: Bool[Array, " time"]
    ) -> tuple[PyTree, Float[Array, "time out"]]:
        """The state after the tape, and the head's outputs at every step."""
        xs = jax.vmap(self._encode)(obs)
        state, ys = self.memory(state, xs, begin)
        return state, jax.vmap(self._decode)(ys, xs)

    def step(
        self, state: PyTree, obs: Float[Array, "*obs"], begin: Bool[Array, ""]
    ) -> tuple[PyTree, Float[Array, " out"]]:
        """One observation: for acting."""
        x = self._encode(obs)
        state, y = self.memory.step(state, x, begin)
        return state, self._decode(y, x)

    def lookahead(
        self,
        state: PyTree,
        obs: Float[Array, "time *obs"],
        begin: Bool[Array, " time"],
        next_obs: Float[Array, "time *obs"],
    ) -> tuple[PyTree, Float[Array, "time out"], Float[Array, "time out"]]:
        """Outputs at every step, and at the step after it had `next_obs` followed: for targets."""
        xs, next_xs = jax.vmap(self._encode)(obs), jax.vmap(self._encode)(next_obs)
        state, ys, next_ys = self.memory.lookahead(state, xs, begin, next_xs)
        return state, jax.vmap(self._decode)(ys, xs), jax.vmap(self._decode)(next_ys, next_xs)

    def _encode(self, obs):
        return self.encoder(jnp.ravel(obs))

    def _decode(self, y, x):
        first, second = self.trunk
        return self.head(second(first(jnp.concatenate([y, x]))))


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
