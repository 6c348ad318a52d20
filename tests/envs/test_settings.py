"""Environments under JAX's settings: 64-bit, and strict promotion."""

import pickle
from functools import partial
from typing import Any

import gymnax
import jax
import numpy as np
import pytest
from gymnax.utils import load_mnist

from mmrl import envs, rollout
from mmrl.checks.tracing import random_action

SETTINGS = [(True, "standard"), (False, "strict"), (True, "strict")]


def first_carries(game: Any, params: Any, key: jax.Array) -> tuple[rollout.Carry, rollout.Carry]:
    """Return the carry of a fresh environment, and that after three steps."""

    def policy(state, obs, begin, key):
        return state, random_action(game.action_space(params), key)

    fresh = rollout.start(game, params, (), key)
    return fresh, rollout.collect(policy, game, params, fresh, key, 3)[0]


def types(env: str) -> tuple[list[Any], ...]:
    with jax.numpy_rank_promotion("allow"):  # gymnax's Swimmer promotes ranks
        carries = jax.eval_shape(partial(first_carries, *envs.make(env)), jax.random.key(0))
    return tuple([x.dtype for x in jax.tree.leaves(carry)] for carry in carries)


@pytest.mark.parametrize(("x64", "promotion"), SETTINGS)
@pytest.mark.parametrize("env", ["Pendulum-v1", "MetaMaze-misc", "BernoulliBandit-misc"])
def test_gymnax_steps_in_32_bits(env: str, x64: bool, promotion: str):
    expected = types(env)
    with jax.enable_x64(x64), jax.numpy_dtype_promotion(promotion):
        assert types(env) == expected


@pytest.mark.full
@pytest.mark.parametrize("env", envs.registered_ids())
def test_every_listed_environment_keeps_its_types(env: str, monkeypatch: pytest.MonkeyPatch):
    digits = np.zeros((4, 28, 28)), np.zeros(4, int)
    monkeypatch.setattr(load_mnist, "load_mnist", lambda: (digits, digits))
    for x64, promotion in SETTINGS:
        with jax.enable_x64(x64), jax.numpy_dtype_promotion(promotion):
            before, after = types(env)
        assert before == after


@pytest.mark.parametrize("env", ["popgym-RepeatPreviousEasy-v0", "probe-Match-v0"])
def test_a_reset_by_itself_promotes_types(env: str):
    game, params = envs.make(env)
    with jax.numpy_dtype_promotion("strict"):
        _, state = jax.eval_shape(game.reset, jax.random.key(0), params)
        jax.eval_shape(game.state_obs, state, params)


def test_a_narrow_environment_is_still_that_of_gymnax():
    env, _ = envs.make("Pendulum-v1")
    for twin in (env, pickle.loads(pickle.dumps(env)), env.with_transition_gradients()):
        assert isinstance(twin, gymnax.environments.classic_control.Pendulum)
        assert type(twin) is type(env) and twin.name == "Pendulum-v1"
    assert env.with_transition_gradients().transition_gradients_enabled
    assert not env.transition_gradients_enabled


@pytest.mark.slow
def test_gymnax_plays_the_same_in_64_bit():
    run = jax.jit(partial(first_carries, *envs.make("Pendulum-v1")))
    expected = jax.device_get(run(jax.random.key(0)))
    with jax.enable_x64(True):
        results = jax.device_get(run(jax.random.key(0)))
    for x, y in zip(jax.tree.leaves(results[0]), jax.tree.leaves(expected[0]), strict=True):
        np.testing.assert_array_equal(x, y)
