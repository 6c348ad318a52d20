"""R2D2: its loss against DQN, rlax and a plain loop; what reaches it; its actors."""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from mmrl.agents import dqn, r2d2
from mmrl.course import plain
from mmrl.replay import sequences, tape
from tests.helpers import r2d2 as oracle
from tests.helpers.r2d2 import CONFIG, cut, game, place, stepwise, store

pytestmark = pytest.mark.slow

PLAIN = {"burn_in": 0, "n_step": 1, "rescale": False, "start": "zero"}
unroll = jax.jit(r2d2.unroll)


@eqx.filter_jit
@partial(eqx.filter_value_and_grad, has_aux=True)
def loss(online, target, sample, config):
    return r2d2.loss(online, target, sample, config)


def assert_same_gradient(ours: Any, theirs: Any, tolerance: float) -> None:
    leaves = [jax.tree.leaves(eqx.filter(tree, eqx.is_array)) for tree in (ours, theirs)]
    scale = max(float(np.abs(leaf).max()) for leaf in leaves[1])
    assert scale > 1e-3
    for a, b in zip(*leaves, strict=True):
        np.testing.assert_allclose(a, b, rtol=100 * tolerance, atol=tolerance * scale)


# The loss: DQN's, a loop's, rlax's


@pytest.mark.full
def test_without_its_additions_it_is_dqn_on_segments():
    memory = "lru"
    config = dataclasses.replace(CONFIG, **PLAIN, alpha=0.0)
    storage = store(config, game(memory).steps, game(memory).states)
    sample = jax.jit(sequences.sample, static_argnums=2)(storage, jax.random.key(1), 64)
    steps, mask = jax.device_get((sample.steps, sample.mask))
    assert (steps.terminated.sum() > 0) & (steps.truncated.sum() > 0) & ~mask.all()
    assert (sample.weights == 1).all()
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (steps, mask))
    begin, nothing = np.arange(mask.size) % 4 == 0, np.zeros(mask.size, np.int32)
    segments = tape.Sample(*jax.device_put((flat[0], begin, flat[1], nothing, nothing)))
    scale = config.reward_scale
    one_step = dataclasses.replace(plain.DQN, gamma=config.gamma, reward_scale=scale)
    value_and_grad = eqx.filter_jit(eqx.filter_value_and_grad(dqn.loss))
    net, other = game(memory).state.net, game(memory).other
    value, gradient = value_and_grad(net, other, segments, one_step)
    (ours, _), our_gradient = loss(net, other, sample, config)
    np.testing.assert_allclose(ours, value, rtol=1e-6)
    assert_same_gradient(our_gradient, gradient, 1e-6)


@pytest.mark.full_except("lru-5-zero-False")
@pytest.mark.parametrize(
    ("memory", "n", "start", "rescaling"),
    [("lstm", 3, "stored", True), ("lru", 5, "zero", False)],
)
def test_loss_and_gradient_equal_a_loop_and_rlax(memory: str, n: int, start: str, rescaling: bool):
    config = dataclasses.replace(CONFIG, n_step=n, start=start, rescale=rescaling)
    sample, nets = cut(config, memory), (game(memory).state.net, game(memory).other)
    at = config.burn_in

    @eqx.filter_jit
    @partial(eqx.filter_value_and_grad, has_aux=True)
    def by_hand(net, sample, y):
        q, next_q = stepwise(net, sample, config)
        chosen_q = jnp.take_along_axis(q, sample.steps.action[:, at:, None], axis=2)[..., 0]
        errors = jnp.where(sample.loss_mask[:, at:], y - chosen_q, 0)
        total = jnp.sum(sample.weights[:, None] * rlax.huber_loss(errors))
        return total / sample.loss_mask.sum(), (q, next_q)

    with jax.enable_x64(True):
        (net, target), sample = oracle.double((nets, sample))
        (value, td), gradient = loss(net, target, sample, config)
        real, own = sample.mask[:, at:], sample.loss_mask[:, at:]
        any_y = np.zeros(real.shape)
        (_, (q, next_q)), _ = jax.device_get(by_hand(net, sample, any_y))
        (_, (_, next_q_target)), _ = jax.device_get(by_hand(target, sample, any_y))
        y, naive = oracle.by_loop(config, sample, next_q, next_q_target)
        (expected, _), expected_gradient = by_hand(net, sample, y)
        np.testing.assert_allclose(value, expected, rtol=1e-8)
        assert_same_gradient(gradient, expected_gradient, 1e-8)
        steps = jax.tree.map(lambda x: x[:, at:], sample.steps)
        # Beyond the end of a window rlax sees its last value again, and no more rewards.
        discount = np.where(real, np.where(steps.terminated, 0.0, config.gamma), 1.0)
        reward = np.where(real, config.reward_scale * steps.reward, 0.0)
        end = np.minimum(np.arange(real.shape[1]), real.sum(1, keepdims=True) - 1)
        best, values = np.argmax(next_q, axis=2), next_q_target
        best = np.take_along_axis(best, end, axis=1)
        values = np.take_along_axis(values, end[..., None], axis=1)
        theirs = oracle.by_rlax(
            q, steps.action, values, best, reward, discount, n=n, rescaling=rescaling
        )
        np.testing.assert_allclose(td[own], theirs[own], rtol=1e-6, atol=1e-8)
        assert not td[~own].any()
    if rescaling:
        assert np.abs(y - naive).max() > 0.1


# What reaches the loss


def test_a_reward_counts_where_a_target_reads_it():
    config = dataclasses.replace(CONFIG, burn_in=2)
    sample = jax.tree.map(lambda x: x[:40], cut(config))
    host, at = jax.device_get(sample), config.burn_in
    read = np.zeros(sample.mask.shape, bool)
    for i, t in np.argwhere(host.loss_mask[:, at:]):
        read[i, [at + k for k in oracle.reads(config, host, i, t)]] = True
    np.testing.assert_array_equal(read[:, at:], host.mask[:, at:])  # hence every real step counts

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None))
    def value(bump, config):
        steps = dataclasses.replace(sample.steps, reward=sample.steps.reward + bump)
        other = dataclasses.replace(sample, steps=steps)
        return r2d2.loss(game().state.net, game().other, other, config)[0]

    bumps = np.concatenate([np.zeros((1, read.size)), np.eye(read.size)])
    values = value(jnp.float32(bumps).reshape(-1, *read.shape), config)
    np.testing.assert_array_equal(values[1:] != values[0], read.ravel())


@pytest.mark.parametrize("memory", ["lstm", "lru"])
def test_no_gradient_reaches_the_prefix_the_state_or_the_tail(memory: str):
    net, other = game(memory).state.net, game(memory).other
    sample, at = cut(CONFIG, memory), CONFIG.burn_in
    inputs = sample.state, sample.steps.obs

    @jax.jit
    def both(inputs):
        def value(inputs):
            steps = dataclasses.replace(sample.steps, obs=inputs[1])
            changes = dataclasses.replace(sample, state=inputs[0], steps=steps)
            return r2d2.loss(net, other, changes, CONFIG)[0]

        return jax.value_and_grad(value)(inputs)

    value, (state, obs) = both(inputs)
    assert not any(x.any() for x in jax.tree.leaves(state))
    assert not obs[:, :at].any() and not obs[:, at + CONFIG.length :].any()
    assert obs[:, at : at + CONFIG.length].any(axis=(0, 2)).all()
    # The loss depends on all of them all the same.
    later_state = jax.tree.map(lambda x: x + 0.1, inputs[0])
    assert both((later_state, inputs[1]))[0] != value
    for part in (slice(at), slice(at + CONFIG.length, None)):
        assert both((inputs[0], inputs[1].at[:, part].add(0.1)))[0] != value


def test_padding_is_never_looked_at():
    sample, at = cut(CONFIG), CONFIG.burn_in
    pad = ~np.asarray(sample.mask)
    before = pad & (np.arange(pad.shape[1]) < at)
    assert before.any() and (pad & ~before).any() and (sample.loss_mask & pad).sum() == 0
    context = ~np.asarray(sample.loss_mask)  # an action of the tail is not valued either
    steps = sample.steps
    noise = np.float32(np.random.default_rng(0).normal(size=steps.obs.shape))
    # Where no `begin` follows, what is no number would spoil the parameters' gradient.
    has_begin = np.asarray(sample.begin.any(axis=1))[:, None]
    noise[before & has_begin] = np.nan
    spoilt = dataclasses.replace(
        sample,
        state=jax.tree.map(lambda x: jnp.where(has_begin, jnp.nan, x), sample.state),
        steps=dataclasses.replace(
            steps,
            obs=jnp.where(pad[..., None], noise, steps.obs),
            next_obs=jnp.where(pad[..., None], noise, steps.next_obs),
            action=jnp.where(context, 3 - steps.action, steps.action),
            reward=jnp.where(pad, jnp.nan, steps.reward),
            terminated=jnp.where(pad, noise[..., 0] > 0, steps.terminated),
            truncated=jnp.where(pad, noise[..., 1] > 0, steps.truncated),
        ),
    )
    results = [loss(game().state.net, game().other, s, CONFIG) for s in (sample, spoilt)]
    jax.tree.map(np.testing.assert_array_equal, *results)


# Recurrent states


@pytest.mark.full
def test_a_whole_prefix_or_a_fresh_state_gives_the_exact_values():
    exact = [
        ("lru", "zero", oracle.LONGEST, True), ("lru", "zero", 0, False),
        ("lstm", "stored", 0, True), ("lstm", "stored", 4, True), ("lru", "stored", 4, True),
    ]  # fmt: skip
    for memory, start, burn_in, same in exact:
        state, _, _, q, _ = game(memory)
        config = dataclasses.replace(CONFIG, start=start, burn_in=burn_in)
        sample = cut(config, memory)
        own = np.asarray(sample.loss_mask[:, burn_in:])
        where = place(np.asarray(sample.rows), own.shape[1])
        ours = np.asarray(unroll(config, state.net, sample)[1][:, :-1])
        error = np.abs(ours - q[where])[own].max()
        assert error < 2e-6 if same else error > 1e-3
