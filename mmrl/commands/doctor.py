"""`mmrl doctor`: what mmrl runs on, and whether it works there."""

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
from typing import Any

import jax
import numpy as np
import tyro
from rich.table import Table
from rich.text import Text

import mmrl
from mmrl.agents import AGENTS
from mmrl.commands.terminal import in_background, open_console
from mmrl.runs import Run, Setup

SICK = 1  # exit code
MARKS = {"good": Text("✓", "green"), "note": Text("!", "yellow"), "bad": Text("✗", "red")}
TRIED = "0.10."  # versions of jax with which mmrl is tested
SCHEDULER = "--xla_cpu_enable_concurrency_optimized_scheduler=false"
# Compiled so, the tiny programs here take a third of the time; XLA stops at names it does not know.
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}

# One step, the right answer in view: learned in few updates, by networks that compile quickly.
_SIZES: dict[str, Any] = {
    "memory": "none",
    "width": 16,
    "environments": 32,
    "rollout": 8,
    "block": 16,
    "blocks": 2,
    "learning_rate": 1e-2,
}
SMOKE = {name: agent.Config(**{**_SIZES, **agent.SMALL}) for name, agent in AGENTS.items()}


@dataclasses.dataclass(frozen=True)
class Finding:
    """A thing that was looked at, how it is ("good", "note", "bad"), and what to do about it."""

    subject: str
    state: str
    words: str


@dataclasses.dataclass(frozen=True)
class Options:
    """Say what mmrl runs on, and train something tiny to see whether it works."""


def main(arguments: Sequence[str]) -> int:
    """Print all findings; the exit code is 1 if one is bad."""
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
    """All of them, each as soon as it is known: agents train side by side, one on each core."""
    yield from (look() for look in (versions, device, scheduler, cache, folder, popgym, islpy))
    jobs = [lambda agent=agent: iter([smoke_run(agent)]) for agent in SMOKE]
    yield from (finding for _, finding in in_background(jobs, threads=os.cpu_count() or 1))


def versions() -> Finding:
    """The versions that decide whether two runs can be compared."""
    packages = ("jax", "jaxlib", "equinox", "optax", "gymnax", "numpy")
    names = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    words = f"mmrl {mmrl.__version__}, Python {platform.python_version()}, {names}"
    if jax.__version__.startswith(TRIED):
        return Finding("versions", "good", words)
    return Finding("versions", "note", f"{words}. mmrl is tested with jax {TRIED}*")


def device() -> Finding:
    """The device that jax computes on; a GPU that it does not see is worth a word."""
    devices = jax.devices()
    words = f"{len(devices)} x {devices[0].device_kind}, {os.cpu_count()} CPU cores"
    if devices[0].platform == "cpu" and shutil.which("nvidia-smi"):
        install = f"{sys.executable} -m pip install 'jax[cuda12]=={jax.__version__}'"
        remedy = f"This machine has an NVIDIA GPU that jax does not use: {install}"
        return Finding("device", "note", f"{words}. {remedy}")
    return Finding("device", "good", words)


def scheduler() -> Finding:
    """Whether XLA's CPU backend runs with the scheduler that cannot deadlock."""
    if jax.devices()[0].platform != "cpu":
        return Finding("scheduler", "good", "not on a CPU: no flag needed")
    if SCHEDULER in os.environ.get("XLA_FLAGS", ""):
        return Finding("scheduler", "good", "XLA_FLAGS keeps training from hanging on a CPU")
    words = f"Training may hang on a CPU with few cores. If it does: export XLA_FLAGS={SCHEDULER}"
    return Finding("scheduler", "note", words)


def cache() -> Finding:
    """Whether compiled programs are kept."""
    where = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    if where:
        return Finding("cache", "good", f"compiled programs are kept in {where}")
    advice = "export JAX_COMPILATION_CACHE_DIR=~/.cache/mmrl to start sooner the second time"
    return Finding("cache", "good", f"compiled programs are not kept ({advice})")


def folder() -> Finding:
    """Whether results can be written where we are."""
    here = pathlib.Path.cwd()
    if os.access(here, os.W_OK):
        free = shutil.disk_usage(here).free / 2**30
        return Finding("folder", "good", f"{here}, {free:.1f} GiB free")
    words = f"{here} cannot be written to: go elsewhere, or give `--out` to train and demo"
    return Finding("folder", "note", words)


def popgym() -> Finding:
    """Whether `mmrl evaluate --original` can work."""
    if importlib.util.find_spec("popgym"):
        words = f"{importlib.metadata.version('popgym')}, for `mmrl evaluate --original`"
        return Finding("popgym", "good", words)
    return Finding("popgym", "good", "not installed; only `mmrl evaluate --original` needs it")


def islpy() -> Finding:
    """Whether `mmrl.pdg` can be imported."""
    if importlib.util.find_spec("islpy"):
        words = f"{importlib.metadata.version('islpy')}, for the compiler `mmrl.pdg`"
        return Finding("islpy", "good", words)
    words = "not installed; only the compiler needs it: pip install 'mmrl-jax[pdg]'"
    return Finding("islpy", "good", words)


def quickly(run: Run) -> Run:
    """The run, with programs that are compiled in a third of the time, where XLA is known to."""
    if jax.devices()[0].platform == "cpu" and jax.__version__.startswith(TRIED):
        made = run.program
        run.program = made._replace(init=_compiled(made.init), block=_compiled(made.block))
    return run


def _compiled(function: Any) -> Callable[..., Any]:
    programs: list[Callable[..., Any]] = []

    def call(*given: Any) -> Any:
        if not programs:
            programs.append(function.lower(*given).compile(compiler_options=QUICK))
        return programs[0](*given)

    return call


def smoke_run(agent: str) -> Finding:
    """Train something tiny and see whether it learns."""
    setup = Setup(env="probe-Match-v0", agent=agent, config=SMOKE[agent], seeds=(0, 1, 2))
    began = time.perf_counter()
    try:
        reports = list(quickly(Run(setup)))
    except Exception as error:
        return Finding(agent, "bad", f"fails: {type(error).__name__}: {error}")
    final = float(np.mean(reports[-1].returns))
    words = f"mean return of three seeds {final:.2f} after {reports[-1].env_steps} steps"
    words = f"{words}; compiling and learning took {time.perf_counter() - began:.1f} s"
    if final < 0.5:  # chance is 0, and each seed reaches 1 as a rule
        return Finding(agent, "bad", f"does not learn: {words}. It should be about 1.00")
    return Finding(agent, "good", words)
