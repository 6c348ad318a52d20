"""Gradient steps: Adam behind a clip, at a rate that falls."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from mmrl import collectives
from mmrl._dtypes import promoting


def trained(net: Any) -> PyTree:
    """θ: the parameters that gradients move."""
    return eqx.filter(net, eqx.is_inexact_array)


def fixed(net: Any) -> Any:
    """Return a network whose parameters get no gradient: its steps store nothing for one."""
    arrays, rest = eqx.partition(net, eqx.is_array)
    return eqx.combine(jax.lax.stop_gradient(arrays), rest)


@promoting
def descend(
    rule: optax.GradientTransformation, net: Any, state: PyTree, gradient: PyTree
) -> tuple[Any, PyTree]:
    """θ and the optimizer's state after a step, of whatever has parameters.

    Of an agent in shards it is a step along the mean of their gradients.
    """
    gradient = collectives.mean(gradient)
    update, state = rule.update(gradient, state, trained(net))
    return eqx.apply_updates(net, update), state


def adam(config: Any, rate: Float[Array, ""] | float, eps: float | Float[Array, ""] = 1e-8):
    """Adam at this rate, behind a clip of the global gradient norm."""
    clip = optax.clip_by_global_norm(config.max_grad_norm)
    return optax.chain(clip, optax.adam(rate, eps=eps))


@promoting
def annealed(config: Any, iteration: Int[Array, ""]) -> Float[Array, ""]:
    """Return the learning rate of an iteration: η (1 - anneal min(1, i / (block horizon)))."""
    horizon = float(config.blocks) if config.horizon is None else config.horizon
    gone = jnp.minimum(iteration / (config.block * horizon), 1)
    return config.learning_rate * (1 - config.anneal * gone)
