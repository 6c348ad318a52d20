"""All monoids, with random elements for tests."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.monoid import (
    EWMA,
    Affine,
    Decay,
    LogAffine,
    LogSumExp,
    LongMoments,
    MatrixAffine,
    Max,
    Moments,
    Monoid,
    Product,
    Resettable,
    Sum,
    TopK,
    Window,
)

CASES, LONGEST = 300, 5  # number of random products, and maximum number of factors of each


class Draw:
    """Source of random arrays [CASES, LONGEST, ...] in the current precision.

    The arrays are NumPy arrays, because JAX would compile every operation on them.
    """

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)

    def normal(self, *shape: int):
        return self.array(self.rng.normal(size=(CASES, LONGEST, *shape)))

    def uniform(self, low: float, high: float, *shape: int):
        return self.array(self.rng.uniform(low, high, (CASES, LONGEST, *shape)))

    def flags(self, share: float):
        return self.rng.random((CASES, LONGEST)) < share

    def array(self, x):
        return np.asarray(x, jnp.result_type(float))


def delta_rule(draw: Draw):
    """Sample α (I - β k kᵀ) and β v kᵀ, as in gated DeltaNet."""
    key, value = draw.normal(3), draw.normal(2)
    key = key / np.linalg.norm(key, axis=-1, keepdims=True)
    alpha, beta = draw.uniform(0, 1)[..., None, None], draw.uniform(0, 2)[..., None, None]
    outer = key[..., :, None] * key[..., None, :]
    rest = np.eye(3, dtype=outer.dtype) - beta * outer
    return alpha * rest, beta * value[..., :, None] * key[..., None, :]


def latest(x, k: int):
    """Encode `x` as elements of `Window` with k places, of which the newest contains an item."""
    pad = [(0, 0), (0, 0), (k - 1, 0), *[(0, 0)] * (x.ndim - 2)]
    return np.pad(x[:, :, None], pad), np.ones(x.shape[:2], x.dtype)


def reservoir(draw: Draw, k: int):
    """Sample elements of `TopK` with one key each. Keys take few values, so ties are common."""
    keys = np.floor(draw.uniform(0, 4))
    keys = np.pad(keys[..., None], [(0, 0), (0, 0), (0, k - 1)], constant_values=-np.inf)
    ids = draw.rng.permutation(CASES * LONGEST).reshape(CASES, LONGEST, 1)
    return keys, np.pad(ids.astype(jnp.result_type(int)), [(0, 0), (0, 0), (0, k - 1)])


def gains(draw: Draw, *shape: int):
    """Sample decays in [0, 1], a fifth of which are exactly 0."""
    return np.maximum(draw.uniform(-0.25, 1, *shape), 0)


VECTOR = {"S": jnp.zeros((2, 3)), "z": jnp.zeros(3)}
# Constructors of each monoid with random encoded inputs, keyed by name.
EXAMPLES: dict[str, Callable[[Draw], tuple[Monoid, Any]]] = {
    "sum": lambda draw: (Sum(VECTOR), {"S": draw.normal(2, 3), "z": draw.normal(3)}),
    "affine": lambda draw: (Affine(), (gains(draw, 4), draw.normal(4))),
    "complex": lambda draw: (
        Affine((4,), jnp.complex64),
        (gains(draw, 4) * np.exp(1j * draw.normal(4)), draw.normal(4) + 1j * draw.normal(4)),
    ),
    "matrix": lambda draw: (MatrixAffine(2, 3), delta_rule(draw)),
    "decay": lambda draw: (
        Decay(jnp.array([0.01, 0.5]), jnp.array([0.0, 0.7, 3.1])),
        (draw.normal(2, 3) + 1j * draw.normal(2, 3), 1 + 0 * draw.normal()),
    ),
    "max": lambda draw: (Max((4,)), (-draw.uniform(0, 1, 4), draw.normal(4))),
    "logsumexp": lambda draw: (LogSumExp((4,)), (-draw.uniform(0, 1, 4), draw.normal(4))),
    "log_affine": lambda draw: (
        LogAffine((4,)),
        (-draw.uniform(0, 1), 9 * draw.normal(), draw.normal(4)),
    ),
    "moments": lambda draw: (
        Moments((4,)),
        (1 + 0 * draw.normal(4), draw.normal(4), 0 * draw.normal(4)),
    ),
    "long_moments": lambda draw: (
        LongMoments((4,)),
        (1 + 0 * draw.normal(4), draw.normal(4), *[0 * draw.normal(4) for _ in range(4)]),
    ),
    "ewma": lambda draw: (
        EWMA((4,)),
        (gains(draw, 4), np.ones_like(draw.normal(4)), draw.normal(4)),
    ),
    "topk": lambda draw: (TopK(4, jnp.zeros((), int)), reservoir(draw, 4)),
    "window": lambda draw: (Window(3, (2,)), latest(draw.normal(2), 3)),
    "product": lambda draw: product(
        *(EXAMPLES[part](draw) for part in ("max", "moments", "decay"))
    ),
}


def product(*parts: tuple[Monoid, Any]) -> tuple[Monoid, Any]:
    return Product(tuple(m for m, _ in parts)), tuple(x for _, x in parts)


def make(name: str, draw: Draw) -> tuple[Monoid, Any]:
    """Return a monoid of `EXAMPLES`, possibly with resets, and random encoded inputs."""
    if name.startswith("resettable "):
        inner, x = make(name.removeprefix("resettable "), draw)
        return Resettable(inner), (x, jnp.asarray(draw.flags(0.2)))
    monoid, x = EXAMPLES[name](draw)
    return monoid, jax.tree.map(jnp.asarray, x)


PLAIN = tuple(EXAMPLES)
NAMES = (*PLAIN, *(f"resettable {name}" for name in PLAIN), "resettable resettable affine")


def tape(x: Any, length: int) -> Any:
    """Flatten the first two axes and return the first `length` elements."""
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:length], x)
