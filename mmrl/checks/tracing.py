"""Static checks of an environment's interface, by tracing its methods."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from mmrl._dtypes import with_promotion
from mmrl._own import one_line
from mmrl._spaces import disorder, misfit, offset, parts
from mmrl.envs._gymnax import environment as gymnax_environment
from mmrl.envs._gymnax import spaces
from mmrl.envs.base import AutoResetEnvironment
from mmrl.envs.wrappers.base import bounds
from mmrl.envs.wrappers.observation import legal_actions
from mmrl.rollout import legal

METHODS = ("reset", "step", "reset_env", "step_env", "is_truncated")
METHODS += ("observation_space", "action_space")
NUMBERS = (
    "JAX traces it with unknown values of `state`, `action` and `params`, so use `jnp.where` "
    "instead of `if`"
)


def interface_errors(env: Any, params: Any) -> Iterator[str]:
    """Yield a sentence for each rule of the interface that an environment breaks."""
    if isinstance(env, type):
        yield f"it must be an instance; got a class. Pass {env.__name__}()"
        return
    if missing := [name for name in METHODS if not callable(getattr(env, name, None))]:
        yield (
            f"it must have the methods {', '.join(METHODS)}; it lacks {', '.join(missing)}. "
            "Subclasses of gymnax.environments.environment.Environment only have to define the "
            "spaces, reset_env and step_env"
        )
        return
    params = getattr(env, "default_params", None) if params is None else params
    if complaint := _parameters(env, params):
        yield complaint
        return
    complaints = [*_space(env, params, "observation"), *_space(env, params, "action")]
    yield from complaints
    reset, complaint = _shapes(env, "reset_env", jax.random.key(0), params)
    reset_fits = [complaint] if complaint else list(_reset(env, params, reset))
    yield from reset_fits
    if not complaints and not reset_fits:
        yield from _step(env, params, reset)


def _parameters(env: Any, params: Any) -> str | None:
    if callable(params):
        return "`default_params` must be a property; got a method. Write @property above it"
    base = gymnax_environment
    is_default = getattr(type(env), "default_params", None) is base.Environment.default_params
    if is_default and params == base.EnvParams():
        return (
            "`default_params` must return parameters with the time limit of the environment, "
            "`max_steps_in_episode`; the defaults of gymnax end every episode after one step"
        )
    steps = getattr(params, "max_steps_in_episode", None)
    if not isinstance(steps, int | np.integer) or isinstance(steps, bool) or steps < 1:
        return (
            "`max_steps_in_episode` must be a field of its parameters, an integer of at least 1; "
            f"got {steps!r}. Derive the parameters from gymnax's EnvParams, and return them from "
            "`default_params`"
        )
    numbers = (bool, int, float, np.number, np.ndarray, jax.Array)
    if bad := [x for x in jax.tree.leaves(params) if not isinstance(x, numbers)]:
        return (
            f"its parameters must be numbers and arrays in a flax.struct.dataclass; got {bad[0]!r}."
            " Pass everything else to `__init__`"
        )
    return None


def _space(env: Any, params: Any, kind: str) -> Iterator[str]:
    """Yield a sentence for each rule that a space breaks."""
    name = f"{kind}_space"
    try:
        with jax.ensure_compile_time_eval():
            space = getattr(env, name)(params)
    except Exception as error:
        yield f"`{name}(params)` must return a space; it raised {one_line(error)}"
        return
    for place, part, _ in parts(space) if kind == "observation" else [("", space, None)]:
        yield from _part(f"{name}{place}", kind, part)


def _part(name: str, kind: str, space: Any) -> Iterator[str]:
    """Yield the rule that a space, or an entry of a dictionary space, breaks."""
    shape = getattr(space, "shape", None)
    if isinstance(space, spaces.Discrete) and space.n > 0:
        if fault := offset(space):
            yield f"`{name}` {fault}"
        return
    if not isinstance(space, spaces.Box) or not isinstance(shape, tuple):
        kinds = "a Box whose `shape` is a tuple, or a Discrete space of at least one value"
        more = ". Concatenate its entries into one vector" if isinstance(space, _COMPOSITE) else ""
        yield f"`{name}` must be {kinds}, from gymnax.environments.spaces; got {space!r}{more}"
    elif kind == "action" and len(shape) != 1:
        yield f"`{name}` must be a Box of vectors, or Discrete; got shape {shape}"
    elif not all(np.shape(x) in ((), (1,), shape) for x in (space.low, space.high)):
        yield f"`{name}` must have scalar bounds, or bounds of shape {shape}; got {space!r}"
    elif fault := disorder(space, kind == "action") or misfit(space, space.dtype):
        yield f"`{name}` {fault}"


_COMPOSITE = (spaces.Dict, spaces.Tuple)


def _shapes(env: Any, name: str, *arguments: Any) -> tuple[Any, str]:
    """Trace a method; return the shapes of its results or None, and an error message or ""."""
    try:
        return jax.eval_shape(lambda *x: getattr(env, name)(*x), *arguments), ""
    except Exception as error:
        return None, f"`{name}` cannot be traced: {one_line(error)}. {NUMBERS}"


def _reset(env: Any, params: Any, reset: Any) -> Iterator[str]:
    if not isinstance(reset, tuple) or len(reset) != 2:
        yield f"`reset_env` must return 2 values, (obs, state); got {_description(reset)}"
        return
    obs, state = reset
    yield from _observation("reset_env", env, params, obs)
    time = getattr(state, "time", None)
    if getattr(time, "shape", None) != ():
        yield (
            "the state must have a scalar `time`, which counts the steps of the episode and is "
            "used by `is_truncated`. Derive the state from gymnax's EnvState"
        )


def _observation(name: str, env: Any, params: Any, obs: Any) -> Iterator[str]:
    if any(_space(env, params, "observation")):
        return
    for place, space, part in parts(env.observation_space(params), obs):
        if getattr(part, "shape", None) != space.shape:
            at = f" at {place}" if place else ""
            yield (
                f"`{name}` must return an observation with the shape of `observation_space`"
                f"{at}, {space.shape}; got {getattr(part, 'shape', _description(part))}"
            )


def _step(env: Any, params: Any, reset: Any) -> Iterator[str]:
    key, action = jax.random.key(0), action_shape(env, params)
    step, complaint = _shapes(env, "step_env", key, reset[1], action, params)
    if complaint:
        yield complaint
        return
    if not isinstance(step, tuple) or len(step) != 5:
        more = ". Only `is_truncated` reports truncation" if _description(step) == "6" else ""
        yield (
            "`step_env` must return 5 values, (obs, state, reward, terminated, info); got "
            f"{_description(step)}{more}"
        )
        return
    obs, state, reward, terminated, info = step
    yield from _observation("step_env", env, params, obs)
    yield from _alike(reset, (obs, state))
    truncated, complaint = _shapes(env, "is_truncated", reset[1], params)
    if complaint:
        yield complaint
    results = {"reward": reward, "terminated": terminated, "is_truncated": truncated}
    for name, value in results.items():
        if getattr(value, "shape", None) != () and not (name == "is_truncated" and complaint):
            got = getattr(value, "shape", _description(value))
            yield f"`{name}` must be a scalar, with shape (); got {got}"
    if jnp.issubdtype(getattr(reward, "dtype", bool), jnp.complexfloating):
        yield f"`reward` must be real; got {reward.dtype}. Write reward.real"
    if not isinstance(info, dict):
        yield f"`info` must be a dictionary; got {_description(info)}. It may be empty, {{}}"
    if own_step(env):
        yield from _whole_step(env, params, reset, action)


def _alike(reset: Any, step: Any) -> Iterator[str]:
    """Yield a sentence for each array whose shape or dtype differs between reset and step."""
    before, after = (jax.tree_util.tree_leaves_with_path(x) for x in (reset[1], step[1]))
    observations = [jax.tree_util.tree_leaves_with_path(x[0]) for x in (reset, step)]
    if jax.tree.structure(reset[1]) != jax.tree.structure(step[1]):
        yield (
            "`step_env` must return a state with the same fields as `reset_env`; got "
            f"{_fields(after)} after {_fields(before)}"
        )
        return
    alike = [[(path, _shape(x)) for path, x in obs] for obs in observations]
    both = zip(*observations, strict=True) if alike[0] == alike[1] else ()
    pairs = [(f"obs{_at(at)}", x, y) for (at, x), (_, y) in both]
    pairs += [(f"state{_at(at)}", x, y) for (at, x), (_, y) in zip(before, after, strict=True)]
    for name, old, new in pairs:
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            yield (
                f"`step_env` must return arrays of the shapes and dtypes of `reset_env`; {name} is "
                f"{_kind(old)} after a reset and {_kind(new)} after a step. Write jnp.int32(0) "
                "instead of 0 or 0.0"
            )


def own_step(env: Any) -> bool:
    """Return True if the environment overrides the `step` of gymnax and of mmrl."""
    ours = (gymnax_environment.Environment.step, AutoResetEnvironment.step)
    return getattr(type(env), "step", None) not in ours


def _whole_step(env: Any, params: Any, reset: Any, action: Any) -> Iterator[str]:
    whole, complaint = _shapes(env, "step", jax.random.key(0), reset[1], action, params)
    if complaint:
        yield complaint
    elif not isinstance(whole, tuple) or len(whole) != 6:
        yield (
            "`step` must return 6 values, (obs, state, reward, terminated, truncated, info); got "
            f"{_description(whole)}. Inherit gymnax's `step`, which calls `step_env`"
        )
    elif _shapes_of(whole[5].get("final_observation")) != _shapes_of(whole[0]):
        yield (
            "`step` must store the observation before a reset in `info`, as `final_observation`. "
            "Inherit gymnax's `step`, which calls `step_env`"
        )


def _shapes_of(tree: Any) -> Any:
    return jax.tree.map(_shape, tree)


def _shape(x: Any) -> tuple[int, ...] | None:
    return getattr(x, "shape", None)


def _at(path: Any) -> str:
    return jax.tree_util.keystr(path)


def _fields(leaves: list[Any]) -> str:
    return ", ".join(_at(path).lstrip(".") for path, _ in leaves) or "none"


def _description(value: Any) -> str:
    if isinstance(value, tuple):
        return str(len(value))
    return "an array" if hasattr(value, "shape") else f"a {type(value).__name__}"


def _kind(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)}"


def action_shape(env: Any, params: Any) -> Any:
    """Return the shape and dtype of an action."""
    return jax.eval_shape(partial(random_action, env.action_space(params)), jax.random.key(0))


@with_promotion
def random_action(space: Any, key: PRNGKeyArray, mask: Any = None) -> Any:
    """Sample a random action that is legal according to `mask`.

    Entries with two bounds are sampled uniformly. Other entries are normally distributed, centered
    on the allowed value nearest to 0.
    """
    if mask is not None:
        return jax.random.categorical(key, jnp.where(mask, 0.0, -jnp.inf)).astype(space.dtype)
    if isinstance(space, spaces.Discrete):
        return space.sample(key)
    low, high = bounds(space)
    nearest = jnp.clip(0, low, high)
    bounded = jnp.isfinite(low) & jnp.isfinite(high)
    low, high = jnp.where(bounded, low, 0), jnp.where(bounded, high, 1)
    inside = jax.random.uniform(key, space.shape, minval=low, maxval=high)
    anywhere = jax.random.normal(jax.random.fold_in(key, 0), space.shape)
    return legal(space, jnp.where(bounded, inside, nearest + anywhere))


def random_policy(env: Any, params: Any) -> Any:
    """Return a policy for `mmrl.rollout` that takes random legal actions and has no memory."""

    def policy(state: Any, obs: Any, begin: Any, key: PRNGKeyArray) -> tuple[Any, Any]:
        mask = legal_actions(env, params, obs)
        return state, random_action(env.action_space(params), key, mask)

    return policy
