"""A setup as a link, as text in a box, and as a command: the settings that differ from defaults.

    query(Setup(env="probe-Memory-v0", seeds=(0, 1)))   # "env=probe-Memory-v0&agent=dqn&seeds=0+1"
    read("?env=probe-Memory-v0&gamma=0.9")              # the setup, checked
    command(setup)                                      # "mmrl train probe-Memory-v0 …"

All three use the names and values of `mmrl train`.
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
from mmrl.envs import registered
from mmrl.memory import NAMES
from mmrl.runs import Run, Setup

START = Setup(env="popgym-RepeatFirstEasy-v0", seeds=(0, 1, 2))
REMEDY = "Mend the link, or leave that out of it."
# Limits for a laptop: each setting is at most the number next to its name, or else `LARGEST`.
MOST = {"seeds": 20, "blocks": 500, "capacity": 10**6, "layers": 16}
LARGEST, LARGEST_SIZE = 10_000, 1024  # the second limits sizes of memories
STEPS = 10**6  # steps in a block, summed over a seed's environments
NUMBERS = 5 * 10**8  # numbers in the state of a run, over all seeds
_WANTED = {bool: "yes or no", int: "a whole number", float: "a number", str: "a name"}


def changed(config: Any) -> dict[str, Any]:
    """Return the settings of a config that differ from the agent's defaults, by name."""
    usual = vars(type(config)())
    return {name: value for name, value in vars(config).items() if value != usual[name]}


def worded(value: Any) -> str:
    """Format a setting's value in words: yes, 0.003, segments, state_size 32."""
    if isinstance(value, tuple):
        return " ".join(worded(each) for each in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return repr(float(value)) if isinstance(value, float) else str(value)


def understood(name: str, words: str, kind: Any) -> Any:
    """Parse the words of `worded` as a value of a field's type. Raises `ValueError`."""
    words, (kind, *others) = words.strip(), typing.get_args(kind) or (kind,)
    if type(None) in others and words.lower() == "none":
        return None
    try:
        if kind is bool:
            return {"yes": True, "true": True, "no": False, "false": False}[words.lower()]
        if kind not in _WANTED:
            pairs = words.split()
            sizes = zip(pairs[::2], map(int, pairs[1::2]), strict=True)
            return tuple(sizes)
        return kind(words)
    except (ValueError, KeyError):
        wanted = _WANTED.get(kind, "names and whole numbers in turn, such as state_size 32")
        raise ValueError(f"`{name}` must be {wanted}; got {words!r}.") from None


def query(setup: Setup) -> str:
    """Return the part of a link behind the question mark."""
    told = {"env": setup.env, "agent": setup.agent, "seeds": worded(setup.seeds)}
    return urlencode(told | {name: worded(value) for name, value in changed(setup.config).items()})


def pairs(query: str) -> dict[str, str]:
    """Split a link into words by name. Raises `ValueError` if a name occurs twice."""
    found: dict[str, str] = {}
    for name, words in parse_qsl(query.lstrip("?"), keep_blank_values=True):
        if name in found:
            raise ValueError(f"`{name}` must stand in a link once; got it twice. {REMEDY}")
        found[name] = words
    return found


def read(query: str | Mapping[str, str], start: Setup = START) -> Setup:
    """Return the setup in a link or its `pairs`; other settings come from `start` or the defaults.

    A link can only train registered environments and agents; no other module is imported. Raises
    `ValueError`, with one sentence and a remedy, for invalid names and values.
    """
    given = dict(pairs(query) if isinstance(query, str) else query)
    try:
        agent = given.pop("agent", start.agent)
        usual = start.config if agent == start.agent else find(agent).Config()
        env = _env(given.pop("env", start.env))
        seeds = _seeds(given.pop("seeds", worded(start.seeds)))
        kinds = {field.name: field.type for field in dataclasses.fields(usual)}
        for name in given:
            if name not in kinds:
                near = difflib.get_close_matches(name, [*kinds, "env", "agent", "seeds"], 1)
                advice = f"; nearest: {near[0]}" if near else ""
                raise ValueError(f"`{name}` must be a setting of {agent}{advice}.")
        values = {name: understood(name, words, kinds[name]) for name, words in given.items()}
        if values.get("memory", NAMES[0]) not in NAMES:
            wanted = f"`memory` must be one of {', '.join(NAMES)}"
            raise ValueError(f"{wanted}; got {values['memory']!r}.")
        setup = Setup(env, dataclasses.replace(usual, **values), seeds, agent)
        check_sizes(setup)
        check_room(Run(setup))  # raises an error for a run that cannot be trained
    except ValueError as error:
        text = re.sub("^`sizes`", "`memory_sizes`", str(error))
        raise ValueError(f"{text} {REMEDY}") from None
    return setup


def check_sizes(setup: Setup) -> None:
    """Raise `ValueError` for whole numbers that are too large for a laptop.

    Each number is checked by itself, and so is the number of steps in a block. The run is not
    built.
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
        wanted = f"`block` × `rollout` × `environments` must be at most {STEPS:,} steps here"
        raise ValueError(f"{wanted}; got {steps:,}.")


def check_room(run: Run) -> None:
    """Raise `ValueError` for a run whose state has too many numbers for a laptop.

    The numbers are counted from shapes, without computing.
    """
    kept = sum(x.size for x in jax.tree.leaves(jax.eval_shape(run.begin)))
    if kept > NUMBERS:
        raise ValueError(
            f"A run must keep at most {NUMBERS:,} numbers here; got {kept:,}. Make `capacity`, "
            "`environments`, `width` or the memory smaller."
        )


def _env(name: str) -> str:
    names = registered()
    if name not in names:
        nearest = difflib.get_close_matches(name, names, n=3, cutoff=0.0)
        near = ", ".join(nearest)
        raise ValueError(
            f"`env` must name a registered environment; got {name!r}. Nearest: {near}."
        )
    return name


def _seeds(words: str) -> tuple[int, ...]:
    seeds = tuple(understood("seeds", each, int) for each in words.split())
    if seeds != tuple(range(len(seeds))) or not seeds:
        raise ValueError(f"`seeds` must count from 0, such as 0 1 2; got {words!r}.")
    return seeds


def command(setup: Setup) -> str:
    """Return the command that trains the same setup in a terminal, with all checkpoints."""
    parts = ["mmrl", "train", setup.env, "--agent", setup.agent, "--seeds", *map(str, setup.seeds)]
    for name, value in changed(setup.config).items():
        option = name.replace("_", "-")
        if isinstance(value, bool) and name not in WORDS:
            parts.append(f"--{option}" if value else f"--no-{option}")
        else:
            parts += [f"--{option}", *shlex.split(worded(value))]
    return shlex.join(parts)
