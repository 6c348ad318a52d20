"""Networks: an encoder, a memory and a head, and the two of them that act and judge.

`base` has the network that all agents use, `policy` the distributions over actions and the
actor-critic of policy optimization.
"""

from mmrl.nets.base import Dense, DuelingHead, LinearHead, Net, sensitivity
from mmrl.nets.policy import MLP, ActorCritic, Categorical, Distribution, Gaussian, Outputs

__all__ = [
    "MLP",
    "ActorCritic",
    "Categorical",
    "Dense",
    "Distribution",
    "DuelingHead",
    "Gaussian",
    "LinearHead",
    "Net",
    "Outputs",
    "sensitivity",
]
