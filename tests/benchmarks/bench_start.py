"""CPU-seconds until mmrl is imported, and until `mmrl train` prints its first line.

    python tests/benchmarks/bench_start.py

Each is a new process with compiled Python files. The peer imports JAX, Equinox and
optax, which every program in this field does. Of several starts the quickest counts. The aim is at
most half a CPU-second more for `import mmrl`, which loads no module of the library, and at most 4
CPU-seconds before the first line of `mmrl train`.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator

PEER = "import jax, equinox, optax; print()"
TRAIN = ("train", "probe-Match-v0", "--memory", "none", "--blocks", "1", "--seeds", "0")
STARTS = {
    "import mmrl, then the peer's": ["-c", f"import mmrl; {PEER}"],
    "from mmrl.agents import dqn": ["-c", "from mmrl.agents import dqn; print()"],
    "first line of mmrl train": ["-m", "mmrl", *TRAIN],
}


def seconds(words: list[str]) -> float:
    """CPU-seconds of a process until its first line of output, or its end."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)  # `kill` of subprocess would fetch the usage itself
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
    if not line:
        raise RuntimeError(f"{' '.join(words)} printed nothing.")
    return usage.ru_utime + usage.ru_stime


def run(quick: bool = False) -> Iterator[dict]:
    """A row per start."""
    programs = {"peer": ["-c", PEER], **STARTS}
    best = dict.fromkeys(programs, float("inf"))
    for _ in range(1 if quick else 5):
        for name, words in programs.items():
            best[name] = min(best[name], seconds(words))
    for name in STARTS:
        yield {
            "name": name,
            "ours": best[name],
            "peer": best["peer"],
            "ratio": best["peer"] / best[name],
            "peer_name": PEER.partition(";")[0],
            "unit": "CPU-seconds",
            "target": None,
        }


if __name__ == "__main__":
    for line in run():
        print(f"{line['name']:30} {line['ours']:5.2f} / {line['peer']:5.2f} {line['unit']}")
