"""The picture of each task: the arrays of an episode become the arguments of its drawing."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from mmrl.course.drawings.bandit import bandit
from mmrl.course.drawings.boards import battleship, concentration, labyrinth
from mmrl.course.drawings.cards import GAP, NOTHING, card_strip, count_recall
from mmrl.course.drawings.cart_pole import cart_pole
from mmrl.course.drawings.catch import catch
from mmrl.course.drawings.mine_sweeper import mine_sweeper
from mmrl.course.drawings.pendulum import pendulum

_WINDOW = 13  # cards in view when one frame is drawn


@dataclasses.dataclass(frozen=True)
class Episode:
    """An episode to draw: steps 0 to `now`, and the name and level of the task."""

    task: str
    level: str
    obs: Float[ndarray, "time obs"]
    action: Int[ndarray, " time"] | Float[ndarray, "time 1"]
    reward: Float[ndarray, " time"]
    next_obs: Float[ndarray, "time obs"]
    hidden: Float[ndarray, "time state"] | None
    settings: Mapping[str, int]
    one_frame: bool

    @property
    def now(self) -> int:
        """The last step that is drawn."""
        return len(self.reward) - 1

    @property
    def note(self) -> str:
        """The step and the return so far, in words."""
        total = round(float(self.reward.sum()), 2) + 0.0
        return f"step {self.now}, return {total:.2f}".replace("-", "−")

    def setting(self, name: str, easy: int, medium: int, hard: int) -> int:
        """Return the argument if it is given, else the level's default."""
        levels = {"Medium": medium, "Hard": hard}
        return self.settings.get(name, levels.get(self.level, easy))


def _repeat_first(episode: Episode) -> str:
    cards = episode.obs[:, :4].argmax(-1)
    return _strip(episode, cards, 0, "RepeatFirst: say the first suit")


def _repeat_previous(episode: Episode) -> str:
    """Draw RepeatPrevious; its lag is visible because the task rewards from step k - 1 on."""
    cards = episode.obs[:, :4].argmax(-1)
    paid = np.flatnonzero(episode.reward)
    if not paid.size:
        return _strip(episode, cards, None, "RepeatPrevious: not asked yet")
    asked = episode.now - int(paid[0])
    title = f"RepeatPrevious: say the suit of {paid[0]} steps ago"
    return _strip(episode, cards, asked, title)


def _autoencode(episode: Episode) -> str:
    """Draw Autoencode: WATCH, then PLAY; the last card is shown with PLAY, and then none."""
    play = np.flatnonzero(episode.obs[:, 0])
    last = int(play[0]) if play.size else len(episode.obs)
    cards = episode.obs[:, 2:6].argmax(-1)
    cards = np.where(np.arange(len(cards)) > last, NOTHING, cards)
    asked = 2 * last - episode.now if play.size else None
    return _strip(episode, cards, asked, "Autoencode: watch, then say the cards backwards")


def _strip(
    episode: Episode, cards: Int[ndarray, " time"], asked: int | None, title: str, types: int = 4
) -> str:
    """Draw the whole episode in rows, or the last cards and before them the requested one."""
    steps = np.arange(len(cards))
    columns = 26 if len(cards) <= 104 else 52
    if episode.one_frame:
        steps = steps[-_WINDOW:]
        if asked is not None and asked < steps[0]:
            steps = np.array([asked, GAP, *steps[2:]])
        cards = np.where(steps == GAP, GAP, cards[steps])
    return card_strip(
        cards,
        episode.action[steps],
        episode.reward[steps],
        steps=steps,
        asked=asked if episode.one_frame else None,
        columns=columns,
        types=types,
        title=title,
        note=episode.note,
    )


def _count_recall(episode: Episode) -> str:
    types = episode.setting("types", 2, 4, 13)
    return count_recall(
        episode.obs[:, :types].argmax(-1),
        episode.obs[:, types : 2 * types].argmax(-1),
        episode.action,
        episode.reward,
        types,
        first=max(0, episode.now + 1 - _WINDOW) if episode.one_frame else 0,
        columns=26 if episode.now < 104 else 52,
        title="CountRecall: how often was it shown?",
        note=episode.note,
    )


def _cart_pole(episode: Episode) -> str:
    hides = episode.task != "CartPole"
    return cart_pole(
        episode.obs[:, :2] if hides else episode.obs[:, [0, 2]],
        episode.action,
        hidden=episode.hidden if hides else episode.obs[:, :4],
        hides_velocity=hides,
        title=episode.task,
        note=episode.note,
    )


def _catch(episode: Episode) -> str:
    boards = episode.obs[:, :50].reshape(-1, 10, 5)
    return catch(boards, int(episode.action[-1]), title="Catch", note=episode.note)


def _bandit(episode: Episode) -> str:
    arms = episode.setting("num_arms", 10, 20, 30)
    return bandit(
        episode.action,
        (episode.reward > 0).astype(np.int32),
        arms,
        odds=None if episode.hidden is None else episode.hidden[-1, :arms],
        title="MultiarmedBandit: find the arm that pays",
        note=episode.note,
    )


def _mine_sweeper(episode: Episode) -> str:
    size = episode.setting("size", 4, 6, 8)
    hidden = episode.hidden
    return mine_sweeper(
        episode.action,
        episode.next_obs[:, : _mine_numbers(episode)].argmax(-1),
        episode.reward,
        size,
        mines=None if hidden is None else hidden[0].reshape(-1, 3)[:, 1] > 0.5,
        title="MineSweeper",
        note=episode.note,
    )


def _mine_numbers(episode: Episode) -> int:
    """Return how many elements of the observation encode the number shown."""
    mines = episode.setting("num_mines", 2, 6, 10)
    return min(mines + 1, 10)


def _higher_lower(episode: Episode) -> str:
    ranks = episode.obs[:, :13].argmax(-1)
    return _strip(episode, ranks, None, "HigherLower: is the next card higher?", types=13)


def _velocity_only(episode: Episode) -> str:
    """Draw a cart-pole whose positions are hidden, so that cart and pole stand still."""
    hidden = np.zeros((len(episode.obs), 4)) if episode.hidden is None else episode.hidden
    return cart_pole(
        hidden[:, [0, 2]],
        episode.action,
        hidden=hidden,
        hides_velocity=False,
        title=episode.task,
        note=episode.note,
    )


def _battleship(episode: Episode) -> str:
    size = episode.setting("size", 8, 10, 12)
    hidden = episode.hidden
    return battleship(
        episode.action,
        episode.next_obs[:, 1] > 0.5,
        episode.reward,
        size,
        ships=None if hidden is None else hidden[0][1 : 2 * size * size : 2] > 0.5,
        title="Battleship",
        note=episode.note,
    )


def _concentration(episode: Episode) -> str:
    cards, types = (episode.setting(x, *n) for x, n in _TABLES.items())
    table = episode.next_obs[-1, : cards * (types + 1)].reshape(cards, types + 1)
    return concentration(
        table.argmax(-1),
        int(episode.action[-1]),
        episode.reward,
        types,
        title="Concentration: find the pairs",
        note=episode.note,
    )


def _labyrinth(episode: Episode) -> str:
    side = 2 * episode.setting("size", 5, 7, 9) + 1
    views = episode.obs[:, :45].reshape(-1, 3, 3, 5).argmax(-1)
    places = None
    if episode.hidden is not None:
        places = episode.hidden[:, -2 * side :].reshape(-1, 2, side).argmax(-1)
    return labyrinth(views, places, episode.reward, side, title=episode.task, note=episode.note)


def _pendulum(episode: Episode) -> str:
    return pendulum(
        episode.obs[:, :2],
        episode.action.reshape(-1),
        hidden=episode.hidden,
        title=episode.task,
        note=episode.note,
    )


_TABLES = {"cards": (52, 104, 52), "types": (2, 2, 13)}
DRAWN: dict[str, Callable[[Episode], str]] = {
    "RepeatFirst": _repeat_first,
    "RepeatPrevious": _repeat_previous,
    "Autoencode": _autoencode,
    "CountRecall": _count_recall,
    "PositionOnlyCartPole": _cart_pole,
    "NoisyPositionOnlyCartPole": _cart_pole,
    "CartPole": _cart_pole,
    "Catch": _catch,
    "MultiarmedBandit": _bandit,
    "MineSweeper": _mine_sweeper,
    "HigherLower": _higher_lower,
    "VelocityOnlyCartpole": _velocity_only,
    "Battleship": _battleship,
    "Concentration": _concentration,
    "LabyrinthEscape": _labyrinth,
    "LabyrinthExplore": _labyrinth,
    "PositionOnlyPendulum": _pendulum,
    "NoisyPositionOnlyPendulum": _pendulum,
}
