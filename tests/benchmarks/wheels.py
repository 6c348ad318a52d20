"""Collect the wheels that a machine without a package index lacks, to run a checkout there.

    python tests/benchmarks/wheels.py --python 3.12           # here: fills build/wheels
    python3 -m pip install --no-index --no-deps --target build/site build/wheels/*.whl   # there
    PYTHONPATH=build/site:. make gpu

The packages are what mmrl and its compiler need at run time, and what those need, in the versions
of requirements.lock. What such a machine has with its JAX is left out: jax and jaxlib with their
own requirements, which must fit its drivers. `--more flashbax` adds a rival of the benchmarks.
"""

import dataclasses
import importlib.metadata
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Sequence

import tyro
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).parents[2]
THERE = ("jax", "jaxlib")


@dataclasses.dataclass(frozen=True)
class Options:
    """Download wheels for another machine: Linux on x86-64."""

    python: str = "3.12"
    """Version of its Python."""
    more: tuple[str, ...] = ()
    """Further packages, such as rivals of the benchmarks."""
    less: tuple[str, ...] = ()
    """Packages to leave out, such as some that are there, or tensorstore, which is large."""
    out: pathlib.Path = ROOT / "build" / "wheels"
    """Folder of the wheels."""


def main(arguments: Sequence[str]) -> int:
    """Download them; the exit code is pip's."""
    options = tyro.cli(Options, args=arguments)
    packages = closure(["mmrl-jax", "islpy", *options.more], options.python)
    pins = versions((ROOT / "requirements.lock").read_text("utf-8"))
    left_out = {"mmrl-jax", *map(canonicalize_name, options.less)}
    names = sorted(packages - closure(THERE, options.python) - left_out)
    words = [f"{name}=={pins[name]}" for name in names]
    platforms = [f"--platform=manylinux{tag}_x86_64" for tag in ("2014", "_2_17", "_2_28")]
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += [f"--python-version={options.python}", "--implementation=cp", *platforms]
    return subprocess.run([*command, f"--dest={options.out}", *words]).returncode


def closure(names: Iterable[str], python: str) -> set[str]:
    """Return these installed packages and all that they require, without extras."""
    target = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    target |= {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}
    results: set[str] = set()
    waiting = [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in results:
            continue
        results.add(name)
        for line in importlib.metadata.requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate(target):
                waiting.append(canonicalize_name(requirement.name))
    return results


def versions(lock: str) -> dict[str, str]:
    """Return the version of each package of a lock file."""
    lines = (line.partition(";")[0].strip() for line in lock.splitlines() if "==" in line)
    pairs = (line.split("==") for line in lines)
    return {canonicalize_name(name): version for name, version in pairs}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
