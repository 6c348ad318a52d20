"""Loops that skip iterations after data have ended their dimension d (`Program.until`).

Once all values of a loop that are used later have stopped changing (`tails`), the loop skips the
remaining iterations, and the slots that they would have written are filled with one value. A loop
that runs forward stops. A loop that runs backward, such as the loop of a gradient, runs its first
iterations, at the largest points of d, and then continues at points before the end. All results are
bitwise equal to the results of loops without skips, even at points after the end.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from mmrl.pdg.build.expr import Expr, as_expr, structure
from mmrl.pdg.build.graph import Op, Output
from mmrl.pdg.plan.account import ReadTable
from mmrl.pdg.plan.layout import Layout, Place, Ring
from mmrl.pdg.plan.tails import Obstacle, Tail, Tails, ends
from mmrl.pdg.run.lowering import Do, Node, Repeat, Table, executions
from mmrl.pdg.run.rings import repeat

Buffers = dict[Output, PyTree]

NEVER = 2**30
"""End of a dimension that has not ended yet, which is later than any point."""
END = -1
"""Pseudo output index of the buffer that stores the point at which `alive` became false."""


@dataclasses.dataclass(frozen=True, eq=False)
class Fill:
    """Slots of a root that the skipped iterations would have written.

    `last[k]` is the last coordinate along the root's `axis` that iterations before k have written.
    `point` contains an expression for each axis that is constant in the loop, and None for the
    others. The slots are filled with the value at the last coordinate, or with zeros if `zeros`.
    """

    root: Output
    axis: int
    last: np.ndarray
    point: tuple[Expr | None, ...]
    zeros: bool


@dataclasses.dataclass(frozen=True, eq=False)
class Skip:
    """Rule that selects the iterations to skip, in the range from `first` to `stop`.

    Iteration k may be skipped if `until[k]` is at or after the end of d, and no condition in
    `unless` holds. A `forward` loop skips the last iterations of the range, and a backward loop the
    first. `end` is the key of the buffer that stores the most recent end.
    """

    end: Output
    forward: bool
    first: int
    stop: int
    until: np.ndarray
    unless: tuple[Expr | Table, ...]
    fills: tuple[Fill, ...]


def skips(
    nodes: Sequence[Node], table: ReadTable, layout: Layout, stored: set[Output]
) -> tuple[dict[Repeat, Skip], list[str]]:
    """Return the loops of a plan that skip iterations, and a sentence about each loop over d."""
    rules: dict[Repeat, Skip] = {}
    words: list[str] = []
    arrays = {op.params["over"] for op in table.graph.ops.values() if "over" in op.params}
    for alive, name in ends(table.graph).items():
        is_whole = table.graph.ops[alive].run is not None or name not in table.names[alive]
        if name in arrays or is_whole:
            words.append(f"{name} is an axis of arrays, so steps after {alive} ends it also run")
        elif layout.places[alive, 0].root != (alive, 0):
            words.append(f"{alive} is stored in another tensor, so {name} runs to its bound")
        else:
            loops = _Loops(Tails(table, alive, name), layout, stored, rules, words)
            loops.visit(nodes, None)
    return rules, words


class _Row(NamedTuple):
    """Execution in a loop, with its smallest and largest coordinate along d per iteration."""

    do: Do
    low: np.ndarray
    high: np.ndarray


class _Loops:
    """Analysis of the loops of a plan with respect to one `alive`."""

    def __init__(
        self,
        tails: Tails,
        layout: Layout,
        stored: set[Output],
        rules: dict[Repeat, Skip],
        words: list[str],
    ):
        self.tails, self.table = tails, tails.table
        self.layout, self.stored = layout, stored
        self.rules, self.words = rules, words
        self.root = layout.places[tails.alive, 0].root

    def visit(self, nodes: Sequence[Node], last_end: Any) -> None:
        """Choose a rule for each loop in `nodes`, outer loops first.

        `last_end` is the point, in the dimensions of `alive` except d, whose loop over d was the
        last to end, or None if it is unknown.
        """
        for node in nodes:
            writers = [do for do in executions([node]) if self._writes(do)]
            skip = self._decide(node, last_end) if isinstance(node, Repeat) else None
            if writers:
                last_end = None if skip is None else self._outer(writers[0])

    def _decide(self, node: Repeat, last_end: Any) -> Skip | None:
        """Choose a rule for a loop, or for the loops inside it if it must run to its bound."""
        writes, skip = any(map(self._writes, executions([node]))), None
        try:
            skip = None if node in self.rules else self._skip(node, writes, last_end)
        except Obstacle as obstacle:
            self._report(node, f"runs to its bound: {obstacle}")
        if skip is None:
            same = not writes and node.counter not in _names(last_end or ())
            self.visit(node.body, last_end if same else None)
        else:
            self.rules[node] = skip
            self._report(node, f"skips the steps after {self.tails.alive} ends it")
        return skip

    def _report(self, node: Repeat, text: str) -> None:
        names = list(dict.fromkeys(do.op.name for do in executions([node])))
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        self.words.append(f"the loop over {self.tails.name} of {', '.join(names[:3])}{more} {text}")

    def _writes(self, do: Do) -> bool:
        """Return True if an execution writes to the storage of `alive`."""
        places = (self.layout.places[x] for x in self.table.outputs[do.op.name])
        return any(place.root == self.root for place in places)

    def _outer(self, do: Do) -> tuple[Expr, ...]:
        """Return the point of an execution in the dimensions of `alive` except d."""
        at = dict(zip(do.op.domain.names, do.point, strict=True))
        return tuple(at[name] for name in sorted(self.tails.outer))

    def _skip(self, node: Repeat, writes: bool, last_end: Any) -> Skip | None:
        """Return the iterations that a loop skips, or None if it is not over d."""
        rows, always, unless = self._rows(node)
        if not rows:
            return None
        ways = {_way(row) for row in rows} - {0}
        if len(ways) > 1:
            raise Obstacle(f"it moves along {self.tails.name} in both directions")
        (way,) = ways
        if writes and way < 0:
            raise Obstacle(f"it computes {self.tails.alive} backward")
        inner = {node.counter, *(each.counter for each in repeats(node.body))}
        outer = {structure(self._outer(row.do)) for row in rows}
        alone = len(outer) == 1 and not _names(self._outer(rows[0].do)) & inner
        alone &= writes or outer == {structure(last_end)}
        if not alone:
            raise Obstacle("another iteration of an outer loop may end at a later step")
        members, length = {row.do.op.name for row in rows}, len(rows[0].low)
        margins = [self._margins(row.do.op, members, way) for row in rows]
        # If `high` is positive, the iterations after the skipped ones still run.
        if way > 0 and any(high for _, high in margins):
            margins = [self._margins(row.do.op, set(), way) for row in rows]
        until, first, stop = np.where(always, -1, NEVER), 1, length
        for row, (low, high) in zip(rows, margins, strict=True):
            until = np.minimum(until, np.where(_runs(row), row.low - low, NEVER))
            first = max(first, self._begin(row, high, way))
            if way > 0 and high:
                stop = min(stop, int(np.argmax(row.high >= self._bound(row) - high)))
        if first >= stop:
            return None
        until[:first], until[stop:] = -1, -1
        end, fills = (self.tails.alive, END), self._fills(rows, inner, way)
        return Skip(end, way > 0, first, stop, until, unless, fills)

    def _bound(self, row: _Row) -> int:
        op = row.do.op
        return self.table.extents[op.name][op.domain.names.index(self.tails.name)]

    def _rows(self, node: Repeat) -> tuple[list[_Row], np.ndarray, tuple[Any, ...]]:
        """Return (rows, iterations, conditions) of a loop over d.

        The rows describe executions along d. `iterations` is a mask, and `conditions` are numbers:
        in these iterations, or where one of these numbers is positive, the loop also executes other
        operations. There are no rows if the loop is not over d.
        """
        bounds, name, rows = self.table.bounds, self.tails.name, []
        turns, unless = np.arange(_number(node.number, bounds)), []
        always = np.zeros(turns.shape, bool)
        if len(turns) < 2 or not _is_known(bounds, node.start, node.step):
            return [], always, ()
        start, step = (np.asarray(x.evaluate(bounds)) for x in (node.start, node.step))
        here = {**bounds, node.counter: start + turns * step}
        for do, cases in _walk(node.body, [Case(here, turns >= 0, ())]):
            names, conditions = do.op.domain.names, [x for case in cases for x in case.unless]
            sure = not conditions and {name, *self.tails.outer} <= {*names}
            at = do.point[names.index(name)] if sure else None
            if at is None or not all(_is_known(case.env, at) for case in cases):
                if conditions:
                    unless += conditions
                else:
                    always |= np.any([case.runs for case in cases], 0)
                continue
            points = [np.broadcast_to(at.evaluate(case.env), turns.shape) for case in cases]
            lows, highs = (
                [np.where(case.runs, p, rest) for p, case in zip(points, cases, strict=True)]
                for rest in (NEVER, -1)
            )
            rows.append(_Row(do, np.min(lows, 0), np.max(highs, 0)))
        moves = any(len(set(row.low[_runs(row)])) > 1 for row in rows)
        inner = {each.counter for each in repeats(node.body)}
        if moves and (always.all() or _names(unless) & inner):
            raise Obstacle("in many steps it also runs operations over different dimensions")
        return rows if moves else [], always, tuple(unless)

    def _margins(self, op: Op, members: set[str], way: int) -> Tail:
        """Return the margins, after the end and before T - 1, in which an operation must run.

        Between the two margins, the values of the operation are unused, are zero, or equal a value
        that was stored earlier.
        """
        margins, spread = Tail(-1), {tensor for tensor, *_ in self._slots(op)}
        for tensor in self.table.outputs[op.name]:
            unused_from = self._unused_from(tensor, members, way, 0, {tensor})
            zero = self.tails.zero(tensor)
            if unused_from is not None:
                one = Tail(unused_from)
            elif zero is not None and (tensor in spread or way < 0):
                one = zero
            else:  # the other values copy the first one, so compute that one
                low, high = zero or self.tails.tail(tensor)
                one = Tail(low + (way > 0), high)
            margins = margins.join(one)
        return margins

    def _unused_from(
        self, tensor: Output, members: set[str], way: int, away: int, visited: set[Output]
    ) -> int | None:
        """Return how far after the end the values of a tensor become unused, or None."""
        if tensor in self.table.graph.results:
            return None
        count = 0
        for edge in self.table.graph.readers(tensor[0]):
            if edge.tensor != tensor or (way > 0 and edge.sink in members):
                continue
            step = self.tails.step(edge) if self.tails.over(edge.sink) else None
            if step is None:
                return None
            copy = edge.sink, 0
            if self.table.graph.ops[edge.sink].run is None:
                if copy in visited:
                    continue
                one = self._unused_from(copy, members, way, away + step, visited | {copy})
            else:
                one = self.tails.idle(edge) if away + step <= 0 else None
            if one is None:
                return None
            count = max(count, one)
        return count

    def _begin(self, row: _Row, high: int, way: int) -> int:
        """Return the first iteration that may be skipped, after one that stores the same value."""
        if way > 0:
            return 1 + int(np.argmax(_runs(row)))
        limit = self._bound(row) - high
        for _, place, axis in self._slots(row.do.op):
            ends = (end for k, end in self.layout.rings[place.root].ends if k == axis)
            limit = min([limit, *(end - place.coordinates[axis][1] for end in ends)])
        ready = row.low < limit
        return 1 + int(np.argmax(ready)) if ready.any() else len(ready)

    def _slots(self, op: Op) -> Iterator[tuple[Output, Place, int]]:
        """Yield the outputs of an operation that are stored in several slots along d."""
        dim = op.domain.names.index(self.tails.name)
        for tensor in self.table.outputs[op.name]:
            place = self.layout.places[tensor]
            slots = self.layout.rings[place.root].slots
            for axis, (j, _) in enumerate(place.coordinates):
                if j == dim and slots[axis] > 1 and place.root in self.stored:
                    yield tensor, place, axis

    def _fills(self, rows: Sequence[_Row], inner: set[str], way: int) -> tuple[Fill, ...]:
        fills: dict[Output, Fill] = {}
        join = np.maximum if way > 0 else np.minimum
        for row in rows:
            for tensor, place, axis in self._slots(row.do.op):
                if any(k != axis for k, _ in self.layout.rings[place.root].ends):
                    raise Obstacle(f"{place.root[0]} is not stored at all its points")
                ends, away = row.high if way > 0 else row.low, place.coordinates[axis][1]
                last = join.accumulate(np.append(-1 if way > 0 else NEVER, ends))
                last = np.where((last < 0) | (last == NEVER), last, last + away)
                point = [as_expr(x) for x in place.at(row.do.point)]
                constants = tuple(None if part.symbols() & inner else part for part in point)
                new = Fill(place.root, axis, last, constants, self.tails.zero(tensor) is not None)
                old = fills.get(place.root, new)
                if new.zeros != old.zeros:
                    raise Obstacle(f"{place.root[0]} is partly zero")
                fills[place.root] = dataclasses.replace(new, last=join(new.last, old.last))
        return tuple(fills.values())


def repeats(nodes: Sequence[Node]) -> Iterator[Repeat]:
    """Yield all loops in a plan."""
    for node in nodes:
        if isinstance(node, Repeat):
            yield node
            yield from repeats(node.body)


class Case(NamedTuple):
    """Values of all counters in each iteration of a loop.

    `runs` is a mask of the iterations in which an inner loop runs at least once. `unless` contains
    the numbers of iterations of inner loops that are only known at run time.
    """

    env: dict[str, Any]
    runs: np.ndarray
    unless: tuple[Expr | Table, ...]


def _walk(nodes: Sequence[Node], cases: list[Case]) -> Iterator[tuple[Do, list[Case]]]:
    """Yield each execution in a loop, with cases for the first and last counters of inner loops."""
    for node in nodes:
        if isinstance(node, Repeat):
            yield from _walk(node.body, [x for case in cases for x in _inside(node, case)])
        else:
            yield node, cases


def _inside(node: Repeat, case: Case) -> Iterator[Case]:
    env, number = case.env, node.number
    if not _is_known(env, node.start, node.step, number):
        yield Case(env, case.runs, (*case.unless, number))
        return
    parts = node.start, node.step, number
    start, step, count = (np.asarray(part.evaluate(env)) for part in parts)
    count = count.astype(int)
    for at in (start, start + (count - 1) * step):
        yield Case({**env, node.counter: at}, case.runs & (count > 0), case.unless)


def _is_known(env: Mapping[str, Any], *parts: Expr | Table) -> bool:
    """Return True if an environment contains all symbols in the expressions."""
    return _names(parts) <= env.keys()


def _names(parts: Iterable[Expr | Table]) -> set[str]:
    """Return all symbols in the expressions."""
    exprs = (part.round if isinstance(part, Table) else part for part in parts)
    return {name for expr in exprs for name in expr.symbols()}


def _number(number: Expr | Table, bounds: Mapping[str, int]) -> int:
    return int(number.evaluate(bounds)) if _is_known(bounds, number) else 0


def _runs(row: _Row) -> np.ndarray:
    return row.low < NEVER


def _way(row: _Row) -> int:
    """Return 1 if an execution's coordinates increase, -1 if they decrease, 0 if constant."""
    low, high = row.low[_runs(row)], row.high[_runs(row)]
    if (low[1:] > high[:-1]).all():
        return int(len(low) > 1)
    if (high[1:] < low[:-1]).all():
        return -1
    raise Obstacle(f"several iterations may run {row.do.op.name} at the same point of its domain")


def run_with_skips(
    skip: Skip,
    turn: Callable[[Any, Buffers], Buffers],
    written: Buffers,
    env: Mapping[str, Any],
    buffers: Buffers,
    rings: Mapping[Output, Ring],
    outer: Callable[[Output], int],
) -> Buffers:
    """Run a loop without its skipped iterations, and fill the slots that they would write.

    `turn(k, written)` runs iteration k and returns the buffers `written` by the loop. `env`
    contains the values of symbols, with the loop's counter at all iterations. `outer` returns the
    number of axes before the axes of a ring.
    """
    turns, until = len(skip.until), jnp.asarray(skip.until, jnp.int32)
    for condition in skip.unless:
        until = jnp.where(jnp.asarray(condition.evaluate(env)) > 0, -1, until)
    some = slice(skip.first, skip.stop)
    until = until.at[some].set(jax.lax.cummin(until[some], reverse=skip.forward))

    def fill_slots(written: Buffers, first: Any, stop: Any) -> Buffers:
        for fill in skip.fills:
            last = jnp.asarray(fill.last, jnp.int32)
            row, past = last[first], last[stop]
            span = (row + 1, past) if skip.forward else (past, row - 1)
            point = [None if x is None else x.evaluate(env) for x in fill.point]
            ring = rings[fill.root]
            value = None if fill.zeros else row
            more = fill.axis, value, span, point, outer(fill.root)
            after = repeat(ring, written[fill.root], *more)
            written = {**written, fill.root: after}
        return written

    def end(written: Buffers) -> Any:
        return latest({**buffers, **written}[skip.end])

    def part(again: Any, state: tuple[Any, Buffers]) -> tuple[Any, Buffers]:
        """Run iterations up to the skipped ones, or all remaining ones if `again`."""

        def continues(k: Any, written: Buffers) -> Any:
            before = until[jnp.minimum(k, turns - 1)] < end(written)
            return (k < turns) & ((again == 1) | before)

        def more(state: tuple) -> tuple:
            k, _, written = state
            written = turn(k, written)
            return k + 1, continues(k + 1, written), written

        begin = (state[0], continues(*state), state[1])
        k, _, written = jax.lax.while_loop(lambda state: state[1], more, begin)
        after = jnp.int32(skip.stop)
        if not skip.forward:
            after = skip.first + (until[some] >= end(written)).sum()
        after = jnp.maximum(k, after)
        return after, fill_slots(written, k, after)

    parts = 1 if skip.forward and skip.stop == turns else 2
    return jax.lax.fori_loop(0, parts, part, (jnp.int32(0), written))[1]


@jax.custom_batching.custom_vmap
def latest(end: Any) -> Any:
    """Return `end`; under `jax.vmap`, return the latest end, so that all loops stop together."""
    return end


@latest.def_vmap
def _latest(size: int, batched: Any, end: Any) -> tuple[Any, bool]:
    return latest(jnp.max(end, 0)), False
