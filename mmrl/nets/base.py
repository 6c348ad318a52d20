"""Encoder, memory, head: one network for value functions and policies.

    obs ──encoder──► x ──memory──► s ──┐
                     └─────────────────┴──head──► outputs

The head sees the encoded observation beside the Markov state, so that a memory needs to hold only
the past. Same calls as `mmrl.memory`: a tape, a step, a lookahead. Each part may be your own:

    memory = MyMemory(64, 64, key=key)                   # a `SequenceModel`, or called as one
    net = Net(Dense(obs_size, 64, key=key), memory, LinearHead(128, actions, key=key))
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from mmrl import memory
from mmrl.memory.base import dense, normalized


class Dense(eqx.Module):
    """leaky_relu(norm(W x + b)): a linear layer, layer norm without parameters, a nonlinearity.

    An x of any shape is flattened. A layer of width 1 has no norm.
    """

    linear: eqx.nn.Linear
    norm: eqx.nn.LayerNorm

    def __init__(self, input_size: int, output_size: int, *, key: PRNGKeyArray):
        self.linear = eqx.nn.Linear(input_size, output_size, key=key)
        self.norm = eqx.nn.LayerNorm(output_size, use_weight=False, use_bias=False)

    def __call__(self, x: Float[Array, "*in"]) -> Float[Array, " out"]:
        return jax.nn.leaky_relu(normalized(self.norm, dense(self.linear, jnp.ravel(x))))


class Stack(eqx.Module):
    """One layer after another, `layers[-1](… layers[0](x))`."""

    layers: tuple[Callable, ...]

    def __call__(self, x: Float[Array, "*in"]) -> Float[Array, " out"]:
        for layer in self.layers:
            x = layer(x)
        return x


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
    """obs → encoder → memory → head.

    `encoder` maps one observation to a vector, `memory` a tape of those to Markov states, `head`
    both, the Markov state first, to the outputs. `Net.make` builds the usual one.

    The `begin` flags reset the memory and nothing else. A network that should *see* where an
    episode starts gets that in its observation (`mmrl.envs.wrappers.BeginFlag`): on segments, which
    reset the memory in mid-episode, the two are not the same.
    """

    encoder: Callable[[Float[Array, "*obs"]], Float[Array, " in"]]
    memory: Any  # a `SequenceModel`, or what is called as one
    head: Callable[[Float[Array, " both"]], Float[Array, " out"]]

    @staticmethod
    def make(
        name: str,
        obs_size: int,
        outputs: int,
        *,
        width: int = 64,
        dueling: bool = False,
        normalized: Sequence[bool] = (),
        key: PRNGKeyArray,
        **memory_sizes: Any,
    ) -> "Net":
        """`Dense`, the memory called `name` in `mmrl.memory`, and a head behind two `Dense`.

        An observation of any shape is flattened to `obs_size` numbers; all else is `width` wide.
        Features that are `normalized` are centered and scaled first, by `nets.inputs`.
        """
        keys = jax.random.split(key, 5)
        encoder = Dense(obs_size, width, key=keys[0])
        if any(normalized):
            from mmrl.nets.inputs import Normalized

            encoder = Stack((Normalized(normalized), encoder))
        last = (DuelingHead if dueling else LinearHead)(width, outputs, key=keys[4])
        trunk = Dense(2 * width, width, key=keys[2]), Dense(width, width, key=keys[3])
        return Net(
            encoder=encoder,
            memory=memory.make(name, width, width, key=keys[1], **memory_sizes),
            head=Stack((*trunk, last)),
        )

    def init(self) -> PyTree:
        """The memory's state before the first observation."""
        return self.memory.init()

    def __call__(
        self, state: PyTree, obs: Float[Array, "time *obs"], begin: Bool[Array, " time"]
    ) -> tuple[PyTree, Float[Array, "time out"]]:
        """The state after the tape, and the head's outputs at every step."""
        xs = jax.vmap(self.encoder)(obs)
        state, ys = self.memory(state, xs, begin)
        return state, jax.vmap(self._decode)(ys, xs)

    def step(
        self, state: PyTree, obs: Float[Array, "*obs"], begin: Bool[Array, ""]
    ) -> tuple[PyTree, Float[Array, " out"]]:
        """One observation: for acting."""
        x = self.encoder(obs)
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
        xs, next_xs = jax.vmap(self.encoder)(obs), jax.vmap(self.encoder)(next_obs)
        state, ys, next_ys = self.memory.lookahead(state, xs, begin, next_xs)
        return state, jax.vmap(self._decode)(ys, xs), jax.vmap(self._decode)(next_ys, next_xs)

    def _decode(self, y, x):
        return self.head(jnp.concatenate([y, x]))
