"""Exported policies, and the zoo of small trained agents that is part of the package.

policy = load("zoo/RepeatFirstEasy-dqn-lru")        # or "policy.npz", from `mmrl export`
policy.about                                        # task, training and returns
for step in play(policy, episodes=100, seed=0):     # in parallel, until all episodes have ended
    step.reward
"""

import functools
import os
import pathlib
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Shaped

from mmrl import envs
from mmrl.rollout import act, start
from mmrl.runs import player
from mmrl.runs.content import content
from mmrl.runs.files import expand
from mmrl.runs.player import Policy
from mmrl.runs.processes import RunError

ZOO = pathlib.Path(__file__).parents[1] / "zoo"
NAMES = pathlib.Path("zoo")  # prefix of the zoo's agents, as in zoo/NAME; not a folder on disk


class Step(NamedTuple):
    """One time step of all episodes, with the outputs of the policy."""

    obs: Shaped[np.ndarray, "episode *obs"]
    action: Shaped[np.ndarray, "episode *action"]
    reward: Float[np.ndarray, " episode"]  # 0 after the end of an episode
    next_obs: Shaped[np.ndarray, "episode *obs"]
    mask: Bool[np.ndarray, " episode"]  # False after the end of an episode
    outputs: Float[np.ndarray, "episode out"]  # Q(s, ·), logits, or the mean action
    memory: Shaped[np.ndarray, "episode *h"]  # memory state h after this observation


def names() -> list[str]:
    """Return the names of the zoo's agents."""
    return sorted(path.stem for path in ZOO.glob("*.npz"))


def is_name(path: str | os.PathLike) -> bool:
    """Return True if `path` is the name of a zoo agent, as in zoo/NAME, and not a file."""
    path = pathlib.Path(path)
    return path.parent == NAMES and not path.is_file()


def load(path: str | os.PathLike) -> Policy:
    """Load the policy in a file written by `mmrl export`, or the zoo agent zoo/NAME.

    Raises `ValueError` for a name that is not in the zoo, and `RunError` if the file is damaged.

        >>> policy = load("zoo/RepeatFirstEasy-dqn-lru")
        >>> policy.about["agent"], policy.about["memory"]
        ('dqn', 'lru')
    """
    file, of_zoo = expand(path), is_name(expand(path))
    if of_zoo and file.name not in names():
        raise ValueError(f"The zoo has no agent {file.name!r}. Choose one of {', '.join(names())}.")
    try:
        return player.load(ZOO / f"{file.name}.npz" if of_zoo else file)
    except ValueError as error:
        remedy = "install mmrl" if of_zoo else "export it"
        raise RunError(f"{error} To restore it, {remedy} again.") from None


def play(policy: Policy, episodes: int, seed: int) -> Iterator[Step]:
    """Play episodes in parallel, and yield a `Step` for each time step.

    The environment is compiled, but the policy runs in NumPy. Raises `ValueError` if `episodes` is
    not positive, or if the environment cannot be built.
    """
    if episodes < 1:
        raise ValueError(f"`episodes` must be at least 1; got {episodes}.")
    env_id, about = policy.about["env"], policy.about
    observe = about.get("setup", {}).get("observe", "observation")
    start_all, step_all, longest = _environment(
        env_id, observe, about.get("masked", False), content(env_id)
    )
    key = jax.random.key(seed)
    carries = start_all(jax.random.split(jax.random.fold_in(key, longest % 2**32), episodes))
    states, outputs = [policy.init()] * episodes, [np.zeros(0)] * episodes
    actions: list[Any] = [None] * episodes
    reward, mask = np.zeros(episodes), np.ones(episodes, bool)
    for t in range(longest):
        obs = np.asarray(carries.obs)
        for i in np.flatnonzero(mask):
            (h, _), outputs[i] = policy.outputs(states[i], obs[i], t == 0, float(reward[i]))
            actions[i] = policy.greedy(outputs[i])
            states[i] = h, actions[i]
        action = np.array(actions)
        carries, result = step_all(carries, action, jax.random.fold_in(key, t))
        result = jax.device_get(result)
        reward = np.where(mask, result.reward, 0.0)
        memory = np.array([h for h, _ in states])
        yield Step(obs, action, reward, result.next_obs, mask, np.array(outputs), memory)
        mask = mask & ~result.last
        if not mask.any():
            return


@functools.lru_cache(8)  # an environment is compiled once
def _environment(
    env_id: str, observe: str, has_mask: bool, _: Hashable
) -> tuple[Callable, Callable, int]:
    """Return compiled functions that start and step episodes, and the time limit.

    The first function maps keys to carries. The second maps (carries, actions, key) to (carries,
    transitions). The last argument is the content of the environment. It is a part of the cache
    key, so that an environment is compiled again after a change.
    """
    from mmrl.envs.wrappers.observation import with_inputs  # this imports gymnax, which is slow

    env, params = envs.make(env_id, observe=observe)
    parts = hasattr(env.observation_space(params), "spaces")  # True for a dictionary or tuple
    env = with_inputs(env, params, ()) if has_mask or parts else env

    @jax.jit
    def step_all(carries: Any, actions: Any, key: Any) -> Any:
        def one(carry: Any, action: Any, keys: Any) -> Any:
            return act(lambda *_: ((), action), env, params, carry, keys)

        return jax.vmap(one)(carries, actions, jax.random.split(key, (len(actions), 2)))

    start_all = jax.jit(jax.vmap(functools.partial(start, env, params, ())))
    return start_all, step_all, int(params.max_steps_in_episode)
