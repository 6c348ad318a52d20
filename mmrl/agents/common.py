"""What agents share: the choice of an action, the evaluation of a block, the checks of settings."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from mmrl.nets import Net
from mmrl.rollout import Evaluation, Policy, evaluate

AnyConfig = TypeVar("AnyConfig", bound=Any)


class Metrics(eqx.Module):
    """What one block was like: an evaluation of the greedy policy, and means over its updates."""

    returns: Float[Array, "*blocks episodes"]
    lengths: Int[Array, "*blocks episodes"]
    loss: Float[Array, "*blocks"]
    fill: Float[Array, "*blocks"]  # share of real steps in a batch
    finite: Bool[Array, "*blocks"]  # were all rewards and losses finite, in the evaluation too?
    diagnostics: PyTree = None  # what else an agent measures


def explore(
    q: Float[Array, " action"], epsilon: Float[Array, ""], key: PRNGKeyArray
) -> Int[Array, ""]:
    """A uniformly random action with probability ε, else argmax_a q_a."""
    # One draw serves both questions: given u < ε, u / ε is again uniform.
    u = jax.random.uniform(key)
    random = jnp.floor(u / jnp.maximum(epsilon, 1e-6) * q.size).astype(jnp.int32)
    random = jnp.minimum(random, q.size - 1)  # u / ε may round up to 1
    return jnp.where(u < epsilon, random, jnp.argmax(q).astype(jnp.int32))


def greedy(net: Net) -> Policy:
    """argmax_a Q(s, a)."""

    def act(memory_state, obs, begin, key):
        memory_state, q = net.step(memory_state, obs, begin)
        return memory_state, jnp.argmax(q).astype(jnp.int32)

    return act


def score(
    net: Any,
    env: Any,
    params: Any,
    key: PRNGKeyArray,
    episodes: int,
    policy: Callable[[Any], Policy] = greedy,
) -> Evaluation:
    """The first episode of the network's `policy` in each of several fresh environments."""
    most = params.max_steps_in_episode
    return evaluate(policy(net), env, params, net.init(), key, episodes, most)


def repeatable(config: AnyConfig) -> AnyConfig:
    """The settings of a program that is one block, and is repeated: a longer run compiles nothing.

    How many there are is no longer its shape, but a number where a schedule needs it: `horizon`.
    """
    length: dict[str, Any] = {"blocks": 1}
    if hasattr(config, "horizon"):
        length["horizon"] = float(config.horizon or config.blocks)
    return dataclasses.replace(config, **length)


def check_numbers(config: Any, shares: Sequence[str], from_zero: Sequence[str] = ()) -> None:
    """Raises `ValueError` for a number that is out of range; those that are traced pass.

    A whole number is at least 1, or 0 if it is in `from_zero`; a scalar in `shares` lies between 0
    and 1, one in `from_zero` between 0 and ∞; all others are positive and finite.
    """
    for field in dataclasses.fields(config):
        name, value = field.name, getattr(config, field.name)
        least = 0 if name in from_zero else 1
        if field.type is int and value < least:
            raise ValueError(f"`{name}` must be at least {least}; got {value}.")
        if field.type is not float or not isinstance(value, int | float):
            continue
        fits, wanted = 0 < value < math.inf, "positive and finite"
        if name in shares:
            fits, wanted = 0 <= value <= 1, "between 0 and 1"
        elif name in from_zero:
            fits, wanted = value >= 0, "at least 0"
        if not fits:
            raise ValueError(f"`{name}` must be {wanted}; got {value}.")


def check_discrete(env: Any, params: Any) -> None:
    """Raises `ValueError` unless the environment has a finite number of actions."""
    if not hasattr(env.action_space(params), "n"):
        raise ValueError(
            "`env` must have discrete actions for Q-learning; got a continuous action space."
        )
