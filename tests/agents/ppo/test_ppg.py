"""PPG: what each phase may change and from what it learns."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mmrl.agents import ppo
from mmrl.agents.ppo import ppg
from mmrl.course import plain
from mmrl.envs import make

ENV, PARAMS = make("probe-Memory-v0")
TINY = dataclasses.replace(
    plain.PPG,
    memory="none",
    width=8,
    proximal="ewma",
    environments=4,
    rollout=6,
    minibatches=2,
    policy_iterations=3,
    auxiliary_epochs=2,
    auxiliary_minibatches=4,
    block=6,
    blocks=1,
    episodes=4,
)


def change(config: Any, **values: Any) -> Any:
    return dataclasses.replace(config, **values)


def distance(a: Any, b: Any) -> float:
    leaves = [jax.tree.leaves(eqx.filter(x, eqx.is_inexact_array)) for x in (a, b)]
    return max(float(np.abs(x - y).max()) for x, y in zip(*leaves, strict=True))


@jax.jit
def begin(config: ppg.Config) -> ppg.State:
    return ppg.init(config, ENV, PARAMS, jax.random.key(0))


@jax.jit
def iterate(config: ppg.Config, state: ppg.State) -> Any:
    return ppg.iterate(config, ENV, PARAMS, state)


@jax.jit
def phase(config: ppg.Config, state: ppg.State) -> Any:
    return ppg.phase(config, ENV, PARAMS, state)


# The policy phase


@pytest.mark.full
def test_a_policy_phase_is_ppo():
    """With as many epochs for both, an iteration is PPO's."""
    state = begin(TINY)
    fields = {f.name: getattr(TINY, f.name) for f in dataclasses.fields(ppo.Config)}
    ours, (outcome, _) = iterate(TINY, state)
    theirs, other = jax.jit(lambda c, s: ppo.iterate(c, ENV, PARAMS, s))(
        dataclasses.replace(plain.PPO, **fields), state.policy
    )
    assert distance(ours.policy, theirs) < 1e-6 < distance(ours.net, state.net)
    np.testing.assert_allclose(outcome[0], other[0], rtol=1e-5)


@pytest.mark.full
@pytest.mark.slow
def test_separate_epochs_train_the_value_first():
    config, state = change(TINY, value_epochs=3, entropy_weight=0.0), begin(TINY)
    state = dataclasses.replace(state, value=state.auxiliary)
    after, _ = iterate(config, state)
    counts = [
        int(optax.tree.get(s, "count")) for s in (after.value, after.policy.learner.optimizer)
    ]
    assert counts == [6, 2] and int(optax.tree.get(after.auxiliary, "count")) == 0
    # Each optimizer moves its own network: the other has no gradient there.
    for still, moving in (("critic", "policy"), ("policy", "critic")):
        optimizer = after.value if still == "policy" else after.policy.learner.optimizer
        momentum = optax.tree.get(optimizer, "mu")
        assert (
            distance(
                getattr(momentum, still), jax.tree.map(jnp.zeros_like, getattr(momentum, still))
            )
            == 0
        )
        assert distance(getattr(after.net, moving), getattr(state.net, moving)) > 1e-5
    # Only the two gradient steps on the policy count for its average.
    beta = 1 - 1 / (1 + config.prox_center)
    weight = after.policy.learner.average.weight
    np.testing.assert_allclose(weight, 1 + beta + beta**2, rtol=1e-6)


@pytest.mark.full
def test_the_average_starts_anew_with_every_policy_phase():
    config = change(TINY, prox_center=1e6)  # so that it remembers all that it has seen
    state, _ = phase(config, begin(config))
    steps = config.policy_iterations * config.minibatches
    np.testing.assert_allclose(state.policy.learner.average.weight, 1 + steps, rtol=1e-4)
    after, _ = phase(config, state)
    np.testing.assert_allclose(after.policy.learner.average.weight, 1 + steps, rtol=1e-4)
    # It is now nearer to today's parameters than to those of the start.
    average = after.policy.learner.average.net
    assert distance(average, after.net) < distance(average, begin(config).net)


# The auxiliary phase


@pytest.fixture(scope="module")
def data() -> ppg.AuxiliaryBatch:
    keys = jax.random.split(jax.random.key(1), 2)
    return ppg.AuxiliaryBatch(
        state=((), ()),
        obs=jax.random.normal(keys[0], (32, 1, 3)),
        begin=jnp.ones((32, 1), bool),
        targets=jax.random.normal(keys[1], (32, 1)),
    )


@jax.jit
def auxiliary(config: ppg.Config, state: ppg.State, data: ppg.AuxiliaryBatch) -> Any:
    return ppg.auxiliary_phase(config, state, data, jax.random.key(2))


@pytest.mark.slow
def test_the_auxiliary_loss_is_the_formula(data: ppg.AuxiliaryBatch):
    state, config = begin(TINY), change(TINY, clone_weight=0.7)
    net = jax.tree.map(lambda x: 1.5 * x + 0.1, state.net)
    old, new = (jax.vmap(n)(data.state, data.obs, data.begin)[1] for n in (state.net, net))
    value, _ = jax.jit(ppg.auxiliary_loss)(net, data, old.policy, config)
    p, q = (np.asarray(jax.nn.softmax(o.policy.logits)) for o in (old, new))
    expected = (
        0.5 * np.mean((new.aux_value - data.targets) ** 2)
        + 0.5 * np.mean((new.value - data.targets) ** 2)
        + 0.7 * np.mean(np.sum(p * np.log(p / q), axis=-1))
    )
    np.testing.assert_allclose(value, expected, rtol=1e-5)


@pytest.mark.slow
def test_cloning_holds_the_policy_while_the_values_learn(data: ppg.AuxiliaryBatch):
    config = change(TINY, auxiliary_epochs=20, auxiliary_rate=1e-2)
    # A policy that has opinions: a fresh one is uniform, whatever happens below its head.
    state = eqx.tree_at(
        lambda s: s.net.policy.head.layers[-1].linear.weight,
        begin(config),
        replace_fn=lambda w: w * jnp.array([[200.0], [200.0], [1.0]]),
    )

    def drift(weight: float) -> tuple[float, float, float]:
        after, (by_aux, by_value, _) = auxiliary(change(config, clone_weight=weight), state, data)
        before, now = (
            jax.vmap(n)(data.state, data.obs, data.begin)[1].policy for n in (state.net, after.net)
        )
        assert int(optax.tree.get(after.auxiliary, "count")) == 80
        assert distance(after.policy.learner.optimizer, state.policy.learner.optimizer) == 0
        falls = (by_aux[-4:].mean() / by_aux[:4].mean(), by_value[-4:].mean() / by_value[:4].mean())
        return float(jnp.mean(before.kl(now))), *map(float, falls)

    free, *fits = drift(0.0)
    anchor, *also_learned = drift(100.0)
    assert anchor < 0.1 * free
    assert max(fits) < 0.9 and also_learned[1] < 0.9


@pytest.mark.slow
def test_the_auxiliary_phase_has_a_rate_of_its_own(data: ppg.AuxiliaryBatch):
    state = begin(TINY)
    for rate, still in ((0.0, True), (1e-2, False)):
        after = auxiliary(change(TINY, auxiliary_rate=rate), state, data)[0]
        assert (distance(after.net, state.net) == 0) == still


@pytest.mark.full
@pytest.mark.slow
def test_a_policy_phase_is_kept_whole_for_the_auxiliary_one():
    """The rows are every step of every iteration, with the targets of then."""
    config = change(TINY, auxiliary_rate=1e-2)
    state = begin(config)
    _, (_, rows) = jax.jit(
        lambda s: jax.lax.scan(lambda s, _: ppg.iterate(TINY, ENV, PARAMS, s), s, None, 3)
    )(state)
    assert rows.targets.shape == (3, 24, 1)
    _, (outcome, (by_aux, _, cloning)) = phase(config, state)
    assert outcome[0].shape == (3, 2) and by_aux.shape == (8,)
    # The first gradient step finds the policy where it was.
    np.testing.assert_allclose(cloning[0], 0, atol=1e-7)
    assert cloning[-1] > 0


# Runs


@pytest.mark.full
def test_a_run_is_finite_and_reports():
    """The noise, too, which is not a number in all but the last iteration of the last phase."""
    config = change(TINY, value_epochs=2, objective="kl", noise_scale=True)
    run = jax.jit(lambda k: ppg.train(config, ENV, PARAMS, k))
    state, metrics = run(jax.random.key(3))
    assert metrics.finite.all() and metrics.returns.shape == (1, 4)
    assert state.policy.iteration == config.block
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(metrics.diagnostics))
    assert metrics.diagnostics.policy.noise.noise.shape == (1,)
    assert metrics.diagnostics.policy.steps.entropy.shape == (1,)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"shared": True}, "`shared` must be False"),
        ({"staleness": 1}, "`staleness` must be 0"),
        ({"block": 4}, "`block` must be a multiple of `policy_iterations`"),
        ({"auxiliary_minibatches": 5}, r"must divide the number of rows in a phase \(72\)"),
        ({"value_epochs": 0}, "`value_epochs` must be at least 1"),
        ({"clone_weight": -1.0}, "`clone_weight` must be at least 0"),
    ],
)
def test_settings_that_cannot_work_are_refused(values: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(
            lambda k: ppg.init(change(TINY, **values), ENV, PARAMS, k), jax.random.key(0)
        )
