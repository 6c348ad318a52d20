"""Programs as recurrence equations: REINFORCE, A2C, PPO, a policy with memory, and a decoder.

Every program is a graph over iterations i, steps t and a batch b of environments, with episodes of
one length T. Its functions handle one environment: `vectorize(graph, "b")`, before other passes,
moves the batch into the arrays, and the bound B is its size. An episode that ends early is masked
afterwards: T is the greatest length. Random numbers come from keys that are functions of the point,
so that every legal order of execution computes the same numbers. Environments, networks and
optimizers (optax) are arguments: this package imports none of their libraries.

A run of any of them takes a `key`. Programs that learn have no other inputs, and two results: the
last parameters, and the mean return of the episodes of every iteration. The decoder is given its
parameters, and returns tokens and their log-probabilities.
"""

from mmrl.course.programs.decoder import decoder
from mmrl.course.programs.parts import Environment, Memory, Network
from mmrl.course.programs.policy_gradients import ActorCritic, a2c, ppo, reinforce, remember

__all__ = [
    "ActorCritic",
    "Environment",
    "Memory",
    "Network",
    "a2c",
    "decoder",
    "ppo",
    "reinforce",
    "remember",
]
