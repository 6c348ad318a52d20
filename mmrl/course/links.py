"""Conversion of a setup to a link or a command, and back from a link.

    query(Setup(env="probe-Memory-v0", seeds=(0, 1)))   # "env=probe-Memory-v0&agent=dqn&seeds=0+1"
    read("?env=probe-Memory-v0&gamma=0.9")              # the setup, checked
    command(setup)                                      # "mmrl train probe-Memory-v0 …"

Links and commands contain only the settings that differ from the defaults, with the names and
values of `mmrl train`.
"""

import dataclasses
import difflib
import re
import shlex
import typing
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

import jax

from mmrl.agents import find
from mmrl.agents.settings import WORDS
from mmrl.envs import registered_ids
from mmrl.memory import NAMES
from mmrl.runs import Run, Setup

START = Setup(env="popgym-RepeatFirstEasy-v0", seeds=(0, 1, 2))
REMEDY = "Fix the link, or remove this setting from it."
# Upper limits, chosen for laptops. `LARGEST` is the limit of settings without an entry in `MOST`.
MOST = {"seeds": 20, "blocks": 500, "capacity": 10**6, "layers": 16}
LARGEST, LARGEST_SIZE = 10_000, 1024  # `LARGEST_SIZE` is the limit of memory sizes
STEPS = 10**6  # environment steps in a block of one seed
NUMBERS = 5 * 10**8  # entries of all arrays in the state of a run
_MEANINGS = {bool: "yes or no", int: "a whole number", float: "a number", str: "a name"}


def changes(config: Any) -> dict[str, Any]:
    """Return the settings of a config that differ from the agent's defaults, keyed by name."""
    usual = vars(type(config)())
    return {name: value for name, value in vars(config).items() if value != usual[name]}


def to_words(value: Any) -> str:
    """Format the value of a setting, for example as yes or 0.003."""
    if isinstance(value, tuple):
        return " ".join(to_words(each) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return repr(float(value)) if isinstance(value, float) else str(value)


def from_words(name: str, words: str, kind: Any) -> Any:
    """Parse a string from `to_words` as a value of type `kind`.

    Raises `ValueError` for a string that does not fit the type.
    """
    words, (kind, *others) = words.strip(), typing.get_args(kind) or (kind,)
    if type(None) in others and words.lower() == "none":
        return None
    try:
        if kind is bool:
            return {"yes": True, "true": True, "no": False, "false": False}[words.lower()]
        if kind not in _MEANINGS:
            pairs = words.split()
            sizes = zip(pairs[::2], map(int, pairs[1::2]), strict=True)
            return tuple(sizes)
        return kind(words)
    except (ValueError, KeyError):
        meaning = _MEANINGS.get(kind, "alternating names and whole numbers, such as state_size 32")
        raise ValueError(f"`{name}` must be {meaning}; got {words!r}.") from None


def query(setup: Setup) -> str:
    """Return the query of a link, which is the part after the question mark."""
    values = {"env": setup.env, "agent": setup.agent, "seeds": to_words(setup.seeds)}
    return urlencode(
        values | {name: to_words(value) for name, value in changes(setup.config).items()}
    )


def pairs(query: str) -> dict[str, str]:
    """Parse a query into strings keyed by name. Raises `ValueError` if a name occurs twice."""
    values: dict[str, str] = {}
    for name, words in parse_qsl(query.lstrip("?"), keep_blank_values=True):
        if name in values:
            raise ValueError(f"`{name}` must not occur twice in a link. {REMEDY}")
        values[name] = words
    return values


def read(query: str | Mapping[str, str], start: Setup = START) -> Setup:
    """Return the setup that a link describes, given as a query or as its `pairs`.

    Settings that are not in the link have the values in `start`, or the defaults if the agent is
    a different one. A link can only name registered environments and agents, so no other module is
    imported. Raises `ValueError` for invalid names and values, and for a run that is too large for
    a laptop.
    """
    query_values = dict(pairs(query) if isinstance(query, str) else query)
    try:
        agent = query_values.pop("agent", start.agent)
        usual = start.config if agent == start.agent else find(agent).Config()
        env = _env(query_values.pop("env", start.env))
        seeds = _seeds(query_values.pop("seeds", to_words(start.seeds)))
        kinds = {field.name: field.type for field in dataclasses.fields(usual)}
        for name in query_values:
            if name not in kinds:
                near = difflib.get_close_matches(name, [*kinds, "env", "agent", "seeds"], 1)
                advice = f"; nearest: {near[0]}" if near else ""
                raise ValueError(f"`{name}` must be a setting of {agent}{advice}.")
        values = {
            name: from_words(name, words, kinds[name]) for name, words in query_values.items()
        }
        if values.get("memory", NAMES[0]) not in NAMES:
            bounds = f"`memory` must be one of {', '.join(NAMES)}"
            raise ValueError(f"{bounds}; got {values['memory']!r}.")
        setup = Setup(env, dataclasses.replace(usual, **values), seeds, agent)
        check_sizes(setup)
        check_room(Run(setup))  # raises an error for a run that cannot be trained
    except ValueError as error:
        text = re.sub("^`sizes`", "`memory_sizes`", str(error))
        raise ValueError(f"{text} {REMEDY}") from None
    return setup


def check_sizes(setup: Setup) -> None:
    """Raise `ValueError` for an integer setting that is too large for a laptop.

    The check covers each integer by itself and the number of steps in a block. It does not build
    the run.
    """
    config = setup.config
    own = {name: value for name, value in vars(config).items() if type(value) is int}
    sizes = dict(config.memory_sizes)
    for name, value in {"seeds": len(setup.seeds), **own, **sizes}.items():
        most = MOST.get(name, LARGEST_SIZE if name in sizes else LARGEST)
        if value > most:
            raise ValueError(f"`{name}` must be at most {most:,} here; got {value:,}.")
    steps = config.block * config.rollout * config.environments
    if steps > STEPS:
        bounds = f"`block` × `rollout` × `environments` must be at most {STEPS:,} steps here"
        raise ValueError(f"{bounds}; got {steps:,}.")


def check_room(run: Run) -> None:
    """Raise `ValueError` for a run whose state needs too much memory for a laptop.

    The size is computed from shapes, and no array is allocated.
    """
    size = sum(x.size for x in jax.tree.leaves(jax.eval_shape(run.begin)))
    if size > NUMBERS:
        raise ValueError(
            f"The state of a run must have at most {NUMBERS:,} entries here; got {size:,}. Reduce "
            "`capacity`, `environments`, `width` or the size of the memory."
        )


def _env(name: str) -> str:
    names = registered_ids()
    if name not in names:
        nearest = difflib.get_close_matches(name, names, n=3, cutoff=0.0)
        near = ", ".join(nearest)
        raise ValueError(
            f"`env` must name a registered environment; got {name!r}. Nearest: {near}."
        )
    return name


def _seeds(words: str) -> tuple[int, ...]:
    seeds = tuple(from_words("seeds", each, int) for each in words.split())
    if seeds != tuple(range(len(seeds))) or not seeds:
        raise ValueError(f"`seeds` must count from 0, such as 0 1 2; got {words!r}.")
    return seeds


def command(setup: Setup) -> str:
    """Return the `mmrl train` command for a setup."""
    parts = ["mmrl", "train", setup.env, "--agent", setup.agent, "--seeds", *map(str, setup.seeds)]
    for name, value in changes(setup.config).items():
        option = name.replace("_", "-")
        if isinstance(value, bool) and name not in WORDS:
            parts.append(f"--{option}" if value else f"--no-{option}")
        else:
            parts += [f"--{option}", *shlex.split(to_words(value))]
    return shlex.join(parts)
