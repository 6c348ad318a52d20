"""A training run in a background thread, which can be paused and stopped."""

import copy
import threading
from collections.abc import Callable

import numpy as np

from mmrl.course.widgets.training.live import Curve
from mmrl.runs import Report, Run, RunError, Setup

COMPILATION = "compiling (10 to 30 s for new settings, no time for earlier ones) …"
ACTIVE = ("compiling", "training", "pausing", "paused")


class Trial:
    """A run in a separate thread, which calls `notify` without arguments after every change.

    XLA cannot be interrupted, so a pause begins at the end of a block. A stop takes effect
    immediately, but the current block continues in the background, and its result is discarded.
    """

    def __init__(self, setup: Setup, curve: Curve, notify: Callable[[], None]):
        self.setup, self.curve, self.notify = setup, curve, notify
        self.status = "compiling"  # one of `ACTIVE`, or "done", "stopped", "failed"
        self.run: Run | None = None
        self.last_run: Run | None = None  # the run after its last finished block
        self.reports: list[Report] = []
        self.error: Exception | None = None
        self.over = False  # True if the thread has ended, which may be some time after a stop
        self.finished = threading.Event()  # set after the last callback
        self._go, self._lock = threading.Event(), threading.Lock()
        self._go.set()
        threading.Thread(target=self._work, name=curve.name, daemon=True).start()

    @property
    def active(self) -> bool:
        """True until the run is done, stopped or failed."""
        return self.status in ACTIVE

    def pause(self) -> None:
        """Pause at the end of the current block, or resume."""
        with self._lock:
            if self.status in ("pausing", "paused"):
                self.status = "training"
                self._go.set()
            elif self.active:
                self.status = "pausing"
                self._go.clear()

    def stop(self) -> None:
        """Stop immediately, and discard the result of the current compilation or block."""
        with self._lock:
            self.status = "stopped" if self.active else self.status
            self._go.set()

    def _work(self) -> None:
        try:
            self.run = Run(self.setup)
            for report in self.run:
                if not self._count(report):
                    break
                self.notify()
                self._go.wait()
                if not self.active:
                    break
            self._end("done")
        except Exception as error:  # store the error, because it would be lost with the thread
            self.error = error
            self._end("failed")
        finally:
            self.over = True
            try:
                self.notify()
            finally:
                self.finished.set()

    def _count(self, report: Report) -> bool:
        """Add the report of a block. Return False if the run has been stopped."""
        with self._lock:
            if self.active:
                self.reports.append(report)
                self.last_run = copy.copy(self.run)
                self.curve.add(report.env_steps, report.returns)
                self.status = "training" if self._go.is_set() else "paused"
            return self.active

    def _end(self, status: str) -> None:
        with self._lock:
            self.status = status if self.active else self.status

    def __str__(self) -> str:
        """Describe the status and the progress of the run."""
        past, blocks = len(self.reports), self.setup.config.blocks
        times = [report.seconds for report in self.reports]
        if self.status == "failed":
            is_known = isinstance(self.error, ValueError | RunError)
            return f"{'' if is_known else f'{type(self.error).__name__}: '}{self.error}"
        if self.status == "stopped":
            rest = "" if self.over else ". XLA finishes in the background; you can continue"
            return f"stopped after block {past} of {blocks}{rest}"
        if self.status == "pausing":
            return "pauses at the end of this block"
        if not past:
            return COMPILATION
        so_far = f"{self.status}, block {past} of {blocks}"
        if past == 1:  # the first block includes compilation, so it does not predict later ones
            return f"{so_far}, {_seconds(times[0])} including compilation"
        pace = float(np.mean(times[1:]))
        left = f", about {pace * (blocks - past):.0f} s left" if self.active else ""
        return f"{so_far}, {_seconds(pace)} per block{left}"


def _seconds(time: float) -> str:
    return f"{time:.2g} s" if time < 10 else f"{time:.0f} s"
