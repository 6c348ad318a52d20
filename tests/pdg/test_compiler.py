"""The front door: from a graph to both executors, with and without passes."""

import importlib
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from mmrl.pdg.build.autodiff import gradient
from mmrl.pdg.build.expr import min_
from mmrl.pdg.build.graph import Edge, Graph
from mmrl.pdg.build.program import Program
from mmrl.pdg.passes import fuse, tile, vectorize
from mmrl.pdg.run import Compiled, compile
from mmrl.pdg.run.naive import execute
from tests.helpers.pdg_graphs import compiled, reinforce

SIZES = {"I": 2, "T": 9}


EARLIER = {
    "expr": "Expr Sym min_ structure",
    "language": "Program fn point_key",
    "language.autodiff": "gradient transport zeros",
    "passes.fuse": "Made composed fold forward fuse phi remove_dead renamed replaced share",
    "run.account": "Account ReadTable",
    "run.interpreter": "HOST_MEMORY Interpreter",
    "schedule": "Certificate Wait explain schedule",
    "schedule.code": "generate text trace",
    "schedule.frees": "Swap donations jointly phases plan_memory unproved",
    "verify": "check_cycles fitting validate",
    "verify.naive": "check execute",
}


@pytest.mark.parametrize("module", EARLIER)
def test_earlier_names_can_be_imported(module: str):
    imported = importlib.import_module(f"mmrl.pdg.{module}")
    assert [name for name in EARLIER[module].split() if not hasattr(imported, name)] == []


@pytest.fixture(scope="module")
def made() -> Compiled:
    return compiled("3-step")


@pytest.fixture(scope="module")
def results(made: Compiled) -> Any:
    return made.xla(SIZES)()


def test_both_executors_agree(made: Compiled, results: Any):
    for one, other in zip(made.interpret(SIZES).results, results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_a_run_is_checked(made: Compiled):
    report = made.check(**SIZES)
    assert report.ok and report.device["o", 0] == 3


def test_it_prints_as_python(made: Compiled):
    assert "for t in range(2, T)" in str(made) and "del " not in str(made)
    assert "del d[i, t - 2]" in made.text(memory=True)


@pytest.mark.slow
def test_passes_are_kept_with_their_words(results: Any):
    tiled = compile(reinforce(3), {"tile": lambda graph: tile(graph, "t", 4), "fuse": fuse})
    assert [stage.name for stage in tiled.stages] == ["program", "tile", "fuse"]
    assert tiled.stages[1].words
    assert tiled.check(**SIZES).ok
    for one, other in zip(tiled.interpret(SIZES).results, results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_options_reach_the_schedule():
    apart = compile(reinforce(3), {}, proximity="none").check(**SIZES)
    assert apart.device["o", 0] == SIZES["T"]
    swapped = compile(reinforce(None), {}, swap=[("o", 0)]).check(**SIZES)
    assert (swapped.device["o", 0], swapped.host["o", 0]) == (1, SIZES["T"])


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch):
    """Calls as users make them, without the type checker that only tests have."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


WRONG = {
    "nothing to swap": ({"swap": [("nope", 0)]}, r"`swap` must name tensors .* got \[\('nope', 0"),
    "no such output": ({"swap": [("o", 3)]}, "`swap` must name tensors"),
    "no tensor": ({"swap": ["o"]}, "`swap` must name tensors"),
    "swapped twice": ({"swap": [("o", 0), ("o", 0)]}, "`swap` must not name a tensor twice"),
    "proximity": ({"proximity": "far"}, '`proximity` must be "none", "all" or "upper", got \'far'),
    "a pass by name": (
        {"passes": {"tile": "tile"}},
        r"`passes`: 'tile' must be a function .* `lambda graph: tile\(graph.* got a str$",
    ),
    "a pass that was called": (
        {"passes": {"fuse": fuse(reinforce(3))}},
        "`passes`: 'fuse' must be a function of one argument, a graph, .* got a tuple$",
    ),
    "a pass that wants more": ({"passes": {"tile": tile}}, "'tile' must .* argument: 'name'$"),
    "a list of passes": ({"passes": [fuse]}, "`passes` must map names to functions .* a list$"),
    "a pass without words": (
        {"passes": {"none": lambda graph: None}},
        "`passes`: 'none' must return a graph and a list .* got a NoneType",
    ),
    "a dimension": (
        {"passes": {"tile": lambda graph: tile(graph, "z", 4)}},
        "`z` is not a dimension",
    ),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", WRONG)
def test_wrong_options_are_named(name: str):
    options, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        compile(reinforce(3), **({"passes": {}} | options))


@pytest.mark.usefixtures("unchecked")
def test_a_program_is_no_graph_yet():
    with pytest.raises(ValueError, match=r"must be a Graph, got a Program: `Program\.graph`"):
        compile(Program("t"), {})  # pyright: ignore[reportArgumentType]


@pytest.mark.usefixtures("unchecked")
def test_a_run_takes_a_key_and_its_inputs_and_nothing_else(made: Compiled):
    wrongs: list[dict[str, Any]] = [{"T": 5}, {"kye": jax.random.key(0)}]
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"unknown input `(T|kye)`; .* inputs: none"):
            made.xla(I=2, T=4)(**wrong)
        with pytest.raises(ValueError, match=r"`bounds` must .* each bound|unknown input `kye`"):
            made.interpret({"I": 2, "T": 4}, **wrong)
    for run in (made.xla(I=2, T=4), lambda key: made.interpret(I=2, T=4, key=key)):
        with pytest.raises(ValueError, match=r"got 3: write `jax.random.key\(3\)`"):
            run(key=3)


@pytest.mark.slow
def test_bounds_are_named_or_in_a_dictionary(made: Compiled):
    for run in (made.trace, made.check, lambda *a, **k: made.interpret(*a, **k).account.peak()):
        assert str(run(I=2, T=4)) == str(run({"I": 2}, T=4)) == str(run({"I": 2, "T": 4}))
    assert made.xla(I=2, T=4).slots() == made.xla({"I": 2}, T=4).slots()
    assert len(repr(made.graph)) < 80


def test_a_graph_must_compute_something_and_in_some_order():
    with pytest.raises(ValueError, match="`graph` must have an operation"):
        compile(Graph({}, (), ("T",)), {})
    with pytest.raises(ValueError, match="`results` must name at least one tensor"):
        Program("t").graph()
    graph = reinforce(3)
    first, *_ = graph.inputs("o")
    waits = Edge("o", "G", graph.ops["G"].domain.symbols, first.when)
    edges = (*(edge for edge in graph.edges if edge != first), waits)
    with pytest.raises(ValueError, match=r"`\w\[i, t\]` depends on itself through"):
        compile(graph.replace(edges=edges), {})


BOUNDS = {
    "missing": ({"I": 2}, r"`bounds` must contain T, got {'I': 2}"),
    "unknown": ({"I": 2, "T": 4, "K": 1}, r"`bounds` .* \['I', 'T'\].* got K"),
    "none": ({"I": 2, "T": 0}, "`bounds` must be at least 1, got T = 0"),
    "negative": ({"I": -1, "T": 4}, "`bounds` must be at least 1, got I = -1"),
    "no integer": ({"I": 2, "T": 4.5}, r"`bounds` .* integers, got T = 4\.5"),
    "lower": ({"i": 2, "t": 4}, "`bounds` must contain I, got {'i': 2"),
    "no number": ({"I": 2, "T": "4"}, "`bounds` .* integers, got T = '4'"),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("name", BOUNDS)
def test_wrong_bounds_are_named_wherever_they_are_given(made: Compiled, name: str):
    bounds, message = BOUNDS[name]
    for run in (
        lambda: made.check(**bounds),
        lambda: made.trace(**bounds),
        lambda: made.interpret(bounds),
        lambda: made.xla(bounds),
        lambda: execute(made.graph, bounds),
    ):
        with pytest.raises(ValueError, match=message):
            run()


WIDE = {
    "as it is": {},
    "vectorized": {"vectorize": lambda graph: vectorize(graph, "t")},
}


@pytest.mark.full
@pytest.mark.parametrize(("steps", "passes"), [(9, "vectorized"), (2, "as it is")])
def test_a_window_arrives_with_its_full_width(steps: int, passes: str):
    """Padded with zeros, also where the whole dimension is shorter than the window."""
    weights = jnp.array([1.0, 10.0, 100.0, 1000.0])
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x = (p.value(t) + 1).astype("float32").read("x")
    window = x[t : min_(t + 4, T)]
    dot = p.fn(lambda w: w @ weights, window)
    last = p.fn(lambda w: w.reshape(2, 2)[1, 1], window)
    length = p.fn(lambda w: w[0] * 0 + len(w), window)
    counted = p.fn(lambda w: w + 1.0, window).sum()  # of any width, so padding does not count
    made = compile(p.graph(dot, last, length, counted, gradient(dot * 1.0, x)), WIDE[passes])

    rows = [np.arange(k + 1.0, min(k + 4, steps) + 1) for k in range(steps)]
    padded = [np.pad(row, (0, 4 - len(row))) for row in rows]
    want = [[row @ weights for row in padded], [row[3] for row in padded], [4.0] * steps]
    want += [[row.sum() + len(row) for row in rows]]
    want += [[weights[: k + 1].sum() for k in range(steps)]]
    named = execute(made.stages[0].graph, {"T": steps}).values()
    naive = [[found[k,] for k in range(steps)] for found in named]
    for got in (naive, made.interpret({"T": steps}).results, made.xla({"T": steps})()):
        for one, other in zip(got, want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


@pytest.fixture(scope="module")
def tiled() -> Compiled:
    return compile(reinforce(3), {"tile": lambda graph: tile(graph, "t", 4)})


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 5])
def test_a_tile_may_be_longer_than_the_dimension(made: Compiled, tiled: Compiled, steps: int):
    sizes = {"I": 2, "T": steps}
    named = execute(made.graph, sizes).values()
    want = [np.stack(list(found.values())).squeeze() for found in named]
    for got in (tiled.interpret(sizes).results, tiled.xla(sizes)()):
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_nothing_is_fused_that_would_read_its_own_future(made: Compiled, results: Any):
    fused = compile(reinforce(3), {"fuse": fuse})
    assert len(fused.graph.ops) < len(made.graph.ops) and fused.check(**SIZES).ok
    for one, other in zip(fused.interpret(SIZES).results, results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
