"""Recurrent tensors: arrays that are functions of symbolic dimensions.  §4

A tensor is a read of an operation's output at an index φ. Indexing a tensor does not add an
operation: `r[i, t:T]` reads the same output as `r` with a different φ. The domain of an operation
is the union of the domains of its inputs.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.pdg.build.expr import TRUE, Expr, Slice, refuse, structure
from mmrl.pdg.build.graph import ArrayType, Domain, ragged, shape, type_text
from mmrl.pdg.build.indexing import (
    SHORTEN,
    Subscript,
    complete,
    composes,
    read_domain,
    stays,
    subscript,
    width,
    without_holes,
)

if TYPE_CHECKING:
    from mmrl.pdg.build.program import Program


def _method(kind: str) -> Callable[..., "Tensor"]:
    return lambda self, *others: self.program.apply(kind, self, *others)


def _reflection(kind: str) -> Callable[..., "Tensor"]:
    return lambda self, other: self.program.apply(kind, other, self)


def _along(kind: str, default: int | None) -> Callable[..., "Tensor"]:
    def along(self: "Tensor", axis: int | None = default, **rest: Any) -> "Tensor":
        if any(value is not None for value in rest.values()):  # `np.sum(x)` passes `out=None`
            raise TypeError(f"`{kind}` of a tensor must be called with only `axis`, got {rest}")
        if axis in (None, -1) and len(self.shape) == 1:
            axis = 0  # passes then need not handle None and -1
        return self.program.apply(kind, self, axis=axis)

    return along


@dataclasses.dataclass(eq=False, repr=False)
class Tensor:
    """Output `output` of the operation `source`, read at the index φ = `index` over `domain`.

    `type` is a pytree of `ArrayType`. Arithmetic is defined for single arrays; for any other
    pytree, apply a function with `fn`. The read is only valid if the condition `needs` holds at
    every point, which `validate` checks for sufficiently large bounds.
    """

    program: "Program"
    source: str
    output: int
    index: tuple[Expr, ...]
    domain: Domain
    kind: Any = None
    detached: bool = False
    needs: Expr = TRUE

    @property
    def type(self) -> Any:
        """Pytree of `ArrayType`. Raises `ValueError` before the tensor's first definition."""
        if self.kind is None:
            outputs = self.program.ops[self.source].outputs
            if not outputs:
                raise ValueError(
                    f"`{self.source}` has no type yet: first define it where its value does not "
                    f"depend on the tensor itself, as in `x[0] = …` or `x[T - 1] = …`"
                )
            self.kind = outputs[self.output]
        return self.kind

    @property
    def array(self) -> ArrayType:
        """Type of a tensor that is a single array. Raises `ValueError` for any other pytree."""
        if not isinstance(self.type, ArrayType):
            name, gradient = self.source, self.source.startswith(("vjp_", "grad_"))
            raise ValueError(
                f"`{name}`{', a gradient,' * gradient} must be a single array here, but is a tree "
                f"of arrays ({type_text(self.type)}): apply a function to the tree, such as "
                "`p.fn(lambda w, dw: jax.tree.map(lambda w, dw: w - 0.1 * dw, w, dw), w, dw)`, or "
                "`p.fn(lambda w: w['a'], w)` for one entry"
            )
        return self.type

    @property
    def shape(self) -> tuple[int | Expr, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def is_whole(self) -> bool:
        """True if the tensor is a complete output of an operation, read without an index."""
        domain = self.program.ops[self.source].domain
        return self.domain == domain and structure(self.index) == structure(domain.symbols)

    @property
    def is_reindexed(self) -> bool:
        """True if the tensor is an indexed read of an operation with ragged outputs."""
        return not self.is_whole and bool(ragged(self.program.ops[self.source].outputs))

    @property
    def text(self) -> str:
        """The source and the index, as in `x[i, t + 1]`."""
        index = "" if self.is_whole else f"[{', '.join(map(str, self.index))}]"
        return f"{self.source}{index}"

    def __repr__(self) -> str:
        kind = "untyped" if not self.program.ops[self.source].outputs else type_text(self.type)
        return f"Tensor({self.text} over {self.domain}: {kind})"

    def __getitem__(self, key: Any) -> "Tensor":
        target = subscript(key, self.domain, self.source)
        if set(target.slices) & {n for size in ragged(self.type).values() for n in size.symbols()}:
            raise ValueError(
                f"`{self.source}` cannot be sliced along {', '.join(target.slices)}, because its "
                "array size differs between the points: reduce the array first, for example with "
                "`sum`"
            )
        # If the slice cannot be combined with the existing index, slice a copy of the tensor.
        holes = (self.domain.when & self.needs).symbols() & set(target.slices)
        twice = target.slices and any(isinstance(part, Slice) for part in self.index)
        plain = composes(self.index, target.slices) and not holes and not twice
        tensor = (
            self if plain else self.fill_holes() if holes and self.covers(target) else self.read()
        )
        name = self.source if tensor is self else self.text
        hint = self._shorter(target) if holes and tensor is not self else SHORTEN
        domain, needs = tensor._domain(target.at, target.when, name, hint)
        widths = tuple(width(x, domain) for x in target.at.values() if isinstance(x, Slice))
        points = {n: part for n, part in target.at.items() if not isinstance(part, Slice)}

        def index_type(leaf: ArrayType) -> ArrayType:
            sizes = (n.substitute(points) if isinstance(n, Expr) else n for n in leaf.shape)
            return ArrayType(shape((*widths, *sizes)), leaf.dtype)

        index, kind = (part.substitute(target.at) for part in tensor.index), tensor.type
        kind = jax.tree.map(index_type, kind)
        view = tensor.replace(index=tuple(index), domain=domain, needs=needs, kind=kind)
        if target.axes is None:
            return view
        return self.program.apply("take", view, at=(..., *target.axes))

    def covers(self, target: Subscript) -> bool:
        """Return True if this tensor is defined at all points that a subscript's slices read."""
        if ragged(self.type) or not TRUE.same(self.needs):
            return False
        return complete(self.domain, self._sink(target.at, target.when), target.at)

    def _shorter(self, target: Subscript) -> str:
        """Return the reason why this tensor has holes, and a slice without them, as text."""
        read = self.partial_read()
        hint = f", because it reads `{read.text}`" if read.text != self.text else ""
        for name in target.slices:
            sink = self._sink(target.at, target.when)
            part = without_holes(self.domain, sink, target.at, name)
            if not part.same(target.at[name]):
                text = str(part).replace("min(", "min_(").replace("max(", "max_(")
                return f"{hint}; write {text}"
        return f"{hint}{SHORTEN}"

    def partial_read(self) -> "Tensor":
        """Return the indexed read to which this tensor owes the condition on its domain."""
        if not TRUE.same(self.program.ops[self.source].domain.when):
            for x in self.program.reads.get(self.source, ()):
                if not TRUE.same(x.domain.when):
                    return x.partial_read()
        return self

    def fill_holes(self) -> "Tensor":
        """Return a copy of this tensor that is zero at the points where this one is undefined."""
        full = self.program.tensor(*self.domain.names, name=self.source)
        full[self.domain.symbols] = self
        full[self.domain.symbols] = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), self.type)
        return full

    def _sink(self, at: dict[str, Expr], when: Expr) -> Domain:
        """Return the domain of the indexed tensor, before it is restricted to valid reads."""
        names = {name for name in self.domain.names if name not in at}
        for part in (*at.values(), when):
            names |= part.symbols() - {bound.name for bound in self.program.bounds}
        return self.program.domain(names, when)

    def _domain(self, at: dict[str, Expr], when: Expr, name: str, hint: str) -> tuple[Domain, Expr]:
        """Return the domain of the indexed tensor, and the condition `needs`."""
        source = self.program.ops[self.source].domain
        index = [at.get(dim.name, dim.symbol) for dim in self.domain]
        domain = read_domain(self._sink(at, when), self.domain, index, name, hint)
        if self.is_whole:
            return domain, TRUE
        # A nested read exists where both reads exist: x[t + 1][t - 1] is x[t] except at t = 0.
        points = {name: part for name, part in at.items() if not isinstance(part, Slice)}
        needs = self.needs.substitute(points) & stays(self.domain, index)
        index = [part.substitute(at) for part in self.index]
        return read_domain(domain, source, index, self.source), needs

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self.is_whole:
            raise ValueError(
                f"`{self!r}` is an indexed read, and only a whole tensor can be defined: assign to "
                f"the tensor that `Program.tensor` returned"
            )
        self.program.define(self.source, key, value)

    def read(self, name: str | None = None) -> "Tensor":
        """Copy this tensor into a separate operation, which can be sliced again."""
        return self.program.build("read", lambda env, x: (x,), [self], (self.type,), name=name)[0]

    def detach(self) -> "Tensor":
        """Return this tensor as a constant for `gradient`, so that no gradient flows into it."""
        return self.replace(detached=True)

    def replace(self, **changes: Any) -> "Tensor":
        """Return a copy with some fields changed, which reads the same output."""
        return dataclasses.replace(self, **changes)

    __array_priority__ = 1  # makes numpy defer `number * tensor` to `Tensor.__rmul__`
    __array__ = __float__ = __index__ = refuse

    def __iter__(self) -> Iterator["Tensor"]:
        # Without this method, Python would call x[0], x[1], … forever.
        raise TypeError(
            f"`{self!r}` is a single tensor (`shape` is the shape of its array at each point), "
            "so it has no `len` and cannot be unpacked: to get several tensors, return a tuple "
            "from the function"
        )

    __len__: ClassVar[Any] = __iter__

    def __bool__(self) -> bool:
        raise TypeError(
            f"`{self!r}` has no truth value while the program is built: use `where` instead of "
            f"`if`, and `&`, `|`, `~` instead of `and`, `or`, `not`"
        )

    def __hash__(self) -> int:
        return hash(bool(self))  # raises, because membership in a set needs truth values

    def where(self, then: Any, otherwise: Any) -> "Tensor":
        """Return `then` where this tensor is true, else `otherwise`."""
        return self.program.apply("where", self, then, otherwise)

    def astype(self, dtype: Any) -> "Tensor":
        return self.program.apply("cast", self, dtype=np.dtype(dtype))

    def discounted_sum(self, gamma: float) -> "Tensor":
        """Return Σ_k γᵏ x_k along the first axis, for example the return of a reward slice.

        Algorithm 1, line 14.
        """
        return self.program.apply("discounted_sum", self, gamma=gamma)

    def reshape(self, *shape: int) -> "Tensor":
        return self.program.apply("reshape", self, shape=shape)

    def transpose(self, *axes: int) -> "Tensor":
        return self.program.apply("transpose", self, axes=axes or None)

    # Each method below applies the row of `ops.TABLE` with the given name.
    __add__ = __radd__ = _method("add")
    __mul__ = __rmul__ = _method("mul")
    __sub__, __rsub__ = _method("sub"), _reflection("sub")
    __truediv__, __rtruediv__ = _method("div"), _reflection("div")
    __pow__, __rpow__ = _method("pow"), _reflection("pow")
    __lt__, __gt__ = _method("less"), _reflection("less")
    __le__, __ge__ = _method("less_equal"), _reflection("less_equal")
    __eq__: ClassVar[Any] = _method("equal")
    __ne__: ClassVar[Any] = _method("not_equal")
    __and__, __or__, __invert__ = _method("bitwise_and"), _method("bitwise_or"), _method("invert")
    __matmul__, __rmatmul__, __neg__ = _method("matmul"), _reflection("matmul"), _method("neg")
    exp, log, tanh, relu = _method("exp"), _method("log"), _method("tanh"), _method("relu")
    sqrt, equal = _method("sqrt"), _method("equal")
    abs = __abs__ = _method("abs")
    minimum, maximum = _method("minimum"), _method("maximum")
    # The methods below take an `axis` of the array. By default, sum, mean, max and min reduce over
    # all axes. They ignore the padding of a ragged axis.
    sum, mean = _along("sum", None), _along("mean", None)
    max, min = _along("max", None), _along("min", None)
    cumsum, flip = _along("cumsum", 0), _along("flip", 0)
    softmax = _along("softmax", 0)
    expand_dims, squeeze = _along("expand_dims", 0), _along("squeeze", 0)
