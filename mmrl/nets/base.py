"""Networks for value functions and policies: an encoder, a memory and a head.

    obs ──encoder──► x ──memory──► s ──┐
                     └─────────────────┴──head──► outputs

The head receives both the encoded observation x and the Markov state s, so the memory does not have
to store the current observation. A network has the same methods as the memories in `mmrl.memory`.
You can replace each component:

    memory = MyMemory(64, 64, key=key)                   # with the methods of a `SequenceModel`
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
from mmrl.memory.base import apply_norm, dense


class Dense(eqx.Module):
    """Linear layer with layer norm and nonlinearity, leaky_relu(norm(W x + b)).

    The norm has no parameters, and is omitted if the width is 1. Inputs are flattened.

        >>> Dense(3, 8, key=jax.random.key(0))(jnp.ones(3)).shape
        (8,)
    """

    linear: eqx.nn.Linear
    norm: eqx.nn.LayerNorm

    def __init__(self, input_size: int, output_size: int, *, key: PRNGKeyArray):
        self.linear = eqx.nn.Linear(input_size, output_size, key=key)
        self.norm = eqx.nn.LayerNorm(output_size, use_weight=False, use_bias=False)

    def __call__(self, x: Shaped[Array, "*in"]) -> Float[Array, " out"]:
        return jax.nn.leaky_relu(apply_norm(self.norm, dense(self.linear, jnp.ravel(x))))


class Stack(eqx.Module):
    """Sequence of layers, `layers[-1](… layers[0](x))`."""

    layers: tuple[Callable, ...]

    def __call__(self, x: PyTree[Shaped[Array, "..."]]) -> Float[Array, " out"]:
        for layer in self.layers:
            x = layer(x)
        return x


class LinearHead(eqx.Module):
    """Linear output layer, W x + b.

    >>> LinearHead(8, 2, key=jax.random.key(0))(jnp.ones(8)).shape
    (2,)
    """

    linear: eqx.nn.Linear

    def __init__(self, input_size: int, output_size: int, *, key: PRNGKeyArray):
        self.linear = eqx.nn.Linear(input_size, output_size, key=key)

    def __call__(self, x: Float[Array, " in"]) -> Float[Array, " out"]:
        return dense(self.linear, x)


class DuelingHead(eqx.Module):
    """Dueling output layer, Q(s, a) = V(s) + A(s, a) - mean_a A(s, a).  Wang et al. 2016, Eq. 9.

    >>> DuelingHead(8, actions=2, key=jax.random.key(0))(jnp.ones(8)).shape
    (2,)
    """

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
    """Network that consists of an encoder, a memory and a head.

    `encoder` maps an observation to a vector x, `memory` maps a tape of these vectors to Markov
    states s, and `head` maps the concatenation [s ‖ x] to outputs. `Net.make` builds the default
    network.

    `begin` resets the memory, but is not an input of the network. To make the start of an episode
    observable, use `mmrl.envs.wrappers.BeginFlag`. If an agent trains on segments, `begin` also
    resets the memory at the start of a segment within an episode, where the observed flag is 0.

        >>> net = Net.make("gru", obs_size=3, outputs=2, key=jax.random.key(0))
        >>> state, q = net.step(net.init(), jnp.ones(3), begin=jnp.array(True))
        >>> q.shape
        (2,)
    """

    encoder: Callable[[PyTree], Float[Array, " in"]]
    memory: Any  # a `SequenceModel`, or a module with the same methods
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
        """Build the default network with the memory `name` of `mmrl.memory`.

        The encoder is a `Dense` layer. The head consists of two `Dense` layers and the output
        layer, which is a `DuelingHead` if `dueling` is True. Observations are flattened to size
        `obs_size`, and all layers are `width` wide. `normalized` is True for each feature that
        `nets.inputs.Normalizer` normalizes before the encoder. If observations are images, pass
        their description, a `nets.pictures.Picture`, to add convolutions to the encoder.

            >>> net = Net.make("ffm", 3, 2, width=16, trace_size=4, key=jax.random.key(0))
            >>> net(net.init(), jnp.ones((10, 3)), begin=jnp.arange(10) == 0)[1].shape
            (10, 2)
        """
        keys = jax.random.split(key, 5)
        make_encoder: Callable[..., Callable] = Dense
        if picture is not None:
            from mmrl.nets import pictures

            make_encoder = partial(pictures.encoder, picture, Dense)
        encoder = make_encoder(obs_size, width, key=keys[0])
        if any(normalized):
            from mmrl.nets.inputs import Normalizer

            encoder = Stack((Normalizer(normalized), encoder))
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
        """Process a tape; return the last state and the outputs of each step."""
        xs = jax.vmap(self.encoder)(obs)
        state, ys = self.memory(state, xs, begin)
        return state, jax.vmap(self._decode)(ys, xs)

    def step(
        self, state: PyTree, obs: PyTree[Shaped[Array, "..."]], begin: Bool[Array, ""]
    ) -> tuple[PyTree, Float[Array, " out"]]:
        """Process one observation; return the new state and the outputs."""
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
        """Process a tape; return the last state, and the outputs for `obs` and for `next_obs`."""
        xs, next_xs = jax.vmap(self.encoder)(obs), jax.vmap(self.encoder)(next_obs)
        state, ys, next_ys = self.memory.lookahead(state, xs, begin, next_xs)
        return state, jax.vmap(self._decode)(ys, xs), jax.vmap(self._decode)(next_ys, next_xs)

    def _decode(self, y, x):
        return self.head(jnp.concatenate([y, x]))
