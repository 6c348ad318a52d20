"""Rollouts and evaluations of a policy in an environment, as pure functions.

The functions have no batch axis; use `jax.vmap` for many environments. A policy is any function

    (policy_state, obs, begin, key) -> (policy_state, action)   or   (policy_state, action, extras)

`begin` is True at the first observation of an episode. A rollout never resets the policy state.
Instead, a memory resets itself when `begin` is True. `extras` is any pytree to store along with the
action, such as its log-probability, a value estimate, or the policy state before the action.
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
from mmrl._dtypes import accumulate, finite, with_promotion
from mmrl._spaces import stuck

__all__ = ["AnyArray", "Carry", "Evaluation", "Policy", "Transition"]
__all__ += ["act", "collect", "evaluate", "start", "unroll"]

Policy = Callable[[Any, Any, Any, Any], tuple[Any, ...]]
AnyArray = Array | np.ndarray
"""JAX array, or a NumPy array after it has been copied to the host."""


class Transition(eqx.Module):
    """Transition (o_t, a_t, r_t, o_{t+1}) with three flags; rollouts have a leading time axis.

    `action` is the policy's action, before `legal` moved it into the action space, and `next_obs`
    is the observation after it. At the end of an episode, the environment resets itself, so
    `next_obs` differs from the next `obs`, which starts a new episode. At a termination, non-finite
    values in `next_obs` are replaced by 0, because no target depends on them. `begin` is True if
    `obs` is the first of an episode; `terminated` and `truncated` refer to `next_obs`.

        >>> last, x = jnp.array([False, True]), jnp.zeros(2)
        >>> steps = Transition(x, x, x, x, ~last, terminated=last, truncated=x > 0)
        >>> steps.last
        Array([False,  True], dtype=bool)
    """

    obs: PyTree[Shaped[AnyArray, "..."]]
    action: PyTree[Shaped[AnyArray, "..."]]
    reward: Float[AnyArray, "*time"]
    next_obs: PyTree[Shaped[AnyArray, "..."]]
    begin: Bool[AnyArray, "*time"]
    terminated: Bool[AnyArray, "*time"]
    truncated: Bool[AnyArray, "*time"]
    extras: PyTree[Shaped[AnyArray, "..."]] = None

    @property
    def last(self) -> Bool[AnyArray, "*time"]:
        """Flags that mark the last step of each episode: terminated or truncated."""
        return self.terminated | self.truncated


class Carry(NamedTuple):
    """State between two rollouts; pass it to the next `collect` to continue."""

    env_state: Any
    obs: Any
    begin: Any
    policy_state: Any


@with_promotion
def start(env: Any, params: Any, policy_state: PyTree, key: PRNGKeyArray) -> Carry:
    """Reset an environment and return the initial carry, in which `begin` is True.

    >>> from mmrl import envs
    >>> env, params = envs.make("probe-Memory-v0")
    >>> start(env, params, (), jax.random.key(0)).begin
    Array(True, dtype=bool)
    """
    obs, env_state = env.reset(key, params)
    return Carry(env_state, obs, jnp.array(True), policy_state)


def collect(
    policy: Policy, env: Any, params: Any, carry: Carry, key: PRNGKeyArray, steps: int
) -> tuple[Carry, Transition]:
    """Collect `steps` transitions from one environment, with leaves of shape [time, ...].

    The rollout continues across episode ends, and an episode may span several rollouts. For many
    environments, with leaves [env, time, ...], use `jax.vmap(lambda c, k: collect(policy, env,
    params, c, k, steps))(carries, keys)`. Raises `ValueError` if `steps` < 1.

        >>> from mmrl import envs
        >>> env, params = envs.make("probe-Memory-v0")
        >>> carry = start(env, params, (), jax.random.key(0))
        >>> policy = lambda state, obs, begin, key: (state, 0)
        >>> collect(policy, env, params, carry, jax.random.key(1), steps=20)[1].begin.sum()
        Array(4, dtype=int32)
    """
    if steps < 1:
        raise ValueError(f"`steps` must be at least 1, got {steps}.")
    return unroll(policy, env, params, carry, jax.random.split(_random.one_key(key), (steps, 2)))


def unroll(
    policy: Policy, env: Any, params: Any, carry: Carry, keys: Key[Array, "time 2"]
) -> tuple[Carry, Transition]:
    """Collect one transition per pair of keys, `keys[t]` = (policy key, environment key)."""
    words, key_of = _random.as_words(keys)
    return jax.lax.scan(lambda c, w: act(policy, env, params, c, key_of(w)), carry, words)


@with_promotion
def act(
    policy: Policy, env: Any, params: Any, carry: Carry, keys: Key[Array, "2"]
) -> tuple[Carry, Transition]:
    """Take one step in an environment and return the transition.

    The environment receives the nearest `legal` action, and resets itself at the end of an episode.
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
        # A crashed simulation may return NaN. Targets ignore it, but gradients would not.
        next_obs=finite(info["final_observation"], terminated),
        begin=carry.begin,
        terminated=terminated,
        truncated=jnp.asarray(truncated, bool),
        extras=extras[0] if extras else None,
    )
    return Carry(env_state, obs, transition.last, policy_state), transition


def legal(space: Any, action: Any) -> Any:
    """Return the nearest action in a `Box`, in its dtype; do not change actions of other spaces."""
    if not hasattr(space, "low"):
        return action
    dtype = jax.dtypes.canonicalize_dtype(space.dtype)
    # Use the same dtype for bounds and action, because 64-bit bounds may round differently.
    real = jnp.promote_types(dtype, jnp.float32)
    ends = (jnp.asarray(x, real) for x in (space.low, space.high))
    low, high = (jnp.broadcast_to(x, space.shape) for x in ends)
    nearest = jnp.rint if jnp.issubdtype(dtype, jnp.integer) else jnp.asarray
    return nearest(jnp.clip(jnp.asarray(action, real), low, high)).astype(dtype)


class Evaluation(eqx.Module):
    """Returns and lengths of the first episode in each of several environments.

    Returns are undiscounted, and lengths are in steps. `ended` is False if `max_steps` cut the
    episode short, in which case its return is partial. `observed` is False if an observation was
    not finite; the last observation of a terminated episode is not checked. `stuck` is a step
    without a legal action, counted from 1 (0: none), or None without `wrappers.ActionMask`.
    """

    returns: Float[Array, " episodes"]
    lengths: Int[Array, " episodes"]
    ended: Bool[Array, " episodes"]
    observed: Bool[Array, " episodes"]
    stuck: Int[Array, " episodes"] | None = None


@with_promotion
def evaluate(
    policy: Policy,
    env: Any,
    params: Any,
    policy_state: PyTree,
    key: PRNGKeyArray,
    episodes: int,
    max_steps: int,
) -> Evaluation:
    """Play one episode in each of several environments; return their returns Σ_t r_t and lengths.

    The environments are stepped in parallel, each starting from `policy_state`, which has no batch
    axis. Later episodes of an environment are not counted, so that short episodes are not
    over-represented. The loop stops when all first episodes have ended, or after `max_steps` steps.
    Raises `ValueError` if `episodes` or `max_steps` is below 1.

        >>> from mmrl import envs
        >>> env, params = envs.make("probe-Memory-v0")
        >>> policy = lambda state, obs, begin, key: (state, 0)
        >>> evaluate(policy, env, params, (), jax.random.key(0), episodes=3, max_steps=9).lengths
        Array([5, 5, 5], dtype=int32)
    """
    for name, value in (("episodes", episodes), ("max_steps", max_steps)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
    key, key_start = jax.random.split(_random.one_key(key))
    begin = partial(start, env, params, policy_state)
    carries = jax.vmap(begin)(jax.random.split(key_start, episodes))
    carries = split_rows(carries, "`episodes`")
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
    _, carries, result, _ = jax.lax.while_loop(running, body, start_of_all)
    return dataclasses.replace(result, stuck=stuck(carries.env_state))


def _count(
    so_far: Evaluation, rest: Float[Array, " episodes"], transition: Transition
) -> tuple[Evaluation, Float[Array, " episodes"]]:
    """Add one step to the result of each unfinished episode; `rest` is from `accumulate`."""
    finite = all_finite((transition.obs, transition.next_obs))
    after, left = accumulate((so_far.returns, rest), transition.reward)
    result = Evaluation(
        returns=jnp.where(so_far.ended, so_far.returns, after),
        lengths=so_far.lengths + jnp.where(so_far.ended, 0, 1),
        ended=so_far.ended | transition.last,
        observed=so_far.observed & (so_far.ended | finite),
    )
    return result, left


def all_finite(tree: PyTree[Shaped[Array, "rows ..."]]) -> Bool[Array, " rows"]:
    """Return True for each row in which every value of every leaf is finite."""
    rows = [jnp.isfinite(x).reshape(len(x), -1).all(axis=1) for x in jax.tree.leaves(tree)]
    return jnp.all(jnp.stack(rows), axis=0)
