"""Reinforcement learning agents, one per module or package.

Import the module of an agent, or look it up by name. Its `Config` has the settings of a run:

    >>> from mmrl.agents import dqn, find
    >>> find("dqn") is dqn
    True
    >>> config = dqn.Config(memory="gru", gamma=0.99)
    >>> config.for_steps(100_000).blocks  # at least 100 000 environment steps
    40
"""

import difflib
import importlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from mmrl._lazy import OnDemand
from mmrl.agents.settings import Paper
from mmrl.agents.settings import repeatable as repeatable
from mmrl.agents.settings import resize as resize


@runtime_checkable
class Agent(Protocol):
    """Interface of an agent's module, as used by runs, commands and tests."""

    @property
    def Config(self) -> Any:
        """Class of the agent's settings.

        A config has the fields `memory`, `width`, `gamma`, `learning_rate` and `anneal`, and the
        sizes of a run: `environments`, `rollout`, `block`, `blocks` and `episodes`. Schedules over
        the length of a run must use `horizon`, in blocks, instead of `blocks`, because runs compile
        a program with blocks=1.
        """
        ...

    @property
    def OBSERVES(self) -> tuple[str, ...]:
        """Default inputs of the network besides o_t, as names from `mmrl.runs.OPTIONAL_INPUTS`."""
        ...

    @property
    def learn(self) -> Callable[..., Any]:
        """Function that takes one gradient step, or all gradient steps of an iteration.

        The argument `loss` of this function is a loss function, which can be custom. The config is
        one of the arguments of `loss`.
        """
        ...

    @property
    def loss(self) -> Callable[..., Any]:
        """Default loss function of `learn`.

        A custom loss has the same arguments, and can call this function.
        """
        ...

    @property
    def check(self) -> Callable[..., None]:
        """Function (config, env, params) that raises `ValueError` for an invalid setting."""
        ...

    @property
    def init(self) -> Callable[..., Any]:
        """Function (config, env, params, key, make=…) that returns the initial state of a run.

        `make(config, env, params, key)` builds the state's `net`, whose policy is `greedy(net)`.
        """
        ...

    @property
    def block(self) -> Callable[..., tuple[Any, Any]]:
        """Function (config, env, params, state, learn=…) that trains for one block.

        It returns the new state and the `mmrl.agents.common.Metrics` of the block.
        """
        ...

    @property
    def train(self) -> Callable[..., tuple[Any, Any]]:
        """Function (config, env, params, key, make=…, learn=…) that trains for a complete run.

        It returns the final state and the metrics of all blocks.
        """
        ...

    @property
    def greedy(self) -> Callable[[Any], Any]:
        """Function from a network to the `mmrl.rollout.Policy` that is evaluated."""
        ...

    # Commands, the documentation and tests use the members below.

    @property
    def PAPERS(self) -> Mapping[str, Paper]:
        """Published settings by name, including "paper": see `mmrl.agents.presets`."""
        ...

    @property
    def SMALL(self) -> Mapping[str, Any]:
        """Settings with which `mmrl doctor` and tests learn a one-step task within seconds.

        Some tests change the sizes, or train for longer.
        """
        ...

    @property
    def label(self) -> Callable[[Any], tuple[str, str]]:
        """Function from a config to a description and a folder name for its runs."""
        ...


_MODULES = {
    "dqn": "mmrl.agents.dqn",
    "r2d2": "mmrl.agents.r2d2",
    "ppo": "mmrl.agents.ppo",
    "ppg": "mmrl.agents.ppo.ppg",
    "clear": "mmrl.agents.clear",
    "pqn": "mmrl.agents.pqn",
}

AGENTS: Mapping[str, Any] = OnDemand(_MODULES, lambda name: importlib.import_module(_MODULES[name]))
"""Agents by name.

Each agent is a module with the members of `Agent`. A module is imported on first access.
"""


def find(agent: str) -> Agent:
    """Return the agent with the given name.

    Raises `ValueError` if there is no such agent.
    """
    if agent not in AGENTS:
        near = difflib.get_close_matches(agent.lower(), AGENTS, 1)
        advice = f" Try {near[0]!r}." if near else ""
        raise ValueError(f"`agent` must be one of {list(AGENTS)}; got {agent!r}.{advice}")
    return AGENTS[agent]
