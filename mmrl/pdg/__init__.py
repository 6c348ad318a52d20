"""Recurrent tensors and the compiler that schedules them: TimeRL in a compact edition.

Read in this order: `expr` (index expressions), `domain` (where a tensor lives), `graph` (operations
and the edges between them), `program` and `tensor` (how a program is written), `autodiff`, `naive`
(what a program means); then the compiler. The system is from "TimeRL: Efficient Deep Reinforcement
Learning with Polyhedral Dependence Graphs"; section numbers in this package are that paper's.
"""

from mmrl.pdg import normal as normal  # without it, expressions have no operators
