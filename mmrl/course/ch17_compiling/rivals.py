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

    If `n` is None, the windows extend to the end of the episode, and lifting replaces them by one
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


def ppos(T: int, batch: int, width: int, hidden: int, depth: int) -> dict[str, Any]:
    """Return hand-written PPO, and compiled PPO in tiles of `TILE`, 1 and T steps."""
    env, net, opt = screen(width), critic(width, hidden, depth), descent(0.01)
    key, bounds = jax.random.key(0), {"I": ITERATIONS, "K": EPOCHS, "T": T, "B": batch}
    hand = by_hand.ppo(env, net, opt, ITERATIONS, EPOCHS, T, batch, ActorCritic())
    programs = {"by hand": jax.jit(hand).lower(key).compile()}
    for name, m in {"ours": TILE, "ours, m = 1": 1, f"ours, m = {T}": T}.items():
        program = compile(ppo(env, net, opt), together(m)).xla(bounds)
        ours = jax.jit(lambda key, program=program: program(key=key))
        programs[name] = ours.lower(key).compile()
    return programs


def residuals(program: str, T: int, batch: int, width: int) -> dict[str, Any]:
    """Return two programs, one that stores residuals and one that recomputes them.

    Both use one tile per episode, except 8-step REINFORCE, which uses tiles of `TILE` steps.
    """
    env, opt = screen(width), descent(0.01)
    if program in ("A2C", "PPO"):
        graph = (ppo if program == "PPO" else a2c)(env, critic(width), opt)
    elif program == "recurrent":
        memory = Memory(network(width).init, lambda: jnp.zeros(HIDDEN), remember)
        graph = recurrent(env, memory, opt)
    else:
        graph = reinforce(env, policy(width), opt, n=8 if program == "8-step" else None)
    bounds = {"I": ITERATIONS, "K": EPOCHS, "T": T, "B": batch}
    bounds = {name: bounds[name] for name in graph.bounds}
    forms: dict[str, Any] = {}
    for name, first in (("kept", {}), ("recomputed", {"recompute": recompute})):
        passes = {**first, **together(min(T, TILE) if program == "8-step" else T)}
        run = compile(graph, passes).xla(bounds)
        form = jax.jit(lambda key, run=run: run(key=key))
        forms[name] = form.lower(jax.random.key(0)).compile()
    return forms


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

    `program` is "Monte-Carlo", "8-step", "PPO" or "decoder". The fixed passes are those of
    `together`, with tiles of one step, of `TILE` steps, and of the complete episode. A decoder has
    no tiles. `compile` chooses the passes of the program "chosen". The second result is the
    arguments of all programs.
    """
    key, bounds = jax.random.key(0), {"I": ITERATIONS, "T": T, "B": batch}
    if program == "decoder":
        params, forms = decoders(None, T, batch, width, layers=2)
        choice = compile(decoder(params), T=T, B=batch).xla()
        run = jax.jit(lambda params, key: choice(params=params, key=key))
        return {**forms, "chosen": run.lower(params, key).compile()}, (params, key)
    if program == "PPO":
        forms, bounds = ppos(T, batch, width, hidden=16, depth=1), bounds | {"K": EPOCHS}
        graph = ppo(screen(width), critic(width, 16, 1), descent(0.01))
        whole = compile(graph, together(T)).xla(bounds)
        forms[f"ours, m = {T}"] = jax.jit(lambda key: whole(key=key)).lower(key).compile()
    else:
        n = None if program == "Monte-Carlo" else 8
        forms = dict(entrants(n, T, batch, width, (1, TILE, T)))
        graph = reinforce(screen(width), policy(width), descent(0.01), n=n, gamma=GAMMA)
    choice = compile(graph).xla(bounds)
    return {**forms, "chosen": jax.jit(lambda key: choice(key=key)).lower(key).compile()}, (key,)


def seconds(form: Callable, *arguments: Any) -> float:
    """Return the seconds from a call until its result is ready."""
    began = time.perf_counter()
    jax.block_until_ready(form(*arguments))
    return time.perf_counter() - began


def race(forms: dict[str, Callable], rounds: int, *arguments: Any) -> dict[str, float]:
    """Time all programs in alternating rounds, and return the minimum milliseconds of each."""
    best = dict.fromkeys(forms, float("inf"))
    for _ in range(rounds):
        for name, form in forms.items():
            best[name] = min(best[name], seconds(form, *arguments))
    return {name: float(f"{1e3 * each:.4g}") for name, each in best.items()}


def size_of(program: Any) -> int:
    """Return the bytes that XLA reserves for a run, without arguments and results."""
    return program.memory_analysis().temp_size_in_bytes


def agree(forms: dict[str, Callable], key: jax.Array) -> None:
    """Raise `AssertionError` unless all programs train the same parameters."""
    expected, *_ = forms["by hand"](key)
    for name, form in forms.items():
        for a, b in zip(jax.tree.leaves(form(key)[0]), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-5, err_msg=name)
