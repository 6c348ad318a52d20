"""Networks and optimizers as recurrent tensors: an operation for each layer, parameter and moment.

    net = Layers(dense("hidden", 4, 16, jnp.tanh), dense("logits", 16, 2))
    w = {name: p.tensor(i, name=name) for name in net.names}
    logits = net(w, obs)                      # hidden[i, t], logits[i, t]
    after = Adam(1e-2).step(w.values(), gradient(loss, *w.values()))  # of one layer, too
    for x, y in zip(w.values(), after): p.follow(x, y)

Passes then act inside of the network: a gradient of one layer's parameters is summed by itself, and
two uses of the same layer at the same point are one operation. A `Layer` may be any function with
parameters, such as a whole Equinox module.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import PRNGKeyArray, PyTree

from mmrl.pdg.build.autodiff import zeros
from mmrl.pdg.build.graph import Domain
from mmrl.pdg.build.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class Layer:
    """A function `apply(params, x)` with parameters from `init(key)`, as one operation."""

    name: str
    init: Callable[[PRNGKeyArray], PyTree]
    apply: Callable[[PyTree, Any], Any]


def dense(
    name: str,
    inputs: int,
    outputs: int,
    activation: Callable[[Any], Any] | None = None,
    *,
    bias: bool = True,
    scale: float | None = None,
) -> Layer:
    """Return the layer f(x W + b): W is normal of deviation `scale`, or 1 / √inputs, and b is 0."""
    deviation = inputs**-0.5 if scale is None else scale

    def init(key: PRNGKeyArray) -> PyTree:
        w = {"W": deviation * jax.random.normal(key, (inputs, outputs))}
        return w | ({"b": jnp.zeros(outputs)} if bias else {})

    def apply(w: PyTree, x: Any) -> Any:
        y = x @ w["W"] + w["b"] if bias else x @ w["W"]
        return y if activation is None else activation(y)

    return Layer(name, init, apply)


def norm(name: str, size: int, epsilon: float = 1e-5) -> Layer:
    """Return the layer g ⊙ (x - mean) / √(variance + ε) + b over the last axis (Ba et al. 2016)."""

    def apply(w: PyTree, x: Any) -> Any:
        centered = x - x.mean(-1, keepdims=True)
        variance = (centered**2).mean(-1, keepdims=True)
        return w["g"] * centered * jax.lax.rsqrt(variance + epsilon) + w["b"]

    return Layer(name, lambda key: {"g": jnp.ones(size), "b": jnp.zeros(size)}, apply)


def convolution(
    name: str,
    inputs: int,
    outputs: int,
    width: int,
    activation: Callable[[Any], Any] | None = None,
    *,
    stride: int = 1,
) -> Layer:
    """Return a convolution of x [channel, height, width] with filters of `width` × `width`.

    No padding is added. W is normal with deviation 1 / √(inputs · width²), and b is 0.
    """

    def init(key: PRNGKeyArray) -> PyTree:
        shape = (outputs, inputs, width, width)
        deviation = (inputs * width**2) ** -0.5
        return {"W": deviation * jax.random.normal(key, shape), "b": jnp.zeros((outputs, 1, 1))}

    def apply(w: PyTree, x: Any) -> Any:
        y = jax.lax.conv_general_dilated(x[None], w["W"], (stride, stride), "VALID")[0] + w["b"]
        return y if activation is None else activation(y)

    return Layer(name, init, apply)


class Layers:
    """A chain of layers, and of functions without parameters such as `jnp.tanh`."""

    def __init__(self, *layers: Layer | Callable[[Any], Any]):
        self.layers = layers
        self.names = tuple(layer.name for layer in layers if isinstance(layer, Layer))
        if len({*self.names}) < len(self.names):
            raise ValueError(f"`layers` must have different names, got {self.names}")

    def init(self, key: PRNGKeyArray) -> dict[str, PyTree]:
        """Return the first parameters of all layers, by their names."""
        layers = [layer for layer in self.layers if isinstance(layer, Layer)]
        keys = jax.random.split(key, max(1, len(layers)))
        return {layer.name: layer.init(k) for layer, k in zip(layers, keys, strict=False)}

    def apply(self, w: Mapping[str, PyTree], x: Any) -> Any:
        """Return the last layer's result for arrays."""
        for layer in self.layers:
            x = layer.apply(w[layer.name], x) if isinstance(layer, Layer) else layer(x)
        return x

    def __call__(self, w: Mapping[str, Tensor], x: Tensor, name: str = "") -> Any:
        """Return the last layer's result for tensors: an operation for each layer.

        Operations are named by their layers, behind `name`.
        """
        for layer in self.layers:
            if isinstance(layer, Layer):
                named = f"{name}_{layer.name}" if name else layer.name
                x = x.program.fn(layer.apply, w[layer.name], x, name=named)
            else:
                x = x.program.fn(layer, x)
        return x


def recurrence(like: Tensor, first: Any, step: Callable[[Any], Any], name: str) -> Tensor:
    """Return x with x[0] = `first` and x[i + 1] = step(x[i]), over the dimensions of `like`."""
    program, domain = like.program, like.domain
    x = program.tensor(*domain.symbols, name=name)
    x[(0,) * len(domain)] = first
    program.follow(x, step(x))
    return x


@dataclasses.dataclass(frozen=True)
class Descent:
    """Gradient descent, w[i + 1] = w[i] - η[i] g[i], with a rate that decays: η[i + 1] = d η[i]."""

    rate: ArrayLike | Tensor
    decay: int | float = 1.0  # d

    def step(
        self, w: Tensor | Iterable[Tensor], gradients: Tensor | Iterable[Tensor]
    ) -> list[Tensor]:
        """Return the parameters after each point, from those at it and from their gradients.

        Arrays without a gradient, such as whole numbers, stay as they are.
        """
        w = _several(w)
        rate = _rate(w[0], self.rate, self.decay)
        f = _each(lambda w, g, rate: w - rate * g)
        pairs = zip(w, _several(gradients), strict=True)
        return [x.program.fn(f, x, g, rate, name=f"{x.source}_next") for x, g in pairs]


@dataclasses.dataclass(frozen=True)
class Adam:
    """Adam (Kingma & Ba 2015, Algorithm 1), with a rate that decays: η[i + 1] = d η[i].

    m[i] = β₁ m[i - 1] + (1 - β₁) g[i], v[i] = β₂ v[i - 1] + (1 - β₂) g[i]², and
    w[i + 1] = w[i] - η[i] m̂[i] / (√v̂[i] + ε), where m̂ and v̂ are divided by 1 - βⁱ⁺¹.
    """

    rate: ArrayLike | Tensor = 1e-3
    decay: int | float = 1.0  # d
    b1: float = 0.9
    b2: float = 0.999
    epsilon: float = 1e-8

    def step(
        self, w: Tensor | Iterable[Tensor], gradients: Tensor | Iterable[Tensor]
    ) -> list[Tensor]:
        """Return the parameters after each point, from those at it and from their gradients.

        Arrays without a gradient, such as whole numbers, stay as they are.
        """
        w = _several(w)
        rate = _rate(w[0], self.rate, self.decay)
        powers = [recurrence(w[0], b, lambda x, b=b: x * b, "power") for b in (self.b1, self.b2)]

        def changed(x: Any, m: Any, v: Any, rate: Any, p1: Any, p2: Any) -> Any:
            return x - rate * (m / (1 - p1)) / (jnp.sqrt(v / (1 - p2)) + self.epsilon)

        found = []
        for x, g in zip(w, _several(gradients), strict=True):
            m = _average(x, g, self.b1, lambda g: g, f"{x.source}_mean")
            v = _average(x, g, self.b2, jnp.square, f"{x.source}_square")
            name = f"{x.source}_next"
            found.append(x.program.fn(_each(changed), x, m, v, rate, *powers, name=name))
        return found


def _average(x: Tensor, g: Tensor, b: float, f: Callable[[Any], Any], name: str) -> Tensor:
    """a[i] = b a[i - 1] + (1 - b) f(g[i]), from 0 on, for each array of a tree like x."""
    program, domain = x.program, x.domain
    before = program.tensor(*domain.symbols, name=f"{name}_before")
    before[(0,) * len(domain)] = zeros(program, x.type, Domain())
    after = program.fn(_each(lambda a, g: b * a + (1 - b) * f(g)), before, g, name=name)
    program.follow(before, after)
    return after


def _rate(like: Tensor, rate: ArrayLike | Tensor, decay: int | float) -> Tensor:
    """η[0] = `rate`, a number or a tensor, and η[i + 1] = d η[i]."""
    first = rate if isinstance(rate, Tensor) else jnp.asarray(rate) * 1.0
    return recurrence(like, first, lambda x: x * decay, "rate")


def _several(x: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """A list of tensors, from several or from one: `gradient` returns one for one layer."""
    return [x] if isinstance(x, Tensor) else list(x)


def _each(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` for each floating-point array of the first tree, in its dtype; other arrays stay.

    Arguments that are numbers are the same for all arrays.
    """

    def run(first: PyTree, *others: PyTree) -> PyTree:
        flat = functools.partial(jax.tree.flatten, is_leaf=lambda x: x is None)
        leaves, tree = flat(first)
        parts = [
            part if same == tree else [x] * len(leaves) for x in others for part, same in [flat(x)]
        ]
        floats = [x is not None and jnp.issubdtype(x.dtype, jnp.inexact) for x in leaves]
        rows = zip(floats, leaves, *parts, strict=True)
        return tree.unflatten(f(x, *more).astype(x.dtype) if each else x for each, x, *more in rows)

    return run
