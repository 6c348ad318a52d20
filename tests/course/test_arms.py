"""Arms as numbers learn what the agents' own settings do."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.agents import r2d2
from mmrl.agents.ppo import learner
from mmrl.course import arms, plain
from mmrl.nets import ActorCritic, Categorical, Net
from mmrl.replay import sequences
from mmrl.rollout import Transition

usual = eqx.filter_jit(learner.loss)


def batch_of(state: Any, proximal: Any, log_prob: Any, obs: Any, action: Any) -> learner.Batch:
    ones = jnp.ones(action.shape)
    return learner.Batch(state, obs, ones > 0, action, log_prob, proximal, ones, ones)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("name", arms.PROXIMAL)
def test_an_arm_has_the_loss_of_its_proximal_policy(name: str):
    keys = jax.random.split(jax.random.key(0), 4)
    net = ActorCritic.make("none", 3, 4, width=8, key=keys[0])
    obs, action = jax.random.normal(keys[1], (20, 1, 3)), jnp.arange(20)[:, None] % 4
    behavior, recent = (Categorical(jax.random.normal(key, (20, 1, 4))) for key in keys[2:])
    near = behavior if name == "behavior" else recent
    target = recent if name == "recent" else behavior
    config = dataclasses.replace(plain.PPO, memory="none", proximal="decoupled")
    both = learner.BOTH
    own = batch_of(net.init(), near, target.log_prob(action), obs, action)
    batch = batch_of(net.init(), recent, behavior.log_prob(action), obs, action)
    loss = arms.proximal(jnp.array(arms.PROXIMAL[name])).keywords["loss"]
    want = usual(net, None, own, config, both)
    result = eqx.filter_jit(loss)(net, None, batch, config, both)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), result, want)


@pytest.mark.full
@pytest.mark.parametrize("start", ["stored", "zero"])
def test_states_that_count_nothing_are_a_start_from_zero(start: str):
    net = Net.make("lstm", 3, 2, width=4, key=jax.random.key(0))
    steps = Transition(
        obs=jax.random.normal(jax.random.key(1), (12, 3)), action=jnp.arange(12) % 2,
        reward=jnp.ones(12), next_obs=jnp.ones((12, 3)), begin=jnp.arange(12) == 0,
        terminated=jnp.arange(12) == 11, truncated=jnp.zeros(12, bool),
    )  # fmt: skip
    states = jax.tree.map(lambda x: jnp.ones((1, 12, *x.shape)), net.init())
    sizes = {"length": 4, "overlap": 0, "burn_in": 0}
    one = jax.tree.map(lambda x: x[0], (steps, jax.tree.map(lambda x: x[0], states)))
    store = sequences.init(*one, 24, **sizes)
    tape = jax.tree.map(lambda x: x[None], steps)
    store = jax.jit(sequences.add)(store, tape, states, jnp.ones((1, 12)))
    batch = jax.jit(sequences.sample, static_argnums=2)(store, jax.random.key(2), 3)
    config = dataclasses.replace(plain.R2D2, **sizes, n_step=1, start=start)
    want = eqx.filter_jit(r2d2.loss)(net, net, batch, config)
    stored_config = dataclasses.replace(config, start="stored")
    right, wrong = (arms.stored_or_zero(x).keywords["loss"] for x in _numbers(start))
    result = eqx.filter_jit(right)(net, net, batch, stored_config)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), result, want)
    assert abs(eqx.filter_jit(wrong)(net, net, batch, stored_config)[0] - want[0]) > 1e-4


def _numbers(start: str) -> tuple[float, float]:
    """That of this start, and that of the other."""
    return (1.0, 0.0) if start == "stored" else (0.0, 1.0)
