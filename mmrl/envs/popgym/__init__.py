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

LEVELS: dict[str, tuple[Callable[..., Task], dict[str, dict[str, Any]]]] = {
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
    "CountRecall": (
        CountRecall,
        {
            "Easy": dict(num_decks=1, types=2),
            "Medium": dict(num_decks=2, types=4),
            "Hard": dict(num_decks=4, types=13),
        },
    ),
    "Autoencode": (
        Autoencode,
        {
            "Easy": dict(num_decks=1),
            "Medium": dict(num_decks=2),
            "Hard": dict(num_decks=3),
        },
    ),
    "PositionOnlyCartPole": (
        PositionOnlyCartPole,
        {
            "Easy": dict(num_steps=200),
            "Medium": dict(num_steps=400),
            "Hard": dict(num_steps=600),
        },
    ),
    "NoisyPositionOnlyCartPole": (
        PositionOnlyCartPole,
        {
            "Easy": dict(sigma=0.1),
            "Medium": dict(sigma=0.2),
            "Hard": dict(sigma=0.3),
        },
    ),
    "MultiarmedBandit": (
        MultiarmedBandit,
        {
            "Easy": dict(num_arms=10, num_steps=200),
            "Medium": dict(num_arms=20, num_steps=400),
            "Hard": dict(num_arms=30, num_steps=600),
        },
    ),
    "MineSweeper": (
        MineSweeper,
        {
            "Easy": dict(size=4, num_mines=2),
            "Medium": dict(size=6, num_mines=6),
            "Hard": dict(size=8, num_mines=10),
        },
    ),
}

SPECS: dict[str, Callable[..., Task]] = {
    f"popgym-{task}{level}-v0": partial(build, **arguments)
    for task, (build, levels) in LEVELS.items()
    for level, arguments in levels.items()
}
