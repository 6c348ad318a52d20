"""POPGym's tasks, reimplemented as gymnax environments.

`SPECS` maps ids to functions that build a task. `SPECS["popgym-RepeatPreviousEasy-v0"]()` is
equivalent to the task in popgym 1.0.7. Keyword arguments override the level's arguments, as in
`SPECS["popgym-RepeatPreviousEasy-v0"](k=8)`. RepeatPrevious has an additional level, "Paper", with
the configuration of Morad et al. 2024 (arXiv:2402.09900): two decks and k = 10.

Each file defines a task and its variants, and lists their levels in `TASKS`.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from mmrl._lazy import homes, on_demand
from mmrl.envs.popgym.base import Entry, Task

if TYPE_CHECKING:
    from mmrl.envs.popgym.autoencode import Autoencode as Autoencode
    from mmrl.envs.popgym.battleship import Battleship as Battleship
    from mmrl.envs.popgym.cartpole import PositionOnlyCartPole as PositionOnlyCartPole
    from mmrl.envs.popgym.cartpole import VelocityOnlyCartPole as VelocityOnlyCartPole
    from mmrl.envs.popgym.concentration import Concentration as Concentration
    from mmrl.envs.popgym.count_recall import CountRecall as CountRecall
    from mmrl.envs.popgym.higher_lower import HigherLower as HigherLower
    from mmrl.envs.popgym.labyrinth import LabyrinthEscape as LabyrinthEscape
    from mmrl.envs.popgym.labyrinth import LabyrinthExplore as LabyrinthExplore
    from mmrl.envs.popgym.minesweeper import MineSweeper as MineSweeper
    from mmrl.envs.popgym.multiarmed_bandit import MultiarmedBandit as MultiarmedBandit
    from mmrl.envs.popgym.pendulum import PositionOnlyPendulum as PositionOnlyPendulum
    from mmrl.envs.popgym.repeat_first import RepeatFirst as RepeatFirst
    from mmrl.envs.popgym.repeat_previous import RepeatPrevious as RepeatPrevious

__all__, __getattr__, __dir__ = on_demand(__name__, "LEVELS", "SPECS")

LEVELS: dict[str, Entry] = {
    task: entry
    for file in homes(__name__).values()
    for task, entry in import_module(file).TASKS.items()
}
SPECS: dict[str, Callable[..., Task]] = {
    f"popgym-{task}{level}-v0": partial(entry.build, **arguments)
    for task, entry in LEVELS.items()
    for level, arguments in entry.levels.items()
}
