"""Agents, one file or package each; `AGENTS` maps names to them.

from mmrl.agents import dqn        # loads only this agent
find("ppg").train(...)             # an agent by its name
"""

import difflib
import importlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from mmrl._lazy import OnDemand
from mmrl.agents.settings import Paper
from mmrl.agents.settings import repeatable as repeatable
from mmrl.agents.settings import resized as resized


@runtime_checkable
class Agent(Protocol):
    """Interface of an agent: everything that a run uses of its module."""

    @property
    def Config(self) -> Any:
        """The settings class of an agent.

        A config has `memory`, `width`, `gamma`, `learning_rate` and `anneal`, and the numbers that
        count a run's steps: `environments`, `rollout`, `block`, `blocks` and `episodes`. A schedule
        over the length of a run uses `horizon`, in blocks, because `blocks` is 1 in a run's
        program.
        """
        ...

    @property
    def OBSERVES(self) -> tuple[str, ...]:
        """Names in `mmrl.runs.SHOWN` of the network's additional inputs, by default."""
        ...

    @property
    def learn(self) -> Callable[..., Any]:
        """Gradient step of an agent, or all gradient steps of an iteration.

        It takes a `loss`, which may be yours, and calls it with the config among the arguments.
        """
        ...

    @property
    def check(self) -> Callable[..., None]:
        """Function (config, env, params) that raises `ValueError` for an invalid setting."""
        ...

    @property
    def init(self) -> Callable[..., Any]:
        """Function (config, env, params, key, make=…) that returns the state of a new run.

        `make(config, env, params, key)` builds its `net`, which `greedy` plays.
        """
        ...

    @property
    def block(self) -> Callable[..., tuple[Any, Any]]:
        """Function (config, env, params, state, learn=…) that trains for a block.

        It returns the state after the block, and its `mmrl.agents.common.Metrics`.
        """
        ...

    @property
    def train(self) -> Callable[..., tuple[Any, Any]]:
        """Function (config, env, params, key, make=…, learn=…) -> final state and all metrics."""
        ...

    @property
    def greedy(self) -> Callable[[Any], Any]:
        """Function from a net to the `mmrl.rollout.Policy` that is evaluated."""
        ...

    # Used by commands, the site and tests, which derive everything else about an agent from it.

    @property
    def PAPERS(self) -> Mapping[str, Paper]:
        """Settings from papers by name, including "paper": see `mmrl.agents.presets`."""
        ...

    @property
    def SMALL(self) -> Mapping[str, Any]:
        """Settings that learn a task of one step in seconds, for `mmrl doctor` and tests.

        Tests override `environments`, `rollout`, `block` and `blocks`.
        """
        ...

    @property
    def label(self) -> Callable[[Any], tuple[str, str]]:
        """Function from a config to the words and the folder name that distinguish its runs."""
        ...


_MODULES = {
    "dqn": "mmrl.agents.dqn",
    "r2d2": "mmrl.agents.r2d2",
    "ppo": "mmrl.agents.ppo",
    "ppg": "mmrl.agents.ppo.ppg",
    "clear": "mmrl.agents.clear",
}

AGENTS: Mapping[str, Any] = OnDemand(_MODULES, lambda name: importlib.import_module(_MODULES[name]))
"""Agents by name: modules, each an `Agent`, which are imported when they are looked up."""


def find(agent: str) -> Agent:
    """Return the agent of this name. Raise `ValueError` for an unknown one, with the nearest."""
    if agent not in AGENTS:
        near = difflib.get_close_matches(agent.lower(), AGENTS, 1)
        advice = f" Try {near[0]!r}." if near else ""
        raise ValueError(f"`agent` must be one of {list(AGENTS)}; got {agent!r}.{advice}")
    return AGENTS[agent]
