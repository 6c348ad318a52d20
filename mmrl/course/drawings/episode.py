"""Drawing of a recorded episode of any task."""

import re
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Shaped
from numpy import ndarray

from mmrl.course.drawings.cards import SUITS
from mmrl.course.drawings.tasks import Episode, draw


@runtime_checkable
class Steps(Protocol):
    """Arrays [time, ...] that were recorded in one environment, for example a `Transition`."""

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
    observe: str = "observation",
    **settings: int,
) -> str:
    """Draw an episode of `env_id`, or its state at step `frame`.

    `steps` contains arrays of a single environment, starting at the beginning of an episode. Steps
    of a second episode are ignored, and so are elements that wrappers append to the observation.
    `hidden` contains the hidden state, `state_obs`, at each step, which adds for example the
    velocity, the odds or the mines to the drawing. `settings` are arguments of the environment that
    differ from those of its level: `types` for CountRecall, `num_arms` for MultiarmedBandit, and
    `size` for MineSweeper, Battleship and the labyrinths.

    For a task without a specific drawing, the features of the observation are plotted over time.
    The features are also plotted if the observation is not the task's default one, either because
    `observe` (an argument of `envs.make`) selects another view or because the size of the
    observation is unexpected.

    Raises `ValueError` if `steps` is batched or empty, or if `frame` is out of range.
    """
    task, level = _task(env_id)
    obs, action, reward, next_obs = _first_episode(steps)
    if frame is not None and not 0 <= frame < len(reward):
        raise ValueError(f"`frame` must be a step in 0..{len(reward) - 1}, got {frame}.")
    until = len(reward) if frame is None else frame + 1
    episode = Episode(
        whole=obs,
        own=observe == "observation",
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
    return draw(episode)


def action_names(env_id: str, actions: int) -> list[str]:
    """Return the names of a task's actions, or their indices if they have no names."""
    task, _ = _task(env_id)
    kind = next((x for x in ("CartPole", "Cartpole", "Labyrinth") if x in task), task)
    names = _ACTIONS.get(kind, ())
    return list(names) if len(names) == actions else [str(a) for a in range(actions)]


def _task(env_id: str) -> tuple[str, str]:
    """Split an environment id into the task and its level, which may be empty."""
    pattern = r"(?:popgym-)?([A-Za-z]+?)(Easy|Medium|Hard|Paper|)-(?:v\d|bsuite)"
    match = re.fullmatch(pattern, env_id)
    return (match[1], match[2]) if match else (env_id, "")


def _first_episode(steps: Steps) -> list[Shaped[ndarray, "time ..."]]:
    """Return the observations, actions, rewards and next observations of the first episode."""
    reward = np.asarray(steps.reward)
    if reward.ndim != 1 or len(reward) == 0:
        raise ValueError(
            "`steps` must contain arrays [time, ...] of one environment with at least one step, "
            f"got rewards of shape {list(reward.shape)}; select one worker, x[0] of every leaf."
        )
    data = [_features(steps.obs), np.asarray(steps.action), reward, _features(steps.next_obs)]
    begins = np.flatnonzero(np.asarray(getattr(steps, "begin", ())))
    return [x[: begins[1]] if len(begins) > 1 else x for x in data]


def _features(obs: Any) -> Float[ndarray, "time obs"]:
    """Flatten observations to vectors. Entries of a dictionary are concatenated in key order."""
    if isinstance(obs, Mapping):
        return np.concatenate([_features(obs[key]) for key in sorted(obs)], axis=1)
    if isinstance(obs, tuple | list):
        return np.concatenate([_features(part) for part in obs], axis=1)
    array = np.asarray(obs, float)
    return array.reshape(len(array), -1)


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
