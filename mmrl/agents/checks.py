"""Checks of agents' sizes, networks and spaces: errors that name the fault and the remedy."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mmrl._spaces import disorder, holds, is_picture, limits, misfit, offset, parts, pixel_unit
from mmrl.agents.settings import resized
from mmrl.rollout import collect, start


def check_discrete(env: Any, params: Any) -> None:
    """Raise `ValueError` unless the environment has a finite number of actions."""
    from mmrl.envs.wrappers.base import action_count  # which imports gymnax

    action_count(env, params)
    check_shown(env, params)


def check_shown(env: Any, params: Any) -> None:
    """Raise `ValueError` unless an observation is an array, or a picture and a vector beside it."""
    from mmrl.envs.wrappers.observation import mask_place

    mask_place(env, params)
    space = _space(env, params, "observation")
    pair = isinstance(getattr(space, "spaces", None), tuple) and _spaces(env, params)
    if not hasattr(space, "shape") and not (pair and is_picture(pair[0])):
        raise ValueError(
            f"`env` must observe one array; got {space!r}. Use "
            "mmrl.envs.wrappers.FlattenObservation, as runs do."
        )


def fit_storage(config: Any, params: Any) -> Any:
    """Return the settings of DQN with the sizes that are left open, from the environment.

    The defaults are a batch of 500 steps, or of the longest episode on each tape, and storage of 16
    384 steps, or of two episodes and a rollout in each environment.
    """
    longest, piece = params.max_steps_in_episode * config.tapes, _piece(config)
    depth = max(-(-16_384 // config.environments), 2 * params.max_steps_in_episode + config.rollout)
    return resized(
        config,
        batch=config.batch or -(-max(500, longest) // piece) * piece,
        capacity=config.capacity or depth * config.environments,
    )


def _piece(config: Any) -> int:
    """Return the number that must divide a batch of DQN."""
    return config.tapes * (config.segment_length if config.batching == "segments" else 1)


def check_storage(config: Any, params: Any) -> None:
    """Raise `ValueError` unless a tape of `capacity` steps and a batch of DQN fit its sizes."""
    if config.batch % (piece := _piece(config)):
        whole = max(config.batch // piece, 1) * piece
        parts = "`segment_length` times `tapes`" if config.batching == "segments" else "`tapes`"
        raise ValueError(
            f"`batch` must be a multiple of {parts}, {piece}; got {config.batch}. Take "
            f"batch={whole}."
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
    """Raise `ValueError` if parts of long episodes would never be learned from by DQN."""
    longest = params.max_steps_in_episode
    if config.batching == "tape" and config.batch < (least := longest * config.tapes):
        on = f" on each of {config.tapes} tapes" if config.tapes > 1 else ""
        raise ValueError(
            f"`batch` must hold an episode of {longest} steps{on}; got {config.batch}: later steps "
            f"would never be learned from. Take batch={least}, or batching='segments'."
        )
    # The previous episode must stay until the rollout in which the next one ends.
    needed = (2 * longest + config.rollout) * config.environments
    if config.capacity < needed:
        raise ValueError(
            f"`capacity` must hold two episodes of {longest} steps and a rollout of "
            f"{config.rollout} in each of {config.environments} environments, {needed} steps; got "
            f"{config.capacity}: the tape would often hold no whole episode. Take "
            f"capacity={needed}, or fewer environments."
        )


def check_net(net: Any, env: Any, params: Any, acts: bool = False, lookahead: bool = True) -> Any:
    """Return the network that a `make` has built: Q(s, ·), or one that `acts` by a policy.

    Raises `ValueError` unless its leaves are arrays, it reads the observations of `env`, by a step
    and by a tape, and has an output for each action. With `lookahead`, which bootstraps need, that
    call is tested too. In an environment with a mask of legal actions the network is returned as
    `nets.Masked`.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(net):
        if not eqx.is_array(leaf):
            raise ValueError(
                f"`make` must build a network whose leaves are arrays; got {leaf!r} at "
                f"{jax.tree_util.keystr(path)}. Mark it with `equinox.field(static=True)`."
            )
    check_observations(env, params)
    actions, continuous = action_size(env, params)
    obs, begin = _two_observations(env, params), jnp.array([True, False])
    shape = jax.tree.map(lambda x: x.shape[1:], obs)
    first = jax.tree.map(lambda x: x[0], obs)
    calls: dict[str, Callable[[], Any]] = {
        "step": lambda: net.step(net.init(), first, begin[0]),
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
    return _masked(net, env, params)


def _masked(net: Any, env: Any, params: Any) -> Any:
    """Return the network, with outputs limited to legal actions if the environment has a mask."""
    from mmrl.envs.wrappers.observation import mask_place

    if (place := mask_place(env, params)) is None:
        return net
    from mmrl.nets.legal import Masked  # loaded only if it is used

    return Masked(net, *place)


def _two_observations(env: Any, params: Any) -> Any:
    """Return zeros, [2, *obs], for the parts of an observation; numbers of a vector as float32."""
    spaces = _spaces(env, params)
    types = [space.dtype if len(space.shape) == 3 else jnp.float32 for space in spaces]
    zeros = [jnp.zeros((2, *s.shape), t) for s, t in zip(spaces, types, strict=True)]
    return tuple(zeros) if len(zeros) > 1 else zeros[0]


def action_size(env: Any, params: Any) -> tuple[int, bool]:
    """Return the number of actions, or of real numbers in one; and True in the second case.

    Raises `ValueError` for a space that is neither, and for a box without an interior.
    """
    space = _space(env, params, "action")
    if hasattr(space, "n"):
        if fault := offset(space):
            raise ValueError(f"`action_space` of `env` {fault}.")
        return int(space.n), False
    if not hasattr(space, "low") or len(space.shape) != 1:
        raise ValueError(f"`env` must have discrete actions or vectors of numbers; got {space}.")
    if fault := disorder(space, open_interval=True):
        raise ValueError(f"`action_space` of `env` {fault}. Drop an action that cannot vary.")
    return int(space.shape[0]), True


def action_bounds(env: Any, params: Any) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the bounds of continuous actions; None for discrete ones, and if they are traced."""
    space = _space(env, params, "action")
    if hasattr(space, "n") or (ends := limits(space)) is None:
        return None
    low, high = (tuple(map(float, x)) for x in ends)
    return low, high


def check_observations(env: Any, params: Any) -> None:
    """Raise `ValueError` for observations in a type that cannot hold all of their space."""
    obs = jax.eval_shape(env.reset_env, jax.random.key(0), params)[0]
    for place, space, part in parts(_space(env, params, "observation"), obs):
        if fault := misfit(space, part.dtype):
            at = f", at {place}," if place else ""
            raise ValueError(
                f"the observations of `env`{at} {fault}. Convert them, or correct "
                "`observation_space`."
            )


def check_stored(stored: str, env: Any, params: Any, steps: int = 128) -> None:
    """Raise `ValueError` if observations would change when they are stored as a type.

    The bounds of their space must fit, and so must the numbers of `steps` random steps. A float may
    be rounded, but must not become infinite.
    """
    spaces = _spaces(env, params)
    if kept := all(holds(space, stored) for space in spaces):
        with jax.ensure_compile_time_eval():
            seen = jax.tree.leaves(_random_observations(env, params, steps))
            cast = [np.asarray(x.astype(stored), np.float64) for x in seen]
        pairs = [(x, np.asarray(y, np.float64)) for x, y in zip(cast, seen, strict=True)]
        exact = "int" in stored
        kept = all(
            np.all((x == y) if exact else np.isfinite(x) | ~np.isfinite(y)) for x, y in pairs
        )
    if not kept:
        raise ValueError(
            f"`stored` must be a type that holds observations exactly; got {stored!r}, which "
            "rounds observations of this environment, or is too narrow for them. Take 'float32'."
        )


LARGE = 10.0
"""Features whose bounds exceed this are normalized by default."""
MODERATE = ("CartPole-v1",)
"""Environments that declare no bounds for features whose numbers stay below `LARGE`."""


def seen_picture(config: Any, env: Any, params: Any) -> Any:
    """Return the `nets.pictures.Picture` that a network reads by convolutions, or None.

    Raises `ValueError` if `encoder` names a stack that cannot read the observations.
    """
    first, *more = _spaces(env, params)
    encoder = getattr(config, "encoder", "dense")
    if encoder == "dense" and more:
        raise ValueError(
            "`encoder` must not be 'dense' for a picture with numbers beside it. Take 'auto'."
        )
    if encoder == "dense" or (encoder == "auto" and not is_picture(first)):
        return None
    from mmrl.nets import pictures

    unit = pixel_unit(first) or 1.0
    numbers = sum(math.prod(space.shape) for space in more)
    picture = pictures.Picture(tuple(first.shape), numbers, unit, encoder)
    pictures.stack(picture)
    return picture


def normalized_features(config: Any, env: Any, params: Any) -> tuple[bool, ...]:
    """Return which features of an observation a network normalizes; () if it normalizes none.

    These are features of the environment, not additional inputs such as `previous_action`. If
    `config` leaves the choice open, they are those without bounds, or with bounds beyond ±10.
    Raises `ValueError` if it names pictures that convolutions read.
    """
    from mmrl.envs.wrappers import observation  # which imports gymnax

    if config.normalize_observations is False:
        return ()
    if seen_picture(config, env, params):
        if config.normalize_observations:
            raise ValueError(
                "`normalize_observations` must be False or None for pictures, which are scaled by "
                "their type; got True. Take encoder='dense' to flatten and normalize them."
            )
        return ()
    space, bare = _space(env, params, "observation"), observation.bare(env)
    own = math.prod(_space(bare, params, "observation").shape)
    shown = (False,) * (math.prod(space.shape) - own)
    if config.normalize_observations:
        return (*(True,) * own, *shown)
    ends = None if hasattr(space, "n") or len(space.shape) != 1 else limits(space)
    if ends is None or getattr(getattr(bare, "unwrapped", bare), "name", None) in MODERATE:
        return ()
    chosen = np.maximum(*np.abs(ends))[:own] > LARGE
    return (*chosen.tolist(), *shown) if chosen.any() else ()


def _random_observations(env: Any, params: Any, steps: int) -> tuple[Any, Any]:
    """Return the observations of `steps` random discrete actions, and those that follow them."""
    from mmrl.envs.wrappers.observation import legal_actions

    space = env.action_space(params)

    def policy(state: Any, obs: Any, begin: Any, key: Any) -> tuple[Any, Any]:
        if (legal := legal_actions(env, params, obs)) is not None:
            return state, jax.random.categorical(key, jnp.where(legal, 0.0, -jnp.inf))
        return state, jax.random.randint(key, (), 0, space.n)

    @jax.jit
    def play(key: Any) -> tuple[Any, Any]:
        start_key, play_key = jax.random.split(key)
        carry = start(env, params, (), start_key)
        tape = collect(policy, env, params, carry, play_key, steps)[1]
        return tape.obs, tape.next_obs

    return play(jax.random.key(0))


def _spaces(env: Any, params: Any) -> list[Any]:
    """Return the spaces of a picture and the numbers beside it, or of the whole observation."""
    return [space for _, space, _ in parts(_space(env, params, "observation"))]


def _space(env: Any, params: Any, kind: str) -> Any:
    """Return a space whose bounds are numbers, also while an agent is traced."""
    with jax.ensure_compile_time_eval():
        return getattr(env, f"{kind}_space")(params)
