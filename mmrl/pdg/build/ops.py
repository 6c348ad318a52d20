"""The operations: one table, a row for each kind.  §5.1, "Tensor operations"

All are pure functions of arrays, so one rule (`jax.vjp`) differentiates every row and one rule
(abstract evaluation) finds every shape. A row that mixes entries along an axis must know how many
of them count, since a ragged array ("T - t" rewards) arrives padded with zeros: it takes a `mask`.
"""

import contextlib
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.pdg.build.expr import TRUE, Expr, Sym, as_expr
from mmrl.pdg.build.graph import ArrayType, Domain, array_type, ragged


def limit(x: Any, sign: int) -> Any:
    """The value that is never the maximum (-1) or the minimum (1)."""
    if jnp.issubdtype(x.dtype, jnp.inexact):
        return sign * np.inf
    if x.dtype == bool:
        return sign > 0
    return jnp.iinfo(x.dtype).max if sign > 0 else jnp.iinfo(x.dtype).min


def _softmax(x: Any, *, axis: int, mask: Any) -> Any:
    """exp x / Σ exp x, with NumPy; `jax.nn.softmax` has a derivative that is stable."""
    inside = np.bool_(True) if mask is None else mask
    powers = np.exp(x - x.max(axis, keepdims=True, where=inside, initial=-np.inf)) * inside
    return powers / powers.sum(axis, keepdims=True)


def _cast(x: Any, *, dtype: Any) -> Any:
    """Cast with NumPy as JAX does: to integers, large numbers become the largest, and NaN 0."""
    if not (jnp.issubdtype(x.dtype, jnp.floating) and jnp.issubdtype(dtype, jnp.integer)):
        return x.astype(dtype)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    inside = (x > least) & (x < most)
    ends = np.where(np.isnan(x), 0, np.where(x > 0, most, least)).astype(dtype)
    return np.where(inside, np.where(inside, x, 0).astype(dtype), ends)


_NAMED = "add exp log tanh sqrt abs less less_equal equal not_equal bitwise_and bitwise_or invert "
_NAMED += "where minimum maximum cumsum transpose expand_dims squeeze"


def rows(xp: Any) -> dict[str, Callable[..., Any]]:
    """Return the table with the functions of an array library: `jax.numpy`, or NumPy."""

    def where(mask: Any) -> dict[str, Any]:
        return {} if mask is None else {"where": mask}

    def discounted_sum(x: Any, *, gamma: float, mask: Any) -> Any:
        """Σ_k γᵏ x_k along the first axis."""
        x = x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(np.float32)
        gains = gamma ** xp.arange(x.shape[0], dtype=x.dtype)
        return xp.tensordot(gains, x if mask is None else xp.where(mask, x, 0), 1)

    def matmul(x: Any, y: Any, *, mask: Any, zeros: bool) -> Any:
        """Return x @ y; with `zeros` the padding of y is zero already, so no copy is needed."""
        if mask is not None:
            x = xp.where(mask, x, 0)
        if mask is not None and not zeros:
            along = (-1,) if y.ndim == 1 else (*(1 for _ in y.shape[2:]), -1, 1)
            y = xp.where(mask.reshape(along), y, 0)
        return x @ y

    def flip(x: Any, *, axis: int, mask: Any) -> Any:
        """Padding stays behind."""
        flipped = xp.flip(x, axis)
        return flipped if mask is None else xp.roll(flipped, mask.sum() - x.shape[axis], axis)

    def softmax(x: Any, *, axis: int, mask: Any) -> Any:
        if xp is np:
            return _softmax(x, axis=axis, mask=mask)
        return jax.nn.softmax(x, axis, where=mask)

    return {
        **{name: getattr(xp, name) for name in _NAMED.split()},
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
"""`run` uses the second where no input is an array of JAX."""
MASKED = {"sum", "mean", "max", "min", "discounted_sum", "softmax", "matmul", "flip"}

# Kinds that the program itself builds, each with its own `run` (a merge has none):
#   merge           the value along the one edge whose condition holds: a branching definition
#   fn, random      a user's function; one of a key that depends only on the point
#   constant, value an array that never changes; the value of an index expression
#   read            a copy of what is read: a slice made a tensor, a result kept
#   vjp, gather     gradients: of an operation's inputs, and summed over φ⁻¹


def plus(env: Mapping[str, Any], *terms: Any) -> tuple[Any]:
    """The sum of trees of arrays."""
    first, *rest = terms
    for term in rest:
        first = jax.tree.map(operator.add, first, term)
    return (first,)


def bind(
    kind: str, types: Sequence[ArrayType], params: Mapping[str, Any], sliced: Sequence[bool]
) -> Callable[..., Any]:
    """Return `run(env, *inputs)` of a row for inputs of these types, which may be slices."""
    axis = -1 if kind == "matmul" else params.get("axis", 0)
    if kind == "discounted_sum" or ("axis" in params and kind != "expand_dims"):
        count = len(types[0].shape)
        if axis is not None and not (isinstance(axis, int) and -count <= axis < count):
            raise ValueError(
                f"`{kind}` wants an axis of {types[0]}, a number, got {axis}: a slice of points "
                f"makes a first axis, as in `x[0:T]`"
            )

    def run(env: Mapping[str, Any], *inputs: Any) -> tuple[Any, ...]:
        mask = {"mask": counted(inputs[0], types[0], axis, env)} if kind in MASKED else {}
        mask |= {"zeros": sliced[1]} if kind == "matmul" else {}
        table = TABLE if any(isinstance(x, jax.Array) for x in inputs) else NUMPY
        return (table[kind](*inputs, **params, **mask),)

    return run


def needs(kind: str, inputs: Sequence[Any], params: Mapping[str, Any]) -> Expr:
    """Return the condition under which an operation on tensors has a value: all of them exist.

    An empty slice has neither a mean nor an extreme, and x[..., 2] is the third of three entries.
    Raises `ValueError` if padding would remain between entries.
    """
    found = functools.reduce(operator.and_, (x.needs for x in inputs), TRUE)
    if kind in ("mean", "max", "min"):
        shape, axis = inputs[0].shape, params["axis"]
        for size in shape if axis is None else [shape[axis]]:
            found = found & (as_expr(size) > 0)
    elif kind == "take":
        own = params["at"][1:]
        for size, at in zip(inputs[0].shape[-len(own) :], own, strict=False):
            if isinstance(size, Expr):
                found = found & (size >= _last(size, at))
    elif kind in ("concatenate", "reshape"):
        axis = params.get("axis")
        before = inputs[0].shape[1:] if axis is None else [x.shape[axis] for x in inputs[:-1]]
        if sizes := [size for size in before if isinstance(size, Expr)]:
            raise ValueError(
                f"`{kind}` of arrays of {sizes[0]} entries would leave padding between them: only "
                f"the last to be joined, or the first axis to be reshaped, may be ragged"
            )
    return found


def _last(size: Expr, at: Any) -> int:
    """Return how long a ragged axis must be for an index."""
    ends = (at.start or 0, at.stop or 0) if isinstance(at, slice) else (at, at + 1)
    if min(ends) < 0 or (isinstance(at, slice) and at.step not in (None, 1)):
        raise ValueError(
            f"`{at}` would count the padding of an axis of {size} entries: count from its start, "
            f"or turn it around by `flip` first"
        )
    return max(ends)


def counted(x: Any, kind: ArrayType, axis: int | None, env: Mapping[str, Any]) -> Any:
    """Return a mask of real entries along an axis (None: all axes); None if there is no padding.

    It has the rank of `x`, and size 1 along axes that are not ragged.
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


def cut(run: Callable[..., Any], kinds: Sequence[Any], domain: Domain) -> Callable[..., Any]:
    """`run` on ragged inputs cut to the size that they can have in this domain.

    Gathered cotangents stay as they are stored: their sizes depend on dimensions that are gathered.
    """

    def one(kind: ArrayType, x: Any, env: Mapping[str, Any]) -> Any:
        sure = [not isinstance(n, Expr) or n.symbols() <= env.keys() for n in kind.shape]
        cuts = (
            domain.largest(n, env) if yes else None for n, yes in zip(kind.shape, sure, strict=True)
        )
        return x[tuple(map(slice, cuts))]

    def fitted(env: dict[str, Any], *inputs: Any) -> tuple[Any, ...]:
        return run(env, *jax.tree.map(lambda k, x: one(k, x, env), list(kinds), list(inputs)))

    return fitted


# Sizes that replace the ragged ones while shapes are inferred: two rounds separate them from
# constants, and a third separates a line from a curve.
_TRIALS = ((5, 11, 17, 23, 31, 41), (7, 13, 19, 29, 37, 43), (8, 16, 27, 35, 39, 47))
BOUND = 53


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

    An output's size may be a constant, a ragged size of the inputs, or linear in one of them. With
    `full`, a function that does not take every size may have windows at their full width ("min(4,
    T - t)": 4); its outputs have sizes that are numbers. Raises `ValueError` for anything else, or
    for outputs that are no arrays.
    """
    sizes = ragged(list(inputs))
    if len(sizes) > len(_TRIALS[0]):
        raise ValueError(f"`{name}` reads {len(sizes)} different ragged sizes: {sorted(sizes)}")

    def shapes(sizes: Mapping[str, int]) -> Any:
        call, *made_up = traceable(run, inputs, domain.names, bounds, lambda n: sizes[str(n)])
        return jax.eval_shape(call, *made_up)

    try:
        return _typed(shapes, sizes, {}, name)
    except Exception as error:  # whatever a user's function may raise
        most = {text: domain.ceiling(size) for text, size in sizes.items()} if full else {}
        windows = {text: size for text, size in most.items() if size is not None}
        if windows:
            with contextlib.suppress(Exception):
                return _typed(shapes, sizes, windows, name)
        if not sizes:
            error.add_note(f"while the types of what `{name}` returns were found")
            raise
        raise ValueError(
            f"`{name}` must take arrays of the sizes {sorted(sizes)}, whatever they are, and fails "
            f"({error}); only a window, t:min_(t + n, T), arrives with a fixed size, n, and only "
            f"in `Program.fn`"
        ) from error


def _typed(
    shapes: Callable[[Mapping[str, int]], Any],
    unsure: Mapping[str, Expr],
    known: dict[str, int],
    name: str,
) -> tuple[Any, ...]:
    """The types, if `known` sizes are numbers and the other ragged ones may be anything."""
    texts = [text for text in unsure if text not in known]
    trials = _TRIALS if texts else _TRIALS[:1]
    rounds = [dict(zip(unsure, trial, strict=False)) | known for trial in trials]
    found = map(shapes, rounds)
    unknown = [(unsure[text], [sizes[text] for sizes in rounds]) for text in texts]

    def combine(*kinds: jax.ShapeDtypeStruct) -> ArrayType:
        if jnp.issubdtype(kinds[0].dtype, jax.dtypes.prng_key):
            raise ValueError(f"`{name}` returns a typed key: return `jax.random.key_data` of it")
        shape = [_size(n, unknown, name) for n in zip(*(k.shape for k in kinds), strict=True)]
        return array_type(tuple(shape), kinds[0].dtype)

    return jax.tree.map(combine, *found)


def traceable(
    run: Callable[..., tuple[Any, ...]],
    inputs: Sequence[Any],
    symbols: Sequence[str],
    bounds: Sequence[Sym],
    size: Callable[[Expr], int],
) -> tuple[Any, ...]:
    """A function and arguments to trace it with: bounds as numbers, ragged sizes made up."""

    def concrete(leaf: ArrayType) -> jax.ShapeDtypeStruct:
        shape = tuple(size(n) if isinstance(n, Expr) else n for n in leaf.shape)
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    env = {symbol: jax.ShapeDtypeStruct((), jnp.int32) for symbol in symbols}
    numbers = {bound.name: BOUND for bound in bounds}
    call = lambda env, *xs: run({**env, **numbers}, *xs)  # noqa: E731
    return call, env, *jax.tree.map(concrete, list(inputs))


def _size(
    found: Sequence[int], sizes: Sequence[tuple[Expr, Sequence[int]]], name: str
) -> int | Expr:
    """The size that came out of the trials as `found`."""
    if len(set(found)) == 1:
        return found[0]
    for expr, given in sizes:
        slope, rest = divmod(found[1] - found[0], given[1] - given[0])
        offset = found[0] - slope * given[0]
        if rest == 0 and found[2] == slope * given[2] + offset:
            return expr * slope + offset
    raise ValueError(f"`{name}` returns a size that is not linear in a ragged size of its inputs")
