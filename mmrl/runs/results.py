"""Statistics over seeds, and result files with provenance."""

import datetime
import errno
import functools
import os
import pathlib
import platform
import shlex
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from mmrl import __version__
from mmrl.runs.checkpoint import dumps
from mmrl.runs.files import expand, open_exclusive, write_errors

PACKAGES = ("jax", "jaxlib", "equinox", "optax", "gymnax", "numpy")
RESAMPLES = 10_000


def provenance() -> dict[str, Any]:
    """Return the provenance of this process: date, command, device and versions."""
    program = "mmrl" if _is_own_command(sys.argv[0]) else sys.argv[0]
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join([program, *sys.argv[1:]]),
        "device": f"{jax.devices()[0].device_kind}, {_cores()} CPU cores",
        "python": platform.python_version(),
        "versions": {"mmrl": __version__}
        | dict(zip(PACKAGES, map(version, PACKAGES), strict=True)),
        "revision": revision(),
    }


def _is_own_command(program: str) -> bool:
    """Return True if `program` is the command `mmrl`, or the file that `python -m mmrl` runs."""
    path, package = pathlib.Path(program), pathlib.Path(__file__).parents[1]
    return path.name == "mmrl" or path.absolute() == package / "__main__.py"


def _cores() -> int | None:
    """Return the number of CPU cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@functools.cache
def revision() -> str | None:
    """Return the git commit of mmrl, or None outside a checkout; "+" marks uncommitted changes."""
    root = pathlib.Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--dirty=+"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout.strip() or None


def interquartile_mean(values: Float[np.ndarray, "*any seed"]) -> Float[np.ndarray, "*any"]:
    """Return the mean without the ⌊n/4⌋ lowest and ⌊n/4⌋ highest values (Agarwal et al. 2021).

    >>> interquartile_mean(np.array([0.0, 1.0, 2.0, 9.0]))
    array(1.5)
    """
    from scipy import stats  # this import takes half a second

    return np.asarray(stats.trim_mean(values, 0.25, axis=-1))


def interval(values: Float[np.ndarray, " seed"]) -> tuple[float, float, float]:
    """Return the interquartile mean over seeds, and the bounds of its 95 % bootstrap interval.

    The percentile bootstrap (Agarwal et al. 2021) uses 10 000 resamples with a fixed random seed,
    so the result is deterministic. Raises `ValueError` if `values` is empty.

        >>> interval(np.array([1.0, 1.0, 1.0]))
        (1.0, 1.0, 1.0)
    """
    values = np.asarray(values, float)
    if values.size == 0:
        raise ValueError("`values` must contain the result of at least one seed; got none.")
    rows = np.random.default_rng(0).integers(values.size, size=(RESAMPLES, values.size))
    low, high = np.percentile(interquartile_mean(values[rows]), (2.5, 97.5))
    return float(interquartile_mean(values)), float(low), float(high)


def append(path: str | os.PathLike, row: dict[str, Any]) -> None:
    """Append a row with its provenance to a JSON Lines file.

    If the row already has a date, it was measured by another process and keeps its provenance. An
    incomplete last line, left by a killed process, is removed. Raises `RunError` if the file cannot
    be written; it is unchanged in this case.
    """
    path = expand(path)
    with write_errors(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_exclusive(path) as file:
            file.seek(0)
            lines = whole_lines(file.read())
            origin = {} if "date" in row else provenance()
            line = dumps({**row, **origin}).encode() + b"\n"
            try:
                file.truncate(len(lines))
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            except OSError:
                file.truncate(len(lines))
                raise


def whole_lines(content: bytes) -> bytes:
    """Remove an incomplete last line, which a killed process may have left."""
    return content[: content.rfind(b"\n") + 1]
