"""The POPGym tasks as gymnax environments: `SPECS` maps an id to the function that builds one.

`SPECS["popgym-RepeatPreviousEasy-v0"]()` is the task as popgym 1.0.7 has it; keyword arguments
override the level's: `SPECS["popgym-RepeatPreviousEasy-v0"](k=8)`. "Paper" is the setting of
Morad et al. 2024 (arXiv:2402.09900) for RepeatPrevious: two decks, k = 10.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from mmrl.envs.popgym.autoencode import Autoencode
from mmrl.envs.popgym.base import Task
from mmrl.envs.popgym.cartpole import PositionOnlyCartPole
from mmrl.envs.popgym.count_recall import CountRecall
from mmrl.envs.popgym.minesweeper import MineSweeper
from mmrl.envs.popgym.multiarmed_bandit import MultiarmedBandit
from mmrl.envs.popgym.repeat_first import RepeatFirst
from mmrl.envs.popgym.repeat_previous import RepeatPrevious


def _levels(**arguments: tuple[Any, Any, Any]) -> dict[str, dict[str, Any]]:
    """The arguments of each level, from those of Easy, Medium and Hard in turn."""
    each = zip(*arguments.values(), strict=True)
    rows = (dict(zip(arguments, values, strict=True)) for values in each)
    return dict(zip(("Easy", "Medium", "Hard"), rows, strict=True))


_PAPER = {"Paper": dict(num_decks=2, k=10)}
LEVELS: dict[str, tuple[Callable[..., Task], dict[str, dict[str, Any]]]] = {
    "RepeatPrevious": (RepeatPrevious, _levels(num_decks=(1, 2, 3), k=(4, 32, 64)) | _PAPER),
    "RepeatFirst": (RepeatFirst, _levels(num_decks=(1, 8, 16))),
    "CountRecall": (CountRecall, _levels(num_decks=(1, 2, 4), types=(2, 4, 13))),
    "Autoencode": (Autoencode, _levels(num_decks=(1, 2, 3))),
    "PositionOnlyCartPole": (PositionOnlyCartPole, _levels(num_steps=(200, 400, 600))),
    "NoisyPositionOnlyCartPole": (PositionOnlyCartPole, _levels(sigma=(0.1, 0.2, 0.3))),
    "MultiarmedBandit": (
        MultiarmedBandit,
        _levels(num_arms=(10, 20, 30), num_steps=(200, 400, 600)),
    ),
    "MineSweeper": (MineSweeper, _levels(size=(4, 6, 8), num_mines=(2, 6, 10))),
}

SPECS: dict[str, Callable[..., Task]] = {
    f"popgym-{task}{level}-v0": partial(build, **arguments)
    for task, (build, levels) in LEVELS.items()
    for level, arguments in levels.items()
}
