"""Checks of parts of your own: is that an environment, does this agent forget where it should?

    checks.environment(MyEnv())                 # all rules that it breaks, a sentence each
    checks.agent(net, env, params)              # what it said while acting, it says over a tape
    checks.functions(init, step, replay, env)   # the same of an agent that is not of mmrl

Each raises `ValueError` or returns nothing. `tracing` and `playing` have the first,
`replaying` the others.
"""

from mmrl.checks.playing import environment
from mmrl.checks.replaying import agent, functions

__all__ = ["agent", "environment", "functions"]
