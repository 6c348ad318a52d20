"""One training run over several seeds, block by block."""

import collections
import contextlib
import copy
import functools
import os
import pathlib
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from mmrl import checks, envs
from mmrl.agents import find, repeatable
from mmrl.agents.checks import check_observations
from mmrl.envs.repaired import check_repaired
from mmrl.envs.wrappers.observation import shown
from mmrl.runs.best import BEST, better, read_best
from mmrl.runs.checkpoint import RunError, read
from mmrl.runs.content import content, own_parts
from mmrl.runs.devices import ONE, Devices, share
from mmrl.runs.files import expanded
from mmrl.runs.folder import CHECKPOINT, described, folder, origin
from mmrl.runs.hosts import agree, told
from mmrl.runs.lanes import check, side_by_side
from mmrl.runs.setup import SHOWN, Setup, describe, jax_name, restore
from mmrl.runs.training import Program, Training

MOST = 16  # programs; each takes some 50 MB


def program(
    agent: str,
    env: Any,
    observes: tuple[str, ...] | None = None,
    make: Callable | None = None,
    learn: Callable | None = None,
    devices: Devices = ONE,
    precision: str = "default",
) -> Program:
    """Return the compiled program of an agent in an environment.

    It is built once for equal contents of these, so that a second run, or a slider, finds it
    compiled. The `MOST` programs that were used last are kept, each while its environment exists.
    The arguments are those of `Setup`. The network is shown o_t, as one vector, and what `observes`
    names, in the order of `SHOWN`. Only `config`'s static fields lead to another compilation.
    """
    observes = find(agent).OBSERVES if observes is None else observes
    observes = tuple(x for x in SHOWN if x in observes)
    own = content(env), content((make, learn))
    return _kept(own, agent, env, observes, make, learn, devices, precision)


class Kept(NamedTuple):
    """A program, and the environments of this content that exist, by their identity."""

    program: Program
    users: dict[int, weakref.finalize]


def _kept(own: Hashable, agent: str, env: Any, *rest: Any) -> Program:
    """Return the program for parts whose content is `own`, built when it is first used."""
    key = (own, agent, *rest)
    # Taken out, since another thread, or the end of an environment, may drop it at any time.
    kept = _PROGRAMS.pop(key, None) or Kept(_program(agent, env, *rest), {})
    _PROGRAMS[key] = kept
    while len(_PROGRAMS) > MOST:
        _PROGRAMS.popitem(last=False)
    _keep_while_used(key, kept.users, env)
    return kept.program


_PROGRAMS: collections.OrderedDict[Hashable, Kept] = collections.OrderedDict()


def _keep_while_used(key: Hashable, users: dict[int, weakref.finalize], env: Any) -> None:
    """Drop a program when the last environment of its content does not exist any more."""
    game = env[0] if isinstance(env, tuple) else env
    if isinstance(game, str) or id(game) in users:
        return

    def drop(user: int) -> None:
        users.pop(user, None)
        kept = _PROGRAMS.get(key)
        if not users and kept is not None and kept.users is users:
            _PROGRAMS.pop(key, None)

    with contextlib.suppress(TypeError):  # without weak references it is one of `MOST`
        users[id(game)] = weakref.finalize(game, drop, id(game))


def built(setup: Setup, devices: Devices | None = None) -> Program:
    """The program of a setup, by default on one device."""
    devices = Devices(setup.shards) if devices is None else devices
    parts = setup.agent, setup.env, setup.observes, setup.make, setup.learn
    return _kept(own_parts(setup), *parts, devices, setup.precision)


def _program(
    agent: str,
    env_or_id: Any,
    observes: tuple[str, ...],
    make: Callable | None,
    learn: Callable | None,
    devices: Devices,
    precision: str,
) -> Program:
    module = find(agent)
    env, params = _environment(env_or_id)
    with contextlib.suppress(TypeError):  # it cannot be copied
        env = copy.copy(env)  # as it is now, and so that the program does not keep it
    env = shown(env, params, observes)
    both = side_by_side(module, env, params, make, learn, devices, jax_name(precision))
    return Program(env, params, *both, devices)


def _environment(env: Any) -> tuple[Any, Any]:
    """An environment and its parameters, of an id, or of itself with or without parameters.

    Raises `ValueError` for one that is not registered and cannot be played.
    """
    if isinstance(env, str):
        found = envs.make(env)
    else:
        found = env if isinstance(env, tuple) else (env, getattr(env, "default_params", None))
    if env not in envs.registered():
        check_repaired(found[0])
        checks.environment(*found, steps=0)
        check_observations(*found)
    return found


class Run(Training):
    """Train an agent for each seed of a setup.

    With `path` every block ends with a checkpoint there, and `resume` goes on from it, or from the
    start if the run was killed before its first one; without, nothing is written. Raises `RunError`
    if the folder holds a run already, or none to resume, if it cannot be written, if its checkpoint
    is damaged or of another setup, and if a reward or loss is no longer finite.
    """

    def __init__(
        self,
        setup: Setup,
        path: str | os.PathLike | None = None,
        resume: bool = False,
        devices: int | None = None,
    ):
        self.path = folder(path, resume)
        began = resume and self.path is not None and told((self.path / CHECKPOINT).exists)
        described = describe(setup)
        agree(described.pop("config") | described | {"path": str(path), "devices": devices})
        self._prepare(setup, began, share(devices, len(setup.seeds), setup.shards))
        self._start(resume)

    def _prepare(self, setup: Setup, began: bool, devices: Devices | None = None) -> None:
        """Build all but what is on disk; the settings of a run that `began` were accepted."""
        made = built(setup, devices)
        if not began:
            check(find(setup.agent), setup.config, made.env, made.params, setup.shards)
        self._set_up(setup, made, repeatable(setup.config), setup.seeds)

    @functools.cached_property  # as it was when the run was set up
    def description(self) -> dict[str, Any]:
        return describe(self.setup)

    def _returns(self, metrics: Any) -> Float[np.ndarray, " seed"]:
        if not metrics.finite.all():
            raise self._not_finite(metrics.finite, np.all(metrics.observed))
        return metrics.returns.mean(-1)

    def _not_finite(self, finite: np.ndarray, observed: np.bool_) -> RunError:
        bad = [seed for seed, good in zip(self.setup.seeds, finite, strict=True) if not good]
        kept = f" The checkpoint of block {len(self.history)} is kept." if self.history else ""
        parts = (told := self.description) | told.get("own", {})
        own = f" and {parts['learn']} a finite loss" if self.setup.learn else ""
        ended = "only the last observation of a terminated episode may be NaN"
        advice = f"Check that {parts['env']} returns finite observations: {ended}."
        if observed:
            advice = (
                f"Check that {parts['env']} returns finite rewards{own}, and finite observations "
                f"({ended}), or lower `learning_rate` (now {self.setup.config.learning_rate})."
            )
        return RunError(
            f"{'A reward or loss' if observed else 'An observation'} became NaN or infinite in "
            f"block {len(self.history) + 1}, seeds {bad}.{kept if self.path else ''} {advice}"
        )

    def _written(self, history: list[dict[str, Any]]) -> dict[str, Any]:
        return {"history": history}


def reopen(path: str | os.PathLike, best: bool = False) -> Run:
    """The run saved in a folder, to look at, evaluate or plot. Nothing is written there.

    With `best`, also each seed's best network: `run.best`. These have a file of their own, so that
    they can be seen if the checkpoint is lost; `state` is None then, and `history` empty. Raises
    `RunError` if there is no checkpoint, or a damaged one, and the same for `best`.
    """
    path = expanded(path)
    if path.is_file():
        raise RunError(f"{path} is a file: give the folder of the run, {path.parent}.")
    run = Run.__new__(Run)
    run.path = None
    header = _header(path, best)
    run._prepare(restore(header["setup"]), began=True)
    if BEST in header:
        run.best, run.trained = read_best(path, run._shapes.net), origin(header)
        return run
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


def _header(path: pathlib.Path, best: bool) -> dict[str, Any]:
    """The checkpoint's header or, if that is lost and `best` will do, that of the best networks."""
    try:
        return read(path / CHECKPOINT)[0]
    except RunError:
        with contextlib.suppress(RunError):
            if best:
                return read(path / BEST)[0]
        raise


def saved(path: str | os.PathLike) -> Setup | None:
    """The setup of the run in a folder, also of one killed before its first checkpoint, or None.

    Raises `RunError` if the run cannot be read, or has parts that are not of mmrl.
    """
    there = described(expanded(path))
    return None if there is None else restore(there)
