"""Ablations: returns of a trained agent whose memory is disturbed during play."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from mmrl import _random
from mmrl.inspect.playing import find_entries
from mmrl.inspect.subjects import Subject
from mmrl.rollout import Policy, evaluate

NEVER = 2**30  # a step that no episode reaches


class Harm(NamedTuple):
    """Disturbance of a memory during play; the default has no effect.

    - `wipe`: reset the state to the initial state before this step.
    - `every`: reset the state before each step.
    - `freeze`: stop updating the state, starting at this step.
    - `delay`: act on the current observation and the state from `delay` steps earlier.
    - `noise`: add Gaussian noise to the state before each step, in the entries on which the values
      depend. Its standard deviation is relative to the root mean square of these entries.
    """

    wipe: int = NEVER  # steps
    every: bool = False
    freeze: int = NEVER  # steps
    delay: int = 0  # steps
    noise: float = 0.0  # relative to the root mean square


def harms(at: int, delay: int = 2, noise: float = 0.5) -> dict[str, Harm]:
    """Return a `Harm` of each kind, keyed by name; the wipe and the freeze occur at step `at`."""
    return {
        "unharmed": Harm(),
        f"wipe before step {at}": Harm(wipe=at),
        "wipe before each step": Harm(every=True),
        f"freeze from step {at}": Harm(freeze=at),
        f"delay by {delay} steps": Harm(delay=delay),
        f"noise of {noise:g} rms": Harm(noise=noise),
    }


def ablate(
    agent: Subject,
    env: Any,
    params: Any,
    key: PRNGKeyArray,
    kinds: Mapping[str, Harm],
    episodes: int,
    read: PyTree | None = None,
) -> dict[str, Float[np.ndarray, " episodes"]]:
    """Return the undiscounted returns of the greedy agent under each harm.

    All harms are evaluated with the same random seeds of the environments. `read` marks the entries
    of the state to which noise is added, by default those that `read_entries` finds in a few
    episodes. Raises `ValueError` for negative steps, delays or noise, or if `episodes` is below 1.
    """
    if episodes < 1:
        raise ValueError(f"`episodes` must be at least 1; got {episodes}.")
    for name, harm in kinds.items():
        if not (min(harm.wipe, harm.freeze, harm.delay) >= 0 and 0 <= harm.noise < np.inf):
            raise ValueError(f"`kinds` must have finite values of at least 0; got {name}: {harm}.")
    read = find_entries(agent, env, params, key) if read is None else read
    longest = max([1, *(harm.delay for harm in kinds.values())])
    key, returns = _random.one_key(key), {}
    for name, harm in kinds.items():
        traced = jax.tree.map(jnp.asarray, harm)
        values = _returns(agent, env, params, key, traced, longest, episodes, read)
        returns[name] = np.asarray(values)
    return returns


@eqx.filter_jit
def _returns(
    agent: Subject,
    env: Any,
    params: Any,
    key: PRNGKeyArray,
    harm: Any,
    longest: int,
    episodes: int,
    read: PyTree,
) -> Float[Array, " episodes"]:
    steps = params.max_steps_in_episode
    policy, start = with_harm(agent, harm, longest, read)
    return evaluate(policy, env, params, start, key, episodes, steps).returns


def with_harm(agent: Subject, harm: Harm, longest: int, read: PyTree) -> tuple[Policy, PyTree]:
    """Return the greedy policy of an agent under a harm, and the initial state of this policy.

    `longest` is the largest delay that `harm` may have, and `read` marks the entries of the state
    to which noise is added.
    """
    past = jax.tree.map(lambda x: jnp.stack([x] * longest), agent.start)
    fresh = (agent.start, past, jnp.int32(0))

    def act(state: PyTree, obs: PyTree, begin: Any, key: Any) -> tuple[PyTree, Any]:
        # Reset only the counter and the past states here, because the memory resets itself.
        memory, past, time = state
        past, time = _select(begin, (fresh[1], fresh[2]), (past, time))
        memory = _select((time == harm.wipe) | harm.every, agent.start, memory)
        memory = _select(harm.noise > 0, _noisy(memory, harm.noise, key, read), memory)
        earlier = jax.tree.map(lambda x: x[longest - jnp.maximum(harm.delay, 1)], past)
        before = _select(harm.delay > 0, earlier, memory)
        values = agent.step(before, obs, begin)[1]
        after = _select(time >= harm.freeze, memory, agent.step(memory, obs, begin)[0])
        # Where `begin` is true, `memory` is still the final state of the previous episode.
        own = _select(begin, agent.start, memory)
        past = jax.tree.map(lambda x, y: jnp.concatenate([x[1:], y[None]]), past, own)
        return (after, past, time + 1), agent.choose(values)

    return act, fresh


def _select(condition: Any, x: PyTree, y: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), x, y)


def _noisy(state: PyTree, noise: Any, key: PRNGKeyArray, read: PyTree) -> PyTree:
    """Add noise to the finite entries of a state that `read` marks."""
    leaves, tree = jax.tree.flatten(state)
    flags = [f & jnp.isfinite(x) for f, x in zip(jax.tree.leaves(read), leaves, strict=True)]
    squares = [
        jnp.sum(jnp.abs(jnp.where(f, x, 0)) ** 2) for f, x in zip(flags, leaves, strict=True)
    ]
    count = sum(jnp.sum(f) for f in flags)
    scale = noise * jnp.sqrt(sum(squares) / jnp.maximum(count, 1))
    for i, (f, x) in enumerate(zip(flags, leaves, strict=True)):
        if jnp.issubdtype(x.dtype, jnp.inexact):
            draws = jax.random.normal(jax.random.fold_in(key, i), x.shape, x.dtype)
            leaves[i] = x + jnp.where(f, scale * draws, 0)
    return jax.tree.unflatten(tree, leaves)
