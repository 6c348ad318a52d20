"""CLEAR, the agent. `vtrace` is its gradient step."""

from mmrl.agents.clear.clear import (
    OBSERVES,
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

__all__ = [
    "OBSERVES",
    "Config",
    "State",
    "Tasks",
    "act",
    "block",
    "check",
    "enter",
    "greedy",
    "init",
    "iterate",
    "learn",
    "leave",
    "of_task",
    "pair",
    "train",
]
