"""Processor time of every memory in `mmrl.memory.NAMES`: forward, backward and compilation.

Each memory has its default sizes, and reads one tape. Calls of the memory and of a GRU alternate,
so that other work on the machine slows both equally. All times are processor seconds of this
process, summed over its threads. `forward` is the time to compute the outputs of the tape. `both`
is the time of a forward and a backward pass: the gradient of the outputs' mean square with respect
to parameters and inputs. Each of these two times is the minimum over `ROUNDS` calls. `compile` is
the time to trace and compile `both` once, without the persistent cache. `ratios` are these three
times divided by those of the GRU.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from mmrl import memory
from mmrl.course.experiments.experiment_models import Cell
from mmrl.course.experiments.grid import Grid, Row, one_by_one
from mmrl.course.experiments.recall_probes import WIDTH

BASE = "gru"  # memory that is timed in each run
LENGTH, ROUNDS = 4096, 10  # steps of the tape, and timed calls


def measure(cell: Cell, quick: bool, _: Row | None) -> Row:
    """Time a memory and a GRU in turn, and return the row."""
    length, rounds = (16, 1) if quick else (LENGTH, ROUNDS)
    models = {
        who: memory.make(name, WIDTH, WIDTH, key=jax.random.key(0))
        for who, name in (("own", cell.name), ("base", BASE))
    }
    with without_cache():
        programs = {who: compile_calls(model, length) for who, model in models.items()}
    seconds = {who: {"compile": program.pop("compile")} for who, program in programs.items()}
    for _again in range(rounds):
        for who, program in programs.items():
            for part, call in program.items():
                time_of_call = processor_seconds(call)
                seconds[who][part] = min(time_of_call, seconds[who].get(part, time_of_call))
    own, base = seconds["own"], seconds["base"]
    return {
        "cell": cell.name,
        "base": BASE,
        "width": WIDTH,
        "steps": length,
        "rounds": rounds,
        "seconds": {part: _brief(x) for part, x in own.items()},
        "base_seconds": {part: _brief(x) for part, x in base.items()},
        "ratios": {part: _brief(x / max(base[part], 1e-9)) for part, x in own.items()},
        "seeds": [0],
        "quick": quick,
    }


def compile_calls(model: memory.SequenceModel, length: int) -> dict[str, Any]:
    """Return the calls `forward` and `both`, and the seconds to compile the latter."""
    xs = jax.random.normal(jax.random.key(1), (length, model.input_size))
    begin = jnp.zeros(length, bool)
    arrays, rest = eqx.partition(model, eqx.is_inexact_array)

    def outputs(arrays: Any, xs: Any) -> Any:
        net = eqx.combine(arrays, rest)
        return net(net.init(), xs, begin)[1]

    def size(both: Any) -> Any:
        return jnp.mean(outputs(*both) ** 2)

    start_time = time.process_time()
    gradient = jax.jit(jax.grad(size)).lower((arrays, xs)).compile()
    duration = time.process_time() - start_time
    forward = jax.jit(outputs).lower(arrays, xs).compile()
    return {
        "compile": duration,
        "forward": lambda: forward(arrays, xs),
        "both": lambda: gradient((arrays, xs)),
    }


def processor_seconds(call: Callable[[], Any]) -> float:
    """Return the processor seconds of a call, summed over the threads of this process."""
    start_time = time.process_time()
    jax.block_until_ready(call())
    return time.process_time() - start_time


@contextlib.contextmanager
def without_cache() -> Iterator[None]:
    """Disable JAX's persistent cache, because a program that is loaded from it is not compiled."""
    before = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)


def _brief(x: float) -> float:
    return float(f"{x:.3g}")


def summarize(row: Row) -> str:
    """Summarize a row in a few words."""
    ratios = ", ".join(f"{part} {x:g}" for part, x in row["ratios"].items())
    return f"times divided by those of the {row['base'].upper()}: {ratios}"


GRID = Grid(
    "model_times",
    [Cell(name) for name in memory.NAMES],
    one_by_one(measure),
    summarize,
    about="Processor time of every memory: forward, backward and compilation.",
    decides="what each memory costs in time, compared with a GRU",
    turn=42,
    small=[Cell("none")],
)
