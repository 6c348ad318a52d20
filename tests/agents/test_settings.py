"""Agents and memories under JAX's settings: key reuse, 64-bit, strict promotion; large counts."""

import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from mmrl import memory
from mmrl._dtypes import advance
from mmrl.agents import AGENTS, find
from mmrl.envs import make
from mmrl.replay import sequences, tape

SIZES: dict[str, Any] = {
    "environments": 2,
    "rollout": 4,
    "updates": 2,
    "minibatches": 2,
    "epochs": 1,
    "block": 2,
    "blocks": 1,
    "episodes": 2,
    "width": 4,
}
# What each agent has besides its defaults: other batching methods, networks, measurements.
OTHERS: list[tuple[str, dict[str, Any]]] = [
    *((agent, {}) for agent in AGENTS),
    ("dqn", {"batching": "segments", "batch": 40}),
    ("ppo", {"memory": "none", "shared": True, "noise_scale": True}),
    ("ppo", {"proximal": "ewma", "staleness": 1, "memory": "ffm"}),
    ("ppg", {"memory": "none", "value_epochs": 2}),
]


def training(agent: str, **settings: Any) -> partial[Any]:
    """A whole run of one block, of a key."""
    env, params = make("probe-Match-v0")
    kind, small = find(agent).Config, find(agent).SMALL
    sizes = {name: value for name, value in SIZES.items() if name in vars(kind())}
    return partial(find(agent).train, kind(**{**small, **sizes, **settings}), env, params)


@pytest.mark.full_except("dqn-{}", "pqn-{}")
@pytest.mark.slow
@pytest.mark.parametrize(("agent", "settings"), OTHERS, ids=str)
def test_no_key_is_used_twice(agent: str, settings: dict[str, Any]):
    """JAX checks as it traces, also where seeds are side by side."""
    keys = jax.random.split(jax.random.key(0))
    with jax.debug_key_reuse(True):
        jax.jit(jax.vmap(training(agent, **settings))).trace(keys)
        jax.jit(training(agent, **settings)).trace(keys[0])


SETTINGS = [(True, "standard"), (False, "strict"), (True, "strict")]


@pytest.mark.full_except("dqn-True-strict", "ppo-True-strict")
@pytest.mark.slow
@pytest.mark.parametrize(("x64", "promotion"), SETTINGS)
@pytest.mark.parametrize("agent", AGENTS)
def test_agents_train_in_64_bit_and_under_strict_promotion(agent: str, x64: bool, promotion: str):
    with jax.enable_x64(x64), jax.numpy_dtype_promotion(promotion):
        _, metrics = jax.eval_shape(training(agent), jax.random.key(0))
    assert metrics.returns.shape[0] == 1


def types(tree: Any) -> list[Any]:
    return [x.dtype for x in jax.tree.leaves(tree)]


@pytest.mark.parametrize(("x64", "promotion"), SETTINGS)
@pytest.mark.parametrize("name", memory.NAMES)
def test_the_state_of_a_memory_keeps_its_types(name: str, x64: bool, promotion: str):
    """Also where observations are narrower than parameters."""

    def states(key):
        net = memory.make(name, 3, 4, key=key)
        begin, after = jnp.zeros(5, bool), []
        for kind in (jnp.float32, float):
            xs = jnp.zeros((5, 3), kind)
            after += [net(net.init(), xs, begin)[0], net.step(net.init(), xs[0], begin[0])[0]]
            after += [net.lookahead(net.init(), xs, begin, xs)[0]]
            after += [net.states(net.init(), xs, begin)[1]] if hasattr(net, "states") else []
            if hasattr(net, "encode"):
                net.decode(net.monoid(net.monoid.identity(), net.encode(xs[0])), xs[0])
            elif hasattr(net, "cell"):
                net.read(net.cell(net.init(), xs[0]), xs[0])
        return net.init(), after

    with jax.enable_x64(x64), jax.numpy_dtype_promotion(promotion):
        before, after = jax.eval_shape(states, jax.random.key(0))
    for state in after:
        assert types(state) == types(before)


@pytest.mark.full_except("True-strict")
@pytest.mark.slow
@pytest.mark.parametrize(("x64", "promotion"), SETTINGS)
def test_parts_of_r2d2_run_on_their_own(x64: bool, promotion: str):
    """Outside of `block`, which allows promotion for all that it calls."""
    env, params = make("probe-Match-v0")
    r2d2, config = find("r2d2"), training("r2d2").args[0]

    def parts(key):
        state = r2d2.init(config, env, params, key)
        state, _ = r2d2.act_and_store(config, env, params, state, key)
        after, _ = r2d2.learn(config, state, key)
        sample = sequences.sample(state.sequences, key, 4)
        r2d2.loss(state.net, state.target, sample, config)
        inputs = [1, 2, 3], jnp.ones(3, jnp.int32), jnp.ones(3, jnp.bfloat16)
        rows = jnp.arange(3, dtype=jnp.int32)
        storages = [sequences.set_priority(state.sequences, rows, values) for values in inputs]
        size = [
            sequences.priority(jnp.asarray(values)[None], [[True, True, False]])
            for values in inputs
        ]
        return [state.sequences, after.sequences, *storages], size

    with jax.enable_x64(x64), jax.numpy_dtype_promotion(promotion):
        shapes, _ = jax.eval_shape(parts, jax.random.key(0))
    assert all(types(other) == types(shapes[0]) for other in shapes)


@pytest.mark.full_except("dqn-True-strict", "ppo-True-strict")
@pytest.mark.slow
@pytest.mark.parametrize(("x64", "promotion"), SETTINGS)
@pytest.mark.parametrize("agent", ["dqn", "ppo", "clear", "pqn"])
def test_an_iteration_runs_on_its_own(agent: str, x64: bool, promotion: str):
    """Outside of `block`, and with the loss by itself."""
    settings = {"batch": 40} if agent == "dqn" else {}
    module, (config, env, params) = find(agent), training(agent, **settings).args

    def iterate(key):
        state = module.init(config, env, params, key)
        if agent == "dqn":
            batch = module.sample(config, state, key)
            module.loss(state.net, state.target, batch, config)
            tape.gather(state.tape, jnp.arange(3), jnp.arange(3), jnp.ones(3, bool))
        return types(state), types(module.iterate(config, env, params, state)[0])

    with jax.enable_x64(x64), jax.numpy_dtype_promotion(promotion):
        kinds: list[Any] = []
        jax.eval_shape(lambda key: kinds.append(iterate(key)), jax.random.key(0))
    ((before, after),) = kinds
    assert before == after


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_counts_end_below_2_to_the_31(agent: str):
    """A negative count would raise rates and turn schedules around."""
    config, env, params = training(agent, **({"staleness": 2} if agent == "ppo" else {})).args
    module = find(agent)

    def counts(state):
        state = state.policy if agent == "ppg" else state
        return [state.iteration, *([state.gradient_steps] if agent == "r2d2" else [])]

    @jax.jit  # which leaves out all else
    def after(start, key):
        state = module.init(config, env, params, key)
        state = eqx.tree_at(counts, state, [start] * len(counts(state)))
        return counts(module.block(config, env, params, state)[0])

    for start in (0, 2**31 - 2, 2**31 - 1):
        _, *others = results = [int(count) for count in after(jnp.int32(start), jax.random.key(0))]
        assert min(results) > start - 50 and (
            agent != "ppo" or (results[0] - start) % 3 == config.block
        )
        # Both copies of the parameters are made when they are due.
        for count in others:
            steps = count - start - config.block * config.updates
            assert steps % math.lcm(config.target_period, config.actor_period) == 0


@pytest.mark.parametrize("periods", [(), (3,), (500,), (50, 10), (6, 4)])
def test_a_count_keeps_its_remainders(periods: tuple[int, ...]):
    count, least = jnp.int32(2**31 - 3), 2**31 - 2 - math.lcm(*periods)
    for want in range(2**31 - 2, 2**31 + 3):
        count = advance(count, 1, *periods)
        assert count > least and all(count % each == want % each for each in periods)
        assert want >= 2**31 or count == want
        assert want >= 2**31 or count == want
