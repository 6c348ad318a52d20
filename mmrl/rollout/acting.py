"""Acting in **one** environment; batch with `jax.vmap`. A policy is any function

    (policy_state, obs, begin, key) -> (policy_state, action)   or   (policy_state, action, extras)

`begin` marks the first observation of an episode. The rollout never resets the policy state: a
memory does so itself, from `begin`, before it absorbs the observation. `extras` is any pytree to
keep next to the action: a log-probability, a value, the state that was acted from.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray, PyTree, Shaped

from mmrl import _random
from mmrl._dtypes import promoting
from mmrl.rollout.limits import legal, shown_last

Policy = Callable[[Any, Any, Any, Any], tuple[Any, ...]]
Recorded = Array | np.ndarray
"""On a device, or fetched from it to be drawn or counted."""


class Transition(eqx.Module):
    """(o_t, a_t, r_t, o_{t+1}) and three flags; `collect` returns one with a leading time axis.

    `next_obs` is what the action led to, also on the last step of an episode, where the environment
    has already been reset and the following `obs` belongs to the next episode. Where the episode
    terminated, numbers that are not finite are 0: no target depends on them. `begin` goes with
    `obs`; `terminated` and `truncated` go with `next_obs`, and both may be true at once.
    """

    obs: PyTree[Shaped[Recorded, "..."]]
    action: PyTree[Shaped[Recorded, "..."]]
    reward: Float[Recorded, "*time"]
    next_obs: PyTree[Shaped[Recorded, "..."]]
    begin: Bool[Recorded, "*time"]
    terminated: Bool[Recorded, "*time"]
    truncated: Bool[Recorded, "*time"]
    extras: PyTree[Shaped[Recorded, "..."]] = None

    @property
    def last(self) -> Bool[Recorded, "*time"]:
        """terminated ∨ truncated: no further step of this episode follows."""
        return self.terminated | self.truncated


class Carry(NamedTuple):
    """Where acting stopped: give it to the next `collect` and the episode goes on."""

    env_state: Any
    obs: Any
    begin: Any
    policy_state: Any


@promoting
def start(env: Any, params: Any, policy_state: PyTree, key: PRNGKeyArray) -> Carry:
    """The carry of a fresh environment: its first observation, with `begin` = True."""
    obs, env_state = env.reset(key, params)
    return Carry(env_state, obs, jnp.array(True), policy_state)


def collect(
    policy: Policy, env: Any, params: Any, carry: Carry, key: PRNGKeyArray, steps: int
) -> tuple[Carry, Transition]:
    """Act for `steps` steps in one environment, over the ends of episodes; leaves are [time, ...].

    Episodes do not end with the rollout: the first step has `begin` = False where it continues one.
    To collect in many environments, with leaves [env, time, ...]:
    `jax.vmap(lambda c, k: collect(policy, env, params, c, k, steps))(carries, keys)`.
    Raises `ValueError` if `steps` < 1.
    """
    if steps < 1:
        raise ValueError(f"`steps` must be at least 1, got {steps}: say how long to act.")
    return unroll(policy, env, params, carry, jax.random.split(_random.one_key(key), (steps, 2)))


def unroll(
    policy: Policy, env: Any, params: Any, carry: Carry, keys: Key[Array, "time 2"]
) -> tuple[Carry, Transition]:
    """`collect` with explicit randomness: `keys[t]` = (the policy's key, the environment's)."""
    words, key_of = _random.as_words(keys)
    return jax.lax.scan(lambda c, w: act(policy, env, params, c, key_of(w)), carry, words)


@promoting
def act(
    policy: Policy, env: Any, params: Any, carry: Carry, keys: Key[Array, "2"]
) -> tuple[Carry, Transition]:
    """One step: the policy acts on (obs, begin); the environment answers and may reset itself.

    The environment receives the nearest `legal` action; the transition keeps that of the policy.
    """
    policy_state, action, *extras = policy(carry.policy_state, carry.obs, carry.begin, keys[0])
    obs, env_state, reward, terminated, truncated, info = env.step(
        keys[1], carry.env_state, legal(env.action_space(params), action), params
    )
    terminated = jnp.asarray(terminated, bool)
    transition = Transition(
        obs=carry.obs,
        action=jax.tree.map(jnp.asarray, action),
        reward=jnp.asarray(reward, jnp.float32),
        next_obs=shown_last(info["final_observation"], terminated),
        begin=carry.begin,
        terminated=terminated,
        truncated=jnp.asarray(truncated, bool),
        extras=extras[0] if extras else None,
    )
    return Carry(env_state, obs, transition.last, policy_state), transition
