"""`mmrl doctor`: check packages and devices, and test whether agents learn."""

import dataclasses
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import tyro
from rich.table import Table
from rich.text import Text

import mmrl
from mmrl.agents import AGENTS
from mmrl.commands.terminal import in_background, open_console
from mmrl.runs import Run, Setup
from mmrl.runs.results import PACKAGES

SICK = 1  # exit code if something is wrong
MARKS = {"good": Text("✓", "green"), "note": Text("!", "yellow"), "bad": Text("✗", "red")}
JAX_PREFIX = "0.10."  # prefix of the versions of jax with which mmrl is tested
OPTIONAL = {"popgym": "`mmrl evaluate --original`"}  # optional packages, and their use
OPTIONAL["islpy"] = "the compiler of `mmrl.pdg`"
SCHEDULER = "--xla_cpu_enable_concurrency_optimized_scheduler=false"
# These flags reduce the compilation time of tiny programs to a third. Unknown flags abort XLA.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}

# Settings for a one-step task without memory, which small networks learn in a few updates.
_SIZES: dict[str, Any] = dict(memory="none", width=16, environments=32, rollout=8, block=16)
_SIZES |= {"blocks": 2, "learning_rate": 1e-2}
SMOKE = {name: agent.Config(**{**_SIZES, **agent.SMALL}) for name, agent in AGENTS.items()}


class Finding(NamedTuple):
    """Result of a check, with advice if there is a problem."""

    subject: str
    state: str  # "good", "note" or "bad"
    words: str


@dataclasses.dataclass(frozen=True)
class Options:
    """Check the packages and devices that mmrl uses, and train every agent on a tiny task."""


def main(arguments: Sequence[str]) -> int:
    """Print all findings; return 1 if any of them is bad, otherwise 0."""
    tyro.cli(Options, args=arguments, prog="mmrl doctor")
    console, sick = open_console(), False
    for finding in findings():
        sick = sick or finding.state == "bad"
        row = Table.grid(padding=(0, 1))
        row.add_column(width=1)
        row.add_column(width=9)
        row.add_row(MARKS[finding.state], finding.subject, finding.words)
        console.print(row)
    console.print("Something is wrong: see ✗ above." if sick else "All is well.")
    return SICK if sick else 0


def findings() -> Iterator[Finding]:
    """Run all checks, and yield each finding. Agents are trained in parallel, one per core."""
    yield from software()
    yield from machine()
    jobs = [lambda agent=agent: iter([smoke_run(agent)]) for agent in SMOKE]
    yield from (finding for _, finding in in_background(jobs, threads=os.cpu_count() or 1))


def software() -> Iterator[Finding]:
    """Yield findings about the versions of required and optional packages."""
    names = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    words = f"mmrl {mmrl.__version__}, Python {platform.python_version()}, {names}"
    is_known = jax.__version__.startswith(JAX_PREFIX)
    more = "" if is_known else f". mmrl is tested with jax {JAX_PREFIX}*"
    yield Finding("versions", "good" if is_known else "note", words + more)
    for name, user in OPTIONAL.items():
        words = f"not installed; only {user} requires it"
        if importlib.util.find_spec(name):
            words = f"{importlib.metadata.version(name)}, for {user}"
        yield Finding(name, "good", words)


def machine() -> Iterator[Finding]:
    """Yield findings about devices, compiler settings and the current folder."""
    device, *others = jax.devices()
    words = f"{1 + len(others)} x {device.device_kind}, {os.cpu_count()} CPU cores"
    if idle_gpu := device.platform == "cpu" and bool(shutil.which("nvidia-smi")):
        install = f"{sys.executable} -m pip install 'jax[cuda12]=={jax.__version__}'"
        words += f". This machine has an NVIDIA GPU that jax does not use: {install}"
    yield Finding("device", "note" if idle_gpu else "good", words)
    words, safe = "no flag required, because the device is not a CPU", device.platform != "cpu"
    if not safe:
        words = "XLA_FLAGS contains the flag that prevents training from hanging on a CPU"
        if not (safe := SCHEDULER in os.environ.get("XLA_FLAGS", "")):
            words = "Training may hang on a CPU with few cores. If it does: export "
            words += f"XLA_FLAGS={SCHEDULER}"
    yield Finding("scheduler", "good" if safe else "note", words)
    advice = "export JAX_COMPILATION_CACHE_DIR=~/.cache/mmrl for faster starts"
    where = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    words = f"compiled programs are {f'cached in {where}' if where else f'not cached ({advice})'}"
    yield Finding("cache", "good", words)
    here = pathlib.Path.cwd()
    words = f"{here}, {shutil.disk_usage(here).free / 2**30:.1f} GiB free"
    if not (writable := os.access(here, os.W_OK)):
        words = f"{here} is not writable. Change to another folder, or pass `--out`"
    yield Finding("folder", "good" if writable else "note", words)


def quickly(run: Run) -> Run:
    """Compile the run with `QUICK`, if this version of XLA supports the flags."""

    def compile_(function: Any) -> Callable[..., Any]:
        programs = []

        def call(*arguments: Any) -> Any:
            if not programs:
                programs.append(function.lower(*arguments).compile(compiler_options=QUICK))
            return programs[0](*arguments)

        return call

    if jax.devices()[0].platform == "cpu" and jax.__version__.startswith(JAX_PREFIX):
        plain = run.program
        run.program = plain._replace(init=compile_(plain.init), block=compile_(plain.block))
    return run


def smoke_run(agent: str) -> Finding:
    """Train a tiny agent, and report whether it learns."""
    setup = Setup(env="probe-Match-v0", agent=agent, config=SMOKE[agent], seeds=(0, 1, 2))
    start_time = time.perf_counter()
    try:
        reports = list(quickly(Run(setup)))
    except Exception as error:
        return Finding(agent, "bad", f"fails: {type(error).__name__}: {error}")
    final = float(np.mean(reports[-1].returns))
    words = f"mean return of three seeds {final:.2f} after {reports[-1].env_steps} steps"
    words = f"{words}; compiling and learning took {time.perf_counter() - start_time:.1f} s"
    if final < 0.5:  # chance is 0, and each seed usually reaches 1
        return Finding(agent, "bad", f"does not learn: {words}. The return should be about 1.00")
    return Finding(agent, "good", words)
