"""Recurrence equations, compiled, against the same by hand in JAX: Figures 9, 10 and 11 in small.

The paper compares its runtime with other systems, on one GPU. Here the rival is what one writes in
JAX today: a scan that acts, then `jax.grad` of the loss of the whole batch, with the keys of the
same points, so that both compute the same numbers. Ratios come from runs that take turns; memory is
what XLA reserves, and what the interpreter counts byte by byte.

Five kinds of rows. "time" (Figure 9) varies T, batch and width one at a time; "interpreter" has
both executors; "bytes" (Figure 10) varies the size of an observation, and runs nothing; "live"
(Figure 11) has the bytes of observations after each event of an episode; "lift" times a recurrence
as a loop and as a scan.
"""

import dataclasses
import functools
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.course.experiments import by_hand
from mmrl.course.experiments.by_hand import GAMMA, descent, network, screen
from mmrl.course.experiments.grid import Grid, Row, alone
from mmrl.pdg.passes import lift, lift_loops, tile, vectorize
from mmrl.pdg.programs import reinforce
from mmrl.pdg.run import Compiled, compile
from mmrl.pdg.run.interpreter import Interpreter

N, TILE, ITERATIONS, ROUNDS = 8, 16, 2, 30
DEFAULT = {"T": 128, "batch": 32, "width": 64}
VARIED = {"T": (32, 64, 256), "batch": (8, 128), "width": (16, 256)}
SIZES = (16, 64, 256, 1024, 4096)  # numbers in an observation
WINDOWS = (1, 4, 8, 16, 32, None)
LENGTHS = (256, 1024, 4096, 16384)

SEEN = ("seen", 0)


@functools.lru_cache(4)
def compiled(n: int | None, m: int, width: int) -> Compiled:
    """The equations with a window of `n` rewards, learned from in tiles of m steps.

    Returns to the end of the episode are lifted: a loop backward, in place of all windows.
    """
    graph = reinforce(screen(width), network(width), descent(0.01), n=n, gamma=GAMMA)
    passes: dict[str, Callable] = {"batch": lambda graph: vectorize(graph, "b")}
    passes["lift"] = lambda graph: lift_loops(graph, "t")
    if m > 1:
        passes["tile"] = lambda graph: tile(graph, "t", m)
    return compile(graph, passes)


@functools.lru_cache(1)
def entrants(
    n: int | None, T: int, batch: int, width: int, tiles: tuple[int, ...] = ()
) -> dict[str, Any]:
    """Compiled programs, by hand and ours. Tiles are of one step, of `TILE`, and of the episode."""
    net, key, bounds = network(width), jax.random.key(0), {"I": ITERATIONS, "T": T, "B": batch}
    hand = by_hand.reinforce(screen(width), net, descent(0.01), n, ITERATIONS, T, batch)
    found = {"by hand": jax.jit(hand).lower(key).compile()}
    for m in tiles or ((T,) if n is None else (1, TILE, T)):
        program = compiled(n, m, width).xla(bounds)
        ours = jax.jit(lambda key, program=program: program(key=key))
        found[f"ours, m = {m}"] = ours.lower(key).compile()
    return found


def seconds(form: Callable, *arguments: Any) -> float:
    """The seconds of one call, from its beginning until the result is there."""
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


def measure_time(
    n: int | None,
    T: int,
    batch: int,
    width: int,
    tiles: tuple[int, ...] = (),
    quick: bool = False,
) -> Row:
    """Figure 9: a run of all forms in turns, and that all of them end at the same parameters."""
    forms, key = entrants(n, T, batch, width, tiles), jax.random.key(0)
    _agree(forms, key)
    ms = race(forms, 2 if quick else ROUNDS, key)
    taken = {name: reserved(form) for name, form in forms.items()}
    return {"n": n, "T": T, "batch": batch, "width": width, "ms": ms, "bytes": taken}


def _agree(forms: dict[str, Callable], key: jax.Array) -> None:
    """All forms train the same parameters, or this is an error."""
    wanted, *_ = forms["by hand"](key)
    for name, form in forms.items():
        for a, b in zip(jax.tree.leaves(form(key)[0]), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5, err_msg=name)


def measure_interpreter(
    n: int | None,
    T: int = 64,
    batch: int = 8,
    width: int = 256,
    tiles: tuple[int, ...] = (),
    quick: bool = False,
) -> Row:
    """Time, and the peak of all bytes: by hand, as one XLA program, and operation by operation."""
    key, tiles = jax.random.key(0), tiles or ((T,) if n is None else (1, TILE, T))
    forms: dict[str, Any] = dict(entrants(n, T, batch, width, tiles))
    taken = {name: reserved(form) for name, form in forms.items()}
    for m in tiles:
        program = Interpreter(compiled(n, m, width), {"I": ITERATIONS, "T": T, "B": batch})
        taken[f"interpreted, m = {m}"] = program(key=key).account.peak()
        forms[f"interpreted, m = {m}"] = lambda key, program=program: program(key=key).results
    _agree(forms, key)
    ms = race(forms, 2 if quick else 6, key)
    return {"n": n, "T": T, "batch": batch, "width": width, "ms": ms, "bytes": taken}


def measure_bytes(
    n: int | None, width: int, T: int = 128, batch: int = 32, tiles: tuple[int, ...] = ()
) -> Row:
    """Figure 10: what XLA reserves; and, with observations swapped, what device and host hold."""
    found = {name: reserved(form) for name, form in entrants(n, T, batch, width, tiles).items()}
    size = 4 * batch * (width + 1)  # an observation of every environment, and whether it counts
    swapped = compile(compiled(n, 1, width).graph, swap=[SEEN]).check(I=1, T=T, B=batch)
    swap = {"device": size * swapped.device[SEEN], "host": size * swapped.host[SEEN]}
    return {"n": n, "T": T, "batch": batch, "width": width, "bytes": found, "swapped": swap}


def measure_live(n: int | None, T: int = 128, batch: int = 4, width: int = 256) -> Row:
    """Figure 11: bytes of observations after each operation of an episode, and which one it was."""
    done = compiled(n, 1, width).interpret({"I": 1, "T": T, "B": batch}, key=jax.random.key(0))
    runs = [k for k, event in enumerate(done.account.events) if event[0] == "run"]
    names = [done.account.events[k][1] for k in runs]
    line = done.account.timeline(SEEN)[runs]
    kept = [k for k, name in enumerate(names) if name in ("act", "grad_params")]
    row: Row = {"n": n, "T": T, "batch": batch, "width": width, "live": line[kept].tolist()}
    row["learning"] = [int(names[k] == "grad_params") for k in kept]
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


@dataclasses.dataclass(frozen=True)
class Cell:
    """A row's name, and what measures it."""

    name: str
    row: Callable[[], Row]


def cells(quick: bool = False) -> list[Cell]:
    """Every row, in the order in which they are measured."""
    if quick:
        # The same forms in three rows, which are compiled once; a window ends within an episode.
        small = {"T": 6, "batch": 2, "width": 8}
        tiled = small | {"tiles": (4,)}
        return [
            _cell("time, n = 2, small", measure_time, 2, **tiled, quick=True),
            _cell("interpreter, n = 2, small", measure_interpreter, 2, **tiled, quick=True),
            _cell("bytes, n = 2, small", measure_bytes, 2, **tiled),
            _cell("live, n = 2, small", measure_live, 2, **small),
            _cell("lift, queue, small", measure_lift, "queue", 32, 4, quick=True),
        ]
    sizes = [DEFAULT] + [DEFAULT | {name: x} for name, xs in VARIED.items() for x in xs]
    found = []
    for n in (None, N):
        for size in sizes:
            where = ", ".join(f"{name} = {x}" for name, x in size.items())
            found.append(_cell(f"time, n = {n}, {where}", measure_time, n, **size))
        found.append(_cell(f"interpreter, n = {n}", measure_interpreter, n))
        found += [_cell(f"bytes, n = {n}, width = {x}", measure_bytes, n, x) for x in SIZES]
    found += [_cell(f"live, n = {n}", measure_live, n) for n in WINDOWS]
    lifts = itertools.product(STEPS, LENGTHS)
    return found + [_cell(f"lift, {step}, T = {T}", measure_lift, step, T) for step, T in lifts]


def _cell(name: str, measured: Callable[..., Row], *arguments: Any, **options: Any) -> Cell:
    return Cell(name, functools.partial(measured, *arguments, **options))


def measure(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    """A row on a cell: its measurements, its kind, and how busy the machine was."""
    load = round(os.getloadavg()[0], 2)
    about = {"cell": cell.name, "kind": cell.name.partition(",")[0], **cell.row()}
    return {**about, "seeds": [0], "load": load, "quick": quick}


def say(row: Row) -> str:
    """A row in a few words: the first number, and the others as ratios to it."""
    what = row.get("ms") or row.get("bytes") or {"peak": row.get("peak", 0)}
    first, *rest = what.items()
    ratios = ", ".join(f"{name} {value / first[1]:.2f}" for name, value in rest)
    return f"{first[0]} {first[1]:g}" + (f"; as a ratio to it: {ratios}" if rest else "")


GRID = Grid("graphs", cells(), alone(measure), say, small=cells(quick=True))
