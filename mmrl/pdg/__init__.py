"""Recurrent tensors and a polyhedral compiler for them: a compact version of TimeRL.

The six packages follow the steps of compilation. Read them in this order:

- `build`: define tensors by recurrence equations, differentiate them, and build the graph
- `clean`: validate the graph, and remove operations that no result needs
- `passes`: vectorize, tile, lift and fuse operations
- `schedule`: choose when each operation runs
- `plan`: plan memory and the lifetime of each value, and generate loops
- `run`: `compile` a graph, then interpret it or run it as one XLA program

To follow a `Program` to its compiled loop, read nine modules: `build.program`, `clean`, `passes`,
`schedule`, `plan.frees`, `plan.code`, `plan.layout`, `run.lowering` and `run.xla`.

The system was published in "TimeRL: Efficient Deep Reinforcement Learning with Polyhedral
Dependence Graphs". Section numbers in this package refer to that paper.
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
