"""Cache of compiled training programs, shared by runs with equal content."""

import collections
import contextlib
import copy
import weakref
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import numpy as np

from mmrl import checks, envs
from mmrl.agents import find
from mmrl.agents.checks import check_observations
from mmrl.envs.repaired import check_repairs
from mmrl.envs.wrappers.base import Wrapper
from mmrl.envs.wrappers.observation import with_inputs
from mmrl.runs.content import content, own_parts
from mmrl.runs.devices import ONE, Devices
from mmrl.runs.parallel import side_by_side
from mmrl.runs.setup import OPTIONAL_INPUTS, Setup, jax_name

MOST = 16  # maximum number of cached programs; each takes about 50 MB


class Program(NamedTuple):
    """Environment, and compiled functions that train agents in it."""

    env: Any
    params: Any
    init: Callable[[Any, Any], Any]  # (config, keys [seed]) -> state
    block: Callable[[Any, Any], Any]  # (config, state) -> (state, metrics)
    devices: Devices = ONE  # devices on which the functions are executed


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
    """Return the compiled program that trains an agent in an environment.

    Arguments have the same meaning as in `Setup`. If `flat` is True, images are flattened to
    vectors, as a dense encoder requires.

    Programs are cached by the content of their arguments, so a second run does not compile again.
    The cache holds the `MOST` most recently used programs, and removes a program when its
    environment no longer exists. A new `config` triggers a compilation only if its static fields
    differ.
    """
    observes = find(agent).OBSERVES if observes is None else observes
    observes = tuple(x for x in OPTIONAL_INPUTS if x in observes)
    own = content(env), content((make, learn))
    return _from_cache(own, agent, env, observes, make, learn, devices, precision, observe, flat)


def build(setup: Setup, devices: Devices = ONE) -> Program:
    """Return the compiled program of a setup."""
    parts = setup.agent, setup.env, setup.observes, setup.make, setup.learn
    flat = getattr(setup.config, "encoder", "dense") == "dense"
    return _from_cache(own_parts(setup), *parts, devices, setup.precision, setup.observe, flat)


class Entry(NamedTuple):
    """Entry of the cache."""

    program: Program
    users: dict[int, weakref.finalize]  # finalizers of the environments that use it, by `id`


def _from_cache(own: Hashable, agent: str, env: Any, *rest: Any) -> Program:
    """Return the cached program for parts with content `own`, or build it."""
    key = (own, agent, *rest)
    # Pop and re-insert the entry, so that it becomes the newest. Another thread, or the finalizer
    # of an environment, may remove it at any time.
    entry = _PROGRAMS.pop(key, None) or Entry(_program(agent, env, *rest), {})
    _PROGRAMS[key] = entry
    while len(_PROGRAMS) > MOST:
        _PROGRAMS.popitem(last=False)
    _remove_when_unused(key, entry.users, env)
    return entry.program


_PROGRAMS: collections.OrderedDict[Hashable, Entry] = collections.OrderedDict()


def _remove_when_unused(key: Hashable, users: dict[int, weakref.finalize], env: Any) -> None:
    """Remove a program from the cache when all environments that use it have been deleted."""
    game = env[0] if isinstance(env, tuple) else env
    if isinstance(game, str) or id(game) in users:
        return

    def drop(user: int) -> None:
        users.pop(user, None)
        entry = _PROGRAMS.get(key)
        if not users and entry is not None and entry.users is users:
            _PROGRAMS.pop(key, None)

    # Some objects do not support weak references. Their programs stay until `MOST` is exceeded.
    with contextlib.suppress(TypeError):
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
    # Copy the environment if possible, so that the program does not keep the original alive.
    with contextlib.suppress(TypeError):
        env = copy.copy(env)
    env = with_inputs(env, params, observes, observe, flat)
    both = side_by_side(module, env, params, make, learn, devices, jax_name(precision))
    return Program(env, params, *both, devices)


def _environment(env: Any) -> tuple[Any, Any]:
    """Return an environment and its parameters.

    `env` is an id, an environment, or a tuple (environment, params). Environments that are not
    registered are checked. Raises `ValueError` if a check fails.
    """
    if isinstance(env, str):
        pair = envs.make(env)
    else:
        pair = env if isinstance(env, tuple) else (env, getattr(env, "default_params", None))
    if env not in envs.registered_ids():
        check_repairs(pair[0])
        checks.environment(*pair, steps=0)
        _check_params(*pair)
        check_observations(*pair)
    return pair


def _check_params(env: Any, params: Any) -> None:
    """Raise `ValueError` if `params` are the defaults of an environment inside a wrapper."""
    inner = env
    while isinstance(inner, Wrapper):
        inner = inner.env
        if _equal(params, inner.default_params) and not _equal(params, env.default_params):
            raise ValueError(
                f"`params` must be the parameters of {env!r}, {env.default_params!r}; got the "
                f"defaults of {inner!r}, {params!r}, which turn off its wrapper. Pass "
                "`env.default_params`."
            )


def _equal(one: Any, other: Any) -> bool:
    """Return True if two pytrees have equal structures and leaves."""
    (one, tree), (other, shape) = jax.tree.flatten(one), jax.tree.flatten(other)
    return tree == shape and all(map(np.array_equal, one, other))
