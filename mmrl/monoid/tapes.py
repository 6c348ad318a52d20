"""Helpers that convert, check and shift tapes of monoid elements."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree, Shaped

from mmrl._dtypes import with_promotion
from mmrl.monoid.core import Monoid


@with_promotion
def as_elements(monoid: Any, xs: PyTree) -> PyTree[Shaped[Array, "time ..."]]:
    """Convert the lists in `xs` to arrays, and check that `xs` is a tape of elements of `monoid`.

    Raises `ValueError` if the pytree structure of `xs` differs from that of an element, if its
    leaves differ in length, or if a leaf is boolean although `monoid` combines numbers.
    """
    name, meaning = type(monoid).__name__, (type(monoid).__doc__ or "").split("\n")[0]
    example, form = jax.tree.flatten(jax.eval_shape(monoid.identity))
    try:
        arrays = [_array(x, e.dtype) for x, e in zip(form.flatten_up_to(xs), example, strict=True)]
    except (TypeError, ValueError) as error:
        # JAX prints a structure as "PyTreeDef(…)". Keep only the part in parentheses.
        expected, got = (f"{x}"[10:-1] for x in (form, jax.tree.structure(xs)))
        kind = "a pair" if expected == "(*, *)" else "a pytree"
        raise ValueError(
            f"`xs` must be {kind} {expected}, like an element of `{name}`, where each * is an "
            f"array or a list of numbers with a leading time axis; got {got}. {name}: {meaning}"
        ) from error
    if any(x.dtype == bool != e.dtype for x, e in zip(arrays, example, strict=True)):
        raise ValueError(
            f"`xs` must not be boolean, because `{name}` combines numbers; got "
            f"{', '.join(str(x.dtype) for x in arrays)}. Convert it with `.astype(float)`."
        )
    shapes = [x.shape for x in arrays]
    if len({shape[:1] for shape in shapes}) != 1 or () in shapes:
        raise ValueError(
            "`xs` must be a pytree of arrays whose leading time axes have equal lengths; got "
            f"shapes {shapes}. Stack the elements, or broadcast constants over time."
        )
    return form.unflatten(arrays)


def _array(x: Any, kind: Any) -> Array:
    """Convert `x` to an array. A list of integers or booleans gets the dtype `kind`."""
    array = jnp.asarray(x)
    is_list = isinstance(x, list | tuple)
    return array.astype(jnp.promote_types(array.dtype, kind)) if is_list else array


def first_of(monoid: Monoid, xs: PyTree, init: PyTree | None) -> PyTree:
    """Return the element from which a scan of `xs` starts: `init`, or the identity if it is None.

    The result has the shape and dtype of one element of `xs`. Raises `ValueError` if the structure,
    shape or dtype of `init` does not match `xs`.
    """
    name, first = ("monoid.identity()", monoid.identity()) if init is None else ("init", init)
    expected, got = jax.tree.structure(xs), jax.tree.structure(first)
    if expected != got:
        raise ValueError(
            f"`xs` and `{name}` must be pytrees of the same structure; got {expected} and {got}."
        )

    def fit(e, x):
        narrow = jnp.iscomplexobj(e) and not jnp.iscomplexobj(x)
        if init is not None:  # the identity of Affine, for example, is a float, but whole
            is_float = jnp.issubdtype(jnp.result_type(e), jnp.inexact)
            narrow |= is_float and not jnp.issubdtype(x.dtype, jnp.inexact)
        if narrow or jnp.broadcast_shapes(jnp.shape(e), x.shape[1:]) != x.shape[1:]:
            raise ValueError(
                f"`{name}` must have the shape and dtype of one element of `xs`, "
                f"{x.dtype}{list(x.shape[1:])}; got {jnp.result_type(e)}{list(jnp.shape(e))}."
            )
        return jnp.broadcast_to(e, x.shape[1:]).astype(x.dtype)

    return jax.tree.map(fit, first, xs)


def check_types(monoid: Monoid, element: PyTree) -> None:
    """Raise `ValueError` unless the product of two elements has the dtypes of an element.

    Otherwise a sequential scan would silently cast the product, which loses precision.
    """
    product = jax.eval_shape(monoid, element, element)
    before, after = ([str(x.dtype) for x in jax.tree.leaves(tree)] for tree in (element, product))
    if before != after:
        raise ValueError(
            "`xs` must have the same dtypes as products of its elements, "
            f"{', '.join(after)}; got {', '.join(before)}. Convert it with `.astype`."
        )


def shift(hs: PyTree, start: PyTree, *, reverse: bool) -> PyTree:
    """Return the state before each step, given the states `hs` after each step.

    The result is `start` followed by all of `hs` except the last state. With `reverse`, the tape is
    read from its end, so `start` comes last and the first state is dropped.
    """

    def along(h, e):
        return jnp.concatenate([h[1:], e[None]] if reverse else [e[None], h[:-1]])

    return jax.tree.map(along, hs, start)
