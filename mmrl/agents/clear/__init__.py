"""CLEAR, the agent. `vtrace` is its gradient step."""

from mmrl.agents.clear.clear import (
    OBSERVES,
    OWN,
    Config,
    State,
    Tasks,
    act,
    block,
    check,
    enter,
    greedy,
    init,
    iterate,
    learn,
    leave,
    of_task,
    pair,
    train,
)
from mmrl.agents.clear.vtrace import Measures, loss
from mmrl.replay.reservoir import Unrolls

__all__ = [
    "OBSERVES",
    "OWN",
    "Config",
    "Measures",
    "State",
    "Tasks",
    "Unrolls",
    "act",
    "block",
    "check",
    "enter",
    "greedy",
    "init",
    "iterate",
    "learn",
    "leave",
    "loss",
    "of_task",
    "pair",
    "train",
]
