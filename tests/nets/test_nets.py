"""Networks: a tape, a step and a lookahead agree, and the layers are what they say."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.nets import Dense, DuelingHead, LinearHead, Net

TIME, OBS, ACTIONS, WIDTH = 24, (3, 2), 4, 8
MEMORIES = ("lru", "gru", "none")


def test_dense_is_linear_norm_and_leaky_relu():
    layer, x = Dense(5, 16, key=jax.random.key(0)), jax.random.normal(jax.random.key(1), (5,))
    norm = eqx.nn.LayerNorm(16, eps=1e-5, use_weight=False, use_bias=False)
    y = np.asarray(norm(layer.linear(x)))
    np.testing.assert_allclose(layer(x), np.where(y > 0, y, 0.01 * y), rtol=1e-5, atol=1e-6)


def test_a_dueling_heads_mean_is_its_value():
    head, x = DuelingHead(5, 3, key=jax.random.key(0)), jax.random.normal(jax.random.key(1), (5,))
    q = head(x)
    np.testing.assert_allclose(q.mean(), head.value(x)[0], rtol=1e-5)
    advantage = np.asarray(head.advantage(x))
    np.testing.assert_allclose(q - q.mean(), advantage - advantage.mean(), atol=1e-6)


def test_a_linear_head_is_affine():
    head, x = LinearHead(5, 3, key=jax.random.key(0)), jax.random.normal(jax.random.key(1), (5,))
    np.testing.assert_allclose(head(x), head.linear.weight @ x + head.linear.bias, rtol=1e-6)


def make(name: str) -> Net:
    size = int(np.prod(OBS))
    return Net.make(name, size, ACTIONS, width=WIDTH, dueling=True, key=jax.random.key(2))


@pytest.fixture(scope="module")
def tape() -> dict[str, jax.Array]:
    """Four episodes, one of a single step, of observations with two axes."""
    keys = jax.random.split(jax.random.key(3), 2)
    return {
        "obs": jax.random.normal(keys[0], (TIME, *OBS)),
        "next_obs": jax.random.normal(keys[1], (TIME, *OBS)),
        "begin": jnp.zeros(TIME, bool).at[jnp.array([0, 7, 8, 15])].set(True),
    }


@eqx.filter_jit
def by_steps(net: Net, obs, begin, next_obs):
    """Outputs and lookaheads of `step` alone."""

    def step(state, inputs):
        o, b, o_next = inputs
        state, y = net.step(state, o, b)
        return state, (y, net.step(state, o_next, jnp.zeros((), bool))[1])

    state, (ys, next_ys) = jax.lax.scan(step, net.init(), (obs, begin, next_obs))
    return state, ys, next_ys


@pytest.mark.slow
@pytest.mark.parametrize("name", MEMORIES)
def test_tape_step_and_lookahead_agree(name: str, tape: dict[str, jax.Array]):
    net, (obs, begin, next_obs) = make(name), (tape["obs"], tape["begin"], tape["next_obs"])
    state, ys, next_ys = by_steps(net, obs, begin, next_obs)
    tape_state, tape_ys = eqx.filter_jit(net)(net.init(), obs, begin)
    ahead = eqx.filter_jit(net.lookahead)(net.init(), obs, begin, next_obs)
    close = dict(rtol=2e-4, atol=2e-5)
    np.testing.assert_allclose(tape_ys, ys, **close)
    np.testing.assert_allclose(ahead[1], ys, **close)
    np.testing.assert_allclose(ahead[2], next_ys, **close)
    for other in (tape_state, ahead[0]):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **close), state, other)


@pytest.mark.slow
@pytest.mark.parametrize("name", MEMORIES)
def test_what_an_output_depends_on(name: str, tape: dict[str, jax.Array]):
    """Outputs and targets see their episode from its first observation on, and no other episode."""
    net, (obs, begin, next_obs) = make(name), (tape["obs"], tape["begin"], tape["next_obs"])

    ends = jnp.array([6, 14])

    @eqx.filter_jit
    def sensitivity(obs):
        def at(t, obs):
            _, q, next_q = net.lookahead(net.init(), obs, begin, next_obs)
            return q[t].sum() + 0.7 * q[t, 0], next_q[t].sum() + 0.7 * next_q[t, 0]

        return jax.vmap(lambda t: jax.jacrev(lambda o: jnp.stack(at(t, o)))(obs))(ends)

    for episode, jacobian in zip((range(0, 7), range(8, 15)), sensitivity(obs), strict=True):
        for depends in np.abs(jacobian).max(axis=(2, 3)):
            outside = [t for t in range(TIME) if t not in episode]
            assert not depends[outside].any()
            assert depends[episode[0]] > 1e-7 or name == "none"
        # The network without memory sees the present only; its target not even that.
        assert np.abs(jacobian[0, episode[-1]]).max() > 1e-7
