"""The end of a command at Ctrl-C, and output where the encoding lacks our characters."""

import _thread
import contextlib
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

INTERRUPTED = 130  # exit code after Ctrl-C


class Interrupts:
    """Handler of Ctrl-C while a command starts, runs and ends; `pressed` is True after the first.

    While the command runs, Ctrl-C raises KeyboardInterrupt. Python ignores an exception in a
    callback of the garbage collector or of a weak reference; a KeyboardInterrupt that is lost there
    is raised again. Before and after, Ctrl-C ends the process, because extension modules do not
    pass it on. Handlers other than Python's default are kept.
    """

    def __init__(self):
        self.pressed, self._runs, self._thread = False, False, threading.get_ident()
        self._restore = contextlib.ExitStack()

    def __enter__(self) -> "Interrupts":
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._restore.callback(signal.signal, signal.SIGINT, signal.default_int_handler)
            self._restore.callback(setattr, sys, "unraisablehook", sys.unraisablehook)
            self._ignored = sys.unraisablehook
            signal.signal(signal.SIGINT, self._press)
            sys.unraisablehook = self._repeat
        return self

    def __exit__(self, *_: object) -> None:
        self._restore.close()

    @contextlib.contextmanager
    def raised(self) -> Iterator[None]:
        """Let Ctrl-C raise KeyboardInterrupt."""
        self._runs = True
        try:
            yield
        finally:
            self._runs = False

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        first, self.pressed = not self.pressed, True
        if self._runs:
            raise KeyboardInterrupt
        if first:
            os.write(2, b"mmrl: Stopped.\n")  # `print` may be interrupted here
        os._exit(INTERRUPTED)

    def _repeat(self, ignored: Any) -> None:
        """Raise an ignored KeyboardInterrupt again, once its callback has ended."""
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            return self._ignored(ignored)
        _thread.start_new_thread(self._press_later, ())  # avoids the locks of `threading`

    def _press_later(self) -> None:
        time.sleep(0.05)
        if self._runs and hasattr(signal, "pthread_kill"):  # also interrupts a wait of the thread
            signal.pthread_kill(self._thread, signal.SIGINT)
        elif self._runs:
            _thread.interrupt_main()


def replace_unknown() -> None:
    """Replace characters that stdout and stderr cannot encode, instead of raising an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
