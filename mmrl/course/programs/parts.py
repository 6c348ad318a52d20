"""Environments, networks and learners, which the reinforcement learning programs share."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from mmrl._dtypes import finite
from mmrl.pdg.build.autodiff import gradient
from mmrl.pdg.build.nn import Layer, Layers
from mmrl.pdg.build.program import Program
from mmrl.pdg.build.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class Environment:
    """A single environment, given by two functions.

    `reset(key)` returns (obs, state), and `step(key, state, action)` returns (obs, state, reward,
    terminated, truncated). `obs` is the observation after the action, even if the action ends the
    episode. Steps after the end of an episode are masked, and a terminal observation may be NaN or
    infinite.
    """

    reset: Callable[[PRNGKeyArray], tuple[Any, Any]]
    step: Callable[[PRNGKeyArray, Any, Any], tuple[Any, Any, Any, Any, Any]]

    @classmethod
    def of(cls, env: Any, params: Any) -> "Environment":
        """Wrap an environment with gymnax's interface and its parameters.

        When an episode ends, the environment resets itself and returns the first observation of the
        next episode. The last observation of the old episode must be in `info` under the key
        `final_observation`. Raises `ValueError` if it is missing.
        """

        def step(key: PRNGKeyArray, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
            *answer, info = env.step(key, state, action, params)
            if len(answer) != 5 or "final_observation" not in info:
                raise ValueError(
                    "`env.step` must return (obs, state, reward, terminated, truncated, info) with "
                    f"info['final_observation'], got {len(answer) + 1} values and an info with "
                    f"{sorted(info)}. For other interfaces, use `Environment(reset, step)`."
                )
            _, state, reward, terminated, truncated = answer
            return info["final_observation"], state, reward, terminated, truncated

        return cls(lambda key: env.reset(key, params), step)


@dataclasses.dataclass(frozen=True)
class Network:
    """A feedforward network.

    `init(key)` returns parameters, and `apply(params, obs)` returns logits or (logits, value).
    """

    init: Callable[[PRNGKeyArray], PyTree]
    apply: Callable[[PyTree, Any], Any]


@dataclasses.dataclass(frozen=True)
class Memory:
    """A recurrent network.

    `init(key)` returns parameters, `start()` returns the initial state, and
    `apply(params, state, obs)` returns (state, logits).
    """

    init: Callable[[PRNGKeyArray], PyTree]
    start: Callable[[], PyTree]
    apply: Callable[[PyTree, PyTree, Any], tuple[PyTree, Any]]


@dataclasses.dataclass(frozen=True)
class Steps:
    """Tensors of the environment steps, over [i, t, b]."""

    observation: Tensor
    """(observation, alive). `alive` is 1 up to the step that ends the episode, and 0 afterwards."""
    totals: Tensor
    """(environment state, return so far)"""
    after: Tensor
    """The (observation, alive) pair after the action, which is `observation` at t + 1."""
    reward: Tensor
    """Reward, which is 0 after the end of the episode."""
    goes_on: Tensor
    """0 if the environment terminated at this step, otherwise 1; masks the next value."""
    score: Tensor
    """Mean return of the episodes of iteration i, without the axes t and b."""


def begin(p: Program, environment: Environment) -> tuple[Tensor, Tensor]:
    """Define `seen` and `carried` at the first step: x[i, 0, b] = reset()."""
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
    """Define one environment step, and `seen` and `carried` at t + 1 as its results."""
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


def layers(network: Network | Layers) -> Layers:
    """Convert the network to `Layers` whose first layer takes `seen`; a `Network` is one layer."""
    if not isinstance(network, Layers):
        network = Layers(Layer("network", network.init, network.apply))
    first, *others = network.layers
    return Layers(_of_observation(first), *others)


def _of_observation(layer: Layer | Callable[[Any], Any]) -> Layer | Callable[[Any], Any]:
    if not isinstance(layer, Layer):
        return lambda seen: layer(seen[0])
    return dataclasses.replace(layer, apply=lambda w, seen: layer.apply(w, seen[0]))


class Learner:
    """Parameters as tensors over the given dimensions, and the optimizer that updates them.

    `w` maps the name of each layer to its parameters; a `Network` or a `Memory` is a single entry.
    An optimizer with optax's interface (`init` and `update`) becomes one operation. An optimizer
    with a `step` method, such as `nn.Adam`, is written as recurrence equations.
    """

    def __init__(
        self, p: Program, network: Network | Memory | Layers, optimizer: Any, *symbols: Any
    ):
        names = network.names if isinstance(network, Layers) else ("network",)
        several, whole = isinstance(network, Layers), hasattr(optimizer, "init")
        flat = lambda tree: [tree[name] for name in names] if several else [tree]  # noqa: E731
        tree = lambda w: dict(zip(names, w, strict=True)) if several else w[0]  # noqa: E731

        def start(key: PRNGKeyArray) -> tuple:
            params = network.init(key)
            state = (optimizer.init(params),) if whole else ()
            return *flat(params), *state

        def update(*values: PyTree) -> tuple:
            w, state, gradients = values[: len(names)], values[len(names)], values[len(names) + 1 :]
            changes, state = optimizer.update(tree(gradients), state, tree(w))
            after = jax.tree.map(jnp.add, tree(w), changes)
            return *flat(after), state

        self._tree, self._update, self._optimizer = tree, update, optimizer
        titles = [f"{name}_params" for name in names] if several else ["params"]
        self.w = {k: p.tensor(*symbols, name=t) for k, t in zip(names, titles, strict=True)}
        self._state = [p.tensor(*symbols, name="moments")] if whole else []
        first = p.sample(start, name="start")
        for x, value in zip((*self.w.values(), *self._state), first, strict=True):
            x[(0,) * len(symbols)] = value

    def at(self, *index: Any) -> dict[str, Tensor]:
        """Return the parameters of each layer at an index."""
        return {name: w[index] for name, w in self.w.items()}

    def descend(self, loss: Tensor) -> Tensor:
        """Define the next parameters by a gradient step on the loss; return the final ones."""
        w = [*self.w.values()]
        result = gradient(loss, *w)
        gradients = result if isinstance(result, tuple) else (result,)
        p = loss.program
        if self._state:
            *after, state = p.fn(self._update, *w, *self._state, *gradients, name="update")
            p.follow(self._state[0], state)
        else:
            after = self._optimizer.step(w, gradients)
        for x, value in zip(w, after, strict=True):
            p.follow(x, value)
        ends = tuple(dim.bound - 1 for dim in w[0].domain)
        last = [value[ends] for value in after]
        return last[0] if len(last) == 1 else p.fn(lambda *w: self._tree(w), *last, name="trained")


def log_prob(logits: Float[Array, "... action"], action: Int[Array, "..."]) -> Float[Array, "..."]:
    """Compute log π(a), the log-probability of an action, from logits."""
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]
