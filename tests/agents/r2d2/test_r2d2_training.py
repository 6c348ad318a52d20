"""R2D2's actors and its learner; probes learned to their values, and beyond a sequence."""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import returns
from mmrl.agents import normalize, r2d2
from mmrl.agents.r2d2 import actors
from mmrl.course import plain
from mmrl.envs import make, probes
from mmrl.replay import sequences, tree
from tests.helpers import r2d2 as oracle
from tests.helpers.any_probe import check_learned
from tests.helpers.r2d2 import CONFIG, DEPTH, ENV, PARAMS, everything, game, place

pytestmark = pytest.mark.slow


def keys(*seeds: int) -> jax.Array:
    return jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32))


def assert_same(a: Any, b: Any, tolerance: float = 0.0) -> None:
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance),
        *(eqx.filter(tree, eqx.is_array) for tree in (a, b)),
    )


def apart(a: Any, b: Any) -> bool:
    same = [(x == y).all() for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)]
    return not all(same)


loss = jax.jit(r2d2.loss)


# Actors


def test_an_epsilon_for_each_actor():
    """Horgan et al. 2018, Eq. 1, with N = 8."""
    expected = [0.4, 0.16, 0.064, 0.0256, 0.01024, 0.004096, 0.0016384, 0.00065536]
    epsilons = [actors.epsilons(dataclasses.replace(CONFIG, environments=n)) for n in (8, 1)]
    np.testing.assert_allclose(epsilons[0], expected, rtol=1e-5)
    np.testing.assert_allclose(epsilons[1], [0.4], rtol=1e-6)


def test_the_actors_priorities_are_the_learners():
    """Across the seam of two rollouts, and at a truncation with the actor's last value."""
    state, steps, _, q, _ = game()
    _, td = loss(state.net, state.net, jax.jit(everything)(state.sequences), CONFIG)
    sample = jax.device_get(jax.jit(everything)(state.sequences))
    p = np.asarray(tree.weights(state.sequences.sums, jnp.asarray(sample.rows))[:, 0])
    mine, steps = np.zeros((3, 63)), jax.device_get(steps)
    for w, t in np.ndindex(3, 60):
        total, gain = 0.0, 1.0
        for k in range(t, t + CONFIG.n_step):
            total += gain * CONFIG.reward_scale * steps.reward[w, k]
            gain *= 0.0 if steps.terminated[w, k] else CONFIG.gamma
            if steps.last[w, k]:
                break
        v = q[w, k if steps.last[w, k] else k + 1].max()
        q_of_action = q[w, t, steps.action[w, t]]
        mine[w, t] = abs(oracle.h(total + gain * oracle.inverse(v)) - q_of_action)
    mine, at = mine[place(sample.rows, td.shape[1])], CONFIG.burn_in
    own, seam = sample.loss_mask[:, at:], 0
    for i in np.flatnonzero(own.any(axis=1)):
        cut_off = (sample.steps.truncated & sample.mask)[i, at:].any()
        for errors in [mine[i]] if cut_off else [mine[i], np.abs(td[i])]:
            sizes = errors[own[i]]
            priority = CONFIG.eta * sizes.max() + (1 - CONFIG.eta) * sizes.mean()
            np.testing.assert_allclose(p[i], priority**CONFIG.alpha, rtol=1e-4)
        seam += sample.rows[i] % DEPTH < 30 < sample.rows[i] % DEPTH + own[i].sum()
    assert seam > 2


def test_a_rollout_goes_on_where_the_last_stopped():
    _, steps, states, _, _ = game()
    same_episode = ~steps.last[:, :-1, None]
    np.testing.assert_array_equal(steps.begin[:, 1:], steps.last[:, :-1])
    np.testing.assert_allclose(
        jnp.where(same_episode, steps.next_obs[:, :-1], 0),
        jnp.where(same_episode, steps.obs[:, 1:], 0),
        atol=1e-6,
    )
    sample = jax.device_get(jax.jit(everything)(game().state.sequences))
    inside = sample.mask.any(axis=1) & ~sample.begin.any(axis=1)
    where = place(sample.rows - CONFIG.burn_in, 1)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x[inside], y[where][inside, 0], atol=1e-6),
        sample.state,
        jax.device_get(states),
    )


@jax.jit
def act_by(config, state, actor):
    """A rollout of a state with another actor, and the steps that this actor takes."""
    key = jax.random.key(6)
    state = dataclasses.replace(state, actor=actor)
    after, _ = r2d2.act_and_store(config, ENV, PARAMS, state, key)
    result = actors.act(config, ENV, PARAMS, actor, state.carries, key, config.rollout)
    return after.tail, result[1]


def test_actors_act_by_their_own_parameters():
    state, result = act_by(CONFIG, game().state, game().other)
    assert_same(state, jax.tree.map(lambda x: x[:, -CONFIG.n_step :], result))
    assert apart(state.extras, act_by(CONFIG, game().state, game().state.net)[0].extras)


# The learner


def test_beta_rises_in_a_line_and_stays():
    config = dataclasses.replace(CONFIG, beta_start=0.2, beta_end=0.8, beta_decay=10.0)
    values = jax.vmap(lambda i: r2d2.beta(config, i))(jnp.array([0, 5, 10, 1000]))
    np.testing.assert_allclose(values, [0.2, 0.5, 0.8, 0.8], rtol=1e-6)


learn = jax.jit(r2d2.learn)


@pytest.mark.full
def test_a_gradient_step_sets_priorities_and_makes_the_copies_that_are_due():
    config = dataclasses.replace(CONFIG, batch=16, target_period=3, actor_period=2, beta_decay=10.0)
    fresh, other = game().state, game().other
    state = dataclasses.replace(fresh, target=other, actor=other, iteration=jnp.int32(4))
    beta, nets, at = 0.6 + 0.4 * 0.4, [], CONFIG.burn_in
    draw = jax.jit(sequences.sample, static_argnums=2)
    for step, key in enumerate(jax.random.split(jax.random.key(5), 7), 1):
        batch = draw(state.sequences, key, config.batch, beta)
        value, td = loss(state.net, state.target, batch, config)
        before = np.asarray(state.sequences.sums[0][0])
        state, (our_value, fill) = learn(config, state, key)
        np.testing.assert_allclose(our_value, value, rtol=1e-5)
        np.testing.assert_allclose(fill, batch.loss_mask.sum() / (config.batch * config.length))
        expected, own = before.copy(), np.asarray(batch.loss_mask[:, at:])
        for i, row in enumerate(np.asarray(batch.rows)):
            sizes = np.abs(td[i])[own[i]]
            expected[row] = (config.eta * sizes.max() + 0.1 * sizes.mean()) ** config.alpha
        np.testing.assert_allclose(state.sequences.sums[0][0], expected, rtol=1e-4)
        assert (expected != before).sum() > 5
        nets.append(state.net)
        assert apart(state.net, nets[-2] if step > 1 else fresh.net)
        assert_same(state.target, nets[step // 3 * 3 - 1] if step >= 3 else other)
        assert_same(state.actor, nets[step // 2 * 2 - 1] if step >= 2 else other)
    assert state.gradient_steps == 7


@pytest.mark.full
def test_rewards_are_divided_in_priorities_and_targets_and_the_rate_falls():
    """As if the reward scale were so much smaller; on the rings they stay as they are."""
    raw, key = game().state, jax.random.key(5)
    ours = dataclasses.replace(raw, rewards=normalize.reward_scale(CONFIG.environments))
    play = jax.jit(partial(r2d2.act_and_store, config=CONFIG, env=ENV, params=PARAMS))
    ours, _ = play(state=ours, key=key)
    deviation = np.sqrt(normalize.variance(ours.rewards.moments))
    assert abs(deviation - 1) > 0.1
    config = dataclasses.replace(CONFIG, reward_scale=CONFIG.reward_scale / float(deviation))
    raw, _ = play(state=raw, key=key, config=config)
    assert_same(ours.sequences, raw.sequences, 1e-4)
    late = dataclasses.replace(CONFIG, anneal=1.0, horizon=1.0), jnp.int32(CONFIG.block)
    after, (value, _) = learn(CONFIG, ours, key)
    _, (expected, _) = learn(config, raw, key)
    np.testing.assert_allclose(value, expected, rtol=1e-4)
    assert apart(after.net, ours.net)
    still, _ = learn(late[0], dataclasses.replace(ours, iteration=late[1]), key)
    assert not apart(still.net, ours.net)


def test_learning_waits_for_a_whole_sequence():
    nothing = jax.tree.map(jnp.zeros_like, game().state.sequences)
    state = dataclasses.replace(game().state, sequences=nothing)
    after, (value, fill) = learn(CONFIG, state, jax.random.key(0))
    assert value == fill == 0
    assert_same((after.net, after.sequences), (state.net, nothing))


# Bad settings


TINY = dataclasses.replace(plain.R2D2,
    memory_sizes=(("state_size", 4),), width=8, length=4, overlap=2, burn_in=2, n_step=2, batch=8,
    environments=4, rollout=4, updates=2, capacity=128, block=2, blocks=3, episodes=4,
    target_period=3, actor_period=2,
)  # fmt: skip
PROBE = make("probe-Memory-v0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": "store"}, "`start` must be 'stored' or 'zero'; got 'store'"),
        ({"n_step": 0}, "`n_step` must be at least 1; got 0"),
        ({"length": 0}, "`length` must be at least 1; got 0"),
        ({"burn_in": -1}, "`burn_in` must be at least 0; got -1"),
        ({"overlap": 4}, "`overlap` must be at least 0 and less than `length` = 4, got 4"),
        ({"capacity": 130}, "`capacity` must be a positive multiple"),
        ({"capacity": 32}, "`capacity` must be at least 40, .*got 32"),
        ({"actor_period": 0}, "`actor_period` must be at least 1; got 0"),
        ({"eta": 1.5}, "`eta` must be between 0 and 1; got 1.5"),
        ({"alpha": -0.1}, "`alpha` must be between 0 and 1"),
        ({"rescale_eps": 0.0}, "`rescale_eps` must be positive"),
        ({"learning_rate": float("nan")}, "`learning_rate` must be positive"),
        ({"memory": "lstn"}, "Did you mean `lstm`"),
    ],
)
def test_a_setting_that_cannot_work_is_named(change: dict[str, Any], message: str):
    config = dataclasses.replace(TINY, **change)
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(lambda: r2d2.init(config, *PROBE, jax.random.key(0)))


def test_continuous_actions_are_refused():
    with pytest.raises(ValueError, match="discrete actions"):
        r2d2.check(TINY, *make("Pendulum-v1"))


# Learning


PROBING = dataclasses.replace(plain.R2D2,
    memory="lru", width=32, length=6, overlap=2, burn_in=2, environments=8, rollout=8, updates=4,
    capacity=1024, block=12, blocks=3, episodes=64, target_period=20, actor_period=4,
    learning_rate=3e-3, adam_eps=1e-5, gamma=0.8, epsilon_exponent=1.0, n_step=3,
)  # fmt: skip


@pytest.mark.full
def test_probes_are_learned_to_their_values():
    def values(net: Any, obs: Any) -> Any:
        return returns.unrescale(net(net.init(), obs.obs, obs.begin)[1])

    def at_random(net: Any) -> Any:
        return actors.behavior(net, jnp.ones(()))

    check_learned(r2d2, PROBING, "Observation", "Delay", policy=at_random, values=values)


REMEMBERING = dataclasses.replace(plain.R2D2,
    memory="lru", width=32, length=4, overlap=0, burn_in=0, n_step=1, batch=32, updates=4,
    capacity=16_000, block=20, blocks=1, reward_scale=5.0, learning_rate=3e-3, adam_eps=1e-5,
    target_period=20, gamma=0.9,
)  # fmt: skip


@pytest.mark.full
def test_a_stored_state_reaches_beyond_the_sequence():
    """The cue is in an episode's first sequence of 4 steps, and the question in its second."""
    env, config = probes.Memory(8), REMEMBERING
    train = jax.jit(jax.vmap(lambda key: r2d2.train(config, env, env.default_params, key)))
    state, metrics = train(keys(0, 1))
    # Each of twelve seeds had 1, and with `start` "zero" between -0.4 and 0.4: chance is 0.
    assert np.mean(metrics.returns) > 0.7
    assert metrics.finite.all() and (metrics.fill > 0.8).all()
    # A scan over gradient steps kept all that they change: copies were made after the last one.
    assert (state.gradient_steps == config.block * config.updates).all()
    assert_same(state.actor, state.net)
    assert_same(state.target, state.net)
