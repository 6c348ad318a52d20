"""Derivative of one operation, and the residuals that its forward pass stores.

JAX splits the derivative of a function into a forward pass and a linear map from cotangents of the
results to cotangents of the arguments. The map is a pytree, and its leaves are the *residuals*:
values from the forward pass. Either residuals become outputs of the operation (`Forward`), which
the backward pass reads (`PullBack`), or the backward pass recomputes them.

Only residuals that are expensive to compute are stored. Sums, entrywise products and reshapes are
recomputed from the arguments and the other residuals. For example, tanh(x) stores its value but not
1 - tanh²(x), and a layer that reshapes an observation does not store a second copy of it.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.extend.core import Literal, jaxpr_as_fun
from jax.interpreters import partial_eval

from mmrl.pdg.build.expr import Sym
from mmrl.pdg.build.graph import Domain, Op
from mmrl.pdg.build.ops import BOUND, traceable

_CHEAP = {"abs", "add", "add_any", "and", "convert_element_type", "copy", "div", "eq", "ge", "gt"}
_CHEAP |= {"iota", "le", "lt", "max", "min", "mul", "ne", "neg", "not", "or", "select_n", "sign"}
_CHEAP |= {"square", "stop_gradient", "sub", "broadcast_in_dim", "concatenate", "expand_dims"}
_CHEAP |= {"pad", "reshape", "rev", "slice", "squeeze", "transpose"}
REPEAT = 1.25
"""Maximum work of separate backward passes, as a multiple of the work of a single one."""


class Residual(NamedTuple):
    """Residual of a VJP: indices of its leaf in the linear map and of the output that stores it."""

    leaf: int
    output: int


@dataclasses.dataclass(frozen=True, eq=False)
class Derivative:
    """Derivative of the `outputs` of an operation with respect to its arguments `wrt`.

    `outputs` and `wrt` are indices. `kinds` contains the types of all arguments.
    """

    op: Op
    kinds: tuple[Any, ...]
    wrt: tuple[int, ...]
    outputs: tuple[int, ...]

    def linearize(
        self, env: Mapping[str, Any], primals: Sequence[Any]
    ) -> tuple[Any, tuple[Any, ...]]:
        """Return the map from output cotangents to argument cotangents, and all outputs."""
        forward = self.op.run
        assert forward is not None

        def split(here: Mapping[str, Any], primals: list[Any]) -> tuple[Any, tuple[Any, ...]]:
            def f(*floats: Any) -> tuple[Any, Any]:
                now = dict(enumerate(primals))
                now |= {k: eqx.combine(x, primals[k]) for k, x in zip(self.wrt, floats)}  # noqa: B905
                results = tuple(forward({**env, **here}, *now.values()))
                return tuple(eqx.filter(results[k], eqx.is_inexact_array) for k in self.outputs), (
                    results
                )

            differentiable = [eqx.filter(primals[k], eqx.is_inexact_array) for k in self.wrt]
            # JAX 0.10 rounds the values that a checkpoint saves, but cannot round complex numbers.
            if not _is_complex(jax.make_jaxpr(f)(*differentiable).jaxpr):
                f = jax.checkpoint(f, policy=_is_expensive, prevent_cse=False)
            _, back, results = jax.vjp(f, *differentiable, has_aux=True)
            return back, results

        # With Python scalars and weak types, as in jnp.full(4, 0.3), the types of the residuals
        # could differ between points. Tracing the function first fixes all types.
        here = {name: env[name] for name in self.op.domain.names}
        arguments = jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), list(primals))
        jaxpr, out = jax.make_jaxpr(split, return_shape=True)(here, arguments)
        leaves = jaxpr_as_fun(jaxpr)(*jax.tree.leaves((here, arguments)))
        return jax.tree.unflatten(jax.tree.structure(out), leaves)

    def residuals(self, bounds: Sequence[Sym], domains: Sequence[Domain]) -> list[Residual]:
        """Return the residuals to store: those that depend on all dimensions of the operation.

        Arguments and constants are not stored. Values that depend only on arguments shared by
        several points, such as parameters, are not stored either. `domains` contains the domains of
        the arguments. A residual that equals an output refers to this output; the others are
        numbered as additional outputs.
        """

        def run(env: Mapping[str, Any], *primals: Any) -> tuple[Any, ...]:
            back, results = self.linearize(env, primals)
            return jax.tree.leaves(back), results

        jaxpr, owners = self.trace(run, self.kinds, bounds)
        sizes = [len(jax.tree.leaves(kind)) for kind in self.op.outputs]
        count = len(jaxpr.outvars) - sum(sizes)
        owner_of = [k for k, size in enumerate(sizes) for _ in range(size)]
        places = {
            variable: k
            for k, variable in zip(owner_of, jaxpr.outvars[count:], strict=True)
            if sizes[k] == 1 and not isinstance(variable, Literal)
        }
        residuals, new = [], len(self.op.outputs)
        own = set(self.op.domain.names)
        names = [own if k is None else set(domains[k].names) for k in owners]
        for leaf, variable in enumerate(jaxpr.outvars[:count]):
            mask = [place == leaf for place in range(len(jaxpr.outvars))]
            inputs = partial_eval.dce_jaxpr(jaxpr, mask)[1]
            along = [part for part, yes in zip(names, inputs, strict=True) if yes]
            plain = not jnp.issubdtype(variable.aval.dtype, jax.dtypes.extended)
            if plain and along and set().union(*along) == own and variable not in jaxpr.invars:
                output = places.setdefault(variable, new)
                new += output == new
                residuals.append(Residual(leaf, output))
        return residuals

    def trace(
        self, run: Callable[..., Any], kinds: Sequence[Any], bounds: Sequence[Sym]
    ) -> tuple[Any, list[int | None]]:
        """Return the jaxpr of `run`, and the index of the argument to which each input belongs.

        The index is None for inputs that are values of symbols.
        """
        domain = self.op.domain
        size = functools.partial(domain.largest, bounds={b.name: BOUND for b in bounds})
        call, env, *values = traceable(run, kinds, domain.names, bounds, size)
        owners: list[int | None] = [None] * len(jax.tree.leaves(env))
        for k, value in enumerate(values):
            owners += [k] * len(jax.tree.leaves(value))
        return jax.make_jaxpr(call)(env, *values).jaxpr, owners


def _is_expensive(primitive: Any, *_: Any, **params: Any) -> bool:
    return primitive.name not in _CHEAP


def _is_complex(jaxpr: Any) -> bool:
    """Return True if a jaxpr computes complex numbers, including in the functions it calls."""
    values = [v.aval for equation in jaxpr.eqns for v in equation.outvars]
    if any(jnp.issubdtype(getattr(x, "dtype", bool), jnp.complexfloating) for x in values):
        return True
    return any(_is_complex(part) for e in jaxpr.eqns for part in _inner(e.params))


def work(jaxpr: Any) -> int:
    """Return the number of scalar operations in a jaxpr.

    The product of an (m, k) and a (k, n) matrix counts as 2 m n k operations, and a convolution as
    two per product of entries. Any other primitive counts as one per entry of its results. A
    `while` counts as one iteration, and a `cond` as its most expensive branch.
    """
    count = 0
    for equation in jaxpr.eqns:
        inner = [work(each) for each in _inner(equation.params)]
        turns = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        out = sum(math.prod(v.aval.shape) for v in equation.outvars if hasattr(v.aval, "shape"))
        if inner:
            count += turns * (max(inner) if equation.primitive.name == "cond" else sum(inner))
        elif equation.primitive.name == "dot_general":
            (axes, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            count += 2 * out * math.prod(shape[axis] for axis in axes)
        elif equation.primitive.name == "conv_general_dilated":
            filters = equation.invars[1].aval.shape
            outputs = filters[equation.params["dimension_numbers"].rhs_spec[0]]
            count += 2 * out * math.prod(filters) // outputs
        else:
            count += out
    return count


def _inner(params: Mapping[str, Any]) -> list[Any]:
    """Return the jaxprs among an equation's parameters."""
    jaxprs = []
    for value in params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            each = getattr(each, "jaxpr", each)
            if hasattr(each, "eqns"):
                jaxprs.append(each)
    return jaxprs


@dataclasses.dataclass(frozen=True, eq=False)
class Forward:
    """Forward pass `run(env, *arguments)` that also returns some leaves of the linear map."""

    derivative: Derivative
    leaves: tuple[int, ...]

    def __call__(self, env: Mapping[str, Any], *primals: Any) -> tuple[Any, ...]:
        back, results = self.derivative.linearize(env, primals)
        residuals = jax.tree.leaves(back)
        return *results, *(residuals[k] for k in self.leaves)


def plain(op: Op) -> tuple[Op, list[Any]]:
    """Return the operation without residual outputs, and a description of the removed ones."""
    removals: list[Any] = []
    while isinstance(op.run, Forward):
        derivative = op.run.derivative
        removals.insert(0, (derivative.wrt, derivative.outputs, op.run.leaves))
        op = derivative.op
    return op, removals


@dataclasses.dataclass(frozen=True, eq=False)
class PullBack:
    """Backward pass `run(env, *arguments, *residuals, *cotangents)` of an operation.

    The function returns the cotangents of the arguments `wrt`. It receives only the arguments at
    `argument_positions`; the others are replaced by zeros, because the result does not depend on
    them. The residuals are read from the outputs `residual_outputs` of the operation. `explicit` is
    True if the caller of `gradient` decided whether to store residuals.
    """

    derivative: Derivative
    wrt: tuple[int, ...]
    residuals: tuple[Residual, ...]
    argument_positions: tuple[int, ...]
    explicit: bool

    @classmethod
    def parts(
        cls,
        derivative: Derivative,
        parts: Sequence[tuple[int, ...]],
        residuals: Sequence[Residual],
        outputs: Sequence[Any],
        bounds: Sequence[Sym],
        explicit: bool,
    ) -> list["PullBack"]:
        """Return one backward pass per group of arguments, or a single one for all of them.

        `parts` contains the groups. They are merged if separate backward passes would take more
        than `REPEAT` times as many scalar operations. Each backward pass reads only the arguments
        and residuals that it needs. `outputs` contains the types of the operation's outputs,
        including residuals.
        """
        wrt, kinds = derivative.wrt, derivative.kinds
        whole = cls(derivative, wrt, tuple(residuals), tuple(range(len(kinds))), explicit)
        cotangents = [inexact(derivative.op.outputs[k]) for k in derivative.outputs]
        residual_types = [outputs[k] for k in whole.residual_outputs]
        jaxpr, owners = derivative.trace(whole, [*kinds, *residual_types, *cotangents], bounds)
        sizes = [len(jax.tree.leaves(inexact(kinds[k]))) for k in wrt]
        owner_of = [k for k, size in zip(wrt, sizes, strict=True) for _ in range(size)]

        def prune(part: Sequence[int]) -> tuple[Any, list[bool]]:
            return partial_eval.dce_jaxpr(jaxpr, [k in part for k in owner_of])

        separate = sum(work(prune(part)[0]) for part in parts)
        if separate > REPEAT * work(prune(wrt)[0]):
            parts = [wrt]
        passes = []
        for part in parts:
            inputs = {owner for owner, yes in zip(owners, prune(part)[1], strict=True) if yes}
            arguments = tuple(k for k in range(len(kinds)) if k in inputs)
            places = {
                k for place, k in enumerate(whole.residual_outputs) if len(kinds) + place in inputs
            }
            own = tuple(residual for residual in residuals if residual.output in places)
            passes.append(cls(derivative, tuple(part), own, arguments, explicit))
        return passes

    @property
    def residual_outputs(self) -> tuple[int, ...]:
        """Outputs of the operation that contain residuals."""
        return tuple(sorted({residual.output for residual in self.residuals}))

    def __call__(self, env: Mapping[str, Any], *values: Any) -> tuple[Any, ...]:
        derivative, last = (
            self.derivative,
            len(self.argument_positions) + len(self.residual_outputs),
        )
        domain = derivative.op.domain
        arguments = {
            k: padded_zeros(kind, domain, env)
            for k, kind in enumerate(derivative.kinds)
            if k not in self.argument_positions
        }
        arguments |= zip(self.argument_positions, values, strict=False)
        back, _ = derivative.linearize(env, [arguments[k] for k in sorted(arguments)])
        leaves, tree = jax.tree.flatten(back)
        values_by_output = dict(
            zip(self.residual_outputs, values[len(self.argument_positions) : last], strict=True)
        )
        for leaf, output in self.residuals:
            (value,) = jax.tree.leaves(values_by_output[output])
            residual = leaves[leaf]
            if (residual.shape, residual.dtype) != (value.shape, value.dtype):
                raise ValueError(
                    f"`{derivative.op.name}` must have the same derivative each time it is traced, "
                    f"for its residuals to be stored; got {residual.dtype}{residual.shape} after "
                    f"{value.dtype}{value.shape}. Use `gradient(…, recompute=True)`."
                )
            leaves[leaf] = value
        cotangents = _inline(tree.unflatten(leaves), tuple(values[last:]))
        return tuple(cotangents[derivative.wrt.index(k)] for k in self.wrt)


def guard(back: PullBack) -> dict[str, Any]:
    """Return parameters of a vjp that describe the `when` of its operation, or an empty dictionary.

    `rest` is the number of values of `otherwise`, and `read` lists the arguments of the vjp.
    """
    params = back.derivative.op.params
    return {"rest": params["when"], "read": back.argument_positions} if "when" in params else {}


def _inline(f: Callable[[Any], Any], argument: Any) -> Any:
    """Return `f(argument)` with every `jax.checkpoint` inlined, so that passes can inspect it."""
    closed, out = jax.make_jaxpr(f, return_shape=True)(argument)

    def run(jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        variables = dict(zip(jaxpr.constvars, constants, strict=True))
        variables |= zip(jaxpr.invars, arguments, strict=True)
        read = lambda v: v.val if isinstance(v, Literal) else variables[v]  # noqa: E731
        for equation in jaxpr.eqns:
            inputs = [read(v) for v in equation.invars]
            is_checkpoint = equation.primitive.name in ("checkpoint", "remat", "remat2")
            results = (
                run(equation.params["jaxpr"], (), inputs)
                if is_checkpoint
                else bind(equation, inputs)
            )
            variables |= zip(equation.outvars, results, strict=True)
        return [read(v) for v in jaxpr.outvars]

    results = run(closed.jaxpr, closed.consts, jax.tree.leaves(argument))
    return jax.tree.unflatten(jax.tree.structure(out), results)


def bind(equation: Any, arguments: Sequence[Any]) -> list[Any]:
    """Evaluate one equation of a jaxpr, and return its results."""
    binding = equation.primitive.get_bind_params(equation.params)
    # Older versions of JAX return the functions of a call separately from its parameters.
    functions, parameters = binding if isinstance(binding, tuple) else ((), binding)
    results = equation.primitive.bind(*functions, *arguments, **parameters)
    return list(results) if equation.primitive.multiple_results else [results]


def padded_zeros(kind: Any, domain: Domain, env: Mapping[str, Any]) -> Any:
    """Return zeros with the structure and dtypes of a type, and with the padded sizes."""
    shapes = jax.tree.map(lambda leaf: leaf.storage_type(domain, env), kind)
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def inexact(kind: Any) -> Any:
    """Return a type with all leaves that are not floating-point replaced by None."""
    return jax.tree.map(
        lambda leaf: leaf if jnp.issubdtype(leaf.dtype, jnp.inexact) else None, kind
    )
