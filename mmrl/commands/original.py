"""Evaluation of trained networks in the original popgym, to validate our port of its tasks.

Observations are converted as in `mmrl.envs` and `mmrl.runs`: flattened to vectors, with the same
additional inputs, [o_t, one_hot(a_{t-1}) or zeros, r_{t-1}, b_t].
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
    """Return a constructor of popgym's original environment.

    Raises `ValueError` if `env_id` is not a task of popgym, or if popgym is not installed.
    """
    error = ValueError(f"`--original` needs a task of popgym; got {env_id!r}.")
    if not env_id.startswith("popgym-"):
        raise error
    if importlib.util.find_spec("popgym") is None:
        raise ValueError(
            f"`--original` requires popgym, which is not installed. Run `pip install "
            f"popgym=={VERSION}`, or `pip install -e '.[dev]'` in a checkout."
        )
    import popgym.envs

    name = env_id.removeprefix("popgym-").removesuffix("-v0")
    name = name.replace("OnlyCartpole", "OnlyCartPole")  # the class has a capital P
    if env_id == "popgym-RepeatPreviousPaper-v0":
        return lambda: popgym.envs.RepeatPrevious(**LEVELS["RepeatPrevious"].levels["Paper"])
    if not hasattr(popgym.envs, name):
        raise error
    return getattr(popgym.envs, name)


def play(run: Run, net: PyTree, episodes: int, seed: int = 0) -> Float[np.ndarray, "seed episodes"]:
    """Return the greedy returns of all networks in the original popgym.

    Leaves of `net` have shape [seed, ...]. All networks play with the same random seeds, and so,
    for example, with the same decks. Raises `ValueError` if the setting `observe` of the run is not
    "observation", or if `original` raises it.
    """
    if run.setup.observe != "observation":
        raise ValueError(
            f"`observe` must be 'observation' for `--original`, got {run.setup.observe!r}."
        )
    envs = [original(run.setup.env)() for _ in range(episodes)]
    nets = [jax.tree.map(lambda x, i=i: x[i], net) for i in range(len(run.setup.seeds))]
    return np.stack([_play(net, run, envs, seed) for net in nets])


def _play(net: Any, run: Run, envs: list[Any], seed: int) -> Float[np.ndarray, " episodes"]:
    """Return the returns of one network, with one episode in each environment."""
    count, greedy = len(envs), find(run.setup.agent).greedy
    obs = np.stack([_flat(env, env.reset(seed=seed + i)[0]) for i, env in enumerate(envs)])
    memory = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), net.init())
    space = run.program.env.action_space(run.program.params)
    vector = not hasattr(space, "n")  # True if actions are continuous
    actions = np.zeros((count, *space.shape)) if vector else np.full(count, -1)
    begin = np.ones(count, bool)
    rewards, returns, running = np.zeros(count), np.zeros(count), np.ones(count, bool)
    while running.any():
        inputs = features(run, obs, actions, rewards, begin)
        memory, actions = _act(greedy, net, memory, inputs, begin)
        actions, begin = np.asarray(actions), np.zeros(count, bool)
        for i in np.flatnonzero(running):
            action = np.clip(actions[i], space.low, space.high) if vector else int(actions[i])
            step = envs[i].step(_action(envs[i], action))
            image, rewards[i], terminated, truncated, _ = step
            obs[i], running[i] = _flat(envs[i], image), not (terminated or truncated)
            returns[i] += rewards[i]
    return returns


def features(
    run: Run,
    obs: Float[np.ndarray, "episodes obs"],
    actions: Int[np.ndarray, " episodes"] | Float[np.ndarray, "episodes action"],
    rewards: Float[np.ndarray, " episodes"],
    begin: np.ndarray,
) -> Float[np.ndarray, "episodes features"]:
    """Return the network's inputs [o_t, one_hot(a_{t-1}), r_{t-1}, b_t], as in the run.

    An action of -1 means that there is no previous action. Continuous actions are not encoded.
    """
    if actions.ndim == 1:
        size = run.program.env.action_space(run.program.params).n
        before = actions[:, None] == np.arange(size)
    else:
        before = actions
    parts = {
        "previous_action": before,
        "previous_reward": rewards[:, None],
        "begin_flag": begin[:, None],
    }
    columns = [obs, *(parts[name] for name in run.setup.observes)]
    return np.concatenate(columns, axis=1, dtype=np.float32)


@eqx.filter_jit
def _act(
    greedy: Callable[[Any], Policy], net: Any, memory: PyTree, obs: Any, begin: Any
) -> tuple[PyTree, Any]:
    policy, key = greedy(net), jax.random.key(0)  # greedy policies do not use the key
    return jax.vmap(lambda memory, obs, begin: policy(memory, obs, begin, key))(memory, obs, begin)


def _flat(env: Any, obs: Any) -> Float[np.ndarray, " obs"]:
    import gymnasium

    return np.asarray(gymnasium.spaces.flatten(env.observation_space, obs), np.float32)


def _action(env: Any, action: Any) -> Any:
    """Convert an action index to popgym's action, which may be multi-discrete."""
    sizes = getattr(env.action_space, "nvec", None)
    return action if sizes is None else np.array(np.unravel_index(action, sizes))
