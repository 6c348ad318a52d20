"""The settings of the papers, each with the table that it stands in, and what differs from them.

`PRESETS["r2d2"]["paper"].config` is what `mmrl train ENVIRONMENT --agent r2d2 --preset paper` has
for settings. Sizes are the papers', which are for clusters and other environments: the notes say
which to lower on a smaller machine. What a paper does not say stays as our defaults are.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mmrl._lazy import OnDemand
from mmrl.agents import AGENTS
from mmrl.agents.settings import Paper


class Preset(NamedTuple):
    """Settings of an agent, as a source has them."""

    config: Any  # a `Config` of the agent
    source: str
    places: Mapping[str, str]  # where in the source a setting stands, by its name
    notes: Sequence[str]  # what the source has and the config has not, and what to change
    observes: tuple[str, ...] | None = None  # what the network is shown; None: the agent's own

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """The settings that differ from the defaults: (default, the preset's)."""
        usual, ours = vars(type(self.config)()), vars(self.config)
        return {name: (usual[name], ours[name]) for name in ours if usual[name] != ours[name]}


def find_preset(agent: str, name: str) -> Preset:
    """The preset of this name. Raises `ValueError` for an unknown one, with those there are."""
    known = PRESETS.get(agent, {})
    if name not in known:
        has = f"one of {', '.join(known)}" if known else "left out: there is none"
        raise ValueError(f"`preset` of {agent} must be {has}; got {name!r}.")
    return known[name]


# What our agents can do beyond their sources, and do by default here and there.
_WITHOUT = {"anneal": 0.0, "lam": 0.0}
_WITHOUT |= {"normalize_rewards": False, "normalize_observations": False}


def _preset(kind: Any, paper: Paper) -> Preset:
    """Return a `Config` with a paper's settings, and without what it does not mention."""
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
