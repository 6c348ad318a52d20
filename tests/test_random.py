"""Keys, and Threefry written out: the words of its authors, and of a plain loop."""

import runpy
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.interpreters import mlir
from jax.extend.random import threefry_2x32

from mmrl import _random, rollout
from mmrl.agents import ppo
from mmrl.envs import make

_random.compile_quickly()


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
    result = jax.jit(_random.threefry)(*jnp.uint32(key), *jnp.uint32(count))
    np.testing.assert_array_equal(jnp.stack(result), want)


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


def lowerings() -> dict[Any, Any]:
    return dict(mlir._platform_specific_lowerings["cpu"])


def test_importing_leaves_the_lowerings_of_jax_alone():
    before = lowerings()
    runpy.run_path(str(_random.__file__))
    assert lowerings() == before


# Third parties come first: what their import changes is theirs.
_SNAPSHOTS = """
import logging, os, pkgutil, random, sys, warnings
import mmrl
import anywidget, equinox, flax, gymnax, gymnasium, ipywidgets, islpy, jax, jaxtyping
import matplotlib.pyplot, numpy, optax, rich, tyro
from importlib import import_module
from jax._src.interpreters import mlir

def finders():  # those of mmrl answer only for earlier names of its modules
    return [x for x in sys.meta_path if type(x).__module__ != "mmrl._moved"]

def snapshot():
    loggers = logging.root.manager.loggerDict.items()
    return {
        "jax.config": dict(jax.config.values),
        "warnings": (list(warnings.filters), warnings.showwarning, warnings.formatwarning),
        "rcParams": dict(matplotlib.rcParams),
        "numpy": (numpy.geterr(), numpy.get_printoptions(), str(numpy.random.get_state())),
        "random": random.getstate(),
        "logging": {name: (x.level, x.handlers) for name, x in loggers if hasattr(x, "level")},
        "environment": {name: x for name, x in os.environ.items() if name != "XLA_FLAGS"},
        "hooks": (sys.excepthook, sys.displayhook, list(sys.path), finders()),
        "lowerings": [table.get(x) for table, x in rules],
    }

tables = [mlir._lowerings, *mlir._platform_specific_lowerings.values()]
rules = [(table, x) for table in tables for x in table]  # new primitives may have more
before = snapshot()
for module in pkgutil.walk_packages(mmrl.__path__, "mmrl."):
    library = ".adapters.of_" in module.name  # of others, which may be missing
    if not module.name.endswith("__main__") and not library:
        import_module(module.name)
after = snapshot()
print([name for name in before if after[name] != before[name]])
"""


@pytest.mark.full
@pytest.mark.slow
def test_importing_all_of_mmrl_changes_no_setting_of_the_process():
    process = subprocess.run([sys.executable, "-c", _SNAPSHOTS], capture_output=True, text=True)
    assert process.stdout == "[]\n", process.stdout + process.stderr


def words(key: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(key))


def test_threefry_keys_stay_and_raw_ones_are_typed():
    key = jax.random.key(5)
    assert _random.one_key(key) is key
    np.testing.assert_array_equal(words(_random.one_key(jax.random.PRNGKey(5))), words(key))


@pytest.mark.parametrize("bad", [0, jnp.zeros(2), jnp.zeros(3, jnp.uint32), np.uint32(1), None])
def test_values_that_are_not_keys_are_refused(bad: Any):
    with pytest.raises(ValueError, match="`key`"):
        _random.one_key(bad)


def test_several_keys_are_refused():
    for keys in (jax.random.split(jax.random.key(0)), jnp.zeros((1, 2), jnp.uint32)):
        with pytest.raises(ValueError, match="`key`"):
            _random.one_key(keys)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rbg", "unsafe_rbg"])
def test_seeds_side_by_side_do_not_depend_on_one_another(kind: str):
    """Under `vmap`, JAX's generators of these kinds draw from the first key of a batch."""
    env, params = make("probe-Match-v0")
    config = ppo.Config(memory="none", width=4, environments=1, rollout=4)

    @jax.jit
    @jax.vmap
    def network(key):
        return ppo.init(config, env, params, key).net

    with jax.default_prng_impl(kind):
        keys = jax.vmap(jax.random.key)(jnp.arange(3, dtype=jnp.uint32))
        pairs = [network(keys[jnp.array(seeds)]) for seeds in ([0, 1], [0, 2], [1, 2])]
    first, second, third = (
        np.concatenate([x.reshape(2, -1) for x in jax.tree.leaves(net)], 1) for net in pairs
    )
    np.testing.assert_array_equal(first[0], second[0])
    np.testing.assert_array_equal(first[1], third[0])
    assert (first[1] != second[1]).mean() > 0.5


@pytest.mark.slow
def test_seeds_of_one_batch_act_apart_and_as_if_alone():
    with jax.default_prng_impl("rbg"):
        keys = jax.random.split(jax.random.key(0), 3)
        split = jax.vmap(lambda key: jax.random.split(_random.one_key(key), 2))
        np.testing.assert_array_equal(words(split(keys))[1], words(split(keys[1:2]))[0])
        assert len(np.unique(words(split(keys)).reshape(6, -1), axis=0)) == 6


def draw(state: Any, obs: Any, begin: Any, key: Any) -> tuple[Any, Any]:
    return state, jax.random.bernoulli(key).astype(jnp.int32)


def test_raw_keys_play_as_typed_ones():
    env, params = make("probe-Match-v0")

    @jax.jit
    def play(key):
        carry = rollout.start(env, params, (), jax.random.key(0))
        return rollout.collect(draw, env, params, carry, key, 20)[1].action

    raw, new = play(jax.random.PRNGKey(3)), play(jax.random.key(3))
    np.testing.assert_array_equal(raw, new)
