"""Threefry written out gives the words of its authors, and of a plain loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry_2x32

from mmrl import _random, rollout

assert rollout  # registers it


def rounds(key: tuple[int, int], x: tuple[int, int]) -> list[int]:
    """Threefry-2x32-20 in Python's integers, typed from the paper's Section 3.3."""
    word, (a, b) = 2**32, x
    schedule = [*key, key[0] ^ key[1] ^ 0x1BD11BDA]
    turns = [13, 15, 26, 6, 17, 29, 16, 24]
    a, b = (a + key[0]) % word, (b + key[1]) % word
    for i in range(20):
        a = (a + b) % word
        b = ((b << turns[i % 8]) | (b >> (32 - turns[i % 8]))) % word ^ a
        if i % 4 == 3:
            j = i // 4 + 1
            a, b = (a + schedule[j % 3]) % word, (b + schedule[(j + 1) % 3] + j) % word
    return [a, b]


@pytest.mark.parametrize(
    ("key", "count", "want"),  # the known answers of Random123
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((2**32 - 1,) * 2, (2**32 - 1,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers(key: tuple[int, int], count: tuple[int, int], want: tuple[int, int]):
    assert rounds(key, count) == list(want)
    np.testing.assert_array_equal(threefry_2x32(jnp.uint32(key), jnp.uint32(count)), want)
    got = jax.jit(_random.threefry)(*jnp.uint32(key), *jnp.uint32(count))
    np.testing.assert_array_equal(jnp.stack(got), want)


@pytest.mark.parametrize("shape", [(), (5,), (2, 3)])
def test_bits_of_keys_are_those_of_a_plain_loop(shape: tuple[int, ...]):
    keys = jax.random.split(jax.random.key(7), 4)
    bits = jax.jit(jax.vmap(lambda key: jax.random.bits(key, shape)))(keys)
    for key, row in zip(np.asarray(jax.random.key_data(keys)), np.asarray(bits), strict=True):
        pairs = [rounds((int(key[0]), int(key[1])), (0, i)) for i in range(max(row.size, 1))]
        np.testing.assert_array_equal(row.ravel(), [a ^ b for a, b in pairs])


def test_a_draw_compiles_to_no_loop():
    program = jax.jit(lambda key: jax.random.normal(key, (8,))).lower(jax.random.key(0)).compile()
    assert jax.default_backend() != "cpu" or "while" not in str(program.as_text())
