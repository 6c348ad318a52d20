"""The decoder against attention to whole sequences, which keeps nothing from step to step."""

import functools
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.course.programs import decoder
from mmrl.course.programs.decoder import initial
from mmrl.pdg.build.graph import Domain
from mmrl.pdg.build.program import Program, point_key
from mmrl.pdg.passes import vectorize
from mmrl.pdg.run import compile

B, T, WIDTH = 2, 9, 8
PARAMS = initial(jax.random.key(3), vocabulary=11, width=WIDTH)
KEY = jax.random.key(4)
ZEROS = jnp.arange(1.0, T + 1)


def whole(tokens: Any, window: int | None) -> Any:
    """Logits [time, vocabulary] at all positions of one sequence, by a mask over all pairs."""

    def normal(x: Any) -> Any:
        return (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-6)

    at, half = jnp.arange(T), jnp.arange(WIDTH // 2)
    angle = at[:, None] / 10_000 ** (half[None] / (WIDTH // 2))
    h = PARAMS["embed"][tokens] + jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], 1)
    back = at[:, None] - at[None]
    seen = (back >= 0) & (back < (window or T))
    for w in PARAMS["layers"]:
        q, k, v = jnp.split(normal(h) @ w["qkv"], 3, 1)
        weights = jax.nn.softmax(jnp.where(seen, q @ k.T / WIDTH**0.5, -jnp.inf), 1)
        h = h + weights @ v @ w["out"]
        h = h + jax.nn.gelu(normal(h) @ w["up"]) @ w["down"]
    return normal(h) @ PARAMS["read"]


@pytest.mark.full_except("None")
@pytest.mark.slow
@pytest.mark.parametrize("window", [None, 3])
def test_each_token_follows_from_all_before_and_a_cache_is_as_long_as_its_window(window: Any):
    compiled = compile(vectorize(decoder(PARAMS, window=window), "b")[0], {})
    program = compiled.xla(B=B, T=T)
    tokens, logp = program(params=PARAMS, key=KEY)
    logits = jax.jit(jax.vmap(functools.partial(whole, window=window), 1, 1))(tokens)
    tag, domain = zlib.crc32(b"choose"), Domain.of("b", "t")
    for t in range(T - 1):
        for b in range(B):
            key = point_key(0, tag, domain, {"key": KEY, "b": b, "t": t})
            assert tokens[t + 1, b] == jax.random.categorical(key, logits[t, b])
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits[:-1]), tokens[1:, :, None], 2)
    np.testing.assert_allclose(logp[:-1], chosen[..., 0], rtol=0, atol=2e-5)
    caches = [slots for (name, k), slots in program.slots().items() if "project" in name and k]
    assert caches == [(window or T,)] * 4
    assert compiled.check(B=B, T=T).device["project", 1] == (window or T)
    if window:
        run = compiled.interpret(B=B, T=T, key=KEY, params=PARAMS)
        np.testing.assert_array_equal(run.results[0], tokens)
        np.testing.assert_allclose(run.results[1], logp, rtol=0, atol=1e-6)


def test_a_window_is_a_whole_number_of_steps():
    with pytest.raises(ValueError, match=r"`window` must be at least 1.*got 0"):
        decoder(PARAMS, window=0)


def test_a_slice_of_what_is_written_already_ends_in_zeros():
    """Only of a cache that grows nothing stands behind the end; a function sees all there is."""
    p = Program("t")
    (t,), (T_,) = p.symbols, p.bounds
    x = p.fn(lambda t: 1.0 + t, p.value(t), name="x")
    grows = p.fn(lambda x: x.sum(), x[0 : t + 1])
    total = p.fn(lambda x: x.sum(), x[0:T_])
    later = p.fn(lambda x, y: x.sum() + 0 * y, x[0 : t + 1], total)
    graph = p.graph(grows, later)
    for result in compile(graph, {}).xla(T=T)():
        np.testing.assert_array_equal(result, np.cumsum(ZEROS))


@pytest.mark.slow
def test_softmax_is_over_what_a_slice_has():
    p = Program("t")
    (t,) = p.symbols
    x = p.fn(lambda t: jnp.stack([jnp.sin(t), jnp.cos(t)]), p.value(t), name="x")
    scores = x[0 : t + 1] @ x
    weights = scores.softmax()
    result = compile(p.graph((weights @ x[0 : t + 1]).sum(), weights.sum()), {}).xla(T=T)()
    at = jnp.arange(T)
    xs = jnp.stack([jnp.sin(at), jnp.cos(at)], 1)
    seen = jnp.where(at[:, None] >= at[None], xs @ xs.T, -jnp.inf)
    np.testing.assert_allclose(result[0], (jax.nn.softmax(seen, 1) @ xs).sum(1), atol=1e-6)
    np.testing.assert_allclose(result[1], np.ones(T), atol=1e-6)
