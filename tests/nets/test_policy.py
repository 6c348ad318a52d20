"""Distributions against SciPy; actor-critics: step, tape and lookahead agree, heads start small."""

import functools
import re
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from mmrl.memory import Nothing
from mmrl.nets import ActorCritic, Categorical, Gaussian, Net, Tanh, mlp
from mmrl.nets.policy import unit

TIME, OBS, ACTIONS = 16, (3, 2), 4


@pytest.fixture
def logits() -> jax.Array:
    return 2 * jax.random.normal(jax.random.key(0), (TIME, ACTIONS))


def gaussians() -> tuple[Gaussian, Gaussian]:
    keys = jax.random.split(jax.random.key(1), 4)
    means, stds = ([jax.random.normal(k, (TIME, 3)) for k in pair] for pair in (keys[:2], keys[2:]))
    return Gaussian(means[0], 0.5 * stds[0]), Gaussian(means[1], 0.5 * stds[1])


# Distributions


@pytest.mark.usefixtures("x64")
def test_categorical_equals_scipy(logits: jax.Array):
    logits = logits.astype(float)
    p = np.asarray(jax.nn.softmax(logits))
    policy, other = Categorical(logits), Categorical(logits[::-1])
    np.testing.assert_allclose(policy.entropy(), scipy.stats.entropy(p, axis=1), rtol=1e-12)
    np.testing.assert_allclose(
        policy.kl(other), scipy.stats.entropy(p, p[::-1], axis=1), rtol=1e-12
    )
    actions = jnp.arange(TIME) % ACTIONS
    np.testing.assert_allclose(
        policy.log_prob(actions), np.log(p[np.arange(TIME), actions]), rtol=1e-12
    )
    np.testing.assert_array_equal(policy.mode(), p.argmax(axis=1))


@pytest.mark.usefixtures("x64")
def test_gaussian_equals_scipy():
    policy, other = jax.tree.map(lambda x: x.astype(float), gaussians())
    normal = scipy.stats.norm(policy.mean, np.exp(policy.log_std))
    actions = policy.sample(jax.random.key(2))
    np.testing.assert_allclose(
        policy.log_prob(actions), normal.logpdf(np.asarray(actions)).sum(axis=1), rtol=1e-12
    )
    np.testing.assert_allclose(policy.entropy(), normal.entropy().sum(axis=1), rtol=1e-12)
    np.testing.assert_array_equal(policy.mode(), policy.mean)

    def divergence(policy: Any, other: Any) -> float:
        """∫ π (log π - log π') by quadrature, dimension by dimension."""
        total = 0.0
        for i in range(3):
            own, theirs = (
                scipy.stats.norm(d.mean[0, i], np.exp(d.log_std[0, i])) for d in (policy, other)
            )
            a = own.mean() + own.std() * np.linspace(-10, 10, 20_001)
            total += np.trapezoid(own.pdf(a) * (own.logpdf(a) - theirs.logpdf(a)), a)
        return total

    np.testing.assert_allclose(policy.kl(other)[0], divergence(policy, other), rtol=1e-9)


@pytest.mark.parametrize("kind", [Categorical, Gaussian])
def test_a_policy_does_not_diverge_from_itself(kind: type, logits: jax.Array):
    policy = Categorical(logits) if kind is Categorical else gaussians()[0]
    np.testing.assert_array_equal(policy.kl(policy), 0)
    gradient = jax.jit(jax.grad(lambda other: policy.kl(other).sum()))(policy)
    for leaf in jax.tree.leaves(gradient):
        np.testing.assert_allclose(leaf, 0, atol=1e-6)


@pytest.mark.parametrize(
    ("low", "high", "center", "scale"),
    [
        (-0.1, 0.1, 0, 0.1),
        (100, 200, 150, 50),
        (-100, 100, 0, 100),
        (0, 1, 0.5, 0.5),
        (-1, 1, 0, 1),
        (-2, 2, 0, 1),  # N(0, 1) covers these
        (-1, 4, 0, 1),
        (-0.5, 1, 0.25, 0.75),
        (-np.inf, np.inf, 0, 1),
        (0, np.inf, 0, 1),
        (100, np.inf, 100, 1),
        (-np.inf, -3, -3, 1),
        (-3e34, 3e34, 0, 3e34),
        (-1e-30, 1e-30, 0, 1e-30),
    ],
)
def test_a_policy_s_unit_is_the_box_that_it_has_to_reach(
    low: float, high: float, center: float, scale: float
):
    c, s = unit(((float(low), -1.0), (float(high), 1.0)))
    np.testing.assert_allclose(c, [center, 0], rtol=1e-6)
    np.testing.assert_allclose(s, [scale, 1], rtol=1e-6)


@pytest.mark.slow
def test_a_scaled_policy_is_the_plain_one_in_other_units():
    """Its density is divided by the size of the unit."""
    low, high = (-0.1, 100.0, -3e34, -1e-30, -np.inf), (0.1, 200.0, 3e34, 1e-30, np.inf)
    _, s = unit((low, high))
    net = ActorCritic.make("none", 2, 5, continuous=True, bounds=(low, high), key=jax.random.key(0))
    plain = ActorCritic(net.policy, net.critic, net.log_std)

    @jax.jit
    @jax.value_and_grad
    def density(net: ActorCritic, scale: Any) -> Any:
        policy: Any = net.step(net.init(), jnp.array([0.5, -2.0]), jnp.array(True))[1].policy
        return policy.log_prob(policy.mean + 0.5 * scale)

    (value, expected), (in_units, gradient) = (
        density(plain, jnp.ones(5)),
        density(net, jnp.array(s)),
    )
    np.testing.assert_allclose(in_units, value - np.log(s.astype(float)).sum(), rtol=1e-4)
    for x, y in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected), strict=True):
        assert np.isfinite(x).all()
        np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4)


def test_the_mode_lies_in_the_box():
    bounds = (-1.0, 0.0, 0.0), (1.0, 5.0, np.inf)
    policy = Gaussian(jnp.array([[-7.0, 7.0, 7.0]]), jnp.zeros((1, 3)), bounds)
    np.testing.assert_array_equal(policy.mode(), [[-1, 5, 7]])


def test_samples_are_as_frequent_as_they_are_likely():
    policy = Categorical(jnp.log(jnp.array([0.5, 0.3, 0.15, 0.05])))
    draws = jax.vmap(policy.sample)(jax.random.split(jax.random.key(3), 20_000))
    test = scipy.stats.chisquare(np.bincount(draws), 20_000 * np.array([0.5, 0.3, 0.15, 0.05]))
    assert test.pvalue > 1e-3
    normal = Gaussian(jnp.array([1.0]), jnp.log(jnp.array([0.5])))
    draws = jax.vmap(normal.sample)(jax.random.split(jax.random.key(4), 5_000))[:, 0]
    assert scipy.stats.kstest(np.asarray(draws), scipy.stats.norm(1, 0.5).cdf).pvalue > 1e-3


@pytest.mark.slow
def test_extreme_and_forbidden_actions_do_no_harm():
    policy = Categorical(jnp.array([1e4, -1e4, 0.0]))
    forbidden = Categorical(jnp.array([0.0, -jnp.inf, 0.0]))

    def numbers(policy: Categorical) -> jax.Array:
        return (
            policy.entropy() + policy.log_prob(jnp.array(0)) + policy.kl(Categorical(jnp.zeros(3)))
        )

    for p in (policy, forbidden):
        value, gradient = jax.jit(jax.value_and_grad(numbers))(p)
        assert jnp.isfinite(value) and jnp.isfinite(gradient.logits).all()
    np.testing.assert_allclose(forbidden.entropy(), np.log(2), rtol=1e-6)
    draws = jax.vmap(forbidden.sample)(jax.random.split(jax.random.key(5), 200))
    assert set(np.asarray(draws).tolist()) == {0, 2}


# Networks


@functools.cache
def make(name: str, **kwargs: Any) -> ActorCritic:
    size = int(np.prod(OBS))
    return ActorCritic.make(name, size, ACTIONS, width=8, key=jax.random.key(6), **kwargs)


@pytest.fixture(scope="module")
def tape() -> tuple[jax.Array, jax.Array, jax.Array]:
    keys = jax.random.split(jax.random.key(7), 2)
    begin = jnp.zeros(TIME, bool).at[jnp.array([0, 5, 6])].set(True)
    return (
        jax.random.normal(keys[0], (TIME, *OBS)),
        begin,
        jax.random.normal(keys[1], (TIME, *OBS)),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "form"),
    [
        *(("lru", {}), ("lru", {"continuous": True}), ("gru", {"shared": True})),
        *(("none", {"shared": True}), ("none", {"continuous": True})),
    ],
)
def test_tape_step_and_lookahead_agree(name: str, form: dict[str, bool], tape):
    net, (obs, begin, next_obs) = make(name, **form), tape

    @eqx.filter_jit
    def by_steps(net):
        def step(state, inputs):
            o, b, o_next = inputs
            state, now = net.step(state, o, b)
            return state, (now, net.step(state, o_next, jnp.zeros((), bool))[1])

        state, (now, ahead) = jax.lax.scan(step, net.init(), (obs, begin, next_obs))
        return state, now, ahead

    @eqx.filter_jit
    def by_tape(net):
        state, now = net(net.init(), obs, begin)
        return net.lookahead(net.init(), obs, begin, next_obs), (state, now)

    expected, (result, short) = by_steps(net), by_tape(net)
    close = dict(rtol=2e-4, atol=2e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **close), result, expected)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **close), short, expected[:2])


@pytest.mark.slow
def test_a_policy_starts_almost_uniform_and_a_value_does_not(tape):
    obs, begin, _ = tape
    run = eqx.filter_jit(lambda net: net(net.init(), obs, begin)[1])
    for name in ("none", "lru"):
        outputs = run(make(name))
        assert np.abs(outputs.policy.logits).max() < 0.05
        assert outputs.policy.entropy().min() > 0.99 * np.log(ACTIONS)
        for value in (outputs.value, outputs.aux_value):
            assert np.abs(value).max() > 0.1
    outputs = run(make("none", continuous=True))
    assert np.abs(outputs.policy.mean).max() < 0.05
    np.testing.assert_array_equal(outputs.policy.log_std, 0)


@pytest.mark.slow
def test_what_is_shared(tape):
    """Two networks: the value's gradient leaves the policy net alone. One: it does not."""
    obs, begin, _ = tape

    run = eqx.filter_jit(lambda net: net(net.init(), obs, begin)[1])

    @eqx.filter_jit
    @eqx.filter_grad
    def slope(net, which):
        return jnp.sum(getattr(net(net.init(), obs, begin)[1], which))

    apart, common = make("none"), make("none", shared=True)
    assert common.critic is None
    by_value = slope(apart, "value")
    by_aux = slope(apart, "aux_value")
    assert not any(np.any(x) for x in jax.tree.leaves(by_value.policy))
    assert any(np.any(x) for x in jax.tree.leaves(by_value.critic))
    assert any(np.any(x) for x in jax.tree.leaves(by_aux.policy))
    assert not any(np.any(x) for x in jax.tree.leaves(by_aux.critic))
    outputs = run(common)
    np.testing.assert_array_equal(outputs.value, outputs.aux_value)


@pytest.mark.slow
def test_an_mlp_is_two_layers_of_tanh_that_start_orthogonal():
    net = mlp(6, 3, width=16, key=jax.random.key(8))
    x = jax.random.normal(jax.random.key(9), (6,))
    first, second = (layer.linear for layer in net.encoder.layers)
    (head,) = net.head.layers
    y = jnp.tanh(second.weight @ jnp.tanh(first.weight @ x + first.bias) + second.bias)
    np.testing.assert_allclose(
        net.step((), x, jnp.array(True))[1], head.linear(y), rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(second.weight @ second.weight.T, 2 * np.eye(16), atol=1e-5)
    np.testing.assert_allclose(first.weight.T @ first.weight, 2 * np.eye(6), atol=1e-5)
    weight = head.linear.weight
    np.testing.assert_allclose(weight @ weight.T, np.eye(3), atol=1e-5)


@pytest.mark.slow
def test_which_networks_differ_in_nothing_but_the_memory():
    """A `Net` with "none"; of actor-critics one with the latest frame, since "none" is an `mlp`."""
    key, size = jax.random.key(0), int(np.prod(OBS))
    plain = [Net.make(name, size, ACTIONS, key=key) for name in ("none", "lru")]
    blind = ActorCritic.make("frame_stack", size, ACTIONS, frames=1, key=key)
    deep = [blind.policy, ActorCritic.make("lru", size, ACTIONS, key=key).policy]
    for without, with_one in (plain, deep):
        for part in ("encoder", "head"):
            assert eqx.tree_equal(getattr(without, part), getattr(with_one, part))
    obs = jax.random.normal(key, (TIME, *OBS))
    never = jnp.zeros(TIME, bool)
    together = jax.jit(lambda obs: blind(blind.init(), obs, never)[1].value)(obs)
    step = jax.jit(jax.vmap(lambda o: blind.step(blind.init(), o, jnp.array(True))[1].value))
    alone = step(obs)
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-6)
    assert isinstance(ActorCritic.make("none", size, ACTIONS, key=key).policy.memory, Nothing)


def test_sizes_of_a_memory_that_is_not_there_are_refused():
    with pytest.raises(ValueError, match=r"must be .*; got `state_size`"):
        make("none", state_size=4)


def test_orthogonal_layers_of_several_lanes_are_factorized_one_by_one():
    """In a batch, LAPACK can wait for ever where several devices of a CPU begin at once."""

    def make(key):
        return Tanh(5, 8, key=key).linear.weight

    keys = jax.random.split(jax.random.key(0), 3)
    program = jax.jit(jax.vmap(make)).lower(keys).compile()
    calls = [line for line in str(program.as_text()).splitlines() if "custom-call" in line]
    assert calls
    assert not any(re.search(r"f32\[3,\d+,\d+\]", line) for line in calls)
    np.testing.assert_array_equal(program(keys), jnp.stack([make(key) for key in keys]))
