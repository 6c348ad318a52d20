"""Scoring: the first episode of each of several environments that act side by side."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree, Shaped

from mmrl import _random
from mmrl._dtypes import accumulate, promoting
from mmrl.rollout.acting import Carry, Policy, Transition, act, start


class Evaluation(eqx.Module):
    """The first episode of each of several environments, undiscounted.

    `lengths` counts steps; `ended` is False where `max_steps` cut the episode, whose return is then
    partial. `observed` is False where an observation was not finite, except the last of an episode
    that terminated.
    """

    returns: Float[Array, " episodes"]
    lengths: Int[Array, " episodes"]
    ended: Bool[Array, " episodes"]
    observed: Bool[Array, " episodes"]


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
    """Σ_t r_t over the first episode of each of `episodes` environments that act side by side.

    Every environment starts from `policy_state` (no axis for episodes). Counting the first episode
    of each, and not the first that end, keeps short episodes from being over-represented. Stops as
    soon as all have ended, at the latest after `max_steps` steps. Raises `ValueError` if `episodes`
    or `max_steps` is below 1.
    """
    for name, value in (("episodes", episodes), ("max_steps", max_steps)):
        if value < 1:
            raise ValueError(f"`{name}` must be at least 1, got {value}.")
    key, key_start = jax.random.split(_random.one_key(key))
    carries = jax.vmap(lambda k: start(env, params, policy_state, k))(
        jax.random.split(key_start, episodes)
    )
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
    return jax.lax.while_loop(running, body, start_of_all)[2]


def _count(
    so_far: Evaluation, rest: Float[Array, " episodes"], transition: Transition
) -> tuple[Evaluation, Float[Array, " episodes"]]:
    """Add one step to every episode that has not ended; with `where`, so that no NaN leaks in.

    `rest` is that of `accumulate`, for the returns.
    """
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
    """Are all numbers in each row finite, over all leaves?"""
    rows = [jnp.isfinite(x).reshape(len(x), -1).all(axis=1) for x in jax.tree.leaves(tree)]
    return jnp.all(jnp.stack(rows), axis=0)
