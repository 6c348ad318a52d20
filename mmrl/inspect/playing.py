"""Recording of episodes, including the states of the agent's memory."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, Shaped

from mmrl import _random
from mmrl._dtypes import with_promotion
from mmrl.inspect.subjects import Subject
from mmrl.rollout import act, start

HostArray = np.ndarray


class Episodes(NamedTuple):
    """One episode of each environment, padded to equal lengths.

    `mask` is False after the end of an episode. `memory` is the memory state after the
    observation of each step, and `values` are the agent's values at that step. `state` is the
    Markov state of the environment, with size 0 if the environment does not provide it.
    """

    obs: PyTree[Shaped[HostArray, "episode time ..."]]
    action: Shaped[HostArray, "episode time *action"]
    reward: Float[HostArray, "episode time"]
    mask: Bool[HostArray, "episode time"]
    memory: Float[HostArray, "episode time h"]
    values: Float[HostArray, "episode time action"]
    state: Float[HostArray, "episode time state"]


def play(
    agent: Subject, env: Any, params: Any, key: PRNGKeyArray, episodes: int, steps: int
) -> Episodes:
    """Play one greedy episode in each of `episodes` environments, for at most `steps` steps.

    The observations of `env` must already include all inputs of the agent, as in `mmrl.runs`.
    Raises `ValueError` for fewer than two steps, or for fewer than two episodes, because `recall`
    exchanges observations between episodes.

        >>> from mmrl import envs
        >>> from mmrl.inspect import subject
        >>> from mmrl.nets import Net
        >>> env, params = envs.make("probe-Memory-v0")
        >>> agent = subject(Net.make("none", 3, 2, key=jax.random.key(0)))
        >>> play(agent, env, params, jax.random.key(1), episodes=2, steps=9).mask.sum(1)
        array([5, 5])
    """
    for name, value in (("episodes", episodes), ("steps", steps)):
        if value < 2:
            raise ValueError(f"`{name}` must be at least 2; got {value}.")
    env = env.twin() if hasattr(env, "twin") else env  # the twin provides the complete state
    arrays = _play(agent, env, params, _random.one_key(key), episodes, steps)
    return Episodes(*jax.device_get(arrays))


@eqx.filter_jit
@with_promotion
def _play(
    agent: Subject, env: Any, params: Any, key: PRNGKeyArray, episodes: int, steps: int
) -> Episodes:
    policy = agent.policy()

    def one(key: Any) -> Episodes:
        start_key, key = jax.random.split(key)
        words, key_of = _random.as_words(jax.random.split(key, (steps, 2)))

        def step(loop: Any, words: Any) -> Any:
            carry, mask = loop
            state = _markov_state(env, carry.env_state, params)
            carry, transition = act(policy, env, params, carry, key_of(words))
            memory, values = transition.extras
            row = (
                transition.obs,
                transition.action,
                transition.reward,
                mask,
                memory,
                values,
                state,
            )
            return (carry, mask & ~transition.last), row

        first = start(env, params, agent.start, start_key), jnp.array(True)
        return Episodes(*jax.lax.scan(step, first, words)[1])

    return jax.vmap(one)(jax.random.split(key, episodes))


def _markov_state(env: Any, state: Any, params: Any) -> Float[Array, " state"]:
    """Return the Markov state as a vector, which is empty if there is no `state_obs`."""
    if not hasattr(env, "state_obs"):
        return jnp.zeros(0)
    try:
        return jnp.ravel(env.state_obs(state, params)).astype(jnp.float32)
    except ValueError:  # the wrapped environment has no method `state_obs`
        return jnp.zeros(0)


def unroll(
    agent: Subject, state: PyTree, obs: PyTree[Shaped[Array, "time ..."]], first: Any = True
) -> tuple[PyTree, PyTree, Float[Array, "time action"]]:
    """Process an episode; return the last state, the state before each step, and the values.

    `state` is the state before the episode, and `first` is the begin flag of its first observation.
    """

    def step(loop: Any, now: Any) -> Any:
        state, begin = loop
        after, values = agent.step(state, now, begin)
        return (after, jnp.array(False)), (state, values)

    (state, _), (before, values) = jax.lax.scan(step, (state, jnp.asarray(first)), obs)
    return state, before, values
