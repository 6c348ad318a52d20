"""The scan of a real diagonal affine monoid, method by method, and `jax.lax.associative_scan`.

    python tests/benchmarks/bench_scan.py

64 numbers a step. "forward + backward" are the gradients with respect to gains and sums. Ratios
above 1 mean that ours is faster. `method="auto"` runs one of the other methods, and is listed with
the times of that one; against the fastest of them it may lose 10 %, so the least ratio is 1 / 1.1.
The two teaching methods are raced at 1k steps only: their memory and compile time grow with log₂T,
and they are never fastest. On a GPU the kernel of `mmrl.kernel` is raced, too: "auto" may choose it
where a row shows that it is fastest.
"""

import time
from collections.abc import Callable, Collection, Iterator

import jax
import jax.numpy as jnp

from mmrl.monoid import Affine
from mmrl.scan import METHODS, _auto, scan

WIDTH = 64
TARGETS = {16_384: 1.8, 131_072: 3.0}  # on a CPU; on a GPU "auto" is the peer
COMPILE_LENGTH, COMPILE_TARGET = 16_384, 8.0  # on a CPU
PEER = "lax.associative_scan"
WAYS = METHODS[:-1]
FAST = {
    "cpu": ("sequential", "associative", "chunked"),
    # A loop of 131k steps takes a GPU seconds.
    "gpu": ("associative", "chunked", "kernel"),
}
KERNEL_TARGET = 3.0  # forward + backward, at the lengths of TARGETS
PASSES = ("forward", "forward + backward")

Prefixes = Callable[[jax.Array, jax.Array], jax.Array]


def peer(gains: jax.Array, sums: jax.Array) -> jax.Array:
    """What a user of JAX writes."""

    def combine(a, b):
        return b[0] * a[0], b[0] * a[1] + b[1]

    return jax.lax.associative_scan(combine, (gains, sums))[1]


def ours(method: str) -> Prefixes:
    """The same by one of our methods."""
    return lambda gains, sums: scan(Affine((WIDTH,)), (gains, sums), method=method)[1]


def compiled(prefixes: Prefixes, what: str, length: int) -> tuple[float, Callable[[], float]]:
    """Seconds to trace and compile, and a function that times one run."""
    keys = jax.random.split(jax.random.key(0), 3)
    gains = jax.random.uniform(keys[0], (length, WIDTH), minval=0.5, maxval=0.999)
    sums, weights = (jax.random.normal(key, (length, WIDTH)) for key in keys[1:])

    def forward(gains, sums, weights):
        return prefixes(gains, sums)

    def loss(gains, sums, weights):
        return jnp.vdot(weights, prefixes(gains, sums))

    function = forward if what == "forward" else jax.grad(loss, argnums=(0, 1))
    arguments = gains, sums, weights
    began = time.perf_counter()
    program = jax.jit(function).lower(*arguments).compile()
    seconds = time.perf_counter() - began

    def measure_time() -> float:
        began = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        return time.perf_counter() - began

    return seconds, measure_time


def race(length: int, rounds: int) -> tuple[dict, dict]:
    """(method, pass) -> the least seconds of a run, and the seconds of compiling."""
    names = WAYS if length <= 1024 else FAST.get(jax.default_backend(), FAST["cpu"])
    entrants = {PEER: peer, **{name: ours(name) for name in names}}
    programs = {
        (name, what): compiled(prefixes, what, length)
        for what in PASSES
        for name, prefixes in entrants.items()
    }
    running = {who: measure_time() for who, (_, measure_time) in programs.items()}
    for _ in range(rounds):  # interleaved, so that a busy machine slows all alike
        for who, (_, measure_time) in programs.items():
            running[who] = min(running[who], measure_time())
    compiling = {who: seconds for who, (seconds, _) in programs.items()}
    for times in (running, compiling):
        times.update({("auto", what): times[_auto(), what] for what in PASSES})
    return running, compiling


def row(
    name: str, times: tuple[float, float], peer_name: str, unit: str, target: float | None
) -> dict:
    """One line of the table; the ratio is the peer's time over ours."""
    scale = 1e3 if unit == "ms" else 1.0
    return {
        "name": name,
        "ours": times[0] * scale,
        "peer": times[1] * scale,
        "ratio": times[1] / times[0],
        "peer_name": peer_name,
        "unit": unit,
        "target": target,
    }


def rows(length: int, running: dict, compiling: dict) -> list[dict]:
    """All comparisons at one length."""
    out, size, cpu = [], f"{length} x {WIDTH}", jax.default_backend() == "cpu"
    for what in PASSES:
        target = TARGETS.get(length) if cpu and what != "forward" else None
        times = running["auto", what], running[PEER, what]
        out.append(row(f"auto, {what}, {size}", times, PEER, "ms", target))
    times = compiling["auto", PASSES[1]], compiling[PEER, PASSES[1]]
    target = COMPILE_TARGET if cpu and length == COMPILE_LENGTH else None
    out.append(row(f"auto, compile {PASSES[1]}, {size}", times, PEER, "s", target))
    for what in PASSES:
        methods = {
            name: t for (name, w), t in running.items() if w == what and name not in (PEER, "auto")
        }
        for name in sorted(methods):
            times = methods[name], running[PEER, what]
            has_target = name == "kernel" and what != "forward" and length in TARGETS
            target = KERNEL_TARGET if has_target else None
            out.append(row(f"{name}, {what}, {size}", times, PEER, "ms", target))
        best = min(methods, key=methods.__getitem__)
        times = running["auto", what], methods[best]
        out.append(row(f"auto, {what}, {size}", times, f"best method ({best})", "ms", 1 / 1.1))
    return out


def run(quick: bool = False, done: Collection[str] = ()) -> Iterator[list[dict]]:
    """Rows for every pass and method, one list for each length."""
    lengths = {64: 2, 256: 2} if quick else {1024: 200, 16_384: 30, 131_072: 12}
    # A program found in the cache would compile in no time.
    cache = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        for n, rounds in lengths.items():
            if f"auto, forward, {n} x {WIDTH}" in done:
                continue
            yield rows(n, *race(n, rounds))
    finally:
        jax.config.update("jax_enable_compilation_cache", cache)


if __name__ == "__main__":
    for line in (line for some in run() for line in some):
        print(
            f"{line['name']:42s} {line['ours']:9.3f} {line['unit']:2s}  {line['ratio']:6.2f} × "
            f"{line['peer_name']} (target {line['target']})",
            flush=True,
        )
