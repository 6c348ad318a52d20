"""PPO and PPG with a memory. This is PPO; `ppg` is the other.

`learner` is what both have in common, `normalize` and `diagnostics` what they estimate and report.
"""

from mmrl.agents.ppo import learner
from mmrl.agents.ppo.ppo import (
    OBSERVES,
    OWN,
    Config,
    Diagnostics,
    Flag,
    Rollout,
    State,
    act,
    block,
    check,
    delay,
    ends,
    evaluate,
    greedy,
    init,
    iterate,
    learn,
    stochastic,
    train,
)

Average, Batch, Measures = learner.Average, learner.Batch, learner.Measures
loss = learner.loss

__all__ = [
    "OBSERVES",
    "OWN",
    "Average",
    "Batch",
    "Config",
    "Diagnostics",
    "Flag",
    "Measures",
    "Rollout",
    "State",
    "act",
    "block",
    "check",
    "delay",
    "ends",
    "evaluate",
    "greedy",
    "init",
    "iterate",
    "learn",
    "loss",
    "stochastic",
    "train",
]
