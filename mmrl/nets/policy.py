"""Distributions over actions, and actor-critics.

    obs ──policy net──► parameters of π(· | s), auxiliary value
    obs ──critic────► value              (without a critic, the auxiliary value is the value)

An actor-critic has the same methods as `Net`, but returns `Outputs`.
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

from mmrl._dtypes import with_promotion
from mmrl.memory.base import dense
from mmrl.memory.nothing import Nothing
from mmrl.nets.base import LinearHead, Net, Stack
from mmrl.nets.inputs import Normalizer
from mmrl.nets.pictures import Picture, encoder

Bounds = tuple[tuple[float, ...], tuple[float, ...]]
"""Lowest and highest value of each element of an action; ±∞ if there is no bound."""
COVERAGE = 1.0, 4.0
"""Range of |bound| in which actions are not rescaled, because N(0, 1) covers the box well."""


class Categorical(eqx.Module):
    """Categorical distribution over actions, π(a) = exp(z_a) / Σ_b exp(z_b).

    The last axis of the logits z indexes actions; the others are batch axes, such as time. A logit
    of -∞ excludes an action.
    """

    logits: Float[Array, "*time action"]

    def sample(self, key: PRNGKeyArray) -> Int[Array, "*time"]:
        """Sample a ~ π."""
        return jax.random.categorical(key, self.logits).astype(jnp.int32)

    def mode(self) -> Int[Array, "*time"]:
        """Return the most probable action."""
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    @with_promotion
    def log_prob(self, action: Int[Array, "*time"]) -> Float[Array, "*time"]:
        """Return log π(a)."""
        # Use a mask, because the gradient of a gather is a slow loop on a CPU.
        mask = jax.nn.one_hot(action, self.logits.shape[-1], dtype=bool)
        return jnp.sum(jnp.where(mask, jax.nn.log_softmax(self.logits), 0), axis=-1)

    @with_promotion
    def entropy(self) -> Float[Array, "*time"]:
        """Return the entropy, -Σ π log π, in nats."""
        return -self._mean(jax.nn.log_softmax(self.logits))

    @with_promotion
    def kl(self, other: "Categorical") -> Float[Array, "*time"]:
        """Return KL[self ‖ other] = Σ π log(π / π') in nats, with an error of about 1e-7."""
        return self._mean(jax.nn.log_softmax(self.logits) - jax.nn.log_softmax(other.logits))

    def _mean(self, x: Float[Array, "*time action"]) -> Float[Array, "*time"]:
        """Return Σ_a π(a) x_a, ignoring actions with probability 0, whose x_a may be infinite."""
        p = jax.nn.softmax(self.logits)
        return jnp.sum(p * jnp.where(p > 0, x, 0), axis=-1)


class Gaussian(eqx.Module):
    """Gaussian distribution with a diagonal covariance, π(a) = N(a; μ, diag σ²).

    The last axis of μ and σ indexes elements of an action; the others are batch axes, such as time.
    Samples are not restricted to `bounds`. Environments receive the nearest action within the
    bounds (see `mmrl.rollout`), but `log_prob` is evaluated at the sample itself.
    """

    mean: Float[Array, "*time action"]
    log_std: Float[Array, "*time action"]
    bounds: Bounds | None = eqx.field(static=True, default=None)

    def sample(self, key: PRNGKeyArray) -> Float[Array, "*time action"]:
        """Sample a ~ π."""
        noise = jax.random.normal(key, self.mean.shape, self.mean.dtype)
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> Float[Array, "*time action"]:
        """Return μ, clipped to the bounds."""
        if self.bounds is None:
            return self.mean
        ends = (jnp.asarray(x, self.mean.dtype) for x in self.bounds)
        return jnp.clip(self.mean, *(jnp.broadcast_to(x, self.mean.shape) for x in ends))

    @with_promotion
    def log_prob(self, action: Float[Array, "*time action"]) -> Float[Array, "*time"]:
        """Return log π(a), the log density at a."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return -jnp.sum(0.5 * z**2 + self.log_std + 0.5 * math.log(2 * math.pi), axis=-1)

    @with_promotion
    def entropy(self) -> Float[Array, "*time"]:
        """Return the entropy, Σ (log σ + log(2πe) / 2), in nats; it may be negative."""
        return jnp.sum(self.log_std + 0.5 * math.log(2 * math.pi * math.e), axis=-1)

    @with_promotion
    def kl(self, other: "Gaussian") -> Float[Array, "*time"]:
        """Return KL[self ‖ other] = Σ (log(σ'/σ) + (σ² + (μ - μ')²) / (2σ'²) - 1/2), in nats."""
        wider = 2 * (self.log_std - other.log_std)  # log(σ²/σ'²)
        apart = (self.mean - other.mean) * jnp.exp(-other.log_std)
        # expm1 avoids cancellation if the policies are almost equal.
        return 0.5 * jnp.sum(jnp.expm1(wider) - wider + apart**2, axis=-1)


Distribution = Categorical | Gaussian


def unit(bounds: Bounds) -> tuple[Float[np.ndarray, " action"], Float[np.ndarray, " action"]]:
    """Return (c, s), such that the network's output x corresponds to the action c + s x.

    If both bounds are finite, x = ±1 corresponds to the bounds, so that a new policy explores the
    complete range. If N(0, 1) already covers the range (see `COVERAGE`), c is 0 and s is 1. If a
    bound is infinite, s is 1 and c is the allowed value that is nearest to 0.
    """
    low, high = (np.asarray(x, np.float64) for x in bounds)
    nearest, farthest = np.minimum(-low, high), np.maximum(-low, high)
    inside = (nearest >= COVERAGE[0]) & (farthest <= COVERAGE[1])
    finite = np.isfinite(high - low) & ~inside
    low, high = (np.where(finite, x, np.clip(0, low, high)) for x in (low, high))
    center, scale = low / 2 + high / 2, np.where(finite, high / 2 - low / 2, 1)
    return center.astype(np.float32), scale.astype(np.float32)


class Tanh(eqx.Module):
    """Linear layer with tanh; W is initialized orthogonally with gain √2, and b to 0."""

    linear: eqx.nn.Linear

    def __init__(self, input_size: int, output_size: int, *, key: PRNGKeyArray):
        self.linear = _orthogonal(input_size, output_size, math.sqrt(2), key)

    def __call__(self, x: Shaped[Array, "*in"]) -> Float[Array, " out"]:
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
    """Build the usual PPO network without a memory: obs → tanh → tanh → outputs.

    The steps of a tape are processed independently. The output layer is initialized to an
    orthogonal matrix with gain 1. If `picture` is given, convolutions precede the first layer.
    """
    first_key, second_key, last = jax.random.split(key, 3)
    make_encoder = Tanh if picture is None else partial(encoder, picture, Tanh)
    layers = make_encoder(obs_size, width, key=first_key), Tanh(width, width, key=second_key)
    first = (Normalizer(normalized),) if any(normalized) else ()
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
    """Build an `mlp` if `name` is "none" and `memory_sizes` is empty, otherwise a `Net`."""
    kind: Any = {"width": width, "normalized": normalized, "picture": picture, "key": key}
    if name == "none" and not memory_sizes:
        return mlp(obs_size, outputs, **kind)
    return Net.make(name, obs_size, outputs, **kind, **memory_sizes)


class Outputs(NamedTuple):
    """Outputs of an actor-critic."""

    policy: Distribution
    value: Float[Array, "*time"]
    aux_value: Float[Array, "*time"]  # value predicted by the policy network


class ActorCritic(eqx.Module):
    """Actor-critic with separate or shared networks for π(· | s) and V(s).

    `policy` has one output for each action, or for each element of a continuous action, followed by
    one auxiliary value. This is the "dual" architecture of PPG (Cobbe et al. 2021).
    `critic` has one output, the value. Without a critic, the auxiliary value is the value.

    `log_std` is None for discrete actions. With `bounds`, it refers to the output x of the network,
    before `unit` maps x to the action c + s x. `ActorCritic.make` builds the default networks.
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
        """Build an actor-critic with the memory `name` of `mmrl.memory`, or an `mlp` for "none".

        An `mlp` is smaller than a `Net`, has no norms, and is initialized differently. To compare
        with a `Net` that has no memory, use "frame_stack" with `frames` = 1.

        The weights of the policy's outputs are scaled by 0.01, so the initial policy is almost
        uniform, or has a mean close to 0. At first, `continuous` actions have a standard
        deviation of 1. With `bounds`, which must be the same at all steps, mean and standard
        deviation refer to the output x of the network (see `unit`).
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
        """Return the initial memory states of both networks."""
        return self.policy.init(), () if self.critic is None else self.critic.init()

    def __call__(
        self, state: PyTree, obs: PyTree[Shaped[Array, "..."]], begin: Bool[Array, " time"]
    ) -> tuple[PyTree, Outputs]:
        """Process a tape; return the last state and the outputs of each step."""
        state, (now,) = self._both(state, lambda net, state: net(state, obs, begin))
        return state, now

    def step(
        self, state: PyTree, obs: PyTree[Shaped[Array, "..."]], begin: Bool[Array, ""]
    ) -> tuple[PyTree, Outputs]:
        """Process one observation; return the new state and the outputs."""
        state, (now,) = self._both(state, lambda net, state: net.step(state, obs, begin))
        return state, now

    def lookahead(
        self,
        state: PyTree,
        obs: PyTree[Shaped[Array, "..."]],
        begin: Bool[Array, " time"],
        next_obs: PyTree[Shaped[Array, "..."]],
    ) -> tuple[PyTree, Outputs, Outputs]:
        """Process a tape; return the last state, and the outputs for `obs` and for `next_obs`."""
        state, (now, ahead) = self._both(
            state, lambda net, state: net.lookahead(state, obs, begin, next_obs)
        )
        return state, now, ahead

    def _both(self, state: PyTree, call: Callable) -> tuple[PyTree, list[Outputs]]:
        """Apply `call`, (net, state) -> (state, *arrays), to both networks; return the results."""
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
    # Build only the shapes of the layer, because sampling its weights would reuse `key`.
    layer = eqx.filter_eval_shape(eqx.nn.Linear, inputs, outputs, key=key)
    # Under `vmap`, compute one matrix at a time. LAPACK distributes a batch over its threads, and
    # in jaxlib 0.10.2 this can deadlock if several CPU devices do so at the same time.
    matrix = jax.custom_batching.sequential_vmap(
        lambda key: jax.nn.initializers.orthogonal(gain)(key, layer.weight.shape)
    )
    weight = matrix(key)
    return eqx.tree_at(lambda m: (m.weight, m.bias), layer, (weight, jnp.zeros(len(weight))))
