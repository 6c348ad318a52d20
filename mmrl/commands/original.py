"""Play the original popgym with a trained network, to prove that our tasks are the same.

The original's observations are flattened to one-hot vectors, as in `mmrl.envs`, with the same
additions as in `mmrl.runs`: [o_t, one_hot(a_{t-1}) or zeros, r_{t-1}, b_t].
"""

import importlib.util
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PyTree

from mmrl.agents import find
from mmrl.envs.popgym import LEVELS
from mmrl.rollout import Policy
from mmrl.runs import Run

VERSION = "1.0.7"


def original(env_id: str) -> Callable[[], Any]:
    """Return the function that builds popgym's environment for our id.

    Raises `ValueError` if the environment is not one of popgym's, or popgym is not installed.
    """
    refused = ValueError(f"`--original` needs a task of popgym; got {env_id!r}.")
    if not env_id.startswith("popgym-"):
        raise refused
    if importlib.util.find_spec("popgym") is None:
        raise ValueError(
            f"The original environments need popgym: `pip install popgym=={VERSION}`, or in a "
            "checkout `pip install -e '.[dev]'`; or omit `--original`."
        )
    import popgym.envs

    name = env_id.removeprefix("popgym-").removesuffix("-v0")
    name = name.replace("OnlyCartpole", "OnlyCartPole")  # the class has a capital P
    if env_id == "popgym-RepeatPreviousPaper-v0":
        return lambda: popgym.envs.RepeatPrevious(**LEVELS["RepeatPrevious"].levels["Paper"])
    if not hasattr(popgym.envs, name):
        raise refused
    return getattr(popgym.envs, name)


def play(run: Run, net: PyTree, episodes: int, seed: int = 0) -> Float[np.ndarray, "seed episodes"]:
    """Return returns of the greedy policy of every seed's network over original episodes.

    Leaves of `net` are [seed, ...]. Every network plays the same decks, boards or starts. Raises
    `ValueError` for a run that observes something else, and as `original` does.
    """
    if run.setup.observe != "observation":
        raise ValueError(
            f"`--original` needs a run that observes what popgym shows; this one has `observe` "
            f"{run.setup.observe!r}."
        )
    envs = [original(run.setup.env)() for _ in range(episodes)]
    nets = [jax.tree.map(lambda x, i=i: x[i], net) for i in range(len(run.setup.seeds))]
    return np.stack([_play(net, run, envs, seed) for net in nets])


def _play(net: Any, run: Run, envs: list[Any], seed: int) -> Float[np.ndarray, " episodes"]:
    """Play one episode of every environment in parallel, with one network."""
    count, greedy = len(envs), find(run.setup.agent).greedy
    obs = np.stack([_flat(env, env.reset(seed=seed + i)[0]) for i, env in enumerate(envs)])
    memory = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), net.init())
    space = run.program.env.action_space(run.program.params)
    vector = not hasattr(space, "n")  # a vector of numbers
    actions = np.zeros((count, *space.shape)) if vector else np.full(count, -1)
    begin = np.ones(count, bool)
    rewards, returns, running = np.zeros(count), np.zeros(count), np.ones(count, bool)
    while running.any():
        shown = features(run, obs, actions, rewards, begin)
        memory, actions = _act(greedy, net, memory, shown, begin)
        actions, begin = np.asarray(actions), np.zeros(count, bool)
        for i in np.flatnonzero(running):
            action = np.clip(actions[i], space.low, space.high) if vector else int(actions[i])
            step = envs[i].step(_action(envs[i], action))
            seen, rewards[i], terminated, truncated, _ = step
            obs[i], running[i] = _flat(envs[i], seen), not (terminated or truncated)
            returns[i] += rewards[i]
    return returns


def features(
    run: Run,
    obs: Float[np.ndarray, "episodes obs"],
    actions: Int[np.ndarray, " episodes"] | Float[np.ndarray, "episodes action"],
    rewards: Float[np.ndarray, " episodes"],
    begin: np.ndarray,
) -> Float[np.ndarray, "episodes features"]:
    """Return [o_t, one_hot(a_{t-1}), r_{t-1}, b_t], as the run's wrappers build it; action -1 is
    none.

    Actions that are vectors of numbers are not encoded.
    """
    if actions.ndim == 1:
        size = run.program.env.action_space(run.program.params).n
        before = actions[:, None] == np.arange(size)
    else:
        before = actions
    shown = {
        "previous_action": before,
        "previous_reward": rewards[:, None],
        "begin_flag": begin[:, None],
    }
    columns = [obs, *(shown[name] for name in run.setup.observes)]
    return np.concatenate(columns, axis=1, dtype=np.float32)


@eqx.filter_jit
def _act(
    greedy: Callable[[Any], Policy], net: Any, memory: PyTree, obs: Any, begin: Any
) -> tuple[PyTree, Any]:
    policy, key = greedy(net), jax.random.key(0)  # not read
    return jax.vmap(lambda memory, obs, begin: policy(memory, obs, begin, key))(memory, obs, begin)


def _flat(env: Any, obs: Any) -> Float[np.ndarray, " obs"]:
    import gymnasium

    return np.asarray(gymnasium.spaces.flatten(env.observation_space, obs), np.float32)


def _action(env: Any, action: Any) -> Any:
    """Return our action, one number, as popgym's, which may have several, row by row."""
    sizes = getattr(env.action_space, "nvec", None)
    return action if sizes is None else np.array(np.unravel_index(action, sizes))
