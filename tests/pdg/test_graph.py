"""The graph: what an index means, which graphs are programs, and what clean-up leaves of them."""

from collections.abc import Callable
from typing import Any

import islpy as isl
import jax
import jax.numpy as jnp
import pytest

from mmrl.pdg.build.expr import TRUE, Expr, Slice, Sym, as_expr, min_
from mmrl.pdg.build.graph import Domain, Edge, Graph, Op, array_type, components
from mmrl.pdg.build.program import Program
from mmrl.pdg.build.sets import domains, reads
from mmrl.pdg.build.tensor import Tensor
from mmrl.pdg.clean import forward, remove_dead, share
from mmrl.pdg.clean.validate import validate
from mmrl.pdg.run.naive import execute

a, b, A, B = Sym("a"), Sym("b"), Sym("A"), Sym("B")


def plane() -> Tensor:
    """x of shape (3, 4) over (a, b)."""
    p = Program("a", "b")
    shift = p.value(p.symbols[0] + 10 * p.symbols[1])
    return p.fn(lambda s: jnp.arange(12.0).reshape(3, 4) + 100 * s, shift, name="x")


# The indexing table: index, the array's shape, the domain, φ.
INDEXING: list[tuple[Any, str, str, str]] = [
    (0, "(3, 4)", "[b]", "[0, b]"),
    ((0, 1), "(3, 4)", "[]", "[0, 1]"),
    ((slice(None), 1), "(3, 4)", "[a]", "[a, 1]"),
    ((slice(None), slice(5, 10)), "(5, 3, 4)", "[a]", "[a, 5:10]"),
    (..., "(3, 4)", "[a, b]", "[a, b]"),
    ((1, ..., 2), "(3,)", "[b]", "[b]"),  # 2 is an index of the array: another operation
    ((a, b), "(3, 4)", "[a, b]", "[a, b]"),
    ((a + 1, b), "(3, 4)", "[a, b: A >= a + 2]", "[a + 1, b]"),
    ((min_(a + 10, A - 1), b), "(3, 4)", "[a, b]", "[min(a + 10, A - 1), b]"),
    ((slice(0, 5), b), "(5, 3, 4)", "[b]", "[0:5, b]"),
    (slice(0, a + 1), "(a + 1, 3, 4)", "[a, b]", "[0:a + 1, b]"),
    ((slice(0, A), slice(b, B)), "(A, B - b, 3, 4)", "[b]", "[0:A, b:B]"),
    ((b % 3, a), "(3, 4)", "[a, b: B >= a + 1]", "[b % 3, a]"),
    (A - 4, "(3, 4)", "[b]", "[A - 4, b]"),
    (a % 10 == 0, "(3, 4)", "[a, b: a % 10 == 0]", "[a, b]"),
]


@pytest.mark.parametrize(("key", "shape", "domain", "phi"), INDEXING, ids=str)
def test_what_an_index_means(key: Any, shape: str, domain: str, phi: str):
    found = plane()[key]
    text = f"({', '.join(map(str, found.shape))}{',' if len(found.shape) == 1 else ''})"
    assert (text, str(found.domain)) == (shape, domain)
    assert f"[{', '.join(map(str, found.index))}]" == phi


def test_an_index_reads_what_it_says():
    x = plane()
    graph = x.program.graph(x[a, b : min_(b + 2, B)], x[1, ..., 2])
    windows, column = execute(graph, {"A": 2, "B": 3}).values()
    value = lambda i, j: jnp.arange(12.0).reshape(3, 4) + 100 * (i + 10 * j)  # noqa: E731
    assert windows[1, 0].tolist() == [value(1, 0).tolist(), value(1, 1).tolist()]
    assert windows[1, 2].tolist() == [value(1, 2).tolist(), [[0.0] * 4] * 3]  # padded
    assert column[2,].tolist() == value(1, 2)[:, 2].tolist()


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ((a, b, 0), "write `...` before indices of the array's own axes"),
        (slice(a, a + 5), r"`x\[a:a \+ 5, b\]` extends beyond 0:A; write a:min_\(a \+ 5, A\)$"),
        (slice(a - 5, a), r"extends beyond 0:A; write max_\(a - 5, 0\):a$"),
        (slice(a - 5, A), r"extends beyond 0:A; write max_\(a - 5, 0\):A$"),
        (slice(b, B), r"extends beyond 0:A; .* index of b$"),
        ((a, slice(None)), "`:` cannot be the last index of .* write 0:B"),
        (slice(None), "`:` cannot be the last index"),
        (-1, "from 0 and not from the end: instead of -1 write A - 1"),
        (plane(), "is not an index"),
        (A, r"exists at no point of \[b\].* 0 <= a < A"),
        (Sym("z"), "`z` is not a symbol of this program, which has a, b"),
        (1.5, "is not an index"),
        (slice(0, 8, 2), "no step"),
    ],
    ids=str,
)
def test_what_an_index_cannot_mean(key: Any, message: str):
    with pytest.raises(ValueError, match=message):
        plane()[key]


def _plus_one(env: Any, *inputs: Any) -> tuple[Any]:
    return (1.0 + sum(jnp.sum(x) for x in inputs),)


def program(**edges: list[tuple[str, tuple[Any, ...], Expr]]) -> Graph:
    """Operations over t; each reads the sources given, with an index and a condition."""
    line = Domain.of("t")
    kind = array_type((), "float32")
    ops, joined = {}, []
    for name, inputs in edges.items():
        cases = [when for *_, when in inputs if not when.same(TRUE)]
        run: Callable[..., Any] | None = None if cases else _plus_one
        ops[name] = Op(name, "merge" if cases else "fn", line, (kind,), run)
        for place, (source, index, when) in enumerate(inputs):
            at = tuple(map(as_expr, index))
            joined.append(Edge(name, source, at, when, 0 if cases else place))
    return Graph(ops, tuple(joined), ("T",), ((next(iter(edges)), 0),))


t, T = Sym("t"), Sym("T")

WRONG = {
    "itself": ({"x": [("y", (t,), TRUE)], "y": [("x", (t,), TRUE)]}, r"itself through .\[t\]"),
    "ahead": (
        {
            "x": [("y", (t,), TRUE)],
            "y": [("z", (t,), t < T - 1), ("c", (t,), t == T - 1)],
            "z": [("w", (t + 1,), t < T - 1), ("c", (t,), t == T - 1)],
            "w": [("x", (t - 1,), t >= 1), ("c", (t,), t == 0)],
            "c": [],
        },
        r"`\w\[t\]` depends on itself through \w\[t( [+-] 1)?\], then",
    ),
    "mirror": ({"x": [("x", (T - 1 - t,), t >= 0)]}, "depends on itself"),
    "uncovered": ({"x": [("c", (t,), t >= 2)], "c": []}, "`x.t.` is not defined where t <= 1"),
    "undefined": ({"x": [("c", (t,), t < 0)], "c": []}, "is not defined anywhere"),
    "twice": (
        {"x": [("c", (t,), t >= 0), ("c", (0,), t == 3)], "c": []},
        "is defined twice where t == 3",
    ),
    "outside": (
        {"x": [("c", (t + 1,), TRUE)], "c": []},
        r"outside its domain .*, at the points t \+ 1 == T",
    ),
    "over": (
        {"x": [("c", (slice(t, t + 3),), TRUE)], "c": []},
        "reads `c` outside its domain",
    ),
    "indices": ({"x": [("c", (t, t), TRUE)], "c": []}, "needs an index for each of"),
    "missing": ({"x": [("nobody", (t,), TRUE)]}, "one of them is missing"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_program_is_refused(name: str):
    edges, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        validate(program(**edges))


RIGHT = {
    "forward": {"x": [("c", (0,), t == 0), ("x", (t - 1,), t >= 1)], "c": []},
    "backward": {"x": [("c", (0,), t == T - 1), ("x", (t + 1,), t < T - 1)], "c": []},
    "all before": {
        "x": [("c", (0,), t == 0), ("y", (t,), t >= 1)],
        "y": [("c", (t,), t == 0), ("z", (t - 1,), t >= 1)],
        "z": [("x", (slice(0, t + 1),), TRUE)],
        "c": [],
    },
    "halves": {"x": [("c", (t,), t % 2 == 0), ("x", (t - 1,), t % 2 == 1)], "c": []},
    "once": {"x": [("y", (t,), t >= 1), ("c", (t,), t == 0)], "y": [("x", (0,), TRUE)], "c": []},
    "large bounds": {"x": [("c", (5,), TRUE)], "c": []},
}


@pytest.mark.parametrize("name", RIGHT)
def test_recurrences_are_programs(name: str):
    graph = validate(program(**RIGHT[name]))
    (found,) = execute(graph, {"T": 6}).values()
    assert len(found) == 6


def test_a_missing_argument_is_refused():
    graph = program(x=[("c", (t,), TRUE)], c=[])
    (edge,) = graph.edges
    moved = graph.replace(edges=(Edge(edge.sink, edge.source, edge.index, input=1),))
    with pytest.raises(ValueError, match="needs one edge for each argument"):
        validate(moved)


def test_reads_and_domains_for_all_bounds():
    graph = program(x=[("c", (slice(t, min_(t + 2, T)),), TRUE)], c=[])
    assert domains(graph).is_equal(isl.UnionSet("[T] -> { x[t] : 0 <= t < T; c[t] : 0 <= t < T }"))
    window = "[T] -> { x[t] -> c[u] : 0 <= t < T and t <= u < t + 2 and u < T }"
    assert reads(graph).is_equal(isl.UnionMap(window))


def test_dead_code_goes_and_twins_become_one():
    p = Program("t")
    x = p.value(p.symbols[0]).astype("float32")
    kept = (x * 2.0) + (x * 2.0)
    _dead = (x + 7.0).exp()
    graph = p.graph(kept)
    assert sorted(op.kind for op in graph.ops.values()) == ["add", "cast", "mul", "value"]
    other = x * 3.0
    different = p.graph(kept, other)
    assert sorted(op.kind for op in different.ops.values()).count("mul") == 2


def test_randomness_is_not_shared():
    p = Program("t")

    x, y = (p.sample(jax.random.uniform, over=p.symbols) for _ in range(2))
    first, second = execute(p.graph(x, y), {"T": 3}).values()
    drawn = {float(v) for v in (*first.values(), *second.values())}
    assert len(drawn) == 6


def test_copies_are_read_through():
    p = Program("t")
    (s,), (S,) = p.symbols, p.bounds
    x = p.value(s).astype("float32")
    copied = x.read()[s : min_(s + 2, S)].sum()
    graph = p.graph(copied)
    assert "read" not in {op.kind for op in graph.ops.values()}
    (found,) = execute(graph, {"T": 4}).values()
    assert [float(v) for v in found.values()] == [1.0, 3.0, 5.0, 3.0]
    assert forward(share(remove_dead(graph))).ops.keys() == graph.ops.keys()


def test_a_graph_can_be_read():
    graph = program(**RIGHT["forward"])
    assert "x <- x[t - 1] if t >= 1" in str(graph)
    ragged = array_type((T - t, 3), "float32")
    op = Op("r", "fn", Domain.of("t"), (ragged,))
    assert str(ragged) == "float32[T - t, 3]" and op.types({"T": 5})[0].shape == (5, 3)
    window = array_type((Slice(t, min_(t + 4, T)).width(),), "float32")
    assert window.storage_type(op.domain, {"T": 9}).shape == (4,)


def test_components_are_the_cycles_each_after_what_it_reads():
    edges = program(
        x=[("y", (t,), TRUE)], y=[("x", (t,), TRUE), ("z", (t,), TRUE)], z=[("c", (t,), TRUE)], c=[]
    ).edges
    assert list(map(sorted, components(edges))) == [["c"], ["z"], ["x", "y"]]
