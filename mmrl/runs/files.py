"""Atomic file updates, and exclusive write access to folders.

A claim on a folder is an `flock`, which the operating system releases when the process exits, even
if it is killed. No stale lock file can block later runs.
"""

import contextlib
import fcntl
import io
import os
import pathlib
import threading
import uuid
import weakref
from collections.abc import Iterator

from mmrl.runs.processes import RunError


def replace(path: pathlib.Path, *parts: bytes | memoryview) -> None:
    """Replace a file atomically. After a crash, it has either the old or the new content.

    The new content consists of all parts. They are not joined in memory.
    """
    partial = path.with_name(path.name + ".partial")
    with open_exclusive(partial) as file:
        try:
            file.truncate(0)
            for left in map(memoryview, parts):
                while left:
                    left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError:
            partial.unlink(missing_ok=True)  # free the disk space
            raise
        os.replace(partial, path)


def create(path: pathlib.Path, content: bytes) -> None:
    """Create a file atomically. Raises `FileExistsError` if it already exists."""
    whole = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        replace(whole, content)
        os.link(whole, path)
    except FileExistsError:
        raise
    except OSError:  # the file system does not support hard links
        if not whole.exists():
            raise
        path.open("xb").close()
        os.replace(whole, path)
    finally:
        whole.unlink(missing_ok=True)


def expand(path: str | os.PathLike) -> pathlib.Path:
    """Expand `~` in a path. Raises `ValueError` if the path is empty."""
    if not os.fspath(path):
        raise ValueError("`path` must name a file or folder; got ''. Use '.' for the current one.")
    return pathlib.Path(os.path.expanduser(path))


def change_time(file: pathlib.Path) -> float:
    """Return the time of the last change of a file, or 0 if it no longer exists."""
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0


@contextlib.contextmanager
def write_errors(path: pathlib.Path) -> Iterator[None]:
    """Convert an `OSError` raised while writing to `path` to a `RunError`."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"Cannot write to {path}: {error.strerror or error}. Choose a writable folder on a "
            "disk with free space. Existing files are intact."
        ) from None


class Claim:
    """Exclusive write access to a folder, held by this process while the object exists.

    The threads of a process share the claim, and hold `turn` while they write.
    """

    def __init__(self, lock: tuple[int, pathlib.Path] | None = None):
        self._lock_file = lock
        self.turn = threading.Lock()
        if lock is not None:
            weakref.finalize(self, os.close, lock[0])

    def check(self) -> None:
        """Raise `RunError` if the folder was moved, removed or replaced since it was claimed."""
        if self._lock_file is None:
            return
        file, path = self._lock_file
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                return
        raise RunError(
            "The folder of this run was moved, removed or replaced during training, so no more "
            "files are written to it. Start again, and leave the folder in place."
        )


_CLAIMS: weakref.WeakValueDictionary[tuple[int, int], Claim] = weakref.WeakValueDictionary()


def claim(folder: pathlib.Path) -> Claim:
    """Claim an existing folder. All callers in this process share the claim.

    Raises `RunError` if another process has claimed the folder.
    """
    place = folder.stat()
    identity = place.st_dev, place.st_ino
    if (other := _CLAIMS.get(identity)) is not None:
        return other
    _CLAIMS[identity] = new = Claim(_lock(folder))
    return new


def _lock(folder: pathlib.Path) -> tuple[int, pathlib.Path] | None:
    """Return a locked file descriptor and its path, or None if the disk does not support locks.

    The folder itself is locked if possible. On NFS, which can lock only files that are open for
    writing, a file in the folder is locked instead.
    """
    for path, flags in ((folder, os.O_RDONLY), (folder / ".lock", os.O_RDWR | os.O_CREAT)):
        file = os.open(path, flags, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file, path
        except BlockingIOError:
            os.close(file)
            raise RunError(
                f"Another process is writing to {folder}. Wait until it has finished, or choose "
                "another folder."
            ) from None
        except OSError:
            os.close(file)
    return None


@contextlib.contextmanager
def open_exclusive(path: pathlib.Path) -> Iterator[io.FileIO]:
    """Open or create a file, and wait for an exclusive lock on it."""
    while True:
        file = io.FileIO(path, "a+")
        with contextlib.suppress(OSError):  # the disk may not support locks
            fcntl.flock(file, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break
        file.close()  # the file was replaced by another process, so open the new one
    with file:
        yield file
