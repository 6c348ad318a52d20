"""Loss functions on plain arrays, independent of memories, replay and networks.

The losses of policies and value functions return one value per step, and `td_loss` returns a mean.
Masks are True at real steps and False at padding. Since `masked_mean` averages over real
steps only, a loss has the same value on a tape as on padded segments.
"""

from typing import TYPE_CHECKING

from mmrl._lazy import on_demand

if TYPE_CHECKING:
    from mmrl.losses.policies import clip_loss as clip_loss
    from mmrl.losses.policies import importance_ratio as importance_ratio
    from mmrl.losses.policies import kl_loss as kl_loss
    from mmrl.losses.policies import policy_cloning as policy_cloning
    from mmrl.losses.policies import policy_gradient_loss as policy_gradient_loss
    from mmrl.losses.policies import squared_log_ratio as squared_log_ratio
    from mmrl.losses.policies import value_cloning as value_cloning
    from mmrl.losses.policies import value_loss as value_loss
    from mmrl.losses.values import double_q_target as double_q_target
    from mmrl.losses.values import huber as huber
    from mmrl.losses.values import masked_mean as masked_mean
    from mmrl.losses.values import select_values as select_values
    from mmrl.losses.values import td_loss as td_loss

__all__, __getattr__, __dir__ = on_demand(__name__)
