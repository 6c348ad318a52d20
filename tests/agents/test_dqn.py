"""DQN: its loss against a plain oracle, tape against segments, exploration, bad settings."""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from mmrl.agents import dqn
from mmrl.agents.checks import fit_storage
from mmrl.course import plain
from mmrl.envs import make
from mmrl.nets import Net
from mmrl.replay import segments, tape
from mmrl.rollout import Carry, Transition

OBS, ACTIONS = 3, 4
CONFIG = dataclasses.replace(
    plain.DQN, gamma=0.9, lam=0.7, reward_scale=2.0, learning_rate=1e-2, tau=0.1
)


def net(seed: int) -> Net:
    kind = {"width": 8, "dueling": True, "state_size": 4}
    return Net.make("lru", OBS, ACTIONS, **kind, key=jax.random.key(seed))


ONLINE, TARGET = eqx.filter_jit(net)(0), eqx.filter_jit(net)(1)


def steps(lengths: list[int], seed: int = 0) -> Transition:
    """Whole episodes one after the other, of noise; every second one ends by a time limit."""
    rng, time = np.random.default_rng(seed), sum(lengths)  # JAX would compile for each length
    last = np.isin(1 + np.arange(time), np.cumsum(lengths))
    limit = np.cumsum(last) % 2 == 0
    rollout = Transition(
        obs=np.float32(rng.normal(size=(time, OBS))),
        action=np.int32(rng.integers(ACTIONS, size=time)),
        reward=np.float32(rng.normal(size=time)),
        next_obs=np.float32(rng.normal(size=(time, OBS))),
        begin=np.append(True, last[:-1]),
        terminated=last & ~limit,
        truncated=last & limit,
    )
    return jax.tree.map(jnp.asarray, rollout)


def batch_of(rollout: Transition, mask: Any = None) -> tape.Sample:
    size = rollout.reward.shape[0]
    mask = jnp.ones(size, bool) if mask is None else mask
    nothing = jnp.zeros(size, jnp.int32)
    return tape.Sample(rollout, rollout.begin, mask, nothing, nothing)


@eqx.filter_jit
@eqx.filter_value_and_grad
def loss(online: Net, target: Net, batch: tape.Sample, config: dqn.Config):
    return dqn.loss(online, target, batch, config)


@eqx.filter_jit
@eqx.filter_value_and_grad
def oracle(online: Net, target: Net, batch: tape.Sample, config: dqn.Config):
    """rlax's λ-returns on double Q-values from `Net.step` alone, one step after another."""

    def act(states, inputs):
        step, begin = inputs
        now, then = zip(
            *(after(net, s, step, begin) for net, s in zip(nets, states, strict=True)), strict=True
        )
        return tuple(s for s, _ in now), (now[0][1], then[0], then[1])

    def after(net, state, step, begin):
        state, q = net.step(state, step.obs, begin)
        return (state, q), net.step(state, step.next_obs, jnp.zeros((), bool))[1]

    nets = (online, target)
    initial = (online.init(), target.init())
    data = batch.steps
    _, (q, next_q, next_q_target) = jax.lax.scan(act, initial, (data, batch.begin))
    best = jnp.argmax(next_q, axis=-1)
    goes_on = ~(data.terminated | data.truncated) & ~jnp.append(batch.begin[1:], True)
    targets = rlax.lambda_returns(
        config.reward_scale * data.reward,
        jnp.where(data.terminated, 0.0, config.gamma),
        next_q_target[jnp.arange(best.size), best],
        jnp.where(goes_on, config.lam, 0.0),
        stop_target_gradients=True,
    )
    errors = targets - q[jnp.arange(best.size), data.action]
    return jnp.sum(rlax.huber_loss(errors) * batch.mask) / jnp.sum(batch.mask)


def assert_equal(ours: Any, theirs: Any, tolerance: float = 1e-6) -> None:
    """Values and gradients, the gradients on the scale of the largest of them."""
    np.testing.assert_allclose(ours[0], theirs[0], rtol=10 * tolerance)
    leaves = [jax.tree.leaves(eqx.filter(tree[1], eqx.is_array)) for tree in (ours, theirs)]
    scale = max(float(np.abs(leaf).max()) for leaf in leaves[1])
    assert scale > 1e-3
    for a, b in zip(*leaves, strict=True):
        np.testing.assert_allclose(a, b, rtol=100 * tolerance, atol=tolerance * scale)


# The loss


@pytest.mark.slow
def test_loss_and_gradient_equal_the_oracle():
    rollout = steps([7, 1, 12, 4])
    assert rollout.terminated.sum() and rollout.truncated.sum()  # both kinds of ends occur
    mask = jnp.arange(24) < 20
    batch = batch_of(rollout, mask)
    assert_equal(loss(ONLINE, TARGET, batch, CONFIG), oracle(ONLINE, TARGET, batch, CONFIG), 1e-5)


@pytest.mark.slow
def test_the_target_max_evaluates_the_greedy_actions_of_the_target_network():
    batch = batch_of(steps([7, 1, 12, 4]))
    plain_config = dataclasses.replace(CONFIG, target="max")
    equal = loss(TARGET, TARGET, batch, plain_config)
    assert_equal(equal, loss(TARGET, TARGET, batch, CONFIG))
    _, _, next_q = TARGET.lookahead(
        TARGET.init(), batch.steps.obs, batch.begin, batch.steps.next_obs
    )
    q = ONLINE(ONLINE.init(), batch.steps.obs, batch.begin)[1]
    one_step = dataclasses.replace(plain_config, lam=0.0)
    discount = jnp.where(batch.steps.terminated, 0.0, one_step.gamma)
    y = one_step.reward_scale * batch.steps.reward + discount * jnp.max(next_q, axis=-1)
    errors = y - q[jnp.arange(24), batch.steps.action]
    value, _ = loss(ONLINE, TARGET, batch, one_step)
    np.testing.assert_allclose(value, jnp.mean(rlax.huber_loss(errors)), rtol=1e-5)
    assert value != loss(ONLINE, TARGET, batch, dataclasses.replace(CONFIG, lam=0.0))[0]


@pytest.mark.slow
def test_lambda_returns_end_where_a_segment_does():
    """Two segments of one episode learn as two tapes would."""
    rollout = steps([24])
    begin = rollout.begin.at[10].set(True)
    cut = dataclasses.replace(batch_of(rollout), begin=begin)
    assert_equal(loss(ONLINE, TARGET, cut, CONFIG), oracle(ONLINE, TARGET, cut, CONFIG), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("end", "bootstraps"), [("truncated", True), ("terminated", False)])
def test_a_time_limit_bootstraps_and_an_end_does_not(end: str, bootstraps: bool):
    rollout, last = steps([24]), jnp.arange(24) == 23
    flags = {"terminated": jnp.zeros(24, bool), "truncated": jnp.zeros(24, bool), end: last}
    rollout = dataclasses.replace(rollout, **flags)
    other = eqx.tree_at(lambda r: r.next_obs, rollout, rollout.next_obs.at[23].add(1.0))
    value, other_value = (loss(ONLINE, TARGET, batch_of(r), CONFIG)[0] for r in (rollout, other))
    assert (value != other_value) == bootstraps


@pytest.mark.slow
def test_the_target_sees_the_first_observation():
    """s'_t has seen o_0, …, o_t and o'_t."""
    rollout = steps([24])

    @jax.jit
    def target(obs):
        _, _, next_q = TARGET.lookahead(TARGET.init(), obs, rollout.begin, rollout.next_obs)
        return jnp.max(next_q[23])

    assert np.abs(jax.grad(target)(rollout.obs)[0]).max() > 1e-6
    # A network that reads the tape of next observations, as the paper's code does, misses it.
    _, q = eqx.filter_jit(TARGET)(TARGET.init(), rollout.next_obs, rollout.begin)
    assert np.abs(jnp.max(q[23]) - target(rollout.obs)) > 1e-6


# Tape and segments


@partial(jax.jit, static_argnums=(1, 2, 3))
def samples(rollout: Transition, on_tape: int, on_segments: int, length: int):
    """The same episodes, stored once and drawn both ways."""
    example = jax.tree.map(lambda x: x[0], rollout)
    memory = tape.add(tape.init(example, 64), jax.tree.map(lambda x: x[None], rollout))
    key = jax.random.key(5)
    batch = tape.sample(memory, key, on_tape)
    return batch, segments.sample(memory, key, on_segments, length)


@pytest.mark.full
@pytest.mark.parametrize(
    ("lengths", "batch", "length", "fill"),
    [
        ([12], 12, 12, 1.0),  # one episode, one segment, no padding
        ([9], 12, 12, 0.75),  # and with padding
    ],
)
def test_a_segment_that_holds_its_episode_is_a_tape(lengths, batch, length, fill):
    on_tape, on_segments = samples(steps(lengths), sum(lengths), batch, length)
    assert np.isclose(on_segments.mask.mean(), fill) and on_tape.mask.all()
    ours, theirs = (loss(ONLINE, TARGET, sample, CONFIG) for sample in (on_segments, on_tape))
    assert_equal(ours, theirs)


@pytest.mark.full
@pytest.mark.slow
def test_a_shorter_segment_is_not():
    on_tape, on_segments = samples(steps([12]), 12, 12, 4)
    assert on_segments.mask.all() and on_segments.begin.sum() == 3
    ours, theirs = (loss(ONLINE, TARGET, sample, CONFIG)[0] for sample in (on_segments, on_tape))
    assert abs(ours - theirs) > 1e-3


@pytest.mark.slow
def test_a_batch_of_two_tapes_counts_each_real_step_once():
    """A tape with half as many real steps weighs half as much."""
    real = [jnp.arange(24) < number for number in (20, 10)]
    tapes = [batch_of(steps([7, 1, 12, 4], seed), mask) for seed, mask in enumerate(real)]
    both = jax.tree.map(lambda *x: jnp.stack(x), *tapes)
    config = dataclasses.replace(CONFIG, batch=48, tapes=2)
    mean = eqx.filter_jit(eqx.filter_value_and_grad(partial(dqn.loss_of_tapes, dqn.loss)))
    first, second = (loss(ONLINE, TARGET, one, CONFIG) for one in tapes)
    expected = jax.tree.map(lambda a, b: (2 * a + b) / 3, first, second)
    assert_equal(mean(ONLINE, TARGET, both, config), expected)
    assert abs(first[0] - second[0]) > 1e-3


@pytest.mark.full
def test_tapes_of_a_batch_are_drawn_apart():
    rollout = steps([5, 3, 4, 6, 2, 4])
    memory = tape.init(jax.tree.map(lambda x: x[0], rollout), 64)
    memory = tape.add(memory, jax.tree.map(lambda x: x[None], rollout))
    config = dataclasses.replace(CONFIG, batch=24, tapes=3)
    start = Carry(None, None, None, None)
    key, iteration = jax.random.key(0), jnp.array(0)
    state = dqn.State(ONLINE, TARGET, None, start, memory, None, key, iteration)
    batch = dqn.sample(config, state, jax.random.key(1))
    assert batch.begin.shape == (3, 8) and batch.begin[:, 0].all()
    assert len(np.unique(batch.rows, axis=0)) == 3
    alone = [tape.sample(memory, key, 8) for key in jax.random.split(jax.random.key(1), 3)]
    for i, one in enumerate(alone):
        mine = jax.tree.map(lambda x, i=i: x[i], batch)
        jax.tree.map(np.testing.assert_array_equal, mine, one)


# Acting and learning


def test_epsilon_falls_in_a_line_and_stays():
    config = dataclasses.replace(plain.DQN, epsilon_start=0.8, epsilon_end=0.2, epsilon_decay=10.0)
    values = jax.vmap(lambda i: dqn.epsilon(config, i))(jnp.array([0, 5, 10, 1000]))
    np.testing.assert_allclose(values, [0.8, 0.5, 0.2, 0.2], rtol=1e-6)


@pytest.mark.slow
def test_exploration_is_uniform_and_as_frequent_as_it_should_be():
    draws = 20_000
    obs, keys = jnp.ones(OBS), jax.random.split(jax.random.key(7), draws)
    best = int(dqn.greedy(ONLINE)(ONLINE.init(), obs, jnp.array(True), keys[0])[1])
    assert best == int(ONLINE.step(ONLINE.init(), obs, jnp.array(True))[1].argmax())

    @jax.jit
    def share(epsilon):
        act = dqn.epsilon_greedy(ONLINE, epsilon)
        actions = jax.vmap(lambda key: act(ONLINE.init(), obs, jnp.array(True), key)[1])(keys)
        return jnp.bincount(actions, length=ACTIONS + 1) / draws

    for epsilon in (0.0, 0.3, 1.0):
        expected = np.full(ACTIONS + 1, epsilon / ACTIONS)
        expected[best] += 1 - epsilon
        expected[ACTIONS] = 0  # no such action
        np.testing.assert_allclose(share(jnp.float32(epsilon)), expected, atol=0.015)


# Bad settings


ENV = "probe-Match-v0"
TINY = dataclasses.replace(
    plain.DQN, batch=16, environments=4, rollout=4, updates=2, capacity=64, block=2, episodes=4
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batching": "tapes"}, "`batching` must be 'tape' or 'segments'; got 'tapes'"),
        ({"batching": "segments", "segment_length": 0}, "`segment_length` must be at least 1"),
        ({"batching": "segments", "segment_length": 5}, "Set batch=15"),
        ({"batching": "segments", "segment_length": 4, "tapes": 3}, "Set batch=12"),
        ({"tapes": 3}, "`batch` must be a multiple of `tapes` = 3; got 16. Set batch=15"),
        ({"capacity": 12}, "`capacity` must hold one rollout of 4 steps in 4 environments"),
        ({"capacity": 66}, "`capacity` must be a positive multiple of `workers`"),
        ({"memory": "lrv"}, "Did you mean `lru`"),
        ({"updates": 0}, "`updates` must be at least 1; got 0"),
        ({"gamma": 1.5}, "`gamma` must be between 0 and 1; got 1.5"),
        ({"learning_rate": -1.0}, "`learning_rate` must be positive"),
        ({"learning_rate": float("nan")}, "`learning_rate` must be positive"),
    ],
)
def test_a_setting_that_cannot_work_is_named(change: dict[str, Any], message: str):
    env, params = make(ENV)
    config = dataclasses.replace(TINY, **change)
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        jax.eval_shape(lambda: dqn.init(config, env, params, jax.random.key(0)))


def test_a_tape_that_holds_no_episode_is_refused():
    env, params = make("popgym-RepeatFirstEasy-v0")
    with pytest.raises(ValueError, match="must hold an episode of 51 steps in each of 4"):
        dqn.check(TINY, env, params)
    sizes = dataclasses.replace(TINY, batch=51, capacity=4 * (51 + 51 + 4))
    dqn.check(sizes, env, params)
    with pytest.raises(ValueError, match=r"on each of 2 tapes; got 100.* Set batch=102"):
        dqn.check(dataclasses.replace(sizes, batch=100, tapes=2), env, params)
    with pytest.raises(ValueError, match="two episodes of 51 steps and a rollout of 4"):
        dqn.check(dataclasses.replace(sizes, capacity=4 * (51 + 51)), env, params)


@pytest.mark.parametrize(
    ("env", "changes", "sizes"),
    [
        ("popgym-RepeatFirstEasy-v0", {}, (500, 16_384)),
        ("Catch-bsuite", {}, (1000, 16 * (2000 + 16))),
        ("Catch-bsuite", {"batching": "segments", "segment_length": 30}, (1020, 16 * (2000 + 16))),
        ("Catch-bsuite", {"tapes": 3}, (3000, 16 * (2000 + 16))),
        ("Catch-bsuite", {"batch": 1200, "capacity": 40_000}, (1200, 40_000)),
    ],
)
def test_sizes_that_are_left_open_fit_the_environment(env: str, changes: dict, sizes: tuple):
    env, params = make(env)
    config = dqn.Config(**changes)
    dqn.check(config, env, params)
    config_that_fits = fit_storage(config, params)
    assert (config_that_fits.batch, config_that_fits.capacity) == sizes
    assert (
        dataclasses.replace(config_that_fits, batch=config.batch, capacity=config.capacity)
        == config
    )


def test_continuous_actions_are_refused():
    env, params = make("Pendulum-v1")
    with pytest.raises(ValueError, match="discrete actions"):
        dqn.check(dataclasses.replace(TINY, capacity=4096), env, params)
