"""Check whether a recurrent agent returns over a stored tape what it returned while acting.

Every episode must look to the agent as if it were the first, both played step by step and replayed
among others. If an output differs, it is compared with the outputs that the usual mistakes would
give, because each mistake has different numbers.
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
from mmrl.envs.wrappers.observation import SHOWN, legal_actions, shown
from mmrl.rollout import Transition, collect, start

LATE = "the begin flag comes one step late, with the second observation of an episode"
EARLY = (
    "the flag of the step that ended an episode is used as the begin flag, which belongs to the "
    "next observation: it comes one step early"
)
# The flags used by an agent with a mistake, as functions of the tape's: `begin[t]` with `obs[t]`.
FLAGS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("the state is never reset", lambda begin: jnp.zeros_like(begin)),
    (LATE, lambda begin: jnp.roll(begin, 1).at[0].set(False)),
    (
        LATE,
        lambda begin: jnp.roll(begin, 1).at[:2].set(False),
    ),  # also the first one
    (EARLY, lambda begin: jnp.roll(begin, -1).at[-1].set(False)),
)
ZEROS = "the state is reset to zeros instead of the initial state"
OTHER = "the state is reset to `init`, but to another state while acting"
NEXT = "the final observation is taken from the next episode, where the environment was reset"
VALUE = (
    "the final observation is taken from the next episode: the outputs for its first observation "
    "are used after the last step of this one"
)
FRESH = "the memory is empty at the final observation, as if an episode began there"
CUT = "the state is reset only after a termination, and not where time cut an episode off"
RESETS = (*(name for name, _ in FLAGS), ZEROS, OTHER, CUT)
AHEAD = (NEXT, VALUE, FRESH)


def agent(
    net: Any,
    env: Any,
    params: Any = None,
    key: PRNGKeyArray | None = None,
    *,
    observes: Collection[str] | None = None,
    steps: int = 256,
) -> None:
    """Run `functions` on a `Net`, an `ActorCritic`, or any network with their calls.

    The network sees the observation as in a run: one vector, one-hot if the observation is
    discrete, followed by the inputs in `observes`, as in `mmrl.runs.Setup`. By default the check
    tries what fits the network: the observation itself, the vector, or the vector with some of
    these inputs. Raises `ValueError` as `functions` does, and for a network that lacks a call or
    fits none of these.
    """
    calls = ("init", "step", "__call__", "lookahead")
    if lacking := [name for name in calls if not callable(getattr(net, name, None))]:
        raise ValueError(
            f"`net` must have the calls {', '.join(calls)}; got {type(net).__name__} without "
            f"{', '.join(lacking)}. Give another agent to `mmrl.checks.functions`."
        )

    def replay(state: PyTree, tape: Transition) -> Any:
        return net(state, tape.obs, tape.begin)[1]

    def ahead(state: PyTree, tape: Transition) -> Any:
        return net.lookahead(state, tape.obs, tape.begin, tape.next_obs)[2]

    params = env.default_params if params is None else params
    env = ActionMask(env) if offers_mask(env, params) else env
    env = _seen(net, env, params, observes)
    functions(net.init(), net.step, replay, env, params, key, ahead=ahead, steps=steps)


def _seen(net: Any, env: Any, params: Any, observes: Collection[str] | None) -> Any:
    """Return the environment as the network sees it."""
    ways = [partial(shown, env, params, flat=flat) for flat in (True, False)]
    if observes is not None:
        vector, picture = (see(observes) for see in ways)
        return vector if _refusal(net, lambda: picture, params) else picture
    names = itertools.chain.from_iterable(itertools.combinations(SHOWN, n) for n in range(4))
    each: list[Any] = [lambda: env, *(partial(see, some) for some in names for see in ways)]
    for see in each:
        if not _refusal(net, see, params):
            return see()
    raise ValueError(
        "`net` must read the observation of `env`, unchanged or as a vector, with or without "
        f"{', '.join(SHOWN)}; the unchanged observation raised: {_refusal(net, each[0], params)}"
    )


def _refusal(net: Any, see: Callable[[], Any], params: Any) -> str:
    """Return why a network cannot read the observations of an environment, or ""."""
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
    """Raise `ValueError` unless a recurrent agent replays its outputs, across episode ends.

    - `init` is its state before the first observation;
    - `step(state, obs, begin)` -> (state, outputs) is its computation while acting;
    - `replay(state, tape)` -> outputs, [time], is its computation while learning, from the state
      before the tape, a `mmrl.rollout.Transition` with leaves [time, ...];
    - `ahead(state, tape)` -> outputs, [time], are its outputs for `tape.next_obs`, for bootstraps.

    `outputs` are log-probabilities, values, or any arrays of them. The check plays `steps` steps
    with random actions. Up to `tolerance` (times the largest output, if above 1), every output must
    equal that of the same agent playing only this episode. The message names the first difference,
    its place in the episode, and the mistake that gives exactly these numbers.
    """
    params = env.default_params if params is None else params
    key = jax.random.key(0) if key is None else key
    with jax.default_matmul_precision("highest"):
        played = _played(init, step, env, params, key, steps)
        if not _cut_off(played[0]) and dataclasses.is_dataclass(params):
            again = jax.random.clone(key)
            played = _played(init, step, env, _shorter(params, played[0]), again, steps)
        tape, acted, right, wrong, wanted, wrong_ahead = jax.device_get(played)
        replayed = eqx.filter_jit(replay)(init, played[0])
        said = None if ahead is None else eqx.filter_jit(ahead)(init, played[0])
    mistakes = list(zip(RESETS, wrong, strict=True))
    ends = np.flatnonzero(tape.last[:-1])
    if len(ends) < 2 or np.diff(ends).max() < 2:
        raise ValueError(
            f"`steps` must reach two episode ends, at least 2 steps apart; got {steps}, "
            f"with {len(ends)}. Take more, or `params` with a smaller `max_steps_in_episode`."
        )
    _compare("acting", acted, right, mistakes, tape, tolerance)
    _compare("replay", replayed, right, mistakes, tape, tolerance)
    if ahead is not None:
        _compare("ahead", said, wanted, list(zip(AHEAD, wrong_ahead, strict=True)), tape, tolerance)


def _cut_off(tape: Any) -> bool:
    """Return True if an episode ended only by the clock: some mistakes are made only there."""
    return bool(np.any(tape.truncated & ~tape.terminated))


def _shorter(params: Any, tape: Any) -> Any:
    """Return parameters by which the clock ends about half of the episodes."""
    ends = np.flatnonzero(tape.last)
    lengths = np.diff(ends, prepend=-1)
    limit = max(2, int(np.median(lengths)) - 1) if len(ends) else params.max_steps_in_episode
    kind = jnp.asarray(params.max_steps_in_episode).dtype
    given = isinstance(params.max_steps_in_episode, int)
    return dataclasses.replace(
        params, max_steps_in_episode=limit if given else jnp.asarray(limit, kind)
    )


@eqx.filter_jit
def _played(
    init: PyTree, step: Callable[..., Any], env: Any, params: Any, key: PRNGKeyArray, steps: int
) -> tuple[Any, ...]:
    """Return a tape, and the acting, correct and mistaken outputs; then the last two, ahead."""
    tape, states, acted = _act(init, step, env, params, key, steps)
    # If the flag changes the outputs for a first observation, it is also an input.
    first = [jax.tree.leaves(step(init, tape.obs[0], jnp.array(x))[1]) for x in (False, True)]
    seen = jnp.array([jnp.any(x != y) for x, y in zip(*first, strict=True)]).any()

    def by_hand(flags: Any, to: PyTree, seen: Any) -> Any:
        """Return the outputs if the state becomes `to` at these flags."""

        def one(state: PyTree, now: Any) -> tuple[PyTree, Any]:
            obs, flag = now
            state = jax.tree.map(lambda x, y: jnp.where(flag, x, y), to, state)
            return step(state, obs, flag & seen)

        return jax.lax.scan(one, init, (tape.obs, flags))[1]

    def after(state: PyTree, obs: Any) -> Any:
        return step(state, obs, jnp.array(False))[1]

    def follow(xs: Any) -> Any:  # the step after the last is not on the tape
        return jax.tree.map(lambda x: jnp.concatenate([x[1:], x[-1:]]), xs)

    zeros = jax.tree.map(jnp.zeros_like, init)
    plans = [(tape.begin, init, seen), *((wrong(tape.begin), init, seen) for _, wrong in FLAGS)]
    plans += [(tape.begin, zeros, seen), (tape.begin, init, jnp.array(False))]
    plans += [(jnp.concatenate([tape.begin[:1], tape.terminated[:-1]]), init, seen)]
    outputs = jax.vmap(by_hand)(*jax.tree.map(lambda *x: jnp.stack(x), *plans))
    right, *wrong = (jax.tree.map(lambda x, i=i: x[i], outputs) for i in range(len(plans)))
    wrong_ahead = [  # in the order of `AHEAD`
        jax.vmap(after)(states, follow(tape.obs)),
        follow(right),
        jax.vmap(lambda x: step(init, x, seen)[1])(tape.next_obs),
    ]
    wanted = jax.vmap(after)(states, tape.next_obs)
    return tape, acted, right, wrong, wanted, wrong_ahead


def _act(
    init: PyTree, step: Callable[..., Any], env: Any, params: Any, key: PRNGKeyArray, steps: int
) -> tuple[Any, PyTree, Any]:
    """Return a tape without extras, the state after each of its steps, and the outputs."""
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
    wanted: Any,
    mistakes: list[tuple[str, Any]],
    tape: Any,
    tolerance: float,
) -> None:
    """Raise `ValueError` at the first difference, with the mistake that gives the same outputs."""
    shapes = [jax.tree.map(jnp.shape, x) for x in (got, wanted)]
    if jax.tree.structure(got) != jax.tree.structure(wanted) or shapes[0] != shapes[1]:
        raise ValueError(
            f"`{what}` must return outputs as `step` does, [time]: arrays of the shapes "
            f"{jax.tree.leaves(shapes[1])}; got {jax.tree.leaves(shapes[0])}."
        )
    wrong = _differs(got, wanted, tolerance)
    if not wrong.any():
        return
    at = int(np.flatnonzero(wrong.any(0))[0])
    fits = ~wrong[:, :-1].any(1)  # a mistake may be in only one of two networks
    apart = [(name, _differs(got, other, tolerance)[:, :-1].any(1)) for name, other in mistakes]
    like = [name for name, differs in apart if np.all(fits | ~differs)]
    looks = f"It looks as if {like[0]}." if like else "No usual mistake at a reset explains it."
    raise ValueError(
        f"`{what}` must give the agent's outputs on each episode by itself; they differ "
        f"first at step {at}, {_place(tape, at)}: {_numbers(got, wanted, at)}. {looks}"
    )


def _differs(got: Any, wanted: Any, tolerance: float) -> np.ndarray:
    """Return True where the outputs differ, [output, time]; NaN differs from everything."""

    def leaf(x: Any, y: Any) -> np.ndarray:
        x, y = (np.asarray(z, np.float64).reshape(len(z), -1) for z in (x, y))
        near = np.abs(x - y) <= tolerance * max(1.0, np.abs(y[np.isfinite(y)]).max(initial=0))
        return ~(near | (x == y)).all(1)

    return np.stack(jax.tree.leaves(jax.tree.map(leaf, got, wanted)))


def _place(tape: Any, at: int) -> str:
    """Return where in its episode a step is."""
    begins, last = np.flatnonzero(tape.begin), np.asarray(tape.last)
    episode = int(np.searchsorted(begins, at, side="right"))
    since = at - begins[episode - 1]
    place = "the first" if since == 0 else f"{since} after the first"
    return f"{place}{', and the last,' if last[at] else ''} of episode {episode}"


def _numbers(got: Any, wanted: Any, at: int) -> str:
    """Return the pair of numbers that differ most at a step."""
    x, y = (
        np.concatenate([np.ravel(np.asarray(z)[at]) for z in jax.tree.leaves(tree)])
        for tree in (got, wanted)
    )
    i = int(np.nanargmax(np.abs(x - y))) if np.isfinite(x - y).any() else 0
    return f"{x[i]:.6g} in place of {y[i]:.6g}"
