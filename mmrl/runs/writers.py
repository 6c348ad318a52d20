"""Loggers for runs: a CSV table and TensorBoard event files.

    for report in log_reports(run, "csv", "tensorboard"):    # the same reports, each written first
        ...

To use another logger, call it in the body of this loop. A resumed run continues its logs: each
writer starts with the complete history of the run, so no block is missing or duplicated.
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

TABLE, EVENTS = "history.csv", "tensorboard"  # names of a file and of a folder
COLUMNS = ("block", "env_steps", "seed", "return", "loss", "fill", "seconds")


def log_reports(run: Run, *names: str) -> Iterator[Report]:
    """Return an iterator over the reports of `run` that logs each report before yielding it.

    `names` are keys of `WRITERS`. Blocks that have already been trained are logged immediately.

    Raises `ValueError` for an unknown name, for a run without a path, for a sweep, and if a
    required package is not installed. Raises `RunError` if a file cannot be written.
    """
    check_writers(names)
    if not names:
        return iter(run)
    if (folder := run.folder) is None:
        raise ValueError("`run` must have a `path`, because the log is written there; got None.")
    if run.setup.over:
        raise ValueError(
            "`run` must not be a sweep, because a log has one curve per seed; got a setup with "
            "`over`. Read the curves from the run's results.json."
        )
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
    """Raise `ValueError` for an unknown name, or if a required package is not installed."""
    if extra := [name for name in names if name not in WRITERS]:
        raise ValueError(f"`log` must contain only names from {list(WRITERS)}; got {extra}.")
    if "tensorboard" in names:
        _tensorboard("summary")


def writers_in(folder: pathlib.Path) -> list[str]:
    """Return the names of the writers that have already written to a folder."""
    files = {"csv": TABLE, "tensorboard": EVENTS}
    return [name for name, file in files.items() if (folder / file).exists()]


def write_table(run: Run, path: pathlib.Path) -> None:
    """Write `history.csv`, with a row for each block and seed.

    The column `return` is the mean over the episodes of an evaluation, and `seconds` is the
    duration of the block.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for row in run.history:
        for numbers in zip(run.setup.seeds, row["returns"], row["loss"], row["fill"], strict=True):
            table.writerow([row["block"], row["env_steps"], *numbers, row["seconds"]])
    replace(path, text.getvalue().encode())


class TensorBoard:
    """Writer of TensorBoard event files, one in `tensorboard/seed-<n>` for each seed.

    The step of an event is the number of environment steps. The first event that a process writes
    makes TensorBoard discard all earlier events, and the process then writes all blocks again. So
    no block is missing after an interrupted write, and none is shown twice.
    """

    def __init__(self, run: Run, folder: pathlib.Path):
        self.run, self.folder = run, folder / EVENTS
        self.name, self.count = f"events.out.tfevents.{time.time_ns()}", 0
        # Use only the time spent in blocks, so that curves over time have no gap between the end
        # of a process and the start of the next one.
        self.start_time = time.time() - sum(row["seconds"] for row in run.history)

    def __call__(self) -> None:
        proto, scalar = _tensorboard("proto.event_pb2"), _tensorboard("summary").scalar
        times = self.start_time + np.cumsum([row["seconds"] for row in self.run.history])
        rows, times = self.run.history[self.count :], times[self.count :]
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
        self.count = len(self.run.history)


def _append(path: pathlib.Path, events: Sequence[Any]) -> None:
    """Append events to a file in TensorBoard's record format.

    Two classes of tensorboardX are not suitable: if the disk is full, the thread of `SummaryWriter`
    hangs without an error; and `RecordWriter` cannot append to an existing file, so a file per seed
    would have to stay open during training.
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
"""Factories of writers. Each takes (run, folder) and returns a function that logs new blocks."""


def _tensorboard(module: str) -> Any:
    try:
        return importlib.import_module(f"tensorboardX.{module}")
    except ModuleNotFoundError:
        raise ValueError(
            "`log` = 'tensorboard' requires tensorboardX, from the extra mmrl-jax[tensorboard]. "
            "Run `pip install tensorboardX`, or in a checkout `pip install -e '.[tensorboard]'`."
        ) from None
