"""Variants of an agent (the arms of a comparison) that are trained in one compiled program."""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mmrl.agents import ppo, r2d2
from mmrl.agents.ppo import learner

PROXIMAL = {"decoupled": (1, 0), "recent": (1, 1), "behavior": (0, 0)}
"""Policies (π_p, μ) of each arm.

0 is the behavior policy, and 1 is the policy at the start of the iteration.
"""


def stored_or_zero(factor: Any) -> Callable:
    """Return an `r2d2.learn` function that multiplies the stored recurrent states by `factor`.

    The config must have `start="stored"`. If `factor` is 0, sequences start from a zero state,
    which equals `start="zero"` for a memory whose initial state is zero.
    """

    def loss(net, target, batch, config):
        state = jax.tree.map(lambda x: factor * x, batch.state)
        return r2d2.loss(net, target, dataclasses.replace(batch, state=state), config)

    return partial(r2d2.learn, loss=loss)


class StoredPolicy(NamedTuple):
    """Policy that returns stored log-probabilities, because the clipped loss needs nothing else."""

    values: Float[Array, "*steps"]

    def log_prob(self, action: Any) -> Float[Array, "*steps"]:
        """Return the stored log-probabilities; the action is ignored."""
        return self.values


def proximal(arm: Any) -> Callable:
    """Return a `ppo.learn` function whose π_p and μ are selected by an entry of `PROXIMAL`.

    The config must have `proximal="decoupled"`.
    """

    def loss(net, average, batch, config, terms):
        recent = batch.proximal.log_prob(batch.action)
        near, behavior = (jnp.where(x, recent, batch.log_prob) for x in arm)
        batch = batch._replace(log_prob=behavior, proximal=StoredPolicy(near))
        return learner.loss(net, average, batch, config, terms)

    return partial(ppo.learn, loss=loss)
