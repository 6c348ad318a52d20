"""Every drawn program means one thing in every order and executor, or none of them takes it.

`MMRL_PROGRAMS=500` draws that many in each part in place of the usual number, and `MMRL_PARTS=16`
has as many parts as there are processors, say, each with programs of its own.
"""

import collections
import dataclasses
import itertools
import os
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st

from mmrl.pdg.build.autodiff import gradient
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.clean.validate import check_bounds
from mmrl.pdg.passes import fuse, lift_loops, recompute, tile, vectorize
from mmrl.pdg.passes.choose import Choice
from mmrl.pdg.passes.folds import folds
from mmrl.pdg.plan.account import HOST
from mmrl.pdg.plan.alive import Peak
from mmrl.pdg.plan.swap import Swap
from mmrl.pdg.run import compile
from mmrl.pdg.run.naive import execute
from tests.helpers.pdg_programs import (
    DATA,
    ORIGIN,
    Draw,
    Hand,
    Illegal,
    Leaf,
    Merge,
    Missing,
    Pair,
    Places,
    Read,
    build,
    drawn_programs,
    large,
)

NUMBER = int(os.environ.get("MMRL_PROGRAMS", "9"))
PARTS = int(os.environ.get("MMRL_PARTS", "2"))
Pass = Callable[[Graph], tuple[Graph, list[str]]]


def along(transform: Callable[..., tuple[Graph, list[str]]], d: str, *args: Any, **kw: Any) -> Pass:
    """A pass over a dimension, where the graph has that."""

    def run(graph: Graph) -> tuple[Graph, list[str]]:
        has = {name for op in graph.ops.values() for name in op.domain.names}
        return transform(graph, d, *args, **kw) if d in has else (graph, [])

    return run


PASSES: dict[str, Callable[[str], Pass]] = {
    "lift": lambda d: along(lift_loops, d, when="always"),
    "lift if it pays": lambda d: along(lift_loops, d),
    "vectorize": lambda d: along(vectorize, d),
    "tile by 2": lambda d: along(tile, d, 2),
    "tile by 3": lambda d: along(tile, d, 3),
    "fuse": lambda d: fuse,
    "recompute": lambda d: recompute,
}
A_PASS = st.tuples(st.sampled_from([*PASSES]), st.sampled_from("ttib"))
STEPS = st.lists(A_PASS, min_size=1, max_size=3)
# As it is, after passes that are drawn, or after those that are chosen; and by which executors.
BOTH = ("xla", "jax", "numpy")
WAYS = [("drawn", BOTH), ("none", ("xla",)), ("chosen", BOTH), ("drawn", ("jax", "numpy"))]
WAYS += [("none", BOTH), ("chosen", ("xla",)), ("drawn", ("xla", "numpy"))]
ONLY = os.environ.get("MMRL_PASSES")  # "chosen", to choose the passes of every program

# Every sentence with which a program may be refused.
REASONS = {
    "a slice over holes": "may have holes",
    "a slice leaves": "extends beyond 0:|ends before it begins|indexed from 0",
    "nothing to take the mean or extremes of": "reads too little for",
    "results on no grid": "must be defined on a full grid",
    "not defined everywhere": "is not defined .*: add a case",
    "defined by nothing": "is already defined wherever|defines no point",
    "reads nothing": "exists at no point of",
    "bounds too small": "`bounds` are too small",
    "no affine order": "cannot be scheduled|has no schedule|depends on itself",
}
COUNTS: collections.Counter[str] = collections.Counter()


def reason(error: ValueError) -> str:
    found = [name for name, text in REASONS.items() if re.search(text, str(error))]
    assert found, f"refused without a reason: {error}"
    return found[0]


def by_hand(drawn: Draw, names: tuple[str, ...], k: int, data: Any) -> dict[tuple[int, ...], Any]:
    hand, found = Hand(drawn, data), {}
    sizes = [range(drawn.bounds[name.upper()]) for name in names]
    for point in itertools.product(*sizes):
        try:
            env = ORIGIN | dict(zip(names, point, strict=True))
            found[point] = hand.value(k, env)
        except Missing:
            continue
    return found


def legal(drawn: Draw) -> bool:
    """Whether each value that the results need is there, with these bounds and larger ones."""
    try:
        for bounds in (drawn.bounds, *large(drawn.names)):
            for k in drawn.results:
                Places(dataclasses.replace(drawn, bounds=bounds)).there(k)
    except Illegal:
        return False
    return True


def close(got: Any, want: Any, what: str) -> None:
    if np.size(want):
        assert np.shape(got) == np.shape(want), what
    np.testing.assert_allclose(np.ravel(got), np.ravel(want), rtol=1e-5, atol=1e-5, err_msg=what)


def stacked(values: dict[tuple[int, ...], Any]) -> np.ndarray:
    points = sorted(values)
    if not points:
        return np.empty(0)
    axes = [sorted({p[k] for p in points}) for k in range(len(points[0]))]
    return np.reshape([np.asarray(values[p]) for p in points], [len(axis) for axis in axes])


def program(drawn: Draw, slopes: bool) -> tuple[Graph, list[int]]:
    """The graph with gradients of the first result, if these are not refused; of which leaves."""
    results, leaves = build(drawn)
    graph = results[0].program.graph(*results)
    check_bounds(graph, drawn.bounds)
    if not slopes:
        return graph, []
    try:
        grads = [gradient(results[0], leaf) for leaf in leaves]
        return results[0].program.graph(*results, *grads), [
            int(leaf.source.removeprefix("x")) for leaf in leaves
        ]
    except ValueError as error:
        COUNTS[f"gradient refused: {reason(error)}"] += 1
        return graph, []


def moving_folds(graph: Graph) -> dict[str, str]:
    """The folds of slices that move along a dimension, and the dimension of each."""
    dims = {dim.name for op in graph.ops.values() for dim in op.domain}
    found = (fold for d in dims for fold in folds(graph, d))
    return {fold.op.name: fold.name for fold in found if fold.name in fold.part.symbols()}


def chosen(graph: Graph, bounds: Any, limited: bool) -> Any:
    """The program after passes that are chosen, within 60 % of the bytes of the best if it fits."""
    free = compile(graph)
    try:
        most = free.report(bounds).choice.cost.bytes if limited else 0
        return (
            compile(graph, memory=max(1, int(0.6 * most))).at(bounds)
            if limited
            else free.at(bounds)
        )
    except ValueError as error:
        assert "`memory` must be at least" in str(error)
        assert int(0.6 * most) < free._cost(free._sizes(bounds, {}), Choice()).bytes
        return free.at(bounds)


def one(drawn: Draw, order: int, passes: dict[str, Pass]) -> None:
    try:
        graph, leaves = program(drawn, order < 6)
    except ValueError as error:
        COUNTS[f"{'refused' if legal(drawn) else 'illegal, and refused'}: {reason(error)}"] += 1
        return
    count = len(graph.results) - len(leaves)
    wanted = []
    for k, (name, _) in zip(drawn.results, graph.results[:count], strict=True):
        wanted.append(by_hand(drawn, graph.ops[name].domain.names, k, DATA))
    names = graph.ops[graph.results[0][0]].domain.names

    def loss(data: Any) -> Any:
        return sum(by_hand(drawn, names, drawn.results[0], data).values(), jnp.float32(0))

    slopes = jax.grad(loss)(jnp.asarray(DATA)) if leaves else []
    for number, (name, _) in zip(leaves, graph.results[count:], strict=True):
        domain = graph.ops[name].domain
        flat = slopes[number][tuple(slice(None) if n in domain.names else 0 for n in ORIGIN)]
        wanted.append({p: flat[p] for p in domain.points(drawn.bounds)})
    found = execute(graph, drawn.bounds, seed=order)
    naive = [found[tensor] for tensor in graph.results]
    for got, want in zip(naive, wanted, strict=True):
        assert got.keys() == want.keys(), "naive has other points"
        close(stacked(got), stacked(want), "naive")
    arrays = [stacked(want) for want in wanted]
    # To compile takes longest: of all ways to change a program, one.
    way, executors = WAYS[order % len(WAYS)]
    way = ONLY or way
    steps = passes if way == "drawn" else {}
    if way == "chosen":
        compiled = chosen(graph, drawn.bounds, order % 2 == 0)
        steps = {stage.name: stage for stage in compiled.stages}
    else:
        compiled = compile(graph, steps)
    report = compiled.check(**drawn.bounds)
    assert report.ok, (list(steps), report.violations)
    for executor in executors:
        if executor == "xla":
            done = compiled.xla(drawn.bounds)()
        else:
            swap = Swap(ahead=order % 3) if order % 4 == 1 else Swap(())
            moved = dataclasses.replace(compiled, swap=swap)
            run = moved.interpret(drawn.bounds, backend=executor)
            done, most, account = run.results, moved.peak(drawn.bounds), run.account
            peaks = Peak(account.peak(), account.peak(place=HOST))
            assert executor == "numpy" or most == peaks, (most, peaks, swap, list(steps))
        for got, want in zip(done, arrays, strict=True):
            close(got, want, f"{executor} after {list(steps)}")
    COUNTS[f"{' and '.join(executors)}, {'as it is' if way == 'none' else 'after passes'}"] += 1
    COUNTS["agreed, after passes that were chosen"] += way == "chosen"
    last, moving = compiled.stages[-1].graph, moving_folds(graph)
    COUNTS["agreed, with folds of moving slices"] += bool(moving)
    COUNTS["agreed, with such folds changed"] += any(
        name not in last.ops or last.ops[name].kind == "view" or "over" in last.ops[name].params
        for name in moving
    )
    COUNTS["agreed in all executors, with gradients"] += executors == BOTH and bool(leaves)
    COUNTS["agreed"] += 1
    COUNTS["agreed, with gradients"] += bool(leaves)
    COUNTS["agreed, with a result on a part"] += any(
        len(want) < len(list(graph.ops[name].domain.box().points(drawn.bounds)))
        for want, (name, _) in zip(wanted, graph.results, strict=True)
    )


@settings(
    max_examples=NUMBER,
    deadline=None,
    database=None,
    phases=[Phase.generate] if NUMBER > 100 else [Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
@given(drawn_programs(), st.integers(0, 9), STEPS)
def drawn_agree(drawn: Draw, order: int, steps: list[tuple[str, str]]) -> None:
    note(str(drawn))
    COUNTS["drawn"] += 1
    one(drawn, order, {f"{k}: {step} {d}": PASSES[step](d) for k, (step, d) in enumerate(steps)})


@pytest.mark.full
@pytest.mark.slow
def test_numbers_have_the_residuals_of_a_trace():
    """A program that was drawn: where JAX knew the numbers, there was one residual more."""
    packed, later = Pair("pack", 0, 0), Pair("step", 4, 0)
    state = Merge("t", ((("0",), 2), (("t + 1",), 3)))
    nodes = (Leaf(0, "t"), packed, Read(1, ("0",), ""), later, state, Pair("unpack", 4, 0))
    one(Draw("t", nodes, (5, 0), {"T": 5}), 2, {})


@pytest.mark.full
@pytest.mark.parametrize("part", range(PARTS))
def test_drawn_programs_agree_or_are_refused_by_all(part: int):
    COUNTS.clear()
    seed(part)(drawn_agree)()
    print("\n" + "\n".join(f"{count:5} {what}" for what, count in COUNTS.most_common()))
    refused = sum(count for what, count in COUNTS.items() if what.startswith("refused"))
    slopes = sum(count for what, count in COUNTS.items() if what.startswith("gradient refused"))
    illegal = sum(count for what, count in COUNTS.items() if what.startswith("illegal"))
    assert COUNTS["agreed"] + refused + illegal == COUNTS["drawn"] >= 0.9 * NUMBER
    assert refused + illegal <= 0.02 * NUMBER + 2 and slopes <= 0.02 * NUMBER + 2
    assert COUNTS["agreed, with gradients"] >= 0.3 * NUMBER
    both = sum(count for what, count in COUNTS.items() if what.startswith("xla and jax and numpy"))
    assert both >= 0.1 * NUMBER
    assert COUNTS["agreed in all executors, with gradients"] >= 0.05 * NUMBER
    changed = sum(count for what, count in COUNTS.items() if what.endswith("after passes"))
    assert changed >= 0.3 * COUNTS["agreed"]
    assert COUNTS["agreed, with a result on a part"] >= 0.05 * NUMBER - 1
