"""Table of operations on arrays, with one row per kind.  §5.1, "Tensor operations"

Each row is a pure function of arrays, so `jax.vjp` differentiates all rows, and abstract evaluation
infers all shapes. A ragged array, for example with T - t rewards, is padded with zeros. Rows whose
result would depend on the padding (`WITH_MASK`) take a `mask` of the real entries.
"""

import contextlib
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.pdg.build.expr import TRUE, Expr, Slice, Sym, as_expr
from mmrl.pdg.build.graph import ArrayType, Domain, array_type, ragged


def limit(x: Any, sign: int) -> Any:
    """Return the smallest value of x's dtype if `sign` is -1, and the largest if it is 1.

    The smallest value is the identity of a maximum, and the largest is the identity of a minimum.
    """
    if jnp.issubdtype(x.dtype, jnp.inexact):
        return sign * np.inf
    if x.dtype == bool:
        return sign > 0
    return jnp.iinfo(x.dtype).max if sign > 0 else jnp.iinfo(x.dtype).min


def _softmax(x: Any, *, axis: int, mask: Any) -> Any:
    """Compute a softmax with NumPy; JAX uses `jax.nn.softmax`, which has a stable derivative."""
    inside = np.bool_(True) if mask is None else mask
    powers = np.exp(x - x.max(axis, keepdims=True, where=inside, initial=-np.inf)) * inside
    return powers / powers.sum(axis, keepdims=True)


def _cast(x: Any, *, dtype: Any) -> Any:
    """Cast with NumPy as JAX does: float to integer clips values and maps NaN to 0."""
    if not (jnp.issubdtype(x.dtype, jnp.floating) and jnp.issubdtype(dtype, jnp.integer)):
        return x.astype(dtype)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    inside = (x > least) & (x < most)
    ends = np.where(np.isnan(x), 0, np.where(x > 0, most, least)).astype(dtype)
    return np.where(inside, np.where(inside, x, 0).astype(dtype), ends)


_NUMPY_NAMES = "add exp log tanh sqrt abs less less_equal equal not_equal bitwise_and bitwise_or "
_NUMPY_NAMES += "invert where minimum maximum cumsum transpose expand_dims squeeze"


def rows(xp: Any) -> dict[str, Callable[..., Any]]:
    """Return the table of functions by kind, computed with `xp`: `jax.numpy` or NumPy."""

    def where(mask: Any) -> dict[str, Any]:
        return {} if mask is None else {"where": mask}

    def discounted_sum(x: Any, *, gamma: float, mask: Any) -> Any:
        """Return Σ_k γᵏ x_k along the first axis."""
        x = x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(np.float32)
        gains = gamma ** xp.arange(x.shape[0], dtype=x.dtype)
        return xp.tensordot(gains, x if mask is None else xp.where(mask, x, 0), 1)

    def matmul(x: Any, y: Any, *, mask: Any, zeros: bool) -> Any:
        """Return x @ y; if `zeros`, the padding of y is already zero, which saves a copy."""
        if mask is not None:
            x = xp.where(mask, x, 0)
        if mask is not None and not zeros:
            along = (-1,) if y.ndim == 1 else (*(1 for _ in y.shape[2:]), -1, 1)
            y = xp.where(mask.reshape(along), y, 0)
        return x @ y

    def flip(x: Any, *, axis: int, mask: Any) -> Any:
        """Reverse x along an axis; the padding stays at the end."""
        flipped = xp.flip(x, axis)
        return flipped if mask is None else xp.roll(flipped, mask.sum() - x.shape[axis], axis)

    def softmax(x: Any, *, axis: int, mask: Any) -> Any:
        if xp is np:
            return _softmax(x, axis=axis, mask=mask)
        return jax.nn.softmax(x, axis, where=mask)

    return {
        **{name: getattr(xp, name) for name in _NUMPY_NAMES.split()},
        "sub": xp.subtract,
        "mul": xp.multiply,
        "div": xp.divide,
        "pow": xp.power,
        "neg": xp.negative,
        "relu": jax.nn.relu if xp is jnp else lambda x: np.maximum(x, 0),
        "cast": _cast if xp is np else lambda x, *, dtype: x.astype(dtype),
        "reshape": lambda x, *, shape: x.reshape(shape),
        "sum": lambda x, *, axis, mask: xp.sum(x, axis, **where(mask)),
        "mean": lambda x, *, axis, mask: xp.mean(x, axis, **where(mask)),
        "max": lambda x, *, axis, mask: xp.max(x, axis, initial=limit(x, -1), **where(mask)),
        "min": lambda x, *, axis, mask: xp.min(x, axis, initial=limit(x, 1), **where(mask)),
        "discounted_sum": discounted_sum,
        "softmax": softmax,
        "matmul": matmul,
        "flip": flip,
        "concatenate": lambda *xs, axis: xp.concatenate(xs, axis),
        "take": lambda x, *, at: x[at],
    }


TABLE, NUMPY = rows(jnp), rows(np)
"""Tables for JAX and NumPy; `bind` uses the NumPy table if no input is a JAX array."""
WITH_MASK = {"sum", "mean", "max", "min", "discounted_sum", "softmax", "matmul", "flip"}

# Kinds that the program itself builds. All except merges define their own `run`:
#   merge     branching definition: the value along the only edge whose condition holds
#   fn        a user's function
#   random    a user's function with an additional key, which depends on the point
#   constant  a fixed array
#   value     the value of an index expression
#   input     an argument of the run
#   host      a call of a Python function for its effects
#   read      a copy of what an edge reads, such as a slice or a result
#   vjp       gradients with respect to an operation's inputs
#   gather    the gradient with respect to a source, summed over φ⁻¹


def plus(env: Mapping[str, Any], *terms: Any) -> tuple[Any]:
    """Return the sum of several pytrees of arrays."""
    first, *rest = terms
    for term in rest:
        first = jax.tree.map(operator.add, first, term)
    return (first,)


def bind(
    kind: str, types: Sequence[ArrayType], params: Mapping[str, Any], sliced: Sequence[bool]
) -> Callable[..., Any]:
    """Return the function `run(env, *inputs)` of a row for the given input types.

    `sliced` specifies for each input whether it is a slice. Raises `ValueError` for an `axis` that
    the first input does not have.
    """
    axis = -1 if kind == "matmul" else params.get("axis", 0)
    if kind == "discounted_sum" or ("axis" in params and kind != "expand_dims"):
        count = len(types[0].shape)
        if axis is not None and not (isinstance(axis, int) and -count <= axis < count):
            raise ValueError(
                f"`axis` of `{kind}` must be an axis of {types[0]}, got {axis}: to add a "
                f"leading axis, read a slice of points, as in `x[0:T]`"
            )

    def run(env: Mapping[str, Any], *inputs: Any) -> tuple[Any, ...]:
        mask = {"mask": entry_mask(inputs[0], types[0], axis, env)} if kind in WITH_MASK else {}
        mask |= {"zeros": sliced[1]} if kind == "matmul" else {}
        table = TABLE if any(isinstance(x, jax.Array) for x in inputs) else NUMPY
        return (table[kind](*inputs, **params, **mask),)

    return run


def needs(kind: str, inputs: Sequence[Any], params: Mapping[str, Any]) -> Expr:
    """Return the condition under which an operation has a value.

    All its inputs must exist. In addition, an empty slice has no mean, maximum or minimum, and
    x[..., 2] requires three entries. Raises `ValueError` if padding would end up between entries.
    """
    condition = functools.reduce(operator.and_, (x.needs for x in inputs), TRUE)
    if kind in ("mean", "max", "min"):
        shape, axis = inputs[0].shape, params["axis"]
        for size in shape if axis is None else [shape[axis]]:
            condition = condition & (as_expr(size) > 0)
    elif kind == "take":
        own = params["at"][1:]
        for size, at in zip(inputs[0].shape[-len(own) :], own, strict=False):
            if isinstance(size, Expr):
                condition = condition & (size >= _last(size, at))
            elif isinstance(at, int) and not -size <= at < size:
                raise ValueError(f"`{at}` must be an index into an axis of {size} entries")
    elif kind in ("concatenate", "reshape") or (kind == "cumsum" and params["axis"] is None):
        axis = params.get("axis")
        before = inputs[0].shape[1:] if axis is None else [x.shape[axis] for x in inputs[:-1]]
        if sizes := [size for size in before if isinstance(size, Expr)]:
            raise ValueError(
                f"`{kind}` would leave padding between entries, because the size {sizes[0]} "
                f"differs between points: only the last array of `concatenate` and the first axis "
                f"of `reshape` and `cumsum(None)` may vary in size"
            )
    return condition


def _last(size: Expr, at: Any) -> int:
    """Return the smallest size of an axis for which the index `at` is within the axis.

    Raises `ValueError` for an index that is counted from the end of a ragged axis.
    """
    ends = (at.start or 0, at.stop or 0) if isinstance(at, slice) else (at, at + 1)
    if min(ends) < 0 or (isinstance(at, slice) and at.step not in (None, 1)):
        raise ValueError(
            f"`{at}` would count the padding of an axis of {size} entries: count from its start, "
            f"or reverse the axis with `flip` first"
        )
    return max(ends)


def entry_mask(x: Any, kind: ArrayType, axis: int | None, env: Mapping[str, Any]) -> Any:
    """Return a mask that is false for padding along an axis, or None without padding.

    If `axis` is None, the mask covers all axes. The mask has the rank of `x`, with size 1 along
    axes that are not ragged.
    """
    mask, xp = None, jnp if isinstance(x, jax.Array) else np
    places = range(x.ndim) if axis is None else [axis % max(x.ndim, 1)] if x.ndim else []
    for place in places:
        size = kind.shape[place]
        if isinstance(size, Expr):
            shape = [-1 if other == place else 1 for other in range(x.ndim)]
            part = (xp.arange(x.shape[place]) < size.evaluate(env)).reshape(shape)
            mask = part if mask is None else mask & part
    return mask


def constant(x: Any, kind: ArrayType) -> Any:
    """Convert a constant to the dtype of a tensor. Raises `ValueError` if it would lose digits."""
    x = jnp.asarray(x)
    for group in (jnp.complexfloating, jnp.inexact, jnp.number):
        if jnp.issubdtype(x.dtype, group) and not jnp.issubdtype(kind.dtype, group):
            raise ValueError(
                f"`value` must be {kind.dtype}, as in the first definition of the tensor, got {x} "
                f"of {x.dtype}: convert one of them, for example 0 to 0.0"
            )
    return x.astype(kind.dtype)


def padding(tensors: Sequence[Any]) -> Callable[[Mapping[str, Any], Sequence[Any]], tuple]:
    """Return a function that sets the padding in the values of ragged tensors to zero."""
    kinds = [(x.type, sum(isinstance(part, Slice) for part in x.index)) for x in tensors]

    def pad(env: Mapping[str, Any], values: Sequence[Any]) -> tuple:
        return tuple(
            jax.tree.map(lambda k, x, n=n: _zero_padding(x, k, n, env), kind, value)
            for (kind, n), value in zip(kinds, values, strict=True)
        )

    return pad


def _zero_padding(x: Any, kind: ArrayType, slices: int, env: Mapping[str, Any]) -> Any:
    """Set the padding of an array to zero, except along its first `slices` axes.

    These axes are slices of points, whose padding is zero already.
    """
    xp = jnp if isinstance(x, jax.Array) else np
    for axis in range(slices, len(kind.shape)):
        mask = entry_mask(x, kind, axis, env)
        x = x if mask is None else xp.where(mask, x, np.zeros((), x.dtype))
    return x


def cut(run: Callable[..., Any], kinds: Sequence[Any], domain: Domain) -> Callable[..., Any]:
    """Return `run` with ragged inputs truncated to their largest size in this domain.

    A gathered cotangent is not truncated: its sizes depend on dimensions that the domain lacks,
    because the gather sums over them.
    """

    def one(kind: ArrayType, x: Any, env: Mapping[str, Any]) -> Any:
        has_value = [not isinstance(n, Expr) or n.symbols() <= env.keys() for n in kind.shape]
        cuts = (
            domain.largest(n, env) if yes else None
            for n, yes in zip(kind.shape, has_value, strict=True)
        )
        return x[tuple(map(slice, cuts))]

    def run_cut(env: dict[str, Any], *inputs: Any) -> tuple[Any, ...]:
        return run(env, *jax.tree.map(lambda k, x: one(k, x, env), list(kinds), list(inputs)))

    return run_cut


# Trial sizes that replace ragged sizes during shape inference. Two trials distinguish ragged sizes
# from constants, and the third detects sizes that are not linear in them.
_TRIALS = ((5, 11, 17, 23, 31, 41), (7, 13, 19, 29, 37, 43), (8, 16, 27, 35, 39, 47))
BOUND = 53
_NEEDS_NUMBERS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.NonConcreteBooleanIndexError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
)


def infer(
    run: Callable[..., tuple[Any, ...]],
    inputs: Sequence[Any],
    domain: Domain,
    bounds: Sequence[Sym],
    name: str,
    *,
    full: bool = False,
) -> tuple[Any, ...]:
    """Return the output types of `run(env, *inputs)`, from abstract evaluation at three sizes.

    An output size may be a constant or a linear function of one ragged size of the inputs. If the
    function fails for some sizes and `full` is True, windows are evaluated at their full width (4
    for min(4, T - t)), and the output sizes that depend on them become numbers. Raises `ValueError`
    for any other size, for typed random keys, if `run` needs values as Python numbers, and if it
    fails for ragged inputs. If it fails without ragged inputs, its own error is raised.
    """
    sizes = ragged(list(inputs))
    if len(sizes) > len(_TRIALS[0]):
        raise ValueError(
            f"`{name}` must read at most {len(_TRIALS[0])} different ragged sizes, got "
            f"{sorted(sizes)}"
        )

    trial: Mapping[str, int] = {}

    def shapes(sizes: Mapping[str, int]) -> Any:
        nonlocal trial
        trial = sizes
        call, *examples = traceable(run, inputs, domain.names, bounds, lambda n: sizes[str(n)])
        return jax.eval_shape(call, *examples)

    try:
        return _output_types(shapes, sizes, {}, name)
    except Exception as error:  # user code may raise any exception
        if isinstance(error, _NEEDS_NUMBERS):
            problem = str(error).splitlines()[0].rstrip(".")
            raise ValueError(
                f"`{name}` must compute with JAX arrays, but uses one as a number of Python or "
                f"NumPy ({problem}): write `jnp` instead of `np`, `jnp.where` instead of `if`, and "
                f"loops of `jax.lax` instead of loops that depend on a value"
            ) from error
        where = ", ".join(f"{text} = {size}" for text, size in trial.items())
        most = {text: domain.ceiling(size) for text, size in sizes.items()} if full else {}
        windows = {text: size for text, size in most.items() if size is not None}
        if windows:
            with contextlib.suppress(Exception):
                return _output_types(shapes, sizes, windows, name)
        if not sizes:
            error.add_note(f"while the types of the outputs of `{name}` were inferred")
            raise
        raise ValueError(
            f"`{name}` must accept slices of any length {', '.join(sizes)}, but failed for {where} "
            f"({error}). If the length is always n, write 0:n, or pass a window "
            f"`t:min_(t + n, T)` to `fn`, which pads it to n entries"
        ) from error


def _output_types(
    shapes: Callable[[Mapping[str, int]], Any],
    variables: Mapping[str, Expr],
    numbers: dict[str, int],
    name: str,
) -> tuple[Any, ...]:
    """Return the output types as functions of the ragged sizes `variables`.

    Sizes in `numbers` are replaced by these numbers.
    """
    texts = [text for text in variables if text not in numbers]
    trials = _TRIALS if texts else _TRIALS[:1]
    rounds = [dict(zip(variables, trial, strict=False)) | numbers for trial in trials]
    results = map(shapes, rounds)
    sizes = [(variables[text], [trial[text] for trial in rounds]) for text in texts]

    def combine(*kinds: jax.ShapeDtypeStruct) -> ArrayType:
        shape = [_size(n, sizes, name) for n in zip(*(k.shape for k in kinds), strict=True)]
        return array_type(tuple(shape), kinds[0].dtype)

    return jax.tree.map(combine, *results)


def traceable(
    run: Callable[..., tuple[Any, ...]],
    inputs: Sequence[Any],
    symbols: Sequence[str],
    bounds: Sequence[Sym],
    size: Callable[[Expr], int],
) -> tuple[Any, ...]:
    """Return a function that JAX can trace, followed by the types of its arguments.

    The function has fixed bounds, equal to `BOUND`. `size` returns a number for each ragged size.
    """

    def concrete(leaf: ArrayType) -> jax.ShapeDtypeStruct:
        shape = tuple(size(n) if isinstance(n, Expr) else n for n in leaf.shape)
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    env = {symbol: jax.ShapeDtypeStruct((), jnp.int32) for symbol in symbols}
    numbers = {bound.name: BOUND for bound in bounds}
    call = lambda env, *xs: run({**env, **numbers}, *xs)  # noqa: E731
    return call, env, *jax.tree.map(concrete, list(inputs))


def _size(
    results: Sequence[int], sizes: Sequence[tuple[Expr, Sequence[int]]], name: str
) -> int | Expr:
    """Return the expression that equals the output sizes `results` in all trials.

    `sizes` contains pairs of a ragged size and its values in the trials. Raises `ValueError` if no
    linear function of one ragged size matches.
    """
    if len(set(results)) == 1:
        return results[0]
    for expr, values in sizes:
        factor, rest = divmod(results[1] - results[0], values[1] - values[0])
        offset = results[0] - factor * values[0]
        if rest == 0 and results[2] == factor * values[2] + offset:
            return expr * factor + offset
    trials = ", ".join(f"{expr} = {' or '.join(map(str, values))}" for expr, values in sizes)
    raise ValueError(
        f"`{name}` must return sizes that are linear in a ragged size of its inputs, got "
        f"{' or '.join(map(str, results))} for {trials}"
    )
