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


def resolve_own(own: PyTree, episodes: Episodes) -> PyTree:
    """Return the flags `own`, or flags that are all True if `own` is None.

    Raises `ValueError` if they do not have the shape of an observation.
    """
    if own is None:
        return jax.tree.map(lambda x: np.ones(x.shape[2:], bool), episodes.obs)
    shapes = jax.tree.map(lambda x: x.shape[2:], episodes.obs), jax.tree.map(np.shape, own)
    if shapes[0] != shapes[1]:
        raise ValueError(f"`own` must have the observation's shape, {shapes[0]}; got {shapes[1]}.")
    return own


def read_entries(agent: Subject, episodes: Episodes) -> PyTree[Bool[HostArray, "..."]]:
    """Return flags that mark the entries of the memory's state on which the values depend.

    The flags have the structure of the state. An entry is marked if the values have a gradient with
    respect to it at any step. Counters, such as the number of steps in a window, have none.
    """
    return jax.device_get(_read_entries(agent, episodes.obs, episodes.mask))


def find_entries(agent: Subject, env: Any, params: Any, key: PRNGKeyArray) -> PyTree:
    """Return `read_entries` of 16 episodes, of which at most 128 steps are played."""
    steps = min(max(2, int(params.max_steps_in_episode)), 128)
    return read_entries(agent, play(agent, env, params, key, 16, steps))


@eqx.filter_jit
@with_promotion
def _read_entries(agent: Subject, obs: PyTree, mask: Any) -> PyTree:
    other = eqx.filter(agent.start, eqx.is_inexact_array, inverse=True)

    def at(state: PyTree, obs: PyTree, mask: Any) -> PyTree:
        def values(real: PyTree) -> Array:
            return agent.step(eqx.combine(real, state), obs, jnp.array(False))[1]

        own = eqx.filter(state, eqx.is_inexact_array)
        result, back = jax.vjp(values, own)
        direction = jax.random.normal(jax.random.key(0), result.shape, result.dtype)
        return jax.tree.map(lambda x: mask & (x != 0), back(direction)[0])

    def one(row: Any) -> PyTree:
        obs, mask = row
        obs = jax.tree.map(lambda x: jnp.asarray(x).astype(float), obs)
        _, before, _ = unroll(agent, agent.start, obs)
        # The first step is left out, because the memory is reset there.
        flags = jax.vmap(at)(before, obs, mask & (jnp.arange(len(mask)) > 0))
        return jax.tree.map(lambda x: jnp.any(x, axis=0), flags)

    flags = jax.tree.map(lambda x: jnp.any(x, axis=0), jax.lax.map(one, (obs, mask)))
    unread = jax.tree.map(lambda x: jnp.zeros(jnp.shape(x), bool), other)
    return eqx.combine(flags, unread)
