"""Every combination of passes computes what the program says, point by point."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.pdg.domain import Domain
from mmrl.pdg.expr import TRUE, Slice, Sym, lift, min_
from mmrl.pdg.graph import ArrayType, Edge, Graph, Op
from mmrl.pdg.passes import fuse, lift_loops, tile, vectorize

i, t, T = Sym("i"), Sym("t"), Sym("T")
ONCE, RUNS, STEPS = Domain.of(), Domain.of("i"), Domain.of("i", "t")
BOUNDS = {"I": 2, "T": 7}
N = 3


def interpret(graph, bounds):
    """What every result is at every point, each computed when it is asked for, and once."""
    known = {}

    def value(name, point):
        if (name, point) not in known:
            op = graph.ops[name]
            assert op.domain.contains(point, bounds), (name, point)
            env = op.domain.env(point, bounds)
            edges = [e for e in graph.inputs(name) if bool(e.when.evaluate(env))]
            inputs = [read(op, edge, env) for edge in edges]
            assert op.run or len(edges) == 1
            known[name, point] = op.run(env, *inputs) if op.run else (inputs[0],)
        return known[name, point]

    def read(sink, edge, env):
        axes = [
            (range(*bounded(part, env)) if isinstance(part, Slice) else [int(part.evaluate(env))])
            for part in edge.index
        ]
        widths = [sink.domain.largest(part.width(), bounds) for part in edge.slices]
        found = [value(edge.source, q)[edge.output] for q in itertools.product(*axes)]
        shape = [
            len(a) for a, part in zip(axes, edge.index, strict=True) if isinstance(part, Slice)
        ]

        def stack(*xs):
            x = jnp.stack(xs).reshape(*shape, *jnp.shape(xs[0]))
            pads = [(0, w - n) for w, n in zip(widths, shape, strict=True)]
            return jnp.pad(x, pads + [(0, 0)] * jnp.ndim(xs[0])) if pads else x

        return jax.tree.map(stack, *found)

    def bounded(part, env):
        return int(part.lo.evaluate(env)), int(part.hi.evaluate(env))

    return {
        (name, output, point): value(name, point)[output]
        for name, output in graph.results
        for point in graph.ops[name].domain.points(bounds)
    }


class Build:
    def __init__(self):
        self.ops, self.edges = {}, []

    def fn(self, name, domain, run, *reads, shapes=((3,),), kind="fn", **params):
        types = tuple(ArrayType(shape, np.dtype("float32")) for shape in shapes)
        whole = lambda env, *inputs: run(env, *inputs) if len(shapes) > 1 else (run(env, *inputs),)  # noqa: E731
        self.ops[name] = Op(name, kind, domain, types, whole, params)
        for k, (source, output, *index) in enumerate(reads):
            self.edge(name, source, output, index, TRUE, k)

    def merge(self, name, domain, *choices, shape=(3,)):
        self.ops[name] = Op(name, "merge", domain, (ArrayType(shape, np.dtype("float32")),))
        for when, source, output, *index in choices:
            self.edge(name, source, output, index, when, 0)

    def edge(self, name, source, output, index, when, k):
        self.edges.append(Edge(name, source, tuple(map(lift, index)), when, k, output))

    def graph(self, *results):
        return Graph(self.ops, tuple(self.edges), ("I", "T"), tuple((r, 0) for r in results))


def noise(env, number):
    key = jax.random.key(number)
    for name in ("i", "t"):
        key = jax.random.fold_in(key, env[name])
    return jax.random.normal(key, (3,))


def acting(b):
    b.fn("init", ONCE, lambda env: jnp.array([0.5, -0.2, 0.1]))
    b.merge("w", RUNS, (i == 0, "init", 0), (i >= 1, "update", 0, i - 1))
    b.fn("reset", RUNS, lambda env: jnp.ones(3) * (1.0 + env["i"]))
    b.merge("o", STEPS, (t == 0, "reset", 0, i), (t >= 1, "step", 0, i, t - 1))
    b.fn(
        "a",
        STEPS,
        lambda env, w, o: jnp.tanh(w * o) + noise(env, 1),
        ("w", 0, i),
        ("o", 0, i, t),
    )
    b.fn(
        "step",
        STEPS,
        lambda env, o, a: (jnp.cos(o + a), (o * a).sum()),
        ("o", 0, i, t),
        ("a", 0, i, t),
        shapes=((3,), ()),
    )


def learning(b):
    b.fn(
        "d",
        STEPS,
        lambda env, w, o, a, g: g * (a - jnp.tanh(w * o)) * o,
        ("w", 0, i),
        ("o", 0, i, t),
        ("a", 0, i, t),
        ("g", 0, i, t),
    )
    b.fn("zero", ONCE, lambda env: jnp.zeros(3))
    b.merge("before", STEPS, (t == 0, "zero", 0), (t >= 1, "total", 0, i, t - 1))
    b.fn("total", STEPS, lambda env, x, y: x + y, ("before", 0, i, t), ("d", 0, i, t))
    b.fn("update", RUNS, lambda env, w, g: w + 0.1 * g, ("w", 0, i), ("total", 0, i, T - 1))


def reinforce(n=None):
    """Policy gradient with returns of n steps, or to the end; the gradient is summed step by step."""
    b = Build()
    acting(b)
    stop = T if n is None else min_(t + n, T)
    b.fn(
        "g",
        STEPS,
        lambda env, r: 0.9 ** jnp.arange(len(r)) @ r,
        ("step", 1, i, Slice(t, stop)),
        shapes=((),),
    )
    learning(b)
    return b.graph("update")


def recurrent():
    """Returns by a backward recurrence, a moving average by a forward one, whose points count."""
    b = Build()
    acting(b)
    b.fn(
        "more",
        STEPS.restrict(t < T - 1),
        lambda env, r, g: r + 0.9 * g,
        ("step", 1, i, t),
        ("g", 0, i, t + 1),
        shapes=((),),
    )
    b.merge("g", STEPS, (t == T - 1, "step", 1, i, t), (t < T - 1, "more", 0, i, t), shape=())
    b.merge("mean", STEPS, (t == 0, "a", 0, i, t), (t >= 1, "blend", 0, i, t))
    b.fn(
        "blend",
        STEPS.restrict(t >= 1),
        lambda env, m, a: 0.8 * m + 0.2 * a,
        ("mean", 0, i, t - 1),
        ("a", 0, i, t),
    )
    b.fn("last", RUNS, lambda env, ms: ms[::-1].sum(0) + ms[2], ("mean", 0, i, Slice(lift(0), T)))
    learning(b)
    return b.graph("update", "mean", "last")


def reduced():
    """A sum over a slice, reads at numbers and two steps ago, and a branch apart from the loop."""
    b = Build()
    acting(b)
    b.fn("g", STEPS, lambda env, r: r * env["t"], ("step", 1, i, t), shapes=((),))
    b.merge("odd", STEPS, (t < 2, "g", 0, i, t), (t >= 2, "g", 0, i, t - 2), shape=())
    b.fn(
        "d",
        STEPS,
        lambda env, w, o, z, s, g: w * o * g + z + s,
        ("w", 0, i),
        ("o", 0, i, t),
        ("a", 0, i, 0),
        ("odd", 0, i, t),
        ("odd", 0, i, t),
    )
    b.fn("sum", RUNS, lambda env, x: x.sum(0), ("d", 0, i, Slice(lift(0), T)), kind="sum", axis=0)
    b.fn("update", RUNS, lambda env, w, g: w + 0.1 * g, ("w", 0, i), ("sum", 0, i))
    return b.graph("update", "odd")


PROGRAMS = {
    "mc": reinforce,
    "n-step": lambda: reinforce(N),
    "recurrent": recurrent,
    "reduced": reduced,
}
PASSES = {
    "lift": lambda g: lift_loops(g, "t", when="always"),
    "vectorize": lambda g: vectorize(g, "t"),
    "tile": lambda g: tile(g, "t", 3),
    "fuse": fuse,
}
