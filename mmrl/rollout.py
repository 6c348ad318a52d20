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
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree, Shaped

import mmrl._random  # noqa: F401  (acting draws often)

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


class Evaluation(eqx.Module):
    """The first episode of each of several environments, undiscounted.

    `lengths` counts steps; `ended` is False where `max_steps` cut the episode, whose return is then
    partial.
    """

    returns: Float[Array, " episodes"]
    lengths: Int[Array, " episodes"]
    ended: Bool[Array, " episodes"]


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
    return unroll(policy, env, params, carry, jax.random.split(key, (steps, 2)))


def unroll(
    policy: Policy, env: Any, params: Any, carry: Carry, keys: Key[Array, "time 2"]
) -> tuple[Carry, Transition]:
    """`collect` with its randomness spelled out: `keys[t]` = (the policy's key, the environment's).

    `unroll` over keys[:n], then over keys[n:] from the carry it returned, equals one `unroll` over
    all of them.
    """

    def step(carry: Carry, keys: Array) -> tuple[Carry, Transition]:
        return _step(policy, env, params, carry, keys[0], keys[1])

    return jax.lax.scan(step, carry, keys)


def evaluate(
    policy: Policy,
    env: Any,
    params: Any,
    policy_state: PyTree,
    key: PRNGKeyArray,
    episodes: int,
    max_steps: int,
) -> Evaluation:
    """Σ_t r_t over the first episode of each of `episodes` environments that act side by side.

    Every environment starts from `policy_state` (no axis for episodes). Counting the first episode
    of each, and not the first that end, keeps short episodes from being over-represented. Stops as
    soon as all have ended, at the latest after `max_steps` steps. Raises `ValueError` if `episodes`
    or `max_steps` is below 1.
    """
    for name, value in (("episodes", episodes), ("max_steps", max_steps)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
    key, key_start = jax.random.split(key)
    carries = jax.vmap(lambda k: start(env, params, policy_state, k))(
        jax.random.split(key_start, episodes)
    )
    zeros = Evaluation(
        returns=jnp.zeros(episodes, jnp.float32),
        lengths=jnp.zeros(episodes, jnp.int32),
        ended=jnp.zeros(episodes, bool),
    )

    def act(carry: Carry, keys: Array) -> tuple[Carry, Transition]:
        return _step(policy, env, params, carry, keys[0], keys[1])

    def running(loop: tuple[Array, Carry, Evaluation]) -> Array:
        time, _, so_far = loop
        return (time < max_steps) & ~jnp.all(so_far.ended)

    def body(loop: tuple[Array, Carry, Evaluation]) -> tuple[Array, Carry, Evaluation]:
        time, carries, so_far = loop
        keys = jax.random.split(jax.random.fold_in(key, time), (episodes, 2))
        carries, transition = jax.vmap(act)(carries, keys)
        return time + 1, carries, _count(so_far, transition)

    return jax.lax.while_loop(running, body, (jnp.array(0), carries, zeros))[2]


def _step(
    policy: Policy, env: Any, params: Any, carry: Carry, key_policy: Array, key_env: Array
) -> tuple[Carry, Transition]:
    """One step: the policy acts on (obs, begin); the environment answers and may reset itself."""
    policy_state, action, *extras = policy(carry.policy_state, carry.obs, carry.begin, key_policy)
    obs, env_state, reward, terminated, truncated, info = env.step(
        key_env, carry.env_state, action, params
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


def _count(so_far: Evaluation, transition: Transition) -> Evaluation:
    """Add one step to every episode that has not ended; with `where`, so that no NaN leaks in."""
    return Evaluation(
        returns=so_far.returns + jnp.where(so_far.ended, 0.0, transition.reward),
        lengths=so_far.lengths + jnp.where(so_far.ended, 0, 1),
        ended=so_far.ended | transition.last,
    )
