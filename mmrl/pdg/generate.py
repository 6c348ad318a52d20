"""From times to a program: isl scans the plan, and its syntax tree becomes ours.  §6.3."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import islpy as isl

from mmrl.pdg import polyhedra
from mmrl.pdg.expr import Expr, Sym
from mmrl.pdg.frees import Plan
from mmrl.pdg.graph import Graph
from mmrl.pdg.schedule import IN, constant, context, maps, union
from mmrl.pdg.syntax import KINDS, Block, Execute, If, Leaf, Loop, Node, leaves, substitute

Kind, Op = isl.ast_node_type, isl.ast_expr_op_type
NODES = {kind: node for node, kind in KINDS.items()}
Known = Mapping[str, Expr]  # the counters of loops that run once, and their value


def generate(plan: Plan, *, memory: bool = True, readable: bool = False, least: int = 1) -> Block:
    """The plan as a tree of loops, right for all bounds T, I, … of at least `least`.

    `memory`: with frees, offloads and fetches. `readable`: prologue and epilogue become loops of
    their own, so that the steady loop has few conditions, and loops may count down. It is twice as
    much to compile, and many copies unless `least` is larger than every window.
    """
    runs = union(each for each in maps(plan.times) if _kind(plan, each) == "run")
    times = plan.times if memory else runs
    within = context(plan.graph, least, times.get_ctx())
    build = isl.AstBuild.from_context(within).set_options(_options(times, plan.depth, readable))
    tree = build.node_from_schedule_map(times.intersect_params(within))
    return _named(_node(tree, plan, {}), plan.graph, frozenset(plan.graph.bounds), readable)


def _options(times: isl.UnionMap, depth: int, separate: bool) -> isl.UnionMap:
    """Numbers that only order statements are unrolled; loops within another may be separated."""
    loops = [k for k in range(depth) if not constant(times, k)]
    options = {k: "unroll" for k in range(depth) if k not in loops}
    if separate:
        options |= {k: "separate" for k in loops[1:] or loops}
    time = ", ".join(f"c{k}" for k in range(depth))
    parts = "; ".join(f"[{time}] -> {option}[{k}]" for k, option in options.items())
    return isl.UnionMap(f"{{ {parts} }}", context=times.get_ctx())


def _kind(plan: Plan, times: isl.Map) -> str:
    return plan.statements[times.get_tuple_name(IN)].kind


def _node(node: isl.AstNode, plan: Plan, known: Known) -> Block:
    kind = node.get_type()
    if kind == Kind.block:
        children = node.block_get_children()
        several = (children.get_at(k) for k in range(children.n_ast_node()))
        return _joined(_node(child, plan, known) for child in several)
    if kind == Kind.if_:  # pyright: ignore[reportAttributeAccessIssue]
        condition = _expression(node.if_get_cond(), known)
        then = _node(node.if_get_then(), plan, known)
        orelse = _node(node.if_get_else(), plan, known) if node.if_has_else() else Block(())
        return Block((If(condition, then, orelse),))
    if kind == Kind.for_:  # pyright: ignore[reportAttributeAccessIssue]
        return _loop(node, plan, known)
    if kind == Kind.user:
        return Block((_leaf(node.user_get_expr(), plan, known),))
    raise NotImplementedError(f"isl made a node of kind {kind}")


def _loop(node: isl.AstNode, plan: Plan, known: Known) -> Block:
    counter = node.for_get_iterator().get_id().get_name()
    start = _expression(node.for_get_init(), known)
    if node.for_is_degenerate():
        return _node(node.for_get_body(), plan, {**known, counter: start})
    condition = node.for_get_cond()  # counter < stop, or counter <= last
    stop = _expression(condition.get_op_arg(1), known)
    stop = polyhedra.following(stop) if condition.get_op_type() == Op.le else stop
    step = node.for_get_inc().get_val().to_python()
    return Block((Loop(counter, start, stop, step, _node(node.for_get_body(), plan, known)),))


def _leaf(call: isl.AstExpr, plan: Plan, known: Known) -> Leaf:
    name, *point = (call.get_op_arg(k) for k in range(call.get_op_n_arg()))
    statement = plan.statements[name.get_id().get_name()]
    where = tuple(_expression(one, known) for one in point)
    tensor = (statement.op, statement.output)
    return NODES[statement.kind](statement.op if statement.kind == "run" else tensor, where)


def _expression(node: isl.AstExpr, known: Known) -> Expr:
    return polyhedra.to_expr(node).substitute(known)


def _joined(blocks: Iterable[Block]) -> Block:
    return Block(tuple(child for block in blocks for child in block.body))


def _named(node: Node, graph: Graph, taken: frozenset[str], down: bool) -> Any:
    """The tree with each counter named after the symbol that it counts, where that is clear.

    It counts t if the operations in the loop run at points whose t is the counter plus a number.
    With `down`, a loop in which it is a number minus the counter is turned around.
    """
    if isinstance(node, Block):
        return Block(tuple(_named(child, graph, taken, down) for child in node.body))
    if isinstance(node, If):
        then, orelse = (_named(part, graph, taken, down) for part in (node.then, node.orelse))
        return If(node.condition, then, orelse)
    if not isinstance(node, Loop):
        return node
    counted = set(_counted(node, graph))
    sign, name = counted.pop() if len(counted) == 1 else (0, "")
    if not sign or name in taken or (sign < 0 and not down):
        sign, name = 1, node.counter
    body = substitute(node.body, {node.counter: Sym(name) * sign})
    body = _named(body, graph, taken | {name}, down)
    return Loop(name, node.start * sign, node.stop * sign, node.step * sign, body)


def _counted(loop: Loop, graph: Graph) -> Iterator[tuple[int, str]]:
    """Ways of the counter for each statement in the loop: up (1) or down (-1)."""
    counter = Sym(loop.counter)
    for leaf in leaves(loop.body):
        op = leaf.op if isinstance(leaf, Execute) else leaf.tensor[0]
        for dim, index in zip(graph.ops[op].domain, leaf.point, strict=True):
            if loop.counter in index.symbols():
                up, down = not (index - counter).symbols(), not (index + counter).symbols()
                yield (int(up) - int(down), dim.name)
