"""Recurrences by `lift` against `lax.scan`, and what it refuses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.monoid import Moments
from mmrl.pdg.build.program import Program
from mmrl.pdg.passes import Refusal, declare, lift, lift_loops, recognize, vectorize
from mmrl.pdg.passes.loops import sum_terms
from mmrl.pdg.run import compile
from mmrl.pdg.run.naive import execute

T, N = 7, 3


def draw(seed, *shape):
    return jax.random.normal(jax.random.key(seed), shape)


def loop(step, x0, inputs, reverse=False):
    def body(x, z):
        x = step(x, *z)
        return x, x

    return jax.lax.scan(body, x0, inputs, reverse=reverse)[1]


r, v = draw(0, T, N), draw(1, T, N)
begin = draw(2, T, N) > 0.8
MIX = jnp.array([[0.5, 0.3, 0.0], [-0.2, 0.4, 0.1], [0.0, 0.3, -0.6]])
turn = 0.95 * jnp.exp(1j * jnp.arange(1.0, N + 1))


@jax.jit
def decayed(x, gain):
    return gain * x


@jax.checkpoint
def blend(x, z):
    return 0.9 * x + 0.1 * z


@jax.custom_jvp
def clipped(z):
    return jnp.clip(z, -1, 1)


clipped.defjvps(lambda t, ans, z: t)

# name: (form, step, x0, inputs, reverse)
x3 = jnp.zeros(N) + 0.3
LIFTED = {
    "return": ("affine", lambda g, r, v: r + 0.99 * (1 - v) * g, x3, (r, v), True),
    "gae": (
        "affine",
        lambda a, delta, end: delta + 0.99 * 0.95 * jnp.where(end, 0.0, a),
        x3,
        (r, begin),
        True,
    ),
    "ema": ("affine", blend, x3, (r,), False),
    "sum": ("sum", lambda s, z: s + z, x3, (r,), False),
    "difference": ("affine", lambda s, z: z - s, x3, (r,), False),
    "scalar": ("affine", lambda s, z: 2.0 + s * z / 3, jnp.float32(1), (r[:, 0],), False),
    "forgetting": ("affine", lambda s, z, b: jnp.where(b, z, s), x3, (r, begin), False),
    "sampled": ("affine", lambda s, z: jax.nn.relu(z) * s + clipped(z), x3, (r,), False),
    "nested jit": (
        "affine",
        lambda s, z: decayed(decayed(s, jnp.tanh(z)), 0.5) + z,
        x3,
        (r,),
        False,
    ),
    "lru": (
        "affine",
        lambda h, z, b: turn * h * (1 - b) + z.astype(complex),
        x3 + 0j,
        (r, begin.astype(float)),
        False,
    ),
    "matrix": ("matrix", lambda h, z: MIX @ h + z, x3, (r,), False),
    "reversal": ("matrix", lambda h, z: 0.5 * h[::-1] - h.mean() + z, x3, (r,), False),
    "velocity": (
        "matrix",
        lambda x, z: (x[0] + 0.1 * x[1], 0.9 * x[1] + z),
        (x3, x3 - 1),
        (r,),
        False,
    ),
    "running max": ("max", lambda m, z: jnp.maximum(m, z), x3, (r,), False),
    "queue": ("max", lambda w, z: jnp.maximum(w + z, 0.0), x3, (r,), False),
    "fading max": ("max", lambda m, z: jnp.maximum(m - 0.1, z) + 0.01, x3, (r,), True),
    "max with resets": (
        "max",
        lambda m, z, b: jnp.where(b, z, jnp.maximum(m - 0.1, z)),
        x3,
        (r, begin),
        False,
    ),
    "forward": ("logsumexp", lambda a, z, y: jnp.logaddexp(a - 0.1, z) + y, x3, (r, v), False),
    "log with resets": (
        "logsumexp",
        lambda a, z, b: jnp.where(b, z, jnp.logaddexp(a, z)),
        x3,
        (r, begin),
        False,
    ),
}


@pytest.mark.parametrize("name", LIFTED)
def test_lift_equals_the_loop_in_value_and_gradient(name):
    form, step, x0, inputs, reverse = LIFTED[name]
    recurrence = recognize(step, x0, *(z[0] for z in inputs))
    assert set(recurrence.forms) == {form}

    floats = [i for i, z in enumerate((x0, *inputs)) if jax.tree.leaves(z)[0].dtype != bool]

    def total(run):
        def loss(x0, *inputs):
            xs = run(x0, inputs)
            weights = jnp.cos(jnp.arange(float(T)))
            terms = [jnp.real(x).reshape(T, -1).sum(1) @ weights for x in jax.tree.leaves(xs)]
            return sum(terms), xs

        (_, xs), grads = jax.value_and_grad(loss, floats, has_aux=True)(x0, *inputs)
        return xs, grads

    method = "sequential" if name == "ema" else "associative"
    want, got = jax.jit(
        lambda: (
            total(lambda x0, z: loop(step, x0, z, reverse)),
            total(lambda x0, z: lift(step, x0, z, reverse=reverse, method=method)),
        )
    )()
    for x, y in zip(jax.tree.leaves(want), jax.tree.leaves(got), strict=True):
        np.testing.assert_allclose(y, x, rtol=1e-5, atol=1e-5 * float(jnp.abs(x).max()))


REFUSED = {
    "tanh": (lambda x, z: jnp.tanh(x) + z, "tanh", "tanh of x"),
    "square": (lambda x, z: x * x + z, "mul", "x times x"),
    "power": (lambda x, z: (0.5 * x) ** 3 + z, "integer_pow", "power 3"),
    "exp": (lambda x, z: jnp.exp(x) * z, "exp", "exp of x"),
    "relu": (lambda x, z: jax.nn.relu(0.9 * x + z), "max", "max of a·x + b"),
    "relu's own derivative": (lambda x, z: jax.nn.relu(x + z), "relu", "custom derivative"),
    "division": (lambda x, z: z / (x + 1), "div", "division by x + b"),
    "choice": (lambda x, z: jnp.where(x > 0, x, z), "gt", "gt of x"),
    "clip": (lambda x, z: jnp.clip(x + z, -1.0, 1.0), "min", "min of max(x + a, b)"),
    "scaled max": (lambda x, z: 0.9 * jnp.maximum(x, z), "mul", "mul of max(x + a, b)"),
    "rounding": (
        lambda x, z: x.astype(jnp.bfloat16).astype(jnp.float32) + z,
        "convert_element_type",
        "from float32 to bfloat16",
    ),
    "stopped": (
        lambda x, z: x + 0.5 * jax.lax.stop_gradient(x) + z,
        "stop_gradient",
        "stop_gradient of x",
    ),
    "minimum": (lambda x, z: jnp.minimum(x, z), "min", "min of x"),
    "loop": (lambda x, z: jax.lax.fori_loop(0, 3, lambda i, x: x + z, x), "scan", "scan of x"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_operation(name):
    step, primitive, words = REFUSED[name]
    with pytest.raises(Refusal) as refusal:
        recognize(step, x3, r[0])
    assert refusal.value.primitive == primitive
    assert words in str(refusal.value)


def test_softmax_of_the_state_is_refused():
    with pytest.raises(Refusal, match="reduce_max of x"):
        recognize(lambda x, z: jax.nn.softmax(x) + z, x3, r[0])


def test_a_matrix_is_lifted_only_up_to_its_limit():
    def step(x, z):
        return x[::-1] + z

    assert recognize(step, jnp.zeros(8), jnp.zeros(8)).forms == ("matrix",)
    with pytest.raises(Refusal, match="9 × 9 numbers per step"):
        recognize(step, jnp.zeros(9), jnp.zeros(9))


def test_arrays_of_a_state_may_take_different_forms():
    def step(x, z):
        return {"sum": x["sum"] + z, "top": jnp.maximum(x["top"], z), "last": z}

    x0 = dict.fromkeys(("sum", "top", "last"), x3)
    assert recognize(step, x0, r[0]).forms == ("affine", "sum", "max")  # in order of the keys
    for x, y in zip(
        jax.tree.leaves(loop(step, x0, (r,))), jax.tree.leaves(lift(step, x0, (r,))), strict=True
    ):
        np.testing.assert_allclose(y, x, rtol=1e-5, atol=1e-5)


def test_counters_are_refused_and_shapes_checked():
    with pytest.raises(Refusal, match="int32"):
        recognize(lambda n, z: n + z, jnp.int32(0), jnp.int32(1))
    with pytest.raises(ValueError, match="must return arrays like x"):
        recognize(lambda x, z: jnp.outer(x, z), x3, r[0])


def declared_moments():
    """Counts, means and sums of squares, as a monoid of the reader's own."""
    moments = Moments((N,))
    declared = declare(
        moments,
        moments.identity(),
        name="moments",
        sample=lambda key: (jnp.ones(N), jax.random.normal(key, (N,)), jnp.ones(N)),
    )
    return moments, declared


@pytest.mark.slow
def test_a_declared_monoid_is_found_inside_a_step():
    moments, declared = declared_moments()

    @jax.jit
    def step(x, z):
        return declared(x, (jnp.ones(N), 2 * z, jnp.zeros(N)))

    recurrence = recognize(step, moments.identity(), r[0], monoids=(declared,))
    assert recurrence.forms == ("declared",)
    count, mean, square = lift(step, moments.identity(), (r,), monoids=(declared,))
    np.testing.assert_allclose(count[-1], T)
    np.testing.assert_allclose(mean[-1], 2 * r.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(square[-1] / T, 4 * r.var(0), rtol=1e-4)
    with pytest.raises(Refusal, match=r"\(x, element\) with the complete state x"):
        recognize(
            lambda x, z: declared((z, z, z), x), moments.identity(), r[0], monoids=(declared,)
        )


def outer(x, y):
    return jax.lax.dot_general(x, y, (((), ()), ((), ())))


SUMS = {
    "a product": outer,
    "through what is linear": lambda x, y: 3 - 2 * outer(jnp.sin(x), y).T.reshape(-1),
    "a fixed factor": lambda x, y: MIX @ outer(x, y) + jnp.ones((N, N)),
    "twice the same": lambda x, y: outer(x, x) - outer(x, y),
    "products of batches": lambda x, y: jnp.einsum(
        "bi,bij->bj", outer(x, y), y[:, None, None] * MIX[None]
    ),
    "a gradient": lambda x, y: jax.grad(lambda w: jnp.tanh(w @ x) @ y)(MIX),
    "what is none": lambda x, y: jnp.tanh(outer(x, y)) * outer(y, x),
    "several, one of them fixed": lambda x, y: (outer(x, y), x, MIX[0], jnp.dot(x, y)),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_sum_of_products_is_the_sum_of_its_terms(name):
    got = sum_terms(SUMS[name], r, v)
    want = jax.tree.map(lambda x: x.sum(0), jax.vmap(SUMS[name])(r, v))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, want)
    made = str(jax.make_jaxpr(lambda *z: sum_terms(SUMS[name], *z))(r, v))
    alone = f"f32[{T},{N},{N}]" in made  # terms of a sum
    assert alone == (name in ("what is none", "products of batches"))


@pytest.mark.slow
def test_a_loop_of_a_declared_monoid_is_one_scan_of_a_graph():
    moments, declared = declared_moments()
    p = Program("t")
    (t,), _ = p.symbols, p.bounds
    x = p.sample(lambda key: jax.random.normal(key, (N,)), over=(t,))
    before = p.tensor(t, name="before")
    before[0] = moments.identity()

    def more(seen, x):
        return declared(seen, (jnp.ones(N), x, jnp.zeros(N)))

    seen = p.fn(more, before, x, name="seen", whole=True)
    before[t + 1] = seen
    graph = p.graph(p.fn(lambda seen: seen[1], seen, name="mean"))

    lifted, words = lift_loops(graph, "t", when="always", monoids=(declared,))
    assert any("became one scan over t: declared" in word for word in words)
    want = compile(graph, {}).interpret({"T": T}).results[0]
    compiled = compile(lifted, {})
    for got in (compiled.interpret({"T": T}).results[0], compiled.xla({"T": T})()[0]):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    _, refused = lift_loops(graph, "t", when="always")  # nobody told it of this monoid
    assert any("stay a loop" in word for word in refused)


@pytest.mark.slow
def test_declare_shows_the_triple_that_fails():
    with pytest.raises(ValueError, match=r"associative.* at a = .*, b = .*, c = "):
        declare(lambda a, b: jnp.maximum(0.9 * a, b), jnp.float32(-jnp.inf))
    with pytest.raises(ValueError, match="e • a = a"):
        declare(jnp.add, jnp.float32(1))


def average(form: str):
    """A moving average m[t + 1] = 0.9 m[t] + 0.1 r[t + 1], and one of r[t] and of differences."""
    p = Program("t")
    (t,), _ = p.symbols, p.bounds
    r = p.fn(lambda k: jnp.cos(1.0 * k), p.value(t), name="r")
    m = p.tensor(t, name="m")
    m[0] = r[0]
    if form == "after":
        m[t + 1] = 0.9 * m + 0.1 * r[t + 1]
    elif form == "now":
        m[t] = 0.9 * m[t - 1] + 0.1 * r
    elif form == "before":
        m[t] = 0.9 * m[t - 1] + 0.1 * r[t - 1]
    else:
        m[t] = 0.9 * m[t - 1] + 0.1 * (r - r[t - 1])
    return p.graph(p.fn(jnp.sin, m))


@pytest.mark.parametrize("form", ["after", "now", "before", "difference"])
def test_every_form_of_a_recurrence_becomes_a_scan(form: str):
    graph, _ = lift_loops(average(form), "t", when="always")
    assert [op.params["forms"] for op in graph.ops.values() if op.kind == "scan"] == [("affine",)]


@pytest.mark.full
@pytest.mark.parametrize("form", ["after", "before", "difference"])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_values_that_are_missing_at_some_points_do_not_reach_a_scan(form: str, steps: int):
    graph = average(form)
    lifted, _ = lift_loops(graph, "t", when="always")
    (wanted,) = execute(graph, {"T": steps}, jit=True).values()
    for changed in (lifted, vectorize(lifted, "t")[0]):
        (found,) = execute(changed, {"T": steps}, jit=True).values()
        for point, value in wanted.items():
            np.testing.assert_allclose(found[point], value, rtol=1e-5)
