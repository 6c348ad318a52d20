"""The picture of a recorded episode of any task."""

import re
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Shaped
from numpy import ndarray

from mmrl.course.drawings.cards import SUITS
from mmrl.course.drawings.tasks import DRAWN, Episode


@runtime_checkable
class Steps(Protocol):
    """Arrays [time, ...] of one environment, for example a `Transition`."""

    @property
    def obs(self) -> Any: ...
    @property
    def action(self) -> Any: ...
    @property
    def reward(self) -> Any: ...
    @property
    def next_obs(self) -> Any: ...


def episode_svg(
    env_id: str,
    steps: Steps,
    *,
    frame: int | None = None,
    hidden: Float[ndarray, "time state"] | None = None,
    **settings: int,
) -> str:
    """Draw an episode of `env_id`: all of it, or its state at step `frame`.

    `steps` are the arrays of one environment from the beginning of an episode. Steps after a second
    `begin` are left out, and so are elements that wrappers appended to the observation. `hidden` is
    what the agent does not see, `state_obs` at each step: it adds the velocity, the odds or the
    mines. `settings` are arguments that differ from the level's: `types` (CountRecall), `num_arms`
    (MultiarmedBandit), `size` (MineSweeper, Battleship, the labyrinths).

    Raises `ValueError` for an environment without a picture, a batch, or a `frame` outside.
    """
    task, level = _task(env_id)
    if task not in DRAWN:
        raise ValueError(
            f"`env_id` has no picture, got {env_id!r}: drawn are {', '.join(sorted(DRAWN))}."
        )
    obs, action, reward, next_obs = _first_episode(steps)
    if frame is not None and not 0 <= frame < len(reward):
        raise ValueError(f"`frame` must be a step in 0..{len(reward) - 1}, got {frame}.")
    until = len(reward) if frame is None else frame + 1
    episode = Episode(
        task=task,
        level=level,
        obs=obs[:until],
        action=action[:until],
        reward=reward[:until],
        next_obs=next_obs[:until],
        hidden=None if hidden is None else np.asarray(hidden)[:until],
        settings=settings,
        one_frame=frame is not None,
    )
    return DRAWN[task](episode)


def action_names(env_id: str, actions: int) -> list[str]:
    """Return the actions in words if they have names, else their numbers."""
    task, _ = _task(env_id)
    kind = next((x for x in ("CartPole", "Cartpole", "Labyrinth") if x in task), task)
    names = _ACTIONS.get(kind, ())
    return list(names) if len(names) == actions else [str(a) for a in range(actions)]


def _task(env_id: str) -> tuple[str, str]:
    """Return the name and the level of a task; the level may be empty."""
    pattern = r"(?:popgym-)?([A-Za-z]+?)(Easy|Medium|Hard|Paper|)-(?:v\d|bsuite)"
    match = re.fullmatch(pattern, env_id)
    return (match[1], match[2]) if match else ("", "")


def _first_episode(steps: Steps) -> list[Shaped[ndarray, "time ..."]]:
    """Return observations, actions, rewards and next observations of a tape's first episode."""
    data = [np.asarray(x) for x in (steps.obs, steps.action, steps.reward, steps.next_obs)]
    # Flattens a board to a vector.
    data = [x.reshape(len(x), -1) if x.ndim == 3 else x for x in data]
    if data[2].ndim != 1 or len(data[2]) == 0:
        raise ValueError(
            "`steps` must be arrays [time, ...] of one environment, with at least one step, got "
            f"rewards of shape {list(data[2].shape)}: take one worker, x[0] of every leaf."
        )
    begins = np.flatnonzero(np.asarray(getattr(steps, "begin", ())))
    return [x[: begins[1]] if len(begins) > 1 else x for x in data]


_ACTIONS: dict[str, tuple[str, ...]] = {
    "RepeatFirst": SUITS,
    "RepeatPrevious": SUITS,
    "Autoencode": SUITS,
    "CartPole": ("left", "right"),
    "Cartpole": ("left", "right"),
    "Catch": ("left", "stay", "right"),
    "HigherLower": ("higher", "lower"),
    "Labyrinth": ("left", "right", "up", "down"),
}
