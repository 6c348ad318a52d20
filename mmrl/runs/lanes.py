"""Agents that train side by side in one program, each with a key, and numbers, of its own."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

Compiled = Callable[[Any, Any], Any]


def side_by_side(
    agent: Any, env: Any, params: Any, make: Callable | None = None, learn: Callable | None = None
) -> tuple[Compiled, Compiled]:
    """`init(config, keys [lane])` -> state and `block(config, state)` -> (state, metrics).

    `agent` is a module as those of `mmrl.agents.AGENTS` are. A number of `config` is one for all
    lanes, or an array with one for each: see `with_numbers`.
    """
    own_net = {} if make is None else {"make": make}
    own_step = {} if learn is None else {"learn": learn}

    def begin(config, key):
        return agent.init(config, env, params, key, **own_net)

    def go_on(config, state):
        return agent.block(config, env, params, state, **own_step)

    @jax.jit
    def init(config, keys):
        state = jax.vmap(begin, (_axes(config), 0))(config, keys)
        return jax.tree.map(lambda x: jnp.asarray(x, x.dtype), state)  # weak types do not last

    # The old state is not given away: an interrupted block must leave it whole.
    @jax.jit
    def block(config, state):
        return jax.vmap(go_on, (_axes(config), 0))(config, state)

    return init, block


def _axes(config: Any) -> Any:
    return jax.tree.map(lambda x: 0 if jnp.ndim(x) else None, config)


def with_numbers(config: Any, numbers: Mapping[str, Any]) -> Any:
    """The settings of lanes that differ in these numbers, of which each has one for every lane."""
    values = [jnp.asarray(each, jnp.float32) for each in numbers.values()]
    return eqx.tree_at(lambda c: [getattr(c, name) for name in numbers], config, values)


def keys(seeds: Sequence[int]) -> Key[Array, " lane"]:
    """A key for each seed, [lane]."""
    return jax.vmap(jax.random.key)(np.asarray(seeds, np.uint32))
