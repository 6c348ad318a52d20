"""How a command ends at Ctrl-C, and what it prints where the encoding lacks our characters."""

import _thread
import codecs
import contextlib
import io
import os
import signal
import sys
import threading
import time
import unicodedata
from collections.abc import Iterator
from types import FrameType
from typing import Any

INTERRUPTED = 130  # the exit code after Ctrl-C

# One column each, so that tables and curves keep their form.
_LIKENESS = dict(zip("▁▂▃▄▅▆▇█→←…·•✓✗─≤≥×−–≈", "12345678><..*+x-<>x--~", strict=True))


class Interrupts:
    """Handle Ctrl-C while a command starts, runs and ends; `pressed` is True after the first one.

    While it runs, Ctrl-C raises KeyboardInterrupt. Python ignores an exception in a callback of
    the garbage collector or of a weak reference; a KeyboardInterrupt that is lost there is raised
    again. Before and after, Ctrl-C ends the process, because modules of C do not pass it on.
    Handlers other than Python's default stay.
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
            os.write(2, b"mmrl: Stopped.\n")  # `print` may be at work at this moment
        os._exit(INTERRUPTED)

    def _repeat(self, ignored: Any) -> None:
        """Raise an ignored KeyboardInterrupt again, once its callback has ended."""
        if not issubclass(ignored.exc_type, KeyboardInterrupt):
            return self._ignored(ignored)
        _thread.start_new_thread(self._press_later, ())  # without the locks of `threading`

    def _press_later(self) -> None:
        time.sleep(0.05)
        if self._runs and hasattr(signal, "pthread_kill"):  # it also ends what the thread waits for
            signal.pthread_kill(self._thread, signal.SIGINT)
        elif self._runs:
            _thread.interrupt_main()


def replace_unknown() -> None:
    """Replace characters that stdout and stderr cannot encode, in place of raising an error."""
    codecs.register_error("mmrl", _replacement)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="mmrl")


def _replacement(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return the ASCII text, or the byte of an undecoded argument, for the first bad character."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    character, end = error.object[error.start], error.start + 1
    if 0xDC80 <= ord(character) <= 0xDCFF:  # PEP 383
        return bytes([ord(character) - 0xDC00]), end
    parts = unicodedata.normalize("NFKD", character)  # a superscript minus is a minus
    return "".join(_LIKENESS.get(x) or _ascii(x) for x in parts) or "?", end


def _ascii(character: str) -> str:
    """Return the letter without accents, the digit or the Greek name, else an empty string."""
    name = unicodedata.name(character, "")
    if name.startswith("GREEK"):
        return name.split()[-1].lower().replace("lamda", "lambda")
    return character.encode("ascii", "ignore").decode()
