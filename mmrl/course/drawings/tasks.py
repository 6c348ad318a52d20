"""Conversion of an episode's arrays to the arguments of the drawing of its task."""

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
from mmrl.course.drawings.numbers import numbers
from mmrl.course.drawings.pendulum import pendulum

_WINDOW = 13  # number of cards that are drawn in a single frame


@dataclasses.dataclass(frozen=True)
class Episode:
    """The steps of an episode up to `now`, with the name and the level of the task.

    `task` is the complete id of the environment if the id does not have the form of POPGym's ids.
    `whole` contains the observations of all steps, including those after `now`. `own` is False if
    the observations are not the task's own but another view of it, such as the state.
    """

    task: str
    level: str
    obs: Float[ndarray, "time obs"]
    action: Int[ndarray, "time *action"] | Float[ndarray, "time *action"]
    reward: Float[ndarray, " time"]
    next_obs: Float[ndarray, "time obs"]
    hidden: Float[ndarray, "time state"] | None
    settings: Mapping[str, int]
    one_frame: bool
    whole: Float[ndarray, "all obs"]
    own: bool = True

    @property
    def now(self) -> int:
        """The index of the last step that is drawn."""
        return len(self.reward) - 1

    @property
    def note(self) -> str:
        """The step and the return so far, as the right part of the heading."""
        total = round(float(self.reward.sum()), 2) + 0.0
        return f"step {self.now}, return {total:.2f}".replace("-", "−")

    def setting(self, name: str, easy: int, medium: int, hard: int) -> int:
        """Return the value of a setting, by default the value for the level."""
        levels = {"Medium": medium, "Hard": hard}
        return self.settings.get(name, levels.get(self.level, easy))


def _repeat_first(episode: Episode) -> str:
    cards = episode.obs[:, :4].argmax(-1)
    return _strip(episode, cards, 0, "RepeatFirst: say the first suit")


def _repeat_previous(episode: Episode) -> str:
    """Draw RepeatPrevious. The lag k is inferred from the first step with a reward, k - 1."""
    cards = episode.obs[:, :4].argmax(-1)
    rewards = np.flatnonzero(episode.reward)
    if not rewards.size:
        return _strip(episode, cards, None, "RepeatPrevious: not asked yet")
    question = episode.now - int(rewards[0])
    title = f"RepeatPrevious: say the suit of {rewards[0]} steps ago"
    return _strip(episode, cards, question, title)


def _autoencode(episode: Episode) -> str:
    """Draw Autoencode. The last card is shown at the first PLAY step, and no card afterwards."""
    play = np.flatnonzero(episode.obs[:, 0])
    last = int(play[0]) if play.size else len(episode.obs)
    cards = episode.obs[:, 2:6].argmax(-1)
    cards = np.where(np.arange(len(cards)) > last, NOTHING, cards)
    question = 2 * last - episode.now if play.size else None
    return _strip(episode, cards, question, "Autoencode: watch, then say the cards backwards")


def _strip(
    episode: Episode, cards: Int[ndarray, " time"], question: int | None, title: str, types: int = 4
) -> str:
    """Draw the complete episode, or only its last cards and the requested card."""
    steps = np.arange(len(cards))
    columns = 26 if len(cards) <= 104 else 52
    if episode.one_frame:
        steps = steps[-_WINDOW:]
        if question is not None and question < steps[0]:
            steps = np.array([question, GAP, *steps[2:]])
        cards = np.where(steps == GAP, GAP, cards[steps])
    return card_strip(
        cards,
        episode.action[steps],
        episode.reward[steps],
        steps=steps,
        question=question if episode.one_frame else None,
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
    """Return the size of the one-hot encoding of the number of neighboring mines."""
    mines = episode.setting("num_mines", 2, 6, 10)
    return min(mines + 1, 10)


def _higher_lower(episode: Episode) -> str:
    ranks = episode.obs[:, :13].argmax(-1)
    return _strip(episode, ranks, None, "HigherLower: is the next card higher?", types=13)


def _velocity_only(episode: Episode) -> str:
    """Draw a cart-pole with hidden positions, which stands still unless `hidden` is given."""
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


def draw(episode: Episode) -> str:
    """Draw an episode, or plot its features if its task has no drawing."""
    picture = DRAWINGS.get(episode.task)
    return picture(episode) if picture and _shows_its_own(episode) else _numbers(episode)


def _shows_its_own(episode: Episode) -> bool:
    """Return True if the observation is the task's default one, possibly extended by wrappers.

    Wrappers may append a previous action and an action mask, which have an entry per action, and
    a reward and a begin flag, which are scalars.
    """
    own, actions = _sizes(episode)
    rest = episode.obs.shape[1] - own
    return episode.own and rest in {n * actions + m for n in range(3) for m in range(3)}


_CARTS = ("PositionOnlyCartPole", "NoisyPositionOnlyCartPole", "VelocityOnlyCartpole")


def _sizes(episode: Episode) -> tuple[int, int]:
    """Return the sizes of the task's default observation and of an appended previous action.

    For a task that is not in the table, observations of any size are accepted.
    """
    size, types = episode.setting("size", 4, 6, 8), episode.setting("types", 2, 4, 13)
    decks = episode.setting("num_decks", 1, 2, 4)
    cards, kinds = (episode.setting(x, *n) for x, n in _TABLES.items())
    sizes = {
        "RepeatFirst": (4, 4),
        "RepeatPrevious": (4, 4),
        "Autoencode": (6, 4),
        "CountRecall": (2 * types, 52 * decks // types + 1),
        "CartPole": (4, 2),
        **dict.fromkeys(_CARTS, (2, 2)),
        "Catch": (50, 3),
        "MultiarmedBandit": (2, episode.setting("num_arms", 10, 20, 30)),
        "MineSweeper": (_mine_numbers(episode), size * size),
        "HigherLower": (13, 2),
        "Battleship": (2, episode.setting("size", 8, 10, 12) ** 2),
        "Concentration": (cards * (kinds + 1), cards),
        "LabyrinthEscape": (50, 4),
        "LabyrinthExplore": (50, 4),
        "PositionOnlyPendulum": (2, 1),
        "NoisyPositionOnlyPendulum": (2, 1),
    }
    return sizes.get(episode.task, (episode.obs.shape[1], 1))


def _numbers(episode: Episode) -> str:
    return numbers(
        episode.obs,
        episode.action,
        episode.reward,
        whole=episode.whole,
        first=max(0, episode.now + 1 - 4 * _WINDOW) if episode.one_frame else 0,
        title=episode.task,
        note=episode.note,
    )


_TABLES = {"cards": (52, 104, 52), "types": (2, 2, 13)}
DRAWINGS: dict[str, Callable[[Episode], str]] = {
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
