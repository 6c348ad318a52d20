"""Play exported policies, and the zoo: small trained agents that come with mmrl.

policy = load("zoo/RepeatFirstEasy-dqn-lru")        # or "policy.npz", from `mmrl export`
policy.about                                        # how it was trained, and where
for step in play(policy, episodes=100, seed=0):     # in parallel, until all have ended
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
from mmrl.runs.files import expanded
from mmrl.runs.player import Policy
from mmrl.runs.processes import RunError

ZOO = pathlib.Path(__file__).parents[1] / "zoo"
NAMES = pathlib.Path("zoo")  # zoo/NAME is not a file


class Step(NamedTuple):
    """One step of every episode, with the policy's outputs."""

    obs: Shaped[np.ndarray, "episode *obs"]
    action: Shaped[np.ndarray, "episode *action"]
    reward: Float[np.ndarray, " episode"]  # 0 after the end
    next_obs: Shaped[np.ndarray, "episode *obs"]
    running: Bool[np.ndarray, " episode"]  # True if the episode had not ended before
    outputs: Float[np.ndarray, "episode out"]  # Q(s, ·), logits, or the mean action
    memory: Shaped[np.ndarray, "episode h"]  # h, after this step's observation


def names() -> list[str]:
    """Return the names of the zoo's agents."""
    return sorted(path.stem for path in ZOO.glob("*.npz"))


def named(path: str | os.PathLike) -> bool:
    """Return True if the path means zoo/NAME, and not a user's file."""
    path = pathlib.Path(path)
    return path.parent == NAMES and not path.is_file()


def load(path: str | os.PathLike) -> Policy:
    """Return the policy in a file from `mmrl export`, or the agent called zoo/NAME.

    Raises `ValueError` for a name that is not in the zoo, and `RunError` for a damaged file.
    """
    file, of_zoo = expanded(path), named(expanded(path))
    if of_zoo and file.name not in names():
        raise ValueError(f"The zoo has no {file.name!r}. It has {', '.join(names())}.")
    try:
        return player.load(ZOO / f"{file.name}.npz" if of_zoo else file)
    except ValueError as error:
        remedy = "install mmrl" if of_zoo else "export it"
        raise RunError(f"{error} To get it back, {remedy} again.") from None


def play(policy: Policy, episodes: int, seed: int) -> Iterator[Step]:
    """Play `episodes` in parallel, and yield one `Step` of all of them at a time.

    The environment is compiled; the policy is played by NumPy. Raises `ValueError` if `episodes` is
    below 1, or the environment is unknown here.
    """
    if episodes < 1:
        raise ValueError(f"`episodes` must be at least 1; got {episodes}.")
    env_id, about = policy.about["env"], policy.about
    observe = about.get("setup", {}).get("observe", "observation")
    begin, answer, longest = _environment(
        env_id, observe, about.get("masked", False), content(env_id)
    )
    key = jax.random.key(seed)
    carries = begin(jax.random.split(jax.random.fold_in(key, longest % 2**32), episodes))
    states, outputs = [policy.init()] * episodes, [np.zeros(0)] * episodes
    actions: list[Any] = [None] * episodes
    reward, running = np.zeros(episodes), np.ones(episodes, bool)
    for t in range(longest):
        obs = np.asarray(carries.obs)
        for i in np.flatnonzero(running):
            (h, _), outputs[i] = policy.outputs(states[i], obs[i], t == 0, float(reward[i]))
            actions[i] = policy.greedy(outputs[i])
            states[i] = h, actions[i]
        action = np.array(actions)
        carries, told = answer(carries, action, jax.random.fold_in(key, t))
        told = jax.device_get(told)
        reward = np.where(running, told.reward, 0.0)
        memory = np.array([h for h, _ in states])
        yield Step(obs, action, reward, told.next_obs, running, np.array(outputs), memory)
        running = running & ~told.last
        if not running.any():
            return


@functools.lru_cache(8)  # an environment is compiled once
def _environment(
    env_id: str, observe: str, masked: bool, _: Hashable
) -> tuple[Callable, Callable, int]:
    """Return (keys -> carries, (carries, actions, key) -> (carries, transitions), longest episode).

    The last argument is the content of the environment.
    """
    from mmrl.envs.wrappers.observation import shown  # which imports gymnax

    env, params = envs.make(env_id, observe=observe)
    parts = hasattr(env.observation_space(params), "spaces")  # of a dictionary
    env = shown(env, params, ()) if masked or parts else env

    @jax.jit
    def answer(carries: Any, actions: Any, key: Any) -> Any:
        def one(carry: Any, action: Any, keys: Any) -> Any:
            return act(lambda *_: ((), action), env, params, carry, keys)

        return jax.vmap(one)(carries, actions, jax.random.split(key, (len(actions), 2)))

    begin = jax.jit(jax.vmap(functools.partial(start, env, params, ())))
    return begin, answer, int(params.max_steps_in_episode)
