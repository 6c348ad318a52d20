"""Ahead of a loop: what depends on the point alone, above all random numbers, for all its points.

An operation's function is split in two by partial evaluation, as JAX splits functions for
gradients. The part that needs nothing but the point and the program's inputs runs before the loop,
under `vmap`; the rest runs in it. Many small draws become a large one, which takes less time, and
memory for each point of the loop.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import core
from jax.api_util import debug_info
from jax.extend.linear_util import wrap_init
from jax.interpreters import partial_eval
from jaxtyping import PyTree

from mmrl.pdg.expr import Expr


@dataclasses.dataclass(frozen=True)
class Early:
    """A function whose early part is there for all values of a counter."""

    tables: list[Any]
    row: Expr
    late: Callable[..., tuple]

    def __call__(self, env: Mapping[str, Any], *values: PyTree) -> tuple:
        """The function's outputs where `env` has the counters."""
        at = self.row.evaluate(env)
        rows = [jax.lax.dynamic_index_in_dim(x, at, keepdims=False) for x in self.tables]
        return self.late(rows, *values)


def early(
    run: Callable[..., tuple],
    env: Callable[[Any], dict[str, Any]],
    counter: range,
    row: Expr,
    values: Sequence[PyTree],
) -> Early:
    """`run(env(c), *values)` for c in `counter`, as far as it goes without the values.

    `values` are their shapes and dtypes.
    """
    leaves, tree = jax.tree.flatten(tuple(values))
    made: list[Any] = []

    def at(c: Any) -> list[Any]:
        def rest(*leaves: Any) -> list[Any]:
            outputs = run(env(c), *jax.tree.unflatten(tree, leaves))
            found, shape = jax.tree.flatten(outputs)
            made.append(shape)
            return found

        types = [core.ShapedArray(x.shape, x.dtype) for x in leaves]
        unknown = [partial_eval.PartialVal.unknown(x) for x in types]
        fun = wrap_init(rest, debug_info=debug_info("late", rest, leaves, {}))
        jaxpr, _, known = partial_eval.trace_to_jaxpr_nounits(fun, unknown, True)
        made.append(jaxpr)
        return list(known)

    tables = jax.vmap(at)(jnp.arange(counter.start, counter.stop, dtype=jnp.int32))
    shape, jaxpr = made

    def late(rows: list[Any], *values: PyTree) -> tuple:
        outputs = core.eval_jaxpr(jaxpr, rows, *jax.tree.leaves(values))
        return jax.tree.unflatten(shape, outputs)

    return Early(tables, row, late)
