"""What one student costs: memory and CPU time of chapters, each run as a reader runs it.

`python book/hub/measure.py 07 14` runs these chapters, without names all of them: first with an
empty cache of compiled programs, then again with the full one, as a student who comes back. Each
run adds a row to book/hub/measured.jsonl. Memory includes the kernel and all its children,
sampled twice a second; pages that many kernels share, such as the code of JAX, count in each.
"""

import os
import sys
import tempfile
import threading
import time
from pathlib import Path

import nbformat
import psutil
from nbclient import NotebookClient

from mmrl.runs.results import append

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "book" / "hub" / "measured.jsonl"
# The tests' settings make runs cheaper, or their programs slower.
OURS = ("XLA_FLAGS", "MMRL_FAST", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")


class Meter(threading.Thread):
    """The most memory, and the CPU time, of a process and its children while it runs."""

    def __init__(self, pid: int):
        threading.Thread.__init__(self, daemon=True)
        self.process = psutil.Process(pid)
        self.peak = 0
        self.cpu: dict[int, float] = {}
        self.end = threading.Event()

    def run(self) -> None:
        while not self.end.wait(0.5):
            self.sample()

    def sample(self) -> None:
        memory = 0
        try:
            for process in [self.process, *self.process.children(recursive=True)]:
                memory += process.memory_info().rss
                times = process.cpu_times()
                self.cpu[process.pid] = times.user + times.system
        except psutil.NoSuchProcess:
            return
        self.peak = max(self.peak, memory)


def measure(path: Path, cache: str) -> dict[str, float]:
    """Peak memory in MB, and CPU seconds, of one run of a notebook."""
    for name in OURS:
        os.environ.pop(name, None)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = cache
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
    notebook = nbformat.read(path, 4)
    client = NotebookClient(
        notebook, timeout=1200, resources={"metadata": {"path": str(path.parent)}}
    )
    begun = time.monotonic()
    with client.setup_kernel():
        meter = Meter(client.km.provisioner.pid)
        meter.start()
        for i, cell in enumerate(notebook.cells):
            client.execute_cell(cell, i)
        meter.end.set()
        meter.join()
        meter.sample()
    return {
        "peak_mb": round(meter.peak / 1e6),
        "cpu_seconds": round(sum(meter.cpu.values()), 1),
        "seconds": round(time.monotonic() - begun, 1),
    }


def main(names: list[str]) -> None:
    chapters = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
    for wanted in names or [path.name for path in chapters]:
        [path] = [path for path in chapters if path.name.startswith(wanted)]
        with tempfile.TemporaryDirectory() as cache:
            for kind in ("empty", "full"):
                about = {"chapter": path.stem, "cache": kind, "load": round(os.getloadavg()[0], 1)}
                row = about | measure(path, cache)
                append(MEASURED, row)
                print(row, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
