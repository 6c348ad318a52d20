"""One training run over several seeds, block by block."""

import dataclasses
import difflib
import functools
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, PyTree

from mmrl.agents import dqn
from mmrl.envs import make
from mmrl.envs.wrappers import BeginFlag, PreviousAction
from mmrl.runs.checkpoint import RunError, load, replace, save, writing
from mmrl.runs.results import provenance

AGENTS = {"dqn": dqn}


@dataclasses.dataclass(frozen=True)
class Setup:
    """All that determines a run's numbers, beside versions and device."""

    env: str  # an id for `mmrl.envs.make`
    config: dqn.Config = dataclasses.field(default_factory=dqn.Config)
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    agent: str = "dqn"  # a name in `AGENTS`
    previous_action: bool = False  # show a_{t-1} to the network
    begin_flag: bool = True  # show b_t to the network


@dataclasses.dataclass(frozen=True)
class Report:
    """What one block brought. Arrays hold one value per seed."""

    block: int  # counts from 1
    blocks: int
    env_steps: int  # per seed so far, warm-up included
    returns: Float[np.ndarray, " seed"]  # mean over the evaluation's episodes
    loss: Float[np.ndarray, " seed"]
    fill: Float[np.ndarray, " seed"]  # share of real steps in a batch
    seconds: float  # of this block; the first one compiles


class Program(NamedTuple):
    """An environment and the two compiled functions that train in it."""

    env: Any
    params: Any
    init: Callable[[Any, Any], Any]  # (config, keys [seed]) -> state
    block: Callable[[Any, Any], Any]  # (config, state) -> (state, metrics); takes the state over


@functools.cache
def program(agent: str, env_id: str, previous_action: bool, begin_flag: bool) -> Program:
    """Built once per environment, so that a second run, or a slider, finds it compiled.

    Only `config`'s static fields lead to another compilation.
    """
    if agent not in AGENTS:
        near = difflib.get_close_matches(agent, AGENTS, 1) or list(AGENTS)
        raise ValueError(f"`agent` must be one of {list(AGENTS)}; got {agent!r}. Try {near[0]!r}.")
    env, params = make(env_id)
    env = PreviousAction(env) if previous_action else env
    env = BeginFlag(env) if begin_flag else env
    module = AGENTS[agent]

    @jax.jit
    def init(config, keys):
        return jax.vmap(lambda key: module.init(config, env, params, key))(keys)

    @functools.partial(jax.jit, donate_argnums=1)
    def block(config, state):
        return jax.vmap(lambda s: module.block(config, env, params, s))(state)

    return Program(env, params, init, block)


class Run:
    """Iterate to train; `state` and `history` are those after the last complete block.

    With `path` every block ends with a checkpoint there, and `resume` goes on from it; without,
    nothing is written. Raises `RunError` if the folder holds a run already, cannot be written, or
    its checkpoint is damaged or of another setup, and if a reward or loss is no longer finite.
    """

    def __init__(self, setup: Setup, path: str | os.PathLike | None = None, resume: bool = False):
        if not setup.seeds:
            raise ValueError("`seeds` must name at least one seed; got none.")
        self.setup = setup
        self.path = None if path is None else pathlib.Path(path)
        self.program = program(setup.agent, setup.env, setup.previous_action, setup.begin_flag)
        AGENTS[setup.agent].check(setup.config, self.program.env, self.program.params)
        self.state: Any = None
        self.history: list[dict[str, Any]] = []
        if self.path is not None:
            self._open(self.path, resume)

    def __iter__(self) -> Iterator[Report]:
        config = self.setup.config
        while len(self.history) < config.blocks:
            began = time.perf_counter()
            state = self._start() if self.state is None else self.state
            state, metrics = self.program.block(config, state)
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
            self.state, self.history = state, [*self.history, row]
            if self.path is not None:
                self._save(self.path)
            yield report

    def _start(self) -> PyTree:
        keys = jax.vmap(jax.random.key)(np.asarray(self.setup.seeds, np.uint32))
        return self.program.init(self.setup.config, keys)

    def _env_steps(self, blocks: int) -> int:
        config = self.setup.config
        return config.environments * (config.warmup + blocks * config.block * config.rollout)

    def _check_finite(self, finite: np.ndarray) -> None:
        if finite.all():
            return
        bad = [seed for seed, good in zip(self.setup.seeds, finite, strict=True) if not good]
        kept = f" The checkpoint of block {len(self.history)} is kept." if self.path else ""
        raise RunError(
            f"A reward or loss became NaN or infinite in block {len(self.history) + 1}, seeds {bad}."
            f"{kept} Check that {self.setup.env} returns finite rewards, or lower `learning_rate` "
            f"(now {self.setup.config.learning_rate})."
        )

    def _open(self, path: pathlib.Path, resume: bool) -> None:
        checkpoint = path / "checkpoint"
        if resume:
            like = jax.eval_shape(self._start)
            header, self.state = load(checkpoint, like, describe(self.setup))
            self.history = header["history"]
        elif checkpoint.exists():
            raise RunError(
                f"{path} already holds a run. Resume it (`--resume`) or choose another folder."
            )
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
            replace(path / "results.json", b"{}" if not resume else self._results())

    def _save(self, path: pathlib.Path) -> None:
        with writing(path):
            header = {"setup": describe(self.setup), "history": self.history}
            save(path / "checkpoint", header, self.state)
            replace(path / "results.json", self._results())

    def _results(self) -> bytes:
        rows = {"setup": describe(self.setup), **provenance(), "history": self.history}
        return json.dumps(rows, indent=1).encode()


def describe(setup: Setup) -> dict[str, Any]:
    """A setup as JSON data; `restore` is its inverse."""
    return json.loads(json.dumps(dataclasses.asdict(setup)))


def restore(data: dict[str, Any]) -> Setup:
    """The setup that `describe` described."""
    config = dict(data["config"])
    config["memory_sizes"] = tuple((name, size) for name, size in config["memory_sizes"])
    config = AGENTS[data["agent"]].Config(**config)
    return Setup(**{**data, "config": config, "seeds": tuple(data["seeds"])})
