"""REINFORCE as recurrence equations against the same by hand in JAX: time, memory, compilation.

    python -m tests.benchmarks.bench_pdg

By hand is what one writes: a scan that acts, and then `jax.grad` of the loss of the whole batch.
CartPole, 32 environments, 128 steps, 4 iterations, observations of 4 numbers (or more: `--width`),
32 hidden units. Ours are Monte-Carlo and 8-step returns, at several tiles of m learned steps.
Ratios are ours / by hand, medians of rounds in which all programs take turns; below 1 is faster.
Memory is what XLA reserves for a run; the rings are that part of it which our layout decides, and
the interpreter's peak is counted byte by byte. Seconds of compilation are CPU seconds.
"""

import argparse
import functools
import statistics
import time
from collections.abc import Callable
from typing import Any

import mmrl  # isort: skip
import jax
import jax.numpy as jnp
import optax

from mmrl import envs
from mmrl.pdg.compiler import compile
from mmrl.pdg.passes.tile import tile
from mmrl.pdg.programs import Environment, Network, reinforce
from mmrl.pdg.runtime.interpreter import Interpreter
from mmrl.pdg.runtime.xla import xla

BATCH, HIDDEN, GAMMA = 32, 32, 0.99
BOUNDS = {"I": 4, "T": 128}
N = 8
TILES = {None: (1, 128), N: (1, 16)}
MOST = {None: 1.1, N: 1.2}  # of the time at the best tile


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
        first = jax.random.normal(a, (width, HIDDEN)) * width**-0.5
        return {"A": first, "B": 0.1 * jax.random.normal(b, (HIDDEN, 2))}

    return Network(init, lambda w, obs: jnp.tanh(obs @ w["A"]) @ w["B"])


def by_hand(env: Environment, net: Network, opt: Any, n: int | None) -> Callable:
    """The peer: nothing in it knows of graphs."""
    steps = BOUNDS["T"]
    apply = jax.vmap(net.apply, (None, 0))

    def returns(rewards: jax.Array) -> jax.Array:
        if n is None:
            later = jax.lax.scan(
                lambda g, r: (r + GAMMA * g,) * 2, rewards[0] * 0, rewards, reverse=True
            )
            return later[1]
        padded = jnp.concatenate([rewards, jnp.zeros((n, BATCH))])
        return functools.reduce(jnp.add, [GAMMA**k * padded[k : k + steps] for k in range(n)])

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

        begun = jax.vmap(env.reset)(jax.random.split(first, BATCH))
        at = tuple(jax.random.split(key, steps) for key in keys)
        _, (obs, action, r, alive) = jax.lax.scan(step, (*begun, jnp.ones(BATCH)), at)
        g = returns(r)

        def loss(w: Any) -> jax.Array:
            logp = jax.nn.log_softmax(jax.vmap(apply, (None, 0))(w, obs))
            gain = jnp.take_along_axis(logp, action[..., None], -1)[..., 0]
            return -(gain * g * alive).mean(1).sum()

        change, m = opt.update(jax.grad(loss)(w), m, w)
        return (optax.apply_updates(w, change), m), r.sum(0).mean()

    def run(key: Any) -> tuple:
        w = net.init(key)
        keys = jax.random.split(key, BOUNDS["I"])
        (w, _), scores = jax.lax.scan(iterate, (w, opt.init(w)), keys)
        return w, scores

    return run


def built(function: Callable, *args: Any) -> tuple[Callable, float, int]:
    """The compiled program, CPU seconds that tracing and compiling took, bytes it reserves."""
    began = time.process_time()
    program = jax.jit(function).lower(*args).compile()
    seconds = time.process_time() - began
    return program, seconds, program.memory_analysis().temp_size_in_bytes


def timed(program: Callable, key: Any) -> float:
    """Seconds of one run."""
    began = time.perf_counter()
    jax.block_until_ready(program(key))
    return time.perf_counter() - began


def race(n: int | None, width: int, rounds: int, interpreted: bool) -> None:
    """All programs of one kind of return, in turns."""
    env, net, opt, key = environment(width), network(width), optax.adam(1e-2), jax.random.key(0)
    runners, rows = {}, {}
    runners["by hand"], *rows["by hand"] = built(by_hand(env, net, opt, n), key)
    graph = reinforce(env, net, opt, n=n, batch=BATCH)
    for m in TILES[n]:
        compiled = compile(graph if m == 1 else tile(graph, "t", m)[0])
        program, name = xla(compiled, BOUNDS), f"XLA, m = {m}"
        runners[name], *rows[name] = built(lambda key, program=program: program(key=key), key)
        rows[name].append(sum(program.ring_bytes(key=key).values()))
        if interpreted:
            slow, name = Interpreter(compiled, BOUNDS), f"interpreter, m = {m}"
            rows[name] = [0.0, slow(key=key).account.peak()]
            runners[name] = lambda key, slow=slow: slow(key=key).results
    times = {name: [] for name in runners}
    for _ in range(rounds):
        for name, program in runners.items():
            times[name].append(timed(program, key))
    report(n, rows, {name: statistics.median(each) for name, each in times.items()})


def report(n: int | None, rows: dict, medians: dict) -> None:
    """One line per program, and whether the best tile is quick enough."""
    seconds, bytes_, base = *rows["by hand"][:2], medians["by hand"]
    print(f"\n{'Monte-Carlo' if n is None else f'{n}-step'}: by hand {1e3 * base:.1f} ms, ", end="")
    print(f"{seconds:.1f} s to compile, {bytes_ / 1e3:.0f} kB")
    print(f"{'':>22} {'time':>7} {'compile':>8} {'memory':>7} {'rings':>9}")
    for name, (each, taken, *rings) in rows.items():
        if name != "by hand":
            ring = f"{rings[0] / 1e3:6.0f} kB" if rings else ""
            print(
                f"{name:>22} {medians[name] / base:7.2f} {each / seconds:8.2f} "
                f"{taken / bytes_:7.2f} {ring}"
            )
    best = min(medians[name] for name in medians if name.startswith("XLA")) / base
    print(f"best tile {best:.2f}, wanted at most {MOST[n]}: {'yes' if best <= MOST[n] else 'NO'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=4, help="numbers in an observation")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--interpreted", action="store_true", help="race the interpreter too")
    options = parser.parse_args()
    print(f"mmrl {mmrl.__version__}, jax {jax.__version__}, {jax.default_backend()}")
    # Seconds of compilation are measured, so nothing may come from the disk.
    jax.config.update("jax_enable_compilation_cache", False)
    for n in (None, N):
        race(n, options.width, options.rounds, options.interpreted)


if __name__ == "__main__":
    main()
