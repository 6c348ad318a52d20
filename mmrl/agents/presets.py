"""Presets with the settings of published papers.

`PRESETS["r2d2"]["paper"].config` has the settings of `mmrl train ENVIRONMENT --agent r2d2 --preset
paper`. A preset also records where the paper specifies each setting, and how our agent differs.
Sizes are taken from the papers, whose experiments used clusters and other environments; the notes
suggest sizes for a smaller machine. Settings that a paper does not specify have our default values.
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
    places: Mapping[str, str]  # where the source specifies each setting
    notes: Sequence[str]  # differences from the source, and advice
    observes: tuple[str, ...] | None = None  # inputs of the network; None: default of the agent

    def changes(self) -> dict[str, tuple[Any, Any]]:
        """Map each setting that differs from the default to (default, value)."""
        usual, ours = vars(type(self.config)()), vars(self.config)
        return {name: (usual[name], ours[name]) for name in ours if usual[name] != ours[name]}


def find_preset(agent: str, name: str) -> Preset:
    """Return the preset with the given name.

    Raises `ValueError` if there is no such preset.
    """
    presets = PRESETS.get(agent, {})
    if name not in presets:
        has = f"one of {', '.join(presets)}" if presets else "omitted, because there are no presets"
        raise ValueError(f"`preset` of {agent} must be {has}; got {name!r}.")
    return presets[name]


# Values that disable features of our agents that most sources do not use.
_WITHOUT = {"anneal": 0.0, "lam": 0.0}
_WITHOUT |= {"normalize_rewards": False, "normalize_observations": False}


def _preset(kind: Any, paper: Paper) -> Preset:
    """Build a preset from a paper's settings, without features that the paper does not use."""
    has = vars(kind())
    less = {name: value for name, value in _WITHOUT.items() if name in has}
    settings = {"not in the source": less, **paper.settings}
    values = {name: value for part in settings.values() for name, value in part.items()}
    places = {name: place for place, part in settings.items() for name in part}
    return Preset(kind(**values), paper.source, places, paper.notes, paper.observes)


def _presets(agent: str) -> dict[str, Preset]:
    module = AGENTS[agent]
    return {name: _preset(module.Config, paper) for name, paper in module.PAPERS.items()}


PRESETS: Mapping[str, Mapping[str, Preset]] = OnDemand(AGENTS, _presets)
"""Presets by agent and name."""
