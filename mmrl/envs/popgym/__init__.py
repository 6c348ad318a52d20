"""The POPGym tasks as gymnax environments: `SPECS` maps an id to the function that builds one.

`SPECS["popgym-RepeatPreviousEasy-v0"]()` is the task as popgym 1.0.7 has it; keyword arguments
override the level's: `SPECS["popgym-RepeatPreviousEasy-v0"](k=8)`. "Paper" is the setting of
Morad et al. 2024 for RepeatPrevious: two decks, k = 10.
"""

from collections.abc import Callable
from functools import partial

from mmrl.envs.popgym.base import Task
from mmrl.envs.popgym.repeat_first import RepeatFirst
from mmrl.envs.popgym.repeat_previous import RepeatPrevious

LEVELS: dict[str, tuple[type[Task], dict[str, dict]]] = {
    "RepeatPrevious": (
        RepeatPrevious,
        {
            "Easy": dict(num_decks=1, k=4),
            "Medium": dict(num_decks=2, k=32),
            "Hard": dict(num_decks=3, k=64),
            "Paper": dict(num_decks=2, k=10),
        },
    ),
    "RepeatFirst": (
        RepeatFirst,
        {
            "Easy": dict(num_decks=1),
            "Medium": dict(num_decks=8),
            "Hard": dict(num_decks=16),
        },
    ),
}

SPECS: dict[str, Callable[..., Task]] = {
    f"popgym-{task}{level}-v0": partial(cls, **arguments)
    for task, (cls, levels) in LEVELS.items()
    for level, arguments in levels.items()
}
