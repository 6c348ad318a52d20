"""Acting and scoring: a policy meets an environment, and what happened comes back as arrays.

Everything here is about **one** environment and has no batch axis; batch with `jax.vmap`. `acting`
says what a policy is and collects experience, `evaluation` plays whole episodes to score a policy.
"""

from mmrl.rollout.acting import Carry, Policy, Recorded, Transition, act, collect, start, unroll
from mmrl.rollout.evaluation import Evaluation, evaluate

__all__ = [
    "Carry",
    "Evaluation",
    "Policy",
    "Recorded",
    "Transition",
    "act",
    "collect",
    "evaluate",
    "start",
    "unroll",
]
