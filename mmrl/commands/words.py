"""Settings of agents in words: in the first line of a run, in errors, and in commands to copy."""

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from mmrl.agents import clear, dqn, find, ppo, r2d2
from mmrl.agents.ppo import ppg
from mmrl.runs import Setup


def _dqn(config: dqn.Config) -> tuple[str, str]:
    length = config.segment_length
    words = "a tape" if config.batching == "tape" else f"segments of {length} steps"
    return f"{config.memory} on {words}", f"{config.memory}-{config.batching}"


def _r2d2(config: r2d2.Config) -> tuple[str, str]:
    words = f"{config.memory}, {config.start} state, burn-in {config.burn_in}"
    return words, f"r2d2-{config.memory}-{config.start}"


def _ppo(config: ppo.Config) -> tuple[str, str]:
    words = f"{config.memory}, {config.objective}, proximal policy: {config.proximal}"
    return words, f"ppo-{config.memory}-{config.proximal}"


def _ppg(config: ppg.Config) -> tuple[str, str]:
    words, name = _ppo(config)
    return f"{words}, phases of {config.policy_iterations}", name.replace("ppo", "ppg", 1)


def _clear(config: clear.Config) -> tuple[str, str]:
    share = f"{100 * config.replay_fraction:g}"
    if config.replay_fraction == 0:
        return f"{config.memory}, V-trace without replay", f"vtrace-{config.memory}"
    return f"{config.memory}, {share} % of each batch replayed", f"clear-{config.memory}-{share}"


_NAMES: dict[str, Callable[[Any], tuple[str, str]]] = {
    "dqn": _dqn,
    "r2d2": _r2d2,
    "ppo": _ppo,
    "ppg": _ppg,
    "clear": _clear,
}


def described(agent: str, config: Any) -> tuple[str, str]:
    """An agent's settings in words, and in the name of a folder: those that tell runs apart."""
    name = _NAMES.get(agent, lambda config: (config.memory, f"{agent}-{config.memory}"))
    words, folder = name(config)
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
