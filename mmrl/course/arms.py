"""Arms of a comparison as numbers, so that one compiled program trains several of them."""

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
"""For π_p and for μ: 1 is the policy at the start of the iteration, 0 the policy that acted."""


def stored_or_zero(stored: Any) -> Callable:
    """Return `r2d2.learn` with `start="stored"`, whose stored states are multiplied by `stored`.

    With 0, sequences start from zero, as with `start="zero"` if the memory's first state is zero.
    """

    def loss(net, target, batch, config):
        state = jax.tree.map(lambda x: stored * x, batch.state)
        return r2d2.loss(net, target, dataclasses.replace(batch, state=state), config)

    return partial(r2d2.learn, loss=loss)


class Given(NamedTuple):
    """The part of a policy that the clipped loss needs: log π of the actions."""

    values: Float[Array, "*steps"]

    def log_prob(self, action: Any) -> Float[Array, "*steps"]:
        """Return the stored log π, for any action."""
        return self.values


def proximal(arm: Any) -> Callable:
    """Return `ppo.learn` of `proximal="decoupled"`, with π_p and μ from a row of `PROXIMAL`."""

    def loss(net, average, batch, config, terms):
        recent = batch.proximal.log_prob(batch.action)
        near, acted = (jnp.where(x, recent, batch.log_prob) for x in arm)
        batch = batch._replace(log_prob=acted, proximal=Given(near))
        return learner.loss(net, average, batch, config, terms)

    return partial(ppo.learn, loss=loss)
