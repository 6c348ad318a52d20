"""Loops that stop where data end their dimension: the same results, in fewer steps."""

import dataclasses
import random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.pdg.build.autodiff import gradient
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.build.program import Program
from mmrl.pdg.passes import vectorize
from mmrl.pdg.run import compile
from mmrl.pdg.run.naive import execute

BOUNDS = {"I": 3, "T": 8}


@dataclasses.dataclass(frozen=True)
class Drawn:
    """A program that ends t early, in each iteration i at another step."""

    learns: bool  # w[i + 1] = w[i] - 0.01 ∂loss/∂w[i], else w is an input
    noisy: bool  # a step adds noise, which is drawn at every point
    guarded: bool  # rewards are zero after the end, else they are computed from the last state
    loss: str
    first: int  # the first step at which the program may end

    def graph(self, count: list[int] | None = None) -> Graph:
        """Results: the last state, the steps, the loss, its gradient, states, and rewards."""

        def counted(y: Any, t: Any) -> Any:
            if count is not None:
                jax.debug.callback(lambda t: count.append(int(t)), t)
            return (y > 4.0) & (t >= self.first)

        p = Program("i", "t")
        (i, t), (_, T) = p.symbols, p.bounds
        w = p.tensor(i, name="w") if self.learns else p.input("w", 1.0, i)
        if self.learns:
            w[0] = 1.7
        x, stop = p.tensor(i, t, name="x"), p.tensor(i, t, name="stop")
        alive, x[i, 0] = p.until(stop, t), 1.0
        inputs = [x, w, p.sample(jax.random.normal, over=(i, t))] if self.noisy else [x, w]
        y = p.fn(lambda x, w, e=0.0: w * x + 0.1 * e, *inputs, when=alive, otherwise=x, name="y")
        x[i, t + 1], stop[i, t] = y, p.fn(counted, y, p.value(t), name="over")
        r = p.fn(jnp.tanh, y, **({"when": alive} if self.guarded else {}), name="r")
        if self.loss == "returns":
            g = p.tensor(i, t, name="g")
            g[i, T - 1] = r[i, T - 1]
            g[i, t] = r + 0.9 * g[i, t + 1]
            loss = (g.detach() * r)[i, 0:T].sum()
        elif self.loss == "last":
            loss = y[i, T - 1] + r[i, T - 1]
        else:
            loss = r[i, 0:T].sum() + y[i, T - 1] ** 2
        slope = gradient(loss, w)
        if self.learns:
            w[i + 1] = w - 0.01 * slope
        return p.graph(y[i, T - 1], alive[i, 0:T].sum(), loss, slope, y, r)


def drawn(seed: int) -> Drawn:
    draw = random.Random(seed)
    flags = (draw.random() < 0.5 for _ in range(3))
    return Drawn(*flags, draw.choice(["returns", "last", "sum"]), draw.randrange(5))


def inputs(program: Drawn) -> dict[str, Any]:
    return {} if program.learns else {"w": jnp.asarray([1.7, 1.3, 1.05])}


def naive(graph: Graph, given: dict[str, Any]) -> list[Any]:
    found = execute(graph, BOUNDS, jit=True, **given).values()
    return [np.stack([x[k] for k in sorted(x)]).ravel() for x in found]


def same(got: Any, want: Any) -> None:
    for x, y in zip(got, want, strict=True):
        np.testing.assert_array_equal(x, y)


def check(program: Drawn, passes: Any) -> Any:
    graph, given = program.graph(), inputs(program)
    compiled = compile(graph, passes)
    short, whole = compiled.xla(BOUNDS, early=True), compiled.xla(BOUNDS)
    got = short(**given)
    same(got, whole(**given))
    ways = naive(graph, given), compiled.interpret(BOUNDS, **given).results
    for x, y, z in zip(got, *ways, strict=True):
        np.testing.assert_allclose(np.ravel(x), y, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(x, z, rtol=1e-5, atol=1e-6)
    return short


@pytest.mark.full
def test_a_program_that_ends_at_a_step_runs_that_many_steps():
    """Forward and, for a gradient, backward; each iteration ends at another step."""
    count: list[int] = []
    program = Drawn(learns=True, noisy=False, guarded=True, loss="sum", first=1)
    compiled = compile(program.graph(count), {})
    short, whole = compiled.xla(BOUNDS, early=True), compiled.xla(BOUNDS)
    assert [skip.forward for skip in short._skips.values()] == [True, False]
    results = short()
    jax.effects_barrier()
    steps = [int(n) for n in results[1]]
    assert count == [t for n in steps for t in range(n)] and len({*steps}) > 1
    count.clear()
    same(results, whole())
    jax.effects_barrier()
    assert len(count) == BOUNDS["I"] * BOUNDS["T"]


@pytest.mark.full
@pytest.mark.parametrize("seed", range(12))
def test_drawn_programs_have_the_same_results_whether_they_end_early_or_not(seed: int):
    check(drawn(seed), {})


@pytest.mark.full
def test_seeds_stop_together_under_vmap():
    program = Drawn(learns=False, noisy=True, guarded=True, loss="sum", first=2)
    short = compile(program.graph(), {}).xla(BOUNDS, early=True)
    rates = jnp.asarray([[1.7, 1.3, 1.05], [1.2, 2.0, 1.9]])
    run = lambda w: short(w=w)  # noqa: E731
    got = jax.vmap(run)(rates)
    for k, w in enumerate(rates):
        for x, y in zip(got, run(w), strict=True):
            np.testing.assert_allclose(x[k], y, rtol=1e-6)
    one = jnp.asarray([1.0, 0.0, 0.0])
    slope = jax.jvp(lambda w: run(w)[2], (rates[0],), (one,))[1]
    np.testing.assert_allclose(slope[0], run(rates[0])[3][0], rtol=1e-5)


def test_a_loop_runs_to_its_bound_where_a_value_changes_after_the_end():
    p = Program("t")
    (t,), (_,) = p.symbols, p.bounds
    x, stop = p.tensor(t, name="x"), p.tensor(t, name="stop")
    alive, x[0] = p.until(stop, t), 1.0
    y = p.fn(lambda x: 2 * x, x, when=alive, otherwise=x, name="y")
    x[t + 1], stop[t] = y, y > 4
    total, other = p.tensor(t, name="total"), p.tensor(t, name="other")
    total[0], other[0] = 0.0, 0.0
    total[t + 1], other[t + 1] = total + y, y
    changed, kept = (compile(p.graph(r, alive), {}).xla(T=7, early=True) for r in (total, other))
    assert not changed._skips and "bound" in changed.ends[0]
    np.testing.assert_array_equal(changed()[0], [0, 2, 6, 14, 22, 30, 38])
    assert kept._skips and "skips the steps" in kept.ends[0]
    np.testing.assert_array_equal(kept()[0], [0, 2, 4, 8, 8, 8, 8])


def test_an_end_that_is_not_read_is_an_error():
    p = Program("t")
    (t,), (_,) = p.symbols, p.bounds
    x = p.tensor(t, name="x")
    x[0] = 0.0
    x[t + 1] = x + 1.0
    alive = p.until(x > 3, t)
    with pytest.raises(ValueError, match="`alive`, the result of `until`, must be read"):
        p.graph(x)
    assert p.graph(x, alive).bounds == p.graph(x, alive.astype("int32")).bounds


@pytest.mark.full
def test_a_batch_stops_when_all_of_it_has_ended():
    program = Drawn(learns=False, noisy=False, guarded=True, loss="last", first=0)
    moved = compile(program.graph(), {"i": lambda graph: vectorize(graph, "i")})
    short = moved.xla(BOUNDS, early=True)
    same(short(**inputs(program)), moved.xla(BOUNDS)(**inputs(program)))
    assert any(skip.forward for skip in short._skips.values())


def halved(limit: float) -> tuple[Program, Any, Any]:
    """x[0] = 1, and x doubles until it is above a limit: a program, `alive` and the doubled x."""
    p = Program("t")
    (t,), _ = p.symbols, p.bounds
    x, stop = p.tensor(t, name="x"), p.tensor(t, name="stop")
    alive, x[0] = p.until(stop, t), 1.0
    y = p.fn(lambda x: 2 * x, x, when=alive, otherwise=x, name="y")
    x[t + 1], stop[t] = y, y > limit
    return p, alive, y


def final_zero(limit: float) -> Graph:
    """A guarded value of which only the last, a zero, is read."""
    p, alive, y = halved(limit)
    (_,), (T,) = p.symbols, p.bounds
    r = p.fn(jnp.tanh, y, when=alive, name="r")
    return p.graph(r[T - 1], y[T - 1])


def constant_from_one(limit: float) -> Graph:
    """A merge whose branch after step 0 is a constant."""
    p, alive, y = halved(limit)
    (t,), _ = p.symbols, p.bounds
    z = p.tensor(t, name="z")
    z[0], z[t + 1] = 5.0, 7.0
    return p.graph(z, y, alive)


def renamed(limit: float) -> Graph:
    """`alive` is a branch of another merge."""
    p, alive, y = halved(limit)
    (t,), _ = p.symbols, p.bounds
    was = p.tensor(t, name="was")
    was[0], was[t + 1] = True, alive
    return p.graph(was, y)


@pytest.mark.parametrize("graph", [final_zero, constant_from_one, renamed])
@pytest.mark.parametrize("limit", [1.0, 4.0, 1e9])
def test_results_are_equal_where_values_change_at_the_end(graph: Any, limit: float):
    compiled = compile(graph(limit), {})
    same(compiled.xla(T=7, early=True)(), compiled.xla(T=7)())


def test_loops_run_to_their_bounds_where_a_pass_has_moved_the_dimension():
    p, alive, y = halved(4.0)
    (t,), _ = p.symbols, p.bounds
    root = p.fn(jnp.sqrt, p.fn(lambda n: 1.0 * n, p.value(t)), when=alive, name="root")
    compiled = compile(p.graph(root, y), {"t": lambda graph: vectorize(graph, "t")})
    short = compiled.xla(T=7, early=True)
    same(short(), compiled.xla(T=7)())
    assert not short._skips and "arrays" in short.ends[0]
