"""Dtype of stored observations, and a check that it can represent them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Shaped

from mmrl._spaces import holds, limits
from mmrl.agents.checks import observed_spaces
from mmrl.rollout import collect, start


def cast_for_storage(kind: str, obs: PyTree[Shaped[Array, "env time ..."]]) -> PyTree:
    """Cast observations to the dtype `kind`, except for images with one byte per pixel."""

    def cast(x: Array) -> Array:
        return x if _is_bytes(x.shape[2:], x.dtype) else x.astype(kind)

    return jax.tree.map(cast, obs)


def check_storage_dtype(kind: str, env: Any, params: Any, steps: int = 128) -> None:
    """Check that the dtype `kind` can represent the observations of an environment.

    The finite bounds of the observation space must be in range. For integers with known bounds,
    this check is sufficient. All other observations are also tested on `steps` random steps. An
    integer dtype must represent them exactly, whereas a float dtype may round them, but not to
    infinity. Raises `ValueError` if a check fails.
    """
    spaces = observed_spaces(env, params)
    cast = [not _is_bytes(space.shape, space.dtype) for space in spaces]
    unsure = [x and not _is_bounded(space) for space, x in zip(spaces, cast, strict=True)]
    fits = all(holds(space, kind) for space, x in zip(spaces, cast, strict=True) if x)
    if fits and any(unsure):
        with jax.ensure_compile_time_eval():  # use concrete values even if `train` is traced
            both = _random_observations(env, params, steps)
            numbers = [zip(jax.tree.leaves(obs), unsure, strict=True) for obs in both]
            fits = all(_fits(x, kind) for pairs in numbers for x, is_tested in pairs if is_tested)
    if not fits:
        raise ValueError(
            f"`storage_dtype` must be a dtype that can represent the observations of `env`; got "
            f"{kind!r}, which would round values or overflow. Set storage_dtype='float32'."
        )


def _is_bytes(shape: tuple[int, ...], dtype: Any) -> bool:
    """Return True for images with one byte per pixel."""
    return len(shape) == 3 and dtype in (jnp.uint8, jnp.bool_)


def _is_bounded(space: Any) -> bool:
    """Return True for a space of integers with known bounds."""
    if hasattr(space, "n") or jnp.issubdtype(space.dtype, jnp.inexact):
        return hasattr(space, "n")
    ends = limits(space)
    return ends is not None and all(np.isfinite(x).all() for x in ends)


def _fits(x: Any, kind: str) -> bool:
    """Return True if the dtype `kind` can represent the values `x`.

    An integer dtype must represent the values exactly. A float dtype may round them, but not to
    infinity.
    """
    numbers = np.asarray(x, np.float64)
    cast = np.asarray(jnp.asarray(x).astype(kind), np.float64)
    fits = cast == numbers if "int" in kind else np.isfinite(cast) | ~np.isfinite(numbers)
    return bool(np.all(fits))


def _random_observations(env: Any, params: Any, steps: int) -> tuple[Any, Any]:
    """Return the observations before and after each of `steps` random actions."""
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
