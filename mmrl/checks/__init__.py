"""Checks for custom environments and recurrent agents.

    checks.environment(MyEnv())                 # lists all rules that an environment breaks
    checks.agent(net, env, params)              # verifies that the memory resets between episodes
    checks.functions(init, step, replay, env)   # the same check for an agent outside mmrl

Each function raises `ValueError` if it finds an error, and otherwise returns None. `environment` is
implemented in `tracing` and `playing`, and `agent` and `functions` in `replaying`.
"""

from mmrl.checks.playing import environment
from mmrl.checks.replaying import agent, functions

__all__ = ["agent", "environment", "functions"]
