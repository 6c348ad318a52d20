"""Values of a program after data have ended a dimension d (`Program.until`).

After the end of d, an operation with `when` returns its `otherwise` or zeros, so values soon stop
changing: x[t + 1] = y[t] and y[t] = x[t] imply y[t + 1] = y[t]. For each tensor, `Tails` proves
from which point its value is constant, or raises `Obstacle`. An operation without `when` is also
constant if all its inputs are constant and it does not use the counter of d.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.interpreters import partial_eval

from mmrl.pdg.build.expr import Expr, Slice
from mmrl.pdg.build.graph import Domain, Edge, Graph, Op, Output
from mmrl.pdg.build.ops import plus
from mmrl.pdg.build.sets import always, never
from mmrl.pdg.clean import phi
from mmrl.pdg.passes.access import cycles, shift
from mmrl.pdg.plan.account import ReadTable
from mmrl.pdg.plan.cost import jaxpr_of

# Operations that return zeros if all their inputs are zero.
_ROWS = {"add", "sub", "mul", "abs", "sqrt", "tanh", "relu", "cast", "reshape", "transpose"}
_ROWS |= {"expand_dims", "squeeze", "sum", "discounted_sum", "cumsum", "flip"}


class Tail(NamedTuple):
    """Range of points along d where a tensor is constant.

    The range begins `low` points after the end of d, which is the first point where `alive` is
    false, and ends `high` points before T - 1.
    """

    low: int = 0
    high: int = 0

    def join(self, other: "Tail") -> "Tail":
        """Return the range where both tensors are constant."""
        return Tail(max(self.low, other.low), max(self.high, other.high))

    def read(self, away: int) -> "Tail":
        """Return the range where a read at a distance of `away` points is constant.

        No margin is needed for reads beyond the ends of d, because they do not occur.
        """
        return Tail(self.low - away, max(0, self.high + away) if self.high else 0)


class Obstacle(ValueError):
    """Error that explains why a loop must run to its bound."""


def ends(graph: Graph) -> dict[str, str]:
    """Map each operation created by `Program.until` to the dimension that it ends."""
    return {name: op.params["ends"] for name, op in graph.ops.items() if "ends" in op.params}


class Tails:
    """Analysis of a graph's values after `alive` becomes false along the dimension `name`."""

    def __init__(self, table: ReadTable, alive: str, name: str):
        self.table, self.graph = table, table.graph
        self.alive, self.name = alive, name
        self.outer = set(self.graph.ops[alive].domain.names) - {name}
        self._zeros: dict[Output, Tail | None] = {}
        source = (edge for edge in self.graph.inputs(alive) if self.over(edge.source))
        steps = {edge.tensor: self.step(edge) for edge in source}
        self._ending = {x: Tail(step) for x, step in steps.items() if step is not None}
        loops = (loop for loop in cycles(self.graph, name) if all(map(self._rises, loop.edges)))
        self._backward = {op for loop in loops for op in loop.ops}
        self._tails: dict[Output, Tail | Obstacle] = {}

    def over(self, name: str) -> bool:
        """Return True if an operation has the dimension d."""
        return self.name in self.graph.ops[name].domain.names

    def _rises(self, edge: Edge) -> bool:
        """Return True if an edge reads the same or a later point of d."""
        step = self.step(edge) if self.over(edge.sink) and self.over(edge.source) else None
        return step is not None and step >= 0

    def step(self, edge: Edge) -> int | None:
        """Return c if an edge reads at d + c, at the same point otherwise; else None."""
        at = phi(self.graph, edge)
        return shift(at[self.name], self.name) if self._here(at, self.outer) else None

    def _here(self, at: Mapping[str, Expr], names: Any) -> bool:
        return all(name in at and str(at[name]) == name for name in names)

    def guard(self, op: Op) -> int | None:
        """Return the number of points after the end at which an operation stops running, or None.

        The result is None for an operation without `when`, and if there is no proof that `when` is
        false from there through T - 1.
        """
        inputs = self.graph.inputs(op.name)
        if op.kind == "vjp" and "rest" in op.params:
            place = op.params["read"].index(0) if 0 in op.params["read"] else None
            forward = self.graph.ops.get(op.params["of"])
            if place is None and forward is not None and forward.domain == op.domain:
                return self.guard(forward)
        else:
            place = (1 if op.kind == "host" else 0) if "when" in op.params else None
        zero = None if place is None else self.zero_read(inputs[place])
        return None if zero is None or zero.high else zero.low

    def idle(self, edge: Edge) -> int | None:
        """Return the number of points after the end at which an edge's value becomes unused.

        The result is None if the value cannot be proved to become unused.
        """
        op = self.graph.ops[edge.sink]
        if not self.over(edge.sink) or op.run is None or self._is_used_if_skipped(op, edge.input):
            return None
        return self.guard(op)

    def _is_used_if_skipped(self, op: Op, place: int) -> bool:
        """Return True if an operation uses this input even if it is skipped.

        These inputs are its `when`, and the values that it returns instead of results.
        """
        if op.kind == "vjp":
            count = len(self.graph.inputs(op.name)) - len(op.params["outputs"])
            return place >= count or op.params["read"][place : place + 1] == (0,)
        return place <= op.params.get("when", 0) + (op.kind == "host")

    def _first_skip(self, tensor: Output) -> int | None:
        """Return how many points after the end a tensor is no longer computed, or None.

        A skipped operation returns `otherwise`, a cotangent or zeros instead.
        """
        op = self.graph.ops[tensor[0]]
        is_residual = tensor[1] >= op.params.get("plain", len(op.outputs))
        return None if op.kind == "host" or is_residual else self.guard(op)

    def _fallback(self, tensor: Output) -> int | None:
        """Return the index of the input that a skipped operation returns, or None for zeros."""
        op, output = self.graph.ops[tensor[0]], tensor[1]
        if op.kind == "vjp":
            place, outputs = op.params["wrt"][output], op.params["outputs"]
            if 1 <= place <= op.params["rest"] and place - 1 in outputs:
                return len(self.graph.inputs(op.name)) - len(outputs) + outputs.index(place - 1)
            return None
        return 1 + output if output < op.params["when"] else None

    def zero_read(self, edge: Edge) -> Tail | None:
        """Return the range of d where all values read along an edge are zero, or None."""
        if not self.over(edge.source):
            return Tail(-1) if self._is_zeros(self.graph.ops[edge.source]) else None
        at = phi(self.graph, edge)
        part = at[self.name]
        zero = self.zero(edge.tensor) if self._here(at, self.outer) else None
        if zero is None or not isinstance(part, Slice):
            away = shift(part, self.name)
            if zero and away is None and part.same(self._bound - 1) and not zero.high:
                return zero
            return None if zero is None or away is None else zero.read(away)
        away = shift(part.lo, self.name)
        return None if away is None or zero.high else Tail(zero.low - away)

    def _is_zeros(self, op: Op) -> bool:
        if op.kind != "constant" or op.domain.names or op.run is None:
            return False
        values = map(np.asarray, jax.tree.leaves(op.run(dict(self.table.bounds))))
        return not any(x.any() or (x.dtype.kind == "f" and np.signbit(x).any()) for x in values)

    def zero(self, tensor: Output) -> Tail | None:
        """Return the range of d where a tensor is zero, or None."""
        if tensor in self._zeros:
            return self._zeros[tensor]
        # If a tensor depends on itself only at later points, assume that it is zero there. The
        # assumption is confirmed if it implies that the tensor is zero at this point too.
        guess = Tail() if tensor[0] in self._backward else None
        before = dict(self._zeros)
        while True:
            self._zeros = before | {tensor: guess}
            zero = self._zero(tensor)
            if guess is None or zero == guess:
                self._zeros[tensor] = zero
                return zero
            guess = zero if zero is not None and not zero.high else None

    def _zero(self, tensor: Output) -> Tail | None:
        op, inputs = self.graph.ops[tensor[0]], self.graph.inputs(tensor[0])
        if op.name == self.alive:
            return Tail()
        if tensor in self._ending:
            return self._ending[tensor]
        if (begin := self._first_skip(tensor)) is not None:
            place = self._fallback(tensor)
            more = Tail(begin) if place is None else self.zero_read(inputs[place])
            return None if more is None else more.join(Tail(begin, 0))
        if op.run is None:
            return self._zero_branches(op, inputs)
        zeros = [self.zero_read(edge) for edge in inputs]
        tails = [zero for zero in zeros if zero is not None]
        if op.kind == "bitwise_and" and tails:
            return min(tails)
        numbers = [number for _, number in op.params.get("numbers", ())]
        sums = op.params.get("f") is plus or op.kind in ("read", "view")
        sums |= op.kind in _ROWS and (op.kind == "mul" or not numbers) and min([0, *numbers]) == 0
        return functools.reduce(Tail.join, tails) if sums and len(tails) == len(inputs) else None

    def _zero_branches(self, op: Op, inputs: Sequence[Edge]) -> Tail | None:
        """Return the range of d where a merge is zero, possibly without the last point."""
        zeros = {edge: self.zero_read(edge) for edge in inputs}
        for high in (0, 1):
            branches = [e for e in inputs if not never(e.when, self._inner(op, high))]
            tails = [zero for e in branches if (zero := zeros[e]) is not None]
            if len(tails) == len(branches):
                return functools.reduce(Tail.join, tails, Tail(0, high))
        return None

    def _inner(self, op: Op, high: int) -> Domain:
        """Return the points that may come after the end, without the last `high` points.

        The first point is excluded, because a dimension has at least one step.
        """
        inside = (self._symbol >= 1) & (self._symbol < self._bound - high)
        return op.domain.restrict(inside)

    @property
    def _bound(self) -> Any:
        dims = {dim.name: dim.bound for dim in self.graph.ops[self.alive].domain}
        return dims[self.name]

    @property
    def _symbol(self) -> Any:
        dims = {dim.name: dim.symbol for dim in self.graph.ops[self.alive].domain}
        return dims[self.name]

    def tail(self, tensor: Output) -> Tail:
        """Return the range where a tensor is constant. Raises `Obstacle` without a proof."""
        if tensor not in self._tails:
            reason = f"{tensor[0]} depends on itself other than through `otherwise`"
            self._tails[tensor] = Obstacle(reason)
            try:
                self._tails[tensor] = self._tail(tensor)
            except Obstacle as obstacle:
                self._tails[tensor] = obstacle
        result = self._tails[tensor]
        if isinstance(result, Obstacle):
            raise result
        return result

    def _tail(self, tensor: Output) -> Tail:
        chain: dict[Output, int] = {}
        at, most, adds = 0, Tail(-1), False
        while True:
            if (zero := self.zero(tensor)) is not None:
                return most.join(zero.read(at))
            if tensor in chain:
                away = at - chain[tensor]
                if abs(away) != 1:
                    raise Obstacle(f"{tensor[0]} copies a value from {away} steps away")
                # The first copy equals the value that it copies, so the range includes the point of
                # this value, unless zeros are added to the copies, because -0 + 0 is 0.
                less = 0 if adds else 1
                return Tail(most.low - less * (away < 0), most.high - less * (away > 0))
            chain[tensor] = at
            alias = self._alias(tensor)
            if alias is None:
                own = self._tail_of_result(tensor)
                return most.join(own.read(at))
            edge, where = alias
            adds |= self.graph.ops[tensor[0]].params.get("f") is plus
            most = most.join(where.read(at))
            if not self.over(edge.source):
                return most
            part = phi(self.graph, edge)[self.name]
            if self.name not in part.symbols():
                return most
            away = self.step(edge)
            if away is None:
                raise Obstacle(f"{edge} is not a read at a fixed distance")
            tensor, at = edge.tensor, at + away

    def _alias(self, tensor: Output) -> tuple[Edge, Tail] | None:
        """Return the edge that an operation copies after the end, and the range of the copies."""
        op, inputs = self.graph.ops[tensor[0]], self.graph.inputs(tensor[0])
        begin, place = self._first_skip(tensor), None
        where = Tail(begin or 0)
        if op.run is None:
            return self._branch(op, inputs)
        if begin is not None:
            place = self._fallback(tensor)
        elif op.params.get("f") is plus:
            zeros = [self.zero_read(edge) for edge in inputs]
            rest = [k for k, zero in enumerate(zeros) if zero is None]
            place = rest[0] if len(rest) == 1 else None
            where = functools.reduce(Tail.join, (zero for zero in zeros if zero), Tail(-1))
        elif op.kind in ("read", "view"):
            place, where = (tensor[1] if op.kind == "view" else 0), Tail(-1)
        whole = place is not None and place in op.params.get("aligned", (place,))
        if place is None or not whole or not self._copies(inputs[place]):
            return None
        return inputs[place], where

    def _branch(self, op: Op, inputs: Sequence[Edge]) -> tuple[Edge, Tail] | None:
        """Return the branch that a merge takes after the end, and the range where it takes it.

        At the last point of d, the merge may take another branch.
        """
        for high in (0, 1):
            for edge in inputs:
                if self._copies(edge) and always(edge.when, self._inner(op, high)):
                    return edge, Tail(0, high)
        return None

    def _copies(self, edge: Edge) -> bool:
        """Return True if an edge reads a single value, at the same point except along d."""
        at = phi(self.graph, edge)
        return not edge.slices and self._here(at, at.keys() - {self.name})

    def _tail_of_result(self, tensor: Output) -> Tail:
        """Return the tail of an operation's result, given the tails of its inputs."""
        op = self.graph.ops[tensor[0]]
        if op.kind == "host":
            if (begin := self.guard(op)) is None:
                raise Obstacle(f"{op.name} is called at every point, because no `when` stops it")
            return Tail(begin)  # the first output only counts calls
        if op.run is None:
            raise Obstacle(f"no branch of {op.name} is taken at all points after the end")
        if self.name in used_symbols(self.table, op):
            raise Obstacle(f"{op.name} depends on {self.name} and has no `when`")
        tail = Tail(-1)
        for edge in self.graph.inputs(op.name):
            at = phi(self.graph, edge)
            if not any(self.name in part.symbols() for part in at.values()):
                continue
            if (zero := self.zero_read(edge) if self.over(edge.source) else None) is not None:
                tail = tail.join(zero)
                continue
            away = self.step(edge) if self.over(edge.source) else None
            if away is None or len([p for p in at.values() if self.name in p.symbols()]) > 1:
                raise Obstacle(f"{edge} is not a read at a fixed distance")
            tail = tail.join(self.tail(edge.tensor).read(away))
        return tail


def used_symbols(table: ReadTable, op: Op) -> set[str]:
    """Return the dimensions whose counters an operation uses."""
    if op.kind in ("input", "host"):
        return set(op.domain.names)
    jaxpr = jaxpr_of(table, op)
    _, mask = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    # The counters are the first arguments, sorted by name.
    return {name for name, yes in zip(sorted(op.domain.names), mask, strict=False) if yes}
