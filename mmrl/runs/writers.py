"""Writers: a run's blocks as a table for spreadsheets, and as curves in TensorBoard.

    for report in logged(run, "csv", "tensorboard"):    # the same reports, each written first
        ...

For anything else, write your code in such a loop. A resumed run continues in the same files,
without a gap or a duplicate block, because each writer starts from the run's whole history.
"""

import csv
import functools
import importlib
import io
import pathlib
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mmrl.runs.files import replace
from mmrl.runs.run import Report, Run

TABLE, EVENTS = "history.csv", "tensorboard"  # in a run's folder
COLUMNS = ("block", "env_steps", "seed", "return", "loss", "fill", "seconds")


def logged(run: Run, *names: str) -> Iterator[Report]:
    """Yield the reports of `run`, each after the writers called `names` have written it.

    Existing blocks are written at once. Raises `ValueError` for a name that is not in `WRITERS`, a
    run without a path, or a missing package, and `RunError` if a file cannot be written.
    """
    check_writers(names)
    if not names:
        return iter(run)
    if (folder := run.folder) is None:
        raise ValueError("`run` must have a `path`, the folder to write to; got None.")
    if run.setup.over:
        raise ValueError("`run` must not have `over`, because a sweep has no log; got a sweep.")
    writers = [WRITERS[name](run, folder.path) for name in names]

    def write() -> None:
        for writer in writers:
            writer()

    def reports() -> Iterator[Report]:
        for report in run:
            folder.do(write)
            yield report

    folder.do(write)
    return reports()


def check_writers(names: Sequence[str]) -> None:
    """Raise `ValueError` for a name that is not in `WRITERS`, or if its package is missing."""
    if unknown := [name for name in names if name not in WRITERS]:
        raise ValueError(f"`log` must name some of {list(WRITERS)}; got {unknown}.")
    if "tensorboard" in names:
        _tensorboard("summary")


def begun(folder: pathlib.Path) -> list[str]:
    """Return the writers that have written to a run's folder."""
    files = {"csv": TABLE, "tensorboard": EVENTS}
    return [name for name, file in files.items() if (folder / file).exists()]


def write_table(run: Run, path: pathlib.Path) -> None:
    """Replace `history.csv` with a row for each block and seed.

    `return` is the mean over the evaluation's episodes; `seconds` is the time of the whole block.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for row in run.history:
        for numbers in zip(run.setup.seeds, row["returns"], row["loss"], row["fill"], strict=True):
            table.writerow([row["block"], row["env_steps"], *numbers, row["seconds"]])
    replace(path, text.getvalue().encode())


class TensorBoard:
    """Event files in `tensorboard/seed-<n>`, one run each, so that their curves overlap.

    A step is a step of the environment. A new process writes all blocks again, after an event that
    makes TensorBoard discard the earlier ones. So a partial file is completed, and no block appears
    twice.
    """

    def __init__(self, run: Run, folder: pathlib.Path):
        self.run, self.folder = run, folder / EVENTS
        self.name, self.written = f"events.out.tfevents.{time.time_ns()}", 0
        # Count only the time spent in blocks, so that the curves have no pause between two
        # processes.
        self.began = time.time() - sum(row["seconds"] for row in run.history)

    def __call__(self) -> None:
        proto, scalar = _tensorboard("proto.event_pb2"), _tensorboard("summary").scalar
        times = self.began + np.cumsum([row["seconds"] for row in self.run.history])
        rows, times = self.run.history[self.written :], times[self.written :]
        for i, seed in enumerate(self.run.setup.seeds):
            events, path = [], self.folder / f"seed-{seed}" / self.name
            if not path.exists():
                start = proto.SessionLog(status=proto.SessionLog.START)
                events = [proto.Event(file_version="brain.Event:2")]
                events += [proto.Event(step=0, session_log=start)]
            for row, now in zip(rows, times, strict=True):
                place = {"wall_time": now, "step": row["env_steps"]}
                for tag, key in (("return", "returns"), ("loss", "loss"), ("fill", "fill")):
                    events.append(proto.Event(summary=scalar(tag, row[key][i]), **place))
            _append(path, events)
        self.written = len(self.run.history)


def _append(path: pathlib.Path, events: Sequence[Any]) -> None:
    """Write events at the end of a file, each between its length and checksums, and close it.

    The package's `SummaryWriter` writes in a thread that hangs without an error if the disk is
    full. Its `RecordWriter` cannot append, so the file of every seed would have to stay open.
    """
    check = _tensorboard("record_writer").masked_crc32c
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        for data in (event.SerializeToString() for event in events):
            size = struct.pack("<Q", len(data))
            sums = (struct.pack("<I", check(x)) for x in (size, data))
            file.write(size + next(sums) + data + next(sums))


Make = Callable[[Run, pathlib.Path], Callable[[], None]]
WRITERS: dict[str, Make] = {
    "csv": lambda run, folder: functools.partial(write_table, run, folder / TABLE),
    "tensorboard": TensorBoard,
}
"""Functions (run, folder) -> writer of the new blocks, by name."""


def _tensorboard(module: str) -> Any:
    try:
        return importlib.import_module(f"tensorboardX.{module}")
    except ModuleNotFoundError:
        raise ValueError(
            "`log` = 'tensorboard' needs tensorboardX, of the extra mmrl-jax[tensorboard]: "
            "`pip install tensorboardX`, or in a checkout `pip install -e '.[tensorboard]'`."
        ) from None
