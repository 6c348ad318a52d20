"""Recurrent tensors and the compiler that schedules them: TimeRL in a compact edition.

Read in this order: `expr` (index expressions), `graph` (where a tensor lives, operations and the
edges between them), `sets` (the same as integer sets), `language` (how a program is written, and
differentiated), `verify` (what it means); then the compiler: `passes`, `schedule`, `run`. Beside
them stand `programs`, which are reinforcement learning. The system is from "TimeRL: Efficient Deep
Reinforcement Learning with Polyhedral Dependence Graphs"; section numbers in this package are that
paper's.
"""

from mmrl.pdg.expr import max_ as max_
from mmrl.pdg.expr import min_ as min_
from mmrl.pdg.language import Program as Program
from mmrl.pdg.language import fn as fn
from mmrl.pdg.language.autodiff import gradient as gradient
from mmrl.pdg.run import Compiled as Compiled
from mmrl.pdg.run import compile as compile
