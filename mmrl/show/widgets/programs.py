"""Compiled programs at work: a run step by step."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import anywidget
import traitlets
from traitlets import Enum, Int

from mmrl.pdg.compiler import Compiled, compile
from mmrl.pdg.domain import reads
from mmrl.pdg.graph import Graph, Op
from mmrl.pdg.passes import tile
from mmrl.pdg.syntax import Block, Execute, If, Leaf, Loop, Node, leaves, text
from mmrl.show.widgets.base import source, style
from mmrl.show.widgets.graphs import reinforce

BOUNDS = {"I": 1, "T": 8}
WINDOW = 3
TILE = 4
PROGRAMS = ("n_step", "monte_carlo", "tiles")
# Which operations of REINFORCE act and which learn; what belongs to both is neither.
SIDES = {"obs": "acting", "act": "acting", "step": "acting", "reset": "acting"}
SIDES |= dict.fromkeys(("start", "params", "last", "w"), "other")


class StepDebugger(anywidget.AnyWidget):
    """One iteration of REINFORCE event by event: the line that runs, and every tensor as cells.

    `program` has returns of 3 steps ("n_step"), "monte_carlo" ones, or the former learned in
    "tiles" of 4 steps; an episode has 8. `moment` counts events from 0: an operation runs, or a
    tensor is freed. `programs` holds code and events of all, compiled when the first debugger is
    made, in about a second.
    """

    _esm = source("step_debugger")
    _css = style()
    program = Enum(PROGRAMS, "n_step").tag(sync=True)
    moment = Int(47, min=0).tag(sync=True)
    programs = traitlets.Dict().tag(sync=True)

    @traitlets.default("programs")
    def _programs(self) -> dict[str, Any]:
        return programs()


@cache
def compiled(name: str) -> Compiled:
    """One of `PROGRAMS`."""
    if name == "tiles":
        return compile(reinforce(WINDOW), {"tile": lambda graph: tile(graph, "t", TILE)})
    return compile(reinforce(WINDOW if name == "n_step" else None))


@cache
def programs() -> dict[str, Any]:
    """Of every program: its code, its tensors with their cells, and the events of a run."""
    return {"steps": BOUNDS["T"]} | {name: _program(compiled(name)) for name in PROGRAMS}


def _program(made: Compiled) -> dict[str, Any]:
    graph = made.graph
    tensors = [(op.name, k) for op in graph.ops.values() for k in range(len(op.outputs))]
    place = {tensor: number for number, tensor in enumerate(tensors)}

    def event(leaf: Leaf, env: dict[str, int], line: int) -> list[Any]:
        point = tuple(int(index.evaluate(env)) for index in leaf.point)
        counters = {name: count for name, count in env.items() if name not in BOUNDS}
        if not isinstance(leaf, Execute):
            return [line, counters, place[leaf.tensor], _step(graph, leaf.tensor[0], point)]
        found = [[place[tensor], t] for tensor, t in _reads(graph, leaf.op, point)]
        return [line, counters, leaf.op, _step(graph, leaf.op, point), found]

    code = text(made.tree, several=[op.name for op in graph.ops.values() if len(op.outputs) > 1])
    lines = dict(zip(map(id, leaves(made.tree)), _statements(code), strict=True))
    events = [event(leaf, env, lines[id(leaf)]) for leaf, env in _walk(made.tree, BOUNDS)]
    rows = [_tensor(graph.ops[op], k) for op, k in tensors]
    return {"code": code, "tensors": rows, "events": events}


def _tensor(op: Op, output: int) -> dict[str, Any]:
    """Its steps (null without any), and how many numbers a cell holds."""
    shape = op.types(BOUNDS)[output].shape
    steps = [_step_of(op, point) for point in op.domain.points(BOUNDS)]
    name = op.name if len(op.outputs) == 1 else f"{op.name}[{output}]"
    side = SIDES.get(op.name, "learning")
    return {
        "op": op.name,
        "name": name,
        "side": side,
        "steps": steps,
        "size": shape[0] if shape else 1,
    }


def _statements(code: str) -> list[int]:
    """The lines that execute something."""
    heads = ("for ", "if ", "elif ", "else:", "pass")
    return [k for k, line in enumerate(code.split("\n")) if not line.strip().startswith(heads)]


def _walk(node: Node, env: dict[str, int]) -> Iterator[tuple[Leaf, dict[str, int]]]:
    """Like `mmrl.pdg.syntax.trace`, but with the statement of each event, and the loop counters."""
    if isinstance(node, Block):
        for child in node.body:
            yield from _walk(child, env)
    elif isinstance(node, If):
        yield from _walk(node.then if node.condition.evaluate(env) else node.orelse, env)
    elif isinstance(node, Loop):
        for count in range(node.start.evaluate(env), node.stop.evaluate(env), node.step):
            yield from _walk(node.body, env | {node.counter: count})
    else:
        yield node, env


def _reads(
    graph: Graph, name: str, point: tuple[int, ...]
) -> Iterator[tuple[tuple[str, int], Any]]:
    """The tensors, and of each the step, that an operation reads at a point."""
    env = graph.ops[name].domain.env(point, BOUNDS)
    for edge in graph.inputs(name):
        if edge.when.evaluate(env):
            for read in reads(edge.index, env):
                yield (edge.source, edge.output), _step(graph, edge.source, read)


def _step(graph: Graph, name: str, point: tuple[int, ...]) -> int | None:
    return _step_of(graph.ops[name], point)


def _step_of(op: Op, point: tuple[int, ...]) -> int | None:
    """The t of a point, if it has one."""
    return dict(zip(op.domain.names, point, strict=True)).get("t")
