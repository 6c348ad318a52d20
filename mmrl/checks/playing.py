"""Check that an environment follows the rules on which rollouts, wrappers and agents rely."""

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from mmrl import _random
from mmrl._own import one_line
from mmrl._spaces import MASK, misfit, parts, stuck
from mmrl.checks.tracing import action_shape, interface_errors, own_step, random_action
from mmrl.envs._gymnax import spaces
from mmrl.envs.wrappers.mask import offers_mask
from mmrl.envs.wrappers.observation import legal_actions, with_inputs

SIDE_BY_SIDE = 4  # number of environments played in parallel
PURE = (
    "the same key, state and action must give the same result twice; the results differed. Sample "
    "with jax.random from `key`, and store anything that changes in the state, not in `self`"
)


def environment(env: Any, params: Any = None, *, steps: int = 1000) -> None:
    """Check that `env` follows the rules of an environment.

    The rules are the same as in gymnax. An environment must have the methods
    `reset_env(key, params)` -> (obs, state),
    `step_env(key, state, action, params)` -> (obs, state, reward, terminated, info) and
    `is_truncated(state, params)`, an observation space and an action space, and a parameter
    `max_steps_in_episode`. Observations must lie in their space, rewards must be finite floats, the
    flags must be bools, and `state.time` must count steps. Results must depend only on the
    arguments.

    The check first traces the methods. It then plays four environments in parallel with random
    actions, for `max_steps_in_episode` + 2 steps, or for `steps` steps if that is less. With
    `steps` = 0 the environment is only traced, which is fast. `params` default to
    `env.default_params`.

    Raises `ValueError` with a sentence for each broken rule.

        >>> from mmrl import envs
        >>> environment(*envs.make("probe-Memory-v0"), steps=20)  # no error: all rules hold
    """
    errors = list(interface_errors(env, params))
    if not errors and steps:
        params = env.default_params if params is None else params
        errors = [*_kinds(env, params), *_pure(env, params)]
        errors = errors or list(_play_errors(_vector(env, params), params, steps))
    if errors:
        name = getattr(env, "name", type(env).__name__)
        rules = "; ".join(f"({i}) {text}" for i, text in enumerate(errors, 1))
        count = "1 rule" if len(errors) == 1 else f"{len(errors)} rules"
        raise ValueError(
            f"`env` must follow the rules of an environment; {name} breaks {count}: "
            f"{rules if len(errors) > 1 else errors[0]}. (mmrl.checks.environment lists all rules.)"
        )


def _vector(env: Any, params: Any) -> Any:
    """Flatten observations that are dictionaries or include a mask, as runs do."""
    is_dict = isinstance(env.observation_space(params), spaces.Dict)
    return with_inputs(env, params, ()) if is_dict or offers_mask(env, params) else env


def _kinds(env: Any, params: Any) -> Iterator[str]:
    """Yield a sentence for each result with a wrong dtype."""
    obs, state = jax.eval_shape(env.reset_env, jax.random.key(0), params)
    action = action_shape(env, params)
    step = jax.eval_shape(env.step_env, jax.random.key(0), state, action, params)
    for place, space, part in parts(env.observation_space(params), obs):
        if fault := misfit(space, part.dtype):
            yield f"observations{f' at {place}' if place else ''} {fault}"
    if not jnp.issubdtype(step[2].dtype, jnp.floating):
        yield f"`reward` must be a float; got {step[2].dtype}. Write jnp.float32(reward)"
    truncated = jax.eval_shape(env.is_truncated, state, params)
    for name, flag in (("terminated", step[3]), ("is_truncated", truncated)):
        if flag.dtype != jnp.bool_:
            yield f"`{name}` must be a bool; got {flag.dtype}. Write a comparison"


def _pure(env: Any, params: Any) -> Iterator[str]:
    """Yield a sentence for each method whose program differs when it is traced twice."""
    key, state = jax.random.key(0), jax.eval_shape(env.reset_env, jax.random.key(0), params)[1]
    action = action_shape(env, params)
    calls = (("reset_env", (key, params)), ("step_env", (key, state, action, params)))
    for name, arguments in calls:
        call = getattr(env, name)
        first, second = (_program(lambda *x, call=call: call(*x), arguments) for _ in range(2))
        if first != second:
            yield f"`{name}`: {PURE}"


def _program(call: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[str, list[bytes]]:
    jaxpr = jax.make_jaxpr(call)(*arguments)
    arrays = [x for x in jaxpr.consts if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
    return re.sub("0x[0-9a-f]+", "", str(jaxpr)), [np.asarray(x).tobytes() for x in arrays]


def _play_errors(env: Any, params: Any, steps: int) -> Iterator[str]:
    count = min(int(params.max_steps_in_episode) + 2, steps)
    keys = jax.random.split(jax.random.key(0), SIDE_BY_SIDE)
    play = jax.jit(jax.vmap(lambda key: _play(env, params, jax.random.clone(key), count)))
    try:
        rows, again = jax.device_get(play(keys)), jax.device_get(play(keys))
    except Exception as error:
        yield f"four copies must run in parallel under `jax.vmap`; got {one_line(error)}"
        return
    rows: Any
    if not jax.tree.all(
        jax.tree.map(lambda x, y: np.array_equal(x, y, equal_nan=True), rows, again)
    ):
        yield PURE
    space = env.observation_space(params)
    if rows["outside"].any():
        yield (
            f"observations must lie in `observation_space`, {space!r}; got values from "
            f"{rows['low'].min():.4g} to {rows['high'].max():.4g}, first {_when(rows, 'outside')}"
            f"{_nonfinite(rows)}"
        )
    if rows["infinite"].any():
        yield f"`reward` must be finite; got NaN or infinity, first {_when(rows, 'infinite')}"
    if rows["stuck"].any():
        yield (
            f"`{MASK}` must allow at least one action in each state, except in the terminal state; "
            f"no action is legal in step {rows['stuck'][rows['stuck'] > 0].min()} of an episode"
        )
    if rows["uncounted"].any():
        yield (
            "`state.time` must be 0 after a reset, including the reset at the end of an episode, "
            f"and increase by 1 at each step; got another value {_when(rows, 'uncounted')}. Write "
            "time=state.time + 1, and inherit gymnax's `step`, which resets the environment"
        )
    elif rows["late"].any():
        yield (
            "an episode must end after at most `max_steps_in_episode` = "
            f"{params.max_steps_in_episode} steps; got a longer one. `is_truncated` must be True "
            "when `state.time` reaches this limit, as in gymnax"
        )
    if rows["reset"].any() and not rows["uncounted"].any():
        yield (
            f"`step_env` must not reset the environment; {_when(rows, 'reset')}, which is its last "
            "step, `state.time` did not increase by 1. Return the final state and observation of "
            "the episode, because gymnax's `step` resets"
        )
    if rows["clocked"].any():
        yield (
            f"`terminated` must not depend on the time limit; {_when(rows, 'clocked')} it is "
            "False, but True with a smaller `max_steps_in_episode`. Report the time limit only in "
            "`is_truncated`, so that agents bootstrap"
        )
    if own_step(env) and (rows["last"] & rows["swapped"]).any() and not rows["kept"].any():
        yield (
            "`final_observation` in `info` must be the last observation of the episode; "
            f"{_when(rows, 'last')} it is the first observation of the next one. Inherit gymnax's "
            "`step`"
        )


def _nonfinite(rows: Any) -> str:
    """Describe NaN and infinity in observations, and whether they affect learning."""
    if rows["harmful"].any():
        return f". Agents would learn from NaN or infinity {_when(rows, 'harmful')}"
    if rows["unreal"].any():
        return (
            ". NaN or infinity occurs only where episodes terminate, first "
            f"{_when(rows, 'unreal')}. This is harmless in training, because agents do not "
            "bootstrap there"
        )
    return ""


def _when(rows: Any, name: str) -> str:
    """Describe the first step at which `name` is True."""
    time, which = np.argwhere(rows[name].T)[0]
    return f"in step {rows['length'][which, time]} of an episode"


def _play(env: Any, params: Any, key: PRNGKeyArray, count: int) -> dict[str, Any]:
    """Play `count` steps with random actions; return measurements of each step, [time]."""
    reset_key, key = jax.random.split(key)
    obs, first = env.reset(reset_key, params)
    space, actions = env.observation_space(params), env.action_space(params)

    words, key_of = _random.as_words(jax.random.split(key, count))

    def step(carry, words):
        state, before, view = carry
        action_key, key = jax.random.split(key_of(words))
        action = random_action(actions, action_key, legal_actions(env, params, view))
        obs, after, reward, terminated, truncated, info = env.step(key, state, action, params)
        final, last = info["final_observation"], terminated | truncated
        # Repeat the step without a reset, with the same key so that the result is the same.
        alone = env.step_env(jax.random.clone(key), state, action, params)
        both = jnp.stack([obs, final]).astype(jnp.float32)
        row = {
            "reward": reward,
            "outside": ~(_inside(space, obs) & _inside(space, final)),
            "unreal": ~(_is_finite(obs) & _is_finite(final)),
            "harmful": ~_is_finite(obs) | (~_is_finite(final) & ~terminated),
            "low": both.min(),
            "high": both.max(),
            "infinite": ~jnp.isfinite(reward),
            "uncounted": (after.time != jnp.where(last, 0, state.time + 1)) | (first.time != 0),
            "late": (before + 1 >= params.max_steps_in_episode) & ~last,
            "last": last,
            "swapped": jnp.all(final == obs) & jnp.any(alone[0] != obs),
            "reset": last & (alone[1].time != state.time + 1),
            "clocked": ~alone[3] & _by_clock(env, key, state, action, params),
            "kept": last & jnp.any(final != obs),
            "length": before + 1,
            "stuck": jnp.int32(0) if stuck(after) is None else stuck(after),
        }
        return (after, jnp.where(last, 0, before + 1), obs), row

    start = jax.tree.map(jnp.asarray, first), jnp.int32(0), jnp.asarray(obs)
    _, rows = jax.lax.scan(step, start, words)
    for name, bad in (("outside", ~_inside(space, obs)), ("harmful", ~_is_finite(obs))):
        rows[name] = rows[name].at[0].set(rows[name][0] | bad)
    return rows


def _by_clock(env: Any, key: PRNGKeyArray, state: Any, action: Any, params: Any) -> Any:
    """Return True if the environment would set `terminated` because of its time limit.

    The step is repeated with a limit that ends at this step, and with one that ended a step ago.
    """
    if not dataclasses.is_dataclass(params):
        return jnp.array(False)

    def ends(limit: Any, params: Any = params) -> Any:
        short = dataclasses.replace(params, max_steps_in_episode=limit)
        return env.step_env(jax.random.clone(key), state, action, short)[3]

    return ends(jnp.maximum(state.time, 1)) | ends(state.time + 1)


def _inside(space: Any, obs: Any) -> Any:
    """Return True if an observation is finite and lies in its space."""
    return jnp.asarray(space.contains(obs)) & _is_finite(obs)


def _is_finite(obs: Any) -> Any:
    """Return True if an observation is finite."""
    return jnp.all(jnp.isfinite(obs))
