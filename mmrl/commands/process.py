"""Handling of Ctrl-C, and of characters that the terminal cannot encode."""

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

INTERRUPT_CODE = 130  # exit code after Ctrl-C


class Interrupts:
    """Handler of Ctrl-C for the process of a command.

    Inside `raising`, Ctrl-C raises KeyboardInterrupt. Python discards exceptions in callbacks of
    weak references and of the garbage collector, so a KeyboardInterrupt that is lost there is
    raised again. Outside `raising`, while a command starts or ends, Ctrl-C ends the process,
    because extension modules may not propagate the exception. `pressed` is True after the first
    Ctrl-C. The handler is only installed if the current one is Python's default.
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
    def as_exceptions(self) -> Iterator[None]:
        """Make Ctrl-C raise KeyboardInterrupt inside this context."""
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
            os.write(2, b"mmrl: Stopped.\n")  # `print` is not reentrant in signal handlers
        os._exit(INTERRUPT_CODE)

    def _repeat(self, event: Any) -> None:
        """Raise a discarded KeyboardInterrupt again, after the callback has returned."""
        if not issubclass(event.exc_type, KeyboardInterrupt):
            return self._ignored(event)
        _thread.start_new_thread(self._press_later, ())  # `threading` might wait for a lock

    def _press_later(self) -> None:
        time.sleep(0.05)
        if self._runs and hasattr(signal, "pthread_kill"):  # also interrupts blocking system calls
            signal.pthread_kill(self._thread, signal.SIGINT)
        elif self._runs:
            _thread.interrupt_main()


def replace_unknown() -> None:
    """Make stdout and stderr replace characters that they cannot encode."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
