"""Compile a graph to an executable program: passes, schedule, memory plan and execution.  §5-6.

compiled = compile(graph, memory="8 MB")
compiled.xla(I=2, T=9)()       # one XLA program, with passes chosen for these bounds
print(compiled.report(I=2, T=9))       # the passes, their cost, and the cost of alternatives

compiled = compile(graph, {"tile": lambda graph: tile(graph, "t", 8)})
print(compiled)                # the program as Python code
compiled.check(I=2, T=9)       # enumerate a run, and check its order and memory
compiled.interpret(I=2, T=9)   # one call per operation, with an exact account of memory
compiled.xla(I=2, T=9)()       # one XLA program

Bounds may also be passed as a dictionary, {"I": 2, "T": 9}.
"""

import dataclasses
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex, overload

from mmrl.pdg.build.graph import Graph, Output
from mmrl.pdg.clean.validate import check_bounds, check_cycles
from mmrl.pdg.passes import Pass, Stage, stages
from mmrl.pdg.passes.choose import (
    Choice,
    Constraints,
    Cost,
    Report,
    Row,
    choose,
    neighbors,
    parse_bytes,
)
from mmrl.pdg.plan import cost
from mmrl.pdg.plan.account import ReadTable, nbytes
from mmrl.pdg.plan.alive import Peak, peak
from mmrl.pdg.plan.code import Body, Event, generate, text, trace
from mmrl.pdg.plan.frees import MemoryPlan, plan_memory
from mmrl.pdg.plan.swap import NO_SWAP, Swap
from mmrl.pdg.plan.tails import ends
from mmrl.pdg.run import naive
from mmrl.pdg.run.interpreter import Execution, interpret
from mmrl.pdg.run.xla import XlaProgram, xla
from mmrl.pdg.schedule import Proximity, Schedule, check_proximity, schedule

Bounds = Mapping[str, int] | None


@dataclasses.dataclass(frozen=True, eq=False)
class Compiled:
    """Graph with a schedule that is valid for all bounds; the bounds are arguments of each run."""

    stages: tuple[Stage, ...]
    """Original graph, and the graph after each pass with a report of the changes."""
    schedule: Schedule
    """Execution times of all operations."""
    swap: Swap
    """Rule that selects which values are moved to the host between uses."""

    @functools.cached_property
    def plan(self) -> MemoryPlan:
        """Times of all operations, deallocations and transfers."""
        return plan_memory(self.schedule, self.swap.of(self.graph))

    @functools.cached_property
    def tree(self) -> Body:
        """Plan as loops, which the interpreter executes."""
        return generate(self.plan)

    @functools.cached_property
    def loops(self) -> Body:
        """Loops without deallocations, for XLA programs; faster to generate than `tree`."""
        return generate(plan_memory(self.schedule, frees=False))

    @property
    def graph(self) -> Graph:
        """Graph after all passes."""
        return self.stages[-1].graph

    def __str__(self) -> str:
        return self.text()

    def text(self, *, memory: bool = False, least: int = 12) -> str:
        """Return the program as Python code that is valid for T, I, … of at least `least`.

        If `memory` is true, the code includes deallocations (`del x[t]`) and transfers.
        """
        tree = generate(self.plan, memory=memory, readable=True, least=least)
        return text(tree, [name for name, op in self.graph.ops.items() if len(op.outputs) > 1])

    def trace(self, bounds: Bounds = None, /, **more: int) -> list[Event]:
        """Return the events of a run, in order.

        Like `check`, `interpret` and `xla`, this method raises `ValueError` for bounds that are
        missing, unknown, not integers of at least 1, or too small for the program's reads.
        """
        sizes = self._sizes(bounds, more)
        events = trace(self.tree, **sizes)
        if self.swap.tensors == ():
            return events
        types = ReadTable(self.graph, sizes).types
        bytes_per_value = {tensor: nbytes(kind) for tensor, kind in types.items()}
        return self.swap.among(events, bytes_per_value)

    def _sizes(self, bounds: Bounds, more: Mapping[str, int]) -> dict[str, int]:
        return check_bounds(self.stages[0].graph, _merge(bounds, more))

    def check(self, bounds: Bounds = None, /, **more: int) -> naive.Report:
        """Enumerate a run; report violations of order or memory, and the peak number of values."""
        sizes = self._sizes(bounds, more)
        return naive.check(self.graph, self.trace(sizes), **sizes)

    def peak(self, bounds: Bounds = None, /, **more: int) -> Peak:
        """Return the peak bytes on the device and on the host, without running the program.

        These are the bytes that `interpret` measures. If a run has more than 500,000 values, the
        result is an upper bound, and its `exact` is False.
        """
        return peak(self.schedule, self._sizes(bounds, more), self.swap)

    def interpret(
        self, bounds: Bounds = None, /, *, key: Any = None, backend: str = "jax", **more: Any
    ) -> Execution:
        """Run the program one operation at a time, with a byte-exact account of memory.

        The `backend` "jax" compiles each operation. The `backend` "numpy" calls operations
        directly, so that a debugger can step into them (`run.arrays`). A `key` replaces the
        program's seed. Uppercase keywords are bounds, all others are inputs:
        `interpret(T=9, rate=0.1)`.
        """
        sizes, inputs = _split(more)
        return interpret(self, self._sizes(bounds, sizes), key=key, backend=backend, **inputs)

    def xla(
        self, bounds: Bounds = None, /, *, alias: bool = True, early: bool = False, **more: int
    ) -> XlaProgram:
        """Compile a run to one XLA program, called with a key and inputs: `xla(T=9)(rate=0.1)`.

        The options are described in `XlaProgram`. `early=True` can be slower, for example
        if the data end a dimension late, so measure both.
        """
        return xla(self, self._sizes(bounds, more), alias=alias, early=early)


def _merge(bounds: Bounds, more: Mapping[str, int]) -> dict[str, int]:
    """Merge bounds from a dictionary and keywords. Raises `ValueError` for duplicate bounds."""
    if not isinstance(bounds, Mapping | None) or more.keys() & (bounds or {}):
        raise ValueError(
            f"`bounds` must contain each bound once, either as a keyword (`I=2, T=9`) or in a "
            f"dictionary; got {bounds} and {more}"
        )
    return {**(bounds or {}), **more}


def _split(more: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, Any]]:
    """Split keyword arguments into bounds (uppercase names) and inputs."""
    sizes = {name: size for name, size in more.items() if name == name.upper()}
    return sizes, {name: value for name, value in more.items() if name not in sizes}


@dataclasses.dataclass(frozen=True, eq=False)
class Automatic:
    """Graph whose passes are chosen once its bounds are known.

    `at` returns the program for given bounds, `choice` its passes, and `report` their cost. The
    other methods call the method of `Compiled` with the same name. The choice for given bounds is
    cached.
    """

    source: Graph
    """Original graph."""
    memory: int | None
    """Limit on the bytes alive on the device, or None."""
    constraints: Constraints
    """Parts of the choice that the caller set."""
    bounds: Mapping[str, int]
    """Bounds passed to `compile`, which bounds passed to a method override."""
    options: Mapping[str, Any]
    """Arguments `proximity` and `swap` of `compile`."""
    _cache: dict[Any, Any] = dataclasses.field(default_factory=dict, init=False, repr=False)

    def at(self, bounds: Bounds = None, /, **more: int) -> Compiled:
        """Return the program, with passes chosen for the given bounds.

        Raises `ValueError` for invalid bounds, or if no choice fits in `memory`.
        """
        return self._compile(self.choice(bounds, **more))

    def choice(self, bounds: Bounds = None, /, **more: int) -> Choice:
        """Return the passes chosen for the given bounds."""
        sizes = self._sizes(bounds, more)
        place = tuple(sizes.items())
        if place not in self._cache:
            price = functools.partial(self._cost, sizes)
            self._cache[place] = choose(
                self.source, sizes, price, memory=self.memory, constraints=self.constraints
            )
        return self._cache[place]

    def report(self, bounds: Bounds = None, /, **more: int) -> Report:
        """Return the cost of the choice for the given bounds, and of similar choices."""
        sizes = self._sizes(bounds, more)
        choice, swap = self.choice(sizes), self.options["swap"]
        rows: dict[str, Row] = {}
        transfers = []
        for each in neighbors(choice, self.source, sizes, self.constraints):
            try:
                price, host = self._price(sizes, each)
            except ValueError:  # without a valid order, it is not a candidate
                continue
            fits = self.memory is None or price.bytes <= self.memory
            if (name := self._passes(each)) not in rows:
                rows[name] = Row(name, price, fits, each == choice)
                transfers += [f"{name}: {price.bytes:,} bytes on the device, {host:,} on the host"]
        compiled = self.at(sizes)
        words = [line for stage in compiled.stages for line in stage.words]
        if swap.of(self.source):
            names = ", ".join(dict.fromkeys(name for name, _ in compiled.swap.of(compiled.graph)))
            words += [
                f"swapped: {names or 'no tensor, because passes removed all of them'}",
                *transfers,
            ]
        if ends(compiled.graph) and not compiled.swap.of(compiled.graph):
            words += (f"With `early=True`, {line}" for line in compiled.xla(sizes, early=True).ends)
        return Report(tuple(rows.values()), self.memory, tuple(words))

    def text(self, bounds: Bounds = None, /, *, memory: bool = False, **more: int) -> str:
        """Return the program as Python code, with deallocations if `memory`."""
        return self.at(bounds, **more).text(memory=memory)

    def trace(self, bounds: Bounds = None, /, **more: int) -> list[Event]:
        """Return the events of a run, in order."""
        sizes = self._sizes(bounds, more)
        return self.at(sizes).trace(sizes)

    def check(self, bounds: Bounds = None, /, **more: int) -> naive.Report:
        """Enumerate a run; report violations of order or memory, and the peak number of values."""
        sizes = self._sizes(bounds, more)
        return self.at(sizes).check(sizes)

    def peak(self, bounds: Bounds = None, /, **more: int) -> Peak:
        """Return the peak bytes on the device and on the host, without running the program."""
        sizes = self._sizes(bounds, more)
        return self.at(sizes).peak(sizes)

    def interpret(
        self, bounds: Bounds = None, /, *, key: Any = None, backend: str = "jax", **more: Any
    ) -> Execution:
        """Run the program one operation at a time, with a byte-exact account of memory."""
        numbers, inputs = _split(more)
        sizes = self._sizes(bounds, numbers)
        return self.at(sizes).interpret(sizes, key=key, backend=backend, **inputs)

    def xla(
        self, bounds: Bounds = None, /, *, alias: bool = True, early: bool = False, **more: int
    ) -> XlaProgram:
        """Compile a run to one XLA program, called with a key and inputs."""
        sizes = self._sizes(bounds, more)
        return self.at(sizes).xla(sizes, alias=alias, early=early)

    def _sizes(self, bounds: Bounds, more: Mapping[str, int]) -> dict[str, int]:
        return check_bounds(self.source, {**self.bounds, **_merge(bounds, more)})

    def _by_hand(self, passes: Mapping[str, Pass]) -> Compiled:
        plain = by_hand(self.source, passes, self.options["proximity"])
        swap = self.options["swap"].within(self.source, plain.graph)
        return dataclasses.replace(plain, swap=swap)

    def _compile(self, choice: Choice) -> Compiled:
        if choice not in self._cache:
            self._cache[choice] = self._by_hand(choice.passes())
        return self._cache[choice]

    def _passes(self, choice: Choice) -> str:
        """Return the names of the passes of a choice that change the graph."""
        stages = self._compile(choice).stages
        texts = [str(stage.graph) for stage in stages]
        pairs = zip(stages[1:], texts, texts[1:], strict=False)
        return ", ".join(s.name for s, old, new in pairs if old != new) or str(Choice())

    def _cost(self, sizes: Mapping[str, int], choice: Choice) -> Cost:
        return self._price(sizes, choice)[0]

    def _price(self, sizes: Mapping[str, int], choice: Choice) -> tuple[Cost, int]:
        """Return the cost of a choice, and its peak bytes on the host."""
        place = choice, tuple(sizes.items())
        if place not in self._cache:
            compiled = self._compile(choice)
            most, passes = compiled.peak(sizes), choice.passes()
            others = {name: f for name, f in passes.items() if not name.startswith("fuse")}
            if len(others) < len(passes):  # also count the values inside fused operations
                inside = self._by_hand(others).peak(sizes)
                most = Peak(max(most.bytes, inside.bytes), max(most.host, inside.host), False)
            self._cache[place] = cost.cost(compiled.graph, sizes, most), most.host
        return self._cache[place]


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
    """Compile a graph: apply passes, schedule operations, and plan when memory is freed.

    `passes` maps names to functions of a graph. These passes, and no others, run in this order;
    `{}` compiles the graph without passes.

    Without `passes`, the compiler chooses passes once the bounds are known, either here or in a
    call such as `xla(T=9)`. It uses the largest blocks whose peak memory is within `memory`
    ("8 MB", or a number of bytes; unlimited by default, so that each dimension is one block).
    `passes.choose` describes the search. `vectorize`, `tile`, `lift`, `recompute` and `fuse`
    override parts of the choice. For example, `tile={"t": 16}` leaves the rest to the search.
    `lift` names dimensions whose loops may become scans; `lift_loops` decides for each loop.

    `proximity` selects which dependences the schedule should keep short: "none", "all", or only
    dependences on the last element of each slice ("upper", the only setting that interleaves long
    windows; §6.1). Tensors (operation, output) in `swap` are moved to the host between their uses;
    a `Swap` selects individual values. `memory` limits the bytes on the device only; `report`
    also contains the bytes on the host.

    `xla(early=True)` skips the steps of a loop after `Program.until` has ended its dimension, if
    this changes no result. `report` states for each loop whether steps are skipped, or why not.

    Raises `ValueError` for a graph without operations or without a valid order (the message
    contains the cycle), for `passes` that are not functions, for an unknown `proximity`, and if
    `swap` contains an unknown or repeated tensor.

        >>> from mmrl.pdg import Program
        >>> program = Program("t")
        >>> x, (t,) = program.tensor("t", name="x"), program.symbols
        >>> x[0] = 1.0
        >>> x[t + 1] = 0.5 * x[t]
        >>> compile(program.graph(x)).xla(T=3)()
        (Array([1.  , 0.5 , 0.25], dtype=float32),)
    """
    if not isinstance(graph, Graph):
        raise ValueError(
            f"`graph` must be a Graph, got a {type(graph).__name__}: `Program.graph` builds one "
            "from the tensors that should be results"
        )
    if not graph.ops:
        raise ValueError("`graph` must have an operation, got an empty graph; add a result")
    swap = swap if isinstance(swap, Swap) else Swap(tuple(swap))
    parts = {
        "vectorize": vectorize,
        "tile": tile,
        "lift": lift,
        "recompute": recompute,
        "fuse": fuse,
    }
    if passes is None:
        return automatic(
            graph,
            parse_bytes(memory),
            Constraints(**parts),
            bounds,
            check_proximity(proximity),
            swap,
        )
    more = [name for name, part in {"memory": memory, **parts}.items() if part is not None]
    if more or bounds:
        raise ValueError(
            f"`passes` must be passed without {', '.join([*more, *bounds])}: omit `passes`, or "
            f"pass bounds to `xla`, and add passes such as `tile` to `passes`"
        )
    return by_hand(graph, passes, proximity, swap)


def automatic(
    graph: Graph,
    memory: int | None,
    constraints: Constraints,
    bounds: Mapping[str, int],
    proximity: Proximity,
    swap: Swap,
) -> Automatic:
    """Check the options that do not depend on bounds, and return the graph as `Automatic`."""
    if unknown := [name for name in bounds if name not in graph.bounds]:
        raise ValueError(
            f"`bounds` must contain only {list(graph.bounds)}, got {', '.join(unknown)}: remove "
            "them, or pass options of `xla`, such as `early`, to `xla`"
        )
    constraints.check(graph)
    swap.of(graph)
    return Automatic(graph, memory, constraints, bounds, {"proximity": proximity, "swap": swap})


def by_hand(
    graph: Graph,
    passes: Mapping[str, Pass],
    proximity: Proximity = "upper",
    swap: Swap = NO_SWAP,
) -> Compiled:
    """Apply `passes` to a graph, and schedule it."""
    results = stages(graph, _check_passes(passes))
    words = (*results[-1].words, *_after_ends(graph, results[-1].graph))
    results[-1] = dataclasses.replace(results[-1], words=words)
    try:
        times = schedule(results[-1].graph, proximity)
    except ValueError:
        check_cycles(results[-1].graph)
        raise
    swap.of(results[-1].graph)
    return Compiled(tuple(results), times, swap)


def _after_ends(graph: Graph, result: Graph) -> list[str]:
    """Describe which functions still run after data have ended a dimension (`Program.until`).

    In loops, functions with `when` are skipped. In arrays, all points are computed.
    """

    def is_moved(name: str) -> bool:
        ops = (result.ops.get(each) for each in (name, f"all_{name}"))
        return any(op is not None and "over" in op.params for op in ops)

    words = []
    for name, op in graph.ops.items():
        if along := op.params.get("ends"):
            words.append(f"{name} ends {along} early")
            functions = [x for x, o in graph.ops.items() if "when" in o.params]
            functions = [x for x in functions if along in graph.ops[x].domain.names]
            kinds = {"skipped": False, "computed and discarded": True}
            parts = {
                text: [x for x in functions if is_moved(x) is yes] for text, yes in kinds.items()
            }
            words += [f"{text} after the end: {', '.join(x)}" for text, x in parts.items() if x]
    return words


def _check_passes(passes: Any) -> Mapping[str, Pass]:
    if not isinstance(passes, Mapping):
        raise ValueError(
            f'`passes` must map names to functions of a graph, as in {{"fuse": fuse}}; got a '
            f"{type(passes).__name__}"
        )
    for name, change in passes.items():
        try:
            inspect.signature(change).bind(None)
        except TypeError as error:
            got = error if callable(change) else f"got a {type(change).__name__}"
            raise ValueError(
                f"`passes`: {name!r} must be a function of one argument, a graph, such as "
                f'`lambda graph: tile(graph, "t", 8)`; {got}'
            ) from None
    return passes
