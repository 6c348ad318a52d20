"""CLEAR: its loss against loops, who is replayed, and that replay turned off leaves no trace."""

import dataclasses
import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnax.environments import spaces

from mmrl import losses
from mmrl.agents import clear, normalize
from mmrl.agents.clear import vtrace
from mmrl.agents.clear.storage import check_storage_dtype
from mmrl.agents.common import trainable
from mmrl.course import plain
from mmrl.envs import continual, make, probes, wrappers
from mmrl.replay import reservoir
from mmrl.replay.reservoir import Unrolls

FAMILY, PARAMS = continual.permuted_catch(3, rows=5, columns=3)
TINY = dataclasses.replace(
    plain.CLEAR,
    memory="none",
    width=8,
    environments=4,
    rollout=6,
    capacity=120,
    block=2,
    blocks=1,
    episodes=4,
)


def change(config: Any, **values: Any) -> Any:
    return dataclasses.replace(config, **values)


def distance(a: Any, b: Any) -> float:
    leaves = [jax.tree.leaves(eqx.filter(x, eqx.is_inexact_array)) for x in (a, b)]
    return max(float(np.abs(x - y).max()) for x, y in zip(*leaves, strict=True))


@jax.jit
def begin(config: clear.Config, tasks: Any = None) -> clear.State:
    return clear.init(config, FAMILY, PARAMS, jax.random.key(0), tasks=tasks)


@jax.jit
def iterate(config: clear.Config, state: clear.State) -> Any:
    return clear.iterate(config, FAMILY, PARAMS, state)


@jax.jit
def act(config: clear.Config, state: clear.State, key: Any) -> Any:
    return clear.act(config, FAMILY, PARAMS, state, key)


@jax.jit  # which traces the weights of losses: one program for all rounds alike
def value_and_grad(net: Any, config: clear.Config, batch: Unrolls, replayed: Any) -> Any:
    return eqx.filter_value_and_grad(vtrace.loss, has_aux=True)(net, config, batch, replayed)


def run(config: clear.Config, times: int) -> clear.State:
    state = begin(config)
    for _ in range(times):
        state, _ = iterate(config, state)
    return state


# The loss


@pytest.fixture(scope="module")
def batch() -> Unrolls:
    """Unrolls with ends of both kinds, of a policy and values that are not those of the network."""
    state = begin(TINY)
    _, unrolls = act(TINY, state, jax.random.key(1))
    rng, shape = np.random.default_rng(2), unrolls.steps.reward.shape
    logits, values, rewards = (
        jnp.asarray(rng.normal(size=size), jnp.float32) for size in ((*shape, 3), shape, shape)
    )
    return eqx.tree_at(
        lambda u: (u.steps.extras, u.steps.reward, u.steps.terminated, u.steps.truncated),
        unrolls,
        (
            vtrace.ActorOutputs(logits, values),
            rewards,
            *(jnp.asarray(rng.random(shape) < 0.2) for _ in range(2)),
        ),
    )


@pytest.fixture(scope="module")
def net() -> Any:
    """A network with opinions: a fresh one is uniform."""
    # With NumPy: JAX would compile two programs for each shape.
    floats, rest = eqx.partition(begin(TINY).net, eqx.is_array)
    other = jax.tree.map(lambda x: jnp.asarray(1.5 * np.asarray(x) + 0.1, x.dtype), floats)
    return eqx.combine(other, rest)


def oracle(config: clear.Config) -> Any:
    """Section 3 of the paper by loops over its definition of v_s: (targets, advantages)."""

    def targets(now, ahead, steps):
        pi, mu = (jax.nn.softmax(x, axis=-1) for x in (now.policy.logits, steps.extras.logits))
        time = np.arange(config.rollout)
        ratio = np.asarray(pi[time, steps.action] / mu[time, steps.action], float)
        rho, c = np.minimum(config.rho_max, ratio), np.minimum(config.c_max, ratio)
        v, after = np.asarray(now.value, float), np.asarray(ahead.value, float)
        last = np.array(steps.terminated | steps.truncated)
        last[-1] = True
        gamma = config.gamma * (1 - np.asarray(steps.terminated, float))
        delta = rho * (steps.reward + gamma * after - v)
        vs, advantages = np.zeros(config.rollout), np.zeros(config.rollout)
        for s in range(config.rollout):
            weight, vs[s] = 1.0, v[s]
            for t in range(s, config.rollout):
                vs[s] += weight * delta[t]
                weight *= gamma[t] * c[t]
                if last[t]:
                    break
        for s in range(config.rollout):
            following = after[s] if last[s] else vs[s + 1]
            advantages[s] = rho[s] * (steps.reward[s] + gamma[s] * following - v[s])
        return vs, advantages

    return targets


@pytest.mark.full_except("inf-0.5")
@pytest.mark.slow
@pytest.mark.parametrize("rho_max, c_max", [(1.0, 1.0), (math.inf, 0.5)])
def test_the_loss_is_the_papers(net, batch, rho_max: float, c_max: float):
    config = change(
        TINY, rho_max=rho_max, c_max=c_max, policy_cloning=0.3, value_cloning=0.2, gamma=0.9
    )
    replayed = jnp.array([True, False, False, True])
    steps = batch.steps
    outputs = eqx.filter_jit(lambda net, obs: jax.vmap(net)(batch.state, obs, steps.begin)[1])
    now, ahead = (jax.device_get(outputs(net, obs)) for obs in (steps.obs, steps.next_obs))
    find = oracle(config)
    rows = [find(*jax.tree.map(lambda x, i=i: x[i], (now, ahead, steps))) for i in range(4)]
    vs, advantages = (jnp.asarray(np.stack(x), jnp.float32) for x in zip(*rows, strict=True))

    def paper(net):
        out = jax.vmap(net)(batch.state, steps.obs, steps.begin)[1]
        log_pi = jax.nn.log_softmax(out.policy.logits)
        mu = jax.nn.softmax(steps.extras.logits)
        log_prob = jnp.take_along_axis(log_pi, steps.action[..., None], -1)[..., 0]
        cloning = jnp.sum(mu * (jnp.log(mu) - log_pi), -1)
        entropy = jnp.sum(jnp.exp(log_pi) * log_pi, -1)
        each = -log_prob * advantages + config.value_weight * (out.value - vs) ** 2
        each += config.entropy_weight * entropy
        again = 0.3 * cloning + 0.2 * (out.value - steps.extras.value) ** 2
        return jnp.mean(each + replayed[:, None] * again)

    (value, measures), gradient = value_and_grad(net, config, batch, replayed)
    expected, wanted_gradient = eqx.filter_jit(eqx.filter_value_and_grad(paper))(net)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    assert distance(gradient, wanted_gradient) < 1e-6 < distance(gradient, net)
    # Both kinds of ends occur.
    assert steps.terminated.any() and (steps.truncated & ~steps.terminated).any()
    log_pi, did = map(jax.nn.log_softmax, (now.policy.logits, steps.extras.logits))
    ratio = np.exp(np.take_along_axis(log_pi - did, steps.action[..., None], -1))
    expected = np.minimum(rho_max, ratio)[replayed].mean()
    np.testing.assert_allclose(measures.ratio, expected, rtol=1e-5)


@pytest.fixture(scope="module")
def own(net, batch) -> Unrolls:
    """What the network itself did, with the rewards of `batch`, and more ends, of both kinds."""
    _, unrolls = act(TINY, dataclasses.replace(begin(TINY), net=net), jax.random.key(6))
    terminated, cut = unrolls.steps.terminated, jnp.arange(4)[:, None] % 2 == 1
    return eqx.tree_at(
        lambda u: (u.steps.reward, u.steps.terminated, u.steps.truncated),
        unrolls,
        (batch.steps.reward, terminated & ~cut, terminated & cut | batch.steps.truncated),
    )


@pytest.mark.slow
def test_on_policy_and_without_clips_targets_are_n_step_returns(net, own):
    """ρ̄ = c̄ = ∞: rewards up to the episode's or the unroll's end, and the value of what follows."""
    config = change(TINY, rho_max=math.inf, c_max=math.inf, gamma=0.9)

    @jax.jit
    def find(unrolls):
        *_, targets, ratio = jax.vmap(lambda u: vtrace.trace(config, net, u))(unrolls)
        steps = unrolls.steps
        ahead = jax.vmap(net)(unrolls.state, steps.next_obs, steps.begin)[1].value
        return steps, targets, ratio, ahead

    steps, targets, ratio, ahead = jax.device_get(find(own))
    np.testing.assert_allclose(ratio, 1, atol=1e-5)
    assert steps.terminated.any() and steps.truncated.any()
    for row, start in np.ndindex(steps.reward.shape):
        total, weight, t = 0.0, 1.0, start
        while True:
            total += weight * steps.reward[row, t]
            weight *= 0.9 * (1 - steps.terminated[row, t])
            if steps.terminated[row, t] or steps.truncated[row, t] or t == config.rollout - 1:
                break
            t += 1
        np.testing.assert_allclose(
            targets.values[row, start], total + weight * ahead[row, t], rtol=1e-4, atol=1e-5
        )


def test_cloning_is_at_rest_where_the_network_is_what_it_was(net, own, batch):
    """Then no weight of cloning moves it, though all is replayed; elsewhere it does."""

    def at(weight: float, unrolls: Unrolls) -> Any:
        config = change(TINY, policy_cloning=weight, value_cloning=weight)
        (_, measures), gradient = value_and_grad(net, config, unrolls, jnp.ones(4, bool))
        return gradient, measures

    (without, _), (strong, measures) = at(0.0, own), at(9.0, own)
    assert measures.policy_cloning < 1e-6 and measures.value_cloning < 1e-6
    assert distance(without, strong) < 1e-4 < 1e-2 < distance(at(0.0, batch)[0], at(9.0, batch)[0])


def test_cloning_counts_where_replayed_and_nowhere_else(net, batch):
    def at(weight: float, replayed: Any) -> Any:
        config = change(TINY, policy_cloning=weight, value_cloning=weight)
        return value_and_grad(net, config, batch, replayed)

    none, all_rows = jnp.zeros(4, bool), jnp.ones(4, bool)
    assert distance(at(0.0, none), at(9.0, none)) == 0
    # Without weights it does not matter who is replayed.
    assert distance(at(0.0, none)[1], at(0.0, all_rows)[1]) == 0
    assert distance(at(0.0, all_rows)[1], at(9.0, all_rows)[1]) > 1e-3


@pytest.mark.slow
def test_a_sum_is_the_mean_of_all_steps_times_their_number(net, batch):
    replayed = jnp.array([True, False, True, True])
    mean, total = (
        value_and_grad(net, change(TINY, reduction=name), batch, replayed)[1]
        for name in ("mean", "sum")
    )
    assert distance(jax.tree.map(lambda x: 24 * x, mean), total) < 1e-5


@pytest.mark.full
# Without a memory, there is no state to be stored.
@pytest.mark.parametrize("memory", ["lru", "gru"])
def test_new_unrolls_are_on_policy(memory: str):
    """From the stored state, the network says again what the actor said, in mid-episode too."""
    config = change(TINY, memory=memory, width=4)

    @jax.jit
    def again(key):
        state = clear.init(config, FAMILY, PARAMS, key)

        def step(state, key):
            carries, unrolls = clear.act(config, FAMILY, PARAMS, state, key)
            return dataclasses.replace(state, carries=carries), unrolls

        state, unrolls = jax.lax.scan(step, state, jax.random.split(key))
        unrolls = jax.tree.map(lambda x: x[1], unrolls)
        targets = jax.vmap(lambda u: vtrace.trace(config, state.net, u))(unrolls)
        return unrolls.steps, targets

    steps, (now, _, _, ratio) = again(jax.random.key(3))
    assert not steps.begin[:, 0].all()
    np.testing.assert_allclose(ratio, 1, atol=1e-5)
    np.testing.assert_allclose(now.policy.logits, steps.extras.logits, atol=1e-5)
    np.testing.assert_allclose(now.value, steps.extras.value, atol=1e-5)


# Replay


@pytest.mark.full
def test_replay_fraction_0_leaves_no_trace():
    """Neither what is stored nor weights of cloning change a bit; no reservoir, nothing at all."""
    off = run(change(TINY, replay_fraction=0.0, policy_cloning=0.0, value_cloning=0.0), 5)
    heavy = run(change(TINY, replay_fraction=0.0, policy_cloning=3.0, value_cloning=3.0), 5)
    assert off.reservoir.arrivals == 5
    for a, b in zip(jax.tree.leaves(off.net), jax.tree.leaves(heavy.net), strict=True):
        np.testing.assert_array_equal(a, b)
    # Another program, whose sums a compiler may round otherwise.
    plain = run(change(TINY, capacity=0, replay_fraction=0.0), 5)
    assert plain.reservoir is None and distance(plain.net, off.net) < 1e-6
    assert distance(plain.net, run(TINY, 5).net) > 1e-4


@pytest.mark.full
def test_without_replay_the_gradient_is_that_of_plain_vtrace_bit_for_bit(net, batch):
    """Operation by operation, so that no compiler rounds the two differently."""
    config = change(TINY, policy_cloning=3.0, value_cloning=3.0)
    new = jnp.zeros(4, bool)

    def plain(net):
        outputs, log_prob, targets, _ = jax.vmap(lambda u: vtrace.trace(config, net, u))(batch)
        return jnp.mean(
            losses.policy_gradient_loss(log_prob, targets.advantages)
            + config.value_weight * losses.value_loss(outputs.value, targets.values)
            - config.entropy_weight * outputs.policy.entropy()
        )

    ours = eqx.filter_grad(vtrace.loss, has_aux=True)(net, config, batch, new)[0]
    for a, b in zip(*map(jax.tree.leaves, (ours, eqx.filter_grad(plain)(net))), strict=True):
        np.testing.assert_array_equal(a, b)
    assert distance(ours, jax.tree.map(jnp.zeros_like, ours)) > 1e-3


def numbered_unrolls(config: clear.Config, number: int) -> Unrolls:
    """Unrolls that tell which environment they are of, and when they came."""
    rows = jnp.arange(config.environments)
    name = jnp.broadcast_to(100 * number + rows[:, None], (config.environments, config.rollout))
    return Unrolls({"first": name[:, 0]}, {"name": name})


@pytest.mark.parametrize("environments, fraction", [(1, 0.5), (3, 0.5), (8, 0.05), (5, 0.9)])
def test_any_fraction_is_replayed_on_average(environments: int, fraction: float):
    config = change(
        TINY, environments=environments, capacity=environments * 60, replay_fraction=fraction
    )
    new = numbered_unrolls(config, 1)
    one = jax.tree.map(lambda x: x[0], (new.steps["name"][0], new.state))
    size = {"workers": environments, "length": 6}
    storage = reservoir.init({"name": one[0]}, one[1], environments * 60, **size)
    keys = jax.random.split(jax.random.key(0), 2000)
    counts = jax.vmap(lambda key: clear.pair(config, storage, new, key)[2].sum())(keys)
    whole = environments * fraction
    assert {int(np.floor(whole)), int(np.ceil(whole))} == {*np.unique(counts).tolist()}
    error = 4 * np.std(counts) / len(keys) ** 0.5
    np.testing.assert_allclose(np.mean(counts), whole, atol=error)


@pytest.mark.slow
@pytest.mark.parametrize("fraction, count", [(0, 0), (0.25, 2), (0.5, 4), (0.75, 6), (1, 8)])
def test_the_learner_takes_one_of_each_pair(fraction: float, count: int):
    config = change(TINY, environments=8, capacity=8 * 6 * 50, replay_fraction=float(fraction))
    new = numbered_unrolls(config, 1)
    one = jax.tree.map(lambda x: x[0], (new.steps["name"][0], new.state))
    storage = reservoir.init({"name": one[0]}, one[1], 2400, workers=8, length=6)

    @jax.jit
    def pair(storage, new, key):
        return clear.pair(config, storage, new, key)

    flags = []
    for number in range(1, 9):
        new = numbered_unrolls(config, number)
        storage, batch, replayed = pair(storage, new, jax.random.key(number))
        names = np.asarray(batch.steps["name"])
        np.testing.assert_array_equal(batch.state["first"], names[:, 0])
        np.testing.assert_array_equal(names[:, 0] % 100, np.arange(8))  # of the same actor
        np.testing.assert_array_equal(names[~replayed], new.steps["name"][~replayed])
        assert replayed.sum() == count and (names[:, 0] // 100 <= number).all()
        # Inserted before it is sampled: the first time there is nothing else.
        assert number > 1 or (names == new.steps["name"]).all()
        flags.append(replayed)
    if 0 < count < 8:
        assert len({tuple(np.asarray(c)) for c in flags}) > 1
    if count:
        assert (names[replayed, 0] < 800).any()  # old ones


@pytest.mark.full
@pytest.mark.slow
def test_a_replayed_unroll_is_as_it_was_acted():
    """Logits and values of then: what V-trace and cloning compare with."""
    config = change(TINY, replay_fraction=1.0)
    state = run(config, 3)
    storage = state.reservoir
    assert storage.counts.tolist() == [3] * 4 and storage.arrivals == 3
    before = begin(config)
    _, first = act(config, before, jax.random.split(before.key, 3)[0])
    slot = 0  # the first unroll of every worker: nothing has been pushed out yet
    rows = jnp.arange(4) * storage.slots + slot
    unrolls_in = jax.tree.map(lambda x: x[rows], storage.unrolls)
    assert distance(unrolls_in, first) < 1e-6
    np.testing.assert_array_equal(unrolls_in.steps.action, first.steps.action)


def test_a_type_that_rounds_observations_is_refused():
    env, params = make("CartPole-v1")
    with pytest.raises(
        ValueError, match=r"`storage_dtype` must .*observations of `env`; got 'uint8'"
    ):
        clear.check(change(TINY, storage_dtype="uint8"), env, params)
    clear.check(change(TINY, storage_dtype="float16"), env, params)


@pytest.mark.parametrize(
    ("dtype", "high", "last"),
    [
        ("int8", 255.0, 0.0),  # by the bounds alone
        ("uint8", 1000.0, 0.0),
        ("float16", 1e5, 0.0),
        ("uint8", 1.0, 0.5),  # by the numbers of later steps
        ("uint8", np.inf, 300.0),
        ("float16", np.inf, 1e5),
    ],
)
def test_a_type_that_cannot_hold_later_observations_is_refused(
    dtype: str, high: float, last: float
):
    """The first observation is 0, and all others are `last`."""

    class Rising(probes.Memory):
        def look(self, state: Any, params: Any) -> Any:
            return jnp.where(state.time == 0, 0.0, last) * jnp.ones(self.obs_size)

        def observation_space(self, params: Any = None) -> Any:
            return spaces.Box(0.0, high, (self.obs_size,), jnp.float32)

    env = Rising()
    with pytest.raises(
        ValueError, match=f"`storage_dtype` .* got '{dtype}', .* Set storage_dtype='float32'"
    ):
        clear.check(change(TINY, storage_dtype=dtype), env, env.default_params)
    clear.check(TINY, env, env.default_params)


def test_whole_numbers_without_bounds_are_looked_at():
    class Counting(wrappers.Wrapper):
        """It shows 300, as a whole number."""

        def after_reset(self, key: Any, reset: Any, params: Any) -> Any:
            return jnp.full(3, 300, jnp.int32), reset[1]

        def after_step(self, key: Any, before: Any, action: Any, step: Any, params: Any) -> Any:
            return jnp.full(3, 300, jnp.int32), *step[1:]

        def observation_space(self, params: Any = None) -> Any:
            return spaces.Box(-jnp.inf, jnp.inf, (3,), jnp.int32)

    env = Counting(probes.Memory())
    with pytest.raises(ValueError, match=r"`storage_dtype` .* got 'uint8'"):
        check_storage_dtype("uint8", env, env.default_params)
    check_storage_dtype("int16", env, env.default_params)


def test_a_type_is_checked_while_a_run_is_traced():
    """As `jax.jit` of `train` or `init` does."""
    env = probes.Memory()

    def loss_of(x: Any) -> Any:
        clear.check(change(TINY, storage_dtype="float16"), env, env.default_params)
        return x

    assert jax.jit(loss_of)(1.0) == 1.0


@pytest.mark.full
def test_whole_numbers_may_be_stored_as_such():
    plain, small = run(TINY, 4), run(change(TINY, storage_dtype="uint8"), 4)
    obs = plain.reservoir.unrolls.steps.obs
    assert small.reservoir.unrolls.steps.obs.dtype == jnp.uint8 and len(jnp.unique(obs)) > 1
    np.testing.assert_array_equal(small.reservoir.unrolls.steps.obs, obs)
    # Another program, whose sums a compiler may round otherwise.
    assert distance(plain.net, small.net) < 1e-6


# Tasks


@pytest.mark.slow
def test_environments_play_their_own_tasks():
    tasks = jnp.array([0, 1, 2, 1])
    state = begin(TINY, tasks)
    _, unrolls = act(TINY, state, jax.random.key(5))
    order = FAMILY.orders()
    for row, task in enumerate(tasks):
        frames = np.zeros((2, 6, 15))
        for i, obs in enumerate((unrolls.steps.obs, unrolls.steps.next_obs)):
            frames[i][:, order[task]] = obs[row]
        # In the right order of pixels the paddle is in the last row, and begins in the middle.
        assert (frames.reshape(2, 6, 5, 3)[:, :, -1].sum(-1) >= 1).all()
        assert frames[0, 0].reshape(5, 3)[-1].tolist() == [0, 1, 0]


@pytest.mark.slow
def test_entering_a_task_begins_episodes_and_changes_nothing_else():
    state, tasks = dataclasses.replace(run(TINY, 2), tasks=jnp.zeros(4, int)), jnp.full(4, 2)
    after = jax.jit(lambda s: clear.enter(TINY, FAMILY, PARAMS, s, tasks))(state)
    assert after.carries.begin.all() and after.tasks.tolist() == [2] * 4
    same = ("net", "optimizer", "reservoir", "iteration")
    for name in same:
        assert eqx.tree_equal(getattr(after, name), getattr(state, name))
    frames = np.zeros((4, 15))
    frames[:, FAMILY.orders()[2]] = after.carries.obs
    np.testing.assert_array_equal(frames.reshape(4, 5, 3)[:, -1], [[0, 1, 0]] * 4)
    assert clear.leave(TINY, FAMILY, PARAMS, after) is after


# The scale of rewards, and the rate


@pytest.mark.full
@pytest.mark.slow
def test_rewards_are_divided_where_they_are_learned_from_and_the_rate_falls():
    """A loss that is the mean reward and the sum of θ shows both: Adam moves θ by the rate."""
    config = change(TINY, normalize_rewards=True, learning_rate=0.1, anneal=0.75, horizon=4.0)
    state = dataclasses.replace(begin(TINY), rewards=normalize.reward_scale(TINY.environments))

    def loss(net, config, batch, replayed):
        theta = sum(jnp.sum(x) for x in jax.tree.leaves(trainable(net)))
        report = batch.steps.reward, jnp.zeros(()), jnp.zeros(())
        return theta, vtrace.Measures(*report, *jnp.zeros(4))

    @jax.jit
    def step(state, key):
        batch = clear.act(config, FAMILY, PARAMS, state, key)[1]
        learn = partial(clear.learn, loss=loss)
        after, outcome = clear.iterate(config, FAMILY, PARAMS, state, learn)
        _, (_, report) = learn(config, after, batch, jnp.zeros(TINY.environments, bool))
        return after, outcome[1].policy_loss, batch.steps.reward, report.policy_loss

    for i in range(3):
        after, _, raw, scaled_loss = step(state, jax.random.key(1))
        deviation = np.sqrt(normalize.variance(after.rewards.moments))
        np.testing.assert_allclose(scaled_loss, raw / deviation, rtol=1e-4)
        np.testing.assert_allclose(
            distance(after.net, state.net), 0.1 * (1 - 0.75 * i / 8), rtol=1e-3
        )
        state = after
    assert np.abs(raw).max() > 0 and abs(deviation - 1) > 0.1


# Settings


def test_rmsprop_is_impalas():
    """ms ← d ms + (1-d) g², θ ← θ - lr g / √(ms + ε), ms starting at 1."""
    config = change(TINY, optimizer="rmsprop", max_grad_norm=math.inf, rms_eps=0.1)
    optimizer, theta, ms = vtrace.optimizer(config, 1e-3), jnp.array([1.0, -2.0]), np.ones(2)
    state = optimizer.init(theta)
    for g in ([3.0, 0.1], [-1.0, 0.2]):
        update, state = optimizer.update(jnp.array(g), state, theta)
        ms = 0.99 * ms + 0.01 * np.square(g)
        np.testing.assert_allclose(update, -1e-3 * np.array(g) / np.sqrt(ms + 0.1), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("optimizer", {"optimizer": "sgd"}),
        ("reduction", {"reduction": "max"}),
        ("storage_dtype", {"storage_dtype": "bool"}),
        ("capacity", {"capacity": 23}),
        ("replay_fraction", {"capacity": 0}),
        ("replay_fraction", {"replay_fraction": 1.5}),
        ("learning_rate", {"learning_rate": 0.0}),
        ("environments", {"environments": 0}),
        ("value_cloning", {"value_cloning": -1.0}),
    ],
)
def test_errors_name_the_setting(name: str, values: dict[str, Any]):
    with pytest.raises(ValueError, match=f"`{name}`"):
        clear.check(change(TINY, **values), FAMILY, PARAMS)


def test_actions_must_be_discrete():
    env, params = make("Pendulum-v1")
    with pytest.raises(ValueError, match="discrete"):
        clear.check(TINY, env, params)
