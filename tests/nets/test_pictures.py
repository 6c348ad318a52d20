"""Convolutions: they equal JAX's own, scale bytes once, and stand in a network as a dense layer."""

import dataclasses
import re
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments import spaces

from mmrl import envs
from mmrl.agents import AGENTS, dqn, find
from mmrl.agents.checks import seen_picture
from mmrl.agents.common import q_net
from mmrl.agents.policies import actor_critic
from mmrl.envs.probes import Probe
from mmrl.envs.wrappers.observation import with_inputs
from mmrl.nets import ActorCritic, Conv, Net, inputs
from mmrl.nets.pictures import Filters, Picture, pool, stack

GAME = "Breakout-MinAtar"


def bytes_of(*shape: int) -> jax.Array:
    return jax.random.randint(jax.random.key(1), shape, 0, 256).astype(jnp.uint8)


def convolution(layer: Filters, x: jax.Array) -> jax.Array:
    """The oracle: `lax.conv` with the layer's weights."""
    weight: Any = layer.linear.weight
    filters = weight.T.reshape(3, 3, x.shape[-1], -1)
    how = {"window_strides": (1, 1), "padding": "SAME" if layer.same else "VALID"}
    axes = ("NHWC", "HWIO", "NHWC")
    bias: Any = layer.linear.bias
    return (
        bias[None, None]
        + jax.lax.conv_general_dilated(x[None], filters, dimension_numbers=axes, **how)[0]
    )


@pytest.mark.parametrize("same", [True, False])
def test_filters_are_a_convolution(same: bool):
    layer = Filters(3, 5, same, key=jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (7, 6, 3))
    np.testing.assert_allclose(layer(x), convolution(layer, x), rtol=1e-5, atol=1e-5)
    ours, theirs = (jax.grad(lambda x, f=f: jnp.sum(f(x) ** 2)) for f in (layer, _oracle(layer)))
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-4, atol=1e-4)


def _oracle(layer: Filters) -> Any:
    return lambda x: convolution(layer, x)


@pytest.mark.parametrize(("height", "width"), [(7, 6), (1, 2), (4, 5)])
def test_the_pool_is_that_of_xla(height: int, width: int):
    x = jax.random.normal(jax.random.key(0), (height, width, 2))
    window = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (3, 3, 1), (2, 2, 1), "SAME")
    np.testing.assert_array_equal(pool(x), window)


def test_the_small_stack_is_that_of_minatar():
    conv: Any = Conv(Picture((10, 10, 4)), key=jax.random.key(0))
    (layer,) = conv.blocks
    x = jax.random.uniform(jax.random.key(1), (10, 10, 4))
    assert isinstance(layer, Filters) and conv.output_size == 128
    features = jax.nn.relu(convolution(layer, x)).ravel()
    expected = jax.nn.relu(conv.linear.weight @ features + conv.linear.bias)
    np.testing.assert_allclose(conv(x), expected, rtol=1e-5, atol=1e-6)


def test_the_impala_stack_is_that_of_its_paper():
    conv: Any = Conv(Picture((32, 33, 2)), key=jax.random.key(0))
    x = jax.random.uniform(jax.random.key(1), (32, 33, 2))
    result = jax.jit(lambda conv, x: conv(x))(conv, x)

    def expected(conv, x):
        for block in conv.blocks:
            x = pool(convolution(block.first, x))
            for first, second in block.units:
                x = x + convolution(second, jax.nn.relu(convolution(first, jax.nn.relu(x))))
        features = jax.nn.relu(x).ravel()
        return jax.nn.relu(conv.linear.weight @ features + conv.linear.bias)

    np.testing.assert_allclose(result, jax.jit(expected)(conv, x), rtol=1e-4, atol=1e-5)
    assert [block.first.linear.out_features for block in conv.blocks] == [16, 32, 32]
    assert conv.output_size == 256 == len(result)


def test_bytes_are_scaled_once():
    picture = bytes_of(10, 10, 3)
    conv = Conv(Picture((10, 10, 3), unit=255.0), key=jax.random.key(0))
    plain = Conv(Picture((10, 10, 3)), key=jax.random.key(0))
    np.testing.assert_array_equal(conv(picture), plain(picture.astype(jnp.float32) / 255))
    np.testing.assert_array_equal(conv(picture.astype(jnp.float32)), conv(picture))
    flags = picture > 99
    np.testing.assert_array_equal(plain(flags), plain(flags.astype(jnp.float32)))


def test_a_step_is_a_tape_with_numbers_beside_pictures():
    picture = Picture((10, 10, 3), more=2, unit=255.0)
    net = Net.make("lru", 0, 3, width=8, picture=picture, key=jax.random.key(0), state_size=4)
    obs = bytes_of(5, 10, 10, 3), jax.random.normal(jax.random.key(2), (5, 2))
    begin = jnp.array([True, False, False, True, False])

    @jax.jit
    def both(net, obs, begin):
        _, tape = net(net.init(), obs, begin)
        _, steps = jax.lax.scan(lambda s, x: net.step(s, *x), net.init(), (obs, begin))
        now = net.lookahead(net.init(), obs, begin, jax.tree.map(jnp.flip, obs))[1]
        other = net(net.init(), (obs[0], obs[1] + 1), begin)[1]
        return tape, steps, now, other

    tape, steps, now, other = both(net, obs, begin)
    np.testing.assert_allclose(tape, steps, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(tape, now, rtol=1e-4, atol=1e-5)
    assert not np.allclose(tape, other)


def config(agent: str, **settings: Any) -> Any:
    return dataclasses.replace(find(agent).Config(), **settings)


@pytest.mark.parametrize("agent", AGENTS)
def test_the_shape_of_observations_chooses_the_encoder(agent: str):
    env, params = envs.make(GAME)
    assert seen_picture(config(agent), env, params) == Picture((10, 10, 4))
    assert seen_picture(config(agent, encoder="impala"), env, params).stack == "impala"
    assert seen_picture(config(agent, encoder="dense"), env, params) is None
    beside = with_inputs(env, params, find(agent).OBSERVES, flat=False)
    more = seen_picture(config(agent), beside, params).more
    assert more == {"r2d2": 3 + 1 + 1}.get(agent, 1)
    flat = with_inputs(env, params, find(agent).OBSERVES)
    assert seen_picture(config(agent), flat, params) is None


def test_an_encoder_that_cannot_see_is_refused():
    env, params = envs.make("CartPole-v1")
    with pytest.raises(ValueError, match=r"`encoder` must be .*\(4,\)"):
        seen_picture(config("dqn", encoder="small"), env, params)
    env, params = envs.make(GAME)
    with pytest.raises(ValueError, match="`normalize_observations` must be"):
        find("dqn").init(config("dqn", normalize_observations=True), env, params, jax.random.key(0))


FIRST = [(4, 84, 84), (3, 210, 160), (1, 28, 28), (2, 5, 6), (4, 10, 10), (3, 32, 32), (7, 10, 10)]
LAST = [(84, 84, 4), (4, 4, 16), (5, 6, 7), (10, 10, 10), (32, 32, 3), (3, 5, 3), (160, 210, 3)]


@pytest.mark.parametrize("shape", FIRST, ids=str)
def test_channels_come_last(shape: tuple[int, int, int]):
    """Also in a run, which would otherwise flatten pictures of few rows."""

    class Screen(Probe):
        num_steps, obs_size = 1, 1

        def look(self, state: Any, params: Any) -> Any:
            return jnp.zeros(shape, jnp.uint8)

        def observation_space(self, params: Any = None) -> Any:
            return spaces.Box(0, 255, shape, jnp.uint8)

        def reward(self, state: Any, action: Any) -> Any:
            return jnp.float32(0)

        def optimal_q(self, obs: Any, begin: Any, gamma: Any) -> Any:
            return jnp.zeros((len(obs), 2))

    env = Screen()
    for names in ((), ("begin_flag",)):
        view = with_inputs(env, env.default_params, names, flat=False)
        with pytest.raises(
            ValueError, match=rf"\[height, width, channel\].*{re.escape(str(shape))}"
        ):
            seen_picture(config("dqn"), view, env.default_params)
        pair = seen_picture(config("dqn", encoder="dense"), view, env.default_params)
        assert (pair is None) == (names == ())
    if min(shape) >= 3:
        assert stack(Picture(shape, stack="small")) == "small"


def test_pictures_of_any_sides_are_read():
    large = [(84, 84, 4), (32, 32, 3), (160, 210, 3)]
    for shape in LAST:
        assert stack(Picture(shape)) == ("impala" if shape in large else "small")


@pytest.mark.parametrize("agent", ["dqn", "ppo"])
@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("normalize", [None, True])
def test_a_dense_encoder_reads_a_pair_as_the_vector_of_a_run(
    agent: str, memory: str, normalize: bool | None
):
    """Equal outputs of equal keys, also after both have counted observations."""
    env, params = envs.make(GAME)
    settings = config(agent, encoder="dense", memory=memory, width=8)
    settings = dataclasses.replace(settings, normalize_observations=normalize)
    make = {"dqn": q_net, "ppo": actor_critic}[agent]
    pair, vector = (with_inputs(env, params, ("begin_flag",), flat=flat) for flat in (False, True))
    picture = jax.random.bernoulli(jax.random.key(1), 0.3, (7, 10, 10, 4)).astype(jnp.uint8)
    begin = jnp.array([True, False, False, True, False, False, False])
    inputs_of_net = picture, begin[:, None].astype(jnp.float32)
    flat = jnp.concatenate([picture.reshape(7, -1).astype(jnp.float32), inputs_of_net[1]], axis=1)
    outputs = []
    for shown_env, obs in ((pair, inputs_of_net), (vector, flat)):
        net = inputs.count(make(settings, shown_env, params, jax.random.key(0)), obs)
        outputs.append(net(net.init(), obs, begin)[1])
    for mine, theirs in zip(*map(jax.tree.leaves, outputs), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_a_tape_of_minatar_takes_a_quarter_of_floats():
    env, params = envs.make(GAME)
    settings = config("dqn", environments=2, width=8)
    state = jax.eval_shape(lambda key: dqn.init(settings, env, params, key), jax.random.key(0))
    (ring,) = state.tape.frames.pictures
    assert ring.dtype == jnp.uint8 and env.observation_space(params).dtype == jnp.uint8
    obs, state = jax.jit(env.reset)(jax.random.key(0), params)
    theirs = gymnax.make(GAME)[0].get_obs(state)
    np.testing.assert_array_equal(obs, theirs)
    assert obs.dtype == jnp.uint8 and theirs.dtype == jnp.float32


@pytest.mark.parametrize("names", [(), ("begin_flag",), ("previous_action", "previous_reward")])
def test_numbers_beside_a_picture_are_those_behind_a_vector(names: tuple[str, ...]):
    env, params = envs.make(GAME)
    pair, vector = (with_inputs(env, params, names, flat=flat) for flat in (False, True))

    @jax.jit
    def play(key):
        def step(states, key):
            mine, theirs = (
                e.step(key, s, 1, params)[:3] for e, s in zip((pair, vector), states, strict=True)
            )
            return (mine[1], theirs[1]), (mine[0], theirs[0])

        starts = pair.reset(key, params), vector.reset(key, params)
        states = starts[0][1], starts[1][1]
        _, obs = jax.lax.scan(step, states, jax.random.split(key, 40))
        return (starts[0][0], starts[1][0]), obs

    for mine, theirs in play(jax.random.key(3)):
        picture, more = mine if names else (mine, theirs[..., 400:])
        np.testing.assert_array_equal(picture.reshape(*picture.shape[:-3], -1), theirs[..., :400])
        np.testing.assert_array_equal(more, theirs[..., 400:])


def test_an_actor_critic_has_two_encoders():
    picture = Picture((10, 10, 3))
    for name in ("none", "gru"):
        net = ActorCritic.make(name, 0, 2, width=8, picture=picture, key=jax.random.key(0))
        weights = [x for x in jax.tree.leaves(net) if x.shape == (16, 27)]
        assert len(weights) == 2 and not np.array_equal(*weights)


@pytest.mark.full
@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_trains_on_pictures(agent: str):
    module = find(agent)
    sizes = {"environments": 2, "rollout": 4, "block": 2, "width": 8, "episodes": 1}
    own: dict[str, Any] = {
        "dqn": {"batch": 20, "batching": "segments", "capacity": 2048},
        "r2d2": {"length": 4, "burn_in": 2, "n_step": 2, "batch": 2, "capacity": 64},
        "clear": {"capacity": 64},
        "ppo": {"minibatches": 1},
        "ppg": {"minibatches": 1, "auxiliary_minibatches": 1},
    }
    settings = config(agent, **{**module.SMALL, **sizes, **own.get(agent, {})})
    env, params = envs.make(GAME)
    env = with_inputs(env, params, module.OBSERVES, flat=False)
    params = params.replace(max_steps_in_episode=9)

    @jax.jit
    def once(key):
        return module.block(settings, env, params, module.init(settings, env, params, key))

    state, metrics = once(jax.random.key(0))
    assert metrics.finite.all() and all(np.isfinite(x).all() for x in jax.tree.leaves(state.net))
