"""A player of recorded episodes, with one drawing of `mmrl.course.drawings` per step."""

import re
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from traitlets import Dict, Int, List, Unicode, default

from mmrl.course.drawings import episode_svg
from mmrl.course.drawings.episode import Steps
from mmrl.course.drawings.svg import ROLES
from mmrl.course.widgets.base import END, Explorer, Series, source, style

MOST_FRAMES = 210  # enough for CartPole, whose longest POPGym episode has 200 steps


def _roles() -> str:
    """Return CSS rules for the colors of the drawings, which follow the theme of the page."""
    rules = (
        f".mmrl svg .mm-{attribute}-{role} {{ {attribute}: light-dark({light}, {dark}); }}"
        for attribute in ("fill", "stroke")
        for role, (light, dark) in ROLES.items()
    )
    return "\n".join(rules)


class EpisodePlayer(Explorer):
    """Player of an episode, with one drawing per step and the rewards.

    Use `episode_player` to create one; without arguments, the player shows an example. `frames`
    contains SVG strings. `step` is the index of the visible frame, or `mmrl.course.widgets.END` for
    the last one. `policy` contains the data of the panel that a `PolicyPlayer` adds.
    """

    _esm = source("episode_player")
    _css = style() + _roles()
    frames = List(Unicode()).tag(sync=True)
    rewards = Series()
    policy = Dict().tag(sync=True)
    step = Int(END, min=0).tag(sync=True)
    title = Unicode("Episode player").tag(sync=True)

    @default("frames")
    def _example_frames(self) -> list[str]:
        return _frames("popgym-RepeatFirstEasy-v0", _EXAMPLE)

    @default("rewards")
    def _example_rewards(self) -> Any:
        return Series().validate(self, _EXAMPLE.reward)


def episode_player(
    env_id: str,
    steps: Steps,
    *,
    hidden: Float[ndarray, "time state"] | None = None,
    question: str = "",
    observe: str = "observation",
    **settings: int,
) -> EpisodePlayer:
    """Return a player of one episode of `env_id`.

    Arguments and errors are the same as in `episode_svg`. Only the first 210 steps of an episode
    are shown, to limit the size of a page. If a `question` is given, the episode is hidden until
    the reader answers it.
    """
    frames = _frames(env_id, steps, hidden=hidden, observe=observe, **settings)
    rewards = np.asarray(steps.reward)[: len(frames)]
    title = f"An episode of {env_id}"
    return EpisodePlayer(frames=frames, rewards=rewards, title=title, question=question)


def _frames(env_id: str, steps: Steps, **settings: Any) -> list[str]:
    begins = np.flatnonzero(np.asarray(getattr(steps, "begin", ())))
    length = int(begins[1]) if len(begins) > 1 else len(steps.reward)
    pictures = (
        episode_svg(env_id, steps, frame=t, **settings) for t in range(min(length, MOST_FRAMES))
    )
    # The style sheet of the player defines the colors, so the frames do not need style elements.
    return [re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL) for text in pictures]


class _Steps(NamedTuple):
    obs: ndarray
    action: ndarray
    reward: ndarray
    next_obs: ndarray


_CARDS = np.array([2, 0, 3, 3, 1, 2, 0, 1, 2, 3, 0, 1])
_ANSWERS = np.array([2, 2, 2, 3, 2, 2, 2, 2, 2, 2, 0, 2])
_RIGHT = np.equal(_ANSWERS, _CARDS[0])
_EXAMPLE = _Steps(
    obs=np.eye(4)[_CARDS],
    action=_ANSWERS,
    reward=np.where(_RIGHT, 1, -1) / len(_CARDS),
    next_obs=np.eye(4)[np.roll(_CARDS, -1)],
)
