"""Progress & Compress: which column each phase moves, and what the base learns from the other."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import envs
from mmrl.course.continual import cycles, progress, schedules
from mmrl.envs import continual as tasks
from mmrl.envs.wrappers import ActionMask
from mmrl.nets import Categorical

pytestmark = pytest.mark.slow

FAMILY, PARAMS = tasks.permuted_catch(3, rows=4, columns=3)
TINY = progress.Config(
    memory="none",
    width=8,
    environments=3,
    rollout=6,
    block=2,
    blocks=2,
    episodes=4,
    fisher_unrolls=2,
    compress=3,
)

LONG = dataclasses.replace(TINY, compress=300)  # enough for the base to follow; one program


def distance(a: Any, b: Any) -> float:
    leaves = [jax.tree.leaves(eqx.filter(x, eqx.is_inexact_array)) for x in (a, b)]
    return max(float(np.abs(x - y).max()) for x, y in zip(*leaves, strict=True))


@jax.jit
def begin(config: Any) -> Any:
    return progress.init(config, FAMILY, PARAMS, jax.random.key(0), tasks=jnp.zeros(3, int))


@jax.jit
def iterate(config: Any, state: Any) -> Any:
    return progress.iterate(config, FAMILY, PARAMS, state)


@jax.jit
def leave(config: Any, state: Any) -> Any:
    return progress.leave(config, FAMILY, PARAMS, state)


@pytest.mark.full
@pytest.mark.parametrize("memory", ["none", "lru"])
def test_a_step_is_the_tape(memory: str):
    """Both columns, and the lookahead: where the next observation is the tape's own."""
    config = progress.Config(memory=memory, width=8)
    net = progress.columns(config, FAMILY, PARAMS, jax.random.key(1))
    obs = jax.random.normal(jax.random.key(2), (7, 12))
    begin = jnp.array([True, False, False, True, False, False, False])
    _, tape = net(net.init(), obs, begin)
    state, by_step = net.init(), []
    for o, b in zip(obs, begin, strict=True):
        state, outputs = net.step(state, o, b)
        by_step.append(outputs)
    steps = jax.tree.map(lambda *x: jnp.stack(x), *by_step)
    np.testing.assert_allclose(steps.policy.logits, tape.policy.logits, atol=1e-5)
    np.testing.assert_allclose(steps.value, tape.value, atol=1e-5)
    _, now, ahead = net.lookahead(net.init(), obs, begin, jnp.roll(obs, -1, axis=0))
    np.testing.assert_allclose(now.value, tape.value, atol=1e-5)
    same = np.array([0, 1, 3, 4, 5])
    np.testing.assert_allclose(ahead.value[same], tape.value[same + 1], atol=1e-5)


@pytest.mark.full
def test_progress_moves_the_active_column_alone():
    state = begin(LONG)
    after, _ = iterate(LONG, state)
    assert distance(after.net.base, state.net.base) == 0
    assert min(distance(after.net.active, state.net.active), 1) > 1e-5
    assert distance(after.net.adapter, state.net.adapter) > 1e-5
    # What the active column says depends on the base, through the adapter.
    other = eqx.tree_at(
        lambda n: n.base.body, state.net, jax.tree.map(lambda x: x + 1.0, state.net.base.body)
    )
    obs, first = jnp.ones(12), jnp.array(True)
    logits = [net.step(net.init(), obs, first)[1].policy.logits for net in (state.net, other)]
    assert np.abs(logits[0] - logits[1]).max() > 1e-4


@pytest.mark.full
def test_compression_moves_the_base_towards_the_active_column():
    config = dataclasses.replace(LONG, learning_rate=1e-6)  # the base has a rate of its own
    state = begin(config)
    # A column with opinions: it always goes to the right.
    bias = jnp.array([-2.0, 0.0, 3.0, 1.5])
    state = eqx.tree_at(lambda s: s.learner.net.active.head.linear.bias, state, bias)
    after = leave(config, state)
    assert distance(after.net.active, state.net.active) == 0
    obs = state.learner.carries.obs
    for row in obs:
        outputs = [
            net.step(net.init(), row, jnp.array(True))[1]
            for net in (state.net, state.past_net, after.past_net)
        ]
        active, before, base = (Categorical(o.policy.logits) for o in outputs)
        assert active.kl(base) < 0.05 < 0.5 < active.kl(before)
        np.testing.assert_allclose(outputs[2].value, outputs[0].value, atol=0.2)
    assert distance(after.anchor, after.past_net) == 0
    assert max(x.max() for x in jax.tree.leaves(after.fisher)) > 0
    # The adapter starts anew, and so does the optimizer.
    assert distance(after.net.adapter, state.net.adapter) > 1e-3


def test_the_base_goes_on_from_its_own_state():
    """The active column has no memory here: its state is none that the base could take."""

    def make(config: Any, env: Any, params: Any, key: Any) -> progress.Columns:
        active, base = (
            progress.columns(dataclasses.replace(config, memory=name), env, params, key)
            for name in ("none", "elman")
        )
        return eqx.tree_at(lambda c: c.base, active, base.base)

    def after_a_stage() -> Any:
        key, tasks = jax.random.key(0), jnp.zeros(3, int)
        state = progress.init(TINY, FAMILY, PARAMS, key, make, tasks)
        return progress.leave(TINY, FAMILY, PARAMS, state).fisher

    assert jax.tree.leaves(jax.eval_shape(after_a_stage))


@pytest.mark.full
def test_what_the_base_knows_is_held():
    start = leave(LONG, begin(LONG))
    distances = []
    for weight in (0.0, 1e4):
        config = dataclasses.replace(LONG, consolidation=weight)
        other = eqx.tree_at(
            lambda s: s.learner.net.active.head.linear.bias, start, jnp.array([3.0, 0, -3, 2])
        )
        after = leave(config, other)
        distances.append(float(progress.ewc_penalty(start.fisher, start.anchor, after.past_net)))
    assert distances[1] < 0.1 * distances[0]


@pytest.mark.full
def test_it_fits_into_a_cycle():
    plan = schedules.sequential(range(3), 1, 3)
    state, curves = jax.eval_shape(
        lambda c, k: cycles.cycle(progress, c, FAMILY, PARAMS, plan, 3, k), TINY, jax.random.key(1)
    )
    assert curves.by_policy["sampled"].scores.shape == (3, 2, 3)
    assert jax.tree.structure(state) == jax.tree.structure(begin(LONG))
    _, (_, _, finite) = iterate(LONG, leave(LONG, begin(LONG)))
    assert finite


def test_a_mask_of_legal_actions_is_refused():
    env, params = envs.make("probe-MaskedBandit-v0")
    env = ActionMask(env)
    with pytest.raises(ValueError, match="`env` must not have a mask"):
        progress.init(TINY, env, params, jax.random.key(0))
