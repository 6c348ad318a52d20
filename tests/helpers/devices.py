"""Computation on several simulated devices in a separate process.

A separate process is needed because the number of simulated devices cannot change after JAX has
started.

    result = call(function, 3, devices=4)                   # returns function(3), via JSON
    result = run("print(len(jax.devices()))", devices=4)    # returns the last line, as JSON

`collectives` counts the collective operations in a compiled program.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from mmrl.course.ch18_many_devices.collectives import traffic

_ROOT = Path(__file__).parent.parent.parent
# The limit is generous, because simulated devices wait for each other on a busy processor.
_FLAGS = (
    "--xla_force_host_platform_device_count={} "
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=300 "
    "--xla_cpu_collective_call_terminate_timeout_seconds=600"
)
# Type checks are enabled only in the main process, because they take three seconds per start.
_START = """
import json, mmrl, jax
jax.config.update("jax_numpy_rank_promotion", "raise")
"""


def run(script: str, *, devices: int = 4, timeout: float = 1800) -> Any:
    """Run a script with several devices, and parse the last line of its output as JSON.

    The script can use `mmrl`, `jax` and `json`, which are imported. The process is stopped after
    `timeout` seconds.
    """
    flags = f"{os.environ.get('XLA_FLAGS', '')} {_FLAGS.format(devices)}".strip()
    process = subprocess.run(
        [sys.executable, "-c", _START + script],
        env={**os.environ, "XLA_FLAGS": flags},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    return json.loads(process.stdout.splitlines()[-1])


def call(function: Callable[..., Any], *arguments: Any, devices: int = 4) -> Any:
    """Call a function with several devices. Its arguments and result must be JSON values."""
    module, name = function.__module__, function.__qualname__
    text = json.dumps(arguments)
    script = f"from {module} import {name}\nprint(json.dumps({name}(*json.loads({text!r}))))"
    return run(script, devices=devices)


def collectives(function: Callable[..., Any], *arguments: Any) -> tuple[dict[str, int], int]:
    """Return the number of each kind of collective in a compiled function, and the total bytes."""
    result = traffic(str(jax.jit(function).lower(*arguments).compile().as_text()))
    return dict(Counter(name for name, _ in result)), sum(size for _, size in result)
