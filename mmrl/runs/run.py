"""One training run over several seeds, block by block."""

import dataclasses
import functools
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, PyTree

from mmrl import envs
from mmrl.agents import find, repeatable
from mmrl.envs.wrappers import BeginFlag, FlattenObservation, PreviousAction, PreviousReward
from mmrl.runs.best import Best, better, read_best, write
from mmrl.runs.checkpoint import RunError, dumps, load, loads, read, replace, save, writing
from mmrl.runs.results import provenance
from mmrl.runs.setup import SHOWN, Setup, check_same, describe, restore

CHECKPOINT, RESULTS = "checkpoint", "results.json"  # in a run's folder


@dataclasses.dataclass(frozen=True)
class Report:
    """The outcome of one block, whatever the agent. Arrays hold one value per seed."""

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


WRAPPERS = dict(zip(SHOWN, (PreviousAction, PreviousReward, BeginFlag), strict=True))


def program(
    agent: str,
    env: Any,
    observes: tuple[str, ...] | None = None,
    make: Callable | None = None,
    learn: Callable | None = None,
) -> Program:
    """Built once for each of these, so that a second run, or a slider, finds it compiled.

    The arguments are those of `Setup`. The network is shown o_t, as one vector, and what `observes`
    names, in the order of `SHOWN`. Only `config`'s static fields lead to another compilation.
    """
    observes = find(agent).OBSERVES if observes is None else observes
    return _program(agent, env, tuple(x for x in SHOWN if x in observes), make, learn)


@functools.cache  # of a call that always looks the same
def _program(
    agent: str,
    env_or_id: Any,
    observes: tuple[str, ...],
    make: Callable | None,
    learn: Callable | None,
) -> Program:
    module = find(agent)
    env, params = _environment(env_or_id)
    space = env.observation_space(params)
    env = env if len(getattr(space, "shape", ())) == 1 else FlattenObservation(env)
    for name in observes:
        env = WRAPPERS[name](env)
    own = {} if make is None else {"make": make}
    step = module.learn if learn is None else learn

    @jax.jit
    def init(config, keys):
        state = jax.vmap(lambda key: module.init(config, env, params, key, **own))(keys)
        return jax.tree.map(lambda x: jnp.asarray(x, x.dtype), state)  # weak types do not last

    # The old state is not given away: an interrupted block must leave it whole.
    @jax.jit
    def block(config, state):
        return jax.vmap(lambda s: module.block(config, env, params, s, step))(state)

    return Program(env, params, init, block)


def _environment(env: Any) -> tuple[Any, Any]:
    """An environment and its parameters, of an id, or of itself with or without parameters."""
    if isinstance(env, str):
        return envs.make(env)
    return env if isinstance(env, tuple) else (env, env.default_params)


class Run:
    """Iterate to train; `state` and `history` are those after the last complete block.

    `best` has each seed's best network so far, which a file beside the checkpoint keeps. With
    `path` every block ends with a checkpoint there, and `resume` goes on from it, or from the
    start if the run was killed before its first one; without, nothing is written. An interrupted
    block changes nothing: iterate again to repeat it. Raises `RunError` if the folder holds a run
    already, or none to resume, if it cannot be written, if its checkpoint is damaged or of another
    setup, and if a reward or loss is no longer finite.
    """

    def __init__(self, setup: Setup, path: str | os.PathLike | None = None, resume: bool = False):
        if resume and path is None:
            raise ValueError("`path` must name the folder of the run to `resume`; got None.")
        self.path = None if path is None else pathlib.Path(path)
        began = resume and self.path is not None and (self.path / CHECKPOINT).exists()
        self._set_up(setup, began)
        if self.path is not None:
            self._open(self.path, resume)

    def _set_up(self, setup: Setup, began: bool) -> None:
        """Build all but what is on disk; the settings of a run that `began` were accepted."""
        self.setup = setup
        self.program = program(setup.agent, setup.env, setup.observes, setup.make, setup.learn)
        if not began:
            find(setup.agent).check(setup.config, self.program.env, self.program.params)
        self._config = repeatable(setup.config)
        self._shapes = jax.eval_shape(self.begin)  # so that bad settings leave no trace on disk
        self.state: Any = None
        self.history: list[dict[str, Any]] = []
        self.best: Best | None = None

    def __iter__(self) -> Iterator[Report]:
        config = self.setup.config
        while len(self.history) < config.blocks:
            began = time.perf_counter()
            state = self.begin() if self.state is None else self.state
            state, metrics = self.program.block(self._config, state)
            metrics = jax.device_get(metrics)
            self._check_finite(metrics.finite)
            report = Report(
                block=len(self.history) + 1,
                blocks=config.blocks,
                env_steps=self._env_steps(len(self.history) + 1),
                returns=metrics.returns.mean(-1),
                loss=metrics.loss,
                fill=metrics.fill,
                seconds=time.perf_counter() - began,
            )
            row = {k: np.asarray(v).tolist() for k, v in dataclasses.asdict(report).items()}
            self._keep(state, [*self.history, row])
            yield report

    def begin(self) -> PyTree:
        """The state before the first block."""
        keys = jax.vmap(jax.random.key)(np.asarray(self.setup.seeds, np.uint32))
        return self.program.init(self._config, keys)

    def _env_steps(self, blocks: int) -> int:
        config = self.setup.config
        return blocks * config.block * config.rollout * config.environments

    def _check_finite(self, finite: np.ndarray) -> None:
        if finite.all():
            return
        bad = [seed for seed, good in zip(self.setup.seeds, finite, strict=True) if not good]
        kept = f" The checkpoint of block {len(self.history)} is kept." if self.history else ""
        parts = (told := describe(self.setup)) | told.get("own", {})
        own = f" and {parts['learn']} a finite loss" if self.setup.learn else ""
        raise RunError(
            f"A reward or loss became NaN or infinite in block {len(self.history) + 1}, seeds {bad}"
            f".{kept if self.path else ''} Check that {parts['env']} returns finite rewards{own}, "
            f"or lower `learning_rate` (now {self.setup.config.learning_rate})."
        )

    def _keep(self, state: PyTree, history: list[dict[str, Any]]) -> None:
        """Make a block count: on disk first, so that memory is never ahead of it."""
        best = better(self.best, state.net, history[-1])
        if self.path is not None:
            with writing(self.path):
                save(self.path / CHECKPOINT, {**_header(self.setup), "history": history}, state)
                if best is not self.best:
                    write(self.path, _header(self.setup), best)
                replace(self.path / RESULTS, _results(self.setup, history))
        self.state, self.history, self.best = state, history, best

    def _open(self, path: pathlib.Path, resume: bool) -> None:
        there = _described(path)
        if not resume and there is not None:
            raise RunError(
                f"{path} already holds a run. Resume it (`resume=True`, or `--resume`) or choose "
                "another folder."
            )
        if resume and there is None:
            raise RunError(
                f"There is no run in {path}: nothing to resume. Leave `resume=True`, or "
                "`--resume`, out to start one."
            )
        if there is not None:
            check_same(path, there, describe(self.setup))
        if resume and (path / CHECKPOINT).exists():
            self._load(path)
            self.best = read_best(path, self._shapes.net, self.history)
            if len(self.history) > self.setup.config.blocks:
                return  # nothing is left to do, and what is written tells of more blocks
            self._catch_up(path)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            replace(path / RESULTS, _results(self.setup, self.history))

    def _load(self, path: pathlib.Path) -> None:
        header, self.state = load(path / CHECKPOINT, self._shapes)
        self.history = header["history"]

    def _catch_up(self, path: pathlib.Path) -> None:
        """Keep what a kill after the checkpoint, or an earlier version, left out."""
        best = better(self.best, self.state.net, self.history[-1])
        if best is not self.best:
            with writing(path):
                write(path, _header(self.setup), best)
        self.best = best


def reopen(path: str | os.PathLike, best: bool = False) -> Run:
    """The run saved in a folder, to look at, evaluate or plot. Nothing is written there.

    With `best`, also each seed's best network: `run.best`. Raises `RunError` if there is no
    checkpoint, or a damaged one, and the same for `best`.
    """
    path = pathlib.Path(path)
    if path.is_file():
        raise RunError(f"{path} is a file: give the folder of the run, {path.parent}.")
    run = Run.__new__(Run)
    run.path = None
    run._set_up(restore(read(path / CHECKPOINT)[0]["setup"]), began=True)
    run._load(path)
    if best:
        run.best = read_best(path, run._shapes.net, run.history)
        if run.best is None and len(run.history) > 1:
            raise RunError(
                f"{path} has no best networks: it was trained before they were kept. Leave `best`, "
                "or `--best`, out to see the last ones; a run that is resumed keeps them from then."
            )
        run.best = better(run.best, run.state.net, run.history[-1])
    return run


def saved(path: str | os.PathLike) -> Setup | None:
    """The setup of the run in a folder, also of one killed before its first checkpoint, or None.

    Raises `RunError` if the run cannot be read, or has parts that are not of mmrl.
    """
    described = _described(pathlib.Path(path))
    return None if described is None else restore(described)


def _described(path: pathlib.Path) -> dict[str, Any] | None:
    """The setup in a run's folder, as `describe` has it. Raises `RunError` if it is no such."""
    checkpoint, results = path / CHECKPOINT, path / RESULTS
    try:
        if checkpoint.exists():
            return read(checkpoint)[0]["setup"]
        return dict(loads(results.read_text())["setup"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError):
        raise RunError(f"{results} cannot be read: it was not written by mmrl.") from None


def _header(setup: Setup) -> dict[str, Any]:
    return {"setup": describe(setup), **provenance()}


def _results(setup: Setup, history: list[dict[str, Any]]) -> bytes:
    return dumps({**_header(setup), "history": history}, indent=1).encode()
