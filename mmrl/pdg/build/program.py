"""A program under construction: symbols, operations, definitions; and the graph they make.  §4

p = Program("i", "t")
(i, t), (I, T) = p.symbols, p.bounds
x = p.tensor(i, t)
x[i, 0] = 0.0
x[i, t + 1] = 0.9 * x + 1.0
graph = p.graph(x[i, 0:T].sum())

`input` declares an argument of a run, `host` calls functions for their effects outside of the
program, and `until` ends a dimension where a tensor is true.
"""

import dataclasses
import keyword
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.experimental import io_callback

from mmrl.pdg.build import ops as table
from mmrl.pdg.build.expr import TRUE, Expr, Slice, Sym, as_expr
from mmrl.pdg.build.graph import Domain, Edge, Graph, Op, array_type, type_text
from mmrl.pdg.build.indexing import definition, subscript
from mmrl.pdg.build.sets import never, simplify
from mmrl.pdg.build.tensor import Tensor

# Words with a meaning for isl, also in capitals, or for Python.
_RESERVED = {"min", "max", "floor", "ceil", "mod", "and", "or", "not", "exists", "true", "false"}
_RESERVED |= {"implies", "rat", "infty", "infinity", "nan", "floord", "ceild", *keyword.kwlist}


class Program:
    """Symbolic dimensions, outermost first, each with a bound in capitals: 0 <= t < T.

    `seed` determines all random numbers, unless a run gets a `key`. An operation at a point draws
    from a key that is a function only of its name and the point, so every legal order
    computes the same numbers.
    """

    def __init__(self, *names: str, seed: int = 0):
        wrong = [
            n
            for n in map(str, names)
            if not (n.isidentifier() and n.isascii()) or n == n.upper() or n.lower() in _RESERVED
        ]
        if wrong or len(set(names)) < len(names):
            raise ValueError(f"`names` must be different names in lower case, got {names}")
        self.seed = seed
        self.box = Domain.of(*names)
        self.symbols: tuple[Sym, ...] = self.box.symbols
        self.bounds: tuple[Sym, ...] = tuple(Sym(name.upper()) for name in names)
        self.ops: dict[str, Op] = {}
        self.edges: list[Edge] = []
        self.reads: dict[str, tuple[Tensor, ...]] = {}  # the arguments of each operation
        self.detached: set[Edge] = set()  # edges that carry no gradient

    def domain(self, names: str | Sym | Iterable[str | Sym], when: Expr = TRUE) -> Domain:
        """The dimensions in `names`, or the one, in the program's order."""
        several = (names,) if isinstance(names, str | Sym) else names
        wanted, own = {str(name) for name in several}, ", ".join(self.box.names)
        unknown = ", ".join(sorted(wanted - set(self.box.names)))
        if unknown:
            raise ValueError(f"`{unknown}` is not a symbol of this program, which has {own}")
        return Domain(tuple(dim for dim in self.box if dim.name in wanted), when)

    def tensor(self, *symbols: Sym | str, name: str | None = None) -> Tensor:
        """A tensor to be defined case by case: `x[i, 0] = …; x[i, t + 1] = …`.

        The first that has a value for a point wins. It has a type from its first definition on.
        """
        domain = self.domain(symbols)
        return self.declare(Op(self.fresh(name or "x"), "merge", domain, ()))

    def constant(self, value: Any, name: str | None = None) -> Tensor:
        """A pytree of arrays that is the same at every point."""
        _refuse(Tracer, name or "constant", value)
        value = jax.tree.map(jnp.asarray, value)
        run = lambda env: (value,)  # noqa: E731
        return self.build("constant", run, [], name=name, params={"value": value})[0]

    def input(self, name: str, like: Any, *symbols: Sym | str) -> Tensor:
        """A value that each run is given by name: parameters, data, a learning rate.

            x, rate = p.input("x", jnp.zeros(3), t), p.input("rate", 0.1)
            compile(p.graph(…)).xla(T=8)(x=jnp.ones((8, 3)), rate=0.5)

        `like` is a pytree of arrays or of their types, the value at one point. A run is given one
        for all points, with an axis for each of `symbols` in front. One compiled program serves all
        values. Raises `ValueError` for a name that is taken, or that names a bound or the key.
        """
        taken = ("key", "seed", "jit", "backend")
        if not name.isidentifier() or name == name.upper() or name in taken:
            raise ValueError(
                f"`name` must be a word in lower case other than {', '.join(taken)}; got {name!r}"
            )
        if name != self.fresh(name):
            raise ValueError(f"`name`: {name!r} is taken, by an operation or a dimension")
        domain = self.domain(symbols)

        def run(env: dict[str, Any]) -> tuple[Any, ...]:
            at = tuple(env[dim] for dim in domain.names)
            traced = any(isinstance(x, Tracer) for x in at)  # NumPy's arrays take numbers only
            values = jax.tree.map(jnp.asarray if traced else lambda x: x, env["inputs"][name])
            return (jax.tree.map(lambda x: x[at] if at else x, values),)

        kinds, params = (_types(like),), {"name": name, "like": _types(like), "domain": domain}
        return self.build("input", run, [], kinds, domain=domain, name=name, params=params)[0]

    def host(
        self,
        f: Callable[..., Any],
        *inputs: Any,
        like: Any = None,
        over: Sym | Sequence[Sym] = (),
        name: str | None = None,
        when: Tensor | None = None,
    ) -> Any:
        """Call `f(*inputs)` in Python for its effects: to log, to save, to keep a replay buffer.

        It is called once at each point, also if no operation reads it, and at one point after the
        other in the order of the program's dimensions: so every pass leaves it in its loops. Its
        inputs arrive as numpy arrays. It returns something like `like`, a pytree of arrays or of
        their types, which is the tensor; without `like` it returns None. Where `when`, a bool, is
        false it is not called, and that is zeros. No gradient flows through it, and one XLA program
        with it cannot be under `vmap`. What must come after another call reads what that one
        returns.
        """
        tensors = [self.as_tensor(x).detach() for x in inputs]
        tensors = tensors if when is None else [self.as_tensor(when), *tensors]
        domain = self.domain(over).union(*(x.domain for x in tensors))
        name = self.fresh(name or _name_of(f))
        if not TRUE.same(domain.when):
            raise ValueError(
                f"`{name}` would be called only where {domain.when}: give it inputs that exist at "
                "all points of their dimensions, and let it decide"
            )
        before: Tensor = self.constant(jnp.int32(0), name=f"{name}_first")
        if domain.names:
            zero, before = before, self.tensor(*domain.names, name=f"{name}_turn")
            before[(0,) * len(domain.names)] = zero
        kinds = (array_type((), np.int32), *(() if like is None else (_types(like),)))

        types = tuple(jax.tree.map(lambda x: x.padded(domain, {}), kind) for kind in kinds[1:])

        def call(*values: Any) -> tuple[Any, ...]:
            given = (f(*jax.tree.map(np.asarray, values)),)[: len(types)]
            found = jax.tree.map(np.asarray, given)
            if jax.tree.map(np.shape, found) != jax.tree.map(lambda x: x.shape, types):
                raise ValueError(
                    f"`{name}` must return {type_text(kinds[1])}, as its `like` is; got {given[0]}"
                )
            return jax.tree.map(lambda x, kind: x.astype(kind.dtype), found, types)

        act = lambda env, *values: io_callback(call, types, *values, ordered=True)  # noqa: E731
        now = lambda env, *values: jax.tree.map(jnp.asarray, call(*values))  # noqa: E731

        def run(env: dict[str, Any], turn: Any, *values: Any) -> tuple[Any, ...]:
            one = act if isinstance(turn, Tracer) else now
            return turn + 1, *(one if when is None else _guarded(one, act))(env, *values)

        after, *out = self.build("host", run, [before, *tensors], kinds, domain=domain, name=name)
        if domain.names:
            self.follow(before, after)
        return out[0] if out else None

    def follow(self, x: Tensor, value: Tensor) -> None:
        """Define x at the next point of its dimensions, of which the last one moves first.

        For x over (i, k): x[i, k + 1] = value[i, k], and x[i + 1, 0] = value[i, K - 1].
        """
        symbols, bounds = x.domain.symbols, [dim.bound for dim in x.domain]
        for k, at in enumerate(symbols):
            ends, first = (bound - 1 for bound in bounds[k + 1 :]), (0,) * len(bounds[k + 1 :])
            x[(*symbols[:k], at + 1, *first)] = value[(*symbols[:k], at, *ends)]

    def value(self, expr: Expr) -> Tensor:
        """The value of an index expression at each point, an int32: `p.value(T - t)`."""
        expr = as_expr(expr)
        domain = self.domain(expr.symbols() & set(self.box.names))
        run = lambda env: (jnp.asarray(expr.evaluate(env), jnp.int32),)  # noqa: E731
        kinds, params = (array_type((), np.int32),), {"expr": expr}
        return self.build("value", run, [], kinds, domain=domain, params=params)[0]

    def fn(
        self,
        f: Callable[..., Any],
        *inputs: Any,
        over: Sym | Sequence[Sym] = (),
        name: str | None = None,
        whole: bool = False,
        when: Tensor | None = None,
        otherwise: Any = None,
        random: bool = False,
    ) -> Any:
        """Apply `f` to the inputs at every point: any pure JAX function, Equinox module or network.

        A tuple that `f` returns becomes a tuple of tensors, unless `whole` (the state of an optax
        optimizer is a tuple); any other pytree is one tensor. Ragged inputs arrive padded with
        zeros; pass `p.value(…)` where `f` must know how many count. Where `when`, a bool, is false,
        `f` is not run and the values come from `otherwise`, or are zeros: see `until`. `over` names
        dimensions that the inputs lack. What is `random` gets a key before its inputs.
        """
        if not callable(f):
            raise ValueError(f"`f` must be a function, got {f!r}: inputs come after it")
        tensors = [self.as_tensor(x) for x in inputs]
        name = self.fresh(name or _name_of(f))
        domain = self.domain(over).union(*(x.domain for x in tensors))
        tag, split = zlib.crc32(name.encode()), [not whole]

        def run(env: dict[str, Any], *values: Any) -> tuple[Any, ...]:
            key = (point_key(self.seed, tag, domain, env),) if random else ()
            out = f(*key, *values)
            if out is None:
                raise ValueError(f"`{name}` gave None: let its function `return` what it computes")
            _refuse(Tensor | Expr, name, out)
            split[0] = not whole and type(out) is tuple
            return out if split[0] else (out,)

        kind, params = "random" if random else "fn", {"f": f, "whole": whole}
        if when is not None:
            rest = otherwise if type(otherwise) is tuple else (otherwise,)
            rest = [] if otherwise is None else [self.as_tensor(x) for x in rest]
            tensors = [self.as_tensor(when), *rest, *tensors]
            domain = domain.union(*(x.domain for x in tensors))
            run, params = _guarded(run, run, len(rest)), params | {"when": len(rest)}
        elif otherwise is not None:
            raise ValueError("`otherwise` is for where `when` is false: give `when` too")
        outputs = self.build(kind, run, tensors, domain=domain, name=name, params=params)
        return outputs if split[0] else outputs[0]

    def sample(self, f: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        """Apply `f(key, *inputs)` at every point, with a separate key at each; the rest as in `fn`.

        For example `p.sample(reset, over=(i,))`, which draws once in each iteration.
        """
        return self.fn(f, *inputs, random=True, **options)

    def until(self, stop: Tensor, along: Sym | str, name: str | None = None) -> Tensor:
        """Return a bool, true where there was no `stop` at any earlier point `along` a dimension.

        Data then decide where the dimension ends, and its bound is the largest number of steps.
        In a loop, `fn`, `sample` and `host` run only where their argument `when` is true;
        `otherwise` keeps the last state after the end, and zeros there do not change a sum:

            x, stop = p.tensor(t, name="x"), p.tensor(t, name="stop")
            alive, x[0] = p.until(stop, t), 1.0
            y = p.fn(double, x, when=alive, otherwise=x)
            x[t + 1], stop[t] = y, y > limit
            last, steps = y[T - 1], alive[0:T].sum()

        The loop itself continues to the bound, in every executor, with what has no `when`. If a
        pass moves `along` into arrays, all steps are computed, and those after the end are
        discarded. The last stage of a compiled program states which of both applies. Raises
        `ValueError` if `stop` is not a tensor along that dimension.
        """
        (dim,), domain = self.domain(along), stop.domain
        if dim.name not in domain.names:
            raise ValueError(f"`stop` must be a tensor along {dim.name}, got {stop!r}")
        alive = self.tensor(*domain.names, name=name or "alive")
        op = self.ops[alive.source]
        self.ops[op.name] = dataclasses.replace(op, params={"ends": dim.name})
        alive[domain.at(dim.name, 0)] = True
        run = lambda env, before, stop: (before & ~jnp.asarray(stop, bool),)  # noqa: E731
        kinds = (array_type((), bool),)
        (goes_on,) = self.build("fn", run, [alive, stop], kinds, name="goes_on")
        alive[domain.at(dim.name, dim.symbol + 1)] = goes_on
        return alive

    def apply(self, kind: str, *inputs: Any, name: str | None = None, **params: Any) -> Tensor:
        """One row of `ops.TABLE`; inputs that are numbers become part of the operation."""
        fixed = {k: x for k, x in enumerate(inputs) if isinstance(x, bool | int | float)}
        tensors = [self.as_tensor(x) for k, x in enumerate(inputs) if k not in fixed]
        sliced = [any(isinstance(part, Slice) for part in x.index) for x in tensors]
        bound = table.bind(kind, [x.array for x in tensors], params, sliced)

        def run(env: dict[str, Any], *values: Any) -> tuple[Any, ...]:
            rest = iter(values)
            return bound(env, *(fixed[k] if k in fixed else next(rest) for k in range(len(inputs))))

        more = {"numbers": tuple(sorted(fixed.items()))} if fixed else {}
        return self.build(kind, run, tensors, name=name, params={**params, **more})[0]

    def as_tensor(self, value: Any, like: tuple[Any, ...] = ()) -> Tensor:
        """A tensor as it is; an index expression's value; anything else as a constant.

        `like` may give the type of the constant.
        """
        if isinstance(value, Tensor):
            if value.program is not self:
                raise ValueError(f"`{value!r}` belongs to another program")
            return value
        if isinstance(value, Expr):
            return self.value(value)
        if any(isinstance(leaf, Tensor) for leaf in jax.tree.leaves(value)):
            raise ValueError(
                f"wanted one tensor, got a {type(value).__name__} of tensors: take one of them, or "
                "let `fn` with `whole=True` make one tensor that holds all its function returns"
            )
        for kind in like:
            value = jax.tree.map(lambda x, kind: jnp.asarray(x, kind.dtype), value, kind)
        return self.constant(value)

    def build(
        self,
        kind: str,
        run: Callable[..., tuple[Any, ...]],
        inputs: Sequence[Tensor],
        outputs: tuple[Any, ...] | None = None,
        *,
        domain: Domain | None = None,
        name: str | None = None,
        params: dict[str, Any] | None = None,
    ) -> tuple[Tensor, ...]:
        """A new operation over the union of its inputs' domains; returns its outputs."""
        domain = (domain or Domain()).union(*(x.domain for x in inputs))
        name = self.fresh(name or kind)
        if outputs is None:
            kinds, full = [x.type for x in inputs], kind in ("fn", "random")
            outputs = table.infer(run, kinds, domain, self.bounds, name, full=full)
        if any(x.is_reindexed for x in inputs):
            run = table.cut(run, [x.type for x in inputs], domain)
        needs = table.needs(kind, inputs, params or {})
        self.declare(Op(name, kind, domain, outputs, run, params or {}, needs))
        self.reads[name] = tuple(inputs)
        for place, x in enumerate(inputs):
            self.join(name, x, place=place)
        return tuple(self.output(name, k) for k in range(len(outputs)))

    def join(self, sink: str, x: Tensor, when: Expr = TRUE, place: int = 0) -> None:
        """An edge: where `when` holds, `sink` reads what `x` is a read of."""
        edge = Edge(sink, x.source, x.index, when, place, x.output)
        self.edges.append(edge)
        self.detached |= {edge} if x.detached else set()

    def output(self, name: str, output: int = 0) -> Tensor:
        """An output of an operation, as a tensor."""
        domain = self.ops[name].domain
        return Tensor(self, name, output, domain.symbols, domain)

    def define(self, name: str, key: Any, value: Any) -> None:
        """`name[key] = value`, one case of a branching definition: where the value exists."""
        op = self.ops[name]
        if op.kind != "merge":
            raise ValueError(
                f"`{name}` is computed by `{op.kind}`: only `Program.tensor` is defined"
            )
        found = subscript(key, op.domain, name)
        bounds = [bound.name for bound in self.bounds]
        tensor = self.as_tensor(value, op.outputs)
        if any(isinstance(part, Slice) for part in tensor.index):
            tensor = tensor.read()
        when, change = definition(found, op.domain, bounds, name)
        there = tensor.domain.when.substitute(change)
        for rest in (there, *(~edge.when for edge in self.edges if edge.sink == name)):
            when = when & rest
        if never(when, op.domain):
            raise ValueError(
                f"`{name}` is already defined wherever `{found.text(name)} = …` has a value for it"
            )
        index = tuple(part.substitute(change) for part in tensor.index)
        extra = {s for part in (*index, there) for s in part.symbols()}
        extra -= {*bounds, *op.domain.names}
        fixed = {n for n, part in change.items() if n not in part.symbols()}
        if extra := extra | fixed & set(tensor.domain.names):
            raise ValueError(
                f"`{found.text(name)} = …`: the value differs along {sorted(extra)}, where "
                f"`{name}` is defined at one point or not at all; index it"
            )
        first = op.outputs[0] if op.outputs else tensor.type
        if jax.tree.map(str, first) != jax.tree.map(str, tensor.type):
            raise ValueError(
                f"`{name}` was first defined as {type_text(first)}; "
                f"now came {type_text(tensor.type)}: cast or reshape one of them"
            )
        needs = op.needs & (~when | tensor.needs.substitute(change))
        self.ops[name] = dataclasses.replace(op, outputs=(first,), needs=needs)
        self.join(name, tensor.replace(index=index), simplify(when, op.domain))

    def fresh(self, name: str) -> str:
        """A name that no operation has and that isl can read."""
        taken = {*self.ops, *self.box.names, *(b.name for b in self.bounds)}
        name = name if name.isidentifier() and name.isascii() else "fn"
        count, found = 1, name
        while found in taken or found.lower() in _RESERVED:
            count, found = count + 1, f"{name}_{count + 1}"
        return found

    def declare(self, op: Op) -> Tensor:
        """An operation whose edges are yet to come; its first output."""
        self.ops[op.name] = op
        return self.output(op.name)

    def graph(self, *results: Tensor) -> Graph:
        """The graph of what the results need, checked.  Raises `ValueError`: see `validate`."""
        from mmrl.pdg.clean import clean

        if not results:
            raise ValueError("`results` must name at least one tensor: the graph is what it needs")
        kept = [x if x.is_whole else x.read() for x in map(self.as_tensor, results)]
        bounds = tuple(bound.name for bound in self.bounds)
        asked = tuple((x.source, x.output) for x in kept)
        graph = Graph(dict(self.ops), tuple(self.edges), bounds, asked)
        return clean(graph)


def fn(f: Callable[..., Any], *inputs: Any, name: str | None = None) -> Any:
    """`Program.fn` of the program that the first tensor belongs to."""
    for x in inputs:
        if isinstance(x, Tensor):
            return x.program.fn(f, *inputs, name=name)
    raise ValueError(
        "`fn` found no tensor among its inputs: call `Program.fn` or `Program.constant`"
    )


def point_key(seed: int, tag: int, domain: Domain, env: dict[str, Any]) -> jax.Array:
    """Return the key of an operation at a point: a function of only these two."""
    key = jax.random.fold_in(env["key"] if "key" in env else jax.random.key(seed), tag)
    for name in domain.names:
        key = jax.random.fold_in(key, env[name])
    return key


def _guarded(run: Callable[..., Any], traced: Callable[..., Any], rest: int = 0) -> Callable:
    """Return `run` where a first argument holds, else the `rest` of values after it, or zeros.

    `traced` does the same in a program, and has the number of zeros.
    """

    def guarded(env: dict[str, Any], when: Any, *values: Any) -> tuple[Any, ...]:
        def nothing(values: Any) -> tuple[Any, ...]:
            if rest:
                return values[:rest]
            kinds = jax.eval_shape(lambda xs: tuple(traced(env, *xs)), values)
            return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), kinds)

        def something(values: Any) -> tuple[Any, ...]:
            return tuple(run(env, *values[rest:]))

        # Always in JAX, and of arrays that are not weakly typed: so that all derivatives have one
        # form, in which a backward pass puts the residuals of the forward pass in their places.
        if run is traced and isinstance(when, jax.Array):
            values = jax.tree.map(lambda x: jnp.asarray(x, x.dtype), values)
            return jax.lax.cond(when, something, nothing, values)
        return something(values) if bool(when) else nothing(values)

    return guarded


def _refuse(kinds: Any, name: str, value: Any) -> None:
    """Raise `ValueError` for a leaf of these kinds, which functions at a point must not mix in."""
    for leaf in jax.tree.leaves(value):
        if isinstance(leaf, kinds):
            raise ValueError(
                f"`{name}` has `{leaf}` in it: a function at a point is given numbers and no "
                f"tensors; name each tensor that it uses among the inputs of `fn`"
            )


def _types(like: Any) -> Any:
    """The types of a pytree of arrays, numbers or types."""
    known = jax.eval_shape(lambda x: jax.tree.map(jnp.asarray, x), like)
    return jax.tree.map(lambda x: array_type(x.shape, x.dtype), known)


def _name_of(f: Callable[..., Any]) -> str:
    name = getattr(f, "__name__", type(f).__name__.lower())
    return name.strip("_") if name.isidentifier() else "fn"
