"""PPO: three policies that are one at first, averages against plain loops, staleness, errors."""

import dataclasses
import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.agents import normalize, ppo
from mmrl.agents.common import rate_at
from mmrl.agents.ppo import diagnostics, learner
from mmrl.course import plain
from mmrl.envs import make
from mmrl.nets import Categorical
from mmrl.rollout import Transition

ENV, PARAMS = make("probe-Memory-v0")
TINY = dataclasses.replace(
    plain.PPO,
    memory_sizes=(("state_size", 4),),
    width=8,
    environments=4,
    rollout=7,
    minibatches=2,
    epochs=2,
    block=2,
    blocks=2,
    episodes=4,
)
BARE = dataclasses.replace(TINY, memory="none", memory_sizes=())


def change(config: ppo.Config, **values: Any) -> ppo.Config:
    return dataclasses.replace(config, **values)


def numbers(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))]


def distance(a: Any, b: Any) -> float:
    return max(float(np.abs(x - y).max()) for x, y in zip(numbers(a), numbers(b), strict=True))


@jax.jit
def begin(config: ppo.Config) -> ppo.State:
    return ppo.init(config, ENV, PARAMS, jax.random.key(0))


@jax.jit
def iterate(config: ppo.Config, state: ppo.State) -> tuple[ppo.State, Any]:
    return ppo.iterate(config, ENV, PARAMS, state)


@jax.jit
def act(config: ppo.Config, state: ppo.State, key: jax.Array) -> tuple[ppo.State, ppo.Rollout]:
    return ppo.act(config, ENV, PARAMS, state, key)


@jax.jit
def prepare(config: ppo.Config, net: Any, rollout: ppo.Rollout) -> learner.Batch:
    return learner.prepare(config, net, 3 * (jnp.zeros(()),), rollout)[1]


update_average, estimate = jax.jit(learner.update_average), jax.jit(learner.estimate)


def stray(net: Any) -> Any:
    """Other parameters of the policy."""
    rng = np.random.default_rng(2)  # with NumPy: JAX would compile one program for each shape

    def move(x):
        return jnp.asarray(np.asarray(x) + 0.5 * rng.normal(size=x.shape), x.dtype)

    arrays, rest = eqx.partition(net.policy, eqx.is_inexact_array)
    return eqx.tree_at(lambda n: n.policy, net, eqx.combine(jax.tree.map(move, arrays), rest))


# Three policies


# One of each kind: every memory's step is its tape, see tests/memory/test_laws.py.
@pytest.mark.full_except("none")
@pytest.mark.slow
@pytest.mark.parametrize("memory", ["none", "lru", "gru"])
def test_all_ratios_are_one_before_the_first_step(memory: str):
    """What the actor computed step by step is what learning computes on the tape."""
    config = change(TINY, memory=memory, memory_sizes=())

    @jax.jit
    def ratios(key):
        state = ppo.init(config, ENV, PARAMS, key)
        step = partial(ppo.act, config, ENV, PARAMS)  # twice, and once within an episode
        _, rollouts = jax.lax.scan(step, state, jax.random.split(key))
        rollout = jax.tree.map(lambda x: x[1], rollouts)
        _, batch, _ = learner.prepare(config, state.net, state.advantages, rollout)
        _, outputs = jax.vmap(state.net)(batch.state, batch.obs, batch.begin)
        values = rollout.steps.extras.value.reshape(outputs.value.shape)
        log_ratio = outputs.policy.log_prob(batch.action) - batch.log_prob
        return log_ratio, outputs.value - values, rollout.steps.begin

    log_ratio, errors, starts = ratios(jax.random.key(1))
    np.testing.assert_allclose(log_ratio, 0, atol=2e-5)
    np.testing.assert_allclose(errors, 0, atol=1e-4)
    assert not starts[:, 0].all() and starts.any()


@pytest.fixture(scope="module")
def first_rollout() -> tuple[ppo.State, ppo.Rollout]:
    return act(BARE, begin(BARE), jax.random.key(2))


@pytest.mark.full
@pytest.mark.slow
def test_who_limits_and_who_is_corrected_for(first_rollout):
    """Stored or recomputed, for each of the two; without staleness it is all the same."""
    state, rollout = first_rollout
    now = stray(state.net)
    batch = prepare(BARE, now, rollout)
    for proximal, same in (("decoupled", (True, False)), ("recent", (False, False))):
        config = change(BARE, proximal=proximal)
        fresh, late = (prepare(config, net, rollout) for net in (state.net, now))
        both = (late.log_prob, batch.log_prob), (late.proximal.logits, batch.proximal.logits)
        assert tuple(bool(np.allclose(x, y, atol=1e-5)) for x, y in both) == same
        np.testing.assert_allclose(fresh.log_prob, batch.log_prob, atol=1e-5)
        np.testing.assert_allclose(fresh.proximal.logits, batch.proximal.logits, atol=1e-5)


@pytest.fixture(scope="module")
def stray_batch(first_rollout) -> tuple[Any, learner.Batch]:
    """A policy that has left the one that acted, and what that one did."""
    state, rollout = first_rollout
    net = stray(state.net)
    return net, prepare(BARE, net, rollout)


@eqx.filter_jit
def gradient(config: ppo.Config, net: Any, average: Any, batch: learner.Batch):
    terms = ("policy",)
    (_, measures), slope = eqx.filter_value_and_grad(learner.loss, has_aux=True)(
        net, average, batch, config, terms
    )
    return slope, measures


@pytest.mark.slow
def test_an_average_of_one_step_clips_nothing(stray_batch):
    """β_prox = 0 is the importance-sampled policy gradient, and so is ε = ∞; PPO is another."""
    net, batch = stray_batch
    config = change(BARE, proximal="ewma", prox_center=0.0, importance_max=0.0)
    average = update_average(learner.Average(jnp.ones(()), net), net, config.prox_center)
    state_after = update_average(
        learner.Average(jnp.ones(()), jax.tree.map(np.zeros_like, net)), net, config.prox_center
    )
    assert (
        distance(average.net, net) == 0 == distance(state_after.net, net)
        and state_after.weight == 1
    )

    @eqx.filter_jit
    @eqx.filter_grad
    def vanilla(net):
        policy = jax.vmap(net)(batch.state, batch.obs, batch.begin)[1].policy
        ratio = jnp.exp(policy.log_prob(batch.action) - batch.log_prob)
        return -jnp.mean(ratio * batch.advantages) - 0.01 * jnp.mean(policy.entropy())

    expected = vanilla(net)
    scale = max(np.abs(x).max() for x in numbers(expected))
    ours, measures = gradient(config, net, average, batch)
    assert distance(ours, expected) < 1e-5 * scale and measures.clip_fraction == 0
    free, _ = gradient(change(config, clip=math.inf), net, learner.restart(stray(net)), batch)
    assert distance(free, expected) < 1e-5 * scale
    clipped_gradient, measures = gradient(change(config, proximal="behavior"), net, None, batch)
    assert distance(clipped_gradient, expected) > 0.05 * scale and measures.clip_fraction > 0.2


@pytest.mark.slow
def test_objectives_are_what_the_losses_say(stray_batch):
    net, batch = stray_batch
    outputs = jax.jit(jax.vmap(net))(batch.state, batch.obs, batch.begin)[1]
    policy, log_prob = jax.device_get((outputs.policy, outputs.policy.log_prob(batch.action)))
    for objective in ("clip", "kl", "kl_sampled"):
        config = change(BARE, objective=objective, kl_weight=0.5, entropy_weight=0.0)
        slope, measures = gradient(config, net, None, batch)
        ratio = np.exp(log_prob - batch.log_prob)
        p = np.asarray(jax.nn.softmax(batch.proximal.logits))
        log = np.log(p) - np.asarray(jax.nn.log_softmax(policy.logits))
        bounds = np.clip(ratio, 0.8, 1.2) * batch.advantages
        expected = {
            "clip": -np.minimum(ratio * batch.advantages, bounds),
            "kl": -ratio * batch.advantages + 0.5 * (p * log).sum(axis=-1),
            "kl_sampled": -ratio * batch.advantages + 0.25 * np.log(ratio) ** 2,
        }[objective]
        np.testing.assert_allclose(measures.policy_loss, expected.mean(), rtol=1e-4)
        assert all(np.isfinite(x).all() for x in numbers(slope))
    np.testing.assert_allclose(measures.kl_behavior, (ratio - 1 - np.log(ratio)).mean(), rtol=1e-4)


@pytest.mark.slow
def test_the_noise_scale_is_the_one_of_mccandlish(stray_batch):
    net, batch = stray_batch
    config = change(BARE, minibatches=4)
    key, state = jax.random.key(7), learner.new(config, net)
    ours = eqx.filter_jit(diagnostics.noise_scale)(config, state, batch, key, ("policy",))
    slopes = []
    for rows in learner.shuffle(key, 28, 4, 1):
        slope, _ = gradient(config, net, None, learner.take(batch, rows))
        slopes.append(np.concatenate([x.ravel() for x in numbers(slope)]).astype(float))
    small, large = (
        np.mean([x @ x for x in slopes]),
        np.mean(slopes, axis=0) @ np.mean(slopes, axis=0),
    )
    np.testing.assert_allclose(ours.signal, (28 * large - 7 * small) / 21, rtol=1e-3)
    np.testing.assert_allclose(ours.noise, (small - large) / (1 / 7 - 1 / 28), rtol=1e-3)
    # The same by the covariance of the four: S is seven times their variance.
    variance = np.var(slopes, axis=0, ddof=1).sum()
    np.testing.assert_allclose(ours.noise, 7 * variance, rtol=1e-3)
    np.testing.assert_allclose(ours.scale, ours.noise / ours.signal, rtol=1e-6)


# Averages


@pytest.mark.usefixtures("x64")
def test_the_average_is_the_papers_recurrence():
    """Appendix A, typed from the page; and its explicit sum."""
    path = np.cumsum(np.random.default_rng(0).normal(size=(40, 3)), axis=0)
    center = 8.0
    beta = 1 - 1 / (1 + center)
    theta_prox, w = path[0], 1.0
    ours = learner.Average(jnp.ones(()), {"theta": jnp.asarray(path[0])})
    for theta in path[1:]:
        w_new = 1 + beta * w
        theta_prox, w = theta / w_new + beta * w / w_new * theta_prox, w_new
        ours = learner.update_average(ours, {"theta": jnp.asarray(theta)}, center)
        np.testing.assert_allclose(ours.net["theta"], theta_prox, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(ours.weight, w, rtol=1e-14)
    weights = beta ** np.arange(40)[::-1]
    np.testing.assert_allclose(theta_prox, weights @ path / weights.sum(), rtol=1e-12)
    ages = weights @ np.arange(40)[::-1] / weights.sum()
    assert abs(ages - center) < 0.7  # on the way to its center of mass


def test_the_average_is_stable_in_single_precision():
    """c = 256, 20 000 steps: less rounding than the recurrence as printed, none on a constant."""
    center, steps = 8.0 * 256, 20_000
    noise = np.random.default_rng(1).normal(size=steps).astype(np.float32)
    path = np.cumsum(0.01 * noise, dtype=np.float32)

    @jax.jit
    def ours(path):
        def step(average, theta):
            return learner.update_average(average, theta[None], center), None

        first = learner.Average(jnp.ones(()), path[:1])
        return jax.lax.scan(step, first, path[1:])[0].net[0]

    beta = 1 - 1 / (1 + center)
    exact, w, literal, w32 = float(path[0]), 1.0, path[0], np.float32(1)
    b32 = np.float32(beta)
    for theta in path[1:]:
        exact, w = exact + (float(theta) - exact) / (1 + beta * w), 1 + beta * w
        new = np.float32(1) + b32 * w32
        literal, w32 = theta / new + b32 * (w32 / new) * literal, new
    assert abs(ours(path) - exact) < 2e-5 * max(1, abs(exact))
    assert abs(ours(path) - exact) < abs(literal - exact)
    assert ours(np.ones_like(path)) == 1


@pytest.mark.slow
def test_every_step_on_the_policy_moves_the_average():
    config = change(BARE, proximal="ewma", prox_center=3.0)
    state = begin(BARE)
    fresh = dataclasses.replace(state.learner, average=learner.restart(state.net))
    after, _ = iterate(config, dataclasses.replace(state, learner=fresh))
    beta, steps = 0.75, config.epochs * config.minibatches
    np.testing.assert_allclose(
        after.learner.average.weight, sum(beta**k for k in range(steps + 1)), rtol=1e-5
    )
    assert 0 < distance(after.learner.average.net, after.net) < distance(state.net, after.net)


@pytest.mark.slow
def test_rewards_are_divided_by_what_all_rollouts_have_paid():
    ours = usual = begin(BARE)
    scale = fresh = normalize.reward_scale(BARE.environments)
    for seed in (1, 2):
        usual, raw = act(BARE, usual, jax.random.key(seed))
        ours, result = act(change(BARE, normalize_rewards=True), ours, jax.random.key(seed))
        anew = normalize.watch_rewards(fresh, raw.steps, BARE.reward_gamma)
        scale = normalize.watch_rewards(scale, raw.steps, BARE.reward_gamma)
        anew, expected = (normalize.scale_rewards(s, raw.steps).reward for s in (anew, scale))
        np.testing.assert_allclose(result.steps.reward, expected, rtol=1e-5)
    assert np.abs(anew - expected).max() > 1e-3


def test_rewards_are_divided_as_by_a_plain_loop():
    generator = np.random.default_rng(2)
    scale = normalize.reward_scale(3)
    count, mean, square = 1e-4, 0.0, 1e-4
    past = np.zeros(3)

    @jax.jit
    def divide(scale, rewards, begin):
        steps = Transition(None, None, rewards, None, begin, begin, begin)
        scale = normalize.watch_rewards(scale, steps, 0.9)
        return scale, normalize.scale_rewards(scale, steps, 0.7).reward

    for _ in range(4):
        rewards = generator.normal(2.0, 5.0, size=(3, 11)).astype(np.float32)
        starts = generator.random((3, 11)) < 0.2
        sums = np.zeros((3, 11))
        for t in range(11):
            past = rewards[:, t] + np.where(starts[:, t], 0, 0.9 * past)
            sums[:, t] = past
        for x in sums.ravel():  # Welford's, one number at a time
            count += 1
            step = x - mean
            mean += step / count
            square += step * (x - mean)
        scale, quotients = divide(scale, rewards, starts)
        expected = np.clip(rewards / np.sqrt(square / count + 1e-8), -0.7, 0.7)
        np.testing.assert_allclose(quotients, expected, rtol=2e-5, atol=1e-6)
    assert (np.abs(expected) == 0.7).any() and (np.abs(expected) < 0.7).any()


@pytest.mark.parametrize("decay", [0.0, 0.6])
def test_advantages_are_standardized_by_weighted_moments(decay: float):
    generator = np.random.default_rng(3)
    moments = (jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))
    history, weights = np.zeros(0), np.zeros(0)
    for i in range(5):
        x = generator.normal(i, 1 + i, size=(4, 6)).astype(np.float32)
        history = np.concatenate([history, x.ravel()])
        weights = np.concatenate([decay * weights, np.ones(24)])
        mean = np.average(history, weights=weights)
        std = np.sqrt(np.average((history - mean) ** 2, weights=weights))
        moments, ours = normalize.standardize(moments, jnp.asarray(x), decay)
        np.testing.assert_allclose(ours, (x - mean) / std, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_advantages_are_normalized_unless_they_are_to_stay(first_rollout):
    state, rollout = first_rollout
    raw, ours = (
        prepare(change(BARE, normalize_advantages=how), state.net, rollout).advantages
        for how in (False, True)
    )
    np.testing.assert_allclose(ours, (raw - raw.mean()) / raw.std(), rtol=1e-4, atol=1e-4)
    assert abs(raw.std() - 1) > 0.1


def test_every_epoch_sees_every_row_once_and_in_any_minibatch():
    rows, minibatches, epochs = 24, 3, 400
    orders = np.asarray(learner.shuffle(jax.random.key(5), rows, minibatches, epochs))
    assert orders.shape == (minibatches * epochs, 8)
    by_epoch = orders.reshape(epochs, rows)
    assert (np.sort(by_epoch, axis=1) == np.arange(rows)).all()
    assert len(np.unique(by_epoch, axis=0)) == epochs
    place = np.argsort(by_epoch, axis=1) // 8  # the minibatch of every row
    counts = np.stack([(place == i).sum(axis=0) for i in range(minibatches)])
    assert (np.abs(counts - epochs / 3) < 5 * np.sqrt(epochs * 2 / 9)).all()
    together = (place[:, 0] == place[:, 1]).mean()  # neighbors are as often as others: 7/23
    assert abs(together - 7 / 23) < 5 * np.sqrt(7 / 23 * 16 / 23 / epochs)
    np.testing.assert_array_equal(learner.shuffle(jax.random.key(6), 1, 1, 2), [[0], [0]])


# Advantages


def test_advantages_use_the_actors_values_and_todays_bootstrap():
    """Generalized advantages by their definition, one environment, episodes of all three ends."""
    config = change(BARE, gamma=0.9, lam=0.8)
    net = begin(BARE).net
    time = 12
    generator = np.random.default_rng(4)
    terminated, truncated = (np.isin(np.arange(time), ends) for ends in ([3], [7]))
    last = terminated | truncated
    obs, next_obs = generator.normal(size=(2, time, 3)).astype(np.float32)
    rewards, values = generator.normal(size=(2, time)).astype(np.float32)
    steps = Transition(
        obs=jnp.asarray(obs),
        action=jnp.zeros(time, jnp.int32),
        reward=jnp.asarray(rewards),
        next_obs=jnp.asarray(next_obs),
        begin=jnp.asarray(np.append(False, last[:-1])),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(truncated),
        extras=learner.ActorOutputs(None, jnp.asarray(values)),
    )
    ours, targets = estimate(config, net, learner.Rollout(net.init(), steps))
    future = np.asarray(net(net.init(), steps.next_obs, steps.begin)[1].value)
    expected, ahead = np.zeros(time), 0.0
    for t in reversed(range(time)):
        end = last[t] or t == time - 1
        following = 0.0 if terminated[t] else future[t] if end else values[t + 1]
        delta = rewards[t] + 0.9 * following - values[t]
        ahead = delta + (0.0 if end else 0.9 * 0.8 * ahead)
        expected[t] = ahead
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(targets, expected + values, rtol=1e-5, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("config", [TINY, BARE], ids=["lru", "none"])
def test_the_estimators_agree_on_what_todays_policy_did(config: ppo.Config):
    state = begin(config)
    _, rollout = act(config, state, jax.random.key(7))
    estimates = [
        jax.jit(jax.vmap(partial(learner.estimate, change(config, estimator=name), state.net)))
        for name in ("gae", "vtrace")
    ]
    gae, vtrace = (estimate(rollout) for estimate in estimates)
    assert np.abs(gae[0]).max() > 0.01
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), vtrace, gae)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["gae", "vtrace"])
def test_what_the_actors_values_explain(estimator: str):
    """1 - Var[y - v] / Var[y]: of the advantages, only GAE's are what is left of the targets."""
    config, state = change(BARE, estimator=estimator), begin(BARE)
    _, rollout = act(BARE, state, jax.random.key(7))
    net = jax.tree.map(lambda x: 1.5 * x + 0.1 if eqx.is_array(x) else x, state.net)

    @jax.jit
    def both(config, net, rollout):
        raw, _ = jax.vmap(partial(learner.estimate, config, net))(rollout)
        return raw, *learner.prepare(config, net, state.advantages, rollout)[1:]

    raw, batch, (_, fraction) = jax.device_get(both(config, net, rollout))
    targets = np.asarray(batch.targets, float).reshape(4, 7)
    residual = targets - np.asarray(rollout.steps.extras.value)
    np.testing.assert_allclose(fraction, 1 - residual.var() / targets.var(), rtol=1e-4, atol=1e-5)
    assert (raw.var() == pytest.approx(residual.var(), rel=1e-3)) == (estimator == "gae")


@pytest.mark.slow
def test_vtrace_corrects_what_another_policy_did_later():
    """By its definition: every later error is weighed by the clipped ratios on the way to it."""
    config = change(BARE, gamma=0.9, lam=0.8, estimator="vtrace")
    net, time = begin(BARE).net, 9
    generator = np.random.default_rng(8)
    terminated, truncated = (np.isin(np.arange(time), ends) for ends in ([2], [5]))
    last = terminated | truncated
    obs, next_obs = generator.normal(size=(2, time, 3)).astype(np.float32)
    rewards = generator.normal(size=time).astype(np.float32)
    action = jnp.asarray(generator.integers(2, size=time), jnp.int32)
    behavior = Categorical(jnp.asarray(generator.normal(0, 2, size=(time, 2)), jnp.float32))
    begins = jnp.asarray(np.append(False, last[:-1]))
    steps = Transition(
        *map(jnp.asarray, (obs, action, rewards, next_obs, begins, terminated, truncated)),
        extras=learner.ActorOutputs(behavior, jnp.zeros(time)),
    )
    ours, targets = estimate(config, net, learner.Rollout(net.init(), steps))

    now = net(net.init(), steps.obs, begins)[1]
    values = np.asarray(now.value)
    future = np.asarray(net(net.init(), steps.next_obs, begins)[1].value)
    ratio = np.exp(np.asarray(now.policy.log_prob(action) - behavior.log_prob(action)))
    assert (ratio > 1.1).any() and (ratio < 0.9).any()
    end = last | (np.arange(time) == time - 1)
    following = np.where(terminated, 0, np.where(end, future, np.append(values[1:], 0)))
    error = rewards + 0.9 * following - values
    for t in range(time):
        expected, vtrace_error, weight = error[t], min(1, ratio[t]) * error[t], 1.0
        for k in range(t + 1, time):
            if end[k - 1]:
                break
            weight *= 0.9 * 0.8
            weight_of = (
                np.minimum(1, ratio[t + 1 : k]).prod() * min(1, ratio[k]) * weight * error[k]
            )
            expected, vtrace_error = (
                expected + weight_of,
                vtrace_error + min(1, ratio[t]) * weight_of,
            )
        np.testing.assert_allclose(ours[t], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(targets[t], values[t] + vtrace_error, rtol=1e-4, atol=1e-5)


# Staleness


@pytest.mark.full
def test_learning_waits_for_the_ring_and_then_lags():
    config = change(BARE, staleness=2)
    states = [begin(config)]
    for _ in range(4):
        state, (*_, finite) = iterate(config, states[-1])
        assert finite
        states.append(state)
    distances = [distance(s.learner, states[0].learner) for s in states]
    assert distances[:3] == [0, 0, 0] and distances[3] > 0 and distances[4] > distances[3] / 2
    # What is learned from third is what was acted first, by the parameters of then.
    first = states[0]
    ring = jax.tree.map(lambda x: x[0], states[3].rollouts)
    act_key, _, _ = jax.random.split(first.key, 3)
    _, rollout = act(config, first, act_key)
    assert distance(ring, rollout) < 1e-6
    assert states[4].iteration == 4


@pytest.mark.slow
def test_a_ring_gives_back_what_it_was_given():
    config = change(BARE, staleness=2)
    state = begin(config)
    inputs = []
    for i in range(7):
        rollout = jax.tree.map(lambda x, i=i: jnp.full_like(x[0], i), state.rollouts)
        state = eqx.tree_at(lambda s: s.iteration, state, jnp.int32(i))
        state, old = ppo.delay(config, state, rollout)
        inputs.append(float(old.steps.reward[0, 0]))
    assert inputs[2:] == [0, 1, 2, 3, 4]


# Runs


@pytest.mark.slow
def test_scalars_do_not_recompile_and_the_rate_falls():
    state = begin(BARE)
    iterate(BARE, state)
    compiled = iterate._cache_size()
    other, _ = iterate(change(BARE, learning_rate=1e-2, clip=0.3, gamma=0.5), state)
    assert distance(other.net, state.net) > 1e-3
    still, _ = iterate(change(BARE, learning_rate=0.0, anneal=1.0), state)
    assert distance(still.net, state.net) == 0 and iterate._cache_size() == compiled
    config = change(BARE, learning_rate=2.0, anneal=0.75)
    rates = [float(rate_at(config, jnp.int32(i))) for i in (0, 2, 4, 8)]
    np.testing.assert_allclose(rates, [2.0, 1.25, 0.5, 0.5], rtol=1e-6)


def test_plain_descent_is_the_rate_times_the_clipped_gradient():
    """And a run of it can be traced, with all else that is not usual."""
    config = change(BARE, optimizer="sgd", max_grad_norm=0.5)
    rule, theta = learner.optimizer(config, jnp.float32(0.1)), jnp.zeros(2)
    step, _ = rule.update(jnp.array([3.0, -4.0]), rule.init(theta), theta)
    np.testing.assert_allclose(step, [-0.03, 0.04], rtol=1e-6)
    names = dict(objective="kl", proximal="ewma", normalize_rewards=True, shared=True, staleness=1)
    train = partial(ppo.train, change(config, **names), ENV, PARAMS)
    _, metrics = jax.eval_shape(train, jax.random.key(3))
    assert metrics.returns.shape == (config.blocks, config.episodes)


@pytest.mark.full
def test_continuous_actions():
    env, params = make("Pendulum-v1")
    config = change(BARE, objective="kl")
    train = jax.jit(lambda k: ppo.train(config, env, params, k))
    state, metrics = train(jax.random.key(4))
    assert metrics.finite.all() and state.net.log_std.shape == (1,)
    assert np.abs(state.net.log_std).max() > 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"objective": "trpo"}, "`objective`"),
        ({"proximal": "old"}, "`proximal`"),
        ({"optimizer": "rmsprop"}, "`optimizer`"),
        ({"minibatches": 3}, r"`minibatches` must divide the number of rows in an iteration \(4\)"),
        (
            {"memory": "none", "memory_sizes": (), "minibatches": 3},
            r"the number of rows in an iteration \(28\); got 3",
        ),
        ({"memory_sizes": (("width", 16),)}, "`memory_sizes` must name .* got width, which is"),
        ({"memory": "none"}, "`sizes` of 'none' must be .*; got `state_size`"),
        ({"staleness": -1}, "`staleness` must be at least 0"),
        ({"clip": -0.1}, "`clip` must be positive"),
        ({"anneal": 1.5}, "`anneal` must be between 0 and 1"),
        ({"learning_rate": 0.0}, "`learning_rate` must be positive"),
        ({"epochs": 0}, "`epochs` must be at least 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(values: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(
            lambda k: ppo.init(change(TINY, **values), ENV, PARAMS, k), jax.random.key(0)
        )


def test_numbers_that_switch_something_off_are_allowed():
    off = dict(max_grad_norm=math.inf, importance_max=0.0, prox_center=0.0, clip=math.inf)
    ppo.check(change(TINY, **off, kl_weight=0.0, entropy_weight=0.0), ENV, PARAMS)
