"""The setup of a run: an agent, its settings, an environment, seeds, and the values of a sweep."""

import dataclasses
import difflib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mmrl.agents import AGENTS, find
from mmrl.agents.settings import kinds_of

SHOWN: tuple[str, ...] = ("previous_action", "previous_reward", "begin_flag")
"""Inputs that a network may receive in addition to o_t, in this order: a_{t-1}, r_{t-1}, b_t."""

PRECISIONS = {
    "default": None,
    "float32": "highest",
    "tf32": "tensorfloat32",
    "bfloat16": "BF16_BF16_F32",
}
"""Precisions of the factors in float32 matrix products, and their names in JAX."""


def jax_name(precision: Any) -> str | None:
    """Return JAX's name of a precision. Raise `ValueError` for an unknown one."""
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise ValueError(f"`precision` must be one of {', '.join(PRECISIONS)}; got {precision!r}.")
    return PRECISIONS[precision]


@dataclasses.dataclass(frozen=True)
class Setup:
    """Everything that determines a run's numbers, except versions and device.

    Defaults are the agent's: its `Config()`, `OBSERVES`, network and `learn`. Raises `ValueError`
    for an unknown agent, for settings of another agent, for unknown names in `observes`, and for
    parts, seeds and values that cannot be used.

        Setup(env=MyEnv(), make=my_network, learn=partial(dqn.learn, loss=my_loss))
        Setup("CartPole-v1", seeds=SEEDS, over={"learning_rate": (1e-3, 3e-3), "gamma": (0.5, 0.9)})

    The first trains with custom parts. A checkpoint names them, and only `Run` with an equal setup
    and `resume` opens it. On several devices `make` is also traced with a config that has twice the
    environments and twice the `capacity`, to find which arrays grow with them. The second is a
    sweep: each combination of the values, with each of the seeds, in one program.
    """

    env: Any  # an id for `mmrl.envs.make`, a gymnax environment, or (environment, params)
    config: Any = None  # a `Config` of the agent
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    agent: str = "dqn"  # a name in `mmrl.agents.AGENTS`
    observes: Any = None  # a tuple of names in `SHOWN`
    make: Callable | None = None  # (config, env, params, key) -> net, in place of the agent's
    learn: Callable | None = None  # the same, in place of the agent's
    precision: str = "default"  # of matrix products, from `PRECISIONS`; default: JAX's setting
    over: Any = ()  # real-valued settings and their values: a mapping, stored as pairs
    observe: str = "observation"  # or "state", "pixels": what is shown, as in `mmrl.envs.make`

    def __post_init__(self):
        agent = find(self.agent)
        _check_env(self.env)
        _check_seeds(self.seeds)
        jax_name(self.precision)
        of_learn = inspect.signature(agent.learn).parameters
        _check_call("make", self.make, ("config", "env", "params", "key"))
        _check_call("learn", self.learn, tuple(name for name in of_learn if name != "loss"))
        loss = getattr(self.learn, "keywords", {}).get("loss")
        _check_call("loss", loss, tuple(inspect.signature(of_learn["loss"].default).parameters))
        own = {"observes": agent.OBSERVES, "config": agent.Config()}
        for name, value in own.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        object.__setattr__(self, "seeds", tuple(self.seeds))
        if isinstance(self.observes, str) or not isinstance(self.observes, Iterable):
            raise ValueError(f"`observes` must be a tuple of names; got {self.observes!r}.")
        unknown = sorted(set(self.observes) - set(SHOWN))
        if unknown:
            raise ValueError(f"`observes` must name some of {SHOWN}; got {unknown}.")
        shown = tuple(name for name in SHOWN if name in self.observes)
        object.__setattr__(self, "observes", shown)
        if type(self.config) is not agent.Config:
            of = [name for name, other in AGENTS.items() if type(self.config) is other.Config]
            raise ValueError(
                f"`config` must be a `Config` of {self.agent}; got one of "
                f"{of[0] if of else type(self.config).__name__}. Set `agent` to match."
            )
        object.__setattr__(self, "over", _values(self.agent, self.over))

    @property
    def settings(self) -> list[dict[str, float]]:
        """Combinations of the values in `over`; a run without it has one, which is empty."""
        return grid(self.over)

    @property
    def configs(self) -> list[Any]:
        """Config for each of the `settings`."""
        return [dataclasses.replace(self.config, **setting) for setting in self.settings]


def grid(over: Iterable[Sequence[Any]]) -> list[dict[str, float]]:
    """Return every combination of the values in pairs (name, values); the last changes fastest."""
    names = [name for name, _ in over]
    combined = itertools.product(*(values for _, values in over))
    return [dict(zip(names, each, strict=True)) for each in combined]


SEEDS = (100, 101, 102)
"""Seeds for tuning, distinct from those of `Setup`, because tuning favors the seeds it uses."""


def _values(agent: str, over: Any) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Return the values of a sweep. Raise `ValueError` unless one program can run all of them."""
    try:
        over = dict(over)
    except (TypeError, ValueError):
        raise ValueError(f"`over` must map names of settings to values; got {over!r}.") from None
    fields = {field.name: field for field in dataclasses.fields(find(agent).Config)}
    for name in over:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            advice = f" Try {near[0]}." if near else ""
            raise ValueError(f"`over` must name settings of {agent}; got {name!r}.{advice}")
        if kinds_of(fields[name])[0] is not float:
            raise ValueError(
                f"`over` must name real-valued settings; got {name}, which shapes the program, so "
                "each of its values needs a separate program. Run one sweep per value, each in its "
                "own folder."
            )
    return tuple((name, _numbers(name, values)) for name, values in over.items())


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise ValueError(f"`over` must have numbers for {name}; got {values!r}.") from None
    different = {float(np.float32(value)) for value in numbers}
    if len(numbers) < 2 or len(different) < len(numbers):
        raise ValueError(
            f"`over` must have at least two values for {name}, all different in 32 bits; got "
            f"{', '.join(f'{number:g}' for number in numbers) or 'none'}."
        )
    return numbers


def _check_seeds(seeds: Any) -> None:
    good = isinstance(seeds, Sequence) and len(seeds) == len({*map(str, seeds)}) > 0
    if not good or not all(isinstance(seed, int) and 0 <= seed < 2**32 for seed in seeds):
        raise ValueError(
            "`seeds` must be a tuple of different whole numbers from 0 to 2³² - 1, at least one; "
            f"got {seeds!r}."
        )


def _check_call(name: str, function: Any, arguments: tuple[str, ...]) -> None:
    """Raise `ValueError` unless a custom part can be called with the arguments that it will get."""
    if function is None:
        return
    try:
        if isinstance(function, functools.partial):
            inspect.signature(function.func).bind_partial(*function.args, **function.keywords)
        inspect.signature(function).bind(*arguments)
        hash(function)  # hashable, so that its program is compiled once
    except TypeError as error:
        called = f"{name}({', '.join(arguments)})"
        raise ValueError(
            f"`{name}` must be called as {called}; got {function!r}: {error}."
        ) from None
    except ValueError:  # its signature is unknown
        pass


def _check_env(env: Any) -> None:
    game = env[0] if isinstance(env, tuple) and len(env) == 2 else env
    if isinstance(game, type):
        raise ValueError(
            f"`env` must be an environment; got its class. Call it: {game.__name__}()."
        )
    if not isinstance(env, str) and not hasattr(game, "step_env"):
        raise ValueError(
            "`env` must be an id, an environment of gymnax, or a tuple of an environment "
            f"and its parameters; got {env!r}."
        )
    try:
        hash(game)  # a static argument of gymnax's compiled `step`; parameters may be arrays
    except TypeError as error:
        raise ValueError(
            "`env` must be hashable, because gymnax compiles its methods for each object; got "
            f"{game!r}: {error}. Define `__hash__`, or decorate its class with "
            "`@dataclasses.dataclass(eq=False)`."
        ) from None
