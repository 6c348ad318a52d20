"""Passes, which change a graph before it is scheduled: lift, vectorize, tile, fuse.

Each pass takes a graph and returns another one that computes the same results, and in words what
it did and what it left alone.
"""

from mmrl.pdg.passes.declared import Declared, declare
from mmrl.pdg.passes.fuse import fuse
from mmrl.pdg.passes.lift import lift_loops
from mmrl.pdg.passes.recurrence import Recurrence, lift, recognize
from mmrl.pdg.passes.stages import Stage, stages
from mmrl.pdg.passes.tile import tile
from mmrl.pdg.passes.values import Refusal
from mmrl.pdg.passes.vectorize import vectorize

__all__ = [
    "Declared",
    "Recurrence",
    "Refusal",
    "Stage",
    "declare",
    "fuse",
    "lift",
    "lift_loops",
    "recognize",
    "stages",
    "tile",
    "vectorize",
]
