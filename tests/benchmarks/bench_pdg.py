"""REINFORCE as recurrence equations against the same by hand in JAX: time, memory, compilation.

    python tests/benchmarks/bench_pdg.py

By hand is what one writes: a scan that acts, and then `jax.grad` of the loss of the whole batch.
CartPole, 32 environments, 128 steps, 4 iterations, 32 hidden units. Ours are Monte-Carlo and 8-step
returns, lifted and at several tiles of m learned steps, as one XLA program; then PPO with four
epochs, and a decoder of two layers that generates 256 tokens, with all keys and values and with a
window of 16, against a cache of all of them that is masked. Ratios are by hand / ours, medians of
rounds in which all programs take turns. Memory is what XLA reserves for a run. First of all, the
CPU-seconds from the graph of each shipped program to its schedule and code, against those allowed.
"""

import functools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import optax

from mmrl import envs
from mmrl.course import programs
from mmrl.course.ch17_compiling.by_hand import critic, descent, remember, screen
from mmrl.course.ch17_compiling.by_hand import network as recurrent
from mmrl.course.ch17_compiling.rivals import decoders, ppos
from mmrl.course.programs import Environment, Memory, Network, reinforce
from mmrl.course.programs.decoder import initial
from mmrl.pdg.build.graph import Graph
from mmrl.pdg.passes import lift_loops, tile, vectorize
from mmrl.pdg.run import compile

BATCH, UNITS, GAMMA = 32, 32, 0.99
BOUNDS, WIDTH = {"I": 4, "T": 128}, 4
N = 8
TILES = {None: (1, 32, 128), N: (1, 16)}  # steps that are learned from in one go
MOST = {None: 1.1, N: 1.2}  # of the time at the best tile
LIMIT = 0.5  # CPU-seconds to schedule a program and to write its code


def environment(width: int) -> Environment:
    """CartPole, its observation repeated until it has `width` numbers."""
    env, params = envs.make("CartPole-v1")

    def wide(obs: jax.Array) -> jax.Array:
        return jnp.tile(obs, width // 4)

    def reset(key: Any) -> tuple:
        obs, state = env.reset(key, params)
        return wide(obs), state

    def step(key: Any, state: Any, action: Any) -> tuple:
        _, state, r, terminated, truncated, info = env.step(key, state, action, params)
        return wide(info["final_observation"]), state, r, terminated, truncated

    return Environment(reset, step)


def network(width: int) -> Network:
    """Two layers."""

    def init(key: Any) -> dict:
        a, b = jax.random.split(key)
        first = jax.random.normal(a, (width, UNITS)) * width**-0.5
        return {"A": first, "B": 0.1 * jax.random.normal(b, (UNITS, 2))}

    return Network(init, lambda w, obs: jnp.tanh(obs @ w["A"]) @ w["B"])


def by_hand(
    env: Environment, net: Network, opt: Any, n: int | None, bounds: dict[str, int]
) -> Callable:
    """The peer: nothing in it knows of graphs."""
    steps = bounds["T"]
    apply = jax.vmap(net.apply, (None, 0))

    def returns(rewards: jax.Array) -> jax.Array:
        if n is None:
            later = jax.lax.scan(
                lambda g, r: (r + GAMMA * g,) * 2, rewards[0] * 0, rewards, reverse=True
            )
            return later[1]
        longer = jnp.concatenate([rewards, jnp.zeros((n, BATCH))])
        return functools.reduce(jnp.add, [GAMMA**k * longer[k : k + steps] for k in range(n)])

    def iterate(carry: tuple, key: Any) -> tuple:
        w, m = carry
        first, *keys = jax.random.split(key, 1 + 2)

        def step(carry: tuple, keys: tuple) -> tuple:
            obs, state, alive = carry
            action = jax.random.categorical(keys[0], apply(w, obs))
            after, state, r, end, cut = jax.vmap(env.step)(
                jax.random.split(keys[1], BATCH), state, action
            )
            r = jnp.where(alive > 0, r, 0.0)
            return (after, state, jnp.where(end | cut, 0.0, alive)), (obs, action, r, alive)

        starts = jax.vmap(env.reset)(jax.random.split(first, BATCH))
        at = tuple(jax.random.split(key, steps) for key in keys)
        _, (obs, action, r, alive) = jax.lax.scan(step, (*starts, jnp.ones(BATCH)), at)
        g = returns(r)

        def loss(w: Any) -> jax.Array:
            logp = jax.nn.log_softmax(jax.vmap(apply, (None, 0))(w, obs))
            gain = jnp.take_along_axis(logp, action[..., None], -1)[..., 0]
            return -(gain * g * alive).mean(1).sum()

        change, m = opt.update(jax.grad(loss)(w), m, w)
        return (optax.apply_updates(w, change), m), r.sum(0).mean()

    def run(key: Any) -> tuple:
        w = net.init(key)
        keys = jax.random.split(key, bounds["I"])
        (w, _), scores = jax.lax.scan(iterate, (w, opt.init(w)), keys)
        return w, scores

    return run


def compile_program(function: Callable, *args: Any) -> tuple[Callable, float, int]:
    """The compiled program, CPU seconds that tracing and compiling took, bytes it reserves."""
    began = time.process_time()
    program = jax.jit(function).lower(*args).compile()
    seconds = time.process_time() - began
    return program, seconds, program.memory_analysis().temp_size_in_bytes


def run_seconds(program: Callable, *args: Any) -> float:
    """Seconds of one run."""
    began = time.perf_counter()
    jax.block_until_ready(program(*args))
    return time.perf_counter() - began


def race(n: int | None, bounds: dict[str, int], rounds: int) -> dict[str, tuple[float, float, int]]:
    """Of each program: median seconds of a run, CPU seconds to compile it, bytes it reserves."""
    env, net, opt, key = environment(WIDTH), network(WIDTH), optax.adam(1e-2), jax.random.key(0)
    programs = {"by hand": compile_program(by_hand(env, net, opt, n, bounds), key)}
    graph, _ = lift_loops(vectorize(reinforce(env, net, opt, n=n), "b")[0], "t")
    for m in TILES[n]:
        program = compile(graph if m == 1 else tile(graph, "t", m)[0], {}).xla(bounds, B=BATCH)
        programs[f"tiles of {m}"] = compile_program(
            lambda key, program=program: program(key=key), key
        )
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, (program, *_) in programs.items():
            times[name].append(run_seconds(program, key))
    return {name: (statistics.median(times[name]), *programs[name][1:]) for name in programs}


def others(quick: bool) -> Iterator[tuple[str, dict[str, Callable], tuple]]:
    """Compiled programs that have no tiles, by hand and ours, and what they are called with."""
    key, steps = jax.random.key(0), 8 if quick else 256
    sizes = {
        "T": 16 if quick else 128,
        "batch": BATCH,
        "width": WIDTH,
        "hidden": UNITS,
        "depth": 1,
    }
    yield "PPO", ppos(**sizes), (key,)
    for window in (None, 16):
        params, forms = decoders(window, steps, batch=8, width=64, layers=2)
        forms.pop("by hand, ring", None)
        words = "decoder, all keys" if window is None else f"decoder, {window} keys"
        yield words, forms, (params, key)


def comparison(
    words: str, forms: dict[str, Callable], inputs: tuple, rounds: int
) -> Iterator[dict]:
    """Time and memory of two programs that take turns."""
    times: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(rounds):
        for name, form in forms.items():
            times[name].append(run_seconds(form, *inputs))
    sizes: dict[str, Any] = {
        name: form.memory_analysis().temp_size_in_bytes  # pyright: ignore[reportFunctionMemberAccess]
        for name, form in forms.items()
    }
    for unit, result, target in (
        ("seconds", {name: statistics.median(each) for name, each in times.items()}, 1 / 1.1),
        ("bytes", sizes, None),
    ):
        yield _row(words, result["ours"], result["by hand"], unit, target)


def shipped_graphs() -> dict[str, Graph]:
    """The graph of every shipped program, with the batch in its arrays."""
    env, opt, net = screen(WIDTH), descent(0.01), recurrent(WIDTH)
    memory = Memory(net.init, lambda: jnp.zeros_like(net.init(jax.random.key(0))["λ"]), remember)
    graphs = {
        "Monte-Carlo": reinforce(env, net, opt),
        f"{N}-step": reinforce(env, net, opt, n=N),
        "A2C": programs.a2c(env, critic(WIDTH), opt),
        "PPO": programs.ppo(env, critic(WIDTH), opt),
        "recurrent": programs.remember(env, memory, opt),
        "decoder": programs.decoder(initial(jax.random.key(0), vocabulary=64, width=64)),
    }
    return {name: vectorize(graph, "b")[0] for name, graph in graphs.items()}


def scheduling_seconds(graph: Graph, rounds: int) -> float:
    """CPU-seconds until there are a schedule and code with every free; the median of `rounds`."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        assert compile(graph, {}).tree
        times.append(time.process_time() - began)
    return statistics.median(times)


def _row(
    name: str,
    ours: float,
    peer: float,
    unit: str,
    target: float | None,
    peer_name: str = "the same by hand",
) -> dict[str, Any]:
    about = {"name": name, "peer_name": peer_name, "unit": unit, "target": target}
    return {**about, "ours": ours, "peer": peer, "ratio": peer / ours}


def rows(quick: bool) -> Iterator[dict[str, Any]]:
    """Of the tile that runs fastest: time and compilation; of all tiles the least memory."""
    bounds, rounds = ({"I": 1, "T": 32}, 1) if quick else (BOUNDS, 31)
    for name, graph in shipped_graphs().items():
        seconds = scheduling_seconds(graph, 1 if quick else 5)
        yield _row(f"{name}, schedule and code", seconds, LIMIT, "CPU-seconds", 1.0, "allowed")
    for n in (None, N):
        result = race(n, bounds, rounds)
        hand, words = result.pop("by hand"), "Monte-Carlo" if n is None else f"{n}-step"
        name, best = min(result.items(), key=lambda item: item[1][0])
        least = min(result, key=lambda tiles: result[tiles][2])
        for what, ours, peer, unit, target in (
            (f"{words}, {name}", best[0], hand[0], "seconds", 1 / MOST[n]),
            (f"{words}, {name}, to compile", best[1], hand[1], "CPU-seconds", 0.5),
            (f"{words}, {least}", result[least][2], hand[2], "bytes", None if n is None else 4.0),
        ):
            yield _row(what, ours, peer, unit, target)
    for words, forms, inputs in others(quick):
        yield from comparison(words, forms, inputs, rounds)


def run(quick: bool = False) -> Iterator[dict[str, Any]]:
    """A row per comparison; of several rounds, the median counts."""
    cache = jax.config.jax_enable_compilation_cache  # of which compilation must not come
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        yield from rows(quick)
    finally:
        jax.config.update("jax_enable_compilation_cache", cache)


if __name__ == "__main__":
    for line in run():
        print(
            f"{line['name']:44} {line['ours']:12.4g} / {line['peer']:10.4g} {line['unit']:12} "
            f"peer / ours {line['ratio']:6.2f}  (target {line['target']})"
        )
