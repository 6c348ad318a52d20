"""The whole way from equations to something that runs: passes, schedule, memory, program.  §5-6.

compiled = compile(graph, memory="8 MB")
compiled.xla(I=2, T=9)()       # one XLA program, with passes that are chosen for these bounds
print(compiled.report(I=2, T=9))       # the passes, what they cost, and what others would

compiled = compile(graph, {"tile": lambda graph: tile(graph, "t", 8)})
print(compiled)                # the program, as Python
compiled.check(I=2, T=9)       # enumerate a run: order and memory
compiled.interpret(I=2, T=9)   # a call per operation; every byte accounted for
compiled.xla(I=2, T=9)()       # one XLA program

Bounds may also be given as a dictionary, {"I": 2, "T": 9}.
"""

import dataclasses
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex, overload

import jax

from mmrl.pdg.build.graph import Graph, Output
from mmrl.pdg.clean.validate import check_cycles, fitting
from mmrl.pdg.passes import Pass, Stage, stages
from mmrl.pdg.passes.choose import (
    Choice,
    Cost,
    Fixed,
    Report,
    Row,
    choose,
    neighbors,
    parse_bytes,
)
from mmrl.pdg.plan import cost
from mmrl.pdg.plan.account import ReadTable, nbytes
from mmrl.pdg.plan.code import Body, Event, generate, text, trace
from mmrl.pdg.plan.frees import MemoryPlan, plan_memory
from mmrl.pdg.plan.swap import Swap
from mmrl.pdg.run import naive
from mmrl.pdg.run.interpreter import Execution, interpret
from mmrl.pdg.run.xla import XlaProgram, xla
from mmrl.pdg.schedule import Proximity, Schedule, check_proximity, schedule

Bounds = Mapping[str, int] | None


@dataclasses.dataclass(frozen=True, eq=False)
class Compiled:
    """A graph that is scheduled for all bounds at once; numbers for them come when it runs."""

    stages: tuple[Stage, ...]
    """The graph as it was given, and after each pass, with what the pass did in words."""
    schedule: Schedule
    """When everything runs."""
    swap: Swap
    """The values that wait on the host."""

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
        return fitting(self.stages[0].graph, _merged(bounds, more))

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
        sizes, inputs = _split(more)
        return interpret(self, self._sizes(bounds, sizes), key=key, backend=backend, **inputs)

    def xla(self, bounds: Bounds = None, /, *, alias: bool = True, **more: int) -> XlaProgram:
        """The run as one XLA program, a function of its key and inputs: `xla(T=9)(rate=0.1)`."""
        return xla(self, self._sizes(bounds, more), alias=alias)


def _merged(bounds: Bounds, more: Mapping[str, int]) -> dict[str, int]:
    """Bounds from a dictionary and from keywords; `ValueError` for one that is given twice."""
    if not isinstance(bounds, Mapping | None) or more.keys() & (bounds or {}):
        raise ValueError(
            f"`bounds` are given once each, as in `I=2, T=9` or in a dictionary, got {bounds} "
            f"and {more}"
        )
    return {**(bounds or {}), **more}


def _split(more: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """Bounds, which are capitals, and inputs."""
    sizes = {name: size for name, size in more.items() if name == name.upper()}
    return sizes, {name: value for name, value in more.items() if name not in sizes}


@dataclasses.dataclass(frozen=True, eq=False)
class Automatic:
    """A graph whose passes are chosen when its bounds are numbers.

    `at` returns the program for some bounds; the other methods choose it and then act like
    those of `Compiled`. A choice is made once for the same bounds.
    """

    source: Graph
    """The graph as it was given."""
    memory: int | None
    """The limit of bytes alive at once, or None."""
    fixed: Fixed
    """The parts of the choice that the caller made."""
    bounds: Mapping[str, int]
    """Bounds from `compile`; bounds of a call take precedence."""
    options: Mapping[str, Any]
    """The arguments `proximity` and `swap` of `compile`."""
    _known: dict[Any, Any] = dataclasses.field(default_factory=dict, init=False, repr=False)

    def at(self, bounds: Bounds = None, /, **more: int) -> Compiled:
        """Return the program with the passes that are chosen for some bounds.

        Raises `ValueError` for wrong bounds, and if no choice fits in `memory`.
        """
        return self._compiled(self.choice(bounds, **more))

    def choice(self, bounds: Bounds = None, /, **more: int) -> Choice:
        """Return the passes that are chosen for some bounds."""
        sizes = self._sizes(bounds, more)
        place = tuple(sizes.items())
        if place not in self._known:
            price = functools.partial(self._cost, sizes)
            one = functools.partial(cost.sizes, bounds=sizes)
            self._known[place] = choose(
                self.source,
                sizes,
                price,
                memory=self.memory,
                fixed=self.fixed,
                sizes=one if jax.default_backend() == "cpu" else None,
            )
        return self._known[place]

    def report(self, bounds: Bounds = None, /, **more: int) -> Report:
        """Return the costs of the choice for some bounds, and of the choices next to it."""
        sizes = self._sizes(bounds, more)
        choice = self.choice(sizes)
        rows = []
        for each in neighbors(choice, self.source, sizes, self.fixed):
            try:
                price = self._cost(sizes, each)
            except ValueError:  # no legal order: it was not among the candidates
                continue
            fits = self.memory is None or price.bytes <= self.memory
            rows.append(Row(str(each), price, fits, each == choice))
        words = [line for stage in self.at(sizes).stages for line in stage.words]
        return Report(tuple(rows), self.memory, tuple(words))

    def text(self, bounds: Bounds = None, /, *, memory: bool = False, **more: int) -> str:
        """Return the program as Python, with frees if `memory`."""
        return self.at(bounds, **more).text(memory=memory)

    def trace(self, bounds: Bounds = None, /, **more: int) -> list[Event]:
        """Return the events of a run, in order."""
        sizes = self._sizes(bounds, more)
        return self.at(sizes).trace(sizes)

    def check(self, bounds: Bounds = None, /, **more: int) -> naive.Report:
        """Enumerate a run: every violation of order or memory, and how much was alive at once."""
        sizes = self._sizes(bounds, more)
        return self.at(sizes).check(sizes)

    def interpret(
        self, bounds: Bounds = None, /, *, key: Any = None, backend: str = "jax", **more: Any
    ) -> Execution:
        """Run it operation by operation, with a byte-exact account of memory."""
        numbers, inputs = _split(more)
        sizes = self._sizes(bounds, numbers)
        return self.at(sizes).interpret(sizes, key=key, backend=backend, **inputs)

    def xla(self, bounds: Bounds = None, /, *, alias: bool = True, **more: int) -> XlaProgram:
        """Return the run as one XLA program, a function of its key and inputs."""
        sizes = self._sizes(bounds, more)
        return self.at(sizes).xla(sizes, alias=alias)

    def _sizes(self, bounds: Bounds, more: Mapping[str, int]) -> dict[str, int]:
        return fitting(self.source, {**self.bounds, **_merged(bounds, more)})

    def _compiled(self, choice: Choice) -> Compiled:
        if choice not in self._known:
            self._known[choice] = by_hand(self.source, choice.passes(), **self.options)
        return self._known[choice]

    def _cost(self, sizes: Mapping[str, int], choice: Choice) -> Cost:
        place = choice, tuple(sizes.items())
        if place not in self._known:
            price = cost.cost(self._compiled(choice).schedule, sizes)
            passes = choice.passes()
            apart = {name: f for name, f in passes.items() if not name.startswith("fuse")}
            if len(apart) < len(passes):  # what a fused operation keeps inside counts, too
                inside = cost.peak(by_hand(self.source, apart, **self.options).schedule, sizes)
                most = max(price.bytes, inside.bytes)
                price = dataclasses.replace(price, bytes=most, exact=False)
            self._known[place] = price
        return self._known[place]


@overload
def compile(
    graph: Graph,
    passes: Mapping[str, Pass],
    *,
    proximity: Proximity = "upper",
    swap: Sequence[Output] | Swap = (),
) -> Compiled: ...


@overload
def compile(
    graph: Graph,
    passes: None = None,
    *,
    memory: int | float | str | None = None,
    vectorize: Sequence[Any] | None = None,
    tile: Mapping[Any, SupportsIndex] | None = None,
    lift: Sequence[Any] | None = None,
    recompute: bool | None = None,
    fuse: bool | None = None,
    proximity: Proximity = "upper",
    swap: Sequence[Output] | Swap = (),
    **bounds: int,
) -> Automatic: ...


def compile(
    graph: Graph,
    passes: Mapping[str, Pass] | None = None,
    *,
    memory: int | float | str | None = None,
    vectorize: Sequence[Any] | None = None,
    tile: Mapping[Any, SupportsIndex] | None = None,
    lift: Sequence[Any] | None = None,
    recompute: bool | None = None,
    fuse: bool | None = None,
    proximity: Proximity = "upper",
    swap: Sequence[Output] | Swap = (),
    **bounds: int,
) -> Compiled | Automatic:
    """Schedule a graph, and state when memory is freed, after passes that are chosen or given.

    Without `passes` they are chosen as soon as the bounds are numbers (here, or in a call such as
    `xla(T=9)`): so that the most bytes alive at once stay below `memory` ("8 MB", or a number of
    bytes; by default there is no limit), in the least estimated time. On a CPU, blocks should fit
    in its cache; on another device, one block has all steps. `vectorize`, `tile`, `lift`,
    `recompute` and `fuse` override parts of the choice: `tile={"t": 16}` leaves the rest open.
    With `passes`, a mapping of names to functions of a graph, these run in order, and no others;
    `{}` compiles the graph as it is.

    `proximity` is what the schedule brings close together: "none", "all" dependences, or the last
    element of each slice ("upper", the only one that interleaves long windows; §6.1). Tensors
    (operation, output) in `swap` wait on the host between their uses; a `Swap` selects values.

    A dimension that `Program.until` ends early still runs to its bound; the words of the last
    stage, and the report, state what the steps after the end compute.

    Raises `ValueError` for a graph without operations or without a legal order (it names who waits
    for whom), for `passes` that are not functions, for an unknown `proximity`, if `swap` names
    something other than a tensor or names a tensor twice, and for `memory` together with `swap`.
    """
    if not isinstance(graph, Graph):
        raise ValueError(
            f"`graph` must be a Graph, got a {type(graph).__name__}: `Program.graph` makes one of "
            f"the tensors that you want"
        )
    if not graph.ops:
        raise ValueError("`graph` must have an operation; got an empty one")
    parts = {
        "vectorize": vectorize,
        "tile": tile,
        "lift": lift,
        "recompute": recompute,
        "fuse": fuse,
    }
    if passes is None:
        return automatic(
            graph, parse_bytes(memory), Fixed(**parts), bounds, check_proximity(proximity), swap
        )
    more = [name for name, part in {"memory": memory, **parts}.items() if part is not None]
    if more or bounds:
        raise ValueError(
            f"`passes` must be the only choice, got {', '.join([*more, *bounds])} too: leave out "
            f"`passes`, or give bounds to `xla` and put tiles into `passes`"
        )
    return by_hand(graph, passes, proximity, swap)


def automatic(
    graph: Graph,
    memory: int | None,
    fixed: Fixed,
    bounds: Mapping[str, int],
    proximity: Proximity,
    swap: Sequence[Output] | Swap,
) -> Automatic:
    """Return a graph whose passes wait for bounds, after checking what needs none."""
    if unknown := [name for name in bounds if name not in graph.bounds]:
        raise ValueError(
            f"`bounds` must name {list(graph.bounds)} of the graph, got {', '.join(unknown)}"
        )
    fixed.check(graph)
    swap = swap if isinstance(swap, Swap) else Swap(tuple(swap))
    if swap.of(graph) and memory is not None:
        raise ValueError(
            "`memory` must be left out with `swap`, whose values do not count as on the host yet: "
            "give `passes` with `swap`, and read the peak from `interpret`"
        )
    return Automatic(graph, memory, fixed, bounds, {"proximity": proximity, "swap": swap})


def by_hand(
    graph: Graph,
    passes: Mapping[str, Pass],
    proximity: Proximity = "upper",
    swap: Sequence[Output] | Swap = (),
) -> Compiled:
    """Return a graph after `passes`, scheduled."""
    changed = stages(graph, _checked(passes))
    words = (*changed[-1].words, *_after_ends(graph, changed[-1].graph))
    changed[-1] = dataclasses.replace(changed[-1], words=words)
    try:
        times = schedule(changed[-1].graph, proximity)
    except ValueError:
        check_cycles(changed[-1].graph)
        raise
    swap = swap if isinstance(swap, Swap) else Swap(tuple(swap))
    swap.of(changed[-1].graph)
    return Compiled(tuple(changed), times, swap)


def _after_ends(graph: Graph, changed: Graph) -> list[str]:
    """Describe what is computed after the end of each dimension that data end (`Program.until`).

    Functions with `when` are skipped in a loop. Those that a pass moved into arrays are not.
    """

    def moved(name: str) -> bool:
        ops = (changed.ops.get(each) for each in (name, f"all_{name}"))
        return any(op is not None and "over" in op.params for op in ops)

    words = []
    for name, op in graph.ops.items():
        if along := op.params.get("ends"):
            words.append(f"{name} ends {along} early: the loop over {along} runs to its bound")
            guarded = [x for x, o in graph.ops.items() if "when" in o.params]
            guarded = [x for x in guarded if along in graph.ops[x].domain.names]
            kinds = {"skipped": False, "computed and discarded": True}
            parts = {text: [x for x in guarded if moved(x) is yes] for text, yes in kinds.items()}
            words += [f"{text} after the end: {', '.join(x)}" for text, x in parts.items() if x]
    return words


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
                f"`passes`: {name!r} must be a function of one argument, a graph, as "
                f'`lambda graph: tile(graph, "t", 8)` is; {got}'
            ) from None
    return passes
