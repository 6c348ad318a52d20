"""Networks: an encoder, a memory and a head, and the two of them that act and judge.

`base` has the network that all agents use, `policy` the distributions over actions and the
actor-critic of policy optimization.
"""

from mmrl.nets.base import Dense, DuelingHead, LinearHead, Net, Stack
from mmrl.nets.policy import (
    ActorCritic,
    Categorical,
    Distribution,
    Gaussian,
    Outputs,
    Tanh,
    body,
    mlp,
)

__all__ = [
    "ActorCritic",
    "Categorical",
    "Dense",
    "Distribution",
    "DuelingHead",
    "Gaussian",
    "LinearHead",
    "Net",
    "Outputs",
    "Stack",
    "Tanh",
    "body",
    "mlp",
]
