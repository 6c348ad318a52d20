"""A rival in another Python: what bench_ppo.py and bench_r2d2.py share.

A rival whose dependencies are not ours has an environment of its own, and a script here that runs
in it, without mmrl:

    PYTHON <package>_<agent>.py SETTINGS.json

It builds what the settings say, says so in a line {"parameters": …} and then, for every line that
it reads, plays a round and answers {"cpu_seconds": …}. It ends when it has nothing more to read.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple


class Rival(NamedTuple):
    """Where to find one."""

    script: pathlib.Path
    version: str  # of its package, after which the script is named

    @property
    def name(self) -> str:
        """The package."""
        return self.script.stem.partition("_")[0]

    @property
    def variable(self) -> str:
        """Of our environment: the interpreter that has it."""
        return f"{self.name.upper()}_PYTHON"

    def python(self, agent: str, benchmark: str) -> str | None:
        """That interpreter; without one, None and a word on what is not compared."""
        result = os.environ.get(self.variable)
        if result is None:
            print(
                f"{self.variable} is not set: {agent} is not compared with {self.name}. "
                f"{pathlib.Path(benchmark).name} says how to set it up.",
                file=sys.stderr,
            )
        return result


class Theirs:
    """Rounds of a rival, in a process that waits between them."""

    def __init__(self, rival: Rival, python: str, settings: dict[str, Any]):
        self.rival = rival
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "settings.json"
            path.write_text(json.dumps(settings), "utf-8")
            self.process = subprocess.Popen(
                [python, str(rival.script), str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self.parameters = self._answer()["parameters"]
        self.round()  # compiles

    def round(self) -> float:
        """The CPU-seconds of one."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self._answer()["cpu_seconds"]

    def close(self) -> None:
        """It ends when it has nothing more to read."""
        self.process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"{self.rival.name} ended with exit code {self.process.wait()}; its message is "
                f"above. Is {self.rival.name} {self.rival.version} installed for the interpreter "
                f"that {self.rival.variable} names?"
            )
        return json.loads(line)


def cpu_seconds() -> float:
    """The CPU-seconds of this process so far.

    Of another thread, such as one of XLA's, the kernel counts only what came before the last clock
    tick until that thread waits: without the pause, a program of a few milliseconds may seem free.
    """
    time.sleep(1e-3)
    return time.process_time()
