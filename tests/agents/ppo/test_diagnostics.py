"""The gradient noise scale that PPO and PPG report: of which batch, and at what cost."""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from mmrl.agents import ppo
from mmrl.agents.ppo import diagnostics, learner, ppg
from mmrl.course import plain
from mmrl.envs import make
from mmrl.runs import RunError
from mmrl.runs.identity import check_same

ENV, PARAMS = make("probe-Memory-v0")
SIZES: dict[str, Any] = dict(
    memory="none",
    width=8,
    environments=4,
    rollout=6,
    minibatches=2,
    episodes=4,
    noise_scale=True,
    adam_eps=1e-3,  # so that rounding stays what it is
)
PPO = dataclasses.replace(plain.PPO, **SIZES, epochs=2, block=2)
PPG = dataclasses.replace(
    plain.PPG,
    **SIZES,
    policy_iterations=2,
    auxiliary_epochs=1,
    auxiliary_minibatches=4,
    value_epochs=2,
    block=4,
)


def last_batch(config: ppo.Config, state: ppo.State) -> tuple[learner.Batch, jax.Array]:
    """What the iteration after `state` learns from, and its key."""
    act_key, learn_key, _ = jax.random.split(state.key, 3)
    after, rollout = ppo.act(config, ENV, PARAMS, state, act_key)
    return learner.prepare(config, state.net, after.advantages, rollout)[1], learn_key


@pytest.mark.full
def test_the_noise_is_that_of_a_blocks_last_batch():
    """Before it is learned from; and nothing else changes."""
    first = jax.jit(partial(ppo.init, PPO, ENV, PARAMS))(jax.random.key(0))
    iterate = jax.jit(partial(ppo.iterate, PPO, ENV, PARAMS))
    before = first
    for _ in range(PPO.block - 1):
        before = iterate(before)[0]
    batch, learn_key = jax.jit(last_batch)(PPO, before)
    noise_scale = jax.jit(partial(diagnostics.noise_scale, terms=("policy",)))
    expected = noise_scale(PPO, before.learner, batch, jax.random.fold_in(learn_key, 0))

    @jax.jit
    def run(config):
        return ppo.block(config, ENV, PARAMS, first)

    state, metrics = run(PPO)
    noise = metrics.diagnostics.noise
    np.testing.assert_allclose(noise, expected, rtol=1e-3)
    assert noise.scale.shape == () and noise.noise > 0
    without, quiet = run(dataclasses.replace(PPO, noise_scale=False))
    assert quiet.diagnostics.noise is None
    for ours, other in zip(*map(numbers, (state, without)), strict=True):
        np.testing.assert_array_equal(ours, other)


def numbers(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))]


@pytest.mark.full
@pytest.mark.parametrize("agent, config", [(ppo, PPO), (ppg, PPG)], ids=["ppo", "ppg"])
def test_seeds_side_by_side_measure_it_once_too(agent: Any, config: Any):
    """A condition that differed between seeds would be computed in every iteration."""

    def conditions(config: Any) -> int:
        keys = jax.random.split(jax.random.key(0), 2)
        state = jax.eval_shape(jax.vmap(lambda k: agent.init(config, ENV, PARAMS, k)), keys)
        block = jax.vmap(lambda s: agent.block(config, ENV, PARAMS, s))
        return str(jax.make_jaxpr(block)(state)).count(" cond[")

    quiet = dataclasses.replace(config, noise_scale=False)
    assert conditions(config) == conditions(quiet) + 1


def test_one_minibatch_has_nothing_to_compare():
    with pytest.raises(ValueError, match="`minibatches` must be at least 2"):
        ppo.check(dataclasses.replace(PPO, minibatches=1), ENV, PARAMS)


def test_a_run_of_before_the_switch_can_go_on():
    now = {"agent": "ppo", "config": {"noise_scale": False, "clip": 0.2}}
    before = {"agent": "ppo", "config": {"clip": 0.2}}
    check_same("here", before, now)
    now["config"]["estimator"] = "gae"
    check_same("here", before, now)
    now["config"]["noise_scale"] = True
    with pytest.raises(RunError, match=r"setup: noise_scale was False, is True\. Use"):
        check_same("here", before, now)
