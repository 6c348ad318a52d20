"""Saturation test: play for much longer than an episode without resetting the memory."""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from mmrl import _random
from mmrl._dtypes import with_promotion
from mmrl.inspect.subjects import Subject
from mmrl.rollout import act, start


class Saturation(NamedTuple):
    """Measurements without memory resets, in windows of T steps.

    `norm` is the mean norm of the memory's state. `nonfinite` is the fraction of its values that
    are not finite. `returns` is the sum of rewards in each window, and `reset_returns` is the same
    sum for the agent with the usual resets.
    """

    norm: Float[np.ndarray, " window"]
    nonfinite: Float[np.ndarray, " window"]
    returns: Float[np.ndarray, "window episode"]
    reset_returns: Float[np.ndarray, "window episode"]

    @property
    def growth(self) -> float:
        """Ratio of `norm` in the last window to `norm` in the first; NaN if there is no state."""
        return float(self.norm[-1] / self.norm[0]) if self.norm[0] > 0 else float("nan")


def saturate(
    agent: Subject, env: Any, params: Any, key: PRNGKeyArray, episodes: int, times: int = 8
) -> Saturation:
    """Play for `times` T steps in `episodes` environments, where T is the longest episode.

    New episodes start as usual, but `begin` is True only at the first step, so the memory is never
    reset. In tasks that require resets, such as recalling the first card of an episode, `returns`
    decreases for this reason. `norm` and `nonfinite` show whether the state is stable. Raises
    `ValueError` if `times` is below 2.
    """
    if times < 2:
        raise ValueError(f"`times` must be at least 2 windows; got {times}.")
    steps = int(params.max_steps_in_episode)
    run = partial(_long, agent, env, params, _random.one_key(key), episodes, steps * times)
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
    agent: Subject, env: Any, params: Any, key: PRNGKeyArray, episodes: int, steps: int, reset: bool
) -> tuple[Array, Array, Array]:
    """Return rewards, norms, and fractions of values that are not finite, [episode, time]."""
    policy = agent.policy()

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
            size = jnp.linalg.norm(jnp.where(finite, transition.extras, 0))
            nonfinite = jnp.mean(~finite) if finite.size else jnp.zeros(())
            return carry, (transition.reward, size, nonfinite)

        first = start(env, params, (agent.start, jnp.array(True)), start_key)
        return jax.lax.scan(step, first, words)[1]

    return jax.vmap(one)(jax.random.split(key, episodes))
