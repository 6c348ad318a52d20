"""CLEAR: V-trace on new and replayed unrolls, and cloning on replayed ones.

Rolnick et al. 2019, on the actor-critic of IMPALA (Espeholt et al. 2018). A reservoir of old
unrolls is the only measure against forgetting: the agent is not told which task it plays, or that
another one begins. `replay_fraction` 0 is the plain V-trace actor-critic.

    iteration:  every environment acts for `rollout` steps and offers the unroll to the reservoir,
                then draws another one from its part. The learner takes *one of the two* from each
                environment, and makes one gradient step on the batch.

Implementation details
- The batch has the same size for every share of replay: at 50-50, half of the new unrolls are never
  learned from while they are new. Each iteration draws anew which environments replay.
- New unrolls enter the reservoir before it is sampled.
- Importance weights compare with the policy that acted, whose logits are stored, for new and
  replayed unrolls alike. On new ones they are 1, up to rounding.
- Policy and value cloning apply only to replayed unrolls. All sums are divided by the size of the
  whole batch, or not at all, so `reduction` has no effect on the balance of the losses.
- A memory starts a replayed unroll from the actor's state, which is as old as the unroll.
- A truncation bootstraps from the value of the observation it led to, and cuts the trace.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from mmrl import _random
from mmrl._dtypes import advance, promoting
from mmrl.agents import normalize
from mmrl.agents.checks import check_discrete, check_net, check_stored
from mmrl.agents.clear.vtrace import Measures, loss, optimizer, stochastic
from mmrl.agents.common import (
    Make,
    Metrics,
    annealed,
    descend,
    end_block,
    repeat,
    trained,
    training,
    watch,
)
from mmrl.agents.policies import actor_critic
from mmrl.agents.policies import mode as greedy
from mmrl.agents.settings import Settings, choice, count, limit, positive, share, static, weight
from mmrl.replay import reservoir
from mmrl.replay.frames import shortest
from mmrl.replay.reservoir import Reservoir, Unrolls
from mmrl.rollout import Carry, collect, start

OBSERVES = ("begin_flag",)  # in addition to o_t, by default
Tasks = Int[Array, " env"]


class Config(Settings):
    """Settings of CLEAR. Sizes and names are static; other fields are traced."""

    memory: str = static(default="lru")  # name in `mmrl.memory`; none: an MLP; or my_module:Mine
    # pairs of a size of this memory and its value, e.g. state_size 32
    memory_sizes: tuple[tuple[str, int], ...] = static(default=())
    width: int = count(64)  # features between encoder, memory and head
    # auto: convolutions for pictures, else dense; small, impala: stacks of convolutions
    encoder: str = choice("auto", "dense", "small", "impala")
    shared: bool = static(default=False)  # one network for policy and value
    optimizer: str = choice("adam", "rmsprop")  # optimizer of all gradient steps
    reduction: str = choice("mean", "sum")  # of the losses over time and environments
    normalize_observations: bool | None = static(default=None)  # None: only features beyond ±10
    normalize_rewards: bool = static(default=True)  # rewards of the losses; stored raw
    environments: int = count(8)  # N, environments that act in parallel
    rollout: int = count(64)  # U, steps of an unroll, the length of backpropagation
    capacity: int = count(51_200, least=0)  # steps in the reservoir, 0: none
    # type of stored observations; uint8, for whole numbers, takes a quarter of the space
    stored: str = choice("float32", "float16", "uint8", "int8")
    block: int = count(50)  # iterations between two evaluations
    blocks: int = count(48)  # evaluations in a whole run, or in a stage of a cycle
    episodes: int = count(32)  # episodes per evaluation and task

    replay_fraction: float = share(0.5)  # of a batch, rounded to whole unrolls; 0: plain V-trace
    policy_cloning: float = weight(0.1)  # weight of KL[μ ‖ π]
    value_cloning: float = weight(0.05)  # weight of (V - V_then)²
    value_weight: float = weight(0.05)  # as in `ppo`
    entropy_weight: float = weight(0.01)  # weight of the entropy of π
    rho_max: float = limit(1.0)  # ρ̄: largest weight; selects whose values are learned
    c_max: float = limit(1.0, zero=True)  # c̄: largest trace weight; limits a correction's reach
    gamma: float = share(0.97)  # γ, per step
    learning_rate: float = positive(2e-3)  # learning rate of Adam
    anneal: float = share(1.0)  # share of the learning rate lost by the horizon, linearly
    # blocks to the horizon; None: the whole run. A prolonged run takes up its new, longer line
    horizon: float | None = limit(None)
    beta1: float = share(0.9, off=1.0)  # β₁ of Adam
    beta2: float = share(0.999, off=1.0)  # β₂ of Adam
    adam_eps: float = positive(1e-8)  # ε of Adam
    rms_decay: float = share(0.99)  # decay of RMSProp
    rms_eps: float = positive(0.1)  # added to the mean square, below the root
    max_grad_norm: float = limit(1.0)  # largest norm of a gradient; longer ones are scaled down


class State(eqx.Module):
    """State of a run: pass it to `block` to continue."""

    net: Any  # anything with the calls of an `ActorCritic`
    optimizer: PyTree
    reservoir: Reservoir | None
    rewards: normalize.RewardScale | None  # running scale of the rewards
    carries: Carry  # one per environment
    tasks: Tasks | None  # the task of each environment in a family; hidden from networks
    key: PRNGKeyArray
    iteration: Int[Array, ""]

    @property
    def kept(self) -> Any:
        """Network that plays earlier tasks: the same one."""
        return self.net


@promoting
def check(config: Config, env: Any, params: Any) -> None:
    """Raise `ValueError` for a setting that cannot work; the message names it and the remedy."""
    config.check_ranges()
    least = config.environments * config.rollout
    if 0 < config.capacity < least:
        raise ValueError(
            f"`capacity` must be 0, or at least an unroll for each environment, {least} steps; got "
            f"{config.capacity}."
        )
    replays = config.replay_fraction
    if config.capacity == 0 and isinstance(replays, int | float) and replays > 0:
        raise ValueError(
            f"`replay_fraction` must be 0 without a reservoir; got {replays}. Set `capacity`."
        )
    check_discrete(env, params)
    if config.stored != "float32":
        check_stored(config.stored, env, params)


@promoting
def init(
    config: Config,
    env: Any,
    params: Any,
    key: PRNGKeyArray,
    make: Make = actor_critic,
    tasks: Tasks | None = None,
) -> State:
    """Return a fresh network and environments.

    With `tasks`, environment i plays task tasks[i] of the family `env`: the `task` of its
    parameters. `make` builds the network, by default the `ActorCritic` that the config names.
    """
    check(config, env, params)
    net_key, env_key, key = jax.random.split(_random.one_key(key), 3)
    net = check_net(make(config, env, params, net_key), env, params, acts=True)
    carries = _begin(config, env, params, net, tasks, env_key)
    (net,) = watch((net,), lambda s: s[0], carries.obs)
    state = State(
        net=net,
        optimizer=optimizer(config, 0.0).init(trained(net)),
        reservoir=None,
        rewards=normalize.rewards_of(config),
        carries=carries,
        tasks=tasks,
        key=key,
        iteration=jnp.zeros((), jnp.int32),
    )
    if config.capacity == 0:
        return state
    unrolls = jax.eval_shape(lambda: act(config, env, params, state, key)[1])
    step, memory = (
        jax.tree.map(lambda x, axes=axes: jax.ShapeDtypeStruct(x.shape[axes:], x.dtype), tree)
        for tree, axes in ((unrolls.steps, 2), (unrolls.state, 1))
    )
    empty = reservoir.init(
        step,
        memory,
        config.capacity,
        workers=config.environments,
        length=config.rollout,
        shortest=shortest(params),
    )
    return eqx.tree_at(lambda s: s.reservoir, state, empty, is_leaf=lambda x: x is None)


@promoting
def enter(config: Config, env: Any, params: Any, state: State, tasks: Tasks | None = None) -> State:
    """Put the agent into fresh episodes of other `tasks`; everything else is unchanged."""
    env_key, key = jax.random.split(state.key)
    carries = _begin(config, env, params, state.net, tasks, env_key)
    return dataclasses.replace(state, carries=carries, tasks=tasks, key=key)


def leave(config: Config, env: Any, params: Any, state: State) -> State:
    """Return the state unchanged at the end of a task, which CLEAR does not use."""
    return state


def of_task(params: Any, task: Any) -> Any:
    """Return the parameters of this task of a family; for None, `params` themselves."""
    return params if task is None else dataclasses.replace(params, task=task)


def _begin(config, env, params, net, tasks, key) -> Carry:
    def one(task, key):
        return start(env, of_task(params, task), net.init(), key)

    return jax.vmap(one)(tasks, jax.random.split(key, config.environments))


@promoting
def act(
    config: Config, env: Any, params: Any, state: State, key: PRNGKeyArray
) -> tuple[Carry, Unrolls]:
    """Collect an unroll from every environment, each in its task."""

    def one(carry, task, key):
        here = of_task(params, task)
        return collect(stochastic(state.net), env, here, carry, key, config.rollout)

    keys = jax.random.split(key, config.environments)
    carries, steps = jax.vmap(one)(state.carries, state.tasks, keys)
    stored = jax.tree.map(partial(_stored, config), (steps.obs, steps.next_obs))
    steps = dataclasses.replace(steps, obs=stored[0], next_obs=stored[1])
    return carries, Unrolls(state.carries.policy_state, steps)


def _stored(config: Config, obs: Array) -> Array:
    """Return observations [env, time, *obs] as they are stored; pictures of bytes as they are."""
    small = obs.ndim == 5 and obs.dtype in (jnp.uint8, jnp.bool_)
    return obs if small else obs.astype(config.stored)


@promoting
def pair(
    config: Config, kept: Reservoir | None, new: Unrolls, key: PRNGKeyArray
) -> tuple[Reservoir | None, Unrolls, Bool[Array, " env"]]:
    """Add the new unrolls to the reservoir; choose a new or an old unroll for each environment.

    Return also which of them are old.
    """
    if kept is None:
        return None, new, jnp.zeros(config.environments, bool)
    add_key, sample_key, choose_key = jax.random.split(key, 3)
    kept = reservoir.add(kept, new, add_key)
    old = reservoir.sample(kept, sample_key, config.environments)
    lots = jax.random.uniform(choose_key, (config.environments,))
    replayed = jnp.argsort(lots) < jnp.round(config.replay_fraction * lots.size)
    replayed &= kept.stored > 0  # unrolls with too many short episodes of pictures are not stored

    def choose(old, new):
        return jnp.where(replayed.reshape(-1, *[1] * (new.ndim - 1)), old, new)

    return kept, jax.tree.map(choose, old, new), replayed


Loss = Callable[..., tuple[Float[Array, ""], Measures]]
"""Function with the arguments of `vtrace.loss`."""


@promoting
def learn(
    config: Config, state: State, batch: Unrolls, replayed: Bool[Array, " env"], loss: Loss = loss
) -> tuple[State, tuple[Float[Array, ""], Measures]]:
    """Take one gradient step."""
    batch = batch._replace(steps=normalize.divided(state.rewards, batch.steps))
    (value, measures), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(
        state.net, config, batch, replayed
    )
    rule = optimizer(config, annealed(config, state.iteration))
    net, inner = descend(rule, state.net, state.optimizer, gradient)
    return dataclasses.replace(state, net=net, optimizer=inner), (value, measures)


@promoting
def iterate(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, tuple[Float[Array, ""], Measures, Bool[Array, ""]]]:
    """Act, pair, and learn, once."""
    act_key, pair_key, key = jax.random.split(state.key, 3)
    carries, new = act(config, env, params, state, act_key)
    kept, batch, replayed = pair(config, state.reservoir, new, pair_key)
    rewards = normalize.watch_rewards(state.rewards, new.steps, config.gamma)
    state = dataclasses.replace(state, reservoir=kept, rewards=rewards, carries=carries, key=key)
    state, (value, measures) = learn(config, state, batch, replayed)
    state = watch(state, lambda s: s.net, new.steps.obs)
    state = dataclasses.replace(state, iteration=advance(state.iteration))
    finite = jnp.all(jnp.isfinite(new.steps.reward)) & jnp.isfinite(value)
    return state, (value, measures, finite)


@promoting
def block(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, Metrics]:
    """Run `config.block` iterations, then evaluate the greedy policy, without learning.

    `learn` takes a gradient step: yours, or `partial(clear.learn, loss=yours)`.
    """
    step = partial(iterate, config, env, params, learn=learn)
    state, (value, measures, finite) = repeat(step, state, config.block)
    told = jax.tree.map(jnp.mean, measures)
    return end_block(
        config, env, params, state, greedy, loss=value, finite=finite, diagnostics=told
    )


train = training(check, init, block, actor_critic, learn)
