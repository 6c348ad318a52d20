"""Programs that are given values when they run, and that call Python while they do."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.pdg import Program, compile, gradient
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.passes import fuse, lift_loops, tile, vectorize
from mmrl.pdg.run import naive
from mmrl.pdg.run.interpreter import Interpreter

STEPS = 6
PASSES: dict[str, Callable] = {
    "none": lambda graph: graph,
    "vectorize": lambda graph: vectorize(graph, "t"),
    "lift": lambda graph: lift_loops(graph, "t", when="always"),
    "tile": lambda graph: tile(graph, "t", 4),
    "fuse": fuse,
}


def made(graph: Graph, passes: str) -> Any:
    return compile(graph, {} if passes == "none" else {passes: PASSES[passes]})


@functools.cache
def filtered() -> Graph:
    """Σ_t h[t], h[t] = rate h[t - 1] + <x[t], w>, and its gradients with respect to inputs."""
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x, w = p.input("x", jnp.zeros(3), t), p.input("w", {"a": jnp.zeros(3)})
    rate, h = p.input("rate", 0.1), p.tensor(t, name="h")
    h[0] = 0.0
    h[t + 1] = y = p.fn(lambda h, x, w, r: h * r + (x * w["a"]).sum(), h, x, w, rate, name="y")
    loss = y[0:T].sum()
    return p.graph(loss, gradient(loss, w), gradient(loss, rate))


@functools.cache
def plain() -> tuple[Any, Interpreter]:
    """That program with no pass: one XLA program, and one interpreter."""
    program = made(filtered(), "none")
    return program.xla(T=STEPS), Interpreter(program, {"T": STEPS})


def by_hand(w: dict, rate: Any, x: Any) -> Any:
    def step(h, x):
        h = h * rate + (x * w["a"]).sum()
        return h, h

    return jax.lax.scan(step, 0.0, x)[1].sum()


def values(seed: int) -> dict[str, Any]:
    a, b = jax.random.split(jax.random.key(seed))
    return {"x": jax.random.normal(a, (STEPS, 3)), "w": {"a": jax.random.normal(b, (3,))}}


@functools.cache
def expected(seed: int, rate: float) -> tuple:
    w, x = values(seed)["w"], values(seed)["x"]
    loss, slopes = jax.jit(jax.value_and_grad(by_hand, (0, 1)))(w, rate, x)
    return loss, *slopes


@pytest.mark.full_except("tile")
@pytest.mark.slow
@pytest.mark.parametrize("passes", ["none", "lift", "tile"])
def test_one_program_serves_all_values(passes: str):
    graph, traced = filtered(), []
    program = made(graph, passes)
    one, other = program.xla(T=STEPS), Interpreter(program, {"T": STEPS})
    inner, one._run = one._run, lambda inputs: (traced.append(1), inner(inputs))[1]
    one._jitted = jax.jit(one._run)
    for seed, rate in ((0, 0.5), (1, -0.9)):
        given, wanted = {**values(seed), "rate": rate}, expected(seed, rate)
        found = [one(**given), other(**given).results]
        if passes == "none":
            points = naive.execute(graph, {"T": STEPS}, jit=True, **given)
            found.append(tuple(v[()] for v in points.values()))
        for results in found:
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5), results, wanted)
    assert len(traced) == 1


def test_a_key_is_given_alike():
    p = Program("t")
    drawn = p.sample(lambda key: jax.random.normal(key), over=p.symbols, name="drawn")
    graph, key = p.graph(drawn), jax.random.key(7)
    one, other = made(graph, "none").xla(T=3)(key=key)[0], made(graph, "none").xla(T=3)()[0]
    run = naive.execute(graph, {"T": 3}, key=key)["drawn", 0]
    np.testing.assert_allclose(one, [run[k,] for k in range(3)], rtol=1e-6)
    assert not np.allclose(one, other)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": None}, "lacks the input `rate`; the program's inputs: x, w, rate"),
        ({"more": 1.0}, "unknown input `more`"),
        ({"x": np.zeros((5, 3))}, r"`x` must have the shape \(6, 3\): \(3,\) at each \[t\]; got"),
        ({"w": 1.0}, r"`w` must be a PyTreeDef\(\{'a': \*\}\), got a PyTreeDef\(\*\)"),
        ({"rate": 1j}, "`rate` must be float32, got complex64"),
    ],
)
def test_wrong_inputs_are_named(change: dict, message: str):
    given = {k: v for k, v in {**values(0), "rate": 0.5, **change}.items() if v is not None}
    one, other = plain()
    for run in (
        lambda: one(**given),
        lambda: other(**given),
        lambda: naive.execute(filtered(), {"T": STEPS}, **given),
    ):
        with pytest.raises(ValueError, match=message):
            run()


def test_wrong_names_of_inputs():
    p = Program("t")
    p.input("x", 0.0)
    for name, message in (("x", "taken"), ("T", "lower case"), ("key", "other than key")):
        with pytest.raises(ValueError, match=message):
            p.input(name, 0.0)


def logged(log: list, buffer: list, ends: list) -> Graph:
    """A replay buffer on the host that answers, and a logger that nothing reads."""

    def store(x: Any) -> np.float32:
        buffer.append(float(x))
        return np.float32(sum(buffer))

    p = Program("i", "t")
    (i, t), (_, T) = p.symbols, p.bounds
    x = p.input("x", 0.0, i, t)
    stored = p.host(store, x, like=jnp.float32(0), name="store")
    again = p.host(store, x, like=jnp.float32(0), name="again")  # not the same as the first
    total = p.fn(lambda a, b: a + 0 * b, stored, again, name="mean")[i, 0:T].sum()
    p.host(lambda i, m: log.append((int(i), float(m))), p.value(i), total, name="log")
    for name in ("begin", "end"):  # two calls of the same function with the same inputs
        p.host(lambda: ends.append(1), name=name)
    return p.graph(total)


@pytest.mark.parametrize("way", ["naive", "interpret", *PASSES])
def test_the_host_is_called_once_at_each_point_in_order(way: str):
    log, buffer, ends = [], [], []
    graph, x = logged(log, buffer, ends), jnp.arange(6.0).reshape(2, 3) + 1
    if way == "naive":
        naive.execute(graph, {"I": 2, "T": 3}, x=x, seed=3)
    elif way == "interpret":
        made(graph, "none").interpret(I=2, T=3, x=x)
    else:
        made(graph, way).xla(I=2, T=3)(x=x)
    jax.effects_barrier()
    assert sorted(buffer) == sorted([*x.ravel()] * 2)
    firsts = [buffer.index(float(v)) for v in x.ravel()]
    assert firsts == sorted(firsts)
    assert [i for i, _ in log] == [0, 1] and ends == [1, 1]


def test_no_gradient_flows_through_the_host():
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x = p.input("x", 0.0, t)
    seen = p.host(lambda x: np.float32(2 * x), x, like=jnp.float32(0), name="seen")
    loss = (seen * x)[0:T].sum()
    graph, x = p.graph(gradient(loss, x)), jnp.arange(1.0, 4.0)
    np.testing.assert_allclose(made(graph, "none").xla(T=3)(x=x)[0], 2 * x)


def test_the_host_is_not_called_where_it_has_no_inputs():
    p = Program("t")
    (t,), _ = p.symbols, p.bounds
    x = p.input("x", 0.0, t)
    with pytest.raises(ValueError, match=r"called only where .*t >= 1"):
        p.host(print, x[t - 1])


@pytest.mark.slow
def test_inputs_that_are_alike_stay_apart_through_all_passes():
    p = Program("i", "t")
    (i, t), (I, T) = p.symbols, p.bounds  # noqa: E741
    x, y = p.input("x", 0.0, i, t), p.input("y", 0.0, i, t)
    graph = p.graph((x[i, t:T] - 2 * y[i, t:T]).sum()[0:I, 0:T].sum())
    x, y = np.arange(14.0).reshape(2, 7), np.ones((2, 7))
    wanted = ((x - 2 * y) * np.arange(1, 8)).sum()
    moves = {"t": lambda graph: tile(graph, "t", 4), "i": lambda graph: vectorize(graph, "i")}
    for passes in ({}, moves | {"fuse": fuse}):
        program, given = compile(graph, passes), {"x": x, "y": y}
        np.testing.assert_allclose(program.xla(I=2, T=7)(**given)[0], wanted, rtol=1e-6)
        (found,) = naive.execute(program.graph, {"I": 2, "T": 7}, **given).values()
        np.testing.assert_allclose(found[()], wanted, rtol=1e-6)


@pytest.mark.slow
def test_one_program_is_a_function_of_its_inputs():
    (one, _), given = plain(), values(0)
    rates = jnp.array([0.5, -0.9])
    many = jax.vmap(lambda rate: one(rate=rate, **given)[2])(rates)
    through = jax.jacfwd(lambda rate: one(rate=rate, **given)[0])
    np.testing.assert_allclose(many, [through(rate) for rate in rates], rtol=1e-4)


def replayed(buffer: list) -> Graph:
    """w[i + 1] = w[i] + the mean of what was drawn from all that was seen, x[i, t] + w[i]."""
    p = Program("i", "t")
    (i, t), (I, T) = p.symbols, p.bounds  # noqa: E741
    w, x = p.tensor(i, name="w"), p.input("x", 0.0, i, t)
    w[0] = 0.0
    size = p.host(lambda x: buffer.append(x) or len(buffer), x + w, like=0, name="write")
    draw = lambda n: np.stack(buffer)[:: int(n[-1]) // 2]  # noqa: E731
    batch = p.host(draw, size[i, 0:T], like=jnp.zeros(2), name="draw")
    w[i + 1] = w + batch.mean(0)
    return p.graph(w[I - 1])


@pytest.mark.slow
def test_a_replay_buffer_on_the_host_is_written_and_drawn_from():
    x = np.arange(12.0, dtype=np.float32).reshape(3, 4) ** 2
    seen, w = [], 0.0
    for row in x[:2]:
        seen += [*(row + w)]
        w += np.mean(seen[:: len(seen) // 2])
    buffer: list = []
    graph, bounds = replayed(buffer), {"I": 3, "T": 4}
    program = made(graph, "none")
    for run in (
        lambda: program.xla(bounds)(x=x),
        lambda: program.interpret(bounds, x=x).results,
        lambda: [v[()] for v in naive.execute(graph, bounds, x=x).values()],
    ):
        buffer.clear()
        np.testing.assert_allclose(run()[0], w, rtol=1e-6)
        np.testing.assert_allclose(buffer, [*seen, *(x[2] + w)], rtol=1e-6)


def test_what_the_host_returns_has_the_types_of_like():
    p = Program("t")
    x = p.input("x", 0.0, *p.symbols)
    seen = p.host(lambda x: np.zeros(2), x, like=jnp.zeros(3), name="seen")
    program = made(p.graph(seen), "none")
    given = {"x": jnp.ones(2)}
    for run in (lambda: program.interpret(T=2, **given), lambda: program.xla(T=2)(**given)):
        with pytest.raises(Exception, match=r"`seen` must return float32\[3\], .*`like`"):
            run()
        # A GPU says it once more to whoever waits for it next, which shall be no other test.
        with contextlib.suppress(Exception):
            jax.effects_barrier()


def growing(calls: list, runs: list) -> Graph:
    """y = w[i] x until y is above a limit: the last y, the steps, Σ_t √y and its gradient."""

    def counted(i: Any, t: Any) -> Any:
        jax.debug.callback(lambda t: runs.append(int(t)), t)
        return t

    p = Program("i", "t")
    (i, t), (_, T) = p.symbols, p.bounds
    w, limit = p.input("w", 1.0, i), p.input("limit", 1.0)
    x, stop = p.tensor(i, t, name="x"), p.tensor(i, t, name="stop")
    alive, x[i, 0] = p.until(stop, t), 1.0
    y = p.fn(lambda x, w: w * x, x, w, when=alive, otherwise=x, name="y")
    x[i, t + 1], stop[i, t] = y, y > limit
    root = p.fn(jnp.sqrt, y, when=alive, name="root")
    p.host(lambda *at: calls.append(tuple(map(int, at))), i, t, when=alive, name="call")
    total, run = root[i, 0:T].sum(), p.fn(counted, i, t, when=alive, name="run")
    return p.graph(y[i, T - 1], alive[i, 0:T].sum(), total, gradient(total, w), run)


def grown(w: Any, limit: float, most: int) -> Any:
    """The same by hand, for one w."""
    y, total, steps = 1.0, 0.0, 0
    while steps < most and not y > limit:
        y, steps = w * y, steps + 1
        total = total + jnp.sqrt(y)
    return total, (y, steps)


RATES = np.array([2.0, 1.5, 1.1], np.float32)


@functools.cache
def all_grown(limit: float) -> np.ndarray:
    slopes = [jax.value_and_grad(grown, has_aux=True)(x, limit, 9) for x in RATES]
    return np.array([(y, n, total, slope) for (total, (y, n)), slope in slopes]).T


@pytest.mark.full_except("fuse", "over i")
@pytest.mark.slow
@pytest.mark.parametrize("way", ["none", "over i", "fuse"])
def test_data_decide_how_many_steps_there_are(way: str):
    calls, runs, bounds = [], [], {"I": 3, "T": 9}
    graph = growing(calls, runs)
    batched = {"i": lambda graph: vectorize(graph, "i")}
    program = compile(graph, batched) if way == "over i" else made(graph, way)
    ways: list[Callable[..., Any]] = [program.xla(bounds)]
    if way == "none":
        stack = lambda v: np.stack([v[k] for k in sorted(v)])  # noqa: E731
        ways.append(lambda **given: program.interpret(bounds, **given).results)
        order = lambda **given: naive.execute(graph, bounds, jit=True, **given).values()  # noqa: E731
        ways.append(lambda **given: [*map(stack, order(**given))])
    for run, limit in [(run, 5.0) for run in ways] + [(ways[0], 50.0)]:
        calls.clear()
        runs.clear()
        results, wanted = run(w=RATES, limit=limit), all_grown(limit)
        jax.effects_barrier()
        np.testing.assert_allclose(np.stack(results[:4]), wanted, rtol=1e-5)
        live = [(i, t) for i, n in enumerate(wanted[1]) for t in range(int(n))]
        assert calls == live  # in order, though the naive run is in any
        ran = np.argwhere(np.reshape(results[4], (3, 9)))
        np.testing.assert_array_equal(ran, [at for at in live if at[1]])
        assert way != "none" or sorted(runs) == sorted(t for _, t in live)


def test_what_runs_after_an_end_is_reported():
    """In a loop functions are skipped; in arrays they are computed and discarded."""
    p = Program("t")
    (t,) = p.symbols
    x, stop = p.tensor(t, name="x"), p.tensor(t, name="stop")
    alive, x[0] = p.until(stop, t), 4.0
    y = p.fn(lambda x: x - 1, x, when=alive, otherwise=x, name="y")
    x[t + 1], stop[t] = y, y < 2
    graph = p.graph(p.fn(jnp.sqrt, y, when=alive, name="root"))
    loop = compile(graph, {}).stages[-1].words
    moved = compile(graph, {"t": lambda g: vectorize(g, "t")}).stages[-1].words
    assert len(loop) == 2 and "y, root" in loop[1] and loop[0] == moved[-3]
    assert "y" in moved[-2] and "root" not in moved[-2] and "root" in moved[-1]
    words = compile(graph, T=4).report().words
    assert words[-3:-1] == loop and "skips the steps" in words[-1]
    assert compile(p.graph(p.value(t)), {}).stages[-1].words == ()


def test_until_wants_a_tensor_along_its_dimension():
    p = Program("i", "t")
    i, t = p.symbols
    with pytest.raises(ValueError, match="`stop` must be a tensor along t, got"):
        p.until(p.tensor(i), t)
    with pytest.raises(ValueError, match="`otherwise` must be passed together with `when`"):
        p.fn(jnp.sqrt, p.input("y", 0.0), otherwise=1.0)


def test_what_has_ended_does_not_begin_again():
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    stop = p.tensor(t, name="stop")
    alive = p.until(stop, t)
    stop[t] = p.fn(lambda t: t == 2, p.value(t))  # and false behind it
    assert compile(p.graph(alive[0:T].sum()), {}).xla(T=6)()[0] == 3
