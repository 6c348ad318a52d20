"""Every memory model against a plain loop or closed form in numpy, typed from its source.

float64 and complex128; nothing here is shared with the library but the parameters. All models are
compared after their parameters have been moved away from where they start.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from mmrl import memory
from mmrl.memory import s5

T, IN, OUT = 40, 5, 3


def build(name, **sizes):
    model = memory.make(name, IN, OUT, key=jax.random.key(7), **sizes)
    params, rest = eqx.partition(model, eqx.is_inexact_array)
    rng = np.random.default_rng(8)
    other = jax.tree.map(lambda x: x + jnp.asarray(0.3 * rng.normal(size=x.shape), x.dtype), params)
    return eqx.combine(other, rest)


def run(model, xs):
    xs = jnp.asarray(xs, jnp.float32)
    return np.asarray(eqx.filter_jit(model)(model.init(), xs, jnp.zeros(len(xs), bool))[1])


def inputs(length=T, seed=9):
    return np.random.default_rng(seed).normal(size=(length, IN)).astype(np.float32)


def wide(x):
    return np.asarray(x, np.complex128 if np.iscomplexobj(x) else np.float64)


def linear(layer, x):
    bias = 0 if layer.bias is None else wide(layer.bias)
    return x @ wide(layer.weight).T + bias


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def layer_norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


def close(result, want, rtol=1e-5):
    np.testing.assert_allclose(result, want, rtol=0, atol=rtol * np.abs(want).max())


def test_linear_attention_equals_masked_quadratic_attention():
    model, xs = build("linear_attention", key_size=4, value_size=6), inputs()

    def phi(z):
        return np.where(z > 0, z + 1, np.exp(np.minimum(z, 0)))

    q, k, v = phi(linear(model.query, xs)), phi(linear(model.key, xs)), linear(model.value, xs)
    scores = np.tril(q @ k.T)
    close(run(model, xs), linear(model.read_out, scores @ v / scores.sum(1, keepdims=True)))


def test_linear_attention_to_equal_values_returns_the_value():
    model, xs = build("linear_attention"), np.repeat(inputs(1), T, 0)
    close(run(model, xs), np.repeat(linear(model.read_out, linear(model.value, xs[:1])), T, 0))


def test_linear_attention_takes_another_feature_map():
    model, xs = build("linear_attention", feature_map=jax.nn.softplus), inputs()
    q, k = (np.logaddexp(0, linear(w, xs)) for w in (model.query, model.key))
    scores = np.tril(q @ k.T)
    want = scores @ linear(model.value, xs) / scores.sum(1, keepdims=True)
    close(run(model, xs), linear(model.read_out, want))


def diagonal_loop(gain, drive, read, skip):
    """h_t = gain h_{t-1} + drive_t,  y_t = Re(read h_t) + skip_t."""
    h, ys = np.zeros_like(drive[0]), []
    for push, direct in zip(drive, skip, strict=True):
        h = gain * h + push
        ys.append((read @ h).real + direct)
    return np.array(ys)


def complex_parts(pair):
    return wide(pair[0]) + 1j * wide(pair[1])


@pytest.mark.slow
def test_lru_equals_a_loop():
    model, xs = build("lru", state_size=16), inputs(400)
    gain = np.exp(-np.exp(wide(model.nu)) + 1j * np.exp(wide(model.theta)))
    drive = np.sqrt(1 - np.abs(gain) ** 2) * (xs @ complex_parts(model.read_in).T)
    read, skip = complex_parts(model.read_out), linear(model.skip, xs)
    close(run(model, xs), diagonal_loop(gain, drive, read, skip))


@pytest.mark.full
@pytest.mark.slow
def test_lru_equals_memax_with_the_same_parameters():
    from memax.equinox.semigroups.lru import LRU

    model = memory.make("lru", IN, IN, state_size=IN, key=jax.random.key(0))
    rng = np.random.default_rng(1)
    diagonal = jnp.asarray(rng.normal(size=IN), jnp.float32)
    skip = eqx.nn.Linear(IN, IN, use_bias=False, key=jax.random.key(0))
    skip = eqx.tree_at(lambda s: s.weight, skip, jnp.diag(diagonal))
    model = eqx.tree_at(lambda m: m.skip, model, skip)
    peer = LRU(IN, IN, jax.random.key(0))
    arrays = (
        *(model.nu, model.theta, *model.read_in, *model.read_out, diagonal),
        jnp.log(jnp.sqrt(1 - jnp.abs(model.eigenvalues) ** 2)),
    )

    def leaves(m):
        return (m.nu_log, m.theta_log, m.B_re, m.B_im, m.C_re, m.C_im, m.D, m.gamma_log)

    peer = eqx.tree_at(leaves, peer, arrays)
    xs, begin = jnp.asarray(inputs(100)), jnp.asarray(rng.random(100) < 0.1)
    ys = eqx.filter_jit(model)(model.init(), xs, begin)[1]
    close(ys, eqx.filter_jit(lambda m: m(m.initialize_carry(), (xs, begin))[1])(peer))


@pytest.mark.slow
def test_lru_state_starts_at_the_scale_of_its_input():
    model = memory.make("lru", IN, OUT, state_size=256, key=jax.random.key(1))
    modulus = np.abs(model.eigenvalues)
    assert modulus.min() >= 0.9 and modulus.max() <= 0.999
    xs = jnp.asarray(inputs(8000))
    hs, _ = eqx.filter_jit(model.states)(model.init(), xs, jnp.zeros(8000, bool))
    np.testing.assert_allclose(np.mean(np.abs(hs[1][4000:]) ** 2), 1, atol=0.1)


def legendre(size):
    """The normal part of HiPPO-LegS, entry by entry (Gu, Goel & Ré 2022)."""
    a = np.zeros((size, size))
    for n in range(size):
        for k in range(size):
            legs = -np.sqrt((2 * n + 1) * (2 * k + 1)) if n > k else -(n + 1) * (n == k)
            a[n, k] = legs + np.sqrt((n + 0.5) * (k + 0.5))
    return a


def test_hippo_matrix_and_its_eigenvectors():
    a = legendre(12)
    np.testing.assert_allclose(s5.hippo(12), a, atol=1e-12)
    eigenvalues, basis = s5.diagonalise(a)
    np.testing.assert_allclose(a @ basis, basis * eigenvalues, atol=1e-12)
    np.testing.assert_allclose(basis.conj().T @ basis, np.eye(6), atol=1e-12)
    assert (eigenvalues.imag > 0).all()
    np.testing.assert_allclose(eigenvalues.real, -0.5)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [1, 2])
def test_s5_equals_the_dense_system_in_real_numbers(blocks):
    """Dense HiPPO, zero-order hold by one matrix exponential, no complex number in the loop."""
    model, xs = build("s5", state_size=6, blocks=blocks), inputs()
    start = memory.make("s5", IN, OUT, key=jax.random.key(7), state_size=6, blocks=blocks)
    model = eqx.tree_at(lambda m: m.log_decay, model, start.log_decay)
    model = eqx.tree_at(lambda m: m.frequency, model, start.frequency)
    step = 0.05
    model = eqx.tree_at(lambda m: m.log_step, model, jnp.full(6, np.log(step)))
    a = np.kron(np.eye(blocks), legendre(12 // blocks))
    basis = np.kron(np.eye(blocks), s5.diagonalise(legendre(12 // blocks))[1])
    b = 2 * (basis @ complex_parts(model.read_in)).real
    c = 2 * (complex_parts(model.read_out) @ basis.conj().T).real
    system = np.block([[a, b], [np.zeros((IN, 12 + IN))]])
    decay = scipy.linalg.expm(step * system)
    a_held, b_held = decay[:12, :12], decay[:12, 12:]
    h, ys = np.zeros(12), []
    for x in xs:
        h = a_held @ h + b_held @ x
        ys.append(c @ h)
    close(run(model, xs), np.array(ys) + linear(model.skip, xs))


@pytest.mark.slow
def test_s5_equals_a_loop_with_one_step_size_per_unit():
    model, xs = build("s5", state_size=8), inputs(400)
    rate = -np.exp(wide(model.log_decay)) + 1j * wide(model.frequency)
    gain = np.exp(rate * np.exp(wide(model.log_step)))
    drive = (gain - 1) / rate * (xs @ complex_parts(model.read_in).T)
    read, skip = 2 * complex_parts(model.read_out), linear(model.skip, xs)
    close(run(model, xs), diagonal_loop(gain, drive, read, skip))


@pytest.mark.slow
def test_s5_matrices_start_at_unit_gain_in_the_hippo_basis():
    model = memory.make("s5", 64, 48, key=jax.random.key(7), state_size=32)
    basis = s5.diagonalise(legendre(64))[1]
    b = 2 * (basis @ complex_parts(model.read_in)).real
    c = 2 * (complex_parts(model.read_out) @ basis.conj().T).real
    np.testing.assert_allclose([b.std() * 8, c.std() * 8], 1, rtol=0.1)
    step = np.exp(model.log_step)
    assert 1e-3 <= step.min() < 3e-3 and 3e-2 < step.max() <= 1e-1


def ffm_rate(model):
    return -np.exp(wide(model.log_alpha))[:, None] + 1j * np.exp(wide(model.log_omega))[None]


def ffm_as_printed(model, xs):
    """Eqs. 72-76, symbol by symbol; the skip has a matrix and the two terms have a plus."""

    def combine(a, b):  # Eq. 74
        (trace, time), (new, steps) = a, b
        return trace * np.exp(steps * ffm_rate(model)) + new, time + steps

    def encode(o):  # Eq. 75
        u = linear(model.write, o) * sigmoid(linear(model.write_gate, o))
        return np.array([u] * model.log_omega.size).T, 1

    def decode(h, o):  # Eq. 76
        trace, _ = h
        z = linear(model.mix, np.concatenate([trace.real.ravel(), trace.imag.ravel()]))
        gate = sigmoid(linear(model.gate, o))
        activations = wide(jax.nn.gelu(jnp.asarray(linear(model.mlp[0], layer_norm(z)))))
        return linear(model.mlp[1], activations) * gate + (1 - gate) * linear(model.skip, o)

    h, ys = (np.zeros((model.log_alpha.size, model.log_omega.size)), 0), []  # Eq. 73
    for o in xs:
        h = combine(h, encode(o))
        ys.append(decode(h, o))
    return np.stack(ys)


@pytest.mark.slow
def test_ffm_as_printed_equals_a_loop():
    model, xs = build("ffm", trace_size=4, context_size=3, use_mlp=True), inputs(200)
    close(run(model, xs), ffm_as_printed(model, xs))


@pytest.mark.slow
def test_ffm_equals_memax_with_the_same_parameters():
    from memax.equinox.semigroups.ffm import FFM

    traces, contexts = 4, 3
    sizes = {"trace_size": traces, "context_size": contexts}
    model = memory.make("ffm", IN, IN, key=jax.random.key(0), **sizes)
    identity = eqx.tree_at(lambda s: (s.weight, s.bias), model.skip, (jnp.eye(IN), jnp.zeros(IN)))
    model = eqx.tree_at(lambda m: m.skip, model, identity)
    peer = FFM(IN, traces, contexts, jax.random.key(0))
    # There the real and imaginary parts of one trace stand together.
    mix = model.mix.weight.reshape(IN, 2, traces, contexts).swapaxes(1, 2).reshape(IN, -1)
    layers = (model.write, model.write_gate, model.gate)
    clocks = (jnp.exp(model.log_alpha), jnp.exp(model.log_omega))

    def leaves(m):
        return (m.pre, m.gate_in.linear, m.gate_out.linear, m.mix, m.algebra.algebra.params)

    mixing = eqx.tree_at(lambda layer: layer.weight, model.mix, mix)
    peer = eqx.tree_at(leaves, peer, (*layers, mixing, clocks))
    xs, begin = jnp.asarray(inputs(100)), jnp.asarray(np.random.default_rng(1).random(100) < 0.1)
    ys = eqx.filter_jit(model)(model.init(), xs, begin)[1]
    close(ys, eqx.filter_jit(lambda m: m(m.initialize_carry(), (xs, begin))[1])(peer))


@pytest.mark.parametrize("literal", [False, True])
def test_a_norm_behind_the_gate_of_ffm_undoes_it(literal):
    """How much smaller the memory's part gets when the bias of the gate falls from 0 to -5."""
    model, xs = build("ffm", use_mlp=literal), inputs(200)
    silent = jax.tree.map(jnp.zeros_like, model.skip)
    model = eqx.tree_at(lambda m: m.skip, model, silent)
    biases = (jnp.zeros(OUT), jnp.full(OUT, -5.0))
    open_, shut = (eqx.tree_at(lambda m: m.gate.bias, model, b) for b in biases)
    shrinks = np.linalg.norm(run(open_, xs)) / np.linalg.norm(run(shut, xs))
    assert (20 < shrinks < np.exp(5)) if literal else (1 <= shrinks < 2)


def test_ffm_impulse_response_is_the_exponential():
    model = build("ffm", trace_size=4, context_size=3)
    silent = eqx.tree_at(lambda m: m.write.bias, model, jnp.zeros(4))
    xs = np.zeros((T, IN), np.float32)
    xs[0] = inputs(1)
    hs, _ = eqx.filter_jit(silent.states)(silent.init(), jnp.asarray(xs), jnp.zeros(T, bool))
    u = linear(silent.write, xs[0]) * sigmoid(linear(silent.write_gate, xs[0]))
    time = np.arange(T)[:, None, None]
    close(hs[0], u[None, :, None] * np.exp(time * ffm_rate(silent)))
    np.testing.assert_array_equal(hs[1], 1 + np.arange(T))


def test_min_gru_equals_a_loop():
    model, xs = build("min_gru", state_size=6), inputs(200)
    h, ys = np.zeros(6), []
    for x in xs:
        z = sigmoid(linear(model.gate, x))
        h = (1 - z) * h + z * linear(model.candidate, x)
        ys.append(linear(model.read_out, h))
    close(run(model, xs), np.array(ys))


def test_max_plus_equals_a_loop_and_its_closed_form():
    model, xs = build("max_plus", state_size=6), inputs()
    fade, write = -np.logaddexp(0, linear(model.fade, xs)), linear(model.write, xs)
    m, loop = np.full(6, -np.inf), []
    for w, x in zip(fade, write, strict=True):
        m = np.maximum(m + w, x)
        loop.append(m)
    total = np.cumsum(fade, 0)
    formula = [np.max(write[: t + 1] + total[t] - total[: t + 1], 0) for t in range(T)]
    np.testing.assert_allclose(formula, loop)
    close(run(model, xs), linear(model.read_out, np.array(loop)))


def test_max_plus_starts_with_fades_of_a_thousandth_to_a_tenth():
    model = memory.make("max_plus", IN, OUT, key=jax.random.key(0), state_size=5)
    fade = model.encode(jnp.zeros(IN))[0]
    np.testing.assert_allclose(-fade, 10 ** np.linspace(-3, -1, 5), rtol=1e-4)


def unit(x):
    return x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6)


@pytest.mark.full
def test_gated_delta_equals_a_loop():
    model, xs = build("gated_delta", key_size=4, value_size=6), inputs(200)
    q, k = unit(linear(model.query, xs)), unit(linear(model.key, xs))
    v, gates = linear(model.value, xs), sigmoid(linear(model.gates, xs))
    s, ys = np.zeros((6, 4)), []
    for t in range(len(xs)):
        alpha, beta = gates[t, 0], 2 * gates[t, 1]
        # The delta rule as it is meant: decay, then move the value under k towards v.
        s = alpha * s
        s = s + np.outer(beta * (v[t] - s @ k[t]), k[t])
        ys.append(s @ q[t])
    close(run(model, xs), linear(model.read_out, np.array(ys)))


def test_gated_delta_starts_as_a_slowly_fading_table():
    """α ≈ 0.98 where nothing is written; under a key, β ≈ 1 leaves nothing of what was there."""
    model = memory.make("gated_delta", IN, OUT, key=jax.random.key(0), key_size=3)
    gates = sigmoid(wide(model.gates.bias)) * (1, 2)
    np.testing.assert_allclose(gates, (0.98, 1), atol=0.005)
    gain = model.encode(jnp.zeros(IN))[0]
    np.testing.assert_allclose(gain, gates[0] * np.eye(3), rtol=1e-5)


def delta_table():
    """A model that stores x[3:] under the key x[:3] without fading, and shows what it finds."""
    model = memory.make("gated_delta", 7, 4, key=jax.random.key(0), key_size=3, value_size=4)
    take_key, take_value = jnp.eye(7)[:3], jnp.eye(7)[3:]
    expected = (
        take_key,
        take_key,
        take_value,
        jnp.zeros(4),
        jnp.zeros((2, 7)),
        jnp.array([40.0, 0]),
    )

    def leaves(m):
        return (
            *(m.key.weight, m.query.weight, m.value.weight, m.value.bias),
            *(m.gates.weight, m.gates.bias),
        )

    model = eqx.tree_at(leaves, model, expected)
    read_out = (jnp.eye(4), jnp.zeros(4))
    return eqx.tree_at(lambda m: (m.read_out.weight, m.read_out.bias), model, read_out)


def look_up(model, state, key):
    return model.monoid(state, model.monoid.identity())[1] @ key


@pytest.mark.slow
def test_gated_delta_overwrites_one_key_and_leaves_orthogonal_keys_alone():
    model = delta_table()
    a, b = np.eye(3, dtype=np.float32)[:2]
    first, second, third = np.arange(12, dtype=np.float32).reshape(3, 4)
    xs = np.stack([np.r_[a, first], np.r_[b, second], np.r_[a, third]])
    ys = run(model, xs)
    np.testing.assert_allclose(ys, [first, second, third], atol=1e-4)
    state, _ = model(model.init(), jnp.asarray(xs), jnp.zeros(3, bool))
    np.testing.assert_allclose(look_up(model, state, a), third, atol=1e-4)
    np.testing.assert_allclose(look_up(model, state, b), second, atol=1e-4)


def test_frame_stack_equals_slices():
    model, xs = build("frame_stack", frames=3), inputs()
    longer = np.concatenate([np.zeros((2, IN)), xs])
    frames = np.stack([longer[t : t + 3].ravel() for t in range(T)])
    close(run(model, xs), linear(model.read_out, frames))


def test_elman_equals_a_loop():
    model, xs = build("elman", state_size=6), inputs()
    h, ys = np.zeros(6), []
    for x in xs:
        h = np.tanh(linear(model.read_in, x) + wide(model.recur.weight) @ h)
        ys.append(linear(model.read_out, h))
    close(run(model, xs), np.array(ys))


def test_gru_equals_equinox_and_its_formula():
    model, xs = build("gru", state_size=6), inputs()
    cell, step = model.gru, eqx.filter_jit(model.gru)
    w, u = wide(cell.weight_ih), wide(cell.weight_hh)
    h, theirs, ys = np.zeros(6), jnp.zeros(6), []
    for x in xs:
        (r, z, n), (hr, hz, hn) = np.split(w @ x + wide(cell.bias), 3), np.split(u @ h, 3)
        z, r = sigmoid(z + hz), sigmoid(r + hr)
        h = (1 - z) * np.tanh(n + r * (hn + wide(cell.bias_n))) + z * h
        theirs = step(jnp.asarray(x), theirs)
        close(theirs, h)
        ys.append(linear(model.read_out, h))
    close(run(model, xs), np.array(ys))


def test_lstm_equals_equinox_and_its_formula():
    model, xs = build("lstm", state_size=6), inputs()
    cell, step = model.lstm, eqx.filter_jit(model.lstm)
    w, u = wide(cell.weight_ih), wide(cell.weight_hh)
    h, c, theirs, ys = np.zeros(6), np.zeros(6), (jnp.zeros(6), jnp.zeros(6)), []
    for x in xs:
        i, f, g, o = np.split(w @ x + u @ h + wide(cell.bias), 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        theirs = step(jnp.asarray(x), theirs)
        close(theirs[0], h)
        ys.append(linear(model.read_out, h))
    close(run(model, xs), np.array(ys))
    start = memory.make("lstm", IN, OUT, key=jax.random.key(7), state_size=6).lstm.bias
    np.testing.assert_array_equal(start, np.repeat([0, 1, 0, 0], 6))


@pytest.mark.slow
def test_residual_equals_its_layers_written_out():
    model, xs = build("min_gru", state_size=4, layers=2), inputs()
    want = linear(model.read_in, xs)
    for block in model.blocks:
        x = layer_norm(want) * wide(block.norm.weight) + wide(block.norm.bias)
        y = run(block.memory, x)
        u = np.asarray(jax.nn.gelu(jnp.asarray(y)), np.float64)
        want = want + linear(block.value, u) * sigmoid(linear(block.gate, u))
    close(run(model, xs), linear(model.read_out, want))


@pytest.mark.parametrize("name", ["lru", "s5", "ffm"])
@pytest.mark.parametrize("extreme", [-30.0, -8.0, 3.0, 10.0])
def test_no_parameter_makes_a_state_explode(name, extreme):
    model = memory.make(name, IN, OUT, key=jax.random.key(0))
    params, rest = eqx.partition(model, eqx.is_inexact_array)
    vectors = jax.tree.map(lambda x: jnp.full_like(x, extreme) if x.ndim == 1 else x, params)
    model = eqx.combine(vectors, rest)
    xs = jnp.asarray(inputs(2000))
    hs, _ = eqx.filter_jit(model.states)(model.init(), xs, jnp.zeros(2000, bool))
    for leaf in jax.tree.leaves(hs):
        assert np.isfinite(leaf).all() and np.abs(leaf).max() < 1e6
