"""Training of several agents in one vmapped program, with a different key and settings each.

On several devices, agents are sharded over groups of devices, and the environments of an agent are
sharded over the devices of its group.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Key, PyTree

from mmrl import _random
from mmrl._devices import ENVIRONMENTS
from mmrl.agents import resize
from mmrl.runs.devices import ONE, SEEDS, Devices

Executable = Callable[[Any, Any], Any]


def side_by_side(
    agent: Any,
    env: Any,
    params: Any,
    make: Callable | None = None,
    learn: Callable | None = None,
    devices: Devices = ONE,
    precision: str | None = None,
) -> tuple[Executable, Executable]:
    """Return compiled functions `init` and `block` that train several agents.

    `init(config, keys [agent])` returns the initial state, and `block(config, state)` returns
    (state, metrics); all their arrays have a leading axis of agents. `agent` is a module like those
    in `mmrl.agents.AGENTS`. A setting in `config` is either a scalar, which all agents share, or an
    array with one entry per agent; see `with_numbers`. `precision` is JAX's name for the precision
    of matrix products. By default, JAX's global setting is used.

    This function calls `mmrl._random.compile_quickly`, which affects the compilation of random
    numbers in the entire process.
    """
    _random.compile_quickly()
    own_net = {} if make is None else {"make": make}
    own_step = {} if learn is None else {"learn": learn}

    def begin(config, key):
        with _matmul_precision(precision):
            return agent.init(config, env, params, key, **own_net)

    def advance(config, state):
        with _matmul_precision(precision):
            return agent.block(config, env, params, state, **own_step)

    def init(config, keys):
        return _strong_types(jax.vmap(begin, (_axes(config), 0))(config, keys))

    def block(config, state):
        state, metrics = jax.vmap(advance, (_axes(config), 0))(config, state)
        return _strong_types(state), metrics

    # The old state is not donated, because it is needed again if the block is interrupted.
    if devices.mesh is None:
        return jax.jit(init), jax.jit(block)
    sizes = getattr(agent, "resolve_sizes", lambda config, *_: config)
    return _on_devices(devices, init, block, lambda config: sizes(config, env, params))


def _matmul_precision(name: str | None) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext() if name is None else jax.default_matmul_precision(name)


def _strong_types(state: PyTree) -> PyTree:
    """Remove weak types from a state, because they would cause the next block to recompile."""
    return jax.tree.map(lambda x: jnp.asarray(x, x.dtype), state)


def _on_devices(
    devices: Devices, init: Executable, block: Executable, sizes: Callable[[Any], Any]
) -> tuple[Executable, Executable]:
    """Return `init` and `block` for several devices. `sizes` replaces sizes that are None.

    Seeds are independent, so they are sharded with `shard_map`. Within a group of devices, arrays
    whose size depends on the number of environments are sharded, and the compiler partitions the
    computation accordingly.
    """
    mesh: Any = devices.mesh
    each = PartitionSpec(SEEDS)

    def shard_seeds(function, config):
        settings = jax.tree.map(lambda x: each if jnp.ndim(x) else PartitionSpec(), config)
        return jax.shard_map(
            function,
            mesh=mesh,
            in_specs=(settings, each),
            out_specs=each,
            axis_names={SEEDS},
            check_vma=False,
        )

    def placement(config, state):
        axes = environment_axes(init, sizes(config), len(jax.tree.leaves(state)[0]))
        return jax.tree.map(lambda x, axis: _spec(x, axis, mesh.shape[ENVIRONMENTS]), state, axes)

    def place(config, state):
        def one(x, spec):
            return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, spec))

        return jax.tree.map(one, state, placement(config, state))

    @jax.jit
    def init_all(config, keys):
        return place(config, shard_seeds(init, config)(config, keys))

    @jax.jit
    def block_all(config, state):
        state, metrics = shard_seeds(block, config)(config, place(config, state))
        return place(config, state), metrics

    def ensure_placed(config, state):
        """Place the state on the mesh, unless it is already there."""
        first = jax.tree.leaves(state)[0]
        where = None if isinstance(first, Tracer) else getattr(first, "sharding", None)
        if isinstance(first, Tracer) or getattr(where, "mesh", None) == mesh:
            return state
        return devices.put(state, placement(config, state))

    return (
        lambda config, keys: init_all(config, devices.put(keys, each)),
        lambda config, state: block_all(config, ensure_placed(config, state)),
    )


def environment_axes(init: Executable, config: Any, seeds: int) -> PyTree:
    """Return the axis of each array whose size depends on the number of environments, or 0.

    The function traces a second state, with twice as many environments, and compares the shapes of
    both states. The sum tree of the second state may have one more level, so that an array of the
    first tree is compared with another level of the second tree. This does not change the result,
    because the two levels also differ in length along the axis in question.
    """
    shapes = jax.eval_shape(lambda: keys(range(seeds)))
    sizes = {name: getattr(config, name, None) for name in ("environments", "capacity")}
    twice = resize(config, **{name: 2 * size for name, size in sizes.items() if size})
    one, two = (jax.eval_shape(init, each, shapes) for each in (config, twice))
    others = dict(jax.tree_util.tree_leaves_with_path(two))

    def grows(path, x):
        return next((n for n in range(1, x.ndim) if others[path].shape[n] != x.shape[n]), 0)

    return jax.tree_util.tree_map_with_path(grows, one)


def _spec(x: Any, axis: int, devices: int) -> PartitionSpec:
    """Return the sharding of an array [seed, ...]: by seed, and along `axis` if possible."""
    if axis == 0 or x.shape[axis] % devices:
        return PartitionSpec(SEEDS)
    return PartitionSpec(SEEDS, *[None] * (axis - 1), ENVIRONMENTS)


def _axes(config: Any) -> Any:
    return jax.tree.map(lambda x: 0 if jnp.ndim(x) else None, config)


def with_numbers(config: Any, numbers: Mapping[str, Any]) -> Any:
    """Return `config` with settings replaced by `numbers`, arrays with one entry per agent."""
    values = [jnp.asarray(each, jnp.float32) for each in numbers.values()]
    return eqx.tree_at(lambda c: [getattr(c, name) for name in numbers], config, values)


def keys(seeds: Sequence[int]) -> Key[Array, " agent"]:
    """Return an array of keys, one per seed."""
    return jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32))


def check_products(precision: str, block: Any, config: Any, state: PyTree) -> None:
    """Raise `ValueError` if bfloat16 would affect matrix products in dtypes other than float32.

    For example, bfloat16 would discard the imaginary parts of complex numbers. `state` may consist
    of `ShapeDtypeStruct`s. Programs for several devices are not checked.
    """
    if precision != "bfloat16" or not hasattr(block, "trace"):
        return
    products = _products(block.trace(config, state).jaxpr)
    others = {str(x.aval.dtype) for product in products for x in product.invars} - {"float32"}
    if others:
        raise ValueError(
            "`precision` must not be 'bfloat16' for a program with matrix products in dtypes other "
            f"than float32, got {', '.join(sorted(others))}. Use 'tf32', or compute these products "
            "elementwise."
        )


def _products(jaxpr: Any) -> Iterator[Any]:
    """Yield all matrix products of a program, including those in loops and nested calls."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation
        for part in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
            if hasattr(part, "eqns"):
                yield from _products(part)
