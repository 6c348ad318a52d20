"""Memories at the edges of their parameters and sizes."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import memory
from mmrl.memory import LRU
from mmrl.nets import Net

XS = jnp.asarray(np.random.default_rng(0).normal(size=(5, 2)), jnp.float32)
BEGIN = jnp.arange(5) == 0
EXTREME = (0.0, 1e-45, -20.0, 20.0, -45.0, -90.0, 90.0, 1e4, -1e4, 3.4e38, -3.4e38)
RATES = ["lru-nu", "lru-theta", "s5-log_decay", "s5-frequency", "s5-log_step"]
RATES += ["ffm-log_alpha", "ffm-log_omega"]


@eqx.filter_jit
def loss_and_gradient(model):
    return eqx.filter_value_and_grad(lambda m: jnp.sum(m(m.init(), XS, BEGIN)[1] ** 2))(model)


@functools.cache
def build(name: str):
    sizes = {} if name == "ffm" else {"state_size": 3}
    return memory.make(name, 2, 3, key=jax.random.key(0), **sizes)


@pytest.mark.slow
@pytest.mark.parametrize("rate", RATES)
def test_gradients_are_finite_for_all_rates(rate: str):
    name, field = rate.split("-")
    model = build(name)
    for value in EXTREME:
        one = getattr(model, field).at[0].set(value)
        loss, gradient = loss_and_gradient(eqx.tree_at(lambda m: getattr(m, field), model, one))
        assert np.isfinite(loss), value
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradient)), value


@pytest.mark.parametrize("decay", [(1 - 1e-7, 1 - 1e-8), (1 - 1e-8, 1 - 1e-9), (0.0, 1 - 1e-16)])
def test_an_lru_near_one_starts_finite(decay: tuple[float, float]):
    model = LRU(2, 3, state_size=64, decay=decay, key=jax.random.key(0))
    fade = np.exp(np.asarray(model.nu, float))
    assert (fade >= -np.log(decay[1]) * (1 - 1e-5)).all()
    assert decay[0] == 0 or (fade <= -np.log(decay[0]) * 1.2).all()


@pytest.mark.parametrize(("name", "layers"), [("gru", 2), ("lru", 2), ("none", 3), ("ffm", 1)])
def test_a_width_of_one_is_not_constant(name: str, layers: int):
    model = memory.make(name, 2, 1, layers=layers, key=jax.random.key(1))
    run = eqx.filter_jit(model)
    state, ys = run(model.init(), XS, BEGIN)
    assert np.ptp(ys) > 1e-3
    assert name == "none" or not eqx.tree_equal(state, run(model.init(), -XS, BEGIN)[0])


def test_a_network_of_width_one_is_not_constant():
    net = Net.make("none", 2, 2, width=1, key=jax.random.key(0))
    _, q = net(net.init(), XS, BEGIN)
    assert np.ptp(q, axis=0).max() > 1e-4
