"""Files that are replaced as a whole, and folders that one process writes at a time.

The operating system holds a claim for as long as the process lives, so a kill releases it, and a
leftover file does not block later runs.
"""

import contextlib
import fcntl
import io
import os
import pathlib
import uuid
import weakref
from collections.abc import Iterator

from mmrl.runs.processes import RunError


def replace(path: pathlib.Path, content: bytes) -> None:
    """Replace a file as a whole: after a crash it is either the old or the new one."""
    partial = path.with_name(path.name + ".partial")
    with alone(partial) as file:
        try:
            file.truncate(0)
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]
            os.fsync(file.fileno())
        except OSError:
            partial.unlink(missing_ok=True)  # a partial file would only fill the disk
            raise
        os.replace(partial, path)


def create(path: pathlib.Path, content: bytes) -> None:
    """Write a new file as a whole. Raise `FileExistsError` if it exists, and leave it unchanged."""
    whole = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        replace(whole, content)
        os.link(whole, path)
    except FileExistsError:
        raise
    except OSError:  # on a disk without links
        if not whole.exists():
            raise
        path.open("xb").close()
        os.replace(whole, path)
    finally:
        whole.unlink(missing_ok=True)


def expanded(path: str | os.PathLike) -> pathlib.Path:
    """Return a path with the user's home for `~`. Raise `ValueError` for an empty string."""
    if not os.fspath(path):
        raise ValueError("`path` must name a file or a folder; got ''. Use '.' for this folder.")
    return pathlib.Path(os.path.expanduser(path))


@contextlib.contextmanager
def writing(path: pathlib.Path) -> Iterator[None]:
    """Turn a failure to write under `path` into a `RunError` with the reason."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"Cannot write to {path}: {error.strerror or error}. Choose a folder that you may "
            "write to, not below a file, on a disk with room. Files saved earlier are intact."
        ) from None


class Claim:
    """Right to write to a folder, exclusive to this process while the object exists."""

    def __init__(self, locked: tuple[int, pathlib.Path] | None = None):
        self._locked = locked
        if locked is not None:
            weakref.finalize(self, os.close, locked[0])

    def check(self) -> None:
        """Raise `RunError` if the folder was removed or replaced, so that the claim is void."""
        if self._locked is None:
            return
        file, path = self._locked
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file), path.stat()):
                return
        raise RunError(
            "The folder of this run was moved, removed or replaced during training, so no more "
            "files are written there. Start again, in a folder that stays in place."
        )


_CLAIMS: weakref.WeakValueDictionary[tuple[int, int], Claim] = weakref.WeakValueDictionary()


def claim(folder: pathlib.Path) -> Claim:
    """Claim an existing folder; the callers of one process share a claim.

    Raises `RunError` if another process has claimed it.
    """
    place = folder.stat()
    identity = place.st_dev, place.st_ino
    if (shared := _CLAIMS.get(identity)) is not None:
        return shared
    _CLAIMS[identity] = new = Claim(_locked(folder))
    return new


def _locked(folder: pathlib.Path) -> tuple[int, pathlib.Path] | None:
    """Return a locked descriptor and its path, or None on a disk without locks.

    NFS locks only files that are open for writing, so the folder itself cannot be locked.
    """
    for path, flags in ((folder, os.O_RDONLY), (folder / ".lock", os.O_RDWR | os.O_CREAT)):
        file = os.open(path, flags, 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file, path
        except BlockingIOError:
            os.close(file)
            raise RunError(
                f"Another process is writing to {folder}. Wait until it ends, or choose another "
                "folder."
            ) from None
        except OSError:
            os.close(file)
    return None


@contextlib.contextmanager
def alone(path: pathlib.Path) -> Iterator[io.FileIO]:
    """Open a file, new or existing, that no other process writes in this block; wait for it."""
    while True:
        file = io.FileIO(path, "a+")
        with contextlib.suppress(OSError):  # on a disk without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break
        file.close()  # another process has replaced the file
    with file:
        yield file
