"""A run's setup: an agent and its settings, an environment, and what is shown to the network."""

import dataclasses
import functools
import hashlib
import inspect
import itertools
import json
import pathlib
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from mmrl.agents import AGENTS, find
from mmrl.runs.checkpoint import RunError, unquote, unwrap_keys
from mmrl.runs.earlier import EARLIER, earlier

SHOWN: tuple[str, ...] = ("previous_action", "previous_reward", "begin_flag")
"""What a network may be shown beside o_t, in this order: a_{t-1}, r_{t-1}, b_t."""

PRECISIONS = {
    "default": None,
    "float32": "highest",
    "tf32": "tensorfloat32",
    "bfloat16": "BF16_BF16_F32",
}
"""Precisions of the factors of float32 matrix products, and their names in JAX."""


def jax_name(precision: Any) -> str | None:
    """Return JAX's name of a precision. Raises `ValueError` for an unknown one."""
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise ValueError(f"`precision` must be one of {', '.join(PRECISIONS)}; got {precision!r}.")
    return PRECISIONS[precision]


@dataclasses.dataclass(frozen=True)
class Setup:
    """Everything that determines a run's numbers, beside versions and device.

    What is left out is the agent's own: its `Config()`, `OBSERVES`, network and `learn`. Raises
    `ValueError` for an unknown agent, for the settings of another one, for `observes` that no
    network can be shown, and for parts and seeds that cannot be what they are given as.

        Setup(env=MyEnv(), make=my_network, learn=partial(dqn.learn, loss=my_loss))

    trains with parts of your own. A checkpoint names these, and is opened with them alone: by `Run`
    with an equal setup and `resume`.
    """

    env: Any  # an id for `mmrl.envs.make`, an environment as gymnax has them, or it and its params
    config: Any = None  # a `Config` of the agent
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    agent: str = "dqn"  # a name in `mmrl.agents.AGENTS`
    observes: Any = None  # a tuple: which of `SHOWN` the network is shown
    shards: int = 1  # of every agent, with equal parts of its sizes: see `mmrl.collectives`
    make: Callable | None = None  # (config, env, params, key) -> net, in place of the agent's
    learn: Callable | None = None  # called as the agent's, in its place
    precision: str = "default"  # of matrix products: one of `PRECISIONS`; default: as JAX is set

    def __post_init__(self):
        agent = find(self.agent)
        _check_env(self.env)
        _check_seeds(self.seeds)
        if type(self.shards) is not int or self.shards < 1:
            raise ValueError(f"`shards` must be a whole number from 1 on; got {self.shards!r}.")
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
                f"{of[0] if of else type(self.config).__name__}. Give the `agent` that it is of."
            )


def _check_seeds(seeds: Any) -> None:
    good = isinstance(seeds, Sequence) and len(seeds) == len({*map(str, seeds)}) > 0
    if not good or not all(isinstance(seed, int) and 0 <= seed < 2**32 for seed in seeds):
        raise ValueError(
            "`seeds` must be a tuple of different whole numbers from 0 to 2³² - 1, at least one; "
            f"got {seeds!r}."
        )


def _check_call(name: str, function: Any, arguments: tuple[str, ...]) -> None:
    """Raise `ValueError` unless a part of the user's own can be called as it will be."""
    if function is None:
        return
    try:
        if isinstance(function, functools.partial):
            inspect.signature(function.func).bind_partial(*function.args, **function.keywords)
        inspect.signature(function).bind(*arguments)
        hash(function)  # its program is compiled once
    except TypeError as error:
        called = f"{name}({', '.join(arguments)})"
        raise ValueError(
            f"`{name}` must be called as {called}; got {function!r}: {error}."
        ) from None
    except ValueError:  # it does not tell its arguments
        pass


def _check_env(env: Any) -> None:
    game = env[0] if isinstance(env, tuple) and len(env) == 2 else env
    if isinstance(game, type):
        raise ValueError(
            f"`env` must be an environment; got its class: call it, {game.__name__}()."
        )
    if not isinstance(env, str) and not hasattr(game, "step_env"):
        raise ValueError(
            "`env` must be an id, an environment as gymnax has them, or a tuple of an environment "
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


def describe(setup: Setup) -> dict[str, Any]:
    """A setup as JSON data; `restore` is its inverse, unless it names parts of the user's own."""
    data = {field.name: getattr(setup, field.name) for field in dataclasses.fields(setup)}
    data["config"] = dataclasses.asdict(setup.config)
    own = {name: _name(data.pop(name)) for name in ("env", "make", "learn")}
    own = {name: text for name, text in own.items() if text is not None}
    if isinstance(setup.env, str):
        data["env"] = own.pop("env")
    data |= {"own": own} if own else {}
    return json.loads(json.dumps(data, default=lambda x: np.asarray(x).tolist()))


def check_same(path: Any, old: dict[str, Any], new: dict[str, Any]) -> None:
    """Raises `RunError` if a run was started with another setup, but for its number of blocks."""
    if differing := _differences(old, new):
        raise RunError(
            f"{path} belongs to another setup: {'; '.join(differing)}. Repeat the settings it was "
            "started with, or choose another folder. (Your own parts are found by their module.)"
        )


def restore(data: dict[str, Any]) -> Setup:
    """The setup that `describe` described.

    Raises `RunError` for that of another version, of a sweep, and for one with parts of the user's
    own.
    """
    if "over" in data:
        swept = " and ".join(f"`{name}`" for name, _ in data["over"])
        raise RunError(f"This is a sweep over {swept}: see its results.json, or `mmrl sweep`.")
    if data.get("own"):
        parts = ", ".join(f"{name}={text}" for name, text in data["own"].items())
        raise RunError(
            f"This run was trained with parts that are not of mmrl: {parts}. Open it in Python, by "
            "`Run(Setup(…), path, resume=True)` with the same ones."
        )
    try:
        data = {**earlier(data), "seeds": tuple(data["seeds"])}
        kind = AGENTS[data["agent"]].Config
        lacked = {f.name: EARLIER[f.name] for f in dataclasses.fields(kind) if f.name in EARLIER}
        config = {k: _tuples(v) for k, v in unquote(data["config"]).items()}
        config = kind(**{**lacked, **config})
        observes = tuple(data["observes"])
        return Setup(**{**data, "config": config, "observes": observes})
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"This run is of another version of mmrl: {error}.") from None


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    if old.get("agent") != new.get("agent"):  # whose settings have nothing in common
        return [f"agent was {old.get('agent')!r}, is {new.get('agent')!r}"]
    old, new = (
        {**EARLIER, **x, **x.get("config", {}), **x.get("own", {})}
        | {"config": 0, "blocks": 0, "own": 0}
        for x in map(earlier, (old, new))
    )
    names = sorted(old.keys() | new.keys())
    names = [k for k in names if old.get(k) not in (new.get(k), _of_main(new.get(k)))]
    return [f"{k} was {old.get(k)!r}, is {new.get(k)!r}" for k in names]


def _of_main(text: Any) -> Any:
    """Name the parts of a script as earlier versions did."""
    name = script()
    if name is None or not isinstance(text, str):
        return text
    return re.sub(rf"\b{re.escape(name)}\.", "__main__.", text)


def _name(part: Any) -> str | None:
    """Where a part of the user's own is to be found, and what it was given; a string is itself."""
    if part is None or isinstance(part, str):
        return part
    if isinstance(part, tuple):
        return f"({', '.join(str(_name(x)) for x in part)})"
    if isinstance(part, functools.partial):
        given = [*map(_name, part.args), *(f"{k}={_name(v)}" for k, v in part.keywords.items())]
        return f"{_name(part.func)}({', '.join(map(str, given))})"
    if isinstance(part, set | frozenset):  # whose order is another one tomorrow
        return f"{{{', '.join(sorted(str(_name(x)) for x in part))}}}"
    if hasattr(part, "__qualname__"):
        return f"{_module(part)}.{part.__qualname__}"
    if isinstance(part, np.ndarray | jax.Array):
        numbers = np.asarray(unwrap_keys(part))  # of many, NumPy shows the ends alone
        many = f"{numbers.dtype}{numbers.shape} {hashlib.sha256(numbers.tobytes()).hexdigest()}"
        return repr(numbers) if numbers.size <= 1000 else many
    if not hasattr(part, "__dict__"):
        return re.sub(" at 0x[0-9a-f]+", "", repr(part))  # which is another one tomorrow
    parts = sorted(vars(part).items())
    given = [f"{k}={v!r}" if isinstance(v, str) else f"{k}={_name(v)}" for k, v in parts]
    return f"{_module(type(part))}.{type(part).__qualname__}({', '.join(given)})"


def _module(part: Any) -> str:
    """Return the module of a part as other programs import it, also if it is run as a script."""
    main = part.__module__ in ("__main__", "__mp_main__")
    return (main and script()) or str(part.__module__)


def script() -> str | None:
    """Return the name by which `__main__` can be imported; None in a notebook and at a prompt."""
    main = sys.modules["__main__"]
    if (spec := getattr(main, "__spec__", None)) is not None:
        return spec.name
    if getattr(main, "__file__", None) is None:
        return None
    path = pathlib.Path(str(main.__file__)).resolve()
    packages = itertools.takewhile(lambda x: (x / "__init__.py").exists(), path.parents)
    return ".".join(reversed([path.stem, *(x.name for x in packages)]))


def warn_of_main(path: Any, data: dict[str, Any]) -> None:
    """Warn, before a run begins, of parts that no other program can import."""
    parts = [name for name, text in data.get("own", {}).items() if "__main__." in text]
    if parts and path is not None:
        warnings.warn(
            f"Of this run, {' and '.join(f'`{x}`' for x in parts)} can be found only here, in "
            "`__main__`, so that no other program can resume it. To avoid that, define "
            f"{'it' if len(parts) == 1 else 'them'} in a module, and import that.",
            stacklevel=4,
        )


def _tuples(data: Any) -> Any:
    """JSON knows no tuples."""
    return tuple(map(_tuples, data)) if isinstance(data, list) else data
