"""Training of a `Setup`, one block per iteration, with a checkpoint after each block."""

import contextlib
import dataclasses
import os
import pathlib
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, PyTree

from mmrl.agents import find, repeatable
from mmrl.runs import sweep
from mmrl.runs.content import own_parts
from mmrl.runs.devices import share
from mmrl.runs.files import Claim
from mmrl.runs.folder import CHECKPOINT, Folder
from mmrl.runs.identity import describe, warn_of_main
from mmrl.runs.parallel import check_products, keys, with_numbers
from mmrl.runs.processes import RunError, agree, process_errors
from mmrl.runs.programs import Program, build
from mmrl.runs.room import check_block, check_room, memory_errors, size
from mmrl.runs.setup import Setup
from mmrl.runs.snapshot import Best, Rows, Snapshot, better, credit

STALE_PARTS = (
    "The environment or another custom part has changed, but this run still uses the version from "
    "when it was created. Create a new `Run` to train with the current version."
)


@dataclasses.dataclass(frozen=True)
class Report:
    """Results of a block, with one value per seed.

    In a sweep, arrays have one value per setting and seed, where the seeds of a setting are
    adjacent.
    """

    block: int  # number of the block, counted from 1
    blocks: int  # total number of blocks
    env_steps: int  # number of environment steps per seed so far
    returns: Float[np.ndarray, " seed"]  # mean return of the evaluation, with greedy actions
    loss: Float[np.ndarray, " seed"]
    fill: Float[np.ndarray, " seed"]  # fraction of a batch that is not padding
    seconds: float  # duration of the block, including compilation in the first one


class Run:
    """Training run of all seeds of a setup, and of all settings of a sweep.

        >>> from mmrl.agents import dqn
        >>> config = dqn.Config(memory="none", blocks=2)
        >>> run = Run(Setup("probe-Match-v0", config, seeds=(0, 1)))
        >>> [(report.block, report.returns.shape) for report in run]
        [(1, (2,)), (2, (2,))]

    The attributes `state`, `history` and `best` refer to the last complete block. An interrupted
    block has no effect; to repeat it, iterate again.

    If `path` is given, a checkpoint is written to this folder after each block. `resume` continues
    from the checkpoint, or from the start if none has been written yet. Without `path`, no files
    are written.

    If the loss of an agent becomes non-finite in a sweep, its returns are NaN from that block on,
    and the other agents continue. In a run without `over`, a non-finite loss is an error.

    Raises `ValueError` for invalid settings. Raises `RunError` if the folder contains a run and
    `resume` is False, if it contains no run and `resume` is True, if it cannot be written, if the
    checkpoint is damaged or was written for another setup, if a step has no legal action, or if a
    reward or loss is not finite.
    """

    setup: Setup
    description: dict[str, Any]  # setup as JSON data
    program: Program

    def __init__(
        self,
        setup: Setup,
        path: str | os.PathLike | Callable[[PyTree], Snapshot] | None = None,
        resume: bool = False,
        devices: int | None = None,
    ):
        if resume and path is None:
            raise ValueError("`path` must be the folder of the run if `resume` is True; got None.")
        reads = callable(path)  # `reopen` passes a function that returns the snapshot
        self.folder = None if path is None or reads else Folder(path)
        exists = reads or (resume and self.folder and self.folder.has(CHECKPOINT))
        self.setup, self.description = setup, describe(setup)
        config = self.description["config"]
        agree(self.description | config | {"config": 0, "path": str(path), "devices": devices})
        self._seeds = setup.seeds * len(setup.settings)
        self.program = build(setup, share(devices, len(self._seeds), setup.config.environments))
        if not exists:  # the settings of an existing run have already been checked
            for each in setup.configs:
                find(setup.agent).check(each, *self.program[:2])
        self._config = _configs(setup)
        self._shapes = jax.eval_shape(self.begin)  # raises errors before any file is written
        self._parts = own_parts(setup)
        self.snapshot = path(self._shapes) if callable(path) else self._start(resume)
        self._before = len(self.history)  # number of blocks trained before this process started

    def _start(self, resume: bool) -> Snapshot:
        """Check that the run fits into memory, open the folder, and return its snapshot."""
        check_room(self.setup, self._shapes, is_saved=self.folder is not None)
        check_products(self.setup.precision, self.program.block, self._config, self._shapes)
        warn_of_main(self.path, self.description)
        new = Snapshot(self.description, None, [], None, {})
        if self.folder is None:
            return new
        new = new._replace(origin=credit({}, 0, self.program.devices.words))
        with memory_errors(self.setup, self._shapes):
            return self.folder.open(new, self._shapes, resume)

    @property
    def path(self) -> pathlib.Path | None:
        """Folder of the run, or None if no files are written."""
        return None if self.folder is None else self.folder.path

    @property
    def state(self) -> PyTree:
        """State of all agents, [seed, ...], after the last complete block, or None."""
        return self.snapshot.state

    @property
    def history(self) -> Rows:
        """Reports of all complete blocks, as JSON data."""
        return self.snapshot.history

    @property
    def best(self) -> Best | None:
        """Best network of each agent so far, and the block after which it was saved."""
        return self.snapshot.best

    @property
    def memory(self) -> str:
        """Size of the state of all seeds, with the replay buffer, as a string such as "1.5 GB"."""
        return size(self._shapes)

    @property
    def total_blocks(self) -> int:
        """Total number of blocks of the run in the folder, or of the setup if the run is new."""
        blocks = self.setup.config.blocks
        return blocks if self.folder is None else self.folder.total_blocks or blocks

    def begin(self) -> PyTree:
        """Return the state before the first block."""
        return self.program.init(self._config, keys(self._seeds))

    def __iter__(self) -> Iterator[Report]:
        blocks = self.setup.config.blocks
        folder = self.folder if len(self.history) < blocks else None
        with contextlib.nullcontext() if folder is None else folder.hold() as access:
            while len(self.history) < blocks:
                with memory_errors(self.setup, self._shapes), process_errors():
                    report = self._advance(access)
                yield report

    def _advance(self, access: Claim | None) -> Report:
        """Train a block and store its results, first on disk and then in memory."""
        if own_parts(self.setup) != self._parts:
            warnings.warn(STALE_PARTS, stacklevel=2)
        start_time, devices = time.perf_counter(), self.program.devices
        state, metrics = self._train_block()
        block = len(self.history) + 1
        report = Report(
            block=block,
            blocks=self.setup.config.blocks,
            env_steps=block * self.setup.config.block_steps,
            returns=self._returns(metrics),
            loss=metrics.loss,
            fill=metrics.fill,
            seconds=time.perf_counter() - start_time,
        )
        row = {k: np.asarray(v).tolist() for k, v in dataclasses.asdict(report).items()}
        whole = devices.whole(state)
        snapshot = Snapshot(
            self.description,
            whole,
            [*self.history, row],
            better(self.best, whole.net, row),
            credit(self.snapshot.origin, self._before, devices.words),
        )
        if self.folder is not None and access is not None:
            self.folder.write(snapshot, access)
        self.snapshot = snapshot._replace(state=state)
        self._parts = own_parts(self.setup)  # tracing may change custom parts
        return report

    def _train_block(self) -> tuple[PyTree, Any]:
        """Run the program of a block; return the new state and the block's metrics."""
        # Wait until the state is ready, so that a failed allocation raises an error here.
        # Otherwise, the training block would hang.
        state = jax.block_until_ready(self.begin()) if self.state is None else self.state
        with memory_errors(self.setup, self._shapes, in_block=True):
            if len(self.history) == self._before:
                check_block(self.setup, self.program.block, self._config, state)
            state, metrics = self.program.block(self._config, state)
            return state, jax.device_get(self.program.devices.whole(metrics))

    def _returns(self, metrics: Any) -> Float[np.ndarray, " seed"]:
        """Return the mean return of each agent. Raises `RunError` if the block is invalid."""
        if metrics.stuck is not None and metrics.stuck.any():
            raise self._no_legal_action(metrics.stuck)
        returns = metrics.returns.mean(-1)
        if self.setup.over:
            was_finite = np.isfinite(self.history[-1]["returns"]) if self.history else True
            return np.where(metrics.finite & was_finite, returns, np.nan)
        if not metrics.finite.all():
            raise self._not_finite(metrics.finite, np.all(metrics.observed))
        return returns

    def _not_finite(self, finite: np.ndarray, finite_obs: np.bool_) -> RunError:
        bad = [seed for seed, good in zip(self.setup.seeds, finite, strict=True) if not good]
        parts = self.description | self.description.get("own", {})
        what = "A reward or loss" if finite_obs else "An observation"
        values = "rewards and observations" if finite_obs else "observations"
        advice = (
            f"Check that {parts['env']} returns finite {values}; only the observation after the "
            "last step of a terminated episode may have any value."
        )
        if finite_obs and self.setup.learn:
            advice += f" Check that {parts['learn']} returns finite losses."
        if finite_obs:
            advice += f" Otherwise, lower `learning_rate` (now {self.setup.config.learning_rate})."
        block = len(self.history)
        note = f" The checkpoint of block {block} is kept." if block and self.path else ""
        return RunError(
            f"{what} became NaN or infinite in block {block + 1}, seeds {bad}.{note} {advice}"
        )

    def _no_legal_action(self, steps: np.ndarray) -> RunError:
        parts = self.description | self.description.get("own", {})
        return RunError(
            f"No action was legal in step {steps[steps > 0].min()} of an episode of "
            f"{parts['env']}, in block {len(self.history) + 1}. Its `action_mask` must allow an "
            "action in every state, except in the last state of an episode that terminates."
        )

    def save(self, path: str | os.PathLike) -> None:
        """Save the run to a new folder, from which it can be resumed.

        Raises `RunError` before the first block, if the folder already contains a run, or if it
        cannot be written.
        """
        folder = Folder(path)
        if not self.history:
            raise RunError(
                f"The run cannot be saved in {folder.path} before the first block has been trained."
            )
        folder.keep(self.snapshot._replace(state=self.program.devices.whole(self.state)))

    @property
    def settings(self) -> list[dict[str, float]]:
        """Settings of a sweep, in the order in which they are trained."""
        return self.setup.settings

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Rows with the returns of all evaluations, one per setting and seed."""
        return sweep.rows(self.settings, self.setup.seeds, self.history)

    @property
    def curves(self) -> Float[np.ndarray, "setting seed eval"]:
        """Returns of all evaluations so far, which are NaN after a non-finite loss."""
        returns = np.array([row["returns"] for row in self.rows], float)
        return returns.reshape(len(self.settings), len(self.setup.seeds), -1)

    def scores(self) -> list[sweep.Score]:
        """Return the score of every setting. Raises `ValueError` before the first block."""
        return sweep.scores(self.settings, self.curves)

    def verdict(self) -> sweep.Verdict:
        """Return the best setting, by the rule in `mmrl.runs.sweep`.

        Raises `ValueError` before the first block.
        """
        return sweep.verdict(self.settings, self.curves)


def Sweep(
    setup: Setup,
    over: Mapping[str, Sequence[Any]],
    path: str | os.PathLike | None = None,
    resume: bool = False,
    devices: int | None = None,
) -> Run:
    """Return a `Run` that trains every combination of the values in `over`.

    This was a class in earlier versions. Raises `ValueError` if `over` is empty.
    """
    if not over:
        raise ValueError(
            "`over` must map a setting, such as learning_rate, to its values; got none."
        )
    return Run(dataclasses.replace(setup, over=over), path, resume, devices)


def _configs(setup: Setup) -> Any:
    """Return a config for all agents, in which swept settings are arrays [agent]."""
    if not setup.over:
        return repeatable(setup.config)
    each = [repeatable(config) for config in setup.configs for _ in setup.seeds]
    numbers = {name: [getattr(config, name) for config in each] for name, _ in setup.over}
    return with_numbers(repeatable(setup.config), numbers)
