"""Losses as functions of arrays, for one tape: no recurrence, no replay, no network.

`values` has those of action values, `policies` those of policies. Masks are true on real steps. All
means run over real steps only, so that padding weighs nothing and a loss means the same on a tape
as on padded segments.
"""

from mmrl.losses.policies import (
    clip_loss,
    importance_ratio,
    kl_loss,
    policy_cloning,
    policy_gradient_loss,
    squared_log_ratio,
    value_cloning,
    value_loss,
)
from mmrl.losses.values import double_q_target, huber, masked_mean, taken, td_loss

__all__ = [
    "clip_loss",
    "double_q_target",
    "huber",
    "importance_ratio",
    "kl_loss",
    "masked_mean",
    "policy_cloning",
    "policy_gradient_loss",
    "squared_log_ratio",
    "taken",
    "td_loss",
    "value_cloning",
    "value_loss",
]
