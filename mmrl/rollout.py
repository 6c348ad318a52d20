"""Acting and evaluation: a policy acts in an environment, and the results are arrays.

There is no batch axis; batch with `jax.vmap`. A policy is any function

    (policy_state, obs, begin, key) -> (policy_state, action)   or   (policy_state, action, extras)

`begin` marks the first observation of an episode. The rollout never resets the policy state: the
memory does, when it reads `begin`. `extras` is any pytree to store with the action, such as a
log-probability, a value, or the state before the action.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree, Shaped

from mmrl import _random
from mmrl._devices import split_rows
from mmrl._dtypes import accumulate, finite, promoting
from mmrl._spaces import stuck

__all__ = ["Carry", "Evaluation", "Policy", "Recorded", "Transition"]
__all__ += ["act", "collect", "evaluate", "start", "unroll"]

Policy = Callable[[Any, Any, Any, Any], tuple[Any, ...]]
Recorded = Array | np.ndarray
"""Array on a device, or fetched from it to draw or count."""


class Transition(eqx.Module):
    """(o_t, a_t, r_t, o_{t+1}) and three flags; `collect` returns one with a leading time axis.

    `action` is the policy's, before `legal`. `next_obs` is where it led, also on the last step of
    an episode, where the environment has been reset and the following `obs` belongs to the next
    episode. Where the episode terminated, numbers that are not finite are 0: no target depends on
    them. `begin` belongs to `obs`; `terminated` and `truncated` belong to `next_obs`, and both may
    be True.
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
    """State between two rollouts: pass it to the next `collect` to continue the episode."""

    env_state: Any
    obs: Any
    begin: Any
    policy_state: Any


@promoting
def start(env: Any, params: Any, policy_state: PyTree, key: PRNGKeyArray) -> Carry:
    """Return the carry of a fresh environment: its first observation, with `begin` = True."""
    obs, env_state = env.reset(key, params)
    return Carry(env_state, obs, jnp.array(True), policy_state)


def collect(
    policy: Policy, env: Any, params: Any, carry: Carry, key: PRNGKeyArray, steps: int
) -> tuple[Carry, Transition]:
    """Act for `steps` steps in one environment, across episode ends; leaves are [time, ...].

    An episode may span rollouts: the next rollout then starts with `begin` = False. To collect in
    many environments, with leaves [env, time, ...]: `jax.vmap(lambda c, k: collect(policy, env,
    params, c, k, steps))(carries, keys)`. Raises `ValueError` if `steps` < 1.
    """
    if steps < 1:
        raise ValueError(f"`steps` must be at least 1, got {steps}. Choose how long to act.")
    return unroll(policy, env, params, carry, jax.random.split(_random.one_key(key), (steps, 2)))


def unroll(
    policy: Policy, env: Any, params: Any, carry: Carry, keys: Key[Array, "time 2"]
) -> tuple[Carry, Transition]:
    """Run `collect` with explicit randomness: `keys[t]` = (the policy's key, the environment's)."""
    words, key_of = _random.as_words(keys)
    return jax.lax.scan(lambda c, w: act(policy, env, params, c, key_of(w)), carry, words)


@promoting
def act(
    policy: Policy, env: Any, params: Any, carry: Carry, keys: Key[Array, "2"]
) -> tuple[Carry, Transition]:
    """Act for one step; the environment gets the nearest `legal` action, and may reset itself."""
    policy_state, action, *extras = policy(carry.policy_state, carry.obs, carry.begin, keys[0])
    obs, env_state, reward, terminated, truncated, info = env.step(
        keys[1], carry.env_state, legal(env.action_space(params), action), params
    )
    terminated = jnp.asarray(terminated, bool)
    transition = Transition(
        obs=carry.obs,
        action=jax.tree.map(jnp.asarray, action),
        reward=jnp.asarray(reward, jnp.float32),
        # No target depends on a NaN from a crashed simulation, but gradients would.
        next_obs=finite(info["final_observation"], terminated),
        begin=carry.begin,
        terminated=terminated,
        truncated=jnp.asarray(truncated, bool),
        extras=extras[0] if extras else None,
    )
    return Carry(env_state, obs, transition.last, policy_state), transition


def legal(space: Any, action: Any) -> Any:
    """Return the nearest action in a `Box`, in its dtype; leave actions of other spaces as they
    are.
    """
    if not hasattr(space, "low"):
        return action
    dtype = jax.dtypes.canonicalize_dtype(space.dtype)
    real = jnp.promote_types(dtype, jnp.float32)  # 64-bit bounds round differently
    ends = (jnp.asarray(x, real) for x in (space.low, space.high))
    low, high = (jnp.broadcast_to(x, space.shape) for x in ends)
    nearest = jnp.rint if jnp.issubdtype(dtype, jnp.integer) else jnp.asarray
    return nearest(jnp.clip(jnp.asarray(action, real), low, high)).astype(dtype)


class Evaluation(eqx.Module):
    """The first episode of each of several environments, undiscounted.

    `lengths` counts steps; `ended` is False where `max_steps` cut the episode, whose return is then
    partial. `observed` is False where an observation was not finite, except the last of an episode
    that terminated. `stuck` is the number of a step, from 1, in which no action was legal; 0 if
    there was none, and None without `wrappers.ActionMask`.
    """

    returns: Float[Array, " episodes"]
    lengths: Int[Array, " episodes"]
    ended: Bool[Array, " episodes"]
    observed: Bool[Array, " episodes"]
    stuck: Int[Array, " episodes"] | None = None


@promoting
def evaluate(
    policy: Policy,
    env: Any,
    params: Any,
    policy_state: PyTree,
    key: PRNGKeyArray,
    episodes: int,
    max_steps: int,
) -> Evaluation:
    """Return Σ_t r_t over the first episode of each of `episodes` environments, acting in parallel.

    Every environment starts from `policy_state` (no axis for episodes). Counting each environment's
    first episode keeps short episodes from being over-represented. Stops when all have ended, or
    after `max_steps` steps. Raises `ValueError` if `episodes` or `max_steps` is below 1.
    """
    for name, value in (("episodes", episodes), ("max_steps", max_steps)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
    key, key_start = jax.random.split(_random.one_key(key))
    begin = partial(start, env, params, policy_state)
    carries = split_rows(jax.vmap(begin)(jax.random.split(key_start, episodes)))
    zeros = Evaluation(
        returns=jnp.zeros(episodes, jnp.float32),
        lengths=jnp.zeros(episodes, jnp.int32),
        ended=jnp.zeros(episodes, bool),
        observed=jnp.ones(episodes, bool),
    )

    def running(loop: tuple[Array, Carry, Evaluation, Array]) -> Array:
        time, _, so_far, _ = loop
        return (time < max_steps) & ~jnp.all(so_far.ended)

    def body(
        loop: tuple[Array, Carry, Evaluation, Array],
    ) -> tuple[Array, Carry, Evaluation, Array]:
        time, carries, so_far, rest = loop
        keys = jax.random.split(jax.random.fold_in(key, time), (episodes, 2))
        carries, transition = jax.vmap(partial(act, policy, env, params))(carries, keys)
        return time + 1, carries, *_count(so_far, rest, transition)

    start_of_all = jnp.array(0), carries, zeros, jnp.zeros_like(zeros.returns)
    _, carries, played, _ = jax.lax.while_loop(running, body, start_of_all)
    return dataclasses.replace(played, stuck=stuck(carries.env_state))


def _count(
    so_far: Evaluation, rest: Float[Array, " episodes"], transition: Transition
) -> tuple[Evaluation, Float[Array, " episodes"]]:
    """Add a step to each episode that has not ended; `rest` is the rest of `accumulate`."""
    seen = all_finite((transition.obs, transition.next_obs))
    after, left = accumulate((so_far.returns, rest), transition.reward)
    counted = Evaluation(
        returns=jnp.where(so_far.ended, so_far.returns, after),
        lengths=so_far.lengths + jnp.where(so_far.ended, 0, 1),
        ended=so_far.ended | transition.last,
        observed=so_far.observed & (so_far.ended | seen),
    )
    return counted, left


def all_finite(tree: PyTree[Shaped[Array, "rows ..."]]) -> Bool[Array, " rows"]:
    """Return True for each row in which all numbers of all leaves are finite."""
    rows = [jnp.isfinite(x).reshape(len(x), -1).all(axis=1) for x in jax.tree.leaves(tree)]
    return jnp.all(jnp.stack(rows), axis=0)
