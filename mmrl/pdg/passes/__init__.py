"""What the compiler does to a graph before it is scheduled: lift, vectorize, tile, fuse."""

from mmrl.pdg.passes.declared import Declared, declare
from mmrl.pdg.passes.recurrence import Recurrence, lift, recognize
from mmrl.pdg.passes.values import Refusal

__all__ = ["Declared", "Recurrence", "Refusal", "declare", "lift", "recognize"]
