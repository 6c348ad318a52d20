"""The two compiled functions that train a setup, kept for later runs of equal content."""

import collections
import contextlib
import copy
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from mmrl import checks, envs
from mmrl.agents import find
from mmrl.agents.checks import check_observations
from mmrl.envs.repaired import check_repaired
from mmrl.envs.wrappers.observation import shown
from mmrl.runs.content import content, own_parts
from mmrl.runs.devices import ONE, Devices
from mmrl.runs.lanes import side_by_side
from mmrl.runs.setup import SHOWN, Setup, jax_name

MOST = 16  # programs; each takes about 50 MB


class Program(NamedTuple):
    """An environment and the two compiled functions that train in it."""

    env: Any
    params: Any
    init: Callable[[Any, Any], Any]  # (config, keys [seed]) -> state
    block: Callable[[Any, Any], Any]  # (config, state) -> (state, metrics)
    devices: Devices = ONE  # devices on which they run


def program(
    agent: str,
    env: Any,
    observes: tuple[str, ...] | None = None,
    make: Callable | None = None,
    learn: Callable | None = None,
    devices: Devices = ONE,
    precision: str = "default",
    observe: str = "observation",
    flat: bool = False,
) -> Program:
    """Return the compiled program of an agent in an environment.

    It is built once for arguments of equal content, so that a second run, or a slider, finds it
    compiled. The `MOST` programs used last are kept, each while its environment exists. The
    arguments are as in `Setup`: the network receives the observation selected by `observe`, as
    one vector, and the inputs in `observes`, in the order of `SHOWN`. Pictures are vectors only if
    they are `flat`, for a config whose `encoder` is dense. Only `config`'s static fields trigger
    another compilation.
    """
    observes = find(agent).OBSERVES if observes is None else observes
    observes = tuple(x for x in SHOWN if x in observes)
    own = content(env), content((make, learn))
    return _kept(own, agent, env, observes, make, learn, devices, precision, observe, flat)


def built(setup: Setup, devices: Devices = ONE) -> Program:
    """Return the program of a setup, by default on one device."""
    parts = setup.agent, setup.env, setup.observes, setup.make, setup.learn
    flat = getattr(setup.config, "encoder", "dense") == "dense"
    return _kept(own_parts(setup), *parts, devices, setup.precision, setup.observe, flat)


class Kept(NamedTuple):
    """A program, and the existing environments with its content, by their identity."""

    program: Program
    users: dict[int, weakref.finalize]


def _kept(own: Hashable, agent: str, env: Any, *rest: Any) -> Program:
    """Return the program for parts whose content is `own`, built on first use."""
    key = (own, agent, *rest)
    # Remove the entry, because another thread, or the end of an environment, may drop it at any
    # time.
    kept = _PROGRAMS.pop(key, None) or Kept(_program(agent, env, *rest), {})
    _PROGRAMS[key] = kept
    while len(_PROGRAMS) > MOST:
        _PROGRAMS.popitem(last=False)
    _keep_while_used(key, kept.users, env)
    return kept.program


_PROGRAMS: collections.OrderedDict[Hashable, Kept] = collections.OrderedDict()


def _keep_while_used(key: Hashable, users: dict[int, weakref.finalize], env: Any) -> None:
    """Drop a program when the last environment with its content no longer exists."""
    game = env[0] if isinstance(env, tuple) else env
    if isinstance(game, str) or id(game) in users:
        return

    def drop(user: int) -> None:
        users.pop(user, None)
        kept = _PROGRAMS.get(key)
        if not users and kept is not None and kept.users is users:
            _PROGRAMS.pop(key, None)

    with contextlib.suppress(TypeError):  # without weak references, only `MOST` limits it
        users[id(game)] = weakref.finalize(game, drop, id(game))


def _program(
    agent: str,
    env_or_id: Any,
    observes: tuple[str, ...],
    make: Callable | None,
    learn: Callable | None,
    devices: Devices,
    precision: str,
    observe: str,
    flat: bool,
) -> Program:
    module = find(agent)
    env, params = _environment(env_or_id)
    with contextlib.suppress(TypeError):  # not every environment can be copied
        env = copy.copy(env)  # a copy, so that the program does not keep the original alive
    env = shown(env, params, observes, observe, flat)
    both = side_by_side(module, env, params, make, learn, devices, jax_name(precision))
    return Program(env, params, *both, devices)


def _environment(env: Any) -> tuple[Any, Any]:
    """Return an environment and its parameters, from an id, an environment, or a pair of both.

    Raises `ValueError` for an environment that is not registered and cannot be played.
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
