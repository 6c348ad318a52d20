"""Checks of settings, networks and spaces, with errors that suggest a fix."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mmrl._spaces import disorder, is_picture, limits, misfit, offset, parts, pixel_unit
from mmrl.agents.settings import resize


def check_discrete(env: Any, params: Any) -> None:
    """Raise `ValueError` unless actions are discrete and observations are supported."""
    from mmrl.envs.wrappers.base import action_count  # imports gymnax, which is slow

    action_count(env, params)
    check_observation_space(env, params)


def check_observation_space(env: Any, params: Any) -> None:
    """Check that observations are a single array, or an image and a vector.

    Raises `ValueError` for any other observation space.
    """
    from mmrl.envs.wrappers.observation import mask_place

    mask_place(env, params)
    space = _space(env, params, "observation")
    pair = isinstance(getattr(space, "spaces", None), tuple) and observed_spaces(env, params)
    if not hasattr(space, "shape") and not (pair and is_picture(pair[0])):
        raise ValueError(
            f"`env` must have observations that are a single array; got {space!r}. Wrap it in "
            "mmrl.envs.wrappers.FlattenObservation, as runs do."
        )


def fit_storage(config: Any, params: Any) -> Any:
    """Return the settings of DQN with default values for `batch` and `capacity`.

    The default batch has at least 500 steps, and room for the longest episode on each tape. The
    batch size is rounded up so that the batch divides into equal tapes and segments. The default
    capacity is at least 16 384 steps, has room for two of the longest episodes and a rollout in
    each environment, and is rounded up to a multiple of `environments`.
    """
    longest, piece = params.max_steps_in_episode * config.tapes, _piece(config)
    depth = max(-(-16_384 // config.environments), 2 * params.max_steps_in_episode + config.rollout)
    return resize(
        config,
        batch=config.batch or -(-max(500, longest) // piece) * piece,
        capacity=config.capacity or depth * config.environments,
    )


def _piece(config: Any) -> int:
    """Return the number of steps that must divide the batch size of DQN."""
    return config.tapes * (config.segment_length if config.batching == "segments" else 1)


def check_storage(config: Any, params: Any) -> None:
    """Check that the batch size and the capacity of DQN are consistent with its other sizes.

    Raises `ValueError` if `batch` cannot be divided into equal tapes and segments, or if `capacity`
    is too small for a rollout or the longest episode in every environment.
    """
    if config.batch % (piece := _piece(config)):
        whole = max(config.batch // piece, 1) * piece
        parts = "`segment_length` times `tapes`" if config.batching == "segments" else "`tapes`"
        raise ValueError(
            f"`batch` must be a multiple of {parts} = {piece}; got {config.batch}. Set "
            f"batch={whole}."
        )
    one_rollout = config.rollout * config.environments
    if config.capacity < one_rollout:
        raise ValueError(
            f"`capacity` must hold one rollout of {config.rollout} steps in {config.environments} "
            f"environments ({one_rollout} steps); got {config.capacity}. Set capacity=None to "
            "choose the capacity automatically."
        )
    whole_episode = params.max_steps_in_episode * config.environments
    if config.capacity < whole_episode:
        raise ValueError(
            f"`capacity` must hold an episode of {params.max_steps_in_episode} steps in each of "
            f"{config.environments} environments ({whole_episode} steps); got {config.capacity}, "
            "so DQN would never learn from the longest episodes. Set capacity=None to choose the "
            "capacity automatically."
        )


def check_whole_episodes(config: Any, params: Any) -> None:
    """Check that DQN can sample every step of the longest episode.

    Raises `ValueError` if a batch is shorter than an episode, or if the tape may often have no
    complete episode.
    """
    longest = params.max_steps_in_episode
    if config.batching == "tape" and config.batch < (least := longest * config.tapes):
        on = f" on each of {config.tapes} tapes" if config.tapes > 1 else ""
        raise ValueError(
            f"`batch` must be long enough for an episode of {longest} steps{on}; got "
            f"{config.batch}, so DQN would never learn from later steps. Set batch={least}, or "
            "batching='segments'."
        )
    # The tape must keep an episode until the rollout that completes the next one has been stored.
    room = (2 * longest + config.rollout) * config.environments
    if config.capacity < room:
        raise ValueError(
            f"`capacity` must be at least {room} (two episodes of {longest} steps and a rollout of "
            f"{config.rollout}, for each of {config.environments} environments); got "
            f"{config.capacity}, so the tape would often contain no complete episode. Set "
            f"capacity={room}, or use fewer environments."
        )


def check_net(net: Any, env: Any, params: Any, acts: bool = False, lookahead: bool = True) -> Any:
    """Check the network that `make` has built, and return it.

    Raises `ValueError` unless all leaves are arrays, the network accepts the observations of `env`,
    both of one step and of a tape, and its outputs have the size of an action (`action_size`). The
    outputs are Q(s, ·), or a policy if `acts` is True. The method `lookahead`, which agents use to
    bootstrap, is checked unless the argument `lookahead` is False. If the environment has a mask of
    legal actions, the network is returned wrapped in `nets.MaskedNet`.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(net):
        if not eqx.is_array(leaf):
            raise ValueError(
                f"`make` must build a network whose leaves are arrays; got {leaf!r} at "
                f"{jax.tree_util.keystr(path)}. Mark this leaf with `equinox.field(static=True)`."
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
            _, *results = jax.eval_shape(calls[name])
            results = [numbers(outputs) for outputs in results]
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(
                f"`make` must build {'an `ActorCritic`' if acts else 'a `Net`'}, or a network with "
                f"the same methods, for observations of shape {shape}; `{name}` raised "
                f"{type(error).__name__}: {error}"
            ) from error
        expected = (actions,) if name == "step" else (2, actions)
        if bad := [x for x in results if getattr(x, "shape", None) != expected]:
            raise ValueError(
                f"`make` must build a network with {actions} outputs, one for each action"
                f"{', besides the auxiliary value of `policy`' if acts else ''}; `{name}` returned "
                f"shape {getattr(bad[0], 'shape', bad[0])} instead of {expected}."
            )
    return _with_mask(net, env, params)


def _with_mask(net: Any, env: Any, params: Any) -> Any:
    """Wrap the network in `nets.MaskedNet` if the environment has a mask of legal actions."""
    from mmrl.envs.wrappers.observation import mask_place

    if (place := mask_place(env, params)) is None:
        return net
    from mmrl.nets.legal import MaskedNet  # imported only if the environment has a mask

    return MaskedNet(net, *place)


def _two_observations(env: Any, params: Any) -> Any:
    """Return zeros with the shape of two consecutive observations, [2, *obs].

    Images have their own dtype, and vectors are float32.
    """
    spaces = observed_spaces(env, params)
    types = [space.dtype if len(space.shape) == 3 else jnp.float32 for space in spaces]
    zeros = [jnp.zeros((2, *s.shape), t) for s, t in zip(spaces, types, strict=True)]
    return tuple(zeros) if len(zeros) > 1 else zeros[0]


def action_size(env: Any, params: Any) -> tuple[int, bool]:
    """Return the size of an action, and True if actions are continuous.

    The size is the number of discrete actions, or the dimension of a continuous action. Raises
    `ValueError` for any other action space, and for a box in which the bounds of an element are
    equal.
    """
    space = _space(env, params, "action")
    if hasattr(space, "n"):
        if fault := offset(space):
            raise ValueError(f"`action_space` of `env` {fault}.")
        return int(space.n), False
    if not hasattr(space, "low") or len(space.shape) != 1:
        raise ValueError(f"`env` must have discrete actions or action vectors; got {space}.")
    if fault := disorder(space, open_interval=True):
        raise ValueError(f"`action_space` of `env` {fault}. Remove elements with equal bounds.")
    return int(space.shape[0]), True


def action_bounds(env: Any, params: Any) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Return the bounds of continuous actions, or None for discrete actions or traced bounds."""
    space = _space(env, params, "action")
    if hasattr(space, "n") or (ends := limits(space)) is None:
        return None
    low, high = (tuple(map(float, x)) for x in ends)
    return low, high


def check_observations(env: Any, params: Any) -> None:
    """Check that the dtype of observations can represent every value in their space."""
    obs = jax.eval_shape(env.reset_env, jax.random.key(0), params)[0]
    for place, space, part in parts(_space(env, params, "observation"), obs):
        if fault := misfit(space, part.dtype):
            at = f", at {place}," if place else ""
            raise ValueError(
                f"the observations of `env`{at} {fault}. Convert them, or correct "
                "`observation_space`."
            )


LARGE = 10.0
"""Features whose bounds exceed this value are normalized by default."""
MODERATE = ("CartPole-v1",)
"""Environments whose features stay below `LARGE`, although their declared bounds exceed it."""


def seen_picture(config: Any, env: Any, params: Any) -> Any:
    """Return a description of the images that a network processes, or None for vectors.

    A dense encoder flattens an image to a vector, unless the observation also contains a vector.
    Raises `ValueError` if `encoder` is a convolutional network that does not support the
    observations.
    """
    first, *more = observed_spaces(env, params)
    encoder = getattr(config, "encoder", "dense")
    if (encoder == "dense" and not more) or (encoder == "auto" and not is_picture(first)):
        return None
    from mmrl.nets import pictures

    unit = 1.0 if encoder == "dense" else pixel_unit(first) or 1.0
    numbers = sum(math.prod(space.shape) for space in more)
    picture = pictures.Picture(tuple(first.shape), numbers, unit, encoder)
    if encoder != "dense":
        pictures.stack(picture)
    return picture


def normalized_features(config: Any, env: Any, params: Any) -> tuple[bool, ...]:
    """Return a mask of the observation's features to normalize, or () if there are none.

    Additional inputs such as `previous_action` are never normalized. If `normalize_observations` is
    None, features are normalized only if they are unbounded or their bounds exceed ±10. Raises
    `ValueError` if the setting is True and the encoder is convolutional.
    """
    from mmrl.envs.wrappers import observation  # imports gymnax, which is slow

    if config.normalize_observations is False:
        return ()
    picture = seen_picture(config, env, params)
    if picture and picture.stack != "dense":
        if config.normalize_observations:
            raise ValueError(
                "`normalize_observations` must be False or None for images, whose pixels are "
                "scaled according to their dtype; got True. Set encoder='dense' to flatten and "
                "normalize images."
            )
        return ()
    bare = observation.bare(env)
    space, *_ = observed_spaces(bare, params)
    own = math.prod(space.shape)
    whole = sum(math.prod(each.shape) for each in observed_spaces(env, params))
    extra = (False,) * (whole - own)
    if config.normalize_observations:
        return (*(True,) * own, *extra)
    ends = None if hasattr(space, "n") else limits(space)
    if ends is None or _is_moderate(bare):
        return ()
    large = np.maximum(*np.abs(ends)).ravel() > LARGE
    return (*large.tolist(), *extra) if large.any() else ()


def _is_moderate(env: Any) -> bool:
    """Return True if `env` shows the numbers of an environment in `MODERATE`, unchanged."""
    from mmrl.envs.wrappers import FlattenObservation, MaskObservation, base

    while isinstance(env, base.Wrapper):
        keeps = isinstance(env, FlattenObservation | MaskObservation)
        if isinstance(env, base.ObservationWrapper) and not keeps:
            return False
        env = env.env
    return getattr(env, "name", None) in MODERATE


def observed_spaces(env: Any, params: Any) -> list[Any]:
    """Return the leaves of the observation space: one array, or an image and a vector."""
    return [space for _, space, _ in parts(_space(env, params, "observation"))]


def _space(env: Any, params: Any, kind: str) -> Any:
    """Return a space of `env`, with concrete bounds even while the agent is traced."""
    with jax.ensure_compile_time_eval():
        return getattr(env, f"{kind}_space")(params)
