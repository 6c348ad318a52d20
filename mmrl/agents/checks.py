"""Checks of agents' settings and networks: errors that name what is wrong, and the remedy."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from mmrl import collectives
from mmrl.envs.spaces import disorder, holds, limits, misfit, offset
from mmrl.rollout import collect, start

_KINDS = {
    bool: (bool, "True or False"),
    int: (int | np.integer, "a whole number"),
    float: (int | float | np.number | np.ndarray | jax.Array, "a number"),
    str: (str, "a name"),
}


# Values with which no agent learns anything: a gradient, a reward or a target that never changes.
_OFF = {"max_grad_norm": 0, "clip": 0, "reward_clip": 0, "rho_max": 0, "tau": 0}
_OFF |= {"beta1": 1, "beta2": 1}
# Where ∞ means that there is no limit.
_UNLIMITED = ("max_grad_norm", "clip", "reward_clip", "importance_max", "rho_max", "c_max")
_UNLIMITED += ("horizon", "prox_center")


def check_numbers(config: Any, shares: Sequence[str], from_zero: Sequence[str] = ()) -> None:
    """Raise `ValueError` for a setting of another type or out of range; what is traced passes.

    A whole number is at least 1, or 0 if it is in `from_zero`, and fits into 32 bits; a scalar in
    `shares` lies between 0 and 1, one in `from_zero` is at least 0; all others are positive. All
    are finite unless ∞ means no limit, and none switches learning off. They count as float32.
    """
    others = {"key", "continuous", "bounds", *vars(config)}
    if taken := others & dict(getattr(config, "memory_sizes", ())).keys():
        raise ValueError(
            f"`memory_sizes` must name sizes of the memory alone; got {min(taken)}, which is set "
            "elsewhere."
        )
    for field in dataclasses.fields(config):
        name, value = field.name, getattr(config, field.name)
        least = 0 if name in from_zero else 1
        kind, wanted = _KINDS.get(field.type, (object, ""))
        if not isinstance(value, kind) or (isinstance(value, bool) and kind not in (bool, object)):
            raise ValueError(f"`{name}` must be {wanted}; got {value!r}.")
        if field.type is int and value < least:
            raise ValueError(f"`{name}` must be at least {least}; got {value}.")
        if field.type is int and value >= 2**31:
            raise ValueError(f"`{name}` must be below 2³¹; got {value}.")
        if field.type is float and not isinstance(value, Tracer):
            _check_scalar(name, value, name in shares, name in from_zero)


def _check_scalar(name: str, value: Any, share: bool, from_zero: bool) -> None:
    """Raise `ValueError` for a number out of range, or for any of an array of them."""
    with np.errstate(over="ignore"):
        x = np.asarray(value, np.float32)
    fits, wanted = (x >= 0, "at least 0") if from_zero else (x > 0, "positive")
    if share:
        fits, wanted = (x >= 0) & (x <= 1), "between 0 and 1"
    elif name not in _UNLIMITED:
        fits, wanted = fits & (x < math.inf), f"{wanted} and finite"
    if not fits.all():
        raise ValueError(f"`{name}` must be {wanted}; got {value}.")
    if (x == _OFF.get(name, math.nan)).any():
        side = "below" if _OFF[name] else "above"
        raise ValueError(
            f"`{name}` must be {side} {_OFF[name]}; got {value}, with which nothing is learned."
        )


def check_discrete(env: Any, params: Any) -> None:
    """Raise `ValueError` unless the environment has a finite number of actions."""
    from mmrl.envs.wrappers.base import action_count  # which imports gymnax

    action_count(env, params)


def fit_storage(config: Any, params: Any) -> Any:
    """The settings of DQN with the sizes that they leave to the environment, those that are 0.

    A shard has its part of a batch of 500 and of 16 384 steps, but room for an episode as well.
    """
    longest, piece = params.max_steps_in_episode, config.segment_length
    piece = piece if config.batching == "segments" else 1
    part, depth = (-(-size // collectives.size()) for size in (500, 16_384))
    depth = max(-(-depth // config.environments), 2 * longest + config.rollout)
    return resized(
        config,
        batch=config.batch or -(-max(part, longest) // piece) * piece,
        capacity=config.capacity or depth * config.environments,
    )


def resized(config: Any, **sizes: int) -> Any:
    """The settings with other sizes; all numbers stay as they are, traced ones too."""
    numbers, _ = jax.tree.flatten(config)
    config = dataclasses.replace(jax.tree.map(lambda _: 0.0, config), **sizes)
    return jax.tree.unflatten(jax.tree.structure(config), numbers)


def check_storage(config: Any, params: Any) -> None:
    """Raises `ValueError` unless a tape of `capacity` steps and a batch of DQN fit its sizes."""
    if config.batching == "segments" and config.batch % config.segment_length:
        whole = max(config.batch // config.segment_length, 1) * config.segment_length
        raise ValueError(
            f"`batch` must be a multiple of `segment_length`; got {config.batch} and "
            f"{config.segment_length}. Take batch={whole}, which is whole segments."
        )
    one_rollout = config.rollout * config.environments
    if config.capacity < one_rollout:
        raise ValueError(
            f"`capacity` must hold one rollout of {config.rollout} steps in {config.environments} "
            f"environments, {one_rollout} steps; got {config.capacity}."
        )
    whole_episode = params.max_steps_in_episode * config.environments
    if config.capacity < whole_episode:
        raise ValueError(
            f"`capacity` must hold an episode of {params.max_steps_in_episode} steps in each of "
            f"{config.environments} environments, {whole_episode} steps; got {config.capacity}: "
            "longer episodes would never be learned from."
        )


def check_whole_episodes(config: Any, params: Any) -> None:
    """Raises `ValueError` if parts of long episodes would never be learned from by DQN."""
    longest = params.max_steps_in_episode
    if config.batching == "tape" and config.batch < longest:
        raise ValueError(
            f"`batch` must hold an episode of {longest} steps; got {config.batch}: the steps after "
            f"these would never be learned from. Take batch={longest}, or batching='segments'."
        )
    # The episode before must stay until the rollout in which the next one ends.
    needed = (2 * longest + config.rollout) * config.environments
    if config.capacity < needed:
        raise ValueError(
            f"`capacity` must hold two episodes of {longest} steps and a rollout of "
            f"{config.rollout} in each of {config.environments} environments, {needed} steps; got "
            f"{config.capacity}: the tape would often hold no whole episode. Take "
            f"capacity={needed}, or fewer environments."
        )


def check_net(net: Any, env: Any, params: Any, acts: bool = False, lookahead: bool = True) -> Any:
    """The network that a `make` has built: Q(s, ·), or one that `acts` by a policy.

    Raises `ValueError` unless its leaves are arrays, it reads what `env` shows, by a step and by a
    tape, and has an output for each action. Who bootstraps by it asks for its `lookahead`, too.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(net):
        if not eqx.is_array(leaf):
            raise ValueError(
                f"`make` must build a network whose leaves are arrays; got {leaf!r} at "
                f"{jax.tree_util.keystr(path)}. Mark it with `equinox.field(static=True)`."
            )
    check_observations(env, params)
    shape, (actions, continuous) = env.observation_space(params).shape, action_size(env, params)
    obs, begin = jnp.zeros((2, *shape)), jnp.array([True, False])
    calls: dict[str, Callable[[], Any]] = {
        "step": lambda: net.step(net.init(), obs[0], begin[0]),
        "__call__": lambda: net(net.init(), obs, begin),
        "lookahead": lambda: net.lookahead(net.init(), obs, begin, obs),
    }

    def numbers(outputs: Any) -> Any:
        if not acts:
            return outputs
        return outputs.policy.mean if continuous else outputs.policy.logits

    for name in calls if lookahead else ("step", "__call__"):
        try:
            _, *said = jax.eval_shape(calls[name])
            said = [numbers(outputs) for outputs in said]
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(
                f"`make` must build {'an `ActorCritic`' if acts else 'a `Net`'}, or what is called "
                f"as one, for observations of shape {shape}; its `{name}` got "
                f"{type(error).__name__}: {error}"
            ) from error
        wanted = (actions,) if name == "step" else (2, actions)
        if bad := [x for x in said if getattr(x, "shape", None) != wanted]:
            raise ValueError(
                f"`make` must build a network with {actions} outputs, one for each action"
                f"{', and one more of `policy`, an auxiliary value' if acts else ''}; its `{name}` "
                f"got {getattr(bad[0], 'shape', bad[0])}, and not {wanted}."
            )
    return net


def action_size(env: Any, params: Any) -> tuple[int, bool]:
    """How many actions there are, or real numbers in one; and whether it is these.

    Raises `ValueError` for a space that is neither, and for a box without an inside.
    """
    space = _space(env, params, "action")
    if hasattr(space, "n"):
        if fault := offset(space):
            raise ValueError(f"`action_space` of `env` {fault}.")
        return int(space.n), False
    if len(getattr(space, "shape", None) or ()) != 1:
        raise ValueError(f"`env` must have discrete actions or vectors of numbers; got {space}.")
    if fault := disorder(space, open_interval=True):
        raise ValueError(f"`action_space` of `env` {fault}. Drop an action that cannot vary.")
    return int(space.shape[0]), True


def action_bounds(env: Any, params: Any) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """The bounds of continuous actions; None for discrete ones, and where they are traced."""
    space = _space(env, params, "action")
    if hasattr(space, "n") or (ends := limits(space)) is None:
        return None
    low, high = (tuple(map(float, x)) for x in ends)
    return low, high


def check_observations(env: Any, params: Any) -> None:
    """Raise `ValueError` for observations of a type that cannot hold all of their space."""
    obs = jax.eval_shape(env.reset_env, jax.random.key(0), params)[0]
    if fault := misfit(_space(env, params, "observation"), obs.dtype):
        raise ValueError(
            f"the observations of `env` {fault}. Convert them, or correct `observation_space`."
        )


def check_stored(stored: str, env: Any, params: Any, steps: int = 128) -> None:
    """Raise `ValueError` if observations would change when they are stored as a type.

    The bounds of their space must fit, and so must the numbers of `steps` random steps. A float
    may be rounded, but not become infinite.
    """
    if kept := holds(_space(env, params, "observation"), stored):
        with jax.ensure_compile_time_eval():
            seen = _random_observations(env, params, steps)
            cast = [np.asarray(x.astype(stored), np.float64) for x in seen]
        pairs = [(x, np.asarray(y, np.float64)) for x, y in zip(cast, seen, strict=True)]
        exact = "int" in stored
        kept = all(
            np.all((x == y) if exact else np.isfinite(x) | ~np.isfinite(y)) for x, y in pairs
        )
    if not kept:
        raise ValueError(
            f"`stored` must be a type that holds observations as they are; got {stored!r}, which "
            "rounds those of this environment, or is too narrow for them. Take 'float32'."
        )


def _random_observations(env: Any, params: Any, steps: int) -> tuple[Any, Any]:
    """The observations of `steps` steps of random discrete actions, and those that follow them."""
    space = env.action_space(params)

    def policy(state: Any, obs: Any, begin: Any, key: Any) -> tuple[Any, Any]:
        return state, jax.random.randint(key, (), 0, space.n)

    @jax.jit
    def play(key: Any) -> tuple[Any, Any]:
        carry = start(env, params, (), key)
        tape = collect(policy, env, params, carry, key, steps)[1]
        return tape.obs, tape.next_obs

    return play(jax.random.key(0))


def _space(env: Any, params: Any, kind: str) -> Any:
    """A space whose bounds are numbers, also while an agent is traced."""
    with jax.ensure_compile_time_eval():
        return getattr(env, f"{kind}_space")(params)
