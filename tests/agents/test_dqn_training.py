"""DQN as one compiled program: blocks, seeds, scalars, and probes learned to their known values."""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import runs
from mmrl.agents import dqn, normalize
from mmrl.course import plain
from tests.helpers.any_probe import check_learned

pytestmark = pytest.mark.slow

ENV = "probe-Memory-v0"
TINY = dataclasses.replace(
    plain.DQN,
    memory_sizes=(("state_size", 4),),
    width=8,
    batch=16,
    environments=4,
    rollout=4,
    updates=2,
    capacity=64,
    block=2,
    blocks=3,
    episodes=4,
)


@pytest.fixture(scope="module")
def program() -> runs.Program:
    return runs.program("dqn", ENV)


def keys(*seeds: int) -> jax.Array:
    return jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32))


def train(program: runs.Program, config: dqn.Config, *seeds: int) -> tuple[Any, list[Any]]:
    state, metrics = program.init(config, keys(*seeds)), []
    for _ in range(config.blocks):
        state, values = program.block(config, state)
        metrics.append(values)
    return state, metrics


@jax.jit
def alone(state: Any, seed: int) -> Any:
    """The state of one seed of several."""
    return jax.tree.map(lambda x: x[seed], state)


def assert_close(a: Any, b: Any, tolerance: float) -> None:
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance),
        eqx.filter((a.net, a.target, a.tape.steps), eqx.is_array),
        eqx.filter((b.net, b.target, b.tape.steps), eqx.is_array),
    )


@pytest.mark.full
def test_scalars_do_not_recompile(program: runs.Program):
    state, _ = train(program, TINY, 0, 1)
    compiled = program.block._cache_size(), program.init._cache_size()
    for change in ({"learning_rate": 1e-4}, {"gamma": 0.7, "tau": 0.5}, {"epsilon_decay": 3.0}):
        other, _ = train(program, dataclasses.replace(TINY, **change), 0, 1)
        weights = (s.net.head.layers[-1].value.weight for s in (other, state))
        assert np.abs(np.subtract(*weights)).max() > 0
    assert (program.block._cache_size(), program.init._cache_size()) == compiled


@pytest.mark.full
def test_the_target_follows(program: runs.Program):
    """θ⁻ ← θ⁻ + τ (θ - θ⁻): with τ = 1 they are one; with τ = 0 it never moves."""
    first = program.init(TINY, keys(0, 1))
    for tau, like in ((1.0, "net"), (0.0, None)):
        state, _ = program.block(dataclasses.replace(TINY, tau=tau), first)
        expected = getattr(state, like) if like else first.target
        jax.tree.map(partial(np.testing.assert_allclose, atol=1e-6), state.target, expected)
        assert np.abs(state.net.encoder.linear.weight - first.net.encoder.linear.weight).max() > 0


@pytest.mark.full
def test_a_gradient_step_moves_the_target_by_its_share(program: runs.Program):
    state = alone(train(program, TINY, 0, 1)[0], 0)
    config = dataclasses.replace(TINY, tau=0.3)
    learn = jax.jit(dqn.learn)
    new, (value, fill) = learn(config, state, jax.random.key(3))
    assert fill == 1 and value > 0
    late = dataclasses.replace(config, anneal=1.0, horizon=3.0)  # when 3 blocks are over
    still, _ = learn(late, state, jax.random.key(3))
    np.testing.assert_array_equal(
        still.net.head.layers[-1].value.weight, state.net.head.layers[-1].value.weight
    )
    jax.tree.map(
        lambda old, net, target: np.testing.assert_allclose(
            target, old + 0.3 * (net - old), rtol=1e-5, atol=1e-6
        ),
        *jax.device_get(
            [eqx.filter(x, eqx.is_inexact_array) for x in (state.target, new.net, new.target)]
        ),
    )


@pytest.mark.full
def test_rewards_are_divided_where_they_are_learned_from(program: runs.Program):
    """By the deviation of what was paid in all rollouts; on the tape they stay as they are."""
    state = alone(train(program, TINY, 0, 1)[0], 0)
    config = dataclasses.replace(TINY, normalize_rewards=True, gamma=0.9)
    ours = dataclasses.replace(state, rewards=normalize.rewards_of(config))
    env, params = program.env, program.params

    @partial(jax.jit, static_argnums=0)
    def sample(normal: bool, state: Any) -> Any:
        at = dataclasses.replace(config, normalize_rewards=normal)
        state, rollout = dqn.act_and_store(at, env, params, state, jax.random.key(3))
        return rollout, state.tape, dqn.sample(at, state, jax.random.key(4)).steps.reward

    (rollout, tape, raw), (_, same, quotient) = sample(False, state), sample(True, ours)
    np.testing.assert_array_equal(tape.steps.reward, same.steps.reward)
    total, sums = np.zeros(TINY.environments), []
    for reward, begin in zip(rollout.reward.T, rollout.begin.T, strict=True):
        total = reward + 0.9 * np.where(begin, 0, total)
        sums.append(total)
    assert np.abs(raw).max() > 0
    np.testing.assert_allclose(quotient, raw / np.std(sums), rtol=1e-2)


def test_a_seed_does_not_depend_on_its_neighbours(program: runs.Program):
    together, _ = train(program, TINY, 0, 1)
    apart, _ = train(program, TINY, 1, 7)
    assert_close(alone(together, 1), alone(apart, 0), 0.0)


def test_learning_waits_for_a_whole_episode(program: runs.Program):
    """An iteration acts for 4 of an episode's 5 steps: the first one has nothing to learn from."""
    _, metrics = train(program, TINY, 0, 1)
    np.testing.assert_array_equal(metrics[0].fill, 0.5)  # the second one has 20 steps for 16 places
    np.testing.assert_array_equal(metrics[1].fill, 1)
    assert all(m.finite.all() for m in metrics)


PROBING = dataclasses.replace(
    plain.DQN,
    memory="none",
    width=32,
    batch=64,
    environments=8,
    rollout=8,
    capacity=512,
    block=60,
    blocks=2,
    episodes=64,
    learning_rate=3e-3,
    gamma=0.8,
    epsilon_end=0.5,
    tau=0.1,
    reward_scale=1.0,
)


def check_probes(config: dqn.Config, *names: str) -> None:
    def values(net: Any, obs: Any) -> Any:
        return net(net.init(), obs.obs, obs.begin)[1]

    def at_random(net: Any) -> Any:
        return dqn.epsilon_greedy(net, jnp.ones(()))

    check_learned(dqn, config, *names, policy=at_random, values=values)


@pytest.mark.full
def test_probes_are_learned_to_their_values():
    # Truncation needs no memory: its values continue beyond what is seen.
    check_probes(PROBING, "Constant", "Observation", "Delay", "Truncation", "Choice", "Match")


@pytest.mark.full
def test_a_memory_is_learned_to_its_values():
    check_probes(dataclasses.replace(PROBING, memory="lru"), "Memory")
