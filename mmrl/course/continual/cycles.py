"""Training on tasks in cycles, evaluation of all tasks at all times, and measures of forgetting.

Rolnick et al. 2019, Section 4. An agent here is a module with

    init(config, env, params, key, tasks=tasks) -> state  state.net acts, state.kept remembers
    enter(config, env, params, state, tasks) -> state     continue in other environments
    iterate(config, env, params, state) -> state, (loss, measures, finite)
    leave(config, env, params, state) -> state            a task ends

In `clear`, `leave` does nothing, because CLEAR does not need boundaries; `ewc` uses it.

Scores are means over the episodes of an evaluation with frozen weights, for each task, whether it
is being trained or not: arrays of [stage, block, task], or [time, task]. Each of `POLICIES` plays
the same number of episodes from the same keys: one samples actions, as the paper does, and the
other is greedy, because a policy that is nearly uniform can be perfect if only its likeliest action
counts.

At the end of a stage, the tasks of the stage are scored before `leave`, with the network that
learned them, and all other tasks after it, with the network that is kept. The first score measures
learning; whatever a compression loses of it counts as forgotten. The second measures the agent
that continues, including the effect of `leave` on earlier tasks. If `kept` is `net`, as in CLEAR
and EWC, `leave` must not change the network.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from mmrl import _random
from mmrl.agents.clear.clear import of_task
from mmrl.agents.clear.vtrace import sampled
from mmrl.agents.common import score
from mmrl.agents.policies import mode
from mmrl.rollout import Policy

Scores = Float[Array | np.ndarray, "stage block task"]
Policies = Mapping[str, Callable[[Any], Policy]]
POLICIES: Policies = {"sampled": sampled, "greedy": mode}


class Played(NamedTuple):
    """The scores of one policy."""

    scores: Float[Array | np.ndarray, "*seed stage block task"]  # after each block
    begin: Float[Array | np.ndarray, "*seed task"]  # before all training


class Curves(NamedTuple):
    """Scores and measures along a cycle."""

    played: dict[str, Played]  # by each policy
    measures: PyTree  # diagnostics of the agent: means over each block, [stage, block]
    finite: Bool[Array | np.ndarray, "*seed"]  # True if all losses and rewards were finite


def evaluate(
    net: Any,
    env: Any,
    params: Any,
    tasks: int,
    key: PRNGKeyArray,
    episodes: int,
    policies: Policies = POLICIES,
) -> dict[str, Float[Array, " task"]]:
    """Return each policy's mean return in each task of a family."""

    def one(task, key):
        return _scores(net, env, of_task(params, task), key, episodes, policies)

    return jax.vmap(one)(jnp.arange(tasks), jax.random.split(key, tasks))


def cycle(
    agent: Any,
    config: Any,
    env: Any,
    params: Any,
    schedule: Int[Array | np.ndarray, "stage env"],
    tasks: int,
    key: PRNGKeyArray,
    policies: Policies = POLICIES,
) -> tuple[Any, Curves]:
    """Train through a schedule in one family of tasks, with `config.blocks` blocks per row.

    This is a pure function of the key: jit it as a whole, and vmap it over seeds, configs and
    schedules. All schedules with the same number of stages share one program; `schedules` builds
    some. `tasks` is the number of tasks that are evaluated and that the schedule may name.
    """
    if isinstance(schedule, np.ndarray) and not np.isin(schedule, range(tasks)).all():
        raise ValueError(
            f"`schedule` must name tasks from 0 to {tasks - 1}; got {schedule.min()} to "
            f"{schedule.max()}."
        )
    schedule = jnp.asarray(schedule, jnp.int32)
    if schedule.shape[1] != config.environments:
        raise ValueError(
            f"`schedule` must have a column for each of {config.environments} environments; got "
            f"{schedule.shape[1]}."
        )
    if config.horizon is None:  # the learning rate decays over all stages
        whole = float(config.blocks * len(schedule))
        config = eqx.tree_at(lambda c: c.horizon, config, whole, is_leaf=lambda x: x is None)
    init_key, first_key, key = jax.random.split(_random.one_key(key), 3)
    state = agent.init(config, env, params, init_key, tasks=schedule[0])

    def scores(state, left, key):
        learned = evaluate(state.net, env, params, tasks, key, config.episodes, policies)
        if left.kept is left.net:
            return learned
        again = jax.random.clone(key)  # both evaluations play the same episodes
        kept = evaluate(left.kept, env, params, tasks, again, config.episodes, policies)
        own = jnp.isin(jnp.arange(tasks), state.tasks)
        return jax.tree.map(partial(jnp.where, own), learned, kept)

    words, key_of = _random.as_words(jax.random.split(key, len(schedule)))

    def block(state, step):
        key, last = key_of(step[0]), step[1]
        state, (_, measures, finite) = jax.lax.scan(
            lambda s, _: agent.iterate(config, env, params, s), state, None, config.block
        )
        left = jax.lax.cond(last, partial(agent.leave, config, env, params), lambda s: s, state)
        means = jax.tree.map(jnp.mean, measures)
        return left, (scores(state, left, key), means, jnp.all(finite))

    def stage(state, now):
        row, words = now
        state = agent.enter(config, env, params, state, row)
        last = jnp.arange(config.blocks) == config.blocks - 1
        words, _ = _random.as_words(jax.random.split(key_of(words), config.blocks))
        return jax.lax.scan(block, state, (words, last))

    before = scores(state, state, first_key)
    state, (found, measures, finite) = jax.lax.scan(stage, state, (schedule, words))
    played = {name: Played(found[name], before[name]) for name in policies}
    return state, Curves(played, measures, jnp.all(finite))


def tour(
    agent: Any,
    config: Any,
    games: Sequence[tuple[Any, Any]],
    order: Sequence[int],
    key: PRNGKeyArray,
    report: Callable[[int, int, dict[str, Float[np.ndarray, " task"]]], None] | None = None,
    policies: Policies = POLICIES,
) -> tuple[Any, Curves]:
    """Run `cycle` through different environments with shared spaces, (env, params) each.

    This uses a few programs per game (to begin, train, end and evaluate), each compiled once.
    `report`, if given, is called with (stage, block, scores) after each block.
    """
    jit = [_compile(agent, config, env, params, policies) for env, params in games]
    init_key, key = jax.random.split(_random.one_key(key))
    state = jax.jit(lambda k: agent.init(config, *games[order[0]], k))(init_key)

    def scores(state, left, now, key):
        nets = [state.net if game == now else left.kept for game in range(len(games))]
        plays = zip(nets, jit, strict=True)
        each = [play(net, jax.random.clone(key)) for net, (_, _, _, play) in plays]
        return jax.tree.map(lambda *x: np.array(x), *each)

    begin, rows, measures, finite = scores(state, state, order[0], key), [], [], []
    for stage, game in enumerate(order):
        enter, block, leave, _ = jit[game]
        state, curves, seen = enter(state), [], []
        for b in range(config.blocks):
            state, (means, good) = block(state)
            left = leave(state) if b == config.blocks - 1 else state
            now = jax.random.fold_in(key, stage * config.blocks + b)
            curves.append(scores(state, left, game, now))
            seen.append(jax.device_get(means))
            finite.append(bool(good))
            if report is not None:
                report(stage, b, curves[-1])
            state = left
        rows.append(_stack(curves))
        measures.append(_stack(seen))
    found = _stack(rows)
    played = {name: Played(found[name], begin[name]) for name in policies}
    return state, Curves(played, _stack(measures), np.asarray(all(finite)))


def _scores(net, env, params, key, episodes, policies) -> dict[str, Float[Array, ""]]:
    """Return each policy's mean return in the same episodes."""
    return {
        name: score(net, env, params, jax.random.clone(key), episodes, policy=policy).returns.mean()
        for name, policy in policies.items()
    }


def _stack(trees: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *x: np.stack(x), *trees)


def _compile(agent: Any, config: Any, env: Any, params: Any, policies: Policies):
    """Return the compiled functions (enter, block, leave, play) of one game."""

    @jax.jit
    def enter(state):
        return agent.enter(config, env, params, state, None)

    @jax.jit
    def block(state):
        state, (_, measures, finite) = jax.lax.scan(
            lambda s, _: agent.iterate(config, env, params, s), state, None, config.block
        )
        return state, (jax.tree.map(jnp.mean, measures), jnp.all(finite))

    @jax.jit
    def leave(state):
        return agent.leave(config, env, params, state)

    @jax.jit
    def play(net, key):
        return _scores(net, env, params, key, config.episodes, policies)

    return enter, block, leave, play


# Measures of continual learning


def flat(played: Played) -> Float[Array | np.ndarray, "time task"]:
    """Return one seed's scores in order of time, starting with the score before all training."""
    scores = played.scores.reshape(-1, played.scores.shape[-1])
    return jnp.concatenate([played.begin[None], scores])


def cumulative(scores: Float[Array | np.ndarray, "time task"]) -> Float[Array, "time task"]:
    """Compute (1/t) Σ_{s<t} r_s of each task, t = 1, 2, …

    Appendix C; the last row is the quantity in Figure 8.
    """
    steps = jnp.arange(1, len(scores) + 1, dtype=jnp.float32)
    return jnp.cumsum(jnp.asarray(scores), axis=0) / steps[:, None]


def retained(
    scores: Scores,
    begin: Float[Array | np.ndarray, " task"],
    order: Sequence[int],
    after: int = 2,
) -> Float[np.ndarray, " share"]:
    """Compute the share of a stage's gain that is left after `after` stages of other tasks.

    (r_later - r_before) / (r_end - r_before) of the stage's task, where r_before is its score
    before all training. The share is 1 if all of it is kept, 0 if it is all forgotten, and negative
    if the score falls below that of an untrained agent. The result has one entry per stage that
    `after` stages of other tasks follow, and NaN where a stage had no gain. The forgetting is 1
    minus this share.
    """
    scores, begin = np.asarray(scores), np.asarray(begin)
    if len(order) != len(scores):
        raise ValueError(
            f"`order` must have a task for each stage, {len(scores)}; got {len(order)}."
        )
    shares = []
    for stage, task in enumerate(order[: len(order) - after]):
        if task in order[stage + 1 : stage + 1 + after]:
            continue
        gained = scores[stage, -1, task] - begin[task]
        left = scores[stage + after, -1, task] - begin[task]
        shares.append(left / gained if gained > 0 else np.nan)
    return np.array(shares)


def forward_transfer(
    scores: Float[Array | np.ndarray, " block"],
    alone: Float[Array | np.ndarray, " block"],
    best: float,
) -> Float[Array, ""]:
    """Compute (A - A_alone) / (best - A_alone), where A is a task's mean score during its training.

    Wołczyk et al. 2021: the share of the possible improvement over training from scratch that
    earlier tasks provide. `alone` is the score of an agent that trains only on this task, for the
    same time; `best` is the highest possible score. At 0 there is no transfer; if negative, earlier
    tasks hurt.
    """
    area, reference = jnp.mean(jnp.asarray(scores)), jnp.mean(jnp.asarray(alone))
    return (area - reference) / (best - reference)
