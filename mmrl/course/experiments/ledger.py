"""Training that records the returns of its episodes, so that no evaluation is needed."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from mmrl.agents import ppo
from mmrl.agents.ppo import diagnostics, learner, ppg
from mmrl.envs.base import Ends, Reset, Step, never
from mmrl.envs.wrappers.base import Wrapper

NOISE_ROLLOUTS = 8  # rollouts per estimate of the gradient noise scale


class Account(NamedTuple):
    """The inner state, the return of the current episode, and totals over finished episodes."""

    env_state: PyTree
    under_way: Array  # return of the current episode so far
    returns: Array  # sum of the returns of finished episodes
    episodes: Array  # number of finished episodes

    @property
    def time(self) -> Any:
        """Steps since the reset, as in every gymnax state."""
        return self.env_state.time


class Ledger(Wrapper):
    """Wrapper that adds up the returns of finished episodes.

    Observations and rewards do not change.
    """

    def inner_state(self, state: Account) -> PyTree:
        """Return the state of the wrapped environment."""
        return state.env_state

    def after_reset(self, key: PRNGKeyArray, reset: Reset, params: Any) -> Reset:
        """Start with all totals at 0."""
        obs, env_state = reset
        return obs, Account(env_state, *jnp.zeros(3))

    def after_step(
        self, key: PRNGKeyArray, before: Account, action: Any, step: Step, params: Any
    ) -> Step:
        """Add the reward, and count the episode if it ends."""
        obs, env_state, reward, terminated, info = step
        total = before.under_way + jnp.asarray(reward, jnp.float32)
        last = terminated | self.env.is_truncated(env_state, params)
        returns, count = before.returns + jnp.where(last, total, 0), before.episodes + last
        return obs, Account(env_state, total, returns, count), reward, terminated, info

    def step_and_reset(
        self, key: PRNGKeyArray, state: Account, action: Any, params: Any, ends: Ends = never
    ) -> tuple[Step, Reset]:
        """Step the environment, and carry the totals into the state after a reset."""
        step, (obs, fresh) = Wrapper.step_and_reset(self, key, state, action, params, ends)
        after = step[1]
        return step, (obs, fresh._replace(returns=after.returns, episodes=after.episodes))


class Block(NamedTuple):
    """Diagnostics of a block of training."""

    returns: Float[Array, "*any"]  # mean return of finished episodes, in unscaled rewards
    swing: Float[Array, "*any"]  # largest σ of the advantages divided by the smallest
    clip_fraction: Float[Array, "*any"]  # fraction of clipped ratios
    kl: Float[Array, "*any"]  # divergence from the behavior policy, in nats
    finite: Bool[Array, "*any"]  # True if all losses were finite


def advance(config: ppo.Config, env: Any, params: Any, state: Any) -> tuple[Any, Block]:
    """Run `config.block` iterations in an environment with a `Ledger`.

    Returns the new state and the `Block`, whose return is NaN if no episode ended.
    """

    def account(state):
        return (state.policy if isinstance(state, ppg.State) else state).carries.env_state

    nothing = jnp.zeros(config.environments)
    state = eqx.tree_at(account, state, account(state)._replace(returns=nothing, episodes=nothing))
    if isinstance(config, ppg.Config):
        state, (outcome, _) = jax.lax.scan(
            lambda s, _: ppg.phase(config, env, params, s),
            state,
            None,
            config.block // config.policy_iterations,
        )
    else:
        state, outcome = jax.lax.scan(
            lambda s, _: ppo.iterate(config, env, params, s), state, None, config.block
        )
    _, measures, (deviation, _), finite = outcome
    book = account(state)
    return state, Block(
        returns=jnp.sum(book.returns) / jnp.sum(book.episodes),
        swing=jnp.max(deviation) / jnp.maximum(jnp.min(deviation), 1e-8),
        clip_fraction=jnp.mean(measures.clip_fraction),
        kl=jnp.mean(measures.kl_behavior),
        finite=jnp.all(finite),
    )


def noise_of(config: ppo.Config, env: Any, params: Any, state: ppo.State) -> tuple[Array, Array]:
    """Estimate (S, |G|²), the noise and the signal of the policy gradient, on extra rollouts."""

    def one(key):
        act_key, shuffle_key = jax.random.split(key)
        _, rollout = ppo.act(config, env, params, state, act_key)
        _, batch, _ = learner.prepare(config, state.net, state.advantages, rollout)
        scales = diagnostics.noise_scale(
            config, state.learner, batch, shuffle_key, terms=("policy",)
        )
        return scales.noise, scales.signal

    keys = jax.random.split(jax.random.fold_in(state.key, 0), NOISE_ROLLOUTS)
    return jax.tree.map(jnp.mean, jax.lax.map(one, keys))
