"""Agents, one page each; `AGENTS` has them by name.

from mmrl.agents import dqn        # loads this agent alone
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
    """A module that trains: all that a run asks of it."""

    @property
    def Config(self) -> Any:
        """An agent's settings. They have `memory`, `width`, `gamma`, `learning_rate`, `anneal`, and
        what counts a run's steps: `environments`, `rollout`, `block`, `blocks` and `episodes`. A
        schedule that follows the length of a run goes by `horizon`, in blocks: in a run's program
        `blocks` is 1."""
        ...

    @property
    def OBSERVES(self) -> tuple[str, ...]:
        """The names in `mmrl.runs.SHOWN` of what its network is shown unless a setup says so."""
        ...

    @property
    def learn(self) -> Callable[..., Any]:
        """An agent's gradient step, or all those of an iteration; takes a `loss` of the user's,
        which is called with the config among its arguments."""
        ...

    @property
    def check(self) -> Callable[..., None]:
        """(config, env, params): raises `ValueError` for a setting that cannot work."""
        ...

    @property
    def init(self) -> Callable[..., Any]:
        """(config, env, params, key, make=…) -> the state of a run that begins.

        Its `net`, built by `make(config, env, params, key)`, is what `greedy` plays."""
        ...

    @property
    def block(self) -> Callable[..., tuple[Any, Any]]:
        """(config, env, params, state, learn=…) -> the state after a block, and its
        `mmrl.agents.common.Metrics`."""
        ...

    @property
    def train(self) -> Callable[..., tuple[Any, Any]]:
        """(config, env, params, key, make=…, learn=…) -> state and metrics of all blocks."""
        ...

    @property
    def greedy(self) -> Callable[[Any], Any]:
        """net -> the `mmrl.rollout.Policy` that is evaluated."""
        ...

    # For commands, the site and tests: everything else about an agent is derived from these.

    @property
    def PAPERS(self) -> Mapping[str, Paper]:
        """The settings of its sources by name, "paper" among them: see `mmrl.agents.presets`."""
        ...

    @property
    def SMALL(self) -> Mapping[str, Any]:
        """Settings with which it learns a task of one step in seconds: for `mmrl doctor`, and for
        tests, which choose other `environments`, `rollout`, `block` and `blocks`."""
        ...

    @property
    def label(self) -> Callable[[Any], tuple[str, str]]:
        """config -> what tells its runs apart, in words and in the name of a folder."""
        ...


_MODULES = {
    "dqn": "mmrl.agents.dqn",
    "r2d2": "mmrl.agents.r2d2",
    "ppo": "mmrl.agents.ppo",
    "ppg": "mmrl.agents.ppo.ppg",
    "clear": "mmrl.agents.clear",
}

AGENTS: Mapping[str, Any] = OnDemand(_MODULES, lambda name: importlib.import_module(_MODULES[name]))
"""The agents by name: modules, each an `Agent`, which are imported when they are looked up."""


def find(agent: str) -> Agent:
    """The agent of this name. Raises `ValueError` for an unknown one, with the nearest."""
    if agent not in AGENTS:
        near = difflib.get_close_matches(agent.lower(), AGENTS, 1)
        advice = f" Try {near[0]!r}." if near else ""
        raise ValueError(f"`agent` must be one of {list(AGENTS)}; got {agent!r}.{advice}")
    return AGENTS[agent]
