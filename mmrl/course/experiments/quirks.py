"""Two quirks of the code of Morad et al. (2024), to be switched on for comparison.

Without quirks, `block` computes what `mmrl.agents.dqn.block` does.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mmrl import losses
from mmrl.agents import dqn
from mmrl.nets import Net
from mmrl.rollout import evaluate

NAMES = ("loss", "target")
"""The Huber loss of a mean on segments; target states without the first observation."""


def loss(
    net: Net, target: Net, batch: Any, config: dqn.Config, quirks: tuple[str, ...]
) -> Float[Array, ""]:
    """`dqn.loss` with quirks.

    "loss": huber(mean |δ|) on segments, where the tape has mean huber(δ). "target": the states of
    the targets come from a scan over o_1, …, o_{t+1} with the flags of o_0, …, o_t.
    """
    steps = batch.steps
    if "target" in quirks:
        _, q = net(net.init(), steps.obs, batch.begin)
        _, next_q = net(net.init(), steps.next_obs, batch.begin)
        _, next_q_target = target(target.init(), steps.next_obs, batch.begin)
    else:
        ahead = (steps.obs, batch.begin, steps.next_obs)
        _, q, next_q = net.lookahead(net.init(), *ahead)
        _, _, next_q_target = target.lookahead(target.init(), *ahead)
    discount = config.gamma * (1 - steps.terminated)
    y = losses.double_q_target(config.reward_scale * steps.reward, discount, next_q, next_q_target)
    error = y - losses.taken(q, steps.action)
    if "loss" in quirks and config.batching == "segments":
        return losses.huber(losses.masked_mean(jnp.abs(error), batch.mask))
    return losses.td_loss(error, batch.mask)


def learn(config: dqn.Config, state: dqn.State, key: Array, quirks: tuple[str, ...]):
    """`dqn.learn` with this module's loss."""
    batch = dqn.sample(config, state, key)
    value, gradient = eqx.filter_value_and_grad(loss)(
        state.net, state.target, batch, config, quirks
    )
    trained = eqx.filter(state.net, eqx.is_inexact_array)
    step, optimizer = dqn.optimizer(config).update(gradient, state.optimizer, trained)
    net = eqx.apply_updates(state.net, step)
    target = jax.tree.map(
        lambda old, new: old + config.tau * (new - old) if eqx.is_inexact_array(old) else new,
        state.target,
        net,
    )
    state = eqx.tree_at(lambda s: (s.net, s.target, s.optimizer), state, (net, target, optimizer))
    return state, (value, jnp.mean(batch.mask, dtype=jnp.float32))


def iterate(config: dqn.Config, env: Any, params: Any, state: dqn.State, quirks: tuple[str, ...]):
    """`dqn.iterate` with this module's loss."""
    act_key, learn_key, key = jax.random.split(state.key, 3)
    state, rollout = dqn.act_and_store(config, env, params, state, act_key)
    learner, held = eqx.partition(state, dqn._is_learner(state))

    def gradient_step(learner, key):
        state, values = learn(config, eqx.combine(learner, held), key, quirks)
        return eqx.filter(state, dqn._is_learner(state)), values

    keys = jax.random.split(learn_key, config.updates)
    learner, (value, fill) = jax.lax.scan(gradient_step, learner, keys)
    state = eqx.combine(learner, held)
    state = eqx.tree_at(lambda s: (s.key, s.iteration), state, (key, state.iteration + 1))
    finite = jnp.all(jnp.isfinite(rollout.reward)) & jnp.all(jnp.isfinite(value))
    return state, (jnp.mean(value), jnp.mean(fill), finite)


def block(
    config: dqn.Config, env: Any, params: Any, state: dqn.State, quirks: tuple[str, ...]
) -> tuple[dqn.State, dqn.Metrics]:
    """`dqn.block` with this module's loss."""
    state, (value, fill, finite) = jax.lax.scan(
        lambda s, _: iterate(config, env, params, s, quirks), state, None, config.block
    )
    key, eval_key = jax.random.split(state.key)
    state = eqx.tree_at(lambda s: s.key, state, key)
    policy, memory_state = dqn.greedy(state.net), state.net.init()
    steps = params.max_steps_in_episode
    outcome = evaluate(policy, env, params, memory_state, eval_key, config.episodes, steps)
    finite = jnp.all(finite) & jnp.all(jnp.isfinite(outcome.returns))
    mean_fill = jnp.mean(fill)
    metrics = dqn.Metrics(outcome.returns, outcome.lengths, jnp.mean(value), mean_fill, finite)
    return state, metrics
