"""The interpreter, its stores and its account, against a plain recursion over points."""

import functools
import itertools
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.pdg.build.autodiff import gradient
from mmrl.pdg.build.expr import Sym, as_expr, min_
from mmrl.pdg.build.graph import Domain, Edge, Graph, Op, array_type
from mmrl.pdg.build.program import Program
from mmrl.pdg.plan.account import DEVICE, HOST, Account, ReadTable
from mmrl.pdg.plan.alive import Peak
from mmrl.pdg.plan.code import Body, Execute, Free
from mmrl.pdg.plan.frees import donations
from mmrl.pdg.plan.swap import Swap
from mmrl.pdg.run import compile
from mmrl.pdg.run.arrays import BACKENDS, HOST_MEMORY, Jax
from mmrl.pdg.run.interpreter import (
    BlockStore,
    Execution,
    HostStore,
    Interpreter,
    PointStore,
    batch_events,
    interpret,
)
from mmrl.pdg.run.naive import check
from mmrl.pdg.schedule import schedule
from tests.helpers.pdg_graphs import compiled, reinforce
from tests.pdg.layout_oracle import last_reads

SOME = ["Monte-Carlo", "3-step, tiles of 4", "PPO"]


def meaning(graph: Graph, bounds: dict[str, int]) -> list[Any]:
    """The results of a graph by recursion: no schedule, no store, nothing freed."""

    @functools.cache
    def value(name: str, point: tuple[int, ...]) -> tuple:
        op = graph.ops[name]
        env = op.domain.env(point, bounds)
        inputs = [read(edge, env) for edge in graph.inputs(name) if edge.when.evaluate(env)]
        return (inputs[0],) if op.run is None else op.run(env, *inputs)

    def read(edge: Edge, env: dict[str, int]) -> Any:
        if not edge.slices:
            return value(edge.source, tuple(e.evaluate(env) for e in edge.index))[edge.output]
        assert len(edge.slices) == 1
        width = graph.ops[edge.sink].domain.largest(edge.slices[0].width(), bounds)
        low, high = (e.evaluate(env) for e in (edge.slices[0].lo, edge.slices[0].hi))
        points = [
            tuple(at if part is edge.slices[0] else part.evaluate(env) for part in edge.index)
            for at in range(low, high)
        ]
        rows = [value(edge.source, point)[edge.output] for point in points]
        return jnp.stack(rows + [jnp.zeros_like(rows[0])] * (width - len(rows)))

    return [
        jnp.stack([value(name, p)[k] for p in graph.ops[name].domain.points(bounds)]).squeeze()
        for name, k in graph.results
    ]


def numbers(graph: Graph, T: int = 9, others: int = 3) -> dict[str, int]:
    return {name: T if name == "T" else others for name in graph.bounds}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SOME, "3-step", "PPO, returns by slices"])
def test_it_computes_what_the_graph_means_and_leaks_nothing(name: str):
    graph = compiled(name).graph
    done = interpret(compiled(name), numbers(graph))
    np.testing.assert_allclose(done.results, meaning(graph, numbers(graph)), rtol=1e-6)
    assert {tensor for tensor, _, _ in done.account.leaks()} == set(graph.results)
    assert done.account.live() == 4 * len(done.account.leaks())
    assert done.account.timeline()[-1] == done.account.live()
    assert done.account.timeline().max() == done.account.peak()


OBS, RETURN, REWARD = ("o", 0), ("g", 0), ("e", 1)


def test_n_steps_hold_n_observations():
    n = 3
    done = interpret(compiled("3-step"), {"I": 2, "T": 16})
    assert done.account.peak(OBS) == done.account.peak(REWARD) == n * 4
    assert done.account.peak(RETURN) == 4
    assert done.stores[REWARD] == "ring"
    assert done.stores[OBS] == "point"


@functools.cache
def monte_carlo() -> Execution:
    return interpret(compiled("Monte-Carlo"), {"I": 2, "T": 12})


def test_monte_carlo_holds_the_whole_episode():
    done = monte_carlo()
    assert done.account.peak(OBS) == done.account.peak(REWARD) == 12 * 4
    assert done.stores[REWARD] == "block"


@pytest.mark.slow
def test_tiles_of_m_hold_m_plus_n_minus_1():
    done = interpret(compiled("3-step, tiles of 4"), {"I": 2, "T": 32})
    assert done.account.peak(OBS) == (4 + 3 - 1) * 4


@pytest.mark.slow
def test_swapped_observations_wait_on_the_host():
    done = interpret(compile(reinforce(), {}, swap=(OBS,)), {"I": 2, "T": 12})
    assert done.account.peak(OBS) == 4
    assert done.account.peak(OBS, HOST) >= 11 * 4
    np.testing.assert_array_equal(done.results, monte_carlo().results)


def moves(events: Any, kind: str) -> dict[Any, int]:
    """How many operations ran before each offload or fetch."""
    ran, found = 0, {}
    for what, tensor, point in events:
        ran += what == "run"
        found |= {(tensor, point): ran} if what == kind else {}
    return found


def test_what_is_not_worth_it_stays_and_the_rest_comes_back_ahead_of_use():
    bounds = {"I": 2, "T": 12}
    made = compile(reinforce(), {}, swap=[OBS])
    every = made.trace(bounds)

    def fetches(**numbers: int) -> dict[Any, int]:
        events = Swap([OBS], **numbers).among(every, {OBS: 4})
        assert check(made.graph, events, **bounds).ok
        return moves(events, "fetch")

    away, late = moves(every, "offload"), moves(every, "fetch")
    waits = {value: late[value] - away[value] for value in late}
    assert set(waits.values()) == {*range(35, 47)}
    assert fetches() == fetches(idle=34, size=4) == late
    assert fetches(size=5) == {}
    assert fetches(idle=40) == {value: late[value] for value, wait in waits.items() if wait > 40}
    assert fetches(ahead=6) == {value: ran - 6 for value, ran in late.items()}
    assert fetches(ahead=40) == {v: late[v] - 40 for v, wait in waits.items() if wait > 40}
    with pytest.raises(ValueError, match="at least 0, got -1"):
        compile(reinforce(), {}, swap=Swap(ahead=-1))


@pytest.mark.slow
def test_all_that_waits_long_may_be_swapped():
    bounds = {"I": 2, "T": 12}
    made = compile(reinforce(), {}, swap=Swap(idle=8, ahead=2))
    assert made.check(bounds).ok and made.peak(bounds).exact
    done, plain = interpret(made, bounds), monte_carlo()
    every = compile(reinforce(), {}, swap=Swap())
    np.testing.assert_array_equal(done.results, plain.results)
    assert {tensor for tensor, _ in moves(made.trace(bounds), "fetch")} >= {OBS, ("a", 0), REWARD}
    assert 2 * done.account.peak() < plain.account.peak() < done.account.peak(place=HOST) + 40
    for each, run in ((made, done), (every, every.interpret(bounds))):
        assert each.peak(bounds) == Peak(run.account.peak(), run.account.peak(place=HOST))
    for place in (DEVICE, HOST):
        line = done.account.timeline(place=place)
        assert len(line) == len(done.account.events) and line.max() == done.account.peak(
            place=place
        )


def test_memory_is_given_back_by_blocks_of_points():
    made, bounds = compiled("PPO"), {"I": 2, "K": 2, "T": 6}
    events = made.trace(bounds)
    blocks = list(batch_events(events))
    assert blocks.count(("free", OBS, tuple((1, t) for t in range(6)))) == 1
    alone = [(kind, what, at) for kind, what, points in blocks if kind != "run" for at in points]
    assert sorted(alone) == sorted(event for event in events if event[0] != "run")
    assert sum(kind == "run" for kind, *_ in blocks) == len(events) - len(alone)
    assert made.check(bounds).device[OBS] == 6
    assert interpret(made, bounds).account.peak(OBS) == 6 * 4


def test_a_thunk_serves_every_step_and_run():
    program = Interpreter(compiled("3-step"), {"I": 3, "T": 9})
    program()
    program()
    # Where several hold a value it cannot be given away: two programs, whatever T is.
    assert all(thunk._cache_size() <= 2 for thunk in program.thunks.values() if thunk)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOME)
def test_what_ends_with_a_read_is_given_away(name: str):
    made, bounds = compiled(name), numbers(compiled(name).graph)
    # At all bounds at once, isl says the same.
    found = last_reads(made.trace(**bounds), ReadTable(made.graph, bounds))
    assert found == set(donations(schedule(made.graph)))
    kept, given = (Interpreter(made, bounds, Jax(donates))() for donates in (False, True))
    np.testing.assert_array_equal(given.results, kept.results)
    assert given.account.live() == kept.account.live()
    assert given.account.peak() <= kept.account.peak()


def test_a_loop_that_gives_its_state_away_holds_one():
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x = p.tensor(t, name="x")
    x[0] = jnp.zeros(1000)
    following = p.fn(lambda x: 0.5 * x + 1.0, x, name="following")
    x[t + 1] = following
    made, size = compile(p.graph(following[T - 1]), {}), 4000
    programs = [Interpreter(made, {"T": 6}, Jax(donates)) for donates in (False, True)]
    kept, given = (program() for program in programs)
    np.testing.assert_array_equal(given.results, kept.results)
    assert (kept.account.peak(), given.account.peak()) == (2 * size, size)
    value, thunk = {0: jnp.zeros(1000)}, programs[1].thunks["following"]
    assert thunk is not None
    done = thunk(value, {}, {"t": 0})
    assert value[0].is_deleted() and not done[0].is_deleted()
    # What others hold, or is a result, stays: the value that is asked for, in both memories.
    assert {tensor for tensor, _, _ in given.account.leaks()} == set(made.graph.results)


def test_a_use_after_free_is_named():
    t = Sym("t")
    number = array_type((), "float32")
    ops = {
        "x": Op("x", "fn", Domain.of("t"), (number,), lambda env: (jnp.float32(1),)),
        "y": Op("y", "fn", Domain.of("t"), (number,), lambda env, x: (x,)),
    }
    graph = Graph(ops, (Edge("y", "x", (t,)),), ("T",), ())
    zero = (as_expr(0),)
    tree = Body((Execute("x", zero), Free(("x", 0), zero), Execute("y", zero)))
    wrong = compile(graph, {})
    vars(wrong)["tree"] = tree
    with pytest.raises(ValueError, match=r"y\[0\], which reads x\[0\]"):
        interpret(wrong, {"T": 1})
    with pytest.raises(ValueError, match="`bounds` must contain T, got"):
        interpret(wrong, {})


def test_the_account_counts_a_shared_buffer_once():
    account = Account()
    account.hold(("a", 0), (0,), [("memory", 100)])
    account.tick(("run", "a", (0,)))
    account.hold(("b", 0), (1,), [("memory", 100)])
    account.tick(("run", "b", (1,)))
    assert (account.live(), account.live(("a", 0)), account.live(("b", 0))) == (100, 100, 0)
    account.drop(("a", 0), (0,))
    account.tick(("free", ("a", 0), (0,)))
    assert (account.live(), account.live(("a", 0)), account.live(("b", 0))) == (100, 0, 100)
    account.drop(("b", 0), (1,))
    account.tick(("free", ("b", 0), (1,)))
    assert account.timeline().tolist() == [100, 100, 100, 0]
    assert account.timeline(("b", 0)).tolist() == [0, 0, 100, 0]
    assert (account.peak(), account.peak(("b", 0)), account.leaks()) == (100, 100, [])
    with pytest.raises(ValueError, match="has no value on the device"):
        account.drop(("b", 0), (1,))


def values(T: int) -> list[dict[str, Any]]:
    return [{"x": jnp.full((2,), float(t)), "n": jnp.asarray(t)} for t in range(T)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("slots", [5, 6, 9])
def test_a_ring_is_a_point_store_of_fewer_slots(slots: int, backend: str):
    reserved: list[int] = []
    arrays = BACKENDS[backend]
    (example,) = values(1)
    ring = BlockStore(arrays, example, reserved.append, 1, slots, 9)
    points = PointStore(arrays, example)
    for t, each in enumerate(values(9)):
        value = jax.tree.map(arrays.asarray, each)
        ring.put((5, t), value)
        points.put((5, t), value)
        if t >= 4:
            ring.free((5, t - 4))
            points.free((5, t - 4))
        for low, high in itertools.combinations(range(max(0, t - 3), t + 2), 2):
            index = (5, range(low, high))
            got, wanted = ring.get(index, (4,)), points.get(index, (4,))
            jax.tree.map(np.testing.assert_array_equal, got, wanted)
            assert got["x"].shape == (4, 2)
        jax.tree.map(np.testing.assert_array_equal, ring.get((5, t), ()), value)
    assert ring.kind == ("block" if slots == 9 else "ring")
    for t in range(5, 9):
        ring.free((5, t))
    assert sum(reserved) == 0
    assert max(reserved) == slots * 12


def test_a_ring_refuses_what_is_not_there():
    ring = BlockStore(BACKENDS["jax"], jnp.float32(0), lambda size: None, 0, 2, 8)
    for t in range(2):
        ring.put((t,), jnp.float32(t))
    with pytest.raises(ValueError, match="coordinate 2 would overwrite 0"):
        ring.put((2,), jnp.float32(2))
    with pytest.raises(KeyError):
        ring.get((range(1, 3),), (2,))
    with pytest.raises(KeyError):
        ring.free((3,))


def test_a_host_store_moves_there_and_back():
    store, value = HostStore(BACKENDS["jax"]), jnp.arange(3.0)
    (((_, size),),) = store.put([(0,)], [value])
    assert size == 12
    assert store._values[0,].sharding.memory_kind == HOST_MEMORY
    (back,) = store.take([(0,)])
    assert back.sharding.memory_kind == value.sharding.memory_kind
    np.testing.assert_array_equal(back, value)


@pytest.mark.full
@pytest.mark.slow
def test_numpy_computes_what_jax_does_with_the_same_bytes():
    """Functions are called with NumPy's arrays, and no call of JAX is needed for the table."""
    seen: set[type] = set()

    def squash(x: Any) -> Any:
        seen.add(type(x))
        return x / (1.0 + abs(x))

    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    start = p.input("start", 0.0)
    x = p.tensor(t, name="x")
    x[0] = start
    x[t + 1] = p.fn(squash, x * 0.5 + p.value(t).astype("float32"), name="squash")
    near = x[t : min_(t + 3, T)]
    parts = [near.sum(), near.max(), near.mean(), near.softmax()[..., 0], near.flip()[..., 0]]
    parts += [near.discounted_sum(0.5), near @ near, (near > 0.5).sum().astype("float32")]
    total = functools.reduce(operator.add, parts)
    # A function whose residuals are kept is traced, not called.
    made = compile(p.graph(total[0:T].read(), gradient(total, start, recompute=True)), {})
    seen.clear()
    found = made.interpret(T=6, start=0.25, backend="numpy")
    assert np.ndarray in seen  # and tracers, in the derivative
    want = Interpreter(made, {"T": 6}, Jax(donates=False))(start=0.25)
    for got, wanted in zip(found.results, want.results, strict=True):
        assert type(got) is np.ndarray and got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
    assert found.account.events == want.account.events
    np.testing.assert_array_equal(found.account.timeline(), want.account.timeline())


def test_numpy_casts_what_is_out_of_range_as_jax_does():
    p = Program("t")
    x = p.input("x", jnp.zeros(9))
    compiled = compile(
        p.graph(*(x.astype(kind) for kind in ("int32", "int8", "uint8", "bool"))), {}
    )
    start = np.array([-3e9, -5.7, -0.5, 0.5, 300.2, 3e9, np.nan, np.inf, -np.inf], np.float32)
    found, want = (compiled.interpret(T=1, x=start, backend=b).results for b in ("numpy", "jax"))
    for a, b in zip(found, want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("constant", [False, True])
def test_what_a_run_begins_with_outlives_it(constant: bool):
    value = jnp.zeros(3)
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x = p.tensor(t, name="x")
    x[0] = p.constant(value) if constant else p.input("start", value)
    following = p.fn(lambda x: x + 1.0, x, name="following")
    x[t + 1] = following
    run = Interpreter(compile(p.graph(following[T - 1]), {}), {"T": 4})
    for _ in range(2):
        found = run() if constant else run(start=value)
        assert found.results[0].tolist() == [4.0] * 3
    assert not value.is_deleted() and found.account.peak() == 12


def test_a_function_that_writes_into_its_argument_changes_no_other_value():
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds

    def doubled(x: Any) -> Any:
        x *= 2.0
        return x

    x = p.tensor(t, name="x")
    x[0] = 1.0
    x[t + 1] = x + 1.0
    y = p.fn(doubled, x, name="y")
    graph = p.graph(x[0:T].sum(), y[0:T].sum())
    for backend in ("jax", "numpy"):
        found = compile(graph, {}).interpret(T=4, backend=backend).results
        np.testing.assert_allclose(found, (10.0, 20.0))


def test_numpy_reads_inputs_along_a_dimension_that_is_vectorized():
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x = p.input("x", 0.0, t)
    graph = p.graph(p.fn(jnp.tanh, x, name="y")[0:T].sum())
    values = np.linspace(-1, 1, 5, dtype=np.float32)
    found = compile(graph).interpret(T=5, backend="numpy", x=values).results[0]
    np.testing.assert_allclose(found, np.tanh(values).sum(), rtol=1e-5, atol=1e-6)
