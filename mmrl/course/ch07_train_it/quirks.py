"""Two quirks of the code of Morad et al. (2024), reproduced for comparison.

For example, `dqn.block(…, learn=learn(("loss",)))` trains with the quirk "loss".
"""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from mmrl import losses
from mmrl.agents import dqn
from mmrl.nets import Net

NAMES = ("loss", "target")
"""Names of the quirks documented in `loss`."""


def loss(
    net: Net, target: Net, batch: Any, config: dqn.Config, quirks: tuple[str, ...]
) -> Float[Array, ""]:
    """Compute `dqn.loss` with quirks.

    With "loss", the loss on segments is huber(mean |δ|) instead of mean huber(δ). With "target",
    the states of the targets come from a scan over o_1, …, o_{t+1} with the flags of o_0, …, o_t.
    """
    steps = batch.steps
    if "target" in quirks:
        _, q = net(net.init(), steps.obs, batch.begin)
        _, next_q = net(net.init(), steps.next_obs, batch.begin)
        _, next_q_target = target(target.init(), steps.next_obs, batch.begin)
    else:
        ahead = (steps.obs, batch.begin, steps.next_obs)
        _, q, next_q = net.lookahead(net.init(), *ahead)
        _, _, next_q_target = target.lookahead(target.init(), *ahead)
    discount = config.gamma * (1 - steps.terminated)
    y = losses.double_q_target(config.reward_scale * steps.reward, discount, next_q, next_q_target)
    error = y - losses.select_values(q, steps.action)
    if "loss" in quirks and config.batching == "segments":
        return losses.huber(losses.masked_mean(jnp.abs(error), batch.mask))
    return losses.td_loss(error, batch.mask)


def learn(quirks: tuple[str, ...]) -> Callable:
    """Return `dqn.learn` with `quirks` in its loss."""
    return functools.partial(dqn.learn, loss=functools.partial(loss, quirks=quirks))
