"""Checks of custom parts: is this an environment, and does this agent forget where it should?

    checks.environment(MyEnv())                 # every rule that it breaks, a sentence each
    checks.agent(net, env, params)              # replays a tape: same outputs as while acting?
    checks.functions(init, step, replay, env)   # the same check for an agent outside mmrl

Each raises `ValueError` or returns None. The first is in `tracing` and `playing`, the others are in
`replaying`.
"""

from mmrl.checks.playing import environment
from mmrl.checks.replaying import agent, functions

__all__ = ["agent", "environment", "functions"]
