"""PQN: targets and loss against plain loops, constant targets, rows, and the paper's numbers."""

import dataclasses
from functools import cache, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mmrl.agents import pqn
from mmrl.agents.minibatches import Rollout
from mmrl.agents.presets import PRESETS
from mmrl.envs import make
from mmrl.nets import Net
from mmrl.rollout import Carry, Transition
from tests.helpers.any_probe import check_learned

OBS, ACTIONS, ROWS, TIME = 3, 4, 4, 20
CONFIG = pqn.Config(
    gamma=0.9, lam=0.7, reward_scale=2.0, learning_rate=1e-2, minibatches=1, max_grad_norm=0.3
)


@cache
def network(memory: str) -> Net:
    kind = {"width": 8, "dueling": True} | ({"state_size": 4} if memory == "gru" else {})
    return eqx.filter_jit(partial(Net.make, memory, OBS, ACTIONS, **kind))(key=jax.random.key(0))


class Linear(eqx.Module):
    """Q(s, ·) = W o, which compiles quickly."""

    weight: Any

    def init(self) -> tuple[()]:
        return ()

    def __call__(self, state: Any, obs: Any, begin: Any) -> Any:
        return state, obs @ self.weight

    def lookahead(self, state: Any, obs: Any, begin: Any, next_obs: Any) -> Any:
        return state, obs @ self.weight, next_obs @ self.weight


def rollout(net: Any) -> Rollout:
    """Noise, with ends of both kinds; rows begin in the middle of an episode, in a state."""
    rng = np.random.default_rng(0)
    last = rng.random((ROWS, TIME)) < 0.2
    limit = rng.random((ROWS, TIME)) < 0.5
    state = jax.tree.map(
        lambda x: np.asarray(x) + np.float32(rng.normal(size=(ROWS, *x.shape))), net.init()
    )
    steps = Transition(
        obs=np.float32(rng.normal(size=(ROWS, TIME, OBS))),
        action=np.int32(rng.integers(ACTIONS, size=(ROWS, TIME))),
        reward=rng.normal(size=(ROWS, TIME)).astype(np.float32),
        next_obs=np.float32(rng.normal(size=(ROWS, TIME, OBS))),
        begin=np.roll(last, 1, axis=1),
        terminated=last & ~limit,
        truncated=last & limit,
    )
    return jax.tree.map(jnp.asarray, Rollout(state, steps))


def by_steps(net: Net, before: Any, steps: Any) -> tuple[Any, Any]:
    """Q(s_t, ·) and Q(s'_t, ·) of one row, from `Net.step` alone."""

    def read(state, step):
        state, now = net.step(state, step.obs, step.begin)
        return state, (now, net.step(state, step.next_obs, jnp.zeros((), bool))[1])

    return jax.lax.scan(read, before, steps)[1]


def by_hand(config: pqn.Config, ahead: Any, steps: Any) -> np.ndarray:
    """The λ-targets of all rows, one number after another."""
    rows = []
    for row in range(ROWS):
        y, numbers = 0.0, []
        for t in reversed(range(TIME)):
            discount = 0.0 if steps.terminated[row, t] else config.gamma
            value = max(float(q) for q in ahead[row, t])
            final = t == TIME - 1 or steps.terminated[row, t] or steps.truncated[row, t]
            future = value if final else (1 - config.lam) * value + config.lam * y
            y = config.reward_scale * float(steps.reward[row, t]) + discount * future
            numbers.append(y)
        rows.append(numbers[::-1])
    return np.array(rows)


def same(ours: Any, theirs: Any) -> None:
    """Both trees are equal, on the scale of the largest number."""
    leaves = [jax.tree.leaves(eqx.filter(tree, eqx.is_array)) for tree in (ours, theirs)]
    scale = max(float(np.abs(leaf).max()) for leaf in leaves[1])
    assert scale > 1e-3
    for a, b in zip(*leaves, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * scale)


@eqx.filter_jit
def batch_and_gradient(net: Net, data: Rollout) -> Any:
    batch = pqn.prepare(CONFIG, net, data)
    return batch, eqx.filter_value_and_grad(pqn.loss)(net, batch, CONFIG)


@eqx.filter_jit
def expected(net: Net, data: Rollout, y: Any) -> Any:
    def loss(net):
        q, _ = jax.vmap(partial(by_steps, net))(*data)
        errors = jnp.sum(q * jax.nn.one_hot(data.steps.action, ACTIONS), axis=-1) - y
        return jnp.sum(errors**2) / (2 * ROWS * TIME)

    return eqx.filter_value_and_grad(loss)(net)


@pytest.mark.slow
def test_targets_loss_and_gradient_equal_plain_loops():
    net = network("gru")
    data = rollout(net)
    assert data.steps.terminated.sum() > 2 and data.steps.truncated.sum() > 2
    _, ahead = eqx.filter_jit(jax.vmap(partial(by_steps, net)))(*data)
    y = by_hand(CONFIG, np.asarray(ahead), data.steps)
    batch, ours = batch_and_gradient(net, data)
    np.testing.assert_allclose(batch.targets, y, rtol=1e-4, atol=1e-5)
    same(ours, expected(net, data, jnp.asarray(y, jnp.float32)))


def test_targets_are_constant_during_an_iteration():
    """Two epochs of one minibatch are two steps of clipped RAdam to the targets of the first."""
    net: Any = Linear(jnp.ones((OBS, ACTIONS)) / 4)
    key = jax.random.key(1)
    config = dataclasses.replace(CONFIG, epochs=2, anneal=0.5, horizon=2.0, block=10)
    rule = optax.chain(optax.clip_by_global_norm(0.3), optax.radam(0.75e-2))
    data, carries = rollout(net), Carry(None, None, None, None)
    state = pqn.State(net, rule.init(net), carries, None, key, jnp.int32(10))  # halfway

    @eqx.filter_jit
    def both(state: Any, data: Any) -> Any:
        state_after, losses = pqn.learn(config, state, data, key)
        net, inner, batch = state.net, state.optimizer, pqn.prepare(config, state.net, data)
        values = []
        for _ in range(2):
            value, gradient = eqx.filter_value_and_grad(pqn.loss)(net, batch, config)
            update, inner = rule.update(gradient, inner)
            net, values = eqx.apply_updates(net, update), [*values, value]
        return (state_after.net, state_after.optimizer, losses), (net, inner, jnp.stack(values))

    ours, theirs = both(state, data)
    same(ours, theirs)
    assert ours[2][1] < ours[2][0]


@pytest.mark.full
@pytest.mark.slow
def test_a_rollout_begins_with_the_state_behind_the_one_before():
    """Reading the tape of the first rollout ends in the state before the second."""
    env, params = make("probe-Memory-v0")
    sizes = {"environments": 4, "rollout": 13, "minibatches": 2, "epochs": 2, "width": 8}
    config = pqn.Config(**sizes, memory="gru", encoder="dense")

    @jax.jit
    def two(key: Any) -> Any:
        state = pqn.init(config, env, params, key)
        act = partial(pqn.act, config, env, params)
        _, (before, steps) = jax.lax.scan(act, state, jax.random.split(key))
        first = jax.tree.map(lambda x: x[0], (before, steps.obs, steps.begin))
        return before, steps, jax.vmap(state.net)(*first)[0]

    before, steps, after = two(jax.random.key(0))
    assert not steps.begin[1, :, 0].any()  # 13 steps are two episodes and three steps
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a[1], b, atol=1e-5), before, after)
    assert max(np.abs(x[1]).max() for x in jax.tree.leaves(before)) > 0.01


def test_rows_are_rollouts_or_single_steps():
    net = Linear(jnp.ones((OBS, ACTIONS)))
    alone = rollout(net)

    @jax.jit
    def both(data: Any) -> Any:
        with_memory = data._replace(state=jnp.zeros((ROWS, 1)))
        return pqn.prepare(CONFIG, net, with_memory), pqn.prepare(CONFIG, net, data)

    batch, steps = both(alone)
    assert batch.begin.shape == (ROWS, TIME) and batch.obs.shape == (ROWS, TIME, OBS)
    assert steps.begin.shape == (ROWS * TIME, 1) and steps.obs.shape == (ROWS * TIME, 1, OBS)
    np.testing.assert_array_equal(steps.targets.ravel(), batch.targets.ravel())


def test_minibatches_must_divide_the_environments():
    env, params = make("probe-Memory-v0")

    def init(memory: str) -> Any:
        config = pqn.Config(memory=memory, environments=6, minibatches=4)
        return jax.eval_shape(partial(pqn.init, config, env, params), jax.random.key(0))

    with pytest.raises(ValueError, match=r"`minibatches` must divide .* rows .* \(6\); got 4"):
        init("lru")
    assert init("none").rewards is not None  # of 384 single steps


PAPER = """
NUM_ENVS 1024 NUM_STEPS 128 EPS_START 1 EPS_FINISH 0.005 EPS_DECAY 0.1 NUM_MINIBATCHES 4
NUM_EPOCHS 4 HIDDEN_SIZE 512 LR 0.0003 MAX_GRAD_NORM 0.5 REW_SCALE 1 GAMMA 0.99 LAMBDA 0.5
TOTAL_TIMESTEPS 1e9
"""  # pqn_rnn_craftax.yaml


def test_settings_of_gallici_et_al():
    words = PAPER.split()
    paper = {name: float(x) for name, x in zip(words[::2], words[1::2], strict=True)}
    c, *_, observes = PRESETS["pqn"]["paper"]
    assert (c.environments, c.rollout) == (paper["NUM_ENVS"], paper["NUM_STEPS"])
    assert (c.minibatches, c.epochs) == (paper["NUM_MINIBATCHES"], paper["NUM_EPOCHS"])
    assert (c.epsilon_start, c.epsilon_end) == (paper["EPS_START"], paper["EPS_FINISH"])
    updates = paper["TOTAL_TIMESTEPS"] // paper["NUM_STEPS"] // paper["NUM_ENVS"]
    assert c.epsilon_decay == pytest.approx(paper["EPS_DECAY"] * updates)
    assert updates <= c.block * c.blocks < 1.01 * updates
    assert (c.learning_rate, c.max_grad_norm) == (paper["LR"], paper["MAX_GRAD_NORM"])
    assert (c.gamma, c.lam, c.reward_scale) == (paper["GAMMA"], paper["LAMBDA"], 1)
    assert (c.width, dict(c.memory_sizes)["state_size"]) == (paper["HIDDEN_SIZE"], 512)
    assert c.anneal == 1 and c.normalize_observations and not (c.dueling or c.normalize_rewards)
    assert c.memory == "lstm" and observes == ("previous_action",)


# Probes are learned to their known values


PROBING = pqn.Config(
    memory="none",
    width=32,
    encoder="dense",
    normalize_rewards=False,
    environments=8,
    rollout=16,
    block=60,
    blocks=2,
    episodes=64,
    learning_rate=3e-3,
    gamma=0.8,
    lam=0.0,
    minibatches=8,
    epochs=2,
    epsilon_start=1.0,
    epsilon_end=0.5,
    epsilon_decay=30.0,
    max_grad_norm=1.0,
)


def check_probes(config: pqn.Config, *names: str) -> None:
    def values(net: Any, obs: Any) -> Any:
        return net(net.init(), obs.obs, obs.begin)[1]

    def at_random(net: Any) -> Any:
        return pqn.epsilon_greedy(net, jnp.ones(()))

    check_learned(pqn, config, *names, policy=at_random, values=values)


@pytest.mark.full
@pytest.mark.slow
def test_probes_are_learned_to_their_values():
    check_probes(PROBING, "Constant", "Observation", "Delay", "Truncation", "Choice", "Match")


@pytest.mark.full
@pytest.mark.slow
def test_a_memory_is_learned_to_its_values():
    check_probes(dataclasses.replace(PROBING, memory="lru"), "Memory")
