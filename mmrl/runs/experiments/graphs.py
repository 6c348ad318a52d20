"""Recurrence equations, compiled, against the same by hand in JAX: Figures 9, 10 and 11 in small.

The paper compares its runtime with other systems, on one GPU. Here the rival is what one writes in
JAX today: a scan that acts, then `jax.grad` of the loss of the whole batch, with the keys of the
same points, so that both compute the same numbers. Ratios come from runs that take turns; memory is
what XLA reserves, and what the interpreter counts byte by byte.

Four kinds of rows. "time" (Figure 9) varies T, batch and width one at a time; "bytes" (Figure
10) the size of an observation, and runs nothing; "live" (Figure 11) has the bytes of observations
after each event of an episode; "lift" times a recurrence as a loop and as a scan.
"""

import functools
import json
import os
import pathlib
import time
import zlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.pdg.compiler import Compiled, compile
from mmrl.pdg.passes import lift, tile
from mmrl.pdg.programs import Environment, Network, reinforce
from mmrl.runs import append

GAMMA, N, TILE, ITERATIONS, ROUNDS = 0.99, 8, 16, 2, 15
DEFAULT = {"T": 128, "batch": 32, "width": 64}
VARIED = {"T": (32, 64, 256), "batch": (8, 128), "width": (16, 256)}
SIZES = (16, 64, 256, 1024, 4096)  # numbers in an observation
WINDOWS = (1, 4, 8, 16, 32, None)
LENGTHS = (256, 1024, 4096, 16384)
HIDDEN = 16

Row = dict[str, Any]
SEEN = ("seen", 0)


def screen(width: int) -> Environment:
    """A dot on a line of `width` pixels. Keep it in the middle; beyond the edge the game is over.

    An observation may be as large as one likes, and everything else stays as small as it is.
    """
    places = jnp.linspace(-1.0, 1.0, width)

    def shown(x: jax.Array) -> jax.Array:
        return jnp.exp(-30 * (places - x) ** 2)

    def reset(key: jax.Array) -> tuple:
        x = jax.random.uniform(key, minval=-0.5, maxval=0.5)
        return shown(x), x

    def step(key: jax.Array, x: jax.Array, action: jax.Array) -> tuple:
        x = x + 0.2 * (action - 0.5) + 0.05 * jax.random.normal(key)
        return shown(x), x, 1 - jnp.abs(x), jnp.abs(x) > 1, False

    return Environment(reset, step)


def network(width: int, actions: int = 2) -> Network:
    """Parameters for `look`, `judge` and `remember`; it applies `look`."""

    def init(key: jax.Array) -> dict:
        a, b, c = jax.random.split(key, 3)
        return {
            "λ": jnp.linspace(0.0, 4.0, HIDDEN),
            "A": jax.random.normal(a, (width, HIDDEN)) / width**0.5,
            "B": jax.random.normal(b, (HIDDEN, actions)) / 10,
            "V": jax.random.normal(c, (HIDDEN,)) / 10,
        }

    return Network(init, look)


def look(w: dict, obs: jax.Array) -> jax.Array:
    """Logits of any batch of observations."""
    return jnp.tanh(obs @ w["A"]) @ w["B"]


def judge(w: dict, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Logits and values."""
    h = jnp.tanh(obs @ w["A"])
    return h @ w["B"], h @ w["V"]


def remember(w: dict, h: jax.Array, obs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A linear recurrent unit with real eigenvalues: its next state, and logits."""
    decay = jax.nn.sigmoid(w["λ"])
    h = decay * h + (1 - decay) * (obs @ w["A"])
    return h, jnp.tanh(h) @ w["B"]


def descent(rate: float) -> SimpleNamespace:
    """Plain gradient descent, with the two functions of an optax optimizer."""

    def update(gradient: Any, state: tuple, _: Any) -> tuple:
        return jax.tree.map(lambda g: -rate * g, gradient), state

    return SimpleNamespace(init=lambda params: (), update=update)


def key_of(key: jax.Array, name: str, *point: Any) -> jax.Array:
    """The key that an operation has at a point."""
    for number in (zlib.crc32(name.encode()), *point):
        key = jax.random.fold_in(key, number)
    return key


def log_prob(logits: jax.Array, action: jax.Array) -> jax.Array:
    """log π(a), of logits."""
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]


def by_hand(
    env: Environment,
    net: Network,
    opt: Any,
    n: int | None,
    iterations: int,
    T: int,
    batch: int,
) -> Callable:
    """REINFORCE as one writes it today: act in a scan, then one gradient of everything."""
    later = jnp.arange(T)[None] - jnp.arange(T)[:, None]  # k - t
    weights = jnp.where((later >= 0) & (later < (n or T)), GAMMA**later, 0.0)

    def iterate(key: jax.Array, carry: tuple, i: jax.Array) -> tuple:
        w, m = carry

        def step(carry: tuple, t: jax.Array) -> tuple:
            obs, state, alive = carry
            action = jax.random.categorical(key_of(key, "act", i, t), net.apply(w, obs))
            each = jax.random.split(key_of(key, "step", i, t), batch)
            after, state, r, end, cut = jax.vmap(env.step)(each, state, action)
            rest = jnp.where(end | cut, 0.0, alive)
            return (after, state, rest), (obs, alive, action, jnp.where(alive > 0, r, 0.0))

        begun = jax.vmap(env.reset)(jax.random.split(key_of(key, "reset", i), batch))
        _, (obs, alive, action, r) = jax.lax.scan(step, (*begun, jnp.ones(batch)), jnp.arange(T))

        def loss(w: Any) -> jax.Array:
            gain = log_prob(net.apply(w, obs), action) * (weights @ r) * alive
            return -gain.mean(1).sum()

        change, m = opt.update(jax.grad(loss)(w), m, w)
        return (jax.tree.map(jnp.add, w, change), m), r.sum(0).mean()

    def run(key: jax.Array) -> tuple:
        w = net.init(key_of(key, "start"))
        one = functools.partial(iterate, key)
        (w, _), scores = jax.lax.scan(one, (w, opt.init(w)), jnp.arange(iterations))
        return w, scores

    return run


def compiled(n: int | None, m: int, width: int, batch: int) -> Compiled:
    """The equations with a window of `n` rewards, learned from in tiles of m steps."""
    graph = reinforce(screen(width), network(width), descent(0.01), n=n, gamma=GAMMA, batch=batch)
    return compile(graph, {"tile": lambda graph: tile(graph, "t", m)} if m > 1 else {})


def entrants(
    n: int | None, T: int, batch: int, width: int, tiles: tuple[int, ...] = ()
) -> dict[str, Any]:
    """By hand, and ours, compiled. Tiles are of one step, of `TILE`, and of the whole episode."""
    net, key, bounds = network(width), jax.random.key(0), {"I": ITERATIONS, "T": T}
    hand = by_hand(screen(width), net, descent(0.01), n, ITERATIONS, T, batch)
    found = {"by hand": jax.jit(hand).lower(key).compile()}
    for m in tiles or ((T,) if n is None else (1, TILE, T)):
        program = compiled(n, m, width, batch).xla(bounds)
        ours = jax.jit(lambda key, program=program: program(key=key))
        found[f"ours, m = {m}"] = ours.lower(key).compile()
    return found


def seconds(form: Callable, *arguments: Any) -> float:
    """Of one call, from its beginning until the result is there."""
    began = time.perf_counter()
    jax.block_until_ready(form(*arguments))
    return time.perf_counter() - began


def race(forms: dict[str, Callable], rounds: int, *arguments: Any) -> dict[str, float]:
    """The least milliseconds of each, all taking turns."""
    best = dict.fromkeys(forms, float("inf"))
    for _ in range(rounds):
        for name, form in forms.items():
            best[name] = min(best[name], seconds(form, *arguments))
    return {name: float(f"{1e3 * each:.4g}") for name, each in best.items()}


def reserved(program: Any) -> int:
    """The bytes that XLA sets aside for a run, beside arguments and results."""
    return program.memory_analysis().temp_size_in_bytes


def measure_time(n: int | None, T: int, batch: int, width: int, quick: bool = False) -> Row:
    """Figure 9: a run of all forms in turns, and that all of them end at the same parameters."""
    forms, key = entrants(n, T, batch, width), jax.random.key(0)
    wanted, *_ = forms["by hand"](key)
    for name, form in forms.items():
        for a, b in zip(jax.tree.leaves(form(key)[0]), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5, err_msg=name)
    ms, bytes_ = (
        race(forms, 2 if quick else ROUNDS, key),
        {k: reserved(f) for k, f in forms.items()},
    )
    return {"n": n, "T": T, "batch": batch, "width": width, "ms": ms, "bytes": bytes_}


def measure_bytes(
    n: int | None, width: int, T: int = 128, batch: int = 32, tiles: tuple[int, ...] = ()
) -> Row:
    """Figure 10: what XLA reserves; and, with observations swapped, what device and host hold."""
    found = {name: reserved(form) for name, form in entrants(n, T, batch, width, tiles).items()}
    size = 4 * batch * (width + 1)  # an observation of every environment, and whether it counts
    swapped = compile(compiled(n, 1, width, batch).graph, swap=[SEEN]).check(I=1, T=T)
    swap = {"device": size * swapped.device[SEEN], "host": size * swapped.host[SEEN]}
    return {"n": n, "T": T, "batch": batch, "width": width, "bytes": found, "swapped": swap}


def measure_live(n: int | None, T: int = 128, batch: int = 4, width: int = 256) -> Row:
    """Figure 11: bytes of observations after each operation of an episode, and which one it was."""
    done = compiled(n, 1, width, batch).interpret({"I": 1, "T": T}, key=jax.random.key(0))
    runs = [k for k, event in enumerate(done.account.events) if event[0] == "run"]
    names = [done.account.events[k][1] for k in runs]
    line = done.account.timeline(SEEN)[runs]
    kept = [k for k, name in enumerate(names) if name in ("act", "gradient")]
    row: Row = {"n": n, "T": T, "batch": batch, "width": width, "live": line[kept].tolist()}
    row["learning"] = "".join("1" if names[k] == "gradient" else "0" for k in kept)
    return row | {"peak": done.account.peak(SEEN), "all": done.account.peak()}


STEPS: dict[str, tuple[Callable, bool]] = {
    "discounted return": (lambda g, r, end: r + GAMMA * jnp.where(end, 0.0, g), True),
    "moving average": (lambda m, z, end: 0.9 * m + 0.1 * z, False),
    "LRU": (lambda h, z, begin: 0.95 * jnp.where(begin, 0.0, h) + z, False),
    "queue": (lambda w, z, _: jnp.maximum(w + z, 0.0), False),
}
"""What a loop does with its state, and whether it runs backward."""


def measure_lift(name: str, T: int, width: int = 64, quick: bool = False) -> Row:
    """A recurrence of `width` numbers as `lax.scan`, and lifted, by three methods of scanning."""
    step, reverse = STEPS[name]
    keys, x0 = jax.random.split(jax.random.key(0)), jnp.zeros(width)
    inputs = (
        jax.random.normal(keys[0], (T, width)),
        jax.random.bernoulli(keys[1], 0.02, (T, width)),
    )

    def loop(*inputs: jax.Array) -> jax.Array:
        turn = lambda x, z: (step(x, *z),) * 2  # noqa: E731
        return jax.lax.scan(turn, x0, inputs, reverse=reverse)[1]

    forms: dict[str, Callable] = {"lax.scan": jax.jit(loop)}
    for method in ("sequential", "associative", "chunked"):
        lifted = functools.partial(lift, step, x0, reverse=reverse, method=method)
        forms[method] = jax.jit(lambda *z, lifted=lifted: lifted(z))
    wanted = forms["lax.scan"](*inputs)
    for method, form in forms.items():
        np.testing.assert_allclose(form(*inputs), wanted, rtol=1e-3, atol=1e-3, err_msg=method)
    return {"step": name, "T": T, "width": width, "ms": race(forms, 2 if quick else 60, *inputs)}


def cells(quick: bool) -> dict[str, Callable[[], Row]]:
    """Every row, by name, in the order in which they are measured."""
    if quick:
        small = {"T": 8, "batch": 2, "width": 8}
        return {
            "time, n = 8, small": functools.partial(measure_time, N, **small, quick=True),
            "bytes, n = 8, small": functools.partial(measure_bytes, N, 8, T=8, batch=2),
            "live, n = 8, small": functools.partial(measure_live, N, T=8, batch=2, width=8),
            "lift, queue, small": functools.partial(measure_lift, "queue", 32, 4, quick=True),
        }
    sizes = [DEFAULT] + [DEFAULT | {name: x} for name, xs in VARIED.items() for x in xs]
    found: dict[str, Callable[[], Row]] = {}
    for n in (None, N):
        for size in sizes:
            where = ", ".join(f"{name} = {x}" for name, x in size.items())
            found[f"time, n = {n}, {where}"] = functools.partial(measure_time, n, **size)
        for width in SIZES:
            found[f"bytes, n = {n}, width = {width}"] = functools.partial(measure_bytes, n, width)
    for n in WINDOWS:
        found[f"live, n = {n}"] = functools.partial(measure_live, n)
    for name in STEPS:
        for T in LENGTHS:
            found[f"lift, {name}, T = {T}"] = functools.partial(measure_lift, name, T)
    return found


def run(out: pathlib.Path, minutes: float, quick: bool) -> Iterator[str]:
    """Measure every row that `out/graphs.jsonl` lacks, while there is time for another."""
    path, began, longest = out / "graphs.jsonl", time.monotonic(), 0.0
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    done = {row["cell"] for row in map(json.loads, filter(None, lines))}
    wanted = cells(quick)
    waiting = [name for name in wanted if name not in done]
    while waiting and time.monotonic() + longest <= began + 60 * minutes:
        started, load = time.monotonic(), os.getloadavg()[0]
        name = waiting.pop(0)
        row = {"cell": name, "kind": name.partition(",")[0], **wanted[name]()}
        append(path, {**row, "seeds": [0], "load": round(load, 2), "quick": quick})
        longest = max(longest, time.monotonic() - started)
        yield f"{name}: {_words(row)}"
    yield f"{len(waiting)} of {len(wanted)} rows remain."


def _words(row: Row) -> str:
    """A row in a line of progress."""
    what = row.get("ms") or row.get("bytes") or {"peak": row.get("peak", 0)}
    first, *rest = what.items()
    ratios = ", ".join(f"{name} {value / first[1]:.2f}" for name, value in rest)
    return f"{first[0]} {first[1]:g}" + (f"; as a ratio to it: {ratios}" if rest else "")
