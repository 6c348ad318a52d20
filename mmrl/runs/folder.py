"""Folder of a run, with atomic updates and a single writer.

    checkpoint      complete state after the last block, and the history
    best            best network of each seed so far
    results.json    setup, provenance, and one row per block (per setting and seed in a sweep)

The checkpoint is written first. If the process is killed before the other files are written, they
are updated when the run is resumed. In a run of several processes, only process 0 reads and writes
files.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
from jaxtyping import PyTree

from mmrl.runs import sweep
from mmrl.runs.checkpoint import dumps, load, loads, read, save
from mmrl.runs.files import Claim, claim, create, expand, replace, write_errors
from mmrl.runs.identity import check_same
from mmrl.runs.processes import RunError, broadcast
from mmrl.runs.setup import grid
from mmrl.runs.snapshot import Best, Rows, Snapshot, better

CHECKPOINT, BEST, RESULTS = "checkpoint", "best", "results.json"
OPEN_LOCK = threading.Lock()  # threads share a claim, but only one of them may start a run
T = TypeVar("T")


class Folder:
    """Folder of a run, which may not exist yet. Only `open`, `write` and `keep` write to it."""

    def __init__(self, path: str | os.PathLike):
        self.path = expand(path)
        self.total_blocks: int | None = None  # total number of blocks of the run in the folder
        self._access: Claim | None = None  # claim that `open` made and `hold` takes over
        self._stamp: tuple[int, int] | None = None  # `_read_stamp()` after our last read or write
        self._best: Best | None = None  # contents of the file `best`

    def description(self) -> dict[str, Any] | None:
        """Return the description of the setup, or None if the folder contains no run.

        Raises `RunError` if the files cannot be read or were not written by mmrl.
        """
        results = self.path / RESULTS
        try:
            if self.has(CHECKPOINT):
                return read(self.path / CHECKPOINT)[0]["setup"]
            return dict(loads(broadcast(results.read_bytes))["setup"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            place = error.filename or self.path
            raise RunError(f"Cannot read {place}: {error.strerror}.") from None
        except (ValueError, KeyError, TypeError):
            raise RunError(
                f"{results} cannot be read, because it was not written by mmrl. Choose another "
                "folder."
            ) from None

    def has(self, name: str) -> bool:
        """Return True if the folder contains the file `name`."""
        return broadcast((self.path / name).exists)

    def open(self, new: Snapshot, like: PyTree, resume: bool) -> Snapshot:
        """Claim the folder, and return the snapshot in it, or `new` if there is none.

        `like` has the structure of the run's state. Raises `RunError` if the folder cannot be
        written, if it contains a run although `resume` is False, or if `resume` is True and it does
        not contain this run.
        """
        with OPEN_LOCK:
            self._check(new.description, resume)  # raise errors before any file is written
            access = self._claim()
            with access.turn:
                return self._open(new, like, resume, access)

    def _open(self, new: Snapshot, like: PyTree, resume: bool, access: Claim) -> Snapshot:
        """Open a claimed folder; see `open`."""
        # Check again, because another process may have changed the folder before the claim.
        on_disk = self._check(new.description, resume)
        blocks = new.description["config"]["blocks"]
        self.total_blocks = on_disk["config"]["blocks"] if on_disk else blocks
        snapshot = new
        if resume and self.has(CHECKPOINT):
            snapshot = self.read(like)._replace(description=new.description)
            if len(snapshot.history) > blocks:
                return snapshot  # the files already contain more blocks
            snapshot = self._catch_up(snapshot, longer=on_disk != new.description)
        self.do(lambda: self._put_results(snapshot, new=on_disk is None))
        self._stamp = self._read_stamp()
        self._access = access if len(snapshot.history) < blocks else None
        return snapshot

    def _check(self, description: dict[str, Any], resume: bool) -> dict[str, Any] | None:
        """Return the setup in the folder. Raises `RunError` if the run cannot use the folder."""
        on_disk, path = self.description(), self.path
        if not resume and on_disk is not None:
            raise RunError(
                f"{path} already contains a {kind(on_disk)}. Resume it (`resume=True`, or "
                "`--resume`) or choose another folder."
            )
        if resume and on_disk is None:
            raise RunError(
                f"There is no {kind(description)} to resume in {path}. Omit `resume=True`, or "
                "`--resume`, to start one."
            )
        if on_disk is not None:
            check_same(path, on_disk, description)
        return on_disk

    def _catch_up(self, snapshot: Snapshot, longer: bool) -> Snapshot:
        """Update the files that are older than the checkpoint, and return the updated snapshot.

        If `longer` is True, the number of blocks has changed, and the new setup is written to
        the checkpoint.
        """
        best = better(snapshot.best, snapshot.state.net, snapshot.history[-1])
        if best is not snapshot.best:
            self.do(lambda: self._put_best(snapshot.header, best))
        snapshot = snapshot._replace(best=best)
        if longer:
            self.do(lambda: self._put_state(snapshot))
        return snapshot

    def header(self, best: bool) -> dict[str, Any]:
        """Return the header of the checkpoint.

        If `best` is True and the checkpoint cannot be read, return the header of the file `best`
        instead. Raises `RunError` if neither file can be read.
        """
        try:
            return read(self.path / CHECKPOINT)[0]
        except RunError:
            with contextlib.suppress(RunError):
                if best:
                    return read(self.path / BEST)[0]
            raise

    def read(self, like: PyTree, best: bool = True) -> Snapshot:
        """Return the snapshot in the folder, including the best networks if `best` is True.

        Raises `RunError` if a file is damaged or was written by another run.
        """
        header, state = load(self.path / CHECKPOINT, like)
        history = header["history"]
        nets = self.read_best(like.net, history) if best else None
        return Snapshot(header["setup"], state, history, nets, origin(header))

    def read_only(self, like: PyTree, best: bool) -> Snapshot:
        """Return a snapshot for inspection, including the best networks if `best` is True.

        If `best` is True and the checkpoint cannot be read, the snapshot contains only the best
        networks, without a state or history.
        """
        header = self.header(best)
        if BEST in header:
            nets = self.read_best(like.net)
            return Snapshot(header["setup"], None, [], nets, origin(header))
        snapshot = self.read(like, best)
        if best and snapshot.best is None and len(snapshot.history) > 1:
            raise RunError(
                f"{self.path} has no best networks, because it was trained by an earlier version "
                "of mmrl. Omit `best`, or `--best`, to use the last networks. If you resume the "
                "run, its best networks will be saved."
            )
        nets = better(snapshot.best, snapshot.state.net, snapshot.history[-1]) if best else None
        return snapshot._replace(best=nets)

    def read_best(self, like: PyTree, history: Rows | None = None) -> Best | None:
        """Return the best networks, or None if their file does not exist.

        Raises `RunError` if the file is damaged or does not match `history`.
        """
        if not self.has(BEST):
            return None
        try:
            header, net = load(self.path / BEST, like)
            block, returns = (header[BEST][name] for name in ("block", "returns"))
            rows = returns
            if history is not None:
                rows = [history[b - 1]["returns"][seed] for seed, b in enumerate(block)]
            if not np.array_equal(rows, returns, equal_nan=True):
                raise ValueError("rows of another history")
        except (RunError, KeyError, IndexError, TypeError, ValueError) as error:
            raise RunError(
                f"{self.path / BEST} is damaged, or belongs to another run. Move or delete this "
                "file. The run itself is intact, and its best networks are saved again when it is "
                "resumed."
            ) from error
        self._best = Best(net, np.asarray(block), np.asarray(returns, float))
        return self._best

    @contextlib.contextmanager
    def hold(self) -> Iterator[Claim]:
        """Hold the claim during training. Raises `RunError` if another run changed the folder."""
        access, self._access = self._access or self._claim(), None
        broadcast(self._check_unchanged)
        yield access

    def _check_unchanged(self) -> None:
        """Raise `RunError` if the checkpoint is not the one that this run read or wrote last."""
        if self._read_stamp() not in (None, self._stamp):
            raise RunError(
                f"Another run has changed {self.path} since this one opened it. Open it "
                "again, with `resume=True` or `--resume`."
            )

    def write(self, snapshot: Snapshot, access: Claim) -> None:
        """Write a snapshot.

        Raises `RunError` if the files cannot be written, or if another run has changed them.
        """

        def put() -> None:
            with access.turn:
                access.check()
                self._check_unchanged()
                try:
                    self._put_state(snapshot)
                    if snapshot.best is not None and snapshot.best is not self._best:
                        self._put_best(snapshot.header, snapshot.best)
                    self._put_results(snapshot)
                finally:
                    self._stamp = self._read_stamp()

        self.do(put)

    def keep(self, snapshot: Snapshot) -> None:
        """Write a snapshot to a new folder. Raises `RunError` if the folder contains a run."""
        access = self._claim()
        if self.description() is not None:
            raise RunError(f"{self.path} already contains a run. Choose another folder.")
        self.write(snapshot, access)

    def do(self, work: Callable[[], T]) -> T:
        """Run `work` on process 0 and return its result. Raises `RunError` if a write fails."""
        with write_errors(self.path):
            return broadcast(work)

    def _put_state(self, snapshot: Snapshot) -> None:
        header = {**snapshot.header, "history": snapshot.history}
        save(self.path / CHECKPOINT, header, snapshot.state)

    def _put_best(self, header: dict[str, Any], best: Best) -> None:
        scores = {"block": best.block.tolist(), "returns": best.returns.tolist()}
        save(self.path / BEST, {**header, BEST: scores}, best.net)
        self._best = best

    def _put_results(self, snapshot: Snapshot, new: bool = False) -> None:
        """Write `results.json`.

        If the run is `new`, the file must not exist. This prevents two runs from starting in the
        same folder on a disk without locks.
        """
        description, history = snapshot.description, snapshot.history
        data = snapshot.header | {"history": history}
        if "over" in description:
            rows = sweep.rows(grid(description["over"]), description["seeds"], history)
            data = snapshot.header | {"env_steps": [x["env_steps"] for x in history], "rows": rows}
        try:
            (create if new else replace)(self.path / RESULTS, dumps(data, indent=1).encode())
        except FileExistsError:
            raise RunError(
                f"Another run was started in {self.path} at the same time. Choose another folder."
            ) from None

    def _claim(self) -> Claim:
        """Create and claim the folder. Only process 0 holds the lock."""
        claims: list[Claim] = []

        def create_and_claim() -> None:
            self.path.mkdir(parents=True, exist_ok=True)
            claims.append(claim(self.path))

        with write_errors(self.path):
            broadcast(create_and_claim)
        return next(iter(claims), Claim())  # processes other than 0 get an empty claim

    def _read_stamp(self) -> tuple[int, int] | None:
        """Return a value that changes when the checkpoint is replaced, or None without one."""
        try:
            file = (self.path / CHECKPOINT).stat()
        except OSError:
            return None
        return file.st_ino, file.st_mtime_ns


def origin(header: dict[str, Any]) -> dict[str, Any]:
    """Extract the provenance from the header of a file."""
    return {k: v for k, v in header.items() if k not in ("setup", "history", BEST)}


def kind(description: dict[str, Any]) -> str:
    """Return "run" or "sweep", depending on the description of a setup."""
    return "sweep" if "over" in description else "run"
