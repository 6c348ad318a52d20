"""An autoregressive decoder with attention to all earlier tokens or to a window of them.

The program has no explicit key-value cache. The expression k[b, 0:t + 1] selects every key so far,
and k[b, max_(0, t + 1 - W):t + 1] selects the last W keys. The compiler keeps each key until the
last step that reads it, so the first expression becomes a cache of T entries, and the second
becomes a ring buffer of W entries.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from mmrl.pdg.build.expr import max_
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.build.program import Program

Vector = Float[Array, " width"]


def decoder(like: PyTree, *, window: int | None = None) -> Graph:
    """Build a decoder that samples tokens x[b, t + 1] ~ softmax(logits[b, t]) for B sequences.

    The graph has one input, `params`, with the shapes of `like` (see `initial`). Attention covers
    all positions so far, or only the last `window` of them. The results are the tokens
    [time, batch], starting at t = 0, and the log-probability of the token that follows each of
    them. Raises `ValueError` for a `window` below 1.
    """
    if window is not None and window < 1:
        raise ValueError(f"`window` must be at least 1, or None for all positions; got {window}")
    p = Program("b", "t")
    (b, t), B = p.symbols, p.bounds[0]
    w, token = p.input("params", like), p.tensor(b, t, name="token")
    token[b, 0] = p.constant(jnp.int32(0), name="first")
    near = slice(0 if window is None else max_(0, t + 1 - window), t + 1)
    h = p.fn(embed, w, token, p.value(t), name="embed")
    for layer in range(len(like["layers"])):
        q, k, v = p.fn(lambda w, h, n=layer: project(w["layers"][n], h), w, h, name="project")
        mixture = (k[b, near] @ q).softmax() @ v[b, near]
        h = p.fn(lambda w, *x, n=layer: mix(w["layers"][n], *x), w, h, mixture, name="mix")
    choice, logp = p.sample(choose, w, h, name="choose")
    token[b, t + 1] = choice
    return p.graph(token[0:B], logp[0:B])


def initial(key: PRNGKeyArray, *, vocabulary: int, width: int, layers: int = 2) -> PyTree:
    """Initialize a decoder with one attention head per layer and activations of size `width`."""

    def matrix(key: PRNGKeyArray, rows: int, columns: int) -> Array:
        return jax.random.normal(key, (rows, columns)) * rows**-0.5

    def layer(key: PRNGKeyArray) -> dict[str, Array]:
        a, b, c, d = jax.random.split(key, 4)
        return {
            "qkv": matrix(a, width, 3 * width),
            "out": matrix(b, width, width),
            "up": matrix(c, width, 4 * width),
            "down": matrix(d, 4 * width, width),
        }

    first, last, *keys = jax.random.split(key, 2 + layers)
    ends = {"embed": matrix(first, vocabulary, width), "read": matrix(last, width, vocabulary)}
    return ends | {"layers": [layer(key) for key in keys]}


def embed(w: PyTree, token: Int[Array, ""], t: Int[Array, ""]) -> Vector:
    """Embed a token and add its sinusoidal position encoding (Vaswani et al. 2017, §3.5)."""
    half = w["embed"].shape[1] // 2
    angle = t * 1e4 ** (-jnp.arange(half) / half)
    return w["embed"][token] + jnp.concatenate([jnp.sin(angle), jnp.cos(angle)])


def normal(x: Vector) -> Vector:
    """Normalize x to mean 0 and variance 1."""
    return (x - x.mean()) * jax.lax.rsqrt(x.var() + 1e-6)


def project(w: PyTree, h: Vector) -> tuple[Vector, Vector, Vector]:
    """Compute the query, key and value of a position, with the query scaled by 1 / √width."""
    q, k, v = jnp.split(normal(h) @ w["qkv"], 3)
    return q * q.size**-0.5, k, v


def mix(w: PyTree, h: Vector, mixture: Vector) -> Vector:
    """Apply the attention output and the MLP, and return the input of the next layer."""
    h = h + mixture @ w["out"]
    return h + jax.nn.gelu(normal(h) @ w["up"]) @ w["down"]


def read_out(w: PyTree, h: Vector) -> Float[Array, " vocabulary"]:
    """Compute the logits of the next token."""
    return normal(h) @ w["read"]


def choose(key: PRNGKeyArray, w: PyTree, h: Vector) -> tuple[Int[Array, ""], Float[Array, ""]]:
    """Sample the next token and return it with its log-probability."""
    logits = read_out(w, h)
    token = jax.random.categorical(key, logits).astype(jnp.int32)
    return token, jax.nn.log_softmax(logits)[token]
