"""Memory models against memax and a GRU: one training step on a tape, and how long it compiles.

    python tests/benchmarks/bench_memory.py

The tape has 16384 steps of 64 features, and an episode begins at each with probability 0.02. A
training step is the forward pass, and the gradients with respect to parameters and inputs. Models
have the same state: 64 complex numbers for the LRU, S5 and FFM (4 traces × 16 contexts), 8 × 8
for linear attention, the mLSTM and the LMU, 64 numbers for S6, and keys and values of 64 numbers
for 16 steps of a window. memax's S6 has one B and one C for each channel, and its attention has no
relative positions and no map out. Ratios above 1 mean that ours is faster.
"""

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from mmrl import memory

WIDTH = 64
KEY = jax.random.key(0)
SIZES = {
    "lru": {"state_size": 64},
    "ffm": {"trace_size": 4, "context_size": 16},
    "linear_attention": {"key_size": 8, "value_size": 8},
    "s5": {"state_size": 64},
    "min_gru": {"state_size": 64},
    "gru": {"state_size": 64},
    "s6": {"channels": 64, "state_size": 1},
    "window": {"window": 16, "heads": 1, "head_size": 64},
    "mlstm": {"key_size": 8, "value_size": 8},
    "lmu": {"channels": 8, "order": 8},
}
PEERS = {"lru": 1.5, "ffm": 1.5, "linear_attention": 1.5, "s6": 1.0, "window": 1.0}
"""Models that memax has, too, and the least ratio of its time to ours."""


def peers() -> dict[str, Any]:
    """memax's models. Its import starts JAX's backend, which must come after that of mmrl."""
    from memax.equinox.semigroups import attn, fart, ffm, lru, s6

    return {
        "lru": lru.LRU(64, WIDTH, KEY),
        "ffm": ffm.FFM(WIDTH, 4, 16, KEY),
        "linear_attention": fart.FART(WIDTH, 8, KEY),
        "s6": s6.S6(WIDTH, WIDTH, KEY),
        "window": attn.Attention(WIDTH, 16, None, KEY),
    }


class BareGRU(eqx.Module):
    """The usual GRU: Equinox's cell under `lax.scan`, reset by a `where`."""

    cell: eqx.nn.GRUCell

    def __call__(self, xs, begin):
        def step(h, x):
            h = self.cell(x[0], jnp.where(x[1], 0.0, h))
            return h, h

        return jax.lax.scan(step, jnp.zeros(WIDTH), (xs, begin))[1]


def ours(model: memory.SequenceModel, xs: jax.Array, begin: jax.Array) -> jax.Array:
    """Outputs on the tape, from an empty memory."""
    return model(model.init(), xs, begin)[1]


def memax(model: Any, xs: jax.Array, begin: jax.Array) -> jax.Array:
    """The same of a memax model."""
    return model(model.initialize_carry(), (xs, begin))[1]


def contestants() -> dict[tuple[str, str], tuple[Any, Callable]]:
    """(model, library) -> the model and how to call it."""
    result: dict[tuple[str, str], tuple[Any, Callable]] = {
        (name, "ours"): (memory.make(name, WIDTH, WIDTH, key=KEY, **sizes), ours)
        for name, sizes in SIZES.items()
    }
    result |= {(name, "memax"): (peer, memax) for name, peer in peers().items()}
    bare = BareGRU(eqx.nn.GRUCell(WIDTH, WIDTH, key=KEY))
    return result | {("gru", "equinox"): (bare, lambda m, xs, begin: m(xs, begin))}


def compiled(model: Any, call: Callable, length: int) -> tuple[float, Callable[[], float]]:
    """Seconds to trace and compile a training step, and a function that times one."""
    keys = jax.random.split(KEY, 3)
    xs, weights = (jax.random.normal(key, (length, WIDTH)) for key in keys[:2])
    begin = jax.random.uniform(keys[2], (length,)) < 0.02
    params, rest = eqx.partition(model, eqx.is_inexact_array)

    def loss(params, xs, begin, weights):
        return jnp.vdot(weights, call(eqx.combine(params, rest), xs, begin))

    tape = (params, xs, begin, weights)
    began = time.perf_counter()
    step = jax.jit(jax.value_and_grad(loss, argnums=(0, 1))).lower(*tape).compile()
    seconds = time.perf_counter() - began

    def measure_time() -> float:
        began = time.perf_counter()
        jax.block_until_ready(step(*tape))
        return time.perf_counter() - began

    return seconds, measure_time


def row(name: str, what: str, took: dict, rival: str, target: float | None) -> dict:
    """One line of the table; the ratio is the rival's time over ours."""
    mine, peer = took[name, "ours"], took[("gru", rival) if rival == "equinox" else (name, rival)]
    unit, scale = ("s", 1.0) if what == "compile" else ("ms", 1e3)
    return {
        "name": f"{name}, {what}",
        "ours": mine * scale,
        "peer": peer * scale,
        "ratio": peer / mine,
        "peer_name": "Equinox GRU under lax.scan" if rival == "equinox" else f"memax's {name}",
        "unit": unit,
        "target": target,
    }


def run(quick: bool = False) -> list[dict]:
    """Rows of every model against its namesake in memax, and of all against a GRU."""
    length, rounds = (512, 2) if quick else (16_384, 15)
    # A program found in the cache would compile in no time.
    cache = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_compilation_cache", False)
    programs = {who: compiled(*what, length) for who, what in contestants().items()}
    jax.config.update("jax_enable_compilation_cache", cache)
    compiling = {who: seconds for who, (seconds, _) in programs.items()}
    running = dict.fromkeys(programs, float("inf"))
    for _ in range(rounds):  # interleaved, so that a busy machine slows all alike
        for who, (_, measure_time) in programs.items():
            running[who] = min(running[who], measure_time())
    rows = []
    for name, target in PEERS.items():
        rows.append(row(name, "forward + backward", running, "memax", target))
        rows.append(row(name, "compile", compiling, "memax", 6.0))
    for name in SIZES:
        rows.append(row(name, "forward + backward", running, "equinox", None))
    return rows


if __name__ == "__main__":
    for line in run():
        print(
            f"{line['name']:36s} {line['ours']:8.2f} {line['unit']:2s}  {line['ratio']:6.2f} × "
            f"{line['peer_name']} (target {line['target']})",
            flush=True,
        )
