"""Results that can be trusted later: intervals over seeds, and rows with their provenance."""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
import sys
from typing import Any

import jax
import numpy as np
import scipy.stats
from jaxtyping import Float

from mmrl.runs.checkpoint import writing


def provenance() -> dict[str, Any]:
    """Where a number comes from: device, versions, date and command."""
    packages = ("mmrl", "jax", "jaxlib", "equinox", "optax", "gymnax", "numpy")
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": " ".join(["mmrl" if "mmrl" in sys.argv[0] else sys.argv[0], *sys.argv[1:]]),
        "device": f"{jax.devices()[0].device_kind}, {os.cpu_count()} CPU cores",
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }


def interval(values: Float[np.ndarray, " seed"]) -> tuple[float, float, float]:
    """(interquartile mean, low, high): a 95 % percentile bootstrap interval over seeds.

    Agarwal et al. 2021. 10 000 resamples from a fixed seed, so the same values give the same
    interval. Raises `ValueError` without values.
    """
    values = np.asarray(values, float)
    if values.size == 0:
        raise ValueError("`values` must hold at least one seed's result; got none.")

    def iqm(x, axis=-1):
        return scipy.stats.trim_mean(x, 0.25, axis=axis)

    if np.ptp(values) == 0:
        return float(iqm(values)), float(values[0]), float(values[0])
    low, high = scipy.stats.bootstrap(
        (values,), iqm, n_resamples=10_000, method="percentile", rng=0
    ).confidence_interval
    return float(iqm(values)), float(low), float(high)


def append(path: str | os.PathLike, row: dict[str, Any]) -> None:
    """Add one result with its provenance to a file of JSON lines; earlier lines are never touched.

    Raises `RunError` if it cannot be written.
    """
    path = pathlib.Path(path)
    with writing(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(json.dumps({**row, **provenance()}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
