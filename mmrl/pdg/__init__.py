"""Recurrent tensors and the compiler that schedules them: TimeRL in a compact edition.

Six verbs, in the order of compilation and of reading:

- `build`: write tensors as recurrence equations, and differentiate them; they form a graph
- `clean`: check the graph, and drop what no result needs
- `passes`: vectorize, tile, lift and fuse
- `schedule`: when each operation runs
- `plan`: the memory of each value, its lifetime, and the loops
- `run`: `compile` a graph; interpret it, or run it as one XLA program

Nine files lead from a `Program` to a compiled loop: `build.program`, `clean`, `passes`, `schedule`,
`plan.frees`, `plan.code`, `plan.layout`, `run.lowering` and `run.xla`.

The system is from "TimeRL: Efficient Deep Reinforcement Learning with Polyhedral Dependence
Graphs"; section numbers in this package are that paper's.
"""

from mmrl.pdg import moved
from mmrl.pdg.build.autodiff import gradient as gradient
from mmrl.pdg.build.expr import max_ as max_
from mmrl.pdg.build.expr import min_ as min_
from mmrl.pdg.build.program import Program as Program
from mmrl.pdg.build.program import fn as fn
from mmrl.pdg.run import Automatic as Automatic
from mmrl.pdg.run import Compiled as Compiled
from mmrl.pdg.run import compile as compile

moved.install()
