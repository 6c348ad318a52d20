"""Small handwritten dependence graphs whose operations have one-letter names.

`w` computes the parameters, `o` the observation and state of the environment, `a` the action, and
`e` the environment step, which returns the next observation and the reward. `g` computes the
return, `d` the gradient of one step, `p` and `G` the sum of the gradients before and after a step,
and `u` the updated parameters.

All values are scalars and the functions are placeholders, so that programs run quickly. The
dependences are the same as in real programs.
"""

import functools
import random
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp

from mmrl.pdg.build import graph as graphs
from mmrl.pdg.build.expr import Expr, Sym, as_expr, min_
from mmrl.pdg.build.graph import Domain, Edge, Graph, Op, array_type
from mmrl.pdg.run import Compiled, compile

I, K, T, i, k, t = (Sym(name) for name in "IKTikt")  # noqa: E741
ONE, RUNS, STEPS, EPOCHS = Domain.of(), Domain.of("i"), Domain.of("i", "t"), Domain.of("i", "k")
NUMBER = array_type((), "float32")
GAMMA = 0.9


def op(name: str, domain: Domain, run: Callable | None = None, outputs: int = 1) -> Op:
    return Op(name, "fn" if run else "merge", domain, (NUMBER,) * outputs, run)


def reads(sink: str, *sources: tuple[Any, ...]) -> list[Edge]:
    """Return an edge for each argument (source, *index); a source is a name or (name, output)."""
    edges = []
    for number, (source, *index) in enumerate(sources):
        name, output = source if isinstance(source, tuple) else (source, 0)
        where = tuple(as_expr(part) for part in index)
        edges.append(Edge(sink, name, where, input=number, output=output))
    return edges


def branch(sink: str, when: Expr, source: str | tuple[str, int], *index: Any) -> Edge:
    """Return an edge for one case of a definition by cases."""
    name, output = source if isinstance(source, tuple) else (source, 0)
    return Edge(sink, name, tuple(as_expr(part) for part in index), when, output=output)


def graph(ops: list[Op], edges: list[Edge], bounds: tuple[str, ...], result: str) -> Graph:
    return Graph({each.name: each for each in ops}, tuple(edges), bounds, ((result, 0),))


def remainders(number: int) -> Iterator[Expr]:
    """Sample `number` conditions with remainders, such as 2 * ((i + T) % 3) + t - T <= 2."""
    choose = random.Random(0)

    def linear() -> Any:
        return sum(choose.randint(-2, 2) * symbol for symbol in (i, t, I, T))

    while number:
        rest = (linear() + choose.randint(-1, 1)) % choose.randint(2, 4)
        value, limit = choose.choice((1, -1, 2)) * rest + linear(), choose.randint(-1, 4)
        if value.symbols():
            number -= 1
            yield value == limit if choose.random() < 0.3 else value <= limit


def where(edge: Edge, env: dict[str, int]) -> list[tuple[int, ...]]:
    """Return the points that an edge reads."""
    return list(graphs.reads(edge.index, env))


ACTING = [
    op("init", ONE, lambda env: (jnp.float32(0.5),)),
    op("reset", RUNS, lambda env: (jnp.float32(0.1) * (env["i"] + 1),)),
    op("a", STEPS, lambda env, w, o: (jnp.sin(w * o),)),
    op("e", STEPS, lambda env, a, o: (0.9 * o + 0.1 * a, a * o), outputs=2),
    op("o", STEPS),
]
ACTS = [
    branch("o", t == 0, "reset", i),
    branch("o", t >= 1, ("e", 0), i, t - 1),
    *reads("e", ("a", i, t), ("o", i, t)),
]
LEARNING = [
    op("w", RUNS),
    op("zero", ONE, lambda env: (jnp.float32(0.0),)),
    op("u", RUNS, lambda env, w, total: (w - 0.1 * total,)),
    op("last", ONE, lambda env, u: (u,)),
]
LEARNS = [
    branch("w", i == 0, "init"),
    branch("w", i >= 1, "u", i - 1),
    *reads("a", ("w", i), ("o", i, t)),
    *reads("last", ("u", I - 1)),
]


def discounted_sum(env: Any, rewards: Any) -> tuple[Any]:
    """Compute the discounted sum of a window of rewards, which may be padded with zeros."""
    return (jnp.sum(rewards * GAMMA ** jnp.arange(rewards.shape[0])),)


def reinforce(n: int | None = None) -> Graph:
    """Build REINFORCE with Monte Carlo returns r[t:T], or n-step returns r[t:min(t + n, T)]."""
    ops = [
        *ACTING,
        *LEARNING,
        op("g", STEPS, discounted_sum),
        op("d", STEPS, lambda env, g, a, o, w: (g * o * jnp.cos(w * o) + 0.1 * a,)),
        op("p", STEPS),
        op("G", STEPS, lambda env, p, d: (p + d,)),
    ]
    edges = [
        *ACTS,
        *LEARNS,
        *reads("g", (("e", 1), i, slice(t, T if n is None else min_(t + n, T)))),
        *reads("d", ("g", i, t), ("a", i, t), ("o", i, t), ("w", i)),
        branch("p", t == 0, "zero"),
        branch("p", t >= 1, "G", i, t - 1),
        *reads("G", ("p", i, t), ("d", i, t)),
        *reads("u", ("w", i), ("G", i, T - 1)),
    ]
    return graph(ops, edges, ("I", "T"), "last")


def tile_graph(n: int | None, m: int) -> Graph:
    """Build REINFORCE with a learner that processes tiles of m steps, at t = 0, m, 2 m, …"""
    tiles = STEPS.restrict(t % m == 0)
    width = m if n is None else m + n - 1

    def gradient(env: Any, r: Any, o: Any, a: Any, w: Any) -> tuple[Any]:
        wide = r.shape[0]
        ahead = jnp.arange(wide)[None, :] - jnp.arange(o.shape[0])[:, None]
        inside = (ahead >= 0) & (ahead < (wide if n is None else n))
        g = jnp.sum(
            jnp.where(inside, GAMMA ** jnp.where(inside, ahead, 0), 0.0) * r[None, :], axis=1
        )
        return (jnp.sum(g * o * jnp.cos(w * o) + 0.1 * a),)

    ops = [
        *ACTING,
        *LEARNING,
        op("d", tiles, gradient),
        op("p", tiles),
        op("G", tiles, lambda env, p, d: (p + d,)),
    ]
    tile = slice(t, min_(t + m, T))
    edges = [
        *ACTS,
        *LEARNS,
        *reads(
            "d",
            (("e", 1), i, slice(t, T if n is None else min_(t + width, T))),
            ("o", i, tile),
            ("a", i, tile),
            ("w", i),
        ),
        branch("p", t == 0, "zero"),
        branch("p", t >= 1, "G", i, t - m),
        *reads("G", ("p", i, t), ("d", i, t)),
        *reads("u", ("w", i), ("G", i, (T - 1) // m * m)),
    ]
    return graph(ops, edges, ("I", "T"), "last")


def ppo(recurrent: bool = True) -> Graph:
    """Build PPO with K epochs per batch, in which `w[i, k]` learns and `w[i, 0]` acts.

    If `recurrent` is True, the advantages g[t] = r[t] + γ g[t + 1] are computed backward in time,
    where `n` is the next advantage. Otherwise each advantage is computed from r[t:T].
    """
    ops = [
        *ACTING,
        op("w", EPOCHS),
        op("d", EPOCHS, lambda env, w, o, a, g: (jnp.sum(g * o * jnp.cos(w * o) + 0.1 * a),)),
        op("u", EPOCHS, lambda env, w, d: (w - 0.1 * d,)),
        op("last", ONE, lambda env, u: (u,)),
    ]
    edges = [
        *ACTS,
        branch("w", (i == 0) & (k == 0), "init"),
        branch("w", (i >= 1) & (k == 0), "u", i - 1, K - 1),
        branch("w", k >= 1, "u", i, k - 1),
        *reads("a", ("w", i, 0), ("o", i, t)),
        *reads("d", ("w", i, k), *((source, i, slice(0, T)) for source in ("o", "a", "g"))),
        *reads("u", ("w", i, k), ("d", i, k)),
        *reads("last", ("u", I - 1, K - 1)),
    ]
    if recurrent:
        ops += [
            op("zero", ONE, lambda env: (jnp.float32(0.0),)),
            op("n", STEPS),
            op("g", STEPS, lambda env, r, n: (r + GAMMA * n,)),
        ]
        edges += [
            branch("n", t >= T - 1, "zero"),
            branch("n", t < T - 1, "g", i, t + 1),
            *reads("g", (("e", 1), i, t), ("n", i, t)),
        ]
    else:
        ops += [op("g", STEPS, discounted_sum)]
        edges += reads("g", (("e", 1), i, slice(t, T)))
    return graph(ops, edges, ("I", "K", "T"), "last")


PROGRAMS: dict[str, Callable[[], Graph]] = {
    "Monte-Carlo": reinforce,
    "2-step": lambda: reinforce(2),
    "3-step": lambda: reinforce(3),
    "8-step": lambda: reinforce(8),
    "3-step, tiles of 4": lambda: tile_graph(3, 4),
    "Monte-Carlo, tiles of 4": lambda: tile_graph(None, 4),
    "PPO": ppo,
    "PPO, returns by slices": lambda: ppo(recurrent=False),
}


@functools.cache
def compiled(name: str) -> Compiled:
    """Compile a program of `PROGRAMS`. All tests share the result."""
    return compile(PROGRAMS[name](), {})


GOLDEN = {
    "Monte-Carlo": """
zero()
init()
for i in range(I):
    w(i)
    if i >= 1:
        del u[i - 1]
    else:
        del init[()]
    reset(i)
    for t in range(T):
        o(i, t)
        if t >= 1:
            del e[i, t - 1][0]
        else:
            del reset[i]
        a(i, t)
        e(i, t)
    del e[i, T - 1][0]
    for t in range(T):
        p(i, t)
        if t >= 1:
            del G[i, t - 1]
        elif i + 1 == I:
            del zero[()]
        g(i, t)
        del e[i, t][1]
        d(i, t)
        del a[i, t]
        del o[i, t]
        del g[i, t]
        G(i, t)
        del d[i, t]
        del p[i, t]
    u(i)
    del w[i]
    del G[i, T - 1]
last()
del u[I - 1]
""",
    "2-step": """
zero()
init()
for i in range(I):
    w(i)
    if i >= 1:
        del u[i - 1]
    else:
        del init[()]
    reset(i)
    for t in range(T + 1):
        if T >= t + 1:
            o(i, t)
            if t == 0:
                del reset[i]
            elif t >= 1:
                del e[i, t - 1][0]
            a(i, t)
            e(i, t)
            if t + 1 == T:
                del e[i, T - 1][0]
        if t >= 1:
            g(i, t - 1)
            del e[i, t - 1][1]
            d(i, t - 1)
            del a[i, t - 1]
            del o[i, t - 1]
            del g[i, t - 1]
            p(i, t - 1)
            if t >= 2:
                del G[i, t - 2]
            elif i + 1 == I:
                del zero[()]
            G(i, t - 1)
            del d[i, t - 1]
            del p[i, t - 1]
    u(i)
    del w[i]
    del G[i, T - 1]
last()
del u[I - 1]
""",
    "3-step": """
zero()
init()
for i in range(I):
    w(i)
    reset(i)
    for t in range(2):
        o(i, t)
        a(i, t)
        e(i, t)
    for t in range(2, T):
        o(i, t)
        a(i, t)
        e(i, t)
        g(i, t - 2)
        d(i, t - 2)
        p(i, t - 2)
        G(i, t - 2)
    for t in range(T, T + 2):
        g(i, t - 2)
        d(i, t - 2)
        p(i, t - 2)
        G(i, t - 2)
    u(i)
last()
""",
    "PPO": """
zero()
for i in range(I):
    reset(i)
    if i == 0:
        init()
    w(i, 0)
    for t in range(T):
        o(i, t)
        a(i, t)
        e(i, t)
    for t in range(T - 1, -1, -1):
        n(i, t)
        g(i, t)
    d(i, 0)
    u(i, 0)
    for k in range(1, K):
        w(i, k)
        d(i, k)
        u(i, k)
last()
""",
}
