"""Pairs of compiled equations and hand-written programs that compute the same results.

Functions return programs by name, with "by hand" first. Times are comparable only if all programs
train the same parameters, so call `agree` before `race`.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mmrl.course.ch17_compiling import by_hand
from mmrl.course.ch17_compiling.by_hand import (
    GAMMA,
    HIDDEN,
    critic,
    descent,
    network,
    policy,
    remember,
    screen,
)
from mmrl.course.programs import ActorCritic, Memory, a2c, decoder, ppo, reinforce
from mmrl.course.programs import remember as recurrent
from mmrl.course.programs.decoder import initial
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.passes import fuse, lift_loops, recompute, tile, vectorize
from mmrl.pdg.run import Compiled, compile

TILE, ITERATIONS, EPOCHS = 16, 2, 4


@functools.lru_cache(4)
def program_of(n: int | None, m: int, width: int) -> Compiled:
    """Compile REINFORCE with a window of `n` rewards, which learns in tiles of m steps.

    If `n` is None, the windows extend to the end of the episode, and lifting replaces them with one
    backward loop.
    """
    graph = reinforce(screen(width), policy(width), descent(0.01), n=n, gamma=GAMMA)
    return compile(graph, together(m))


def together(m: int) -> dict[str, Callable]:
    """Return passes that vectorize over environments, lift loops, and tile by m steps."""
    passes: dict[str, Callable] = {"batch": lambda graph: vectorize(graph, "b")}
    passes["lift"] = lambda graph: lift_loops(graph, "t")
    if m > 1:
        passes["tile"] = lambda graph: tile(graph, "t", m)
        # Fuse the loops of each epoch into one.
        passes["fuse"] = lambda graph: fuse(graph, _tile_passes(graph, m))
    return passes


def _tile_passes(graph: Graph, m: int) -> list[str]:
    return [name for name, op in graph.ops.items() if op.params.get("block") == m]


@functools.lru_cache(1)
def entrants(
    n: int | None, T: int, batch: int, width: int, tiles: tuple[int, ...] = ()
) -> dict[str, Any]:
    """Return the hand-written program, and ours with tiles of each size, compiled.

    `tiles` contains the sizes. The default is 1, `TILE` and T steps, or only T for Monte-Carlo
    returns.
    """
    net, key, bounds = policy(width), jax.random.key(0), {"I": ITERATIONS, "T": T, "B": batch}
    hand = by_hand.reinforce(screen(width), net, descent(0.01), n, ITERATIONS, T, batch)
    programs = {"by hand": jax.jit(hand).lower(key).compile()}
    for m in tiles or ((T,) if n is None else (1, TILE, T)):
        program = program_of(n, m, width).xla(bounds)
        ours = jax.jit(lambda key, program=program: program(key=key))
        programs[f"ours, m = {m}"] = ours.lower(key).compile()
    return programs


def ppos(
    T: int,
    batch: int,
    width: int,
    hidden: int,
    depth: int,
    epochs: int = EPOCHS,
    tiles: tuple[int, ...] = (),
) -> dict[str, Any]:
    """Return hand-written PPO, and compiled PPO with tiles of each size.

    The default sizes are `TILE` (whose name is only "ours"), 1 and T.
    """
    env, net, opt = screen(width), critic(width, hidden, depth), descent(0.01)
    key, bounds = jax.random.key(0), {"I": ITERATIONS, "K": epochs, "T": T, "B": batch}
    hand = by_hand.ppo(env, net, opt, ITERATIONS, epochs, T, batch, ActorCritic())
    programs = {"by hand": jax.jit(hand).lower(key).compile()}
    usual = {"ours": TILE, "ours, m = 1": 1, f"ours, m = {T}": T}
    for name, m in ({f"ours, m = {m}": m for m in tiles} or usual).items():
        program = compile(ppo(env, net, opt), together(m)).xla(bounds)
        ours = jax.jit(lambda key, program=program: program(key=key))
        programs[name] = ours.lower(key).compile()
    return programs


def equations(program: str, width: int) -> Graph:
    """Return the graph of "A2C", "PPO", "recurrent", "8-step" or "Monte-Carlo" REINFORCE."""
    env, opt = screen(width), descent(0.01)
    if program in ("A2C", "PPO"):
        return (ppo if program == "PPO" else a2c)(env, critic(width), opt)
    if program == "recurrent":
        memory = Memory(network(width).init, lambda: jnp.zeros(HIDDEN), remember)
        return recurrent(env, memory, opt)
    return reinforce(env, policy(width), opt, n=8 if program == "8-step" else None, gamma=GAMMA)


def residuals(program: str, T: int, batch: int, width: int) -> tuple[dict[str, Any], tuple]:
    """Return a program of `equations` with stored and with recomputed residuals, and its arguments.

    Both forms use one tile per episode, except 8-step REINFORCE, which uses tiles of `TILE` steps.
    """
    graph, m = equations(program, width), min(T, TILE) if program == "8-step" else T
    passes: dict[str, dict] = {"kept": {}, "recomputed": {"recompute": recompute}}
    forms = {name: _form(graph, {**x, **together(m)}, T, batch) for name, x in passes.items()}
    return forms, (jax.random.key(0),)


def _form(graph: Graph, passes: dict[str, Callable] | None, T: int, batch: int) -> Any:
    """Return a graph as a compiled function of a random key. None: `compile` chooses the passes."""
    bounds = {"I": ITERATIONS, "K": EPOCHS, "T": T, "B": batch}
    program = compile(graph) if passes is None else compile(graph, passes)
    run = program.xla({name: bounds[name] for name in graph.bounds})
    return jax.jit(lambda key: run(key=key)).lower(jax.random.key(0)).compile()


def decoders(
    window: int | None, T: int, batch: int, width: int, layers: int
) -> tuple[Any, dict[str, Any]]:
    """Return parameters and decoders: hand-written, hand-written with a ring buffer, and ours."""
    params = initial(jax.random.key(1), vocabulary=64, width=width, layers=layers)
    compiled = compile(
        decoder(params, window=window), {"batch": lambda graph: vectorize(graph, "b")}
    )
    program = compiled.xla(B=batch, T=T)
    makers: dict[str, Callable] = {"by hand": by_hand.decoder(window, T, batch, ring=False)}
    if window:
        makers["by hand, ring"] = by_hand.decoder(window, T, batch)
    makers["ours"] = lambda params, key: program(params=params, key=key)
    arguments = params, jax.random.key(0)
    return params, {
        name: jax.jit(form).lower(*arguments).compile() for name, form in makers.items()
    }


def choices(program: str, T: int, batch: int, width: int) -> tuple[dict[str, Any], tuple]:
    """Return the hand-written program, ours with fixed passes, and ours with chosen passes.

    `program` is "decoder", or a name of `equations`; A2C and the recurrent program have no
    hand-written form. `together` returns the fixed passes, with tiles of one step, of `TILE`
    steps, and of the complete episode. A decoder has no tiles. `compile` chooses the passes of the
    form "chosen". The second result is the arguments of all forms.
    """
    if program == "decoder":
        params, forms = decoders(None, T, batch, width, layers=2)
        choice, arguments = (
            compile(decoder(params), T=T, B=batch).xla(),
            (params, jax.random.key(0)),
        )
        run = jax.jit(lambda params, key: choice(params=params, key=key))
        return {**forms, "chosen": run.lower(*arguments).compile()}, arguments
    graph, tiles = equations(program, width), (1, TILE, T)
    if program == "PPO":
        forms = ppos(T, batch, width, hidden=HIDDEN, depth=1)
    elif program in ("A2C", "recurrent"):
        forms = {f"ours, m = {m}": _form(graph, together(m), T, batch) for m in tiles}
    else:
        forms = dict(entrants(8 if program == "8-step" else None, T, batch, width, tiles))
    return {**forms, "chosen": _form(graph, None, T, batch)}, (jax.random.key(0),)


def seconds(
    form: Callable, *arguments: Any, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the seconds from a call until its result is ready."""
    start_time = clock()
    jax.block_until_ready(form(*arguments))
    return clock() - start_time


def race(
    forms: dict[str, Callable],
    rounds: int,
    *arguments: Any,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Time all programs in alternating rounds, and return the minimum milliseconds of each.

    With `clock=time.process_time`, these are milliseconds of CPU time, summed over threads.
    """
    best = dict.fromkeys(forms, float("inf"))
    for _ in range(rounds):
        for name, form in forms.items():
            best[name] = min(best[name], seconds(form, *arguments, clock=clock))
    return {name: float(f"{1e3 * each:.4g}") for name, each in best.items()}


def size_of(program: Any) -> int:
    """Return the bytes that XLA reserves for a run, without arguments and results."""
    return program.memory_analysis().temp_size_in_bytes


def agree(forms: dict[str, Callable], *arguments: Any) -> None:
    """Raise `AssertionError` unless the first result of all programs is equal, up to rounding."""
    first, *others = forms
    expected, *_ = forms[first](*arguments)
    for name in others:
        for a, b in zip(
            jax.tree.leaves(forms[name](*arguments)[0]), jax.tree.leaves(expected), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5, err_msg=f"{name}, {first}")
