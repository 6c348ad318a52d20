"""Settings of agents in words: in the first line of a run, in errors, and in commands to copy."""

import dataclasses
import re
from typing import Any

from mmrl.agents import find
from mmrl.runs import Setup


def described(agent: str, config: Any) -> tuple[str, str]:
    """An agent's settings in words, and in the name of a folder: those that tell runs apart."""
    words, folder = find(agent).label(config)
    return words, folder.replace(config.memory, config.memory.rpartition(":")[2])  # my_module:Mine


def in_words_of_help(message: str, config: Any) -> str:
    """Translate an error of a function deep down into the names of `mmrl train --help`."""
    for field in dataclasses.fields(config):  # a remedy such as batch=831
        option = f"--{field.name.replace('_', '-')}"
        message = re.sub(rf"\b{field.name}='?([\w.]+\b)'?", rf"{option} \1", message)
    words = {"env": "ENVIRONMENT", "env_id": "ENVIRONMENT"}
    words |= {"name": "`memory`", "sizes": "`memory_sizes`"}
    return re.sub(r"^`(\w+)`", lambda found: words.get(found[1], found[0]), message)


def options_of(setup: Setup) -> list[str]:
    """Return the words of the command line that set what differs from the agent's own settings.

    The environment and the seeds are left out.
    """
    agent = find(setup.agent)
    words = ["--agent", setup.agent] * (setup.agent != Setup.agent)
    if setup.observes != agent.OBSERVES:
        words += ["--observes", *setup.observes]
    if setup.shards != Setup.shards:
        words += ["--shards", str(setup.shards)]
    if setup.precision != Setup.precision:
        words += ["--precision", setup.precision]
    usual = agent.Config()
    for field in dataclasses.fields(usual):
        value = getattr(setup.config, field.name)
        if value != getattr(usual, field.name):
            words += option(field.name, value)
    return words


def option(name: str, value: Any) -> list[str]:
    """Return the words of the command line that give a setting of an agent a value."""
    name = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{name}" if value else f"--no-{name}"]
    pairs = value if isinstance(value, tuple) else [(value,)]
    return [f"--{name}", *(str(word) for pair in pairs for word in pair)]
