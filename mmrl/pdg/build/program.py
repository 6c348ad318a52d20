"""Language for writing programs: dimensions, operations, definitions by cases, and graphs.  §4

p = Program("i", "t")
(i, t), (I, T) = p.symbols, p.bounds
x = p.tensor(i, t)
x[i, 0] = 0.0
x[i, t + 1] = 0.9 * x + 1.0
graph = p.graph(x[i, 0:T].sum())

`input` declares an argument of a run, `host` calls Python functions for their effects, and `until`
ends a dimension once a tensor becomes true.
"""

import dataclasses
import inspect
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
from mmrl.pdg.build.graph import Domain, Edge, Graph, Op, Symbols, array_type, type_text
from mmrl.pdg.build.indexing import definition, subscript
from mmrl.pdg.build.sets import never, simplify
from mmrl.pdg.build.tensor import Tensor

# Reserved words of Python and isl. isl ignores case.
_KEYWORDS = {"min", "max", "floor", "ceil", "mod", "and", "or", "not", "exists", "true", "false"}
_KEYWORDS |= {"implies", "rat", "infty", "infinity", "nan", "floord", "ceild", *keyword.kwlist}


class Program:
    """Program over symbolic dimensions, which are listed from the outermost to the innermost.

    The bound of a dimension has the same name in uppercase: 0 <= t < T. All random numbers are
    determined by `seed`, or by the `key` of a run. The key of a random operation depends only on
    the operation's name and the point, so every valid order of execution computes the same numbers.

        >>> program = Program("t")
        >>> (t,), (T,) = program.symbols, program.bounds
        >>> x = program.tensor("t", name="x")
        >>> x[0] = 1.0
        >>> x[t + 1] = 0.5 * x[t]
        >>> list(program.graph(x).ops)
        ['x', 'constant', 'mul']
    """

    def __init__(self, *names: str, seed: int = 0):
        wrong = [
            n
            for n in map(str, names)
            if not (n.isidentifier() and n.isascii()) or n == n.upper() or n.lower() in _KEYWORDS
        ]
        if wrong or len(set(names)) < len(names):
            raise ValueError(
                f"`names` must be different names in lower case, and not keywords; got {names}"
            )
        self.seed = seed
        self.box = Domain.of(*names)
        self.symbols = Symbols(self.box.symbols)
        self.bounds = Symbols(Sym(name.upper()) for name in names)
        self.ops: dict[str, Op] = {}
        self.edges: list[Edge] = []
        self.reads: dict[str, tuple[Tensor, ...]] = {}  # arguments of each operation
        self.detached: set[Edge] = set()  # edges that carry no gradient

    def domain(self, names: str | Sym | Iterable[str | Sym], when: Expr = TRUE) -> Domain:
        """Return the domain over the given dimensions, in the program's order.

        Raises `ValueError` for an unknown dimension.
        """
        several = (names,) if isinstance(names, str | Sym) else names
        choice, own = {str(name) for name in several}, ", ".join(self.box.names)
        unknown = ", ".join(sorted(choice - set(self.box.names)))
        if unknown:
            raise ValueError(
                f"`{unknown}` is not a symbol of this program, which has {own}: use these (for "
                f"one, unpack `(t,), (T,) = p.symbols, p.bounds`), or add the symbol to `Program`"
            )
        return Domain(tuple(dim for dim in self.box if dim.name in choice), when)

    def tensor(self, *symbols: Sym | str, name: str | None = None) -> Tensor:
        """Return a new tensor, to be defined by cases: `x[i, 0] = …; x[i, t + 1] = …`.

        At a point that several cases cover, the first case applies. The first case also determines
        the tensor's type.
        """
        domain = self.domain(symbols)
        return self.declare(Op(self.fresh(name or "x"), "merge", domain, ()))

    def constant(self, value: Any, name: str | None = None) -> Tensor:
        """Return a tensor whose value, a pytree of arrays, is the same at every point."""
        _refuse(Tracer, name or "constant", value)
        value = jax.tree.map(jnp.asarray, value)
        run = lambda env: (value,)  # noqa: E731
        return self.build("constant", run, [], name=name, params={"value": value})[0]

    def input(self, name: str, like: Any, *symbols: Sym | str) -> Tensor:
        """Declare a named argument of each run, such as parameters, data, or a learning rate.

            x, rate = p.input("x", jnp.zeros(3), t), p.input("rate", 0.1)
            compile(p.graph(…)).xla(T=8)(x=jnp.ones((8, 3)), rate=0.5)

        `like` is a pytree of arrays or types for the value at one point. A run receives the values
        at all points in one pytree, with a leading axis for each of `symbols`. The program is
        compiled once for all values. Raises `ValueError` for a name that is reserved or already
        used.
        """
        options = ("key", "seed", "jit", "backend")
        if not name.isidentifier() or name == name.upper() or name in options:
            raise ValueError(
                f"`name` must be a word in lower case other than {', '.join(options)}; got {name!r}"
            )
        if name != self.fresh(name):
            raise ValueError(
                f"`name` must be new, but {name!r} is taken by an operation, dimension or keyword: "
                f"choose another name"
            )
        domain = self.domain(symbols)

        def run(env: dict[str, Any]) -> tuple[Any, ...]:
            at = tuple(env[dim] for dim in domain.names)
            is_traced = any(isinstance(x, Tracer) for x in at)  # tracers cannot index NumPy arrays
            values = jax.tree.map(jnp.asarray if is_traced else lambda x: x, env["inputs"][name])
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
        """Call `f(*inputs)` in Python for its effects: to log, to save, to fill a replay buffer.

        `f` is called once per point, in the order of the program's dimensions, even if no
        operation reads its result. To preserve this order, passes never move the call out of its
        loops. `f` receives NumPy arrays. If `like` is a pytree of arrays or types, `f` must return
        a value of these types, and `host` returns a tensor of these values; without `like`, `host`
        returns None. Where `when` is false, `f` is not called and the value is zero. No gradient
        flows through the call, and an XLA program that contains it does not support `vmap`. To
        order two calls, pass the result of the first one to the second one.
        """
        tensors = [self.as_tensor(x).detach() for x in inputs]
        tensors = tensors if when is None else [self.as_tensor(when), *tensors]
        domain = self.domain(over).union(*(x.domain for x in tensors))
        name = self.fresh(name or _name_of(f))
        if not TRUE.same(domain.when):
            raise ValueError(
                f"`{name}` would be called only where {domain.when}, but its inputs must exist at "
                f"all points of their dimensions: test the condition inside `f` instead"
            )
        before: Tensor = self.constant(jnp.int32(0), name=f"{name}_first")
        if domain.names:
            zero, before = before, self.tensor(*domain.names, name=f"{name}_turn")
            before[(0,) * len(domain.names)] = zero
        kinds = (array_type((), np.int32), *(() if like is None else (_types(like),)))

        types = tuple(
            jax.tree.map(lambda x: x.storage_type(domain, {}), kind) for kind in kinds[1:]
        )

        def call(*values: Any) -> tuple[Any, ...]:
            results = (f(*jax.tree.map(np.asarray, values)),)[: len(types)]
            arrays = jax.tree.map(np.asarray, results)
            if jax.tree.map(np.shape, arrays) != jax.tree.map(lambda x: x.shape, types):
                raise ValueError(
                    f"`{name}` must return {type_text(kinds[1])}, as in `like`, got {results[0]}"
                )
            return jax.tree.map(lambda x, kind: x.astype(kind.dtype), arrays, types)

        pad = table.padding(tensors)
        callback = lambda env, *values: io_callback(call, types, *values, ordered=True)  # noqa: E731
        direct = lambda env, *values: jax.tree.map(jnp.asarray, call(*values))  # noqa: E731

        def run(env: dict[str, Any], turn: Any, *values: Any) -> tuple[Any, ...]:
            effect = callback if isinstance(turn, Tracer) else direct
            effect = effect if when is None else _guard(effect, callback)
            return turn + 1, *effect(env, *pad(env, values))

        params = {} if when is None else {"when": 0}
        reads = [before, *tensors]
        after, *out = self.build("host", run, reads, kinds, domain=domain, name=name, params=params)
        if domain.names:
            self.follow(before, after)
        return out[0] if out else None

    def follow(self, x: Tensor, value: Tensor) -> None:
        """Define x at every point but the first, from `value` at the point before it.

        The last dimension varies fastest. For x over (i, k): x[i, k + 1] = value[i, k], and
        x[i + 1, 0] = value[i, K - 1].
        """
        symbols, bounds = x.domain.symbols, [dim.bound for dim in x.domain]
        for k, at in enumerate(symbols):
            ends, first = (bound - 1 for bound in bounds[k + 1 :]), (0,) * len(bounds[k + 1 :])
            x[(*symbols[:k], at + 1, *first)] = value[(*symbols[:k], at, *ends)]

    def value(self, expr: Expr) -> Tensor:
        """Return an int32 tensor with the value of an index expression: `p.value(T - t)`."""
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
        """Apply a pure JAX function, such as an Equinox module, at every point of its inputs.

        If `f` returns a tuple, the result is a tuple of tensors; any other pytree becomes a single
        tensor. If `whole` is true, a tuple also becomes a single tensor, which suits the state of
        an optax optimizer. Ragged inputs are padded with zeros; if `f` needs the number of real
        entries, pass it as `p.value(…)`. Where `when` is false, `f` is not called, and the result
        is `otherwise`, or zeros if `otherwise` is not given; see `until`. `over` adds dimensions
        that the inputs do not have. If `random` is true, `f` receives a key as its first argument.
        """
        if not callable(f):
            raise ValueError(f"`f` must be a function, got {f!r}; pass the inputs after it")
        tensors = [self.as_tensor(x) for x in inputs]
        name = self.fresh(name or _name_of(f))
        _check_arguments(f, name, len(inputs), random)
        domain = self.domain(over).union(*(x.domain for x in tensors))
        tag, split, pad = zlib.crc32(name.encode()), [not whole], table.padding(tensors)

        def run(env: dict[str, Any], *values: Any) -> tuple[Any, ...]:
            values = pad(env, values)
            key = (point_key(self.seed, tag, domain, env),) if random else ()
            out = f(*key, *values)
            if out is None:
                raise ValueError(
                    f"`{name}` must return a value, got None: add a `return` to the function"
                )
            _refuse(Tensor | Expr, name, out)
            split[0] = not whole and type(out) is tuple
            return out if split[0] else (out,)

        kind, params = "random" if random else "fn", {"f": f, "whole": whole}
        if when is not None:
            rest = otherwise if type(otherwise) is tuple else (otherwise,)
            rest = [] if otherwise is None else [self.as_tensor(x) for x in rest]
            tensors = [self.as_tensor(when), *rest, *tensors]
            domain = domain.union(*(x.domain for x in tensors))
            run, params = _guard(run, run, len(rest)), params | {"when": len(rest)}
        elif otherwise is not None:
            raise ValueError(
                "`otherwise` must be passed together with `when`, got no `when`: pass both; the "
                "result is `otherwise` where `when` is false"
            )
        outputs = self.build(kind, run, tensors, domain=domain, name=name, params=params)
        return outputs if split[0] else outputs[0]

    def sample(self, f: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        """Apply `f(key, *inputs)` at every point, with a separate key per point.

        Accepts the options of `fn`. For example, `p.sample(reset, over=(i,))` samples once per
        iteration.
        """
        return self.fn(f, *inputs, random=True, **options)

    def until(self, stop: Tensor, along: Sym | str, name: str | None = None) -> Tensor:
        """Return a tensor that is true up to and including the first point where `stop` is true.

        The data thus determine where the dimension `along` ends, and its bound is the maximum
        number of steps. Pass the tensor as `when` to `fn`, `sample` or `host`: in a loop, they run
        only where it is true. After the end, `otherwise` can repeat the last state, and zeros leave
        a sum unchanged:

            x, stop = p.tensor(t, name="x"), p.tensor(t, name="stop")
            alive, x[0] = p.until(stop, t), 1.0
            y = p.fn(double, x, when=alive, otherwise=x)
            x[t + 1], stop[t] = y, y > limit
            last, steps = y[T - 1], alive[0:T].sum()

        Operations without `when` continue to run until the bound. If a pass vectorizes `along`, all
        steps are computed, and those after the end are discarded. With `xla(early=True)`, the XLA
        program skips the steps after the end if no value that is used later depends on them.
        `compile(graph).report()` lists for each loop whether it skips steps, and if not, why.
        Raises `ValueError` if `stop` is not a tensor along this dimension.
        """
        (dim,), domain = self.domain(along), stop.domain
        if dim.name not in domain.names:
            raise ValueError(
                f"`stop` must be a tensor along {dim.name}, got {stop!r}; define it at each point "
                f"of {dim.name}"
            )
        alive = self.tensor(*domain.names, name=name or "alive")
        op = self.ops[alive.source]
        self.ops[op.name] = dataclasses.replace(op, params={"ends": dim.name})
        alive[domain.at(dim.name, 0)] = True
        run = lambda env, before, stop: (before & ~jnp.asarray(stop, bool),)  # noqa: E731
        kinds = (array_type((), bool),)
        (after,) = self.build("fn", run, [alive, stop], kinds, name="goes_on")
        alive[domain.at(dim.name, dim.symbol + 1)] = after
        return alive

    def apply(self, kind: str, *inputs: Any, name: str | None = None, **params: Any) -> Tensor:
        """Apply the function `kind` of `ops.TABLE`; inputs may be tensors and Python numbers."""
        numbers = {k: x for k, x in enumerate(inputs) if isinstance(x, bool | int | float)}
        tensors = [self.as_tensor(x) for k, x in enumerate(inputs) if k not in numbers]
        sliced = [any(isinstance(part, Slice) for part in x.index) for x in tensors]
        row = table.bind(kind, [x.array for x in tensors], params, sliced)

        def run(env: dict[str, Any], *values: Any) -> tuple[Any, ...]:
            rest, places = iter(values), range(len(inputs))
            return row(env, *(numbers[k] if k in numbers else next(rest) for k in places))

        more = {"numbers": tuple(sorted(numbers.items()))} if numbers else {}
        return self.build(kind, run, tensors, name=name, params={**params, **more})[0]

    def as_tensor(self, value: Any, like: tuple[Any, ...] = ()) -> Tensor:
        """Convert an index expression or a constant to a tensor; return tensors unchanged.

        A constant is cast to the type in `like`, unless `like` is empty.
        """
        if isinstance(value, Tensor):
            if value.program is not self:
                raise ValueError(
                    f"`{value!r}` belongs to another program: use tensors of a single program"
                )
            return value
        if isinstance(value, Expr):
            return self.value(value)
        if any(isinstance(leaf, Tensor) for leaf in jax.tree.leaves(value)):
            raise ValueError(
                f"`value` must be one tensor, got a {type(value).__name__} of tensors: pass one of "
                f"them, or combine them with `fn` and `whole=True`, which returns a single tensor"
            )
        for kind in like:
            value = jax.tree.map(table.constant, value, kind)
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
        """Add an operation over the union of its inputs' domains, and return its outputs."""
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
        """Add an edge through which `sink` reads `x` where `when` holds."""
        edge = Edge(sink, x.source, x.index, when, place, x.output)
        self.edges.append(edge)
        self.detached |= {edge} if x.detached else set()

    def output(self, name: str, output: int = 0) -> Tensor:
        """Return an output of an operation as a tensor."""
        domain = self.ops[name].domain
        return Tensor(self, name, output, domain.symbols, domain)

    def define(self, name: str, key: Any, value: Any) -> None:
        """Add the case `name[key] = value` to a merge, at the points where the value exists."""
        op = self.ops[name]
        if op.kind != "merge":
            raise ValueError(
                f"`{name}` is computed by `{op.kind}`, and only tensors of `Program.tensor` can be "
                f"assigned to: declare a new tensor"
            )
        target = subscript(key, op.domain, name)
        bounds = [bound.name for bound in self.bounds]
        tensor = self.as_tensor(value, op.outputs)
        if any(isinstance(part, Slice) for part in tensor.index):
            tensor = tensor.read()
        when, change = definition(target, op.domain, bounds, name)
        exists = tensor.domain.when.substitute(change)
        for rest in (exists, *(~edge.when for edge in self.edges if edge.sink == name)):
            when = when & rest
        if never(when, op.domain):
            raise ValueError(
                f"`{name}` is already defined wherever `{target.text(name)} = …` would define it: "
                f"remove one of the cases"
            )
        index = tuple(part.substitute(change) for part in tensor.index)
        extra = {s for part in (*index, exists) for s in part.symbols()}
        extra -= {*bounds, *op.domain.names}
        constants = {n for n, part in change.items() if n not in part.symbols()}
        if extra := extra | constants & set(tensor.domain.names):
            raise ValueError(
                f"`{target.text(name)} = …`: the value differs along {sorted(extra)}, but the left "
                f"side does not; index the value, for example with `value[…, 0]`"
            )
        first = op.outputs[0] if op.outputs else tensor.type
        if jax.tree.map(str, first) != jax.tree.map(str, tensor.type):
            raise ValueError(
                f"`{name}` must have one type, but was first defined as {type_text(first)}, got "
                f"{type_text(tensor.type)}: cast or reshape one of the values"
            )
        needs = op.needs & (~when | tensor.needs.substitute(change))
        self.ops[name] = dataclasses.replace(op, outputs=(first,), needs=needs)
        self.join(name, tensor.replace(index=index), simplify(when, op.domain))

    def fresh(self, name: str) -> str:
        """Return an unused name based on `name`, which is also valid in isl."""
        names = {*self.ops, *self.box.names, *(b.name for b in self.bounds)}
        name = name if name.isidentifier() and name.isascii() else "fn"
        count, candidate = 1, name
        while candidate in names or candidate.lower() in _KEYWORDS:
            count, candidate = count + 1, f"{name}_{count + 1}"
        return candidate

    def declare(self, op: Op) -> Tensor:
        """Add an operation without edges, and return its first output."""
        self.ops[op.name] = op
        return self.output(op.name)

    def graph(self, *results: Tensor) -> Graph:
        """Return the validated graph of the operations that the results depend on.

        Raises `ValueError` for an invalid program (see `validate`), and if the result of `until` is
        not read.
        """
        from mmrl.pdg.clean import clean

        if not results:
            raise ValueError(
                "`results` must name at least one tensor, got none: pass the tensors to compute"
            )
        tensors = [x if x.is_whole else x.read() for x in map(self.as_tensor, results)]
        bounds = tuple(bound.name for bound in self.bounds)
        outputs = tuple((x.source, x.output) for x in tensors)
        graph = Graph(dict(self.ops), tuple(self.edges), bounds, outputs)
        for name in [op.name for op in self.ops.values() if "ends" in op.params]:
            own = {edge.source for edge in graph.inputs(name)}
            readers = {edge.sink for edge in graph.readers(name)} - own
            if not readers and (name, 0) not in outputs:
                raise ValueError(
                    f"`{name}`, the result of `until`, must be read, or the end has no effect: "
                    "pass it as `when` of `fn` or `sample`, or mask values with `where`"
                )
        return clean(graph)


def fn(f: Callable[..., Any], *inputs: Any, name: str | None = None) -> Any:
    """Apply `f` to tensors at every point, with `Program.fn` of the first tensor's program.

    >>> fn(jnp.exp, Program("t").input("x", 0.0, "t"))
    Tensor(exp over [t]: float32[])
    """
    for x in inputs:
        if isinstance(x, Tensor):
            return x.program.fn(f, *inputs, name=name)
    raise ValueError(
        "`inputs` must contain a tensor, got none: call `Program.fn` or `Program.constant` instead"
    )


def _check_arguments(f: Callable[..., Any], name: str, number: int, random: bool) -> None:
    """Raise `ValueError` unless `f` accepts `number` inputs, preceded by a key if `random`."""
    try:
        inspect.signature(f).bind(*range(number + random))
    except TypeError as error:
        arguments = f"{'a key and ' if random else ''}{number} input{'s' * (number != 1)}"
        raise ValueError(f"`{name}` must accept {arguments}, in this order: {error}") from None
    except ValueError:  # some built-in functions have no signature
        pass


def point_key(seed: int, tag: int, domain: Domain, env: dict[str, Any]) -> jax.Array:
    """Return the random key of an operation at a point, derived from the run's key or seed."""
    key = jax.random.fold_in(env["key"] if "key" in env else jax.random.key(seed), tag)
    for name in domain.names:
        key = jax.random.fold_in(key, env[name])
    return key


def _guard(run: Callable[..., Any], traced: Callable[..., Any], rest: int = 0) -> Callable:
    """Return a function that calls `run` only if its first argument is true.

    Otherwise, the function returns the next `rest` arguments, or zeros if `rest` is 0. `traced` is
    a version of `run` that JAX can trace; tracing it determines the shapes of the zeros.
    """

    def conditional(env: dict[str, Any], when: Any, *values: Any) -> tuple[Any, ...]:
        def fallback(values: Any) -> tuple[Any, ...]:
            if rest:
                return values[:rest]
            kinds = jax.eval_shape(lambda xs: tuple(traced(env, *xs)), values)
            return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), kinds)

        def result(values: Any) -> tuple[Any, ...]:
            return tuple(run(env, *values[rest:]))

        # For JAX arrays, always use `lax.cond`, and remove weak types. All derivatives then have
        # the same structure, so a backward pass can insert the residuals of the forward pass.
        if run is traced and isinstance(when, jax.Array):
            values = jax.tree.map(lambda x: jnp.asarray(x, x.dtype), values)
            return jax.lax.cond(when, result, fallback, values)
        return result(values) if bool(when) else fallback(values)

    return conditional


def _refuse(kinds: Any, name: str, value: Any) -> None:
    """Raise `ValueError` if a leaf of `value` is an instance of `kinds`."""
    for leaf in jax.tree.leaves(value):
        if isinstance(leaf, kinds):
            raise ValueError(
                f"`{name}` must compute with numbers at each point, but contains `{leaf}`: pass "
                f"every tensor that the function uses as an input of `fn`"
            )


def _types(like: Any) -> Any:
    """Return the types of a pytree of arrays, numbers or types."""
    types = jax.eval_shape(lambda x: jax.tree.map(jnp.asarray, x), like)
    return jax.tree.map(lambda x: array_type(x.shape, x.dtype), types)


def _name_of(f: Callable[..., Any]) -> str:
    name = getattr(f, "__name__", type(f).__name__.lower())
    return name.strip("_") if name.isidentifier() else "fn"
