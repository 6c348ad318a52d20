"""CLEAR, and what it is compared with when tasks come one after another.

This is CLEAR. `vtrace` is its gradient step; `ewc` and `progress` are other agents for the same
tasks, and `cycles` plays tasks in turn and measures what is kept.
"""

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
