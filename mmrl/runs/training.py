"""Training block by block, which ends each block with a checkpoint: what runs and sweeps share."""

import abc
import contextlib
import dataclasses
import math
import os
import pathlib
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PyTree

from mmrl.runs.best import Best, better, read_best, write
from mmrl.runs.checkpoint import RunError, dumps, load, save
from mmrl.runs.content import own_parts
from mmrl.runs.devices import ONE, Devices
from mmrl.runs.files import create, expanded, replace, writing
from mmrl.runs.folder import CHECKPOINT as CHECKPOINT
from mmrl.runs.folder import RESULTS, Claim, claimed, described, kind, origin, stamp, taken
from mmrl.runs.hosts import together, told
from mmrl.runs.lanes import check_products, keys
from mmrl.runs.results import provenance
from mmrl.runs.room import check_block, check_room, naming_storage
from mmrl.runs.setup import Setup, check_same, warn_of_main

OPENING = threading.Lock()  # the threads of a process share a claim, but only one run is new
CHANGED = (
    "The environment, or another part of your own, was changed, but this run trains with it as it "
    "was when the run was set up. Make a new `Run` to train with what it is now."
)


@dataclasses.dataclass(frozen=True)
class Report:
    """The outcome of one block, whatever the agent.

    Arrays hold one value per seed, or in a sweep one for each of its lanes.
    """

    block: int  # counts from 1
    blocks: int
    env_steps: int  # per seed so far
    returns: Float[np.ndarray, " seed"]  # mean over the evaluation's episodes, played greedily
    loss: Float[np.ndarray, " seed"]
    fill: Float[np.ndarray, " seed"]  # share of real steps in a batch
    seconds: float  # of this block; the first one compiles


class Program(NamedTuple):
    """An environment and the two compiled functions that train in it."""

    env: Any
    params: Any
    init: Callable[[Any, Any], Any]  # (config, keys [seed]) -> state
    block: Callable[[Any, Any], Any]  # (config, state) -> (state, metrics)
    devices: Devices = ONE  # on which they are


class Training(abc.ABC):
    """Iterate to train; `state` and `history` are those after the last complete block.

    `best` has the best network of each lane so far, which a file beside the checkpoint keeps. An
    interrupted block changes nothing: iterate again to repeat it.
    """

    setup: Setup
    path: pathlib.Path | None
    program: Program
    state: Any
    history: list[dict[str, Any]]

    @property
    @abc.abstractmethod
    def description(self) -> dict[str, Any]:
        """All that determines the numbers, as JSON data: a folder goes on with its own alone."""

    @abc.abstractmethod
    def _returns(self, metrics: Any) -> Float[np.ndarray, " lane"]:
        """The returns of a block. Raises `RunError` if it must not count."""

    @abc.abstractmethod
    def _written(self, history: list[dict[str, Any]]) -> dict[str, Any]:
        """The part of `results.json` that grows with every block."""

    def _set_up(self, setup: Setup, made: Program, config: Any, seeds: Sequence[int]) -> None:
        """Build all but what is on disk. `config` is that of the lanes, each with a seed."""
        self.setup, self.program = setup, made
        self._config, self._seeds = config, seeds
        self._shapes = jax.eval_shape(self.begin)  # so that bad settings leave no trace on disk
        self.state: Any = None
        self.history: list[dict[str, Any]] = []
        self.best: Best | None = None
        self.trained: dict[str, Any] = {}  # the provenance of `history`; `commands` has all of it
        self._read = 0  # blocks of it that were read from disk
        self._trained = own_parts(setup)
        self._claim: Claim | None = None  # until the first block
        self._held = Claim()  # while blocks are trained
        self._stamp: tuple[int, int] | None = None  # of the checkpoint that this object left
        self.planned = setup.config.blocks  # or what the run in the folder was to have before

    def __iter__(self) -> Iterator[Report]:
        blocks = self.setup.config.blocks
        with self._alone() if len(self.history) < blocks else contextlib.nullcontext():
            while len(self.history) < blocks:
                with naming_storage(self.setup, self._shapes), together():
                    report = self._block()
                yield report

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the folder, which must be as this object left it, until the last block."""
        before = self._held
        try:
            self._hold()
            yield
        finally:
            self._held = before

    def _hold(self) -> None:
        own, self._claim = self._claim, None
        if (path := self.path) is None:
            return
        self._held = own or claimed(path)
        if told(lambda: stamp(path) not in (None, self._stamp)):
            raise RunError(
                f"{path} was changed by another run since this one opened it. Open it again, "
                "with `resume=True` or `--resume`."
            )

    def _block(self) -> Report:
        """Train one block, and keep it."""
        if own_parts(self.setup) != self._trained:
            warnings.warn(CHANGED, stacklevel=2)
        began = time.perf_counter()
        # Waiting here raises an error of the allocation; the block would wait for it forever.
        state = jax.block_until_ready(self.begin()) if self.state is None else self.state
        with naming_storage(self.setup, self._shapes, inside=True):
            if len(self.history) == self._read:
                check_block(self.setup, self.program.block, self._config, state)
            state, metrics = self.program.block(self._config, state)
            metrics = jax.device_get(self.program.devices.whole(metrics))
        report = Report(
            block=len(self.history) + 1,
            blocks=self.setup.config.blocks,
            env_steps=self._env_steps(len(self.history) + 1),
            returns=self._returns(metrics),
            loss=metrics.loss,
            fill=metrics.fill,
            seconds=time.perf_counter() - began,
        )
        row = {k: np.asarray(v).tolist() for k, v in dataclasses.asdict(report).items()}
        self._keep(state, [*self.history, row])
        self._trained = own_parts(self.setup)  # tracing may have changed it
        return report

    def begin(self) -> PyTree:
        """The state before the first block."""
        return self.program.init(self._config, keys(self._seeds))

    def _env_steps(self, blocks: int) -> int:
        config = self.setup.config
        sizes = config.block, config.rollout, config.environments
        return blocks * math.prod(map(int, sizes))  # of Python, which do not overflow

    def _keep(self, state: PyTree, history: list[dict[str, Any]]) -> None:
        """Make a block count: on disk first, so that memory is never ahead of it."""
        whole = self.program.devices.whole(state)
        best, trained = better(self.best, whole.net, history[-1]), self._provenance()
        if (path := self.path) is not None:
            new = best if best is not self.best else None
            header = {"setup": self.description, **trained}
            try:
                with writing(path):
                    told(self._held.check)
                    told(lambda: self._put(path, header, history, whole, new))
            finally:
                self._stamp = stamp(path)
        self.state, self.history, self.best, self.trained = state, history, best, trained

    def _put(
        self,
        path: pathlib.Path,
        header: dict[str, Any],
        history: list[dict[str, Any]],
        state: PyTree,
        best: Best | None,
    ) -> None:
        """Replace the files of a folder; without `best`, all but that of the best networks."""
        save(path / CHECKPOINT, {**header, "history": history}, state)
        if best is not None:
            write(path, header, best)
        self._write(path, header, history)

    def save(self, path: str | os.PathLike) -> None:
        """Write into a folder what training there would have left by now, to be gone on with.

        Raises `RunError` if it holds a run already, if it cannot be written, and before the first
        block.
        """
        path = expanded(path)
        if not self.history:
            raise RunError(f"There is nothing to save in {path} before the first block is done.")
        whole, own = self.program.devices.whole(self.state), claimed(path)
        if described(path) is not None:
            raise RunError(f"{path} already holds a run. Choose another folder.")
        with writing(path):
            told(lambda: self._put(path, self._header(), self.history, whole, self.best))
        del own

    def _there(self, path: pathlib.Path, resume: bool) -> dict[str, Any] | None:
        """Return the setup in a folder, or raise `RunError` if this run cannot be there."""
        there = described(path)
        if not resume and there is not None:
            raise RunError(
                f"{path} already holds a {kind(there)}. Resume it (`resume=True`, or `--resume`) "
                "or choose another folder."
            )
        if resume and there is None:
            raise RunError(
                f"There is no {kind(self.description)} in {path}: nothing to resume. Leave "
                "`resume=True`, or `--resume`, out to start one."
            )
        if there is not None:
            check_same(path, there, self.description)
        return there

    def _start(self, resume: bool) -> None:
        """Open the folder, if there is one, of a run that fits into memory."""
        check_room(self.setup, self._shapes)
        check_products(self.setup.precision, self.program.block, self._config, self._shapes)
        warn_of_main(self.path, self.description)
        if self.path is not None:
            with naming_storage(self.setup, self._shapes), OPENING:
                self._open(self.path, resume)

    def _open(self, path: pathlib.Path, resume: bool) -> None:
        self._there(path, resume)  # before anything is written
        own = claimed(path)
        there = self._there(path, resume)  # now that no other process can change it
        if there is not None:
            self.planned = there["config"]["blocks"]
        if resume and told((path / CHECKPOINT).exists):
            self._load(path)
            self.best = read_best(path, self._shapes.net, self.history)
            if len(self.history) > self.setup.config.blocks:
                return  # nothing is left to do, and what is written tells of more blocks
            self._catch_up(path)
            if there != self.description:  # a prolongation, which a kill may not undo
                header = self._header() | {"history": self.history}
                with writing(path):
                    told(lambda: save(path / CHECKPOINT, header, self.state))
        new = there is None  # on a disk without locks, one run creates its file
        with writing(path), taken(path):
            told(lambda: self._write(path, self._header(), self.history, new))
        self._stamp = stamp(path)
        if len(self.history) < self.setup.config.blocks:
            self._claim = own

    def _load(self, path: pathlib.Path) -> None:
        header, self.state = load(path / CHECKPOINT, self._shapes)
        self.history = header["history"]
        self.trained, self._read = origin(header), len(self.history)

    def _catch_up(self, path: pathlib.Path) -> None:
        """Keep what a kill after the checkpoint, or an earlier version, left out."""
        best = better(self.best, self.state.net, self.history[-1])
        if best is not self.best:
            with writing(path):
                told(lambda: write(path, self._header(), best))
        self.best = best

    def _write(
        self, path: pathlib.Path, header: dict[str, Any], history: list[Any], new: bool = False
    ) -> None:
        data = {**header, **self._written(history)}
        (create if new else replace)(path / RESULTS, dumps(data, indent=1).encode())

    def _header(self) -> dict[str, Any]:
        return {"setup": self.description, **(self.trained or self._provenance())}

    def _provenance(self) -> dict[str, Any]:
        """Where this process trains; `commands` has all that trained, in order, and from where on.

        Of earlier versions' files the last one is known alone, and not the block.
        """
        now, former = provenance(), self.trained.get("commands")
        if self.program.devices.mesh is not None:
            now["device"] += self.program.devices.words
        if former is None:
            former = [{"after_block": None, **self.trained}] * bool(self.trained)
        kept = [each for each in former if each["after_block"] != self._read]
        return {**now, "commands": [*kept, {"after_block": self._read, **now}]}
