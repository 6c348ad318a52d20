"""A run: iterate over it to train, block by block, with a snapshot on disk after each."""

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
from mmrl.runs.lanes import check_products, keys, with_numbers
from mmrl.runs.processes import RunError, agree, together
from mmrl.runs.programs import Program, built
from mmrl.runs.room import check_block, check_room, naming_storage, size
from mmrl.runs.setup import Setup
from mmrl.runs.snapshot import Best, Rows, Snapshot, better, credit

CHANGED = (
    "The environment, or another part of your own, was changed, but this run trains with it as it "
    "was when the run was set up. Make a new `Run` to train with what it is now."
)


@dataclasses.dataclass(frozen=True)
class Report:
    """The outcome of one block, for any agent.

    Arrays hold one value per seed. In a sweep they hold one per setting and seed, with the seeds of
    a setting together.
    """

    block: int  # counts from 1
    blocks: int
    env_steps: int  # per seed so far
    returns: Float[np.ndarray, " seed"]  # mean over the evaluation's episodes, played greedily
    loss: Float[np.ndarray, " seed"]
    fill: Float[np.ndarray, " seed"]  # share of real steps in a batch
    seconds: float  # of this block; the first one compiles


class Run:
    """Training of an agent for each seed of a setup, and for each setting of a sweep.

        for report in Run(Setup("CartPole-v1"), "runs/first"): ...

    `state`, `history` and `best` are those after the last complete block; `best` has the best
    network of each agent so far. An interrupted block has no effect: iterate again to repeat it.

    With `path`, every block ends with a checkpoint in that folder, and `resume` continues from it,
    or from the start if the run was killed before its first checkpoint. Without `path`, no file is
    written. Raises `ValueError` for settings that cannot work. Raises `RunError` if the folder
    already holds a run, or none to resume, if it cannot be written, if its checkpoint is damaged or
    from another setup, if a step has no legal action, and if a reward or loss is no longer finite.
    In a sweep an agent whose loss is not finite returns NaN from then on, and the others continue.
    """

    setup: Setup
    description: dict[str, Any]  # the setup, as JSON data
    program: Program

    def __init__(
        self,
        setup: Setup,
        path: str | os.PathLike | Callable[[PyTree], Snapshot] | None = None,
        resume: bool = False,
        devices: int | None = None,
    ):
        if resume and path is None:
            raise ValueError("`path` must name the folder of the run to `resume`; got None.")
        reads = callable(path)  # `reopen` passes a function that returns the snapshot
        self.folder = None if path is None or reads else Folder(path)
        began = reads or (resume and self.folder and self.folder.has(CHECKPOINT))
        self.setup, self.description = setup, describe(setup)
        config = self.description["config"]
        agree(self.description | config | {"config": 0, "path": str(path), "devices": devices})
        self._seeds = setup.seeds * len(setup.settings)
        self.program = built(setup, share(devices, len(self._seeds), setup.config.environments))
        if not began:  # a run that began has valid settings
            for each in setup.configs:
                find(setup.agent).check(each, *self.program[:2])
        self._config = _configs(setup)
        self._shapes = jax.eval_shape(self.begin)  # fails before anything is written
        self._trained = own_parts(setup)
        self.snapshot = path(self._shapes) if callable(path) else self._started(resume)
        self._before = len(self.history)  # blocks that another process trained

    def _started(self, resume: bool) -> Snapshot:
        """Open the folder, if there is one, of a run that fits into memory."""
        check_room(self.setup, self._shapes)
        check_products(self.setup.precision, self.program.block, self._config, self._shapes)
        warn_of_main(self.path, self.description)
        new = Snapshot(self.description, None, [], None, {})
        if self.folder is None:
            return new
        new = new._replace(origin=credit({}, 0, self.program.devices.words))
        with naming_storage(self.setup, self._shapes):
            return self.folder.open(new, self._shapes, resume)

    @property
    def path(self) -> pathlib.Path | None:
        """Folder of the run; None if no file is written."""
        return None if self.folder is None else self.folder.path

    @property
    def state(self) -> PyTree:
        """State of the agents after the last complete block, [seed, ...]; None before the first."""
        return self.snapshot.state

    @property
    def history(self) -> Rows:
        """The reports of all complete blocks, as JSON data."""
        return self.snapshot.history

    @property
    def best(self) -> Best | None:
        """The best network of each agent so far, and its block."""
        return self.snapshot.best

    @property
    def memory(self) -> str:
        """How much memory the state of all seeds takes, storage included."""
        return size(self._shapes)

    @property
    def planned(self) -> int:
        """Number of blocks, or that of the run in the folder before this one opened it."""
        blocks = self.setup.config.blocks
        return blocks if self.folder is None else self.folder.planned or blocks

    def begin(self) -> PyTree:
        """Return the state before the first block."""
        return self.program.init(self._config, keys(self._seeds))

    def __iter__(self) -> Iterator[Report]:
        blocks = self.setup.config.blocks
        folder = self.folder if len(self.history) < blocks else None
        with contextlib.nullcontext() if folder is None else folder.held() as own:
            while len(self.history) < blocks:
                with naming_storage(self.setup, self._shapes), together():
                    report = self._advance(own)
                yield report

    def _advance(self, own: Claim | None) -> Report:
        """Train one block and store it, on disk first: memory is never ahead of the disk."""
        if own_parts(self.setup) != self._trained:
            warnings.warn(CHANGED, stacklevel=2)
        began, devices = time.perf_counter(), self.program.devices
        state, metrics = self._trained_block()
        block = len(self.history) + 1
        report = Report(
            block=block,
            blocks=self.setup.config.blocks,
            env_steps=block * self.setup.config.block_steps,
            returns=self._returns(metrics),
            loss=metrics.loss,
            fill=metrics.fill,
            seconds=time.perf_counter() - began,
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
        if self.folder is not None and own is not None:
            self.folder.write(snapshot, own)
        self.snapshot = snapshot._replace(state=state)
        self._trained = own_parts(self.setup)  # tracing may have changed it
        return report

    def _trained_block(self) -> tuple[PyTree, Any]:
        # Wait here, so that a failed allocation raises an error; the block would wait for it
        # forever.
        state = jax.block_until_ready(self.begin()) if self.state is None else self.state
        with naming_storage(self.setup, self._shapes, inside=True):
            if len(self.history) == self._before:
                check_block(self.setup, self.program.block, self._config, state)
            state, metrics = self.program.block(self._config, state)
            return state, jax.device_get(self.program.devices.whole(metrics))

    def _returns(self, metrics: Any) -> Float[np.ndarray, " seed"]:
        """Return the returns of a block. Raise `RunError` if the block is not valid."""
        if metrics.stuck is not None and metrics.stuck.any():
            raise self._no_legal_action(metrics.stuck)
        returns = metrics.returns.mean(-1)
        if self.setup.over:
            going = np.isfinite(self.history[-1]["returns"]) if self.history else True
            return np.where(metrics.finite & going, returns, np.nan)
        if not metrics.finite.all():
            raise self._not_finite(metrics.finite, np.all(metrics.observed))
        return returns

    def _not_finite(self, finite: np.ndarray, observed: np.bool_) -> RunError:
        bad = [seed for seed, good in zip(self.setup.seeds, finite, strict=True) if not good]
        parts = self.description | self.description.get("own", {})
        what, advice = "An observation", f"Check that {parts['env']} returns"
        ended = "finite observations: only the last one of a terminated episode may be NaN"
        if observed:
            own = f" and {parts['learn']} a finite loss" if self.setup.learn else ""
            what, advice = "A reward or loss", f"{advice} finite rewards{own}, and"
            ended += f"; or lower `learning_rate` (now {self.setup.config.learning_rate})"
        block = len(self.history)
        kept = f" The checkpoint of block {block} is kept." if block and self.path else ""
        return RunError(
            f"{what} became NaN or infinite in block {block + 1}, seeds {bad}.{kept} {advice} "
            f"{ended}."
        )

    def _no_legal_action(self, stuck: np.ndarray) -> RunError:
        parts = self.description | self.description.get("own", {})
        return RunError(
            f"No action was legal in step {stuck[stuck > 0].min()} of an episode of "
            f"{parts['env']}, in block {len(self.history) + 1}. Its `action_mask` must allow one "
            "in each state, except in the last of an episode that terminated."
        )

    def save(self, path: str | os.PathLike) -> None:
        """Write the run so far into a new folder, as if it had been trained there, ready to resume.

        Raises `RunError` if the folder already holds a run, if it cannot be written, and before the
        first block.
        """
        folder = Folder(path)
        if not self.history:
            raise RunError(
                f"The run cannot be saved in {folder.path} before the first block is done."
            )
        folder.keep(self.snapshot._replace(state=self.program.devices.whole(self.state)))

    @property
    def settings(self) -> list[dict[str, float]]:
        """Settings of a sweep, in the order of its agents."""
        return self.setup.settings

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Rows with a setting, a seed, and the return at every evaluation."""
        return sweep.rows(self.settings, self.setup.seeds, self.history)

    @property
    def curves(self) -> Float[np.ndarray, "setting seed eval"]:
        """Returns of all evaluations so far; NaN from the first loss that was not finite."""
        returns = np.array([row["returns"] for row in self.rows], float)
        return returns.reshape(len(self.settings), len(self.setup.seeds), -1)

    def scores(self) -> list[sweep.Scored]:
        """Return the score of every setting. Raises `ValueError` before the first block."""
        return sweep.scores(self.settings, self.curves)

    def verdict(self) -> sweep.Verdict:
        """Return the best setting, by the rule of `mmrl.runs.sweep`. Raises as `scores` does."""
        return sweep.verdict(self.settings, self.curves)


def Sweep(
    setup: Setup,
    over: Mapping[str, Sequence[Any]],
    path: str | os.PathLike | None = None,
    resume: bool = False,
    devices: int | None = None,
) -> Run:
    """Return the `Run` of a setup with `over`. In earlier versions this was a class."""
    if not over:
        raise ValueError(
            "`over` must name a setting and its values, such as learning_rate; got none."
        )
    return Run(dataclasses.replace(setup, over=over), path, resume, devices)


def _configs(setup: Setup) -> Any:
    """Return the settings of all agents: those of a sweep have an axis [setting and seed]."""
    if not setup.over:
        return repeatable(setup.config)
    each = [repeatable(config) for config in setup.configs for _ in setup.seeds]
    numbers = {name: [getattr(config, name) for config in each] for name, _ in setup.over}
    return with_numbers(repeatable(setup.config), numbers)
