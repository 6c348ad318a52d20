"""Parts of all programs: environments that act, and parameters that change."""

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
    """One environment, as two functions.

    `reset(key)` returns (obs, state), and `step(key, state, action)` returns (obs, state, reward,
    terminated, truncated), where `obs` results from the action, also at the end of an episode.
    Values after an end are never used, and neither is a terminal observation that is NaN or
    infinite.
    """

    reset: Callable[[PRNGKeyArray], tuple[Any, Any]]
    step: Callable[[PRNGKeyArray, Any, Any], tuple[Any, Any, Any, Any, Any]]

    @classmethod
    def of(cls, env: Any, params: Any) -> "Environment":
        """Wrap an environment with gymnax's interface, and its parameters, as two functions.

        After an end, gymnax returns the first observation of the next episode; the observation that
        results from the action is `final_observation` in its info. Raises `ValueError` if it is
        missing.
        """

        def step(key: PRNGKeyArray, state: Any, action: Any) -> tuple[Any, Any, Any, Any, Any]:
            *answer, info = env.step(key, state, action, params)
            if len(answer) != 5 or "final_observation" not in info:
                raise ValueError(
                    "`env.step` must return (obs, state, reward, terminated, truncated, info) with "
                    f"info['final_observation'], got {len(answer) + 1} values and an info with "
                    f"{sorted(info)}. For such an environment write Environment(reset, step)."
                )
            _, state, reward, terminated, truncated = answer
            return info["final_observation"], state, reward, terminated, truncated

        return cls(lambda key: env.reset(key, params), step)


@dataclasses.dataclass(frozen=True)
class Network:
    """A network: `init(key)` returns parameters, `apply(params, obs)` logits or (logits, value)."""

    init: Callable[[PRNGKeyArray], PyTree]
    apply: Callable[[PyTree, Any], Any]


@dataclasses.dataclass(frozen=True)
class Memory:
    """A network with a state: `start()` returns it, `apply(params, state, obs)` (state, logits)."""

    init: Callable[[PRNGKeyArray], PyTree]
    start: Callable[[], PyTree]
    apply: Callable[[PyTree, PyTree, Any], tuple[PyTree, Any]]


@dataclasses.dataclass(frozen=True)
class Steps:
    """The values of a step at [i, t, b]."""

    seen: Tensor
    """(observation, alive). `alive` is 1 up to the step that ends an episode, then 0."""
    carried: Tensor
    """(state, return so far)"""
    after: Tensor
    """`seen` after the action; it is `seen` at t + 1."""
    reward: Tensor
    """0 once an episode has ended."""
    goes_on: Tensor
    """0 if the environment terminated here, so that no value follows."""
    score: Tensor
    """Mean return of the episodes of iteration i."""


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
    """Define one step of the environment, and x[i, t + 1, b] as its result."""
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
    """Return the network as layers that read `seen`; a `Network` is one layer."""
    if not isinstance(network, Layers):
        network = Layers(Layer("network", network.init, network.apply))
    first, *others = network.layers
    return Layers(_of_observation(first), *others)


def _of_observation(layer: Layer | Callable[[Any], Any]) -> Layer | Callable[[Any], Any]:
    if not isinstance(layer, Layer):
        return lambda seen: layer(seen[0])
    return dataclasses.replace(layer, apply=lambda w, seen: layer.apply(w, seen[0]))


class Learner:
    """Parameters as tensors over some dimensions, and the optimizer that changes them.

    `w` contains the parameters of each layer by its name; there is one entry for a `Network` or a
    `Memory`. The optimizer is one operation if it has optax's interface, `init` and `update`, or
    equations if it has `step`, as `nn.Adam` does.
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
        """Define the next parameters by the gradient of a loss; return the last of all."""
        w = [*self.w.values()]
        found = gradient(loss, *w)
        gradients = found if isinstance(found, tuple) else (found,)
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
    """Compute log π(a) from logits."""
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]
