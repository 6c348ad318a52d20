"""Explorers of compiled programs, which show a run step by step and the graph after each pass."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import jax
import traitlets
from traitlets import Enum, Int

from mmrl.course.widgets.base import Explorer, source, style
from mmrl.course.widgets.graphs import reinforce
from mmrl.pdg.build.autodiff import gradient
from mmrl.pdg.build.expr import TRUE, min_
from mmrl.pdg.build.graph import Edge, Graph, Op, reads
from mmrl.pdg.build.program import Program
from mmrl.pdg.passes import Stage, fuse, lift_loops, stages, tile, vectorize
from mmrl.pdg.passes.access import shift
from mmrl.pdg.plan.code import Body, Execute, If, Leaf, Loop, Node, leaves, text
from mmrl.pdg.run import Compiled, compile

BOUNDS = {"I": 1, "T": 8}
WINDOW = 3
TILE = 4
PROGRAMS = ("n_step", "monte_carlo", "tiles")
# Group of each operation of REINFORCE. Operations that are not listed are "learning".
SIDES = {"obs": "acting", "act": "acting", "step": "acting", "reset": "acting"}
SIDES |= dict.fromkeys(("start", "params", "last", "w"), "other")


class StepDebugger(Explorer):
    """Debugger that shows one iteration of REINFORCE, with the current line and all tensors.

    `program` selects 3-step returns ("n_step"), Monte Carlo returns ("monte_carlo"), or learning
    from 3-step returns in tiles of 4 steps ("tiles"). An episode has 8 steps. `moment` is the index
    of an event, in which an operation runs or a tensor is freed. `programs` contains the code and
    the events of all programs. Compiling them takes about a second when the first debugger is
    created.
    """

    _esm = source("step_debugger")
    _css = style()
    program = Enum(PROGRAMS, "n_step").tag(sync=True)
    moment = Int(47, min=0).tag(sync=True)
    programs = traitlets.Dict().tag(sync=True)

    @traitlets.default("programs")
    def _programs(self) -> dict[str, Any]:
        return programs()


class GraphEvolution(Explorer):
    """Explorer for the dependence graph of REINFORCE after each pass of the compiler.

    The returns are "recursive", r[t] + γ G[t + 1], or computed over a "window" of 3 steps. The
    passes are lift, then "tile" (by 4) or "vectorize" as `route` selects, and then fuse. `stage` is
    the number of finished passes. `op` is the index of the selected operation, counted from the
    top. `graphs` contains all stages, which are computed when the first explorer is created.
    """

    _esm = source("graph_evolution")
    _css = style()
    returns = Enum(("recursive", "window"), "recursive").tag(sync=True)
    route = Enum(("tile", "vectorize"), "tile").tag(sync=True)
    stage = Int(1, min=0, max=3).tag(sync=True)
    op = Int(8, min=0).tag(sync=True)
    graphs = traitlets.Dict().tag(sync=True)

    @traitlets.default("graphs")
    def _graphs(self) -> dict[str, Any]:
        return graphs()


@cache
def compile_named(name: str) -> Compiled:
    """Compile the program with a name in `PROGRAMS`."""
    if name == "tiles":
        return compile(reinforce(WINDOW), {"tile": lambda graph: tile(graph, "t", TILE)})
    return compile(reinforce(WINDOW if name == "n_step" else None), {})


@cache
def programs() -> dict[str, Any]:
    """Return the code, the tensors and the events of every program, as JSON values."""
    return {"steps": BOUNDS["T"]} | {name: _program(compile_named(name)) for name in PROGRAMS}


def _program(result: Compiled) -> dict[str, Any]:
    graph = result.graph
    tensors = [(op.name, k) for op in graph.ops.values() for k in range(len(op.outputs))]
    place = {tensor: number for number, tensor in enumerate(tensors)}

    def event(leaf: Leaf, env: dict[str, int], line: int) -> list[Any]:
        point = tuple(int(index.evaluate(env)) for index in leaf.point)
        counters = {name: count for name, count in env.items() if name not in BOUNDS}
        if not isinstance(leaf, Execute):
            return [line, counters, place[leaf.tensor], _step(graph, leaf.tensor[0], point)]
        reads = [[place[tensor], t] for tensor, t in _reads(graph, leaf.op, point)]
        return [line, counters, leaf.op, _step(graph, leaf.op, point), reads]

    code = text(result.tree, several=[op.name for op in graph.ops.values() if len(op.outputs) > 1])
    lines = dict(zip(map(id, leaves(result.tree)), _statements(code), strict=True))
    events = [event(leaf, env, lines[id(leaf)]) for leaf, env in _walk(result.tree, BOUNDS)]
    rows = [_tensor(graph.ops[op], k) for op, k in tensors]
    return {"code": code, "tensors": rows, "events": events}


def _tensor(op: Op, output: int) -> dict[str, Any]:
    """Describe a tensor by its steps (None if it has no step) and its number of entries."""
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
    """Return the indices of the lines that contain a statement, without loops and conditions."""
    heads = ("for ", "if ", "elif ", "else:", "pass")
    return [k for k, line in enumerate(code.split("\n")) if not line.strip().startswith(heads)]


def _walk(node: Node, env: dict[str, int]) -> Iterator[tuple[Leaf, dict[str, int]]]:
    """Yield the statements that a run executes, each with the values of the loop counters."""
    if isinstance(node, Body):
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
    """Yield each tensor that an operation reads at a point, with the step that it reads."""
    env = graph.ops[name].domain.env(point, BOUNDS)
    for edge in graph.inputs(name):
        if edge.when.evaluate(env):
            for read in reads(edge.index, env):
                yield (edge.source, edge.output), _step(graph, edge.source, read)


def _step(graph: Graph, name: str, point: tuple[int, ...]) -> int | None:
    return _step_of(graph.ops[name], point)


def _step_of(op: Op, point: tuple[int, ...]) -> int | None:
    """Return the value of t at a point, or None if the operation does not depend on t."""
    return dict(zip(op.domain.names, point, strict=True)).get("t")


def learner(returns: str) -> Graph:
    """Build REINFORCE with gradients by automatic differentiation and placeholder functions."""
    p = Program("i", "t")
    (i, t), (I, T) = p.symbols, p.bounds  # noqa: E741
    w, obs = p.tensor(i, name="w"), p.tensor(i, t, name="obs")
    w[0] = p.constant(1.0, "start")
    obs[i, 0] = p.sample(jax.random.normal, over=(i,), name="reset")
    act = p.fn(lambda w, o: (w * o > 0).astype(int), w, obs, name="act")
    after, reward = p.fn(lambda o, a: (0.9 * o + a, -o), obs, act, name="step")
    obs[i, t + 1] = after
    if returns == "window":
        ret = p.apply("discounted_sum", reward[i, t : min_(t + WINDOW, T)], name="ret", gamma=0.9)
    else:
        ret = p.tensor(i, t, name="ret")
        ret[i, T - 1] = reward[i, T - 1]
        ret[i, t] = reward + 0.9 * ret[i, t + 1]
    log_prob = p.fn(lambda w, o, a: -((a - w * o) ** 2), w, obs, act, name="log_prob")
    loss = (-log_prob * ret.detach())[i, 0:T].mean()
    update = p.fn(
        lambda w, grad: w - 0.1 * grad, w, gradient(loss, w, recompute=True), name="update"
    )
    w[i + 1] = update
    return p.graph(update[I - 1].read("last"))


@cache
def evolution(returns: str, route: str) -> list[Stage]:
    """Return the stages of a compilation with three passes."""
    third = {"tile": lambda graph: tile(graph, "t", TILE), "vectorize": lambda g: vectorize(g, "t")}
    passes = {"lift": lambda graph: lift_loops(graph, "t"), route: third[route], "fuse": fuse}
    return stages(learner(returns), passes)


@cache
def graphs() -> dict[str, Any]:
    """Return the stages for all options, as JSON values.

    For each kind of returns, "before" contains the stages that both routes share, and the name of
    a route contains its later stages.
    """
    stages = {}
    for returns in ("recursive", "window"):
        ways = {route: evolution(returns, route) for route in ("tile", "vectorize")}
        stages[returns] = {route: [_stage(each) for each in way[2:]] for route, way in ways.items()}
        stages[returns]["before"] = [_stage(each) for each in ways["tile"][:2]]
    return stages


def _stage(stage: Stage) -> dict[str, Any]:
    graph = stage.graph
    ops = [
        [op.name, op.kind, str(op.domain), SIDES.get(op.name, "learning")]
        for op in graph.ops.values()
    ]
    edges = [_edge(graph, edge) for edge in graph.edges]
    return {"name": stage.name, "words": list(stage.words), "ops": ops, "edges": edges}


def _edge(graph: Graph, edge: Edge) -> list[Any]:
    """Encode an edge as a list of JSON values."""
    names = graph.ops[edge.source].domain.names
    away = [shift(part, name) for part, name in zip(edge.index, names, strict=True)]
    phi, psi = ", ".join(map(str, edge.index)), "" if TRUE.same(edge.when) else str(edge.when)
    same, loop = all(far == 0 for far in away), any(far for far in away)
    return [edge.sink, edge.source, edge.output, phi, psi, same, loop]
