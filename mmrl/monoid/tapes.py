"""Helpers for tapes of elements: convert them, check them, and shift them by a step."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Shaped

from mmrl._dtypes import promoting
from mmrl.monoid.core import Monoid


@promoting
def as_elements(monoid: Any, xs: PyTree) -> PyTree[Shaped[Array, "time ..."]]:
    """Return `xs` as arrays, one per array of an element of `monoid`; lists become arrays.

    Raises `ValueError` for another structure, unequal lengths, and flags in place of numbers.
    """
    name, meaning = type(monoid).__name__, (type(monoid).__doc__ or "").split("\n")[0]
    example, form = jax.tree.flatten(jax.eval_shape(monoid.identity))
    try:
        arrays = [_array(x, e.dtype) for x, e in zip(form.flatten_up_to(xs), example, strict=True)]
    except (TypeError, ValueError) as error:
        wanted, got = (f"{x}"[10:-1] for x in (form, jax.tree.structure(xs)))  # in PyTreeDef(…)
        kind = "a pair" if wanted == "(*, *)" else "a pytree"
        raise ValueError(
            f"`xs` must be {kind} {wanted}, as an element of `{name}` is, where each * is an array "
            f"or a list of numbers, with time first; got {got}. {name}: {meaning}"
        ) from error
    if any(x.dtype == bool != e.dtype for x, e in zip(arrays, example, strict=True)):
        raise ValueError(
            f"`xs` must hold numbers, because flags have no products of `{name}`; got "
            f"{', '.join(str(x.dtype) for x in arrays)}. Convert them with `.astype(float)`."
        )
    shapes = [x.shape for x in arrays]
    if len({shape[:1] for shape in shapes}) != 1 or () in shapes:
        raise ValueError(
            "`xs` must be a pytree of arrays with one common leading time axis; got shapes "
            f"{shapes}. Stack the elements, or broadcast constants over time."
        )
    return form.unflatten(arrays)


def _array(x: Any, kind: Any) -> Array:
    """Return an array; a list may hold integers or flags where numbers of `kind` are wanted."""
    array = jnp.asarray(x)
    listed = isinstance(x, list | tuple)
    return array.astype(jnp.promote_types(array.dtype, kind)) if listed else array


def first_of(monoid: Monoid, xs: PyTree, init: PyTree | None) -> PyTree:
    """Return `init`, or the identity, in the shape and type of one element of `xs`."""
    name, first = ("monoid.identity()", monoid.identity()) if init is None else ("init", init)
    wanted, given = jax.tree.structure(xs), jax.tree.structure(first)
    if wanted != given:
        raise ValueError(
            f"`xs` and `{name}` must be pytrees of the same structure; got {wanted} and {given}."
        )

    def fit(e, x):
        narrow = jnp.iscomplexobj(e) and not jnp.iscomplexobj(x)
        if narrow or jnp.broadcast_shapes(jnp.shape(e), x.shape[1:]) != x.shape[1:]:
            raise ValueError(
                f"`{name}` must be one element like those of `xs`, {x.dtype}{list(x.shape[1:])}; "
                f"got {jnp.result_type(e)}{list(jnp.shape(e))}."
            )
        return jnp.broadcast_to(e, x.shape[1:]).astype(x.dtype)

    return jax.tree.map(fit, first, xs)


def check_types(monoid: Monoid, element: PyTree) -> None:
    """Raise `ValueError` unless the products have the types of the elements.

    Otherwise a sequential scan would round them without a warning.
    """
    product = jax.eval_shape(monoid, element, element)
    before, after = ([str(x.dtype) for x in jax.tree.leaves(tree)] for tree in (element, product))
    if before != after:
        raise ValueError(
            f"`xs` must have the types that its products have, {', '.join(after)}; got "
            f"{', '.join(before)}. Convert it with `.astype`."
        )


def shift(hs: PyTree, start: PyTree, *, reverse: bool) -> PyTree:
    """Return the prefix before each step: `start` before the first, and all but the last."""

    def along(h, e):
        return jnp.concatenate([h[1:], e[None]] if reverse else [e[None], h[:-1]])

    return jax.tree.map(along, hs, start)
