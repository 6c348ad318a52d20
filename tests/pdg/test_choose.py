"""Chosen passes: within the limit by the interpreter's account, and the same numbers as by hand."""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from mmrl.course.ch17_compiling.rivals import equations
from mmrl.pdg import Program, compile, max_, min_
from mmrl.pdg.build.derivative import work
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.passes.choose import (
    Along,
    Choice,
    Constraints,
    Cost,
    choose,
    count,
    operations,
    parse_bytes,
    widest,
)
from mmrl.pdg.plan.account import HOST
from mmrl.pdg.plan.alive import Peak, peak
from mmrl.pdg.plan.cost import flops
from mmrl.pdg.plan.swap import Swap
from mmrl.pdg.run import Automatic

SIZES: Any = {"I": 2, "T": 16, "B": 4}


def returns(n: int = 3) -> Graph:
    """Sums over b and t of tanh(observation) and an n-step return, in a walk along t."""
    p = Program("i", "t", "b")
    (i, t, b), (_, T, B) = p.symbols, p.bounds
    w, x = p.tensor(i, name="w"), p.tensor(i, t, b, name="x")
    w[0], x[i, 0, b] = jnp.float32(0.5), jnp.ones(8)
    step = p.fn(lambda w, x, k: (jnp.sin(w * x + k), x.sum()), w, x, p.value(b), name="step")
    x[i, t + 1, b], reward = step
    gain = reward[i, t : min_(t + n, T), b].discounted_sum(0.9)
    loss = p.fn(lambda w, x, g: jnp.tanh(w * x).sum() * g, w, x, gain, name="loss")
    total = loss[i, t, 0:B].sum(0)[i, 0:T].sum(0)
    w[i + 1] = w - 0.01 * total
    return p.graph(w)


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch):
    """Calls as users make them, without the type checker that only tests have."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="module")
def graph() -> Graph:
    return returns()


@pytest.fixture(scope="module")
def free(graph: Graph) -> Automatic:
    return compile(graph, **SIZES)


@pytest.fixture(scope="module")
def wanted(graph: Graph) -> np.ndarray:
    return np.asarray(compile(graph, {}).interpret(SIZES).results[0])


@pytest.mark.full
@pytest.mark.parametrize("part", [None, 0.7, 0.4])
def test_a_limit_holds_by_the_account_of_a_run(
    graph: Graph, free: Automatic, wanted: np.ndarray, part: float | None
):
    most = free.report().choice.cost
    limit = most.bytes if part is None else int(part * most.bytes)
    compiled = compile(graph, memory=limit, **SIZES)
    done, row = compiled.interpret(), compiled.report().choice
    np.testing.assert_allclose(done.results[0], wanted, rtol=1e-5)
    np.testing.assert_allclose(compiled.xla()()[0], wanted, rtol=1e-5)
    peak, bound = done.account.peak(), row.cost.bytes
    assert peak == bound if row.cost.exact else peak <= bound <= 1.1 * peak
    assert bound <= limit
    assert row.cost.operations >= most.operations
    runs = [event for event in done.account.events if event[0] == "run"]
    merges = {name for name, op in compiled.at().graph.ops.items() if op.run is None}
    assert sum(name not in merges for _, name, _ in runs) == row.cost.operations


@pytest.mark.full
def test_the_choice_without_a_limit_runs_the_fewest_operations(free: Automatic):
    report = free.report()
    others = [row for row in report.rows if "fuse" not in row.passes.split(", ")]
    assert report.choice.cost.operations == min(row.cost.operations for row in others)
    assert len(report.rows) > 3 and str(report).count("\n") >= len(report.rows)
    assert [row.is_choice for row in report.rows].count(True) == 1


def test_a_report_omits_passes_that_change_nothing():
    p = Program("i")
    (i,) = p.symbols
    w, x = p.tensor(i), p.sample(jax.random.normal, over=(i,))
    w[0] = 0.0
    w[i + 1] = w + 0.1 * (x - w)
    rows = compile(p.graph(w)).report(I=16).rows  # tiles of 8 would contain no operation
    assert [row.passes for row in rows] == ["vectorize i", "no passes", "vectorize i, fuse"]


@pytest.mark.full
def test_a_limit_counts_bytes_on_the_device_if_values_are_swapped(graph: Graph):
    limit, blocks = 2500, {}
    for swap in (Swap(()), Swap()):
        compiled = compile(graph, memory=limit, swap=swap, **SIZES)
        blocks[swap.tensors] = compiled.choice().along[-1].size
    assert blocks[None] is None and blocks[()] < SIZES["T"]  # None is one block
    account, report = compiled.interpret().account, compiled.report()
    peaks = compiled.peak(SIZES)
    assert peaks == Peak(account.peak(), account.peak(place=HOST))
    assert report.choice.cost.bytes == peaks.bytes <= limit < peaks.bytes + peaks.host
    (line,) = (line for line in report.words if line.startswith(f"{report.choice.passes}: "))
    assert f"{peaks.bytes:,} " in line and f"{peaks.host:,} " in line


@pytest.mark.full
def test_blocks_are_as_large_as_the_limit_allows(graph: Graph):
    sizes = {}
    for limit in (6000, 2500, 1500):
        choice = compile(graph, memory=limit, vectorize=None).choice(SIZES)
        sizes[limit] = [each.size or 16 for each in choice.along if each.name == "t"] or [1]
    assert sizes[6000] >= sizes[2500] >= sizes[1500] and sizes[6000] > sizes[1500]


def test_parts_that_the_caller_decides_stay(graph: Graph, free: Automatic):
    whole = free.choice()
    assert compile(graph, fuse=True, **SIZES).choice().fuse and not whole.fuse
    tiled = compile(graph, tile={"t": 5}, **SIZES).choice()
    assert Along("t", size=5) in tiled.along and {each.name for each in tiled.along} == {"t", "b"}
    assert [each.name for each in compile(graph, vectorize=["b"], **SIZES).choice().along] == ["b"]
    assert not compile(graph, vectorize=[], fuse=False, **SIZES).choice().passes()
    tiled = compile(graph, tile={"t": 4}, fuse=False, **SIZES).choice()
    assert not any(name.startswith("fuse") for name in tiled.passes())


@pytest.mark.full
def test_passes_of_a_choice_give_the_same_program(graph: Graph):
    automatic = compile(graph, memory=3000, **SIZES)
    hand = compile(graph, automatic.choice().passes())
    assert str(hand) == automatic.text() and str(hand.graph) == str(automatic.at().graph)


@pytest.mark.full
def test_a_choice_is_of_its_bounds(graph: Graph):
    compiled = compile(graph, memory=4000)
    small, large = (compiled.report(SIZES | {"T": T}).choice for T in (4, 64))
    assert small.cost.bytes <= 4000 >= large.cost.bytes and small.passes != large.passes


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": 10}, "`memory` must be at least .* got 10"),
        ({"memory": "much"}, "`memory` must be a number of bytes"),
        ({"memory": 0}, "`memory` must be a number of bytes"),
        ({"vectorize": ["z"]}, "`z` must be a dimension, one of"),
        ({"tile": {"t": 0}}, "`tile` of t must be"),
        ({"tile": 8}, "`tile` must map dimensions"),
        ({"tile": {"t": 2}, "vectorize": ["t"]}, "different dimensions"),
        ({"Z": 3}, "`bounds` must contain only .* got Z"),
        ({"proximity": "near"}, "`proximity` must be"),
        ({"swap": [("z", 0)]}, "`swap` must name tensors"),
        ({"passes": {}, "memory": 8}, "`passes` must be passed without memory"),
        ({"passes": {}, "T": 8}, "`passes` must be passed without T"),
    ],
)
def test_wrong_wishes_are_named(graph: Graph, options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        compile(graph, **options).xla(SIZES)


def test_sizes_are_read_with_their_units():
    texts = {"8 MB": 8_000_000, "8MiB": 8 * 2**20, "512 kB": 512_000, "7": 7, "1.5e3 B": 1500}
    assert {text: parse_bytes(text) for text in texts} == texts
    assert parse_bytes(None) is None and parse_bytes(12.0) == 12


def test_operations_are_counted_as_points():
    graph = returns()
    for op in graph.ops.values():
        for bounds in ({"I": 1, "T": 3, "B": 2}, SIZES):
            assert count(op, bounds) == len(list(op.domain.points(bounds)))


def test_flops_of_products_and_loops():
    a, b = jnp.ones((3, 4)), jnp.ones((4, 5))
    assert work(jax.make_jaxpr(lambda a, b: a @ b)(a, b).jaxpr) == 2 * 3 * 4 * 5
    many = jax.make_jaxpr(lambda a: jax.lax.fori_loop(0, 7, lambda _, a: a * a, a))(a).jaxpr
    once = jax.make_jaxpr(lambda a: jax.lax.fori_loop(0, 1, lambda _, a: a * a, a))(a).jaxpr
    assert work(many) == 7 * work(once)


@pytest.mark.full
def test_bytes_of_a_run_that_is_cut_are_an_upper_bound(graph: Graph, free: Automatic):
    compiled = free.at()
    for sizes, times in ((SIZES | {"I": 60}, 1), (SIZES | {"T": 70, "I": 3}, 2)):
        exact, above = (peak(compiled.schedule, sizes, most=m) for m in (10**6, 400))
        assert exact.exact and not above.exact
        assert exact.bytes <= above.bytes <= times * exact.bytes
        exact, above = (peak(compiled.schedule, sizes, Swap(), most=m) for m in (10**6, 400))
        assert exact.bytes <= above.bytes and 0 < exact.host <= above.host and not above.exact
    assert flops(compiled.graph, SIZES | {"I": 9}) > flops(compiled.graph, SIZES)


@pytest.mark.full
def test_bytes_of_a_run_that_is_cut_grow_with_each_of_its_phases():
    p = Program("t")
    (t,), (end,) = p.symbols, p.bounds
    x, wide = p.tensor(t, name="x"), p.tensor(t, name="wide")
    x[0], wide[0] = 1.0, jnp.ones(100)
    y = p.fn(jnp.tanh, x[0 : t + 1], name="y")  # t + 1 numbers, until the last x is there
    x[t + 1] = 0.5 * y.sum()
    wide[t + 1] = p.fn(lambda a: jnp.tanh(a).sum(0), wide[max_(0, t - 15) : t + 1], name="window")
    late = p.tensor(t, name="late")  # one number each, after an operation on a large array
    late[0] = p.fn(lambda a: a.sum(), p.fn(jnp.exp, p.constant(jnp.ones(1000))))
    late[t + 1] = p.fn(jnp.cos, late)
    results = ((y * x[end - 1]).sum()[0:end].sum(0), wide[end - 1], late)
    long, window, phases = (compile(p.graph(result), {}).schedule for result in results)
    for schedule, sizes in ((long, (91,)), (window, (91, 60_000)), (phases, (91, 50_000))):
        for size in sizes:
            above = peak(schedule, {"T": size}, most=99)
            assert peak(schedule, {"T": size}, most=10**6).bytes <= above.bytes and not above.exact
    assert peak(window, {"T": 60_000}).bytes == 17 * 100 * 4
    assert peak(phases, {"T": 10**7}).bytes >= 4 * 10**7
    assert peak(long, {"T": 12_000}).bytes == 4 * 12_000**2 + 4 * 12_000


@pytest.mark.full
def test_loops_stay_as_they_are_where_the_limit_wants_it():
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    o, total = p.tensor(t, name="o"), p.tensor(t, name="total")
    o[0], total[0] = jnp.float32(1), 0.0
    o[t + 1], reward = p.fn(lambda o: (jnp.cos(o), o * o), o, name="step")
    gain = reward[t:T].discounted_sum(0.9)
    total[t + 1] = added = p.fn(lambda a, g: a + jnp.tanh(g), total, gain, name="added")
    graph = p.graph(added[T - 1])
    free = compile(graph, T=64)
    lifted, plain = free.report().choice.cost.bytes, free._cost({"T": 64}, Choice()).bytes
    assert plain < lifted
    assert compile(graph, memory=plain, T=64).report().choice.cost.bytes <= plain


def test_an_order_that_is_not_legal_does_not_fit(graph: Graph, free: Automatic):
    def cost(choice: Choice) -> Cost:
        if any(each.size != 1 or each.lift for each in choice.along):
            raise ValueError("no legal order")
        return Cost(100, 1, 1)

    assert not any(each.size != 1 for each in choose(graph, SIZES, cost, memory=100).along)
    with pytest.raises(ValueError, match="at least 100 "):
        choose(graph, SIZES, cost, memory=99)


def test_blocks_have_whole_numbers_of_points(graph: Graph):
    constraints = Constraints(tile={"t": np.int64(4)})
    constraints.check(graph)
    assert constraints.sizes() == {"t": 4}


def test_a_reset_stays_in_its_loop(graph: Graph):
    names = [each.name for each in widest(graph, SIZES).along]
    assert "i" not in names and set(names) == {"b", "t"}
    assert operations(graph, SIZES) > 4 * operations(widest(graph, SIZES).apply(graph), SIZES)
    constraints = Constraints(recompute=False, lift=[])
    assert not any(each.lift for each in widest(graph, SIZES, constraints).along)
    assert isinstance(compile(graph), Automatic)
    rows = itertools.pairwise(dataclasses.astuple(Along(name)) for name in names)
    assert all(a != b for a, b in rows)


@pytest.mark.full
def test_gradients_of_parameters_are_not_stored_per_step():
    """The peak stays below 128 gradients of the parameters of a recurrent network (8.4 MB)."""
    compiled = compile(equations("recurrent", 64), I=2, T=128, B=32)
    assert compiled.report().choice.cost.bytes < 4_000_000


@pytest.mark.parametrize("memory", [None, 100])
def test_steps_without_blocks_are_fused_if_this_takes_no_more_memory(memory: int | None):
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x = p.tensor(t, name="x")
    x[0] = 1.0
    x[t + 1] = p.fn(jnp.tanh, p.fn(jnp.cos, p.fn(jnp.sin, x)))
    graph, sizes = p.graph(x[T - 1]), {"T": 9}
    for extra in (0, 1):
        cost = lambda c, n=extra: Cost(99 + n * c.fuse, operations(c.apply(graph), sizes), 1)  # noqa: E731
        assert choose(graph, sizes, cost, memory=memory) == Choice(fuse=not extra)
        assert (
            choose(graph, sizes, cost, memory=memory, constraints=Constraints(fuse=False)).passes()
            == {}
        )


def decay() -> tuple[Program, Any]:
    p = Program("t")
    (t,) = p.symbols
    x = p.tensor(t, name="x")
    x[0] = 0.0
    x[t + 1] = 0.9 * x + 1.0
    return p, x


def test_tensors_that_passes_move_are_swapped_as_blocks():
    p, x = decay()
    y = p.fn(jnp.tanh, p.fn(jnp.cos, x, name="inner"), name="y")
    names = [("x", 0), ("inner", 0), ("y", 0)]
    made = compile(p.graph(y), swap=names, vectorize=["t"], lift=[], T=9)
    assert made.at().swap.tensors == (("x", 0), ("inner", 0), ("all_y", 0), ("y", 0))
    fused = compile(p.graph(y), swap=names, vectorize=[], fuse=True, T=9).at()
    assert fused.swap.tensors == tuple(x for x in names if x in fused.graph.tensors) != (*names,)
    assert Swap().within(fused.graph, fused.graph) == Swap()


@pytest.mark.parametrize("fold", ["sum", "mean", "max"])
def test_a_loop_whose_end_alone_is_read_is_compiled(fold: str):
    p, x = decay()
    (T,) = p.bounds
    found = compile(p.graph(getattr(x[0:T], fold)()), memory="8 MB").xla(T=9)()[0]
    values = np.array([(1 - 0.9**k) / 0.1 for k in range(9)])
    np.testing.assert_allclose(found, getattr(values, fold)(), rtol=1e-6)


def test_values_inside_of_fused_operations_count():
    """A chain of prefix sums of 1000 numbers, of which XLA must keep whole blocks."""
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    a = p.fn(lambda k: jnp.sin(jnp.arange(1000) * 1.0 + k), p.value(t), name="a")
    b = p.fn(jnp.cumsum, a, name="b")
    c = p.fn(lambda b: jnp.cumsum(jnp.tanh(b)), b, name="c")
    graph = p.graph(p.fn(jnp.max, c, name="d")[0:T].sum())
    limit = 20_000
    compiled = compile(graph, memory=limit)
    assert compiled.report(T=1000).choice.cost.bytes <= limit
    taken = compiled.xla(T=1000).lower().compile().memory_analysis().temp_size_in_bytes
    # XLA has its own temporary arrays, but not those of all blocks.
    assert taken < 4 * limit


def test_points_are_counted_under_conditions():
    p, x = decay()
    (t,) = p.symbols
    y = p.fn(jnp.tanh, x[t % 3 == 1], name="y")
    op = p.graph(y).ops["y"]
    for steps in (1, 2, 7, 9):
        assert count(op, {"T": steps}) == sum(k % 3 == 1 for k in range(steps))
    assert count(op, {"T": 3_000_000}) == 1_000_000


def test_a_convolution_counts_its_products():
    x, w = jnp.ones((1, 3, 8, 8)), jnp.ones((16, 3, 3, 3))
    jaxpr = jax.make_jaxpr(lambda x, w: jax.lax.conv(x, w, (1, 1), "SAME"))(x, w).jaxpr
    assert work(jaxpr) == 2 * (16 * 8 * 8) * (3 * 3 * 3)
