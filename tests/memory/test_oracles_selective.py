"""Attention, selective and Legendre memories against loops in numpy, typed from their sources.

As `test_oracles.py`: in float64, from the parameters only, after these have been moved.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from mmrl import memory
from mmrl.memory import gtrxl, lmu
from tests.memory.test_oracles import (
    IN,
    OUT,
    T,
    build,
    close,
    inputs,
    layer_norm,
    linear,
    run,
    sigmoid,
    wide,
)


def softmax(x):
    x = np.exp(x - x.max(0))
    return x / x.sum(0)


def attention(model, xs):
    """Each step attends to at most `window` steps, one pair of steps at a time."""
    window, heads, size = model.relative.shape
    q, k, v = (linear(layer, xs) for layer in (model.query, model.key, model.value))
    q, k, v = (x.reshape(len(xs), heads, size) for x in (q, k, v))
    r, u, w = map(wide, (model.relative, model.content_bias, model.position_bias))
    ys = []
    for t in range(len(xs)):
        past, head = range(max(0, t - window + 1), t + 1), []
        for n in range(heads):
            logits = [
                (q[t, n] + u[n]) @ k[s, n] + (q[t, n] + w[n]) @ r[window - 1 - (t - s), n]
                for s in past
            ]
            head.append(softmax(np.array(logits) / np.sqrt(size)) @ v[list(past), n])
        ys.append(np.concatenate(head))
    return linear(model.read_out, np.array(ys))


@pytest.mark.parametrize("window", [1, 5, T + 3])
def test_window_equals_attention_to_the_last_steps(window):
    model, xs = build("window", window=window, heads=2, head_size=3), inputs()
    close(run(model, xs), attention(model, xs))


def test_window_forgets_older_steps_exactly():
    model, xs = build("window", window=5, heads=2, head_size=3), inputs()
    other = xs.copy()
    other[: T - 5] = np.nan
    np.testing.assert_array_equal(run(model, xs)[-1], run(model, other)[-1])


def test_attention_weights_sum_to_one_over_the_steps_that_are_there():
    model, xs = build("window", window=6, heads=2, head_size=3), jnp.asarray(inputs(4))

    @eqx.filter_jit
    def weights(model, xs):
        hs, _ = model.states(model.init(), xs, jnp.arange(4) == 1)
        return jax.vmap(model.attention)(hs, xs)

    result = np.asarray(weights(model, xs))
    np.testing.assert_allclose(result.sum(1), 1, rtol=1e-6)
    ages = np.array([1, 1, 2, 3])  # an episode begins at the second step
    np.testing.assert_array_equal((result > 0).sum(1), np.repeat(ages[:, None], 2, 1))


def gate(module, x, y):
    r_y, z_y, n_y = np.split(y @ wide(module.from_y.weight).T, 3, axis=1)
    r_x, z_x = np.split(x @ wide(module.from_x.weight).T, 2, axis=1)
    z = sigmoid(z_y + z_x - wide(module.bias))
    n = np.tanh(n_y + (sigmoid(r_y + r_x) * x) @ wide(module.candidate.weight).T)
    return (1 - z) * x + z * n


def norm(module, x):
    return layer_norm(x) * wide(module.weight) + wide(module.bias)


def relu(x):
    return np.maximum(x, 0)


def test_gtrxl_equals_its_blocks_one_after_another():
    model, xs = build("gtrxl", window=5, heads=2, head_size=3, layers=2), inputs()
    h = linear(model.read_in, xs)
    for block in model.blocks:
        h = gate(block.gate, h, relu(attention(block.memory, norm(block.norm, h))))
        activations = relu(linear(block.up, norm(block.mlp_norm, h)))
        h = gate(block.mlp_gate, h, relu(linear(block.down, activations)))
    close(run(model, xs), linear(model.read_out, h), rtol=3e-5)


def test_a_gate_starts_close_to_the_identity():
    module, rng = gtrxl.Gate(16, key=jax.random.key(0)), np.random.default_rng(0)
    x, y = (jnp.asarray(0.1 * rng.normal(size=16), jnp.float32) for _ in range(2))
    far = np.linalg.norm(module(x, y) - x) / np.linalg.norm(x)
    assert far < 0.25
    assert not np.allclose(module(x, y), module(x, 2 * y), rtol=1e-3)


def selective(model, xs, hold):
    """S6, one channel and one state at a time; `hold` discretizes B."""
    u = linear(model.read_in, xs)
    step = np.logaddexp(0, wide(model.step_bias) + (u @ wide(model.step_gain))[:, None])
    rate = -np.exp(wide(model.log_decay))
    b, c = np.split(linear(model.select, u), 2, axis=1)
    h, ys = np.zeros(rate.shape), []
    for t in range(len(xs)):
        for d in range(rate.shape[0]):
            for n in range(rate.shape[1]):
                turn = step[t, d] * rate[d, n]
                drive = hold(step[t, d], rate[d, n]) * b[t, n] * u[t, d]
                h[d, n] = np.exp(turn) * h[d, n] + drive
        ys.append(h @ c[t] + wide(model.skip) * u[t])
    return linear(model.read_out, np.array(ys))


def test_s6_equals_a_loop():
    model, xs = build("s6", channels=6, state_size=3), inputs()
    close(run(model, xs), selective(model, xs, lambda step, rate: np.expm1(step * rate) / rate))


def test_s6_holds_its_input_where_short_steps_would_not_tell():
    """The released code of Mamba multiplies by Δ, which is the limit of short steps."""
    model = build("s6", channels=6, state_size=3)
    model = eqx.tree_at(lambda m: m.step_bias, model, jnp.full(6, 1.0))
    xs = inputs()
    close(run(model, xs), selective(model, xs, lambda step, rate: np.expm1(step * rate) / rate))
    euler = selective(model, xs, lambda step, rate: step)
    assert np.abs(run(model, xs) - euler).max() > 0.05 * np.abs(euler).max()


def test_s6_starts_with_step_sizes_in_their_range():
    model = memory.make("s6", IN, OUT, channels=500, step_size=(0.01, 0.1), key=jax.random.key(0))
    step = np.logaddexp(0, wide(model.step_bias))
    assert 0.01 <= step.min() < 0.011 and 0.09 < step.max() <= 0.1001
    assert abs(np.median(np.log10(step)) + 1.5) < 0.08


def exponential(model, xs):
    """The mLSTM without stabilization."""
    log_i, f = linear(model.gates, xs).T
    q, v = linear(model.query, xs), linear(model.value, xs)
    k = linear(model.key, xs) / np.sqrt(q.shape[1])
    table, weight, ys = np.zeros((v.shape[1], k.shape[1])), np.zeros(k.shape[1]), []
    for t in range(len(xs)):
        i, keep = np.exp(log_i[t]), sigmoid(f[t])
        table, weight = keep * table + i * np.outer(v[t], k[t]), keep * weight + i * k[t]
        ys.append(table @ q[t] / max(abs(weight @ q[t]), 1))
    outputs = sigmoid(linear(model.output_gate, xs)) * np.array(ys)
    return linear(model.read_out, outputs)


def with_gates(model, log_i):
    return eqx.tree_at(lambda m: m.gates.bias, model, jnp.array([log_i, 2.0]))


@pytest.mark.parametrize("log_i", [-30.0, -2.0, 0.0, 3.0])
def test_mlstm_equals_a_loop_without_stabilization(log_i):
    """With weights far below 1, around it and far above it."""
    model, xs = with_gates(build("mlstm", key_size=4, value_size=6), log_i), inputs()
    close(run(model, xs), exponential(model, xs))


def test_mlstm_with_enormous_gates_stays_finite_and_exact():
    """Gates of e^±300 overflow float32. Far above 1, their common factor cancels."""
    model, xs = build("mlstm", key_size=4, value_size=6), inputs()
    close(run(with_gates(model, 300.0), xs), exponential(with_gates(model, 300.0), xs), rtol=1e-3)
    assert np.isfinite(run(with_gates(model, -300.0), xs)).all()

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(model):
        return jnp.sum(model(model.init(), jnp.asarray(xs), jnp.arange(T) == 7)[1] ** 2)

    for log_i in (300.0, -300.0):
        leaves = jax.tree.leaves(gradient(with_gates(model, log_i)))
        assert all(np.isfinite(x).all() for x in leaves)


def test_gradients_of_the_mlstm_are_those_without_stabilization():
    model, xs = build("mlstm", key_size=3, value_size=2), inputs(12)

    @jax.jit
    def loss(bias):
        other = eqx.tree_at(lambda m: m.gates.bias, model, bias)
        return jnp.sum(other(other.init(), jnp.asarray(xs), jnp.zeros(12, bool))[1] ** 2)

    bias, eps = np.array([0.3, 1.0]), 1e-6

    def want(bias):
        other = eqx.tree_at(lambda m: m.gates.bias, model, np.asarray(bias))
        return np.sum(exponential(other, xs) ** 2)

    slopes = [(want(bias + eps * e) - want(bias - eps * e)) / (2 * eps) for e in np.eye(2)]
    close(jax.grad(loss)(jnp.asarray(bias, jnp.float32)), np.array(slopes), rtol=1e-4)


def test_lmu_equals_a_loop():
    model, xs = build("lmu", channels=3, order=5, delay=9.0), inputs()
    matrix, drive = lmu.legendre(5, 9.0)
    u, m, ys = linear(model.read_in, xs), np.zeros((3, 5)), []
    for t in range(T):
        m = m @ matrix.T + np.outer(u[t], drive)
        ys.append(m.ravel())
    close(run(model, xs), linear(model.read_out, np.array(ys)) + linear(model.skip, xs))


def test_legendre_matrices_are_those_of_the_paper_held_over_a_step():
    order, delay = 6, 20.0
    rate, gain = np.zeros((order, order)), np.zeros(order)
    for i in range(order):
        for j in range(order):
            rate[i, j] = (2 * i + 1) / delay * (-1 if i < j else (-1) ** (i - j + 1))
        gain[i] = (2 * i + 1) / delay * (-1) ** i
    matrix, drive = lmu.legendre(order, delay)
    fine, m = 20_000, np.zeros((order, order + 1))
    m[:, :order] = np.eye(order)
    source = np.eye(order + 1)[order]
    for _ in range(fine):  # midpoint rule of ṁ = A m + B u
        half = m + (rate @ m + np.outer(gain, source)) / (2 * fine)
        m = m + (rate @ half + np.outer(gain, source)) / fine
    np.testing.assert_allclose(matrix, m[:, :order], atol=1e-7)
    np.testing.assert_allclose(drive, m[:, order], atol=1e-7)


def test_lmu_state_reconstructs_a_delayed_input():
    """Voelker et al. 2019, Eq. 3, on a slow input that is held over each step."""
    order, delay, time = 12, 40.0, np.arange(400)
    matrix, drive = lmu.legendre(order, delay)
    u = np.sin(2 * np.pi * time / 60) + 0.5 * np.cos(2 * np.pi * time / 90)
    m = np.zeros(order)
    for x in u:
        m = matrix @ m + drive * x
    for steps in (0, 10, 20, 30, 40):
        polynomials = np.polynomial.legendre.legvander([2 * steps / delay - 1], order - 1)[0]
        # A held input is half a step late.
        expected = np.interp(time[-1] + 0.5 - steps, time + 0.5, u)
        assert abs(polynomials @ m - expected) < 0.08


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda key: memory.make("s6", IN, OUT, key=key, step_size=(0.1, 0.01)), "`step_size`"),
        *[
            (lambda key, n=n, s=s, x=x: memory.make(n, IN, OUT, key=key, **{s: x}), f"`{s}` must")
            for n, s in (
                ("s6", "step_size"),
                ("s5", "step_size"),
                ("lru", "decay"),
                ("ffm", "period"),
            )
            for x in (1, 0.1, (0.1, 0.2, 0.3), ("a", "b"), (True, 2.0), (0.1, np.inf))
        ],
        *[
            (lambda key, n=n, s=s, x=x: memory.make(n, IN, OUT, key=key, **{s: x}), f"`{s}` must")
            for n, s in (("lmu", "delay"), ("lru", "phase"))
            for x in ("16", True, (2.0,), np.nan)
        ],
        (lambda key: memory.make("lmu", IN, OUT, key=key, delay=0.0), "`delay`.*positive"),
        (lambda key: memory.make("lmu", IN, OUT, key=key, delay=np.inf), "`delay`"),
        (lambda key: memory.make("window", IN, OUT, key=key, window=0), "`window`.*at least 1"),
        (lambda key: memory.make("gtrxl", IN, OUT, key=key, heads=0), "`heads`.*at least 1"),
        (lambda key: memory.make("gtrxl", IN, OUT, key=key, layers=0), "`layers`.*at least 1"),
    ],
)
def test_wrong_sizes_are_refused(call, message, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as users make mistakes
    with pytest.raises(ValueError, match=message):
        call(jax.random.key(0))
