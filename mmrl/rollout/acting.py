"""Acting: a policy meets an environment, and what happened comes back as arrays.

Everything here is about **one** environment and has no batch axis; batch with `jax.vmap`. A policy
is any function

    (policy_state, obs, begin, key) -> (policy_state, action)   or   (policy_state, action, extras)

so a rollout knows nothing about networks. `begin` says that `obs` is the first of an episode. The
rollout never resets the policy state: a memory does that itself, from `begin`, before it absorbs
the observation. `extras` is any pytree that the policy wants to keep beside its action: a
log-probability, a value, the state it acted from.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray, PyTree, Shaped

from mmrl import _random

Policy = Callable[[Any, Any, Any, Any], tuple[Any, ...]]
"""`(policy_state, obs, begin, key) -> (policy_state, action[, extras])`."""
Recorded = Array | np.ndarray
"""On a device, or fetched from it to be drawn or counted."""


class Transition(eqx.Module):
    """(o_t, a_t, r_t, o_{t+1}) and three flags; `collect` returns one with a leading time axis.

    `next_obs` is what the action led to, also on the last step of an episode, where the environment
    has already been reset and the following `obs` belongs to the next episode. `begin` goes with
    `obs`; `terminated` and `truncated` go with `next_obs`, and both may be true at once. `extras`
    is what the policy returned beside its action, None if nothing.
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
    """`collect` with its randomness spelled out: `keys[t]` = (the policy's key, the environment's).

    `unroll` over keys[:n], then over keys[n:] from the carry it returned, equals one `unroll` over
    all of them.
    """
    words, key_of = _random.as_words(keys)
    return jax.lax.scan(lambda c, w: act(policy, env, params, c, key_of(w)), carry, words)


def act(
    policy: Policy, env: Any, params: Any, carry: Carry, keys: Key[Array, "2"]
) -> tuple[Carry, Transition]:
    """One step: the policy acts on (obs, begin); the environment answers and may reset itself.

    `keys` are those of one step in `unroll`.
    """
    policy_state, action, *extras = policy(carry.policy_state, carry.obs, carry.begin, keys[0])
    obs, env_state, reward, terminated, truncated, info = env.step(
        keys[1], carry.env_state, action, params
    )
    transition = Transition(
        obs=carry.obs,
        action=jax.tree.map(jnp.asarray, action),
        reward=jnp.asarray(reward, jnp.float32),
        next_obs=info["final_observation"],
        begin=carry.begin,
        terminated=jnp.asarray(terminated, bool),
        truncated=jnp.asarray(truncated, bool),
        extras=extras[0] if extras else None,
    )
    return Carry(env_state, obs, transition.last, policy_state), transition
