"""Setup of a run: agent, config, environment and seeds, and the values of a sweep."""

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

OPTIONAL_INPUTS: tuple[str, ...] = ("previous_action", "previous_reward", "begin_flag")
"""Names of optional network inputs, in the order in which they are appended to o_t."""

PRECISIONS = {
    "default": None,
    "float32": "highest",
    "tf32": "tensorfloat32",
    "bfloat16": "BF16_BF16_F32",
}
"""Precisions of float32 matrix products, and their names in JAX."""


def jax_name(precision: Any) -> str | None:
    """Return JAX's name for a precision. Raises `ValueError` if the precision is unknown."""
    if not isinstance(precision, str) or precision not in PRECISIONS:
        raise ValueError(f"`precision` must be one of {', '.join(PRECISIONS)}; got {precision!r}.")
    return PRECISIONS[precision]


@dataclasses.dataclass(frozen=True)
class Setup:
    """Complete specification of a run: with equal versions and devices, it fixes the results.

        Setup(env=MyEnv(), make=my_network, learn=partial(dqn.learn, loss=my_loss))
        Setup("CartPole-v1", seeds=SEEDS, over={"learning_rate": (1e-3, 3e-3), "gamma": (0.5, 0.9)})

    The first example has custom parts. Checkpoints store only the names of such parts, so a run can
    be resumed only with an equal setup. On several devices, `make` is traced a second time, with
    twice the environments and twice the `capacity`, to find the arrays that depend on these sizes.
    The second example is a sweep, which trains every combination of the values with every seed in a
    single program.

    Fields that are None take the default of the agent. Raises `ValueError` for an unknown agent,
    for a config of another agent, for unknown names in `observes`, and for invalid custom parts,
    seeds or values.

        >>> from mmrl.agents import dqn
        >>> config = dqn.Config(memory="gru", blocks=2)
        >>> Setup("CartPole-v1", config, seeds=(0, 1), over={"gamma": (0.5, 0.9)}).settings
        [{'gamma': 0.5}, {'gamma': 0.9}]
    """

    env: Any  # id for `mmrl.envs.make`, gymnax environment, or tuple (environment, params)
    config: Any = None  # instance of the agent's `Config`
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    agent: str = "dqn"  # key of `mmrl.agents.AGENTS`
    observes: Any = None  # tuple of names in `OPTIONAL_INPUTS`
    make: Callable | None = None  # function (config, env, params, key) -> net
    learn: Callable | None = None  # function with the arguments of the agent's `learn`
    precision: str = "default"  # key of `PRECISIONS`; "default" keeps JAX's setting
    over: Any = ()  # mapping from real-valued settings to values, stored as a tuple of pairs
    observe: str = "observation"  # "observation", "state" or "pixels"; see `mmrl.envs.make`

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
        defaults = {"observes": agent.OBSERVES, "config": agent.Config()}
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        object.__setattr__(self, "seeds", tuple(self.seeds))
        if isinstance(self.observes, str) or not isinstance(self.observes, Iterable):
            raise ValueError(f"`observes` must be a tuple of names; got {self.observes!r}.")
        extra = sorted(set(self.observes) - set(OPTIONAL_INPUTS))
        if extra:
            raise ValueError(
                f"`observes` must contain only names from {OPTIONAL_INPUTS}; got {extra}."
            )
        observes = tuple(name for name in OPTIONAL_INPUTS if name in self.observes)
        object.__setattr__(self, "observes", observes)
        if type(self.config) is not agent.Config:
            owners = [name for name, other in AGENTS.items() if type(self.config) is other.Config]
            actual = f"one of {owners[0]}" if owners else f"a {type(self.config).__name__}"
            raise ValueError(
                f"`config` must be a `Config` of {self.agent}; got {actual}. Set `agent` to match."
            )
        object.__setattr__(self, "over", _values(self.agent, self.over))

    @property
    def settings(self) -> list[dict[str, float]]:
        """Combinations of the values in `over`, or a single empty dict if `over` is empty."""
        return grid(self.over)

    @property
    def configs(self) -> list[Any]:
        """Configs of all `settings`."""
        return [dataclasses.replace(self.config, **setting) for setting in self.settings]


def grid(over: Iterable[Sequence[Any]]) -> list[dict[str, float]]:
    """Return all combinations of values from pairs (name, values); the last name varies fastest."""
    names = [name for name, _ in over]
    products = itertools.product(*(values for _, values in over))
    return [dict(zip(names, each, strict=True)) for each in products]


SEEDS = (100, 101, 102)
"""Seeds for tuning. `Setup` has other default seeds, because results on tuning seeds are biased."""


def _values(agent: str, over: Any) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """Return the values of a sweep as pairs.

    Raises `ValueError` unless a single program can train all values.
    """
    try:
        over = dict(over)
    except (TypeError, ValueError):
        raise ValueError(f"`over` must map names of settings to values; got {over!r}.") from None
    fields = {field.name: field for field in dataclasses.fields(find(agent).Config)}
    for name in over:
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            advice = f" Try {near[0]}." if near else ""
            raise ValueError(f"`over` must contain settings of {agent}; got {name!r}.{advice}")
        if kinds_of(fields[name])[0] is not float:
            raise ValueError(
                f"`over` must contain real-valued settings; got {name}, which is static, so "
                "each value needs a separately compiled program. Run one sweep per value, in "
                "separate folders."
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
    distinct = isinstance(seeds, Sequence) and len(seeds) == len({*map(str, seeds)})
    good = distinct and all(isinstance(seed, int) and 0 <= seed < 2**32 for seed in seeds)
    if not good or not seeds:
        raise ValueError(
            "`seeds` must be a non-empty tuple of different integers from 0 to 2³² - 1; got "
            f"{seeds!r}."
        )


def _check_call(name: str, function: Any, arguments: tuple[str, ...]) -> None:
    """Raise `ValueError` unless `function` can be called with `arguments` and is hashable."""
    if function is None:
        return
    try:
        if isinstance(function, functools.partial):
            inspect.signature(function.func).bind_partial(*function.args, **function.keywords)
        inspect.signature(function).bind(*arguments)
        hash(function)  # functions are keys of the cache of compiled programs
    except TypeError as error:
        form = f"{name}({', '.join(arguments)})"
        raise ValueError(
            f"`{name}` must be callable as {form}; got {function!r}: {error}."
        ) from None
    except ValueError:  # some callables have no signature that Python can inspect
        pass


def _check_env(env: Any) -> None:
    game = env[0] if isinstance(env, tuple) and len(env) == 2 else env
    if isinstance(game, type):
        raise ValueError(
            f"`env` must be an environment; got its class. Pass an instance, {game.__name__}()."
        )
    if not isinstance(env, str) and not hasattr(game, "step_env"):
        raise ValueError(
            "`env` must be an id, an environment with gymnax's interface, or a tuple of an "
            f"environment and its parameters; got {env!r}."
        )
    try:
        hash(game)  # environments are static arguments of compiled functions
    except TypeError as error:
        raise ValueError(
            "`env` must be hashable, because it is a static argument of compiled functions; got "
            f"{game!r}: {error}. Define `__hash__`, or decorate the class with "
            "`@dataclasses.dataclass(eq=False)`."
        ) from None
