"""R2D2, the agent. `actors` is how it acts."""

from mmrl.agents.r2d2.r2d2 import (
    OBSERVES,
    OWN,
    Config,
    State,
    act_and_store,
    beta,
    block,
    check,
    greedy,
    init,
    iterate,
    learn,
    loss,
    train,
    unroll,
)

__all__ = [
    "OBSERVES",
    "OWN",
    "Config",
    "State",
    "act_and_store",
    "beta",
    "block",
    "check",
    "greedy",
    "init",
    "iterate",
    "learn",
    "loss",
    "train",
    "unroll",
]
