"""The folder of a run: files that are replaced whole, and one process that writes them.

    checkpoint      the state after the last complete block, and the history
    best            each seed's best network so far
    results.json    setup, provenance, and a row per block (or per agent of a sweep), for people

The checkpoint is written first, so that a kill between two files loses no data. In a run of several
processes, process 0 reads and writes.
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
from mmrl.runs.files import Claim, claim, create, expanded, replace, writing
from mmrl.runs.identity import check_same
from mmrl.runs.processes import RunError, broadcast
from mmrl.runs.setup import grid
from mmrl.runs.snapshot import Best, Rows, Snapshot, better

CHECKPOINT, BEST, RESULTS = "checkpoint", "best", "results.json"
OPENING = threading.Lock()  # threads share a claim, but only one may start the run
T = TypeVar("T")


class Folder:
    """A folder that holds a run, or may hold one; `open` is the first call that writes to it."""

    def __init__(self, path: str | os.PathLike):
        self.path = expanded(path)
        self.planned: int | None = None  # blocks planned by the run in it
        self._waiting: Claim | None = None  # held from `open` until training
        self._stamp: tuple[int, int] | None = None  # of the checkpoint that this object wrote
        self._best: Best | None = None  # the networks in its file

    def description(self) -> dict[str, Any] | None:
        """Return the setup in the folder, as `describe` returns it; None without one.

        Raises `RunError` if its files were not written by mmrl.
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
            raise RunError(f"{results} cannot be read: it was not written by mmrl.") from None

    def has(self, name: str) -> bool:
        """Return True if the folder has this file."""
        return broadcast((self.path / name).exists)

    def open(self, new: Snapshot, like: PyTree, resume: bool) -> Snapshot:
        """Claim the folder for a run, and return the snapshot in it, or `new` if it has none.

        `like` has the structure of its state. Raises `RunError` if the folder holds a run and
        `resume` is False, if it holds no run or another one and `resume` is True, and if it cannot
        be written.
        """
        with OPENING:
            self._check(new.description, resume)  # before anything is written
            own = self._claimed()
            there = self._check(new.description, resume)  # no other process can change it now
            blocks = new.description["config"]["blocks"]
            self.planned = there["config"]["blocks"] if there else blocks
            snapshot = new
            if resume and self.has(CHECKPOINT):
                snapshot = self.read(like)._replace(description=new.description)
                if len(snapshot.history) > blocks:
                    return snapshot  # the files already have more blocks
                snapshot = self._catch_up(snapshot, prolonged=there != new.description)
            self.do(lambda: self._put_results(snapshot, new=there is None))
            self._stamp = self._stamped()
            self._waiting = own if len(snapshot.history) < blocks else None
        return snapshot

    def _check(self, description: dict[str, Any], resume: bool) -> dict[str, Any] | None:
        """Return the setup in the folder, or raise `RunError` if this run cannot use the folder."""
        there, path = self.description(), self.path
        if not resume and there is not None:
            raise RunError(
                f"{path} already holds a {kind(there)}. Resume it (`resume=True`, or `--resume`) "
                "or choose another folder."
            )
        if resume and there is None:
            raise RunError(
                f"There is no {kind(description)} to resume in {path}. Omit `resume=True`, or "
                "`--resume`, to start one."
            )
        if there is not None:
            check_same(path, there, description)
        return there

    def _catch_up(self, snapshot: Snapshot, prolonged: bool) -> Snapshot:
        """Rewrite files that are older than the checkpoint; write a longer setup into it."""
        best = better(snapshot.best, snapshot.state.net, snapshot.history[-1])
        if best is not snapshot.best:
            self.do(lambda: self._put_best(snapshot.header, best))
        snapshot = snapshot._replace(best=best)
        if prolonged:
            self.do(lambda: self._put_state(snapshot))
        return snapshot

    def header(self, best: bool) -> dict[str, Any]:
        """Return the checkpoint's header; if that is lost and `best` suffices, that of `best`.

        Raises `RunError` if no file can be read.
        """
        try:
            return read(self.path / CHECKPOINT)[0]
        except RunError:
            with contextlib.suppress(RunError):
                if best:
                    return read(self.path / BEST)[0]
            raise

    def read(self, like: PyTree, best: bool = True) -> Snapshot:
        """Return the snapshot in the folder; with `best`, with its best networks if they exist.

        Raises `RunError` if a file is damaged or belongs to another run.
        """
        header, state = load(self.path / CHECKPOINT, like)
        history = header["history"]
        nets = self.read_best(like.net, history) if best else None
        return Snapshot(header["setup"], state, history, nets, origin(header))

    def read_only(self, like: PyTree, best: bool) -> Snapshot:
        """Return a snapshot for inspection; with `best`, the best networks up to the last block.

        If the checkpoint is lost, `best` suffices; the snapshot then has no state and no history.
        """
        header = self.header(best)
        if BEST in header:
            nets = self.read_best(like.net)
            return Snapshot(header["setup"], None, [], nets, origin(header))
        snapshot = self.read(like, best)
        if best and snapshot.best is None and len(snapshot.history) > 1:
            raise RunError(
                f"{self.path} has no best networks, because an earlier version trained it. Omit "
                "`best`, or `--best`, to use the last networks. If you resume the run, it saves "
                "its best networks from then on."
            )
        nets = better(snapshot.best, snapshot.state.net, snapshot.history[-1]) if best else None
        return snapshot._replace(best=nets)

    def read_best(self, like: PyTree, history: Rows | None = None) -> Best | None:
        """Return the best networks, or None if their file does not exist.

        Raises `RunError` if the file is damaged, or does not belong to this `history`, if that is
        known.
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
                f"{self.path / BEST} is damaged, or belongs to another run. Move it away: the "
                "run itself is intact, and saves its best networks again once it is resumed."
            ) from error
        self._best = Best(net, np.asarray(block), np.asarray(returns, float))
        return self._best

    @contextlib.contextmanager
    def held(self) -> Iterator[Claim]:
        """Hold the folder during training; it must be as this object left it."""
        own, self._waiting = self._waiting or self._claimed(), None
        if broadcast(lambda: self._stamped() not in (None, self._stamp)):
            raise RunError(
                f"Another run has changed {self.path} since this one opened it. Open it "
                "again, with `resume=True` or `--resume`."
            )
        yield own

    def write(self, snapshot: Snapshot, own: Claim) -> None:
        """Replace the files with a snapshot; raise `RunError` if that fails."""

        def put() -> None:
            own.check()
            self._put_state(snapshot)
            if snapshot.best is not None and snapshot.best is not self._best:
                self._put_best(snapshot.header, snapshot.best)
            self._put_results(snapshot)

        try:
            self.do(put)
        finally:
            self._stamp = self._stamped()

    def keep(self, snapshot: Snapshot) -> None:
        """Write a snapshot into a folder without a run. Raise `RunError` if it holds one."""
        own = self._claimed()
        if self.description() is not None:
            raise RunError(f"{self.path} already holds a run. Choose another folder.")
        self.write(snapshot, own)

    def do(self, work: Callable[[], T]) -> T:
        """Run `work`, which writes below the folder, on process 0; raise errors with the cause."""
        with writing(self.path):
            return broadcast(work)

    def _put_state(self, snapshot: Snapshot) -> None:
        header = {**snapshot.header, "history": snapshot.history}
        save(self.path / CHECKPOINT, header, snapshot.state)

    def _put_best(self, header: dict[str, Any], best: Best) -> None:
        scores = {"block": best.block.tolist(), "returns": best.returns.tolist()}
        save(self.path / BEST, {**header, BEST: scores}, best.net)
        self._best = best

    def _put_results(self, snapshot: Snapshot, new: bool = False) -> None:
        """Write the results. On a disk without locks, only one new run can create their file."""
        description, history = snapshot.description, snapshot.history
        data = snapshot.header | {"history": history}
        if "over" in description:
            rows = sweep.rows(grid(description["over"]), description["seeds"], history)
            data = snapshot.header | {"env_steps": [x["env_steps"] for x in history], "rows": rows}
        try:
            (create if new else replace)(self.path / RESULTS, dumps(data, indent=1).encode())
        except FileExistsError:
            raise RunError(
                f"Another run began in {self.path} at the same moment. Choose another folder."
            ) from None

    def _claimed(self) -> Claim:
        """Create and claim the folder for all processes; process 0 holds the lock."""
        own: list[Claim] = []

        def on_disk() -> None:
            self.path.mkdir(parents=True, exist_ok=True)
            own.append(claim(self.path))

        with writing(self.path):
            broadcast(on_disk)
        return next(iter(own), Claim())  # in each process, so that all agree

    def _stamped(self) -> tuple[int, int] | None:
        """Return a mark that changes with every replacement of the checkpoint; None without one."""
        try:
            file = (self.path / CHECKPOINT).stat()
        except OSError:
            return None
        return file.st_ino, file.st_mtime_ns


def origin(header: dict[str, Any]) -> dict[str, Any]:
    """Return the provenance in the header of a file."""
    return {k: v for k, v in header.items() if k not in ("setup", "history", BEST)}


def kind(description: dict[str, Any]) -> str:
    """Return the word for a folder's contents: "run" or "sweep"."""
    return "sweep" if "over" in description else "run"
