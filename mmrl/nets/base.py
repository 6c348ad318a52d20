"""Encoder, memory, head: one network for value functions and policies.

    obs ──encoder──► x ──memory──► s ──┐
                     └─────────────────┴──head──► outputs

The head receives the encoded observation along with the Markov state, so the memory needs to hold
only the past. The calls are those in `mmrl.memory`. Each part may be your own:

    memory = MyMemory(64, 64, key=key)                   # with the calls of a `SequenceModel`
    net = Net(Dense(obs_size, 64, key=key), memory, LinearHead(128, actions, key=key))
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, Shaped

from mmrl import memory
from mmrl.memory.base import dense, normalized


class Dense(eqx.Module):
    """Linear layer, layer norm without parameters, nonlinearity: leaky_relu(norm(W x + b)).

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
    """Layers in sequence: `layers[-1](… layers[0](x))`."""

    layers: tuple[Callable, ...]

    def __call__(self, x: PyTree[Shaped[Array, "..."]]) -> Float[Array, " out"]:
        for layer in self.layers:
            x = layer(x)
        return x


class LinearHead(eqx.Module):
    """Linear output layer, W x + b: logits, values or action values."""

    linear: eqx.nn.Linear

    def __init__(self, input_size: int, output_size: int, *, key: PRNGKeyArray):
        self.linear = eqx.nn.Linear(input_size, output_size, key=key)

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        return dense(self.linear, x)


class DuelingHead(eqx.Module):
    """Dueling output layer, Q(s, a) = V(s) + A(s, a) - mean_a A(s, a).  Wang et al. 2016, Eq. 9."""

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
    """Network from an observation through an encoder and a memory to a head.

    `encoder` maps an observation to a vector, `memory` a tape of vectors to Markov states, `head` a
    Markov state and a vector to outputs. `Net.make` builds the usual network.

    The `begin` flags only reset the memory. A network that should *see* where an episode starts
    needs the flag in its observation (`mmrl.envs.wrappers.BeginFlag`); segments, which reset the
    memory in mid-episode, show the difference.
    """

    encoder: Callable[[PyTree], Float[Array, " in"]]
    memory: Any  # anything with the calls of a `SequenceModel`
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
        picture: Any = None,
        key: PRNGKeyArray,
        **memory_sizes: Any,
    ) -> "Net":
        """Return `Dense`, the memory called `name` in `mmrl.memory`, and a head after two `Dense`.

        An observation of any shape is flattened to `obs_size` numbers; all other layers are `width`
        wide. Features that are `normalized` are centered and scaled first, by `nets.inputs`. A
        `picture`, a `nets.pictures.Picture`, is read by convolutions instead.
        """
        keys = jax.random.split(key, 5)
        sees: Callable[..., Callable] = Dense
        if picture is not None:
            from mmrl.nets import pictures

            sees = partial(pictures.encoder, picture, Dense)
        encoder = sees(obs_size, width, key=keys[0])
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
        """Return the memory's state before the first observation."""
        return self.memory.init()

    def __call__(
        self, state: PyTree, obs: PyTree[Shaped[Array, "..."]], begin: Bool[Array, " time"]
    ) -> tuple[PyTree, Float[Array, "time out"]]:
        """Read a tape; return the state after it, and the head's outputs at every step."""
        xs = jax.vmap(self.encoder)(obs)
        state, ys = self.memory(state, xs, begin)
        return state, jax.vmap(self._decode)(ys, xs)

    def step(
        self, state: PyTree, obs: PyTree[Shaped[Array, "..."]], begin: Bool[Array, ""]
    ) -> tuple[PyTree, Float[Array, " out"]]:
        """Read one observation, for acting; return the new state and the outputs."""
        x = self.encoder(obs)
        state, y = self.memory.step(state, x, begin)
        return state, self._decode(y, x)

    def lookahead(
        self,
        state: PyTree,
        obs: PyTree[Shaped[Array, "..."]],
        begin: Bool[Array, " time"],
        next_obs: PyTree[Shaped[Array, "..."]],
    ) -> tuple[PyTree, Float[Array, "time out"], Float[Array, "time out"]]:
        """Read a tape, for targets; return also the outputs after `next_obs[t]` at each step."""
        xs, next_xs = jax.vmap(self.encoder)(obs), jax.vmap(self.encoder)(next_obs)
        state, ys, next_ys = self.memory.lookahead(state, xs, begin, next_xs)
        return state, jax.vmap(self._decode)(ys, xs), jax.vmap(self._decode)(next_ys, next_xs)

    def _decode(self, y, x):
        return self.head(jnp.concatenate([y, x]))
