"""Settings from papers, each with its place in the paper, and the remaining differences.

`PRESETS["r2d2"]["paper"].config` has the settings of `mmrl train ENVIRONMENT --agent r2d2 --preset
paper`. Sizes are the papers', which are for clusters and other environments: the notes name those
to lower on a smaller machine. Settings that a paper does not specify keep our defaults.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mmrl._lazy import OnDemand
from mmrl.agents import AGENTS
from mmrl.agents.settings import Paper


class Preset(NamedTuple):
    """Settings of an agent from a published source."""

    config: Any  # a `Config` of the agent
    source: str
    places: Mapping[str, str]  # place of each setting in the source
    notes: Sequence[str]  # differences from the source, and what to change
    observes: tuple[str, ...] | None = None  # inputs of the network; None: the agent's default

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """Return the settings that differ from the defaults: (default, the preset's)."""
        usual, ours = vars(type(self.config)()), vars(self.config)
        return {name: (usual[name], ours[name]) for name in ours if usual[name] != ours[name]}


def find_preset(agent: str, name: str) -> Preset:
    """Return the preset of this name. Raise `ValueError` for an unknown one; it lists all."""
    known = PRESETS.get(agent, {})
    if name not in known:
        has = f"one of {', '.join(known)}" if known else "left out: there is none"
        raise ValueError(f"`preset` of {agent} must be {has}; got {name!r}.")
    return known[name]


# Features that our agents add to their sources, some of them on by default.
_WITHOUT = {"anneal": 0.0, "lam": 0.0}
_WITHOUT |= {"normalize_rewards": False, "normalize_observations": False}


def _preset(kind: Any, paper: Paper) -> Preset:
    """Return a `Config` with a paper's settings, and without features that it does not mention."""
    has = vars(kind())
    less = {name: value for name, value in _WITHOUT.items() if name in has}
    settings = {"of which it says nothing": less, **paper.settings}
    values = {name: value for part in settings.values() for name, value in part.items()}
    places = {name: place for place, part in settings.items() for name in part}
    return Preset(kind(**values), paper.source, places, paper.notes, paper.observes)


def _presets(agent: str) -> dict[str, Preset]:
    module = AGENTS[agent]
    return {name: _preset(module.Config, paper) for name, paper in module.PAPERS.items()}


PRESETS: Mapping[str, Mapping[str, Preset]] = OnDemand(AGENTS, _presets)
"""Presets by agent and name."""
