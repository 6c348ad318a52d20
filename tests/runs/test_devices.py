"""Several devices, simulated in a process of its own: numbers must not depend on how many.

Shards are a setting and change the numbers; devices are not, up to the rounding of sums in another
order. What each agent shares over shards is tested against an agent that is whole.
"""

import dataclasses
import logging
import tempfile
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import collectives, losses
from mmrl.agents import find, normalize, repeatable
from mmrl.course.ch18_many_devices.collectives import traffic
from mmrl.monoid import Affine, Moments
from mmrl.replay import sequences
from mmrl.runs import Run, Setup
from mmrl.runs.checkpoint import unwrap_keys
from mmrl.runs.devices import share
from mmrl.runs.lanes import check, keys, part, side_by_side
from mmrl.runs.programs import built
from tests.helpers.devices import call

ENV = "popgym-RepeatFirstEasy-v0"
SMALL: dict[str, Any] = {"memory": "none", "width": 8, "environments": 8, "episodes": 4}
# Twelve gradient steps in two blocks, after which every average and clip has had its say.
SIZES: dict[str, dict[str, Any]] = {
    "dqn": {"rollout": 32, "batch": 208, "capacity": 2048, "updates": 3, "block": 2}
    | {"memory": "linear_attention"},  # one of them with a memory
    "r2d2": {"rollout": 8, "length": 8, "burn_in": 2, "n_step": 2, "batch": 8, "capacity": 4096}
    | {"updates": 3, "block": 2},
    "ppo": {"rollout": 18, "minibatches": 3, "epochs": 1, "block": 2, "noise_scale": True},
    "ppg": {"rollout": 16, "minibatches": 2, "policy_iterations": 2, "block": 2}
    | {"auxiliary_minibatches": 2, "auxiliary_epochs": 1}
    # Gradients that are zero but for rounding: by 1e-8, Adam makes whole steps of them.
    | {"adam_eps": 1e-5},
    "clear": {"rollout": 16, "capacity": 2048, "block": 6},
}
# Four shards on one device, and two on each of two, or one on each of four; DQN has both.
DEVICES = {"dqn": (2, 4), "r2d2": (2,), "ppo": (4,), "ppg": (2,), "clear": (4,)}
# Where gradients are computed: PPG has two phases, and PPO also measures their noise.
GRADIENTS = {"dqn": 1, "r2d2": 1, "ppo": 2, "ppg": 2, "clear": 1}


def setting(agent: str) -> Any:
    return find(agent).Config(**(SMALL | SIZES[agent]), blocks=2)


def shards(agent: str) -> dict[str, Any]:
    """Four shards on one device and on several: what differs, and what several tell one another."""
    made, config = built(Setup(ENV, agent=agent, config=setting(agent))), setting(agent)
    config, found = repeatable(config), {}
    for number in (1, *DEVICES[agent]):
        devices = share(number, 1, 4)
        init, block = side_by_side(find(agent), made.env, made.params, devices=devices)
        state = init(config, keys([0]))
        program = jax.jit(block).lower(config, state).compile()
        for _ in range(2):
            state, metrics = program(config, state)
        found[number] = jax.device_get((trained(state.net), unwrap_keys(state), metrics))
    net, everything, _ = found[1]
    told = traffic(str(program.as_text()))
    size = sum(x.size for x in jax.tree.leaves(net))
    return {
        "net": max(worst(net, other[0]) for other in found.values()),
        "all": max(worst(everything, other[1], relative=True) for other in found.values()),
        "loss": [np.asarray(other[2].loss).tolist() for other in found.values()],
        # XLA may unite it with what else is reduced there.
        "gradients": sum(kind == "all-reduce" and b >= 4 * size for kind, b in told),
        "bytes": sum(b for _, b in told) / (4 * size),
    }


def trained(net: Any) -> Any:
    return eqx.filter(net, eqx.is_inexact_array)


def worst(tree: Any, other: Any, relative: bool = False) -> float:
    """The largest difference of two numbers of these trees."""
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True)
    apart = [
        np.max(np.abs(x - y) / (1 + np.abs(x) if relative else 1), initial=0)
        for x, y in ((np.nan_to_num(a), np.nan_to_num(b)) for a, b in pairs if a.dtype.kind == "f")
    ]
    return float(max(apart))


@pytest.mark.full
@pytest.mark.parametrize("agent", SIZES)
def test_shards_are_a_setting_and_devices_are_not(agent: str):
    found = call(shards, agent)
    assert found["net"] <= 1e-6
    assert found["all"] <= 1e-5
    np.testing.assert_allclose(found["loss"], [found["loss"][0]] * len(found["loss"]), atol=1e-5)
    assert found["gradients"] == GRADIENTS[agent]
    assert found["bytes"] < GRADIENTS[agent] + 0.5  # beside them a few numbers


SEEDS = Setup("CartPole-v1", agent="ppo", seeds=(0, 1, 2, 3))
PPO = {"memory": "none", "width": 8, "environments": 4, "rollout": 8, "minibatches": 1}
PPO |= {"epochs": 1, "block": 2, "blocks": 3, "episodes": 2}


def seeds() -> dict[str, Any]:
    """Four seeds on four devices, each alone, and a run that changes devices twice.

    ENV has few observations, so greedy actions are far from ties, which a rounding could break.
    """
    setup = dataclasses.replace(SEEDS, env=ENV, config=find("ppo").Config(**PPO))
    compiled = Count()
    run = Run(setup, devices=4)
    reports = list(run)
    blocks = compiled.number("block_all")
    text = jax.jit(run.program.block).lower(run._config, run.state).compile().as_text()
    two, alone = (Run(dataclasses.replace(setup, seeds=s), devices=len(s)) for s in ((2, 1), (3,)))
    assert [len(list(one)) for one in (two, alone)] == [3, 3]
    both = zip(*(jax.tree.leaves(unwrap_keys(x.state)) for x in (run, two)), strict=True)
    equal = [np.array_equal(x[jnp.array([2, 1])], y, equal_nan=True) for x, y in both]
    last = jax.tree.map(lambda x: x[3:], trained(run.state.net))
    with tempfile.TemporaryDirectory() as folder:
        for blocks_so_far, devices in ((1, 2), (2, 1), (3, 4)):
            now = Run(setup, folder, resume=blocks_so_far > 1, devices=devices)
            assert next(iter(now)).block == blocks_so_far
    returns = [[report.returns.tolist() for report in reports]]
    returns += [[row["returns"] for row in now.history]]
    net = worst(trained(run.state.net), trained(now.state.net))
    return {
        "compiled": blocks,
        "collectives": traffic(str(text)),
        "equal": all(equal),
        "alone": worst(last, trained(alone.state.net)),
        "returns": returns,
        "net": net,
    }


class Count:
    """Counts compilations, by the name of the function."""

    def __init__(self):
        self.names: list[str] = []
        jax.config.update("jax_log_compiles", True)
        logger = logging.getLogger("jax._src.interpreters.pxla")
        logger.addFilter(self._see)

    def _see(self, record: logging.LogRecord) -> bool:
        self.names.append(record.getMessage())
        return False

    def number(self, name: str) -> int:
        return sum(f"Compiling jit({name})" in text for text in self.names)


@pytest.mark.full
def test_seeds_train_on_whichever_device_as_if_alone():
    found = call(seeds)
    assert found["compiled"] == 1
    assert found["collectives"] == []
    assert found["equal"]  # bit for bit, on whichever of several devices
    # XLA compiles a program of one device otherwise, and one with another number of lanes.
    assert found["alone"] <= 1e-6
    np.testing.assert_allclose(*found["returns"], rtol=1e-5)
    assert found["net"] <= 1e-5


# What shards have in common: lanes of one device suffice to see it.

over_shards = partial(jax.vmap, axis_name=collectives.SHARDS)


@pytest.mark.slow
def test_a_mean_over_real_steps_is_that_of_all_shards():
    x = jax.random.normal(jax.random.key(0), (4, 9))
    mask = jnp.arange(9)[None] < jnp.array([1, 9, 0, 4])[:, None]
    own = over_shards(losses.masked_mean)(x, mask)
    np.testing.assert_allclose(own.mean(), x[mask].mean(), rtol=1e-6)
    nothing = over_shards(losses.masked_mean)(x, jnp.zeros((4, 9), bool))
    np.testing.assert_array_equal(nothing, 0)


def test_moments_are_those_of_all_shards():
    x = 5 + jax.random.normal(jax.random.key(0), (4, 9)) * jnp.arange(1.0, 5)[:, None]
    count, mean, square = over_shards(normalize.sample)(x)
    np.testing.assert_array_equal(count, 36)
    np.testing.assert_allclose(mean, [x.mean()] * 4, rtol=1e-6)
    np.testing.assert_allclose(square, [x.var() * 36] * 4, rtol=1e-5)


@pytest.mark.slow
def test_all_shards_standardize_alike():
    """Numbers that are equal over all shards, close to each other, or very large."""
    empty = Moments().identity()
    standardized = over_shards(lambda x: normalize.standardize(empty, x, 0.0)[1])
    rows = np.random.default_rng(0).normal(0, 1, (4, 9))
    for mean, scale in ((0.1, 0.0), (1000.0, 1e-2), (0.0, 1e25), (-3.0, 1.0)):
        x = np.float32(mean + scale * rows * [[1], [2], [3], [4]])
        exact = x.astype(float)
        wanted = (exact - exact.mean()) / (exact.std() + 1e-8)
        np.testing.assert_allclose(standardized(x), wanted, atol=1e-4)


def test_a_mean_of_halves_over_shards_is_finite():
    halves, single = jnp.full(4, 60_000, jnp.float16), jnp.arange(4.0)
    with jax.numpy_dtype_promotion("strict"):
        means = over_shards(lambda *own: collectives.mean(own))(halves, single)
    np.testing.assert_array_equal(means[1], 1.5)
    for mean in (means[0], over_shards(collectives.mean)(halves)):
        np.testing.assert_array_equal(mean, halves)
        assert mean.dtype == halves.dtype


def test_a_fold_keeps_the_order_of_shards():
    maps = jnp.array([2.0, 3.0, 5.0, 7.0]), jnp.array([1.0, 2.0, 3.0, 4.0])
    gain, total = over_shards(lambda *own: collectives.fold(Affine(), own))(*maps)
    np.testing.assert_array_equal(gain, 210)
    np.testing.assert_array_equal(total, 7 * (5 * (3 * 1 + 2) + 3) + 4)


def test_shards_of_many_devices_are_numbered_device_by_device():
    def one(x):
        both = collectives.gather(x), collectives.index(), collectives.part(jnp.arange(12))
        return *both, collectives.size() * jnp.ones(())

    inner = jax.vmap(one, axis_name=collectives.SHARDS)
    gathered, index, own, size = jax.vmap(inner, axis_name=collectives.DEVICES)(
        jnp.arange(6).reshape(2, 3)
    )
    np.testing.assert_array_equal(gathered, np.broadcast_to(np.arange(6), (2, 3, 6)))
    np.testing.assert_array_equal(np.ravel(index), np.arange(6))
    np.testing.assert_array_equal(own.ravel(), np.arange(12))
    np.testing.assert_array_equal(size, 6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["shard", "shard_device", "lane", "i"])
def test_an_axis_of_the_user_divides_nothing(name: str):
    mask = jnp.array([[True, False, False], [True, True, True]])

    def parts(mask):
        moments = normalize.sample(jnp.where(mask, 3.0, 1.0))
        loss = losses.masked_mean(jnp.ones(3), mask)
        keys = collectives.split(jax.random.key(0), 3)
        return moments, loss, jax.random.key_data(keys), collectives.gather(loss)

    got = jax.vmap(parts, axis_name=name)(mask)
    jax.tree.map(np.testing.assert_array_equal, got, jax.vmap(parts)(mask))


def test_only_the_network_has_the_same_key_in_all_shards():
    keys = over_shards(lambda _: collectives.split(jax.random.key(0), 3))(jnp.zeros(4))
    words = np.asarray(jax.random.key_data(keys))
    assert len(np.unique(words[:, 0], axis=0)) == 1
    assert len(np.unique(words[:, 1:].reshape(8, -1), axis=0)) == 8
    whole = collectives.split(jax.random.key(0), 3)
    np.testing.assert_array_equal(
        jax.random.key_data(whole), jax.random.key_data(jax.random.split(jax.random.key(0), 3))
    )


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("agent", SIZES)
def test_shards_have_one_network_whatever_its_fields_are_called(agent: str):
    """Linear attention has a `key`, which is not that of the state."""
    config = dataclasses.replace(setting(agent), memory="linear_attention")
    config = dataclasses.replace(config, minibatches=2) if agent == "ppo" else config
    nets = [
        jax.eval_shape(
            built(Setup(ENV, agent=agent, config=config, shards=shards)).init,
            repeatable(config),
            keys([0]),
        ).net
        for shards in (1, 2)
    ]
    assert jax.tree.leaves(nets[0]) == jax.tree.leaves(nets[1])


@pytest.mark.full
@pytest.mark.slow
def test_a_gradient_is_that_of_all_shards():
    """One minibatch in four shards: PPO's step is that on all rollouts at once, and clipped so."""
    ppo: Any = find("ppo")
    whole = ppo.Config(**SMALL, rollout=6, minibatches=1, epochs=2, max_grad_norm=1e-2)
    made = built(Setup(ENV, agent="ppo", config=whole))
    state = ppo.init(whole, made.env, made.params, jax.random.key(0))
    _, rollout = ppo.act(whole, made.env, made.params, state, jax.random.key(1))
    learn = ppo.learn
    once, told = learn(whole, state, rollout, jax.random.key(2))
    split = jax.tree.map(lambda x: x.reshape(4, -1, *x.shape[1:]), rollout)
    own = over_shards(partial(learn, part(whole, 4)), (None, 0, None))
    shards, said = own(state, split, jax.random.key(2))
    for shard in range(4):
        net = jax.tree.map(lambda x, shard=shard: x[shard], trained(shards.learner.net))
        assert worst(trained(once.learner.net), net) <= 5e-7
    assert worst(trained(once.learner.net), trained(state.learner.net)) > 1e-4  # it has moved
    np.testing.assert_allclose(said[0].mean(0), told[0], atol=1e-6)
    np.testing.assert_allclose(said[2][1], np.broadcast_to(told[2][1], 4), atol=1e-5)  # explained


def test_actors_of_all_shards_explore_as_those_of_one_agent():
    from mmrl.agents.r2d2 import actors

    whole = find("r2d2").Config(environments=8)
    own = over_shards(lambda _: actors.epsilons(part(whole, 4)))(jnp.zeros(4))
    np.testing.assert_allclose(own.ravel(), actors.epsilons(whole), rtol=1e-6)


@pytest.mark.slow
def test_importance_weights_know_how_likely_a_sequence_was_in_its_shard():
    """Exactly N P_i with P_i = p_i / (n S_d), over the least of all; shard 2 has nothing yet."""
    example = {"last": jnp.array(False)}
    priorities = jnp.array([[1.0, 2.0, 4.0], [1.0, 1.0, 9.0], [0.0, 0.0, 0.0], [3.0, 0.0, 0.0]])
    many = jnp.sum(priorities > 0, axis=1)

    class Steps(eqx.Module):
        last: Any

    example = Steps(jnp.array(False))
    empty = sequences.init(example, (), 24, length=2, overlap=0, burn_in=0, alpha=1.0)

    def one(p):
        table = jnp.zeros((24, 2), jnp.int32).at[:3, 0].set(jnp.where(p > 0, 2, 0))
        sums = (jnp.zeros((1, 24)).at[0, :3].set(p),)
        stored = jnp.sum(p > 0, dtype=jnp.int32)
        full = dataclasses.replace(empty, table=table, sums=sums, stored=stored)
        drawn = sequences.sample(full, jax.random.fold_in(jax.random.key(0), stored), 64, beta=0.5)
        return drawn.rows, drawn.weights

    rows, weights = (np.asarray(x) for x in over_shards(one)(priorities))
    p = np.asarray(priorities)
    law = p / (4 * np.maximum(p.sum(1, keepdims=True), 1e-9))
    share = float(many.sum()) * np.take_along_axis(law, np.minimum(rows, 2), axis=1)
    real = rows < 24
    assert not real[2].any() and real[[0, 1, 3]].all()
    np.testing.assert_array_equal(weights[2], 1)
    wanted = (share / share[real].min())[real] ** -0.5
    np.testing.assert_allclose(weights[real], wanted, rtol=1e-5)


def test_what_cannot_be_divided_is_refused():
    with pytest.raises(ValueError, match=r"`devices` must be 1, .*; got 4\. A CPU counts"):
        Run(dataclasses.replace(SEEDS, config=find("ppo").Config(**PPO)), devices=4)
    with pytest.raises(ValueError, match=r"JAX sees here; got 0\.$"):
        Run(dataclasses.replace(SEEDS, config=find("ppo").Config(**PPO)), devices=0)
    with pytest.raises(ValueError, match="`shards` must be a whole number from 1 on; got 0"):
        dataclasses.replace(SEEDS, shards=0)
    made = built(SEEDS)
    config = find("ppo").Config(**(PPO | {"environments": 6}))
    with pytest.raises(
        ValueError, match=r"`environments` must be a multiple of the 4 shards; got 6\.$"
    ):
        check(find("ppo"), config, made.env, made.params, shards=4)
    config = find("ppo").Config(**(PPO | {"minibatches": 2, "memory": "gru", "episodes": 4}))
    with pytest.raises(ValueError, match=r"rows of an iteration, 1; got 2\..* of the 4 shards"):
        Run(dataclasses.replace(SEEDS, config=config, shards=4))
    dqn = find("dqn").Config(batch=800, episodes=4)
    with pytest.raises(ValueError, match=r"`batch` must hold .* each of the 4 shards"):
        check(find("dqn"), dqn, made.env, made.params, shards=4)
