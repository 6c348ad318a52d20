"""Layers and optimizers built from recurrent tensors.

    net = Layers(dense("hidden", 4, 16, jnp.tanh), dense("logits", 16, 2))
    w = {name: p.tensor(i, name=name) for name in net.names}
    for name, x in net.init(key).items(): w[name][0] = p.constant(x)
    logits = net(w, obs)                      # hidden[i, t], logits[i, t]
    after = Adam(1e-2).step(w.values(), gradient(loss, *w.values()))  # a single layer also works
    for x, y in zip(w.values(), after): p.follow(x, y)

There is one operation per layer, parameter and moment, so passes can optimize within the network:
the gradient of each layer's parameters is summed separately, and two uses of a layer at the same
point are merged. A `Layer` may be any function with parameters, such as an entire Equinox module.
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
from mmrl.pdg.build.graph import ArrayType, Domain, array_type
from mmrl.pdg.build.tensor import Tensor


@dataclasses.dataclass(frozen=True)
class Layer:
    """Layer with parameters from `init(key)`, applied as one operation, `apply(params, x)`."""

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
    """Return a layer that computes f(x W + b).

    W is normal with standard deviation `scale` (default 1 / √inputs), and b is initially 0.

        >>> layer = dense("hidden", 4, 16, jnp.tanh)
        >>> layer.apply(layer.init(jax.random.key(0)), jnp.ones(4)).shape
        (16,)
    """
    deviation = inputs**-0.5 if scale is None else scale

    def init(key: PRNGKeyArray) -> PyTree:
        w = {"W": deviation * jax.random.normal(key, (inputs, outputs))}
        return w | ({"b": jnp.zeros(outputs)} if bias else {})

    def apply(w: PyTree, x: Any) -> Any:
        y = x @ w["W"] + w["b"] if bias else x @ w["W"]
        return y if activation is None else activation(y)

    return Layer(name, init, apply)


def norm(name: str, size: int, epsilon: float = 1e-5) -> Layer:
    """Return layer normalization over the last axis (Ba et al. 2016).

    It computes g ⊙ (x - mean) / √(variance + ε) + b.
    """

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
    """Return a convolution of x [channel, height, width] with `width` × `width` filters.

    There is no padding. W is normal with standard deviation 1 / √(inputs · width²), and b is
    initially 0.
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
    """Chain of layers and of functions without parameters, such as `jnp.tanh`."""

    def __init__(self, *layers: Layer | Callable[[Any], Any]):
        self.layers = layers
        self.names = tuple(layer.name for layer in layers if isinstance(layer, Layer))
        if len({*self.names}) < len(self.names):
            raise ValueError(f"`layers` must have different names, got {self.names}; rename one")

    def init(self, key: PRNGKeyArray) -> dict[str, PyTree]:
        """Return the initial parameters of all layers, keyed by layer name."""
        layers = [layer for layer in self.layers if isinstance(layer, Layer)]
        keys = jax.random.split(key, max(1, len(layers)))
        return {layer.name: layer.init(k) for layer, k in zip(layers, keys, strict=False)}

    def apply(self, w: Mapping[str, PyTree], x: Any) -> Any:
        """Apply all layers to an array."""
        for layer in self.layers:
            x = layer.apply(w[layer.name], x) if isinstance(layer, Layer) else layer(x)
        return x

    def __call__(self, w: Mapping[str, Tensor], x: Tensor, name: str = "") -> Any:
        """Apply all layers to a tensor, with one operation per layer.

        The operations are named after their layers, with the prefix `name`.
        """
        for layer in self.layers:
            if isinstance(layer, Layer):
                operation = f"{name}_{layer.name}" if name else layer.name
                x = x.program.fn(layer.apply, w[layer.name], x, name=operation)
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
    """Gradient descent with a decaying rate: w[i + 1] = w[i] - η[i] g[i], and η[i + 1] = d η[i]."""

    rate: ArrayLike | Tensor
    decay: int | float = 1.0  # d

    def step(
        self, w: Tensor | Iterable[Tensor], gradients: Tensor | Iterable[Tensor]
    ) -> list[Tensor]:
        """Return the next parameters at each point, given the current ones and their gradients.

        Arrays without a gradient, such as integers, stay unchanged.
        """
        step = lambda w, rate, g: w - rate * g  # noqa: E731
        return _after(self, _several(w), gradients, step, lambda x, g: [g])


@dataclasses.dataclass(frozen=True)
class Adam:
    """Adam (Kingma & Ba 2015, Algorithm 1) with a decaying rate: η[i + 1] = d η[i].

    m[i] = β₁ m[i - 1] + (1 - β₁) g[i], v[i] = β₂ v[i - 1] + (1 - β₂) g[i]², and
    w[i + 1] = w[i] - η[i] m̂[i] / (√v̂[i] + ε), with m̂[i] = m[i] / (1 - β₁ⁱ⁺¹) and
    v̂[i] = v[i] / (1 - β₂ⁱ⁺¹).
    """

    rate: ArrayLike | Tensor = 1e-3
    decay: int | float = 1.0  # d
    b1: float = 0.9
    b2: float = 0.999
    epsilon: float = 1e-8

    def step(
        self, w: Tensor | Iterable[Tensor], gradients: Tensor | Iterable[Tensor]
    ) -> list[Tensor]:
        """Return the next parameters at each point, given the current ones and their gradients.

        Arrays without a gradient, such as integers, stay unchanged.
        """
        w = _several(w)
        powers = [recurrence(w[0], b, lambda x, b=b: x * b, "power") for b in (self.b1, self.b2)]

        def step(x: Any, rate: Any, m: Any, v: Any, p1: Any, p2: Any) -> Any:
            return x - rate * (m / (1 - p1)) / (jnp.sqrt(v / (1 - p2)) + self.epsilon)

        def moments(x: Tensor, g: Tensor) -> list[Tensor]:
            m = _average(x, g, self.b1, lambda g: g, f"{x.source}_mean")
            return [m, _average(x, g, self.b2, jnp.square, f"{x.source}_square"), *powers]

        return _after(self, w, gradients, step, moments)


def _after(
    optimizer: Descent | Adam,
    w: list[Tensor],
    gradients: Tensor | Iterable[Tensor],
    step: Callable[..., Any],
    inputs: Callable[[Tensor, Tensor], list[Tensor]],
) -> list[Tensor]:
    """Return the next parameters at each point: step(w, rate, *inputs(w, gradient))."""
    rate, parameters = _rate(w[0], optimizer.rate, optimizer.decay), []
    for x, g in zip(w, _several(gradients), strict=True):
        more = inputs(x, g)
        parameters.append(x.program.fn(_each(step), x, rate, *more, name=f"{x.source}_next"))
    return parameters


def _average(x: Tensor, g: Tensor, b: float, f: Callable[[Any], Any], name: str) -> Tensor:
    """Return the moving average a[i] = b a[i - 1] + (1 - b) f(g[i]), with a[-1] = 0.

    a has the pytree structure of x. Averages of half-precision gradients have single precision,
    because float16 overflows for squares such as 300².
    """
    program, domain = x.program, x.domain
    before = program.tensor(*domain.symbols, name=f"{name}_before")
    kinds = jax.tree.map(_single, x.type, is_leaf=lambda leaf: isinstance(leaf, ArrayType))
    before[(0,) * len(domain)] = zeros(program, kinds, Domain())
    mix = lambda a, g: b * a + (1 - b) * f(jnp.asarray(g, a.dtype))  # noqa: E731
    after = program.fn(_each(mix), before, g, name=name)
    program.follow(before, after)
    return after


def _single(kind: ArrayType) -> ArrayType:
    """Promote a floating-point type to at least single precision."""
    if not jnp.issubdtype(kind.dtype, jnp.inexact):
        return kind
    return array_type(kind.shape, jnp.promote_types(kind.dtype, jnp.float32))


def _rate(like: Tensor, rate: ArrayLike | Tensor, decay: int | float) -> Tensor:
    """Return the learning rate η[i] as a tensor.

    A number, or a tensor without dimensions, decays: η[i + 1] = d η[i]. Any other tensor is
    returned unchanged.
    """
    if isinstance(rate, Tensor) and (names := rate.domain.names):
        own = like.domain.names
        if decay != 1 or not {*names} <= {*own}:
            raise ValueError(
                f"`rate` must be a number if it decays by `decay`, or a tensor over dimensions of "
                f"the parameters, {list(own)}; got {rate!r} and a decay of {decay}. Include the "
                f"decay in the tensor, and index any other dimensions"
            )
        return rate
    first = rate if isinstance(rate, Tensor) else jnp.asarray(rate) * 1.0
    return recurrence(like, first, lambda x: x * decay, "rate")


def _several(x: Tensor | Iterable[Tensor]) -> list[Tensor]:
    """Return a list of one or several tensors."""
    return [x] if isinstance(x, Tensor) else list(x)


def _each(f: Callable[..., Any]) -> Callable[..., Any]:
    """Map `f` over the floating-point arrays of its first pytree.

    `f` also receives the corresponding arrays of the other pytrees. A single array in place of a
    pytree is passed to each call of `f`. Results are cast to the dtypes of the first pytree's
    arrays. Leaves of the first pytree that are not floating-point stay unchanged.
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
