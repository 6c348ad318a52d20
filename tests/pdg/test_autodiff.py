"""Gradients of programs: every index pattern, recurrences, and REINFORCE, against `jax.grad`."""

import dataclasses
import functools
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.pdg.build.autodiff import gradient
from mmrl.pdg.build.derivative import Derivative
from mmrl.pdg.build.expr import max_, min_
from mmrl.pdg.build.graph import Graph, Op
from mmrl.pdg.build.program import Program
from mmrl.pdg.build.tensor import Tensor
from mmrl.pdg.passes import ops_with_residuals, recompute, vectorize
from mmrl.pdg.plan.code import generate, trace
from mmrl.pdg.plan.frees import plan_memory
from mmrl.pdg.run import compile
from mmrl.pdg.run.naive import check, execute
from mmrl.pdg.schedule import schedule

STEPS = 9  # more than the 8 of t % 8
DATA = jax.random.normal(jax.random.key(0), (STEPS, 3))
MATRIX = jax.random.normal(jax.random.key(1), (3, 2))

PATTERNS: dict[str, Callable[[Any, Any], Any]] = {
    "t": lambda t, T: t,
    "t+3": lambda t, T: t + 3,
    "t-1": lambda t, T: t - 1,
    "0:T": lambda t, T: slice(0, T),
    "t:T": lambda t, T: slice(t, T),
    "0:t+1": lambda t, T: slice(0, t + 1),
    "t:min(t+4,T)": lambda t, T: slice(t, min_(t + 4, T)),
    "max(0,t-4):t+1": lambda t, T: slice(max_(0, t - 4), t + 1),
    "t//2": lambda t, T: t // 2,
    "t%8": lambda t, T: t % 8,
    "T-1-t": lambda t, T: T - 1 - t,
    "2:5": lambda t, T: slice(2, 5),
    "max(t-1,0)": lambda t, T: max_(t - 1, 0),  # φ⁻¹ is no interval that isl can name
}

# On tensors and on arrays: the same text, so that only the differentiation is compared.
FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sum": lambda x, c, matrix: x.sum() * c,
    "square": lambda x, c, matrix: _tanh(x.sum() * c) ** 2,
    "matmul": lambda x, c, matrix: _tanh(x @ matrix).sum() * c,
}


def _oracle(f: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def loss(data: Any, rows: Any) -> Any:
        padded = jnp.concatenate([data, jnp.zeros((1, 3))])
        terms = [f(padded[rows[k]], 0.1 * k + 0.3, MATRIX) for k in range(STEPS)]
        return sum(terms)

    return jax.jit(jax.grad(loss))


def _tanh(x: Any) -> Any:
    return x.tanh() if isinstance(x, Tensor) else jnp.tanh(x)


ORACLES = {name: _oracle(f) for name, f in FUNCTIONS.items()}


def _stack(found: dict[tuple[int, ...], Any]) -> Any:
    return jax.tree.map(lambda *xs: np.stack(xs), *[found[p] for p in sorted(found)])


def _only(graph: Any, bounds: dict[str, int], **options: Any) -> Any:
    (found,) = execute(graph, bounds, **options).values()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "function"),
    # Every pattern; of what is linear two points; a product for a point and every kind of slice.
    [(pattern, "square") for pattern in PATTERNS]
    + [(pattern, "matmul") for pattern in ("t", "t:T", "max(0,t-4):t+1", "2:5")]
    + [(pattern, "sum") for pattern in ("t-1", "t%8")],
)
def test_every_pattern_of_reads_has_its_gradient(pattern: str, function: str):
    phi, f = PATTERNS[pattern], FUNCTIONS[function]
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x = p.fn(lambda t: DATA[t], p.value(t), name="x")
    c = p.value(t).astype("float32") * 0.1 + 0.3
    y = f(x[phi(t, T)], c, p.constant(MATRIX))
    got = _stack(_only(p.graph(gradient(y, x)), {"T": STEPS}, jit=True))

    # Every read as a row of the data or of zeros, so that all patterns share one compiled oracle.
    rows = np.full((STEPS, STEPS), STEPS)
    for step in range(STEPS):
        at = phi(step, STEPS)
        if isinstance(at, slice) or 0 <= at < STEPS:
            found = np.atleast_1d(np.arange(STEPS)[at])
            rows[step, : len(found)] = found
    np.testing.assert_allclose(got, ORACLES[function](DATA, rows), rtol=2e-5, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True])
def test_a_recurrence_is_differentiated_through_time(reverse: bool):
    p = Program("i", "t")
    (i, t), (_, T) = p.symbols, p.bounds
    w = p.fn(lambda i: MATRIX[:, 0] * (1.0 + i), p.value(i), name="w")
    x = p.fn(lambda t: DATA[t], p.value(t), name="x")
    h = p.tensor(i, t, name="h")
    h[i, T - 1 if reverse else 0] = p.fn(lambda w: 0.5 * w, w)
    shift = -1 if reverse else 1
    h[i, t + shift] = p.fn(lambda w, h, x: jnp.tanh(w * h + x), w, h, x)
    loss = p.fn(lambda h: (h**3).sum(), h)
    graph = p.graph(*gradient(loss, w, x))
    got_w, got_x = (_stack(found) for found in execute(graph, {"I": 2, "T": 5}, jit=True).values())

    def oracle(ws: Any, xs: Any) -> Any:
        total = 0.0
        for w in ws:
            h = 0.5 * w
            for x in xs[::-1] if reverse else xs:
                total += (h**3).sum()
                h = jnp.tanh(w * h + x)
        return total

    ws = jnp.stack([MATRIX[:, 0], 2.0 * MATRIX[:, 0]])
    want_w, want_x = jax.jit(jax.grad(oracle, (0, 1)))(ws, DATA[:5])
    np.testing.assert_allclose(got_w, want_w, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got_x, want_x, rtol=1e-5, atol=1e-6)


def test_a_detached_read_carries_no_gradient():
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    x = p.fn(lambda t: DATA[t, 0], p.value(t), name="x")
    loss = (x * x.detach())[0:T].sum()
    got = _stack(_only(p.graph(gradient(loss, x)), {"T": 4}))
    np.testing.assert_allclose(got, DATA[:4, 0], rtol=1e-6)


def test_what_the_loss_does_not_depend_on_has_gradient_zero():
    p = Program("t")
    (t,), _ = p.symbols, p.bounds
    x, y = (p.fn(lambda t: 1.0 * t, p.value(t), name=name) for name in "xy")
    got = _only(p.graph(gradient(x * 2.0, y)), {"T": 3})
    assert [float(v) for v in got.values()] == [0.0, 0.0, 0.0]


def test_what_a_variable_is_computed_from_plays_no_part():
    p = Program("i")
    (i,), _ = p.symbols, p.bounds
    w = p.tensor(i, name="w")
    w[0] = 1.0
    w[i + 1] = w * 3.0
    got = _only(p.graph(gradient(w**2, w)), {"I": 3})
    assert [float(got[k,]) for k in range(3)] == [2.0, 6.0, 18.0]


def test_only_floating_point_leaves_have_gradients():
    p = Program("t")
    (t,), _ = p.symbols, p.bounds
    tree = p.fn(lambda t: {"count": t, "value": 1.0 * t}, p.value(t), name="tree")
    loss = p.fn(lambda tree: tree["value"] ** 2 + tree["count"], tree)
    got = _only(p.graph(gradient(loss, tree)), {"T": 3})
    assert got[2,]["count"] is None and float(got[2,]["value"]) == 4.0


def test_only_a_scalar_has_a_gradient():
    p = Program("t")
    x = p.constant(DATA)
    with pytest.raises(ValueError, match="one floating-point number"):
        gradient(x, x)
    y = p.fn(lambda t: 1.0 * t, p.value(*p.symbols), name="y")
    with pytest.raises(ValueError, match="differentiate with respect to the whole"):
        gradient(y, y[p.symbols[0] + 1])


BATCH, GAMMA, RATE = 4, 0.9, 0.5
FLOW = jax.random.normal(jax.random.key(2), (2, 3)) * 0.5


def init() -> dict[str, Any]:
    keys = jax.random.split(jax.random.key(3))
    return {"hidden": jax.random.normal(keys[0], (3, 8)), "out": jax.random.normal(keys[1], (8, 2))}


def reset(key: Any) -> Any:
    return jax.random.normal(key, (BATCH, 3))


def step(key: Any, obs: Any, action: Any) -> tuple[Any, Any]:
    moved = jnp.tanh(obs + FLOW[action] + 0.1 * jax.random.normal(key, obs.shape))
    return moved, moved.sum(-1)


def logits(w: Any, obs: Any) -> Any:
    return jnp.tanh(obs @ w["hidden"]) @ w["out"]


def act(key: Any, w: Any, obs: Any) -> Any:
    return jax.random.categorical(key, logits(w, obs))


def log_prob(w: Any, obs: Any, action: Any) -> Any:
    return jnp.take_along_axis(jax.nn.log_softmax(logits(w, obs)), action[:, None], 1)[:, 0]


def descend(w: Any, gradient: Any) -> Any:
    return jax.tree.map(lambda x, g: x - RATE * g, w, gradient)


@functools.cache
def reinforce(n: int | None) -> Graph:
    """Alg. 1: change `n` and only one index changes."""
    p = Program("i", "t", seed=7)
    (i, t), (last, T) = p.symbols, p.bounds
    w, obs = p.tensor(i, name="w"), p.tensor(i, t, name="obs")
    w[0] = p.fn(init)
    obs[i, 0] = p.sample(reset, over=(i,))
    action = p.sample(act, w, obs)
    obs[i, t + 1], reward = p.sample(step, obs, action)
    end = T if n is None else min_(t + n, T)
    returns = reward[i, t:end].discounted_sum(GAMMA)
    loss = (-p.fn(log_prob, w, obs, action) * returns.detach())[i, 0:T].mean()
    after = p.fn(descend, w, gradient(loss, w))
    w[i + 1] = after
    return p.graph(after[last - 1])


def by_hand(n: int, iterations: int, steps: int) -> Any:
    """The same with a loop that acts and a loss for `jax.grad`, from the keys of the points."""

    def key(name: str, *point: int) -> Any:
        key = jax.random.fold_in(jax.random.key(7), zlib.crc32(name.encode()))
        for number in point:
            key = jax.random.fold_in(key, number)
        return key

    @jax.jit
    @jax.grad
    def slope(w: Any, tape: Any, returns: Any) -> Any:
        terms = [-log_prob(w, o, a) * g for (o, a, _), g in zip(tape, returns, strict=True)]
        return jnp.stack(terms).mean()

    w = init()
    for i in range(iterations):
        obs, tape = reset(key("reset", i)), []
        for t in range(steps):
            action = act(key("act", i, t), w, obs)
            moved, reward = step(key("step", i, t), obs, action)
            tape.append((obs, action, reward))
            obs = moved
        rewards = [reward for *_, reward in tape]
        ends = [min(t + n, steps) for t in range(steps)]
        returns = [
            sum(GAMMA ** (k - t) * rewards[k] for k in range(t, ends[t])) for t in range(steps)
        ]
        w = descend(w, slope(w, tape, returns))
    return w


@pytest.mark.full
@pytest.mark.slow
def test_reinforce_equals_a_program_written_by_hand():
    got = _only(reinforce(2), {"I": 3, "T": 5}, jit=True)[()]
    want = by_hand(2, 3, 5)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_every_legal_order_gives_the_same_bits():
    bounds = {"I": 2, "T": 3}
    first, *others = [_only(reinforce(2), bounds, seed=seed, jit=True)[()] for seed in range(3)]
    for other in others:
        jax.tree.map(np.testing.assert_array_equal, first, other)


def test_a_step_learns_from_its_window_alone():
    """Nothing between acting and learning waits for the whole episode: it may interleave."""
    graph = reinforce(2)
    gradient = next(name for name in graph.ops if name.startswith("vjp_log_prob"))
    whole = [e for e in graph.edges for part in e.slices if str(part) == "0:T"]
    assert whole == []
    read = {e.source for e in graph.inputs(gradient)}
    assert {"w", "obs"} <= read and "mean" not in read


@pytest.mark.slow
@pytest.mark.parametrize("n", [3, None])
def test_one_changed_index_changes_what_is_kept(n: int | None):
    """n observations are alive at most, or all of them; and nothing is used after it is freed."""
    graph = reinforce(n)
    tree = generate(plan_memory(schedule(graph)))
    for steps in (8, 20):
        bounds = {"T": steps, "I": 2}
        report = check(graph, trace(tree, **bounds), **bounds)
        assert report.ok, report.violations
        assert report.device["obs", 0] == report.device["act", 0] == (n or steps)
        assert report.device["grad_w", 0] == 1


# What the forward pass hands to the backward pass


def gated(w: Any, h: jax.Array, x: jax.Array) -> jax.Array:
    z = jax.nn.sigmoid(w["A"].T @ h + x)
    return (1 - z) * h + z * jnp.tanh(w["A"].T @ (z * h) + x)


def recurrent(recompute: bool | None) -> Graph:
    """The loss of a gated unit, of which one number is looked at, and dA."""
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    w, x = p.input("w", {"A": jnp.zeros((4, 4))}), p.input("x", jnp.zeros(4), t)
    h = p.tensor(t, name="h")
    h[0] = jnp.full(4, 0.3)  # of a weak type, unlike all h that follow
    h[t + 1] = after = p.fn(gated, w, h, x, name="cell")
    loss = p.fn(lambda h: h[0] ** 2, after)[0:T].sum()
    return p.graph(loss, gradient(loss, w, recompute=recompute))


@jax.jit
@jax.value_and_grad
def unrolled(w: Any, x: jax.Array) -> Any:
    def step(h, x):
        h = gated(w, h, x)
        return h, h[0] ** 2

    return jax.lax.scan(step, jnp.full(4, 0.3), x)[1].sum()


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True])
def test_residuals_replace_a_second_forward_pass(again: bool):
    w, x = {"A": jax.random.normal(jax.random.key(0), (4, 4)) / 2}, jnp.ones((7, 4)) / 3
    made = compile(recurrent(again), {})
    program = made.xla(T=7)
    for found in (program(w=w, x=x), made.interpret(T=7, w=w, x=x).results):
        wanted = unrolled(w, x)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-6), found, wanted)
    stored = [program.slots()[name, k] for name, k in program.slots() if name == "cell"]
    # Gates and derivatives are kept, and neither A, which is the same at all t, nor its transpose.
    assert ("cell", 1) in program.slots() or again
    sizes = [size for (name, _), size in program.ring_bytes().items() if name == "cell"]
    assert len(stored) == len(sizes) and max(sizes, default=0) <= 7 * 4 * 4
    # Before XLA optimizes: on a GPU it computes some things twice rather than store them.
    assert program.lower(w=w, x=x).as_text().count("stablehlo.tanh") == 1 + again


def test_residuals_do_not_depend_on_how_a_point_is_given():
    """An index may be a number or traced, and a value may have a weak type."""
    p = Program("t")
    x = p.input("x", jnp.float32(0), *p.symbols)
    op = p.graph(p.fn(lambda x: jnp.sin(x * jnp.float16(2)), x, name="y")).ops["y"]
    power = dataclasses.replace(op, run=lambda env, x: (x ** (env["t"] + 1),))  # a fused index

    def residuals(op: Op, t: Any, value: Any) -> list[Any]:
        derivative = Derivative(op, (jax.ShapeDtypeStruct((), jnp.float32),), (0,), (0,))
        return jax.tree.leaves(derivative.linearize({"t": t}, [value])[0])

    strong, weak = jnp.float32(0.5), jnp.full((), 0.5)
    assert weak.weak_type and not strong.weak_type
    assert [r.dtype for x in (strong, weak) for r in residuals(op, 1, x)] == [jnp.float32] * 2
    traced = jax.make_jaxpr(lambda t: residuals(power, t, strong))(1)
    assert len(residuals(power, 1, strong)) == len(traced.jaxpr.outvars) == 2


def layer() -> Graph:
    """A layer whose input is cast and reshaped first, and the gradient of its weights."""
    p = Program("t")
    w, x = p.input("w", jnp.zeros((6, 4))), p.input("x", jnp.zeros((2, 3), jnp.int8), *p.symbols)
    h = p.fn(lambda w, x: jnp.tanh(x.astype(jnp.float32).reshape(-1) @ w + 1), w, x, name="h")
    return p.graph(gradient((h * h).sum(), w))


def test_the_compiler_may_recompute_what_a_program_keeps():
    graph, again = recurrent(None), recurrent(True)
    assert (
        ops_with_residuals(graph) == ["cell"]
        and ops_with_residuals(again) == ops_with_residuals(recurrent(False)) == []
    )
    assert str(graph) == str(recurrent(False)) and str(recompute(graph)[0]) == str(again)
    assert str(recompute(recurrent(False))[0]) == str(graph)
    assert str(recompute(recurrent(False), ["cell"])[0]) == str(again)
    made, (moved, _) = recompute(layer())[0], vectorize(layer(), "t")
    assert {edge.source for edge in made.inputs("vjp_h")} >= {"w", "x"}
    assert str(recompute(moved, ["h"])[0]) == str(moved)  # a pass that comes too late


def test_twins_keep_what_their_own_derivatives_need():
    """sin(x) sin(y) by x and by y: two residuals each, of the same types."""
    p = Program("t")
    x, y = (p.input(name, 0.0, *p.symbols) for name in "xy")

    def f(x: Any, y: Any) -> Any:
        return jnp.sin(x) * jnp.sin(y)

    u, v = (p.fn(f, x, y, name=name) for name in "uv")
    a, b = jnp.array([0.5, 0.6]), jnp.array([0.1, 0.2])
    found = compile(p.graph(gradient(u, x), gradient(v, y)), {}).interpret(T=2, x=a, y=b).results
    wanted = jnp.cos(a) * jnp.sin(b), jnp.sin(a) * jnp.cos(b)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_what_is_cheap_or_kept_already_is_no_residual():
    """Of tanh(w x + 1) its value only, which is its output: neither x as a row nor 1 - tanh²."""
    graph = layer()
    assert list(map(str, graph.ops["h"].outputs)) == ["float32[4]"]
    read = {edge.tensor for edge in graph.inputs("vjp_h")}
    assert {("x", 0), ("h", 0)} <= read and ("w", 0) not in read


@pytest.mark.slow
def test_gradients_of_parameters_are_summed_as_the_loop_goes_back():
    """A recurrent network keeps one gradient of its parameters, not one for each step."""
    for again in (False, True):
        program = compile(recurrent(again), {}).xla(T=64)
        assert (
            max(program.ring_bytes().values()) <= 65 * 4 * 4
        )  # T + 1 states, and A has 16 numbers


@pytest.mark.slow
def test_a_gradient_through_time_is_differentiated_again():
    """d|dL/da|²/da, where L is a sum over h[t] = tanh(a h[t - 1])."""
    p = Program("t")
    (t,), (T,) = p.symbols, p.bounds
    a, h = p.input("a", jnp.zeros(())), p.tensor(t, name="h")
    h[0] = jnp.ones(())
    h[t + 1] = after = p.fn(lambda a, h: jnp.tanh(a * h), a, h)
    slope = gradient(after[0:T].sum(), a)
    found = compile(p.graph(gradient(slope**2, a)), {}).xla(T=4)(a=jnp.array(0.7))

    def loss(a):
        step = lambda h, _: (jnp.tanh(a * h), jnp.tanh(a * h))  # noqa: E731
        return jax.lax.scan(step, jnp.ones(()), length=4)[1].sum()

    wanted = jax.jit(jax.grad(lambda a: jax.grad(loss)(a) ** 2))(0.7)
    np.testing.assert_allclose(found[0], wanted, 1e-5)
