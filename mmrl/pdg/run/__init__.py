"""The whole way from equations to something that runs: passes, schedule, memory, program.  §5-6.

compiled = compile(graph, {"tile": lambda graph: tile(graph, "t", 8)})
print(compiled)                        # the program, as Python
compiled.check(I=2, T=9)       # enumerate a run: order and memory
compiled.interpret(I=2, T=9)   # a call per operation; every byte accounted for
compiled.xla(I=2, T=9)()       # one XLA program

Bounds may also be given as a dictionary, {"I": 2, "T": 9}.
"""

import dataclasses
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from mmrl.pdg.build.graph import Graph, Output
from mmrl.pdg.clean.validate import check_cycles, fitting
from mmrl.pdg.passes import Pass, Stage, stages
from mmrl.pdg.plan.account import ReadTable, nbytes
from mmrl.pdg.plan.code import Body, Event, generate, text, trace
from mmrl.pdg.plan.frees import MemoryPlan, Swap, plan_memory
from mmrl.pdg.run import naive
from mmrl.pdg.run.interpreter import Execution, interpret
from mmrl.pdg.run.xla import XlaProgram, xla
from mmrl.pdg.schedule import Proximity, Schedule, schedule

Bounds = Mapping[str, int] | None


@dataclasses.dataclass(frozen=True, eq=False)
class Compiled:
    """A graph that is scheduled for all bounds at once; numbers for them come when it runs."""

    stages: tuple[Stage, ...]
    """The graph as it was given, and after each pass, with what the pass did in words."""
    schedule: Schedule
    """When everything runs."""
    swap: Swap
    """What waits on the host."""

    @functools.cached_property
    def plan(self) -> MemoryPlan:
        """When everything runs, and when its memory is freed."""
        return plan_memory(self.schedule, self.swap.of(self.graph))

    @functools.cached_property
    def tree(self) -> Body:
        """The plan as loops, which the interpreter walks."""
        return generate(self.plan)

    @functools.cached_property
    def loops(self) -> Body:
        """Loops without frees, a third of the work: one XLA program needs no more."""
        return generate(plan_memory(self.schedule, frees=False))

    @property
    def graph(self) -> Graph:
        """The graph after all passes."""
        return self.stages[-1].graph

    def __str__(self) -> str:
        return self.text()

    def text(self, *, memory: bool = False, least: int = 12) -> str:
        """The program as Python, where T, I, … are at least `least`, with frees if `memory`."""
        tree = generate(self.plan, memory=memory, readable=True, least=least)
        return text(tree, [name for name, op in self.graph.ops.items() if len(op.outputs) > 1])

    def trace(self, bounds: Bounds = None, /, **more: int) -> list[Event]:
        """The events of a run, in order.

        Raises `ValueError` for bounds that are missing, unknown, no whole numbers from 1 on, or too
        small for what the program reads; so do `check`, `interpret` and `xla`.
        """
        sizes = self._sizes(bounds, more)
        events = trace(self.tree, **sizes)
        if self.swap.tensors == ():
            return events
        types = ReadTable(self.graph, sizes).types()
        held = {tensor: nbytes(kind) for tensor, kind in types.items()}
        return self.swap.among(events, held)

    def _sizes(self, bounds: Bounds, more: Mapping[str, int]) -> dict[str, int]:
        if not isinstance(bounds, Mapping | None) or more.keys() & (bounds or {}):
            raise ValueError(
                f"`bounds` are given once each, as in `I=2, T=9` or in a dictionary, got {bounds} "
                f"and {more}"
            )
        return fitting(self.stages[0].graph, {**(bounds or {}), **more})

    def check(self, bounds: Bounds = None, /, **more: int) -> naive.Report:
        """Enumerate a run: every violation of order or memory, and how much was alive at once."""
        sizes = self._sizes(bounds, more)
        return naive.check(self.graph, self.trace(sizes), **sizes)

    def interpret(
        self, bounds: Bounds = None, /, *, key: Any = None, backend: str = "jax", **more: Any
    ) -> Execution:
        """Run it operation by operation, with a byte-exact account of memory.

        The `backend` is "jax", which compiles each operation, or "numpy", which calls it, so that
        a debugger can follow (`run.arrays`). A `key` replaces the program's seed. Other names than
        those of bounds, which are capitals, are inputs: `interpret(T=9, rate=0.1)`.
        """
        sizes = {name: size for name, size in more.items() if name == name.upper()}
        inputs = {name: value for name, value in more.items() if name not in sizes}
        return interpret(self, self._sizes(bounds, sizes), key=key, backend=backend, **inputs)

    def xla(self, bounds: Bounds = None, /, *, alias: bool = True, **more: int) -> XlaProgram:
        """The run as one XLA program, a function of its key and inputs: `xla(T=9)(rate=0.1)`."""
        return xla(self, self._sizes(bounds, more), alias=alias)


def compile(
    graph: Graph,
    passes: Mapping[str, Pass] | None = None,
    *,
    proximity: Proximity = "upper",
    swap: Sequence[Output] | Swap = (),
) -> Compiled:
    """Change a graph by `passes`, in order, schedule it, and say when memory is freed.

    `proximity` is what the schedule brings close together: "none", "all" dependences, or the last
    element of each slice ("upper", which alone interleaves long windows; §6.1). Tensors (operation,
    output) in `swap` wait on the host between their uses; a `Swap` says which of their values do.

    Raises `ValueError` for a graph without operations or without a legal order (it names who waits
    for whom), for `passes` that are no functions, for an unknown `proximity`, and if `swap` names
    what is no tensor, or one twice.
    """
    if not isinstance(graph, Graph):
        raise ValueError(
            f"`graph` must be a Graph, got a {type(graph).__name__}: `Program.graph` makes one of "
            f"the tensors that you want"
        )
    if not graph.ops:
        raise ValueError("`graph` has no operations: there is nothing to compile")
    changed = stages(graph, _checked({} if passes is None else passes))
    try:
        times = schedule(changed[-1].graph, proximity)
    except ValueError:
        check_cycles(changed[-1].graph)
        raise
    swap = swap if isinstance(swap, Swap) else Swap(tuple(swap))
    swap.of(changed[-1].graph)
    return Compiled(tuple(changed), times, swap)


def _checked(passes: Any) -> Mapping[str, Pass]:
    if not isinstance(passes, Mapping):
        raise ValueError(
            f'`passes` must map names to functions of a graph, as {{"fuse": fuse}} does, got a '
            f"{type(passes).__name__}"
        )
    for name, change in passes.items():
        try:
            inspect.signature(change).bind(None)
        except TypeError as error:
            got = error if callable(change) else f"got a {type(change).__name__}"
            raise ValueError(
                f"`passes`: {name!r} must be a function of a graph alone, as "
                f'`lambda graph: tile(graph, "t", 8)` is; {got}'
            ) from None
    return passes
