"""Agents that train side by side in one program, each with a key, and numbers, of its own.

A lane is an agent, and an agent may be split into shards: see `mmrl.collectives`.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array, Key, PyTree

from mmrl import _random, collectives
from mmrl.agents import resized
from mmrl.runs.devices import ONE, Devices

Compiled = Callable[[Any, Any], Any]
DIVIDED = ("environments", "batch", "capacity", "episodes")
"""Sizes of an agent, of which each of its shards has an equal part."""


def side_by_side(
    agent: Any,
    env: Any,
    params: Any,
    make: Callable | None = None,
    learn: Callable | None = None,
    devices: Devices = ONE,
    precision: str | None = None,
) -> tuple[Compiled, Compiled]:
    """`init(config, keys [lane])` -> state and `block(config, state)` -> (state, metrics).

    `agent` is a module as those of `mmrl.agents.AGENTS` are. A number of `config` is one for all
    lanes, or an array with one for each: see `with_numbers`. If there are several shards, what
    `agent.OWN` names has an axis of them behind that of lanes. `precision` is the one of matrix
    products, as JAX names it; by default JAX's own setting. From here on the process compiles
    random numbers by `mmrl._random.compile_quickly`.
    """
    _random.compile_quickly()
    own_net = {} if make is None else {"make": make}
    own_step = {} if learn is None else {"learn": learn}

    def begin(config, key):
        with _said_of_shards(devices.shards), _matmul_precision(precision):
            return agent.init(part(config, devices.shards), env, params, key, **own_net)

    def go_on(config, state):
        with _matmul_precision(precision):
            return agent.block(part(config, devices.shards), env, params, state, **own_step)

    def init(config, keys):
        one = begin if devices.shards == 1 else _begin_shards(agent, begin, devices.shards_of_each)
        return _settled(jax.vmap(one, (_axes(config), 0))(config, keys))

    def block(config, state):
        one = go_on if devices.shards == 1 else _go_on_shards(agent, go_on)
        state, metrics = jax.vmap(one, (_axes(config), 0))(config, state)
        return _settled(state), metrics

    # The old state is not given away: an interrupted block must leave it whole.
    if devices.mesh is None:
        return jax.jit(init), jax.jit(block)
    return _over(devices, agent, init, block)


def _matmul_precision(name: str | None) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if name is None else jax.default_matmul_precision(name)


def _settled(state: PyTree) -> PyTree:
    """Drop weak types, with which the next block would be compiled again."""
    return jax.tree.map(lambda x: jnp.asarray(x, x.dtype), state)


def _begin_shards(agent: Any, begin: Compiled, number: int) -> Compiled:
    def shards(config, key):
        one = jax.vmap(begin, None, axis_name=collectives.SHARDS, axis_size=number)
        state = one(config, key)
        return jax.tree.map(lambda x, own: x if own else x[0], state, _own(agent, state))

    return shards


def _go_on_shards(agent: Any, go_on: Compiled) -> Compiled:
    def shards(config, state):
        own = jax.tree.map(lambda own: 0 if own else None, _own(agent, state))
        one = jax.vmap(go_on, (None, own), (own, None), axis_name=collectives.SHARDS)
        try:
            return one(config, state)
        except ValueError as error:
            if "out_axes is None" not in str(error):
                raise
            raise ValueError(
                "`learn` must change the network alike in all shards, and here each has its own. "
                "Step by `descend`, or take `mmrl.collectives.mean` of its gradient."
            ) from error

    return shards


def _own(agent: Any, state: PyTree) -> PyTree:
    """For every leaf of a state, whether each shard has one of its own."""

    def is_own(path, _):
        place = jax.tree_util.keystr(path, simple=True, separator=".")
        return any(f"{place}.".startswith(f"{name}.") for name in agent.OWN)

    return jax.tree_util.tree_map_with_path(is_own, state)


def _over(
    devices: Devices, agent: Any, init: Compiled, block: Compiled
) -> tuple[Compiled, Compiled]:
    """`init` and `block` on each device, of what it has."""
    one_each = devices.spec()

    def settings(config):
        return jax.tree.map(lambda x: one_each if jnp.ndim(x) else PartitionSpec(), config)

    def placed(state):
        return jax.tree.map(devices.spec, _own(agent, state))

    def mapped(function, given, made):
        return jax.shard_map(
            function, mesh=devices.mesh, in_specs=given, out_specs=made, check_vma=False
        )

    @jax.jit
    def init_all(config, keys):
        specs = placed(jax.eval_shape(init, config, keys))
        return mapped(init, (settings(config), one_each), specs)(config, keys)

    @jax.jit
    def block_all(config, state):
        specs = placed(state)
        return mapped(block, (settings(config), specs), (specs, one_each))(config, state)

    return (
        lambda config, keys: init_all(config, devices.put(keys, one_each)),
        lambda config, state: block_all(config, devices.put(state, placed(state))),
    )


def part(config: Any, shards: int) -> Any:
    """The settings of each shard. Raises `ValueError` for a size that cannot be divided."""
    sizes = {name: size for name in DIVIDED if (size := getattr(config, name, None)) is not None}
    for name, size in sizes.items():
        if shards > 1 and size % shards:
            raise ValueError(f"`{name}` must be a multiple of the {shards} shards; got {size}.")
    return config if shards == 1 else resized(config, **{k: v // shards for k, v in sizes.items()})


def check(agent: Any, config: Any, env: Any, params: Any, shards: int = 1) -> None:
    """Raises `ValueError` for a setting that cannot work, of an agent or of each of its shards."""
    own = part(config, shards)
    with _said_of_shards(shards):
        agent.check(own, env, params)


@contextlib.contextmanager
def _said_of_shards(shards: int) -> Iterator[None]:
    """Add to an error of an agent that its sizes are not the ones that were given."""
    try:
        yield
    except ValueError as error:
        if shards == 1:
            raise
        raise ValueError(f"{error} Sizes are those of each of the {shards} shards.") from error


def _axes(config: Any) -> Any:
    return jax.tree.map(lambda x: 0 if jnp.ndim(x) else None, config)


def with_numbers(config: Any, numbers: Mapping[str, Any]) -> Any:
    """The settings of lanes that differ in these numbers, of which each has one for every lane."""
    values = [jnp.asarray(each, jnp.float32) for each in numbers.values()]
    return eqx.tree_at(lambda c: [getattr(c, name) for name in numbers], config, values)


def keys(seeds: Sequence[int]) -> Key[Array, " lane"]:
    """A key for each seed, [lane]."""
    return jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32))


def check_products(precision: str, block: Any, config: Any, state: PyTree) -> None:
    """Raise `ValueError` if bfloat16 would round products in a block that are not of float32.

    It would drop the imaginary part of complex numbers. `state` may have shapes for arrays. Not
    checked over several devices.
    """
    if precision != "bfloat16" or not hasattr(block, "trace"):
        return
    products = _products(block.trace(config, state).jaxpr)
    others = {str(x.aval.dtype) for product in products for x in product.invars} - {"float32"}
    if others:
        raise ValueError(
            "`precision` must not be 'bfloat16' here, because it would round matrix products of "
            f"{', '.join(sorted(others))}, and only those of float32 may be. Use 'tf32', or "
            "compute these products elementwise."
        )


def _products(jaxpr: Any) -> Iterator[Any]:
    """Yield the matrix products of a traced program, those of its loops and calls included."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation
        for part in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(part, "eqns"):
                yield from _products(part)
