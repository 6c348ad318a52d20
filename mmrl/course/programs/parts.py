"""Parts that all programs share: environments that act, parameters that change."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from mmrl._dtypes import finite
from mmrl.pdg.build.program import Program
from mmrl.pdg.build.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class Environment:
    """One environment, as two functions.

    `reset(key)` gives (obs, state), and `step(key, state, action)` (obs, state, reward,
    terminated, truncated), where `obs` is what the action led to, also at an end. What comes after
    an end is never used, nor a terminal observation that is NaN or infinite.
    """

    reset: Callable[[PRNGKeyArray], tuple[Any, Any]]
    step: Callable[[PRNGKeyArray, Any, Any], tuple[Any, Any, Any, Any, Any]]

    @classmethod
    def of(cls, env: Any, params: Any) -> "Environment":
        """An environment with gymnax's interface, and its parameters, as two functions.

        After an end gymnax gives the first observation of the next episode; what the action led to
        is `final_observation` in its info. Raises `ValueError` if it is missing.
        """

        def step(key: PRNGKeyArray, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
            *answer, info = env.step(key, state, action, params)
            if len(answer) != 5 or "final_observation" not in info:
                raise ValueError(
                    "`env.step` must give (obs, state, reward, terminated, truncated, info) with "
                    f"info['final_observation'], got {len(answer) + 1} values and an info with "
                    f"{sorted(info)}. For such an environment write Environment(reset, step)."
                )
            _, state, reward, terminated, truncated = answer
            return info["final_observation"], state, reward, terminated, truncated

        return cls(lambda key: env.reset(key, params), step)


@dataclasses.dataclass(frozen=True)
class Network:
    """`init(key)` gives parameters, `apply(params, obs)` logits; A2C, PPO: (logits, value)."""

    init: Callable[[PRNGKeyArray], PyTree]
    apply: Callable[[PyTree, Any], Any]


@dataclasses.dataclass(frozen=True)
class Memory:
    """A network with a state: `apply(params, state, obs)` gives (state, logits), from `start()`."""

    init: Callable[[PRNGKeyArray], PyTree]
    start: Callable[[], PyTree]
    apply: Callable[[PyTree, PyTree, Any], tuple[PyTree, Any]]


@dataclasses.dataclass(frozen=True)
class Steps:
    """The step at [i, t, b]."""

    seen: Tensor
    """(observation, alive). `alive` is 1 up to the step that ends an episode, then 0."""
    carried: Tensor
    """(state, return so far)"""
    after: Tensor
    """`seen`, as the action left it: what is seen at t + 1."""
    reward: Tensor
    """0 once an episode has ended."""
    goes_on: Tensor
    """0 if the environment terminated here: no value follows."""
    score: Tensor
    """Mean return of the episodes of iteration i."""


def begin(p: Program, environment: Environment) -> tuple[Tensor, Tensor]:
    """`seen` and `carried`, with their first step: x[i, 0, b] = reset()."""
    i, *_, t, b = p.symbols

    def reset(key: PRNGKeyArray) -> tuple:
        obs, state = environment.reset(key)
        return (obs, jnp.ones(())), (state, jnp.zeros(()))

    seen, carried = p.tensor(i, t, b, name="seen"), p.tensor(i, t, b, name="carried")
    seen[i, 0, b], carried[i, 0, b] = p.sample(reset, over=(i, b), name="reset")
    return seen, carried


def advance(
    p: Program, environment: Environment, seen: Tensor, carried: Tensor, action: Tensor
) -> Steps:
    """One step of the environment, and x[i, t + 1, b] = what it led to."""
    (i, *_, t, b), (*_, T, B) = p.symbols, p.bounds

    def step(key: PRNGKeyArray, seen: Any, carried: Any, action: Array) -> tuple:
        (_, alive), (state, score) = seen, carried
        obs, state, reward, terminated, truncated = environment.step(key, state, action)
        reward = jnp.where(alive > 0, reward, 0.0)
        obs = finite(obs, terminated | (alive == 0))
        after = (obs, jnp.where(terminated | truncated, 0.0, alive))
        return after, (state, score + reward), reward, jnp.where(terminated, 0.0, 1.0)

    after, moved, reward, goes_on = p.sample(step, seen, carried, action, name="step")
    seen[i, t + 1, b], carried[i, t + 1, b] = after, moved
    score = p.fn(lambda c: c[1].mean(), moved[i, T - 1, 0:B], name="score")
    return Steps(seen, carried, after, reward, goes_on, score)


def start(
    p: Program, network: Network | Memory, optimizer: Any
) -> tuple[tuple[Tensor, Tensor], Callable]:
    """The first parameters with the optimizer's state, and the function that updates both."""

    def first(key: PRNGKeyArray) -> tuple:
        params = network.init(key)
        return params, optimizer.init(params)

    def update(params: PyTree, state: PyTree, gradient: PyTree) -> tuple:
        changes, state = optimizer.update(gradient, state, params)
        return jax.tree.map(jnp.add, params, changes), state

    return p.sample(first, name="start"), update


def log_prob(logits: Float[Array, "... action"], action: Int[Array, "..."]) -> Float[Array, "..."]:
    """log π(a), of logits."""
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]
