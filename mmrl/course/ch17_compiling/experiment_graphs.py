"""Comparison of compiled recurrence equations with hand-written programs (Figures 9 to 11).

The hand-written program acts in a `jax.lax.scan` and then takes `jax.grad` of the loss of the full
batch. Both programs use the same random keys and compute the same results. Programs are timed in
alternation. Memory is the bytes that XLA reserves, or that are live in the interpreter.

Each row has a kind. "time" (Figure 9) varies T, batch and width one at a time, and "ppo" also
varies hidden units and depth. "interpreter" also runs the interpreter. "bytes" and "ppo_bytes"
(Figure 10) vary the size of an observation up to 3 × 256 × 256; beyond `RUN` entries, the programs
are only compiled. "swap" keeps observations on the host. "live" (Figure 11a) records the bytes of
observations after each event, and "window" (Figure 11b) varies n and T. "lift" times a recurrence
as a loop and as a scan, and "decoder" generates tokens. "chosen" uses the passes that `compile`
chooses. "residuals" compares stored residuals with recomputed residuals. "epochs" varies the epochs
of PPO, to separate their time from the rest, and "tiles" varies the steps in a tile of PPO.
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

from mmrl.course.ch17_compiling.by_hand import GAMMA
from mmrl.course.ch17_compiling.rivals import (
    EPOCHS,
    ITERATIONS,
    TILE,
    agree,
    choices,
    decoders,
    entrants,
    ppos,
    program_of,
    race,
    residuals,
    size_of,
)
from mmrl.course.experiments.grid import Grid, Row, one_by_one
from mmrl.pdg.passes import lift
from mmrl.pdg.plan.account import HOST
from mmrl.pdg.run import compile
from mmrl.pdg.run.interpreter import Interpreter

N, ROUNDS = 8, 60
DEFAULT = {"T": 128, "batch": 32, "width": 64}
VARIATIONS = {"T": (32, 64, 256), "batch": (8, 128), "width": (16, 256)}
PPO = DEFAULT | {"hidden": 16, "depth": 1}
VARIED_PPO = {"T": (32, 256), "batch": (8, 128), "width": (1024,), "hidden": (64,), "depth": (2, 4)}
SIZES = (16, 64, 256, 1024, 4096, 12288, 196608)  # entries of an observation, up to 3 × 256 × 256
RUN = 12288  # maximum entries of an observation (3 × 64 × 64) for which programs run
GENERATIONS = ((None, 256), (16, 256), (16, 1024), (64, 1024))  # (window, T) of a decoder
PPO_TILES = (1, 4, 8, 16, 32, 64, 128)
PROGRAMS = ("Monte-Carlo", "8-step", "A2C", "recurrent", "PPO")  # names for `rivals.equations`
WINDOWS = (1, 4, 8, 16, 32, None)
LENGTHS = (256, 1024, 4096, 16384)

OBS = ("seen", 0)


def measure_time(
    n: int | None,
    T: int,
    batch: int,
    width: int,
    tiles: tuple[int, ...] = (),
    quick: bool = False,
) -> Row:
    """Measure time and reserved bytes of REINFORCE, compiled and hand-written.  Figure 9."""
    forms, key = entrants(n, T, batch, width, tiles), jax.random.key(0)
    agree(forms, key)
    ms = race(forms, 2 if quick else ROUNDS, key)
    bytes_of = {name: size_of(form) for name, form in forms.items()}
    return {"n": n, "T": T, "batch": batch, "width": width, "ms": ms, "bytes": bytes_of}


def measure_interpreter(
    n: int | None,
    T: int = 64,
    batch: int = 8,
    width: int = 256,
    tiles: tuple[int, ...] = (),
    quick: bool = False,
) -> Row:
    """Measure time and bytes of the hand-written program, the XLA program and the interpreter."""
    key, tiles = jax.random.key(0), tiles or ((T,) if n is None else (1, TILE, T))
    forms: dict[str, Any] = dict(entrants(n, T, batch, width, tiles))
    bytes_of = {name: size_of(form) for name, form in forms.items()}
    for m in tiles:
        program = Interpreter(program_of(n, m, width), {"I": ITERATIONS, "T": T, "B": batch})
        bytes_of[f"interpreted, m = {m}"] = program(key=key).account.peak()
        forms[f"interpreted, m = {m}"] = lambda key, program=program: program(key=key).results
    agree(forms, key)
    ms = race(forms, 2 if quick else 6, key)
    return {"n": n, "T": T, "batch": batch, "width": width, "ms": ms, "bytes": bytes_of}


def measure_bytes(
    n: int | None, width: int, T: int = 128, batch: int = 32, tiles: tuple[int, ...] = ()
) -> Row:
    """Measure the bytes that XLA reserves, and the bytes of swapped observations.  Figure 10."""
    forms = entrants(n, T, batch, width, tiles)
    result = {name: size_of(form) for name, form in forms.items()}
    if width <= RUN:
        agree(forms, jax.random.key(0))
    size = 4 * batch * (width + 1)  # bytes of one observation and one flag per environment
    peaks = compile(program_of(n, 1, width).graph, {}, swap=[OBS]).check(I=1, T=T, B=batch)
    swap = {"device": size * peaks.device[OBS], "host": size * peaks.host[OBS]}
    return {"n": n, "T": T, "batch": batch, "width": width, "bytes": result, "swapped": swap}


def measure_live(n: int | None, T: int = 128, batch: int = 4, width: int = 256) -> Row:
    """Record the live bytes of observations after each step of acting or learning.  Figure 11a."""
    results = program_of(n, 1, width).interpret({"I": 1, "T": T, "B": batch}, key=jax.random.key(0))
    runs = [k for k, event in enumerate(results.account.events) if event[0] == "run"]
    names = [results.account.events[k][1] for k in runs]
    line = results.account.timeline(OBS)[runs]
    columns = [k for k, name in enumerate(names) if name in ("act", "grad_params")]
    row: Row = {"n": n, "T": T, "batch": batch, "width": width, "live": line[columns].tolist()}
    row["learning"] = [int(names[k] == "grad_params") for k in columns]
    return row | {"peak": results.account.peak(OBS), "all": results.account.peak()}


def measure_ppo(quick: bool = False, timed: bool = True, tiles: Any = (), **sizes: int) -> Row:
    """Measure time and reserved bytes of PPO, compiled and hand-written.  Figures 9 and 10.

    `sizes` and `tiles` are those of `ppos`. `cpu_ms` is CPU time, summed over cores.
    """
    forms, key, rounds = ppos(tiles=tiles, **sizes), jax.random.key(0), 2 if quick else ROUNDS
    bytes_of = {name: size_of(form) for name, form in forms.items()}
    if sizes["width"] <= RUN:
        agree(forms, key)
    if not timed:
        return {**sizes, "bytes": bytes_of}
    ms = race(forms, rounds, key)
    cpu = race(forms, rounds, key, clock=time.process_time)
    return {"epochs": EPOCHS, **sizes, "ms": ms, "cpu_ms": cpu, "bytes": bytes_of}


def measure_forms(
    build: Callable, program: str, T: int, batch: int, width: int, quick: bool = False
) -> Row:
    """Measure time and bytes of the forms of a program that `choices` or `residuals` build."""
    forms, arguments = build(program, T, batch, width)
    agree(forms, *arguments)
    ms = race(forms, 2 if quick else ROUNDS, *arguments)
    bytes_of = {name: size_of(form) for name, form in forms.items()}
    sizes = {"T": T, "batch": batch, "width": width}
    return {"program": program, **sizes, "ms": ms, "bytes": bytes_of}


def measure_swap(n: int | None, T: int = 32, batch: int = 8, width: int = 3072) -> Row:
    """Measure peak bytes of observations in the interpreter, with and without swapping.

    Swapped observations are on the host between their uses.
    """
    key, bounds = jax.random.key(0), {"I": ITERATIONS, "T": T, "B": batch}
    plain = program_of(n, 1, width)
    with_swap = compile(plain.graph, {}, swap=[OBS])
    results = {
        name: Interpreter(each, bounds)(key=key)
        for name, each in (("kept", plain), ("swapped", with_swap))
    }
    agree({name: lambda key, each=each: each.results for name, each in results.items()}, key)
    bytes_of = {name: each.account.peak(OBS) for name, each in results.items()}
    bytes_of["on the host"] = results["swapped"].account.peak(OBS, HOST)
    return {"n": n, "T": T, "batch": batch, "width": width, "bytes": bytes_of}


def measure_window(
    n: int | None, T: int, batch: int = 32, width: int = 256, quick: bool = False
) -> Row:
    """Measure time and bytes of learning n steps behind acting.  Figure 11b."""
    tiles = (1,) if n else (T,)
    row = measure_time(n, T, batch, width, tiles, quick)
    return row | {"slots": program_of(n, tiles[0], width).check(I=1, T=T, B=batch).device[OBS]}


def measure_decoder(window: int | None, T: int, quick: bool = False, **more: int) -> Row:
    """Measure time and bytes of compiled decoders, and of hand-written ones with or without a ring.

    All programs return the same tokens, and the same log-probabilities up to rounding.
    """
    sizes = {"T": T, "batch": 8, "width": 64, "layers": 2, **more}
    params, forms = decoders(window, **sizes)
    key = jax.random.key(0)
    tokens, logp = forms["by hand"](params, key)
    for name, form in forms.items():
        others = form(params, key)
        np.testing.assert_array_equal(others[0], tokens, err_msg=name)
        np.testing.assert_allclose(others[1], logp, rtol=0, atol=1e-4, err_msg=name)
    ms = race(forms, 2 if quick else ROUNDS, params, key)
    bytes_of = {name: size_of(form) for name, form in forms.items()}
    return {"window": window, **sizes, "ms": ms, "bytes": bytes_of}


STEPS: dict[str, tuple[Callable, bool]] = {
    "discounted return": (lambda g, r, end: r + GAMMA * jnp.where(end, 0.0, g), True),
    "moving average": (lambda m, z, end: 0.9 * m + 0.1 * z, False),
    "LRU": (lambda h, z, begin: 0.95 * jnp.where(begin, 0.0, h) + z, False),
    "queue": (lambda w, z, _: jnp.maximum(w + z, 0.0), False),
}
"""Update of a loop's state, and whether the loop runs backward."""


def measure_lift(name: str, T: int, width: int = 64, quick: bool = False) -> Row:
    """Time a recurrence of width `width` as a `lax.scan`, and lifted with each method."""
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
        call = functools.partial(lift, step, x0, reverse=reverse, method=method)
        forms[method] = jax.jit(lambda *z, call=call: call(z))
    expected = forms["lax.scan"](*inputs)
    for method, form in forms.items():
        np.testing.assert_allclose(form(*inputs), expected, rtol=1e-3, atol=1e-3, err_msg=method)
    return {"step": name, "T": T, "width": width, "ms": race(forms, 2 if quick else 60, *inputs)}


@dataclasses.dataclass(frozen=True)
class Cell:
    """Name of a row, and the function that measures it."""

    name: str
    row: Callable[[], Row]


def cells(quick: bool = False) -> list[Cell]:
    """Return all cells in the order in which they are measured."""
    if quick:
        # The first three rows share compiled programs. Windows must end within an episode.
        small = {"T": 6, "batch": 2, "width": 8}
        with_tiles = small | {"tiles": (4,)}
        return [
            _cell("time, n = 2, small", measure_time, 2, **with_tiles, quick=True),
            _cell("interpreter, n = 2, small", measure_interpreter, 2, **with_tiles, quick=True),
            _cell("bytes, n = 2, small", measure_bytes, 2, **with_tiles),
            _cell("live, n = 2, small", measure_live, 2, **small),
            _cell("lift, queue, small", measure_lift, "queue", 32, 4, quick=True),
            _cell("ppo, small", measure_ppo, **small, hidden=4, depth=2, quick=True),
            _cell("ppo_bytes, small", measure_ppo, timed=False, **small, hidden=4, depth=2),
            _cell("swap, n = 2, small", measure_swap, 2, **small),
            _cell("residuals, PPO, small", measure_forms, residuals, "PPO", **small, quick=True),
            _cell("decoder, window = 3, small", measure_decoder, 3, 8, True, batch=2, width=4),
            _cell("chosen, A2C, small", measure_forms, choices, "A2C", **small, quick=True),
        ]
    sizes = [DEFAULT] + [DEFAULT | {name: x} for name, xs in VARIATIONS.items() for x in xs]
    result = []
    for n in (None, N):
        for size in sizes:
            where = ", ".join(f"{name} = {x}" for name, x in size.items())
            result.append(_cell(f"time, n = {n}, {where}", measure_time, n, **size))
        result.append(_cell(f"interpreter, n = {n}", measure_interpreter, n))
        result += [_cell(f"bytes, n = {n}, width = {x}", measure_bytes, n, x) for x in SIZES]
    small = {"timed": False, **PPO}
    result += [_cell(f"ppo_bytes, width = {x}", measure_ppo, **small | {"width": x}) for x in SIZES]
    for size in [PPO] + [PPO | {name: x} for name, xs in VARIED_PPO.items() for x in xs]:
        where = ", ".join(f"{name} = {x}" for name, x in size.items())
        result.append(_cell(f"ppo, {where}", measure_ppo, **size))
    result += [_cell(f"live, n = {n}", measure_live, n) for n in WINDOWS]
    result += [_cell(f"swap, n = {n}", measure_swap, n) for n in (None, N)]
    for n, T in itertools.product((None, 4, 32), (64, 256)):
        result.append(_cell(f"window, n = {n}, T = {T}", measure_window, n, T))
    for w, T in GENERATIONS:
        result.append(_cell(f"decoder, window = {w}, T = {T}", measure_decoder, w, T))
    result += [
        _cell(f"chosen, {x}", measure_forms, choices, x, **DEFAULT) for x in (*PROGRAMS, "decoder")
    ]
    for name, size in itertools.product(PROGRAMS, sizes[1:]):
        where = ", ".join(f"{key} = {x}" for key, x in size.items())
        result.append(_cell(f"chosen, {name}, {where}", measure_forms, choices, name, **size))
    result += [_cell(f"residuals, {x}", measure_forms, residuals, x, **DEFAULT) for x in PROGRAMS]
    result += [_cell(f"epochs, K = {k}", measure_ppo, **PPO, epochs=k) for k in (1, 8)]
    result.append(_cell("tiles, PPO", measure_ppo, tiles=PPO_TILES, **PPO))
    lifts = itertools.product(STEPS, LENGTHS)
    return result + [_cell(f"lift, {step}, T = {T}", measure_lift, step, T) for step, T in lifts]


def _cell(name: str, function: Callable[..., Row], *arguments: Any, **options: Any) -> Cell:
    return Cell(name, functools.partial(function, *arguments, **options))


def measure(cell: Cell, quick: bool = False, row: Row | None = None) -> Row:
    """Measure a cell, and add its kind and the load of the machine to the row."""
    load = round(os.getloadavg()[0], 2)
    about = {"cell": cell.name, "kind": cell.name.partition(",")[0], **cell.row()}
    return {**about, "seeds": [0], "load": load, "quick": quick}


def summarize(row: Row) -> str:
    """Summarize a row: the first value, and the others relative to it."""
    first, *rest = (row.get("ms") or row.get("bytes") or {"peak": row.get("peak", 0)}).items()
    ratios = ", ".join(f"{name} {value / first[1]:.2f}" for name, value in rest)
    return f"{first[0]} {first[1]:g}" + (f"; relative to it: {ratios}" if rest else "")


GRID = Grid(
    "graphs",
    cells(),
    one_by_one(measure),
    summarize,
    small=cells(quick=True),
    about="Compiled recurrence equations compared with hand-written programs (Figures 9 to 11).",
    decides="how close compiled recurrences come to hand-written programs",
    turn=5,
)
