"""Check whether an environment keeps the rules that rollouts, wrappers and agents rely on."""

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from mmrl import _random
from mmrl._own import told
from mmrl._spaces import MASK, misfit, parts, stuck
from mmrl.checks.tracing import action_shape, own_step, random_action, traced
from mmrl.envs._gymnax import spaces
from mmrl.envs.wrappers.mask import offers_mask
from mmrl.envs.wrappers.observation import legal_actions, shown

SIDE_BY_SIDE = 4  # environments played in parallel
PURE = (
    "the same key, state and action must give the same result again; the results differed. Draw "
    "from `key` by jax.random, and keep everything that changes in the state, not in `self`"
)


def environment(env: Any, params: Any = None, *, steps: int = 1000) -> None:
    """Raise `ValueError` with the rules of an environment that `env` breaks, a sentence each.

    The check plays four environments in parallel with random actions, for an episode plus two
    steps, or for `steps` steps if that is less; it then does not see the end of a longer episode.
    With `steps` = 0, which takes no time, the environment is only traced, to check methods and
    shapes. `params` default to the environment's.

    The rules are gymnax's: `reset_env(key, params)` -> (obs, state), `step_env(key, state,
    action, params)` -> (obs, state, reward, terminated, info), two spaces, an `is_truncated`, and
    `max_steps_in_episode` among the parameters. Observations are in their space, a reward is a
    finite float, the flags are bools, `state.time` counts steps, and results depend only on the
    arguments.
    """
    broken = list(traced(env, params))
    if not broken and steps:
        params = env.default_params if params is None else params
        broken = [*_kinds(env, params), *_pure(env, params)]
        broken = broken or list(_played(_vector(env, params), params, steps))
    if broken:
        name = getattr(env, "name", type(env).__name__)
        rules = "; ".join(f"({i}) {text}" for i, text in enumerate(broken, 1))
        raise ValueError(
            f"`env` must keep the rules of an environment; {name} breaks {len(broken)}: "
            f"{rules if len(broken) > 1 else broken[0]}. (mmrl.checks.environment lists them all.)"
        )


def _vector(env: Any, params: Any) -> Any:
    """The environment as agents see it, if its observation is a dictionary or has a mask."""
    composed = isinstance(env.observation_space(params), spaces.Dict)
    return shown(env, params, ()) if composed or offers_mask(env, params) else env


def _kinds(env: Any, params: Any) -> Iterator[str]:
    """Yield the numbers whose types are wrong."""
    obs, state = jax.eval_shape(env.reset_env, jax.random.key(0), params)
    action = action_shape(env, params)
    step = jax.eval_shape(env.step_env, jax.random.key(0), state, action, params)
    for place, space, part in parts(env.observation_space(params), obs):
        if fault := misfit(space, part.dtype):
            yield f"observations{f' at {place}' if place else ''} {fault}"
    if not jnp.issubdtype(step[2].dtype, jnp.floating):
        yield f"`reward` must be a float; got {step[2].dtype}: write jnp.float32(reward)"
    truncated = jax.eval_shape(env.is_truncated, state, params)
    for name, flag in (("terminated", step[3]), ("is_truncated", truncated)):
        if flag.dtype != jnp.bool_:
            yield f"`{name}` must be a bool; got {flag.dtype}: write a comparison"


def _pure(env: Any, params: Any) -> Iterator[str]:
    """Yield the methods that give another program when they are traced again."""
    key, state = jax.random.key(0), jax.eval_shape(env.reset_env, jax.random.key(0), params)[1]
    action = action_shape(env, params)
    calls = (("reset_env", (key, params)), ("step_env", (key, state, action, params)))
    for name, given in calls:
        call = getattr(env, name)
        first, second = (_program(lambda *x, call=call: call(*x), given) for _ in range(2))
        if first != second:
            yield f"`{name}`: {PURE}"


def _program(call: Callable[..., Any], given: tuple[Any, ...]) -> tuple[str, list[bytes]]:
    traced = jax.make_jaxpr(call)(*given)
    arrays = [x for x in traced.consts if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
    return re.sub("0x[0-9a-f]+", "", str(traced)), [np.asarray(x).tobytes() for x in arrays]


def _played(env: Any, params: Any, steps: int) -> Iterator[str]:
    count = min(int(params.max_steps_in_episode) + 2, steps)
    keys = jax.random.split(jax.random.key(0), SIDE_BY_SIDE)
    play = jax.jit(jax.vmap(lambda key: _play(env, params, jax.random.clone(key), count)))
    try:
        saw, again = jax.device_get(play(keys)), jax.device_get(play(keys))
    except Exception as error:
        yield f"four of them must play in parallel, under `jax.vmap`; that raised {told(error)}"
        return
    saw: Any
    if not jax.tree.all(
        jax.tree.map(lambda x, y: np.array_equal(x, y, equal_nan=True), saw, again)
    ):
        yield PURE
    space = env.observation_space(params)
    if saw["outside"].any():
        yield (
            f"observations must lie in `observation_space`, {space!r}; got numbers from "
            f"{saw['low'].min():.4g} to {saw['high'].max():.4g}, first {_when(saw, 'outside')}"
            f"{_unreal(saw)}"
        )
    if saw["infinite"].any():
        yield f"`reward` must be finite; got NaN or infinity, first {_when(saw, 'infinite')}"
    if saw["stuck"].any():
        yield (
            f"`{MASK}` must allow an action in each state, except in the last of an episode that "
            f"terminated; none is legal in step {saw['stuck'][saw['stuck'] > 0].min()} of one"
        )
    if saw["uncounted"].any():
        yield (
            "`state.time` must be 0 after a reset, also after an end, and one more after each "
            f"step; it is not {_when(saw, 'uncounted')}: write time=state.time + 1, and inherit "
            "gymnax's `step`, which resets"
        )
    elif saw["late"].any():
        yield (
            f"an episode must end after `max_steps_in_episode`, {params.max_steps_in_episode}, "
            "steps at the latest; one continued. `is_truncated` must be True when `state.time` "
            "reaches it, as in gymnax"
        )
    if saw["reset"].any() and not saw["uncounted"].any():
        yield (
            f"`step_env` must not reset; {_when(saw, 'reset')}, its last, `state.time` did not "
            "grow by one. Return the state and the observation that the action led to; "
            "gymnax's `step` resets"
        )
    if saw["clocked"].any():
        yield (
            f"`terminated` must not be True because time is up; {_when(saw, 'clocked')} it is True "
            "at `max_steps_in_episode`, and False if that limit is later. Report the end by the "
            "clock in `is_truncated` only, so that agents bootstrap"
        )
    if own_step(env) and (saw["last"] & saw["swapped"]).any() and not saw["kept"].any():
        yield (
            "info's `final_observation` must be the last of the episode that ended; it is the "
            f"first of the next one {_when(saw, 'last')}. Inherit gymnax's `step`"
        )


def _unreal(saw: Any) -> str:
    """Return which observations are NaN or infinite, and whether agents learn from them."""
    if saw["harmful"].any():
        return f". Agents would learn from NaN or infinity {_when(saw, 'harmful')}"
    if saw["unreal"].any():
        return (
            ". NaN or infinity occurs only where episodes terminate, first "
            f"{_when(saw, 'unreal')}: harmless in training, because no agent bootstraps there"
        )
    return ""


def _when(saw: Any, name: str) -> str:
    """Return the first step at which `name` is True."""
    time, which = np.argwhere(saw[name].T)[0]
    return f"in step {saw['length'][which, time]} of an episode"


def _play(env: Any, params: Any, key: PRNGKeyArray, count: int) -> dict[str, Any]:
    """Take steps with random actions, [time], and record what is wrong in each."""
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
        # The same key again, on purpose.
        alone = env.step_env(jax.random.clone(key), state, action, params)
        seen = jnp.stack([obs, final]).astype(jnp.float32)
        told = {
            "reward": reward,
            "outside": ~(_inside(space, obs) & _inside(space, final)),
            "unreal": ~(_real(obs) & _real(final)),
            "harmful": ~_real(obs) | (~_real(final) & ~terminated),
            "low": seen.min(),
            "high": seen.max(),
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
        return (after, jnp.where(last, 0, before + 1), obs), told

    start = jax.tree.map(jnp.asarray, first), jnp.int32(0), jnp.asarray(obs)
    _, told = jax.lax.scan(step, start, words)
    for name, bad in (("outside", ~_inside(space, obs)), ("harmful", ~_real(obs))):
        told[name] = told[name].at[0].set(told[name][0] | bad)
    return told


def _by_clock(env: Any, key: PRNGKeyArray, state: Any, action: Any, params: Any) -> Any:
    """Return True if the step would terminate if time were up now, or one step earlier."""
    if not dataclasses.is_dataclass(params):
        return jnp.array(False)

    def ends(limit: Any, params: Any = params) -> Any:
        limited = dataclasses.replace(params, max_steps_in_episode=limit)
        return env.step_env(jax.random.clone(key), state, action, limited)[3]

    return ends(jnp.maximum(state.time, 1)) | ends(state.time + 1)


def _inside(space: Any, obs: Any) -> Any:
    """Return True if an observation lies in its space and is finite."""
    return jnp.asarray(space.contains(obs)) & _real(obs)


def _real(obs: Any) -> Any:
    """Return True if an observation has no NaN and no infinity."""
    return jnp.all(jnp.isfinite(obs))
