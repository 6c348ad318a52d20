"""Programs as recurrence equations: REINFORCE, A2C, PPO, a policy with memory, and a decoder.

The programs that learn are graphs over iterations i, steps t and a batch of environments b. Their
functions handle one environment. Run `vectorize(graph, "b")` before the other passes to move the
batch into the arrays; the bound B is the batch size. The bound T is the maximum length of an
episode, and steps after the end of a shorter episode are masked. Random keys are functions of the
point, so every legal order of execution computes the same values. Environments, networks and optax
optimizers are arguments, and this package imports none of their libraries.

Every program takes a `key`. Programs that learn have no other inputs and return two results: the
final parameters, and the mean return of the episodes of every iteration. The decoder also takes its
parameters, and returns tokens and their log-probabilities.

The smallest program is a single recurrence, which `compile` turns into a function for any bound T:

    >>> from mmrl.pdg import Program, compile
    >>> p = Program("t")
    >>> (t,), (T,) = p.symbols, p.bounds
    >>> x = p.tensor(t)
    >>> x[0] = 0.0
    >>> x[t + 1] = 0.5 * x + 1.0
    >>> compile(p.graph(x[0:T])).xla(T=4)()
    (Array([0.  , 1.  , 1.5 , 1.75], dtype=float32),)
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
