"""Saturation test: play for much longer than an episode without resetting the memory."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from mmrl import _random
from mmrl._dtypes import with_promotion
from mmrl.inspect.playing import find_entries
from mmrl.inspect.subjects import Subject, flat_state
from mmrl.rollout import act, start


class Saturation(NamedTuple):
    """Measurements without memory resets, in windows of T steps.

    `norm` is the mean norm of the entries of the memory's state on which the agent's values depend.
    Counters of steps, for example, are left out. `nonfinite` is the fraction of all entries of the
    state that are not finite. `returns` is the sum of rewards in each window, and `reset_returns`
    is the same sum for the agent with the usual resets.
    """

    norm: Float[np.ndarray, " window"]
    nonfinite: Float[np.ndarray, " window"]
    returns: Float[np.ndarray, "window episode"]
    reset_returns: Float[np.ndarray, "window episode"]

    @property
    def growth(self) -> float:
        """Ratio of `norm` in the last window to `norm` in the first; NaN if that is 0."""
        return float(self.norm[-1] / self.norm[0]) if self.norm[0] > 0 else float("nan")


def saturate(
    agent: Subject,
    env: Any,
    params: Any,
    key: PRNGKeyArray,
    episodes: int,
    times: int = 8,
    read: PyTree | None = None,
) -> Saturation:
    """Play for `times` T steps in `episodes` environments, where T is the longest episode.

    New episodes start as usual, but `begin` is True only at the first step, so the memory is never
    reset. In tasks that require resets, such as recalling the first card of an episode, `returns`
    decreases for this reason. `norm` and `nonfinite` show whether the state is stable. `read` marks
    the entries that count for `norm`, by default those that `read_entries` finds in a few episodes.
    Raises `ValueError` if `times` is below 2, or `episodes` below 1.
    """
    if episodes < 1:
        raise ValueError(f"`episodes` must be at least 1; got {episodes}.")
    if times < 2:
        raise ValueError(f"`times` must be at least 2 windows; got {times}.")
    steps = int(params.max_steps_in_episode)
    read = find_entries(agent, env, params, key) if read is None else read
    run = partial(_long, agent, env, params, _random.one_key(key), read, episodes, steps * times)
    (rewards, sizes, nonfinite), (reset_rewards, *_) = (
        jax.device_get(run(x)) for x in (False, True)
    )

    def windows(x: Any) -> np.ndarray:
        return np.asarray(x, np.float64).reshape(episodes, times, steps)

    return Saturation(
        windows(sizes).mean((0, 2)),
        windows(nonfinite).mean((0, 2)),
        windows(rewards).sum(2).T,
        windows(reset_rewards).sum(2).T,
    )


@eqx.filter_jit
@with_promotion
def _long(
    agent: Subject,
    env: Any,
    params: Any,
    key: PRNGKeyArray,
    read: PyTree,
    episodes: int,
    steps: int,
    reset: bool,
) -> tuple[Array, Array, Array]:
    """Return rewards, norms, and fractions of values that are not finite, [episode, time]."""
    policy = agent.policy()
    counts = flat_state(jax.tree.map(_mark, read, agent.start)) > 0

    def greedy(state: Any, obs: Any, begin: Any, key: Any) -> Any:
        memory, first = state
        memory, action, extras = policy(memory, obs, begin if reset else first, key)
        return (memory, jnp.array(False)), action, extras[0]

    def one(key: Any) -> Any:
        start_key, key = jax.random.split(key)
        words, key_of = _random.as_words(jax.random.split(key, (steps, 2)))

        def step(carry: Any, words: Any) -> Any:
            carry, transition = act(greedy, env, params, carry, key_of(words))
            finite = jnp.isfinite(transition.extras)
            size = jnp.linalg.norm(jnp.where(finite & counts, transition.extras, 0))
            nonfinite = jnp.mean(~finite) if finite.size else jnp.zeros(())
            return carry, (transition.reward, size, nonfinite)

        first = start(env, params, (agent.start, jnp.array(True)), start_key)
        return jax.lax.scan(step, first, words)[1]

    return jax.vmap(one)(jax.random.split(key, episodes))


def _mark(read: Any, x: Array) -> Array:
    """Return the flags `read`, or 1 + i and 0 if x is complex, to mark both parts of a number."""
    return read * (1 + 1j) if jnp.iscomplexobj(x) else read
