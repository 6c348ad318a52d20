"""Several devices, in a process of its own: JAX simulates them only before it starts.

    found = call(function, 3, devices=4)    # of a module under tests/; what it returns, as JSON
    found = run("print(len(jax.devices()))", devices=4)    # a script; its last line, as JSON

`collectives` counts what devices say to one another in a compiled program.
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
# Devices of one processor wait for each other while others keep it busy.
_FLAGS = (
    "--xla_force_host_platform_device_count={} "
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=300 "
    "--xla_cpu_collective_call_terminate_timeout_seconds=600"
)
# Types are checked only in the process of the tests, because it takes three seconds per start.
_START = """
import json, mmrl, jax
jax.config.update("jax_numpy_rank_promotion", "raise")
"""


def run(script: str, *, devices: int = 4, timeout: float = 1800) -> Any:
    """Return the last line that a script prints, as JSON, with several devices.

    `mmrl`, `jax` and `json` are imported. The script is stopped after `timeout` seconds.
    """
    flags = f"{os.environ.get('XLA_FLAGS', '')} {_FLAGS.format(devices)}".strip()
    done = subprocess.run(
        [sys.executable, "-c", _START + script],
        env={**os.environ, "XLA_FLAGS": flags},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def call(function: Callable[..., Any], *arguments: Any, devices: int = 4) -> Any:
    """Return function(*arguments), computed with several devices; all values must be JSON data."""
    module, name = function.__module__, function.__qualname__
    given = json.dumps(arguments)
    script = f"from {module} import {name}\nprint(json.dumps({name}(*json.loads({given!r}))))"
    return run(script, devices=devices)


def collectives(function: Callable[..., Any], *arguments: Any) -> tuple[dict[str, int], int]:
    """Return the number of collectives of each kind in a compiled function, and their bytes."""
    found = traffic(str(jax.jit(function).lower(*arguments).compile().as_text()))
    return dict(Counter(name for name, _ in found)), sum(size for _, size in found)
