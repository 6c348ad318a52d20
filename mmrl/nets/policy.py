"""Stochastic policies: distributions over actions, and the actor-critic that returns them.

    obs ──policy net──► numbers of π(· | s), auxiliary value
    obs ──critic────► value                     (or none: then the auxiliary value is the value)

An actor-critic has the calls of `Net`: tape, step and lookahead, with one `Outputs` per step.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from mmrl._dtypes import promoting
from mmrl.memory.base import dense
from mmrl.memory.nothing import Nothing
from mmrl.nets.base import LinearHead, Net, Stack
from mmrl.nets.inputs import Normalized
from mmrl.nets.pictures import Picture, encoder

Bounds = tuple[tuple[float, ...], tuple[float, ...]]
"""Lowest and highest value of each number of an action; ±∞ without a bound."""
COVERED = 1.0, 4.0
"""Bounds at 1 to 4 standard deviations: N(0, 1) covers such a box without scaling."""


class Categorical(eqx.Module):
    """Distribution over finitely many actions, π(a) = exp(z_a) / Σ_b exp(z_b).

    The logits are of one step, or of every step of a tape: all methods read the last axis. A logit
    of -∞ forbids its action.
    """

    logits: Float[Array, "*time action"]

    def sample(self, key: PRNGKeyArray) -> Int[Array, "*time"]:
        """Sample a ~ π."""
        return jax.random.categorical(key, self.logits).astype(jnp.int32)

    def mode(self) -> Int[Array, "*time"]:
        """Return argmax_a π(a)."""
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    @promoting
    def log_prob(self, action: Int[Array, "*time"]) -> Float[Array, "*time"]:
        """Return log π(a)."""
        # No indexing: on a CPU the backward pass of a gather is a slow loop.
        chosen = jax.nn.one_hot(action, self.logits.shape[-1], dtype=bool)
        return jnp.sum(jnp.where(chosen, jax.nn.log_softmax(self.logits), 0), axis=-1)

    @promoting
    def entropy(self) -> Float[Array, "*time"]:
        """Return -Σ π log π, in nats."""
        return -self._mean(jax.nn.log_softmax(self.logits))

    @promoting
    def kl(self, other: "Categorical") -> Float[Array, "*time"]:
        """Return KL[self ‖ other] = Σ π log(π / π'), in nats, accurate to about 1e-7 in 32 bits."""
        return self._mean(jax.nn.log_softmax(self.logits) - jax.nn.log_softmax(other.logits))

    def _mean(self, x: Float[Array, "*time action"]) -> Float[Array, "*time"]:
        """Return Σ_a π(a) x_a; entries with probability 0 contribute 0, also infinite ones."""
        p = jax.nn.softmax(self.logits)
        return jnp.sum(p * jnp.where(p > 0, x, 0), axis=-1)


class Gaussian(eqx.Module):
    """Distribution over vectors of independent real actions, π(a) = N(a; μ, diag σ²).

    The numbers are of one step, or of every step of a tape: all methods read the last axis. A
    sample may lie outside of `bounds`, and all densities refer to samples: environments receive
    the nearest action inside (`mmrl.rollout`).
    """

    mean: Float[Array, "*time action"]
    log_std: Float[Array, "*time action"]
    bounds: Bounds | None = eqx.field(static=True, default=None)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*time action"]:
        """Sample a ~ π."""
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> Float[Array, "*time action"]:
        """Return μ, or the nearest action within the bounds."""
        if self.bounds is None:
            return self.mean
        ends = (jnp.asarray(x, self.mean.dtype) for x in self.bounds)
        return jnp.clip(self.mean, *(jnp.broadcast_to(x, self.mean.shape) for x in ends))

    @promoting
    def log_prob(self, action: Float[Array, "*time action"]) -> Float[Array, "*time"]:
        """Return the log of the density at a."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return -jnp.sum(0.5 * z**2 + self.log_std + 0.5 * math.log(2 * math.pi), axis=-1)

    @promoting
    def entropy(self) -> Float[Array, "*time"]:
        """Return Σ (log σ + log(2πe) / 2), in nats; negative for narrow policies."""
        return jnp.sum(self.log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)

    @promoting
    def kl(self, other: "Gaussian") -> Float[Array, "*time"]:
        """Return KL[self ‖ other] = Σ (log(σ'/σ) + (σ² + (μ - μ')²) / (2σ'²) - 1/2), in nats."""
        wider = 2 * (self.log_std - other.log_std)  # log(σ²/σ'²)
        apart = (self.mean - other.mean) * jnp.exp(-other.log_std)
        # expm1 avoids a difference of large numbers if the two policies are nearly equal.
        return 0.5 * jnp.sum(jnp.expm1(wider) - wider + apart**2, axis=-1)


Distribution = Categorical | Gaussian


def unit(bounds: Bounds) -> tuple[Float[np.ndarray, " action"], Float[np.ndarray, " action"]]:
    """Return (c, s): a network's output x stands for the action c + s x.

    x = ±1 are the ends of a finite box, so that a fresh policy reaches all of it. If N(0, 1)
    already covers the box (`COVERED`), x is the action. Without a bound on one side s is 1, and c
    is the number nearest to 0.
    """
    low, high = (np.asarray(x, np.float64) for x in bounds)
    nearest, farthest = np.minimum(-low, high), np.maximum(-low, high)
    covered = (nearest >= COVERED[0]) & (farthest <= COVERED[1])
    scaled = np.isfinite(high - low) & ~covered
    low, high = (np.where(scaled, x, np.clip(0, low, high)) for x in (low, high))
    center, scale = low / 2 + high / 2, np.where(scaled, high / 2 - low / 2, 1)
    return center.astype(np.float32), scale.astype(np.float32)


class Tanh(eqx.Module):
    """Layer tanh(W x + b) of a flattened x; W starts orthogonal with gain √2, b at zero."""

    linear: eqx.nn.Linear

    def __init__(self, input_size: int, output_size: int, *, key: PRNGKeyArray):
        self.linear = _orthogonal(input_size, output_size, math.sqrt(2), key)

    def __call__(self, x: Float[Array, "*in"]) -> Float[Array, " out"]:
        return jnp.tanh(dense(self.linear, jnp.ravel(x)))


def mlp(
    obs_size: int,
    outputs: int,
    *,
    width: int = 64,
    normalized: Sequence[bool] = (),
    picture: Picture | None = None,
    key: PRNGKeyArray,
) -> Net:
    """Return the usual network of PPO without memory: obs → tanh → tanh → outputs.

    It treats a tape as single steps, in any order. The head starts orthogonal with gain 1. A
    `picture` is read by convolutions below the first layer.
    """
    first_key, second_key, last = jax.random.split(key, 3)
    sees = Tanh if picture is None else partial(encoder, picture, Tanh)
    layers = sees(obs_size, width, key=first_key), Tanh(width, width, key=second_key)
    first = (Normalized(normalized),) if any(normalized) else ()
    head = eqx.filter_eval_shape(LinearHead, width, outputs, key=last)
    head = eqx.tree_at(lambda h: h.linear, head, _orthogonal(width, outputs, 1.0, last))
    return Net(Stack((*first, *layers)), Nothing(width), Stack((head,)))


def body(
    name: str,
    obs_size: int,
    outputs: int,
    *,
    width: int,
    normalized: Sequence[bool] = (),
    picture: Picture | None = None,
    key: PRNGKeyArray,
    **memory_sizes: Any,
) -> Net:
    """Return `Net.make`, or an `mlp` for the name "none"."""
    kind: Any = {"width": width, "normalized": normalized, "picture": picture, "key": key}
    if name == "none" and not memory_sizes:
        return mlp(obs_size, outputs, **kind)
    return Net.make(name, obs_size, outputs, **kind, **memory_sizes)


class Outputs(NamedTuple):
    """Policy and values of an actor-critic, given an observation and all earlier ones."""

    policy: Distribution
    value: Float[Array, "*time"]
    aux_value: Float[Array, "*time"]  # of the policy net; the value itself without a critic


class ActorCritic(eqx.Module):
    """Actor-critic with π(· | s) and V(s), from two networks or a shared one.

    `policy` has an output for each action, or each number of a continuous one, followed by an
    auxiliary value: the "dual" architecture of Cobbe et al. 2021 (PPG). `critic` has one output,
    the value; without it the auxiliary value is the value. `log_std` is set if actions are
    continuous, in the units of `unit` if they have `bounds`. `ActorCritic.make` builds the usual
    networks.
    """

    policy: Net
    critic: Net | None
    log_std: Float[Array, " action"] | None = None
    bounds: Bounds | None = eqx.field(static=True, default=None)

    @staticmethod
    def make(
        name: str,
        obs_size: int,
        actions: int,
        *,
        continuous: bool = False,
        bounds: Bounds | None = None,
        width: int = 64,
        shared: bool = False,
        normalized: Sequence[bool] = (),
        picture: Picture | None = None,
        key: PRNGKeyArray,
        **memory_sizes: Any,
    ) -> "ActorCritic":
        """Return networks with the memory called `name`, or an `mlp` each for "none".

        An `mlp` is smaller than a `Net`, without norms and with another initialization. To compare
        with a `Net` without its memory, use a "frame_stack" with `frames` = 1.

        The policy starts almost uniform (or at mean 0), because the head's rows for it start a
        hundred times smaller; the standard deviation of a `continuous` action starts at 1. With
        `bounds`, which hold for all steps, both are in the units of `unit`.
        """
        policy_key, critic_key = jax.random.split(key)
        kind: Any = {"width": width, "normalized": normalized, "picture": picture, **memory_sizes}
        make = partial(body, name, obs_size, **kind)
        small = jnp.append(jnp.full(actions, 0.01), 1.0)
        policy = eqx.tree_at(
            lambda net: (net.head.layers[-1].linear.weight, net.head.layers[-1].linear.bias),
            make(actions + 1, key=policy_key),
            replace_fn=lambda x: x * small.reshape(-1, *[1] * (x.ndim - 1)),
        )
        return ActorCritic(
            policy,
            None if shared else make(1, key=critic_key),
            jnp.zeros(actions) if continuous else None,
            bounds,
        )

    def init(self) -> tuple[PyTree, PyTree]:
        """Return both memories' states before the first observation."""
        return self.policy.init(), () if self.critic is None else self.critic.init()

    def __call__(
        self, state: PyTree, obs: PyTree[Shaped[Array, "..."]], begin: Bool[Array, " time"]
    ) -> tuple[PyTree, Outputs]:
        """Read a tape; return the state after it, and the outputs at every step."""
        state, (now,) = self._both(state, lambda net, state: net(state, obs, begin))
        return state, now

    def step(
        self, state: PyTree, obs: PyTree[Shaped[Array, "..."]], begin: Bool[Array, ""]
    ) -> tuple[PyTree, Outputs]:
        """Read one observation, for acting; return the new state and the outputs."""
        state, (now,) = self._both(state, lambda net, state: net.step(state, obs, begin))
        return state, now

    def lookahead(
        self,
        state: PyTree,
        obs: PyTree[Shaped[Array, "..."]],
        begin: Bool[Array, " time"],
        next_obs: PyTree[Shaped[Array, "..."]],
    ) -> tuple[PyTree, Outputs, Outputs]:
        """Read a tape, for targets; return also the outputs after `next_obs[t]` at each step."""
        state, (now, ahead) = self._both(
            state, lambda net, state: net.lookahead(state, obs, begin, next_obs)
        )
        return state, now, ahead

    def _both(self, state: PyTree, call: Callable) -> tuple[PyTree, list[Outputs]]:
        """Run both networks by `call`: (net, state) -> (state, *numbers)."""
        first, second = state
        first, *numbers = call(self.policy, first)
        values: list[Any] = [None] * len(numbers)
        if self.critic is not None:
            second, *values = call(self.critic, second)
        return (first, second), [self._name(*pair) for pair in zip(numbers, values, strict=True)]

    def _name(self, numbers, values) -> Outputs:
        own, aux_value = numbers[..., :-1], numbers[..., -1]
        if self.log_std is None:
            policy = Categorical(own)
        else:
            policy = self._gaussian(own, jnp.broadcast_to(self.log_std, own.shape))
        return Outputs(policy, aux_value if values is None else values[..., 0], aux_value)

    def _gaussian(self, mean, log_std) -> Gaussian:
        if self.bounds is None:
            return Gaussian(mean, log_std)
        center, scale = (
            jnp.broadcast_to(jnp.asarray(x, mean.dtype), mean.shape) for x in unit(self.bounds)
        )
        return Gaussian(center + scale * mean, log_std + jnp.log(scale), self.bounds)


def _orthogonal(inputs: int, outputs: int, gain: float, key: PRNGKeyArray) -> eqx.nn.Linear:
    # Only the layer's shapes: its random weights would draw from the same key.
    layer = eqx.filter_eval_shape(eqx.nn.Linear, inputs, outputs, key=key)
    # One by one under `vmap`: LAPACK distributes the matrices of a batch over the threads on which
    # it runs, and if several devices of a CPU do so at once, jaxlib 0.10.2 can wait forever.
    matrix = jax.custom_batching.sequential_vmap(
        lambda key: jax.nn.initializers.orthogonal(gain)(key, layer.weight.shape)
    )
    weight = matrix(key)
    return eqx.tree_at(lambda m: (m.weight, m.bias), layer, (weight, jnp.zeros(len(weight))))
