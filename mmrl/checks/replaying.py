"""Does a recurrent agent say over a stored tape what it said while acting?

An episode must look to it as if nothing had come before, be it played step by step or replayed
among others. Where it does not, the first difference is looked for among those that the usual
mistakes would make, because each of them gives numbers of its own.
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
from mmrl.envs.wrappers.observation import SHOWN, shown
from mmrl.rollout import Transition, collect, start

LATE = "the begin flag comes one step late, with the second observation of an episode"
EARLY = (
    "the flag of the step that ended an episode is taken for the begin flag, which belongs to the "
    "next observation: it comes one step early"
)
# Which flags an agent with a mistake goes by: of those of the tape, `begin[t]` with `obs[t]`.
FLAGS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("the state is never reset", lambda begin: jnp.zeros_like(begin)),
    (LATE, lambda begin: jnp.roll(begin, 1).at[0].set(False)),
    (LATE, lambda begin: jnp.roll(begin, 1).at[:2].set(False)),  # without that of the tape's start
    (EARLY, lambda begin: jnp.roll(begin, -1).at[-1].set(False)),
)
ZEROS = "the state is reset to zeros, and not to the initial state"
OTHER = "the state is reset to `init`, and in acting to another one"
NEXT = "the final observation is taken from the next episode, where the environment was reset"
VALUE = (
    "the final observation is taken from the next episode: what is said of its first observation "
    "stands in for what follows the last step of this one"
)
FRESH = "the memory is empty at the final observation, as if an episode began there"
CUT = "the state is reset after a termination alone, and not where an episode was cut off by time"
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
    """`functions` of a `Net`, an `ActorCritic`, or what is called as one.

    The network sees what a run shows it: one vector, one-hot if the observation is discrete, and
    then what `observes` names, as in `mmrl.runs.Setup`. By default that is what fits the network:
    the observation as it is, the vector, or the vector with some of the additions. Raises
    `ValueError` as `functions` does, and for a network that lacks a call or fits none of these.
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
    env = _seen(net, env, params, observes)
    functions(net.init(), net.step, replay, env, params, key, ahead=ahead, steps=steps)


def _seen(net: Any, env: Any, params: Any, observes: Collection[str] | None) -> Any:
    """The environment as the network sees it."""
    if observes is not None:
        return shown(env, params, observes)
    orders = itertools.chain.from_iterable(itertools.combinations(SHOWN, n) for n in range(4))
    reasons = []
    for see in (lambda: env, *(partial(shown, env, params, names) for names in orders)):
        try:
            seen = see()
            obs = jax.eval_shape(seen.reset_env, jax.random.key(0), params)[0]
            jax.eval_shape(lambda obs: net.step(net.init(), obs, jnp.array(True)), obs)
        except (TypeError, ValueError) as error:
            reasons.append(f"{error}".strip().split("\n")[0])
            continue
        return seen
    raise ValueError(
        "`net` must read the observation of `env`, as it is or as a vector, with or without "
        f"{', '.join(SHOWN)}; the observation as it is gave: {reasons[0]}"
    )


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
    """Raises `ValueError` unless a recurrent agent replays what it acted, over ends of episodes.

    - `init` is its state before the first observation;
    - `step(state, obs, begin)` -> (state, outputs) is what it does while acting;
    - `replay(state, tape)` -> outputs, [time], is what it does while learning, from the state
      before the tape, a `mmrl.rollout.Transition` with leaves [time, ...];
    - `ahead(state, tape)` -> outputs, [time], is what it says of `tape.next_obs`, for bootstraps.

    `outputs` are log-probabilities, values, or any arrays of them. `steps` steps are played at
    random actions, and every output must be, up to `tolerance` (times the largest one, if above
    1), that of an agent which plays this episode alone. The message says what differs first, where
    in which episode, and which mistake gives these very numbers.
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
            f"`steps` must see two ends of episodes, and one of 2 steps between them; got {steps}, "
            f"with {len(ends)}. Take more, or `params` with a smaller `max_steps_in_episode`."
        )
    _compare("acting", acted, right, mistakes, tape, tolerance)
    _compare("replay", replayed, right, mistakes, tape, tolerance)
    if ahead is not None:
        _compare("ahead", said, wanted, list(zip(AHEAD, wrong_ahead, strict=True)), tape, tolerance)


def _cut_off(tape: Any) -> bool:
    """Whether an episode was ended by the clock alone: some mistakes are made only there."""
    return bool(np.any(tape.truncated & ~tape.terminated))


def _shorter(params: Any, tape: Any) -> Any:
    """Parameters by which the clock ends about half of the episodes."""
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
    """A tape, what was said in acting, what is right, and what mistakes give; the same ahead."""
    tape, states, acted = _act(init, step, env, params, key, steps)
    # Where the flag changes what is said of a first observation, it is an input, too.
    first = [jax.tree.leaves(step(init, tape.obs[0], jnp.array(x))[1]) for x in (False, True)]
    seen = jnp.array([jnp.any(x != y) for x, y in zip(*first, strict=True)]).any()

    def by_hand(flags: Any, to: PyTree, seen: Any) -> Any:
        """The outputs where the state becomes `to` at these flags."""

        def one(state: PyTree, now: Any) -> tuple[PyTree, Any]:
            obs, flag = now
            state = jax.tree.map(lambda x, y: jnp.where(flag, x, y), to, state)
            return step(state, obs, flag & seen)

        return jax.lax.scan(one, init, (tape.obs, flags))[1]

    def after(state: PyTree, obs: Any) -> Any:
        return step(state, obs, jnp.array(False))[1]

    def follow(xs: Any) -> Any:  # what follows the last step is not on the tape
        return jax.tree.map(lambda x: jnp.concatenate([x[1:], x[-1:]]), xs)

    zeros = jax.tree.map(jnp.zeros_like, init)
    plans = [(tape.begin, init, seen), *((wrong(tape.begin), init, seen) for _, wrong in FLAGS)]
    plans += [(tape.begin, zeros, seen), (tape.begin, init, jnp.array(False))]
    plans += [(jnp.concatenate([tape.begin[:1], tape.terminated[:-1]]), init, seen)]
    outputs = jax.vmap(by_hand)(*jax.tree.map(lambda *x: jnp.stack(x), *plans))
    right, *wrong = (jax.tree.map(lambda x, i=i: x[i], outputs) for i in range(len(plans)))
    wrong_ahead = [  # as in `AHEAD`
        jax.vmap(after)(states, follow(tape.obs)),
        follow(right),
        jax.vmap(lambda x: step(init, x, seen)[1])(tape.next_obs),
    ]
    wanted = jax.vmap(after)(states, tape.next_obs)
    return tape, acted, right, wrong, wanted, wrong_ahead


def _act(
    init: PyTree, step: Callable[..., Any], env: Any, params: Any, key: PRNGKeyArray, steps: int
) -> tuple[Any, PyTree, Any]:
    """A tape without extras, the state after each of its steps, and the outputs."""
    space, (start_key, key) = env.action_space(params), jax.random.split(key)

    def policy(state: PyTree, obs: Any, begin: Any, key: PRNGKeyArray) -> tuple[Any, ...]:
        state, outputs = step(state, obs, begin)
        return state, random_action(space, key), (state, outputs)

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
    """Raise `ValueError` at the first difference, with the mistake that gives what was got."""
    shapes = [jax.tree.map(jnp.shape, x) for x in (got, wanted)]
    if jax.tree.structure(got) != jax.tree.structure(wanted) or shapes[0] != shapes[1]:
        raise ValueError(
            f"`{what}` must return outputs like those of `step`, [time]: arrays of the shapes "
            f"{jax.tree.leaves(shapes[1])}; got {jax.tree.leaves(shapes[0])}."
        )
    wrong = _differs(got, wanted, tolerance)
    if not wrong.any():
        return
    at = int(np.flatnonzero(wrong.any(0))[0])
    fits = ~wrong[:, :-1].any(1)  # one of two networks may make a mistake alone
    apart = [(name, _differs(got, other, tolerance)[:, :-1].any(1)) for name, other in mistakes]
    like = [name for name, differs in apart if np.all(fits | ~differs)]
    looks = f"It looks as if {like[0]}." if like else "It is none of the usual mistakes at a reset."
    raise ValueError(
        f"`{what}` must give what the agent says when it plays each episode alone; it differs "
        f"first at step {at}, {_place(tape, at)}: {_numbers(got, wanted, at)}. {looks}"
    )


def _differs(got: Any, wanted: Any, tolerance: float) -> np.ndarray:
    """Where the outputs differ, [output, time]; NaN differs from all."""

    def leaf(x: Any, y: Any) -> np.ndarray:
        x, y = (np.asarray(z, np.float64).reshape(len(z), -1) for z in (x, y))
        near = np.abs(x - y) <= tolerance * max(1.0, np.abs(y).max(initial=0))
        return ~(near | (x == y)).all(1)

    return np.stack(jax.tree.leaves(jax.tree.map(leaf, got, wanted)))


def _place(tape: Any, at: int) -> str:
    """Which side of an episode boundary a step is on."""
    begins, last = np.flatnonzero(tape.begin), np.asarray(tape.last)
    episode = int(np.searchsorted(begins, at, side="right"))
    since = at - begins[episode - 1]
    place = "the first" if since == 0 else f"{since} after the first"
    return f"{place}{', and the last,' if last[at] else ''} of episode {episode}"


def _numbers(got: Any, wanted: Any, at: int) -> str:
    """The numbers that are farthest apart at a step."""
    x, y = (
        np.concatenate([np.ravel(np.asarray(z)[at]) for z in jax.tree.leaves(tree)])
        for tree in (got, wanted)
    )
    i = int(np.nanargmax(np.abs(x - y))) if np.isfinite(x - y).any() else 0
    return f"{x[i]:.6g} in place of {y[i]:.6g}"
