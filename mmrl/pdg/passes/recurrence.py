"""A loop x_t = f(x_{t-1}, inputs_t), recognized as a scan of a monoid of this library.

    recognize(f, x, *inputs)      what f does to x, or a `Refusal` that names what is in the way
    lift(f, x0, inputs)           all states at once, by `mmrl.scan`

This is where the compiler meets the rest of the library: discounted returns, advantages, moving
averages and linear recurrent memories are all affine, whatever names their authors gave them.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree, Shaped

from mmrl.monoid import Affine, LogSumExp, MatrixAffine, Max, Monoid, Product, Sum
from mmrl.pdg.passes.affine import check_matrix, describe
from mmrl.pdg.passes.declared import Declared
from mmrl.pdg.passes.extremes import FAMILIES
from mmrl.pdg.passes.values import Refusal, State, Value
from mmrl.scan import scan

MATRIX = 8  # entries of x that may mix: a step then costs a product of such matrices


class Recurrence(eqx.Module):
    """A step that is a scan: `forms` says of each array in x what happens to it.

    `element(*inputs)` is the step as an element of `monoid`, and `begin(x)` is x as one; `read`
    takes x out again.
    """

    forms: tuple[str, ...] = eqx.field(static=True)
    monoid: Monoid
    element: Callable = eqx.field(static=True)
    begin: Callable = eqx.field(static=True)
    read: Callable = eqx.field(static=True)

    def __call__(
        self, x0: PyTree, inputs: tuple, *, reverse: bool = False, method: str = "auto"
    ) -> PyTree[Shaped[Array, "time ..."]]:
        """x_t = step(x_{t-1}, *inputs_t) for every t, of which x0 is the state before the first."""
        begin = self.begin(jax.tree.map(jnp.asarray, x0))
        elements = jax.vmap(self.element)(*inputs)
        return jax.vmap(self.read)(
            scan(self.monoid, elements, begin, reverse=reverse, method=method)
        )


def lift(
    step: Callable,
    x0: PyTree,
    inputs: tuple,
    *,
    reverse: bool = False,
    method: str = "auto",
    monoids: tuple[Declared, ...] = (),
    matrix: int = MATRIX,
) -> PyTree[Shaped[Array, "time ..."]]:
    """`lax.scan` of x ← step(x, *inputs_t), by `mmrl.scan`: depth O(log T) instead of T.

    `inputs` have a leading time axis; every state is returned. Values and derivatives agree with
    the loop's up to rounding, with one exception: where a factor 0 meets an infinite state, as in
    `where(begin, 0, x)`, a loop forgets it and a scan makes it NaN.

    Raises `Refusal` if the step is not one that `recognize` knows.
    """
    recurrence = recognize(step, x0, *one(inputs), monoids=monoids, matrix=matrix)
    return recurrence(x0, inputs, reverse=reverse, method=method)


def last(step: Callable, x0: PyTree, inputs: tuple) -> PyTree:
    """The state after the last step alone: a sum at once, anything else step by step."""
    try:
        recurrence = recognize(step, x0, *one(inputs))
    except Refusal:
        recurrence = None
    if recurrence is None or set(recurrence.forms) != {"sum"}:
        return jax.lax.scan(lambda x, z: (step(x, *z), None), x0, inputs)[0]
    elements = recurrence.read(jax.vmap(recurrence.element)(*inputs))
    return jax.tree.map(lambda x, b: x + b.sum(0), x0, elements)


def one(inputs: PyTree) -> PyTree:
    """The types of one step's inputs."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), inputs)


def recognize(
    step: Callable,
    x: PyTree,
    *inputs: Any,
    monoids: tuple[Declared, ...] = (),
    matrix: int = MATRIX,
) -> Recurrence:
    """The scan that x ← step(x, *inputs) is; only shapes and types of the arguments matter.

    `monoids` (from `declare`) are recognized where the step calls them as m(x, element). `matrix`
    is the number of entries of x that may mix.

    Raises `Refusal`, naming the operation, if the step leaves the table of `values.py`, and
    `ValueError` if it does not return something like x.
    """
    like = jax.eval_shape(lambda x: jax.tree.map(jnp.asarray, x), x)
    leaves, tree = jax.tree.flatten(like)
    _check_step(step, like, inputs)
    state = State(tuple(leaves), matrix, monoids)

    def describe_step(*inputs):
        traced = jax.make_jaxpr(step)(like, *inputs)
        arguments = [Value("state", leaf) for leaf in range(len(leaves))]
        arguments += [Value("free", b=jnp.asarray(z)) for z in jax.tree.leaves(inputs)]
        return describe(state, traced.jaxpr, traced.consts, arguments)

    values = jax.eval_shape(describe_step, *inputs)
    forms = _forms(state, values)
    if forms == ("declared",):
        return Recurrence(
            forms,
            monoids[values[0].which],
            element=lambda *z: tree.unflatten([value.b for value in describe_step(*z)]),
            begin=lambda x: x,
            read=lambda h: h,
        )
    if forms == ("matrix",):
        return _matrix(like, step)

    def element(*inputs):
        zeros, ones = (jax.tree.map(fill, like) for fill in (jnp.zeros_like, jnp.ones_like))
        b, a = jax.jvp(lambda x: step(x, *inputs), (zeros,), (ones,))
        sides = zip(tree.flatten_up_to(a), tree.flatten_up_to(b), strict=True)
        known = describe_step(*inputs) if set(forms) & set(FAMILIES) else values
        return tuple(map(_element, forms, sides, known))

    return Recurrence(
        forms,
        Product(tuple(map(_monoid, forms, leaves))),
        element,
        begin=lambda x: tuple(map(_begin, forms, tree.flatten_up_to(x))),
        read=lambda h: tree.unflatten(map(_read, forms, h)),
    )


def _matrix(like: PyTree, step: Callable) -> Recurrence:
    """All of x as one row vector: x' = x A + b, which is `MatrixAffine` with a single value."""
    zeros, tree = ravel_pytree(jax.tree.map(jnp.zeros_like, like))

    def element(*inputs):
        def row(x):
            return ravel_pytree(step(tree(x), *inputs))[0]

        return jax.jacfwd(row)(zeros).T, row(zeros)[None]

    return Recurrence(
        ("matrix",),
        MatrixAffine(1, zeros.size),
        element,
        begin=lambda x: (jnp.eye(zeros.size), ravel_pytree(x)[0][None]),
        read=lambda h: tree(h[1][0]),
    )


def _forms(state: State, values: list[Value]) -> tuple[str, ...]:
    """A form for every array of x, or one for the whole. Raises `Refusal` if they do not fit."""
    kinds = [value.kind for value in values]
    if "declared" in kinds:
        if set(kinds) == {"declared"} and len({value.which for value in values}) == 1:
            return ("declared",)
        raise Refusal("declared", "some arrays of x are a declared monoid's and some are not")
    for leaf in state.leaves:
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            reason = f"x holds {leaf.dtype}, and maps of numbers that round are all that is known"
            raise Refusal("convert_element_type", reason)
    crossed = [i for i, v in enumerate(values) if v.kind != "free" and v.leaf != i]
    if not crossed:
        return tuple(_FORMS.get(kind, kind) for kind in kinds)
    for i, value in enumerate(values):
        if value.kind in FAMILIES:
            reason = f"x[{i}] is {state.text(value)}, and another array of x is not its own"
            raise Refusal(value.kind, reason)
    check_matrix(state, f"x[{crossed[0]}], made of other arrays of x,")
    return ("matrix",)


_FORMS = {"free": "affine", "state": "sum", "shift": "sum"}


def _monoid(form: str, leaf: jax.ShapeDtypeStruct) -> Monoid:
    if form == "sum":
        return Sum(leaf)
    if form == "affine":
        return Affine(leaf.shape, leaf.dtype)
    return LogSumExp(leaf.shape) if form == "logsumexp" else Max(leaf.shape)


def _element(form: str, sides: tuple[Array, Array], known: Value) -> PyTree[Array]:
    """The derivative of an affine map and its value at x = 0; of others what is known of them."""
    if form in FAMILIES:
        return known.a, known.b
    return sides[1] if form == "sum" else sides


def _begin(form: str, x: Array) -> PyTree[Array]:
    if form == "sum":
        return x
    return (jnp.ones_like(x) if form == "affine" else jnp.zeros_like(x)), x


def _read(form: str, h: PyTree[Array]) -> Array:
    return h if form == "sum" else h[1]  # pyright: ignore[reportReturnType]


def _check_step(step: Callable, like: PyTree, inputs: tuple) -> None:
    after = jax.eval_shape(step, like, *inputs)
    same = jax.tree.structure(after) == jax.tree.structure(like)
    before, now = (
        [f"{x.dtype}{list(x.shape)}" for x in jax.tree.leaves(tree)] for tree in (like, after)
    )
    if not same or before != now:
        raise ValueError(
            f"`step` must return arrays like those of x, {', '.join(before)}; got "
            f"{', '.join(now)}. Give x the shape and type that it has after a step."
        )
