"""PPO and PPG with a memory. This is PPO; `ppg` is the other.

`learner` is what both have in common, `normalize` and `diagnostics` what they estimate and report.
"""

from mmrl.agents.ppo.learner import Average, Batch, Measures, loss
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
