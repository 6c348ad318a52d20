"""Check that a recurrent agent resets its memory at episode boundaries.

In each episode, the outputs of an agent must be the same as if the episode were its first one, both
during acting and when a tape of several episodes is replayed. If the outputs differ, they are
compared with the outputs that common mistakes would produce, to identify the cause.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, PRNGKeyArray, PyTree

from mmrl.checks.tracing import random_action
from mmrl.envs.wrappers.mask import ActionMask, offers_mask
from mmrl.envs.wrappers.observation import INPUTS, legal_actions, with_inputs
from mmrl.rollout import Transition, collect, start

LATE = "the begin flag comes one step late, with the second observation of an episode"
EARLY = (
    "the flag of the step that ended an episode is used as the begin flag, so it comes one step "
    "early, with the last observation"
)
# Each function maps the correct flags to the flags that an agent with the named mistake would use.
# Correct flags are True for the first observation of an episode.
FLAGS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("the state is never reset", lambda begin: jnp.zeros_like(begin)),
    (LATE, lambda begin: jnp.roll(begin, 1).at[0].set(False)),
    # A variant of this mistake also omits the flag of the first episode.
    (LATE, lambda begin: jnp.roll(begin, 1).at[:2].set(False)),
    (EARLY, lambda begin: jnp.roll(begin, -1).at[-1].set(False)),
)
ZEROS = "the state is reset to zeros instead of the initial state"
OTHER = "the state is reset to `init` during replay, but to a different state during acting"
NEXT = "the final observation is replaced by the first observation of the next episode"
VALUE = (
    "the outputs for the final observation are replaced by those for the first observation of the "
    "next episode"
)
FRESH = "the memory is empty at the final observation, as if an episode started there"
CUT = "the state is reset only after a termination, and not after a truncation"
RESETS = (*(name for name, _ in FLAGS), ZEROS, OTHER, CUT)
AHEAD: tuple[str, ...] = (NEXT, VALUE, FRESH)


def agent(
    net: Any,
    env: Any,
    params: Any = None,
    key: PRNGKeyArray | None = None,
    *,
    observes: Collection[str] | None = None,
    steps: int = 256,
) -> None:
    """Check that a `Net`, an `ActorCritic`, or a similar network resets between episodes.

    The check applies `functions` to the methods of the network. Observations are converted as in a
    run: to vectors, with one-hot encoding of discrete observations, to which the inputs in
    `observes` are appended (see `mmrl.runs.Setup`). If `observes` is None, the check tries the
    original observation, the vector, and the vector with each combination of inputs, and uses the
    first observation that the network accepts.

    Raises `ValueError` if `functions` does, if the network lacks a method, or if the network
    accepts none of these observations.

        >>> from mmrl import envs, memory
        >>> net = memory.make("none", 3, 2, key=jax.random.key(0))  # has a network's methods
        >>> agent(net, *envs.make("probe-Memory-v0"), observes=(), steps=16)  # no error
    """
    calls = ("init", "step", "__call__", "lookahead")
    if missing := [name for name in calls if not callable(getattr(net, name, None))]:
        raise ValueError(
            f"`net` must have the methods {', '.join(calls)}; got {type(net).__name__} without "
            f"{', '.join(missing)}. For other agents, use `mmrl.checks.functions`."
        )

    def replay(state: PyTree, tape: Transition) -> Any:
        return net(state, tape.obs, tape.begin)[1]

    def ahead(state: PyTree, tape: Transition) -> Any:
        return net.lookahead(state, tape.obs, tape.begin, tape.next_obs)[2]

    params = env.default_params if params is None else params
    env = ActionMask(env) if offers_mask(env, params) else env
    env = _with_observations(net, env, params, observes)
    functions(net.init(), net.step, replay, env, params, key, ahead=ahead, steps=steps)


def _with_observations(net: Any, env: Any, params: Any, observes: Collection[str] | None) -> Any:
    """Wrap an environment so that its observations fit the network."""
    ways = [partial(with_inputs, env, params, flat=flat) for flat in (True, False)]
    if observes is not None:
        vector, picture = (see(observes) for see in ways)
        return vector if _refusal(net, lambda: picture, params) else picture
    names = itertools.chain.from_iterable(itertools.combinations(INPUTS, n) for n in range(4))
    each: list[Any] = [lambda: env, *(partial(see, some) for some in names for see in ways)]
    for see in each:
        if not _refusal(net, see, params):
            return see()
    raise ValueError(
        "`net` must accept the observations of `env`, unchanged or as a vector, with or without "
        f"{', '.join(INPUTS)}; got an error for the unchanged observation: "
        f"{_refusal(net, each[0], params)}"
    )


def _refusal(net: Any, see: Callable[[], Any], params: Any) -> str:
    """Return the error that a network raises for an environment's observations, or ""."""
    try:
        obs = jax.eval_shape(see().reset_env, jax.random.key(0), params)[0]
        jax.eval_shape(lambda obs: net.step(net.init(), obs, jnp.array(True)), obs)
    except (TypeError, ValueError) as error:
        return f"{error}".strip().split("\n")[0] or type(error).__name__
    return ""


def functions(
    init: PyTree,
    step: Callable[[PyTree, Any, Bool[Array, ""]], tuple[PyTree, Any]],
    replay: Callable[[PyTree, Transition], Any],
    env: Any,
    params: Any = None,
    key: PRNGKeyArray | None = None,
    *,
    ahead: Callable[[PyTree, Transition], Any] | None = None,
    steps: int = 256,
    tolerance: float = 1e-5,
) -> None:
    """Check that a recurrent agent resets its memory between episodes.

    - `init` is the state before the first observation.
    - `step(state, obs, begin)` -> (state, outputs) is used for acting.
    - `replay(state, tape)` -> outputs, [time], is used for learning. `state` is the state before
      the tape, and `tape` is a `mmrl.rollout.Transition` with leaves [time, ...].
    - `ahead(state, tape)` -> outputs, [time], returns the outputs for `tape.next_obs`, which
      bootstrapped targets require.

    `outputs` may be log-probabilities, values, or a pytree of both. The check plays `steps` steps
    with random actions, and compares the outputs in each episode with those of an agent that plays
    only this episode. The tolerance is relative to the largest output, or absolute if that is below
    1.

    Raises `ValueError` at the first difference. The message contains the position in the episode,
    and the mistake that would produce the same outputs.

        >>> from mmrl import envs
        >>> step = lambda state, obs, begin: (state, obs)  # an agent without a memory
        >>> replay = lambda state, tape: tape.obs
        >>> functions((), step, replay, *envs.make("probe-Memory-v0"), steps=16)  # no error
    """
    params = env.default_params if params is None else params
    key = jax.random.key(0) if key is None else key
    with jax.default_matmul_precision("highest"):
        results = _outputs(init, step, env, params, key, steps)
        if not _cut_off(results[0]) and dataclasses.is_dataclass(params):
            again = jax.random.clone(key)
            results = _outputs(init, step, env, _shorter(params, results[0]), again, steps)
        tape, acting, right, wrong, expected, wrong_ahead = jax.device_get(results)
        replay_outputs = eqx.filter_jit(replay)(init, results[0])
        values = None if ahead is None else eqx.filter_jit(ahead)(init, results[0])
    mistakes = list(zip(RESETS, wrong, strict=True))
    ends = np.flatnonzero(tape.last[:-1])
    if len(ends) < 2 or np.diff(ends).max() < 2:
        raise ValueError(
            "`steps` must include the ends of two episodes, at least 2 steps apart; got "
            f"{steps}, with {len(ends)} episode ends. Use more steps, or `params` with a smaller "
            "`max_steps_in_episode`."
        )
    _compare("acting", acting, right, mistakes, tape, tolerance)
    _compare("replay", replay_outputs, right, mistakes, tape, tolerance)
    if ahead is not None:
        mistakes = list(zip(AHEAD, wrong_ahead, strict=True))
        _compare("ahead", values, expected, mistakes, tape, tolerance)


def _cut_off(tape: Any) -> bool:
    """Return True if an episode was truncated. Some mistakes occur only at truncations."""
    return bool(np.any(tape.truncated & ~tape.terminated))


def _shorter(params: Any, tape: Any) -> Any:
    """Return parameters with a time limit that truncates about half of the episodes."""
    ends = np.flatnonzero(tape.last)
    lengths = np.diff(ends, prepend=-1)
    limit = max(2, int(np.median(lengths)) - 1) if len(ends) else params.max_steps_in_episode
    kind = jnp.asarray(params.max_steps_in_episode).dtype
    static = isinstance(params.max_steps_in_episode, int)
    limit = limit if static else jnp.asarray(limit, kind)
    return dataclasses.replace(params, max_steps_in_episode=limit)


@eqx.filter_jit
def _outputs(
    init: PyTree, step: Callable[..., Any], env: Any, params: Any, key: PRNGKeyArray, steps: int
) -> tuple[Any, ...]:
    """Play, and compute the agent's, the correct and the mistaken outputs.

    Return (tape, outputs while acting, correct outputs, mistaken outputs, correct outputs for the
    next observations, mistaken outputs for the next observations).
    """
    tape, states, acting = _act(init, step, env, params, key, steps)
    # If the begin flag changes the outputs for a first observation, the flag is an input of the
    # agent, and the imitated agents must receive it as well.
    first = [jax.tree.leaves(step(init, tape.obs[0], jnp.array(x))[1]) for x in (False, True)]
    differ = jnp.array([jnp.any(x != y) for x, y in zip(*first, strict=True)]).any()

    def by_hand(flags: Any, to: PyTree, differ: Any) -> Any:
        """Return the outputs of an agent whose state is reset to `to` where `flags` is True."""

        def one(state: PyTree, now: Any) -> tuple[PyTree, Any]:
            obs, flag = now
            state = jax.tree.map(lambda x, y: jnp.where(flag, x, y), to, state)
            return step(state, obs, flag & differ)

        return jax.lax.scan(one, init, (tape.obs, flags))[1]

    def after(state: PyTree, obs: Any) -> Any:
        return step(state, obs, jnp.array(False))[1]

    def follow(xs: Any) -> Any:
        # The last step has no successor on the tape, so repeat it.
        return jax.tree.map(lambda x: jnp.concatenate([x[1:], x[-1:]]), xs)

    zeros = jax.tree.map(jnp.zeros_like, init)
    plans = [(tape.begin, init, differ), *((wrong(tape.begin), init, differ) for _, wrong in FLAGS)]
    plans += [(tape.begin, zeros, differ), (tape.begin, init, jnp.array(False))]
    plans += [(jnp.concatenate([tape.begin[:1], tape.terminated[:-1]]), init, differ)]
    outputs = jax.vmap(by_hand)(*jax.tree.map(lambda *x: jnp.stack(x), *plans))
    right, *wrong = (jax.tree.map(lambda x, i=i: x[i], outputs) for i in range(len(plans)))
    wrong_ahead = [  # in the order of `AHEAD`
        jax.vmap(after)(states, follow(tape.obs)),
        follow(right),
        jax.vmap(lambda x: step(init, x, differ)[1])(tape.next_obs),
    ]
    expected = jax.vmap(after)(states, tape.next_obs)
    return tape, acting, right, wrong, expected, wrong_ahead


def _act(
    init: PyTree, step: Callable[..., Any], env: Any, params: Any, key: PRNGKeyArray, steps: int
) -> tuple[Any, PyTree, Any]:
    """Play with random actions; return the tape, and the state and outputs of each step."""
    space, (start_key, key) = env.action_space(params), jax.random.split(key)

    def policy(state: PyTree, obs: Any, begin: Any, key: PRNGKeyArray) -> tuple[Any, ...]:
        state, outputs = step(state, obs, begin)
        action = random_action(space, key, legal_actions(env, params, obs))
        return state, action, (state, outputs)

    carry = start(env, params, init, start_key)
    tape = collect(policy, env, params, carry, key, steps)[1]
    states, outputs = tape.extras
    return eqx.tree_at(lambda x: x.extras, tape, None), states, outputs


def _compare(
    what: str,
    got: Any,
    expected: Any,
    mistakes: list[tuple[str, Any]],
    tape: Any,
    tolerance: float,
) -> None:
    """Raise `ValueError` if the outputs differ, and name the mistake that explains this."""
    shapes = [jax.tree.map(jnp.shape, x) for x in (got, expected)]
    if jax.tree.structure(got) != jax.tree.structure(expected) or shapes[0] != shapes[1]:
        raise ValueError(
            f"`{what}` must return the outputs of `step`, stacked along a leading time axis, with "
            f"shapes {jax.tree.leaves(shapes[1])}; got {jax.tree.leaves(shapes[0])}."
        )
    wrong = _differs(got, expected, tolerance)
    if not wrong.any():
        return
    at = int(np.flatnonzero(wrong.any(0))[0])
    # Ignore outputs that are correct: an agent may have two networks of which only one is wrong.
    fits = ~wrong[:, :-1].any(1)
    apart = [(name, _differs(got, other, tolerance)[:, :-1].any(1)) for name, other in mistakes]
    like = [name for name, differs in apart if np.all(fits | ~differs)]
    looks = f"It looks as if {like[0]}." if like else "No common mistake explains the difference."
    raise ValueError(
        f"`{what}` must return, for each episode of the tape, the same outputs as for that "
        f"episode by itself; got a difference at step {at} of the tape, which is "
        f"{_place(tape, at)}: {_numbers(got, expected, at)}. {looks}"
    )


def _differs(got: Any, expected: Any, tolerance: float) -> np.ndarray:
    """Return True where outputs differ, [output, time]; NaN differs from everything."""

    def leaf(x: Any, y: Any) -> np.ndarray:
        x, y = (np.asarray(z, np.float64).reshape(len(z), -1) for z in (x, y))
        near = np.abs(x - y) <= tolerance * max(1.0, np.abs(y[np.isfinite(y)]).max(initial=0))
        return ~(near | (x == y)).all(1)

    return np.stack(jax.tree.leaves(jax.tree.map(leaf, got, expected)))


def _place(tape: Any, at: int) -> str:
    """Describe the position of a step in its episode."""
    begins, last = np.flatnonzero(tape.begin), np.asarray(tape.last)
    episode = int(np.searchsorted(begins, at, side="right"))
    since = at - begins[episode - 1]
    end = ", the last step of that episode" if last[at] else ""
    return f"step {since} of episode {episode}{end}"


def _numbers(got: Any, expected: Any, at: int) -> str:
    """Return the two values that differ most at a step, as a string."""
    x, y = (
        np.concatenate([np.ravel(np.asarray(z)[at]) for z in jax.tree.leaves(tree)])
        for tree in (got, expected)
    )
    i = int(np.nanargmax(np.abs(x - y))) if np.isfinite(x - y).any() else 0
    return f"{x[i]:.6g} instead of {y[i]:.6g}"
