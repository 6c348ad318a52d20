"""Train on tasks in cycles, evaluate every task after every block, and measure forgetting.

The protocol follows Rolnick et al. 2019, Section 4. An agent is a module with the functions

    init(config, env, params, key, tasks=tasks) -> state
    enter(config, env, params, state, tasks) -> state     called when a stage begins
    iterate(config, env, params, state) -> state, (loss, measures, finite)
    leave(config, env, params, state) -> state            called when a stage ends

`state.net` is the network that acts in the current task, and `state.past_net` is the network that
plays all other tasks. In `clear`, `leave` does nothing, because CLEAR does not need task
boundaries.

A score is the mean return over the episodes of an evaluation with frozen weights. Every task is
evaluated, even if it is not being trained, and scores have shape [stage, block, task] or
[time, task]. Each policy in `POLICIES` plays the same number of episodes from the same keys. One
samples actions, as the paper does. The other is greedy, because a nearly uniform policy can be
perfect when it acts greedily.

At the end of a stage, the tasks of that stage are scored before `leave` with `state.net`, and all
other tasks are scored after `leave` with `state.past_net`. The first score measures learning, so
anything that `leave` loses counts as forgotten. The second score measures the agent that continues,
including the effect of `leave` on earlier tasks. If `past_net` is `net`, as in CLEAR and EWC,
`leave` must not change the network.
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
from mmrl.agents.clear.vtrace import sampler
from mmrl.agents.common import score
from mmrl.agents.policies import mode
from mmrl.rollout import Policy

Scores = Float[Array | np.ndarray, "stage block task"]
Policies = Mapping[str, Callable[[Any], Policy]]
POLICIES: Policies = {"sampled": sampler, "greedy": mode}


class PolicyScores(NamedTuple):
    """Scores of one policy."""

    scores: Float[Array | np.ndarray, "*seed stage block task"]  # after each block
    begin: Float[Array | np.ndarray, "*seed task"]  # before all training


class Curves(NamedTuple):
    """Scores and diagnostics of a training run."""

    by_policy: dict[str, PolicyScores]  # keyed by policy
    measures: PyTree  # the agent's diagnostics, averaged over each block, [stage, block]
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
    """Compute the mean return of each policy on each task of a family."""

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
    """Train on the stages of a schedule, with `config.blocks` blocks per stage.

    The tasks belong to one family, so that a single environment plays all of them. This function is
    pure and can be wrapped in `jax.jit`, and in `jax.vmap` over seeds, configs and schedules.
    Schedules with the same number of stages share one compiled program. `tasks` is the number of
    tasks that are evaluated; the schedule contains their indices. Raises `ValueError` if an index
    is out of range, or if the schedule does not have one column per environment.
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
        new = evaluate(state.net, env, params, tasks, key, config.episodes, policies)
        if left.past_net is left.net:
            return new
        again = jax.random.clone(key)  # both evaluations play the same episodes
        old = evaluate(left.past_net, env, params, tasks, again, config.episodes, policies)
        own = jnp.isin(jnp.arange(tasks), state.tasks)
        return jax.tree.map(partial(jnp.where, own), new, old)

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
    state, (results, measures, finite) = jax.lax.scan(stage, state, (schedule, words))
    curves = {name: PolicyScores(results[name], before[name]) for name in policies}
    return state, Curves(curves, measures, jnp.all(finite))


def tour(
    agent: Any,
    config: Any,
    games: Sequence[tuple[Any, Any]],
    order: Sequence[int],
    key: PRNGKeyArray,
    report: Callable[[int, int, dict[str, Float[np.ndarray, " task"]]], None] | None = None,
    policies: Policies = POLICIES,
) -> tuple[Any, Curves]:
    """Train on different environments in `order`, and evaluate all of them after every block.

    `games` are (env, params) pairs with equal observation and action spaces. This is `cycle` for
    tasks that do not belong to one family. It compiles four functions per game. If `report` is
    given, it is called with (stage, block, scores) after each block.
    """
    jit = [_compile(agent, config, env, params, policies) for env, params in games]
    init_key, key = jax.random.split(_random.one_key(key))
    state = jax.jit(lambda k: agent.init(config, *games[order[0]], k))(init_key)

    def scores(state, left, now, key):
        nets = [state.net if game == now else left.past_net for game in range(len(games))]
        plays = zip(nets, jit, strict=True)
        each = [play(net, jax.random.clone(key)) for net, (_, _, _, play) in plays]
        return jax.tree.map(lambda *x: np.array(x), *each)

    begin, rows, measures, finite = scores(state, state, order[0], key), [], [], []
    for stage, game in enumerate(order):
        enter, block, leave, _ = jit[game]
        state, curves, reports = enter(state), [], []
        for b in range(config.blocks):
            state, (means, good) = block(state)
            left = leave(state) if b == config.blocks - 1 else state
            now = jax.random.fold_in(key, stage * config.blocks + b)
            curves.append(scores(state, left, game, now))
            reports.append(jax.device_get(means))
            finite.append(bool(good))
            if report is not None:
                report(stage, b, curves[-1])
            state = left
        rows.append(_stack(curves))
        measures.append(_stack(reports))
    results = _stack(rows)
    curves_of = {name: PolicyScores(results[name], begin[name]) for name in policies}
    return state, Curves(curves_of, _stack(measures), np.asarray(all(finite)))


def _scores(net, env, params, key, episodes, policies) -> dict[str, Float[Array, ""]]:
    """Compute the mean return of each policy, with equal keys for all of them."""
    return {
        name: score(net, env, params, jax.random.clone(key), episodes, policy=policy).returns.mean()
        for name, policy in policies.items()
    }


def _stack(trees: Sequence[PyTree]) -> PyTree:
    return jax.tree.map(lambda *x: np.stack(x), *trees)


def _compile(agent: Any, config: Any, env: Any, params: Any, policies: Policies):
    """Return the jitted functions (enter, block, leave, play) of one game."""

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


def flat(curve: PolicyScores) -> Float[Array | np.ndarray, "time task"]:
    """Flatten the scores of one seed along time, starting with the scores before training."""
    scores = curve.scores.reshape(-1, curve.scores.shape[-1])
    return jnp.concatenate([curve.begin[None], scores])


def cumulative(scores: Float[Array | np.ndarray, "time task"]) -> Float[Array, "time task"]:
    """Compute the running mean (1/t) Σ_{s<t} r_s of each task's scores, for t = 1, 2, …

    Rolnick et al. 2019, Appendix C. Figure 8 of that paper shows the last row.
    """
    steps = jnp.arange(1, len(scores) + 1, dtype=jnp.float32)
    return jnp.cumsum(jnp.asarray(scores), axis=0) / steps[:, None]


def retention(
    scores: Scores,
    begin: Float[Array | np.ndarray, " task"],
    order: Sequence[int],
    after: int = 2,
) -> Float[np.ndarray, " share"]:
    """Compute the fraction of each stage's gain that is retained after `after` more stages.

    The fraction is (r_later - r_before) / (r_end - r_before), where r_before is the task's score
    before all training, r_end its score at the end of the stage, and r_later its score after the
    other stages. It is 1 without any forgetting, 0 if the complete gain is forgotten, and negative
    if the score falls below r_before. Forgetting is 1 minus this fraction.

    The result has an entry for each stage that is followed by `after` stages of other tasks. The
    entry is NaN if the score did not improve during the stage.
    """
    scores, begin = np.asarray(scores), np.asarray(begin)
    if len(order) != len(scores):
        raise ValueError(
            f"`order` must have one entry per stage, {len(scores)} in total; got {len(order)}."
        )
    shares = []
    for stage, task in enumerate(order[: len(order) - after]):
        if task in order[stage + 1 : stage + 1 + after]:
            continue
        gain = scores[stage, -1, task] - begin[task]
        left = scores[stage + after, -1, task] - begin[task]
        shares.append(left / gain if gain > 0 else np.nan)
    return np.array(shares)


def forward_transfer(
    scores: Float[Array | np.ndarray, " block"],
    alone: Float[Array | np.ndarray, " block"],
    best: float,
) -> Float[Array, ""]:
    """Compute (A - A_alone) / (best - A_alone), where A is a task's mean score during its training.

    This measure is from Wołczyk et al. 2021. `alone` contains the scores of an agent that trains
    only on this task, for the same time, and `best` is the highest possible score. The result is
    the fraction of the possible improvement that earlier tasks provide: 0 means no transfer, and
    a negative value means that earlier tasks hurt.
    """
    area, reference = jnp.mean(jnp.asarray(scores)), jnp.mean(jnp.asarray(alone))
    return (area - reference) / (best - reference)
