"""CLEAR: V-trace on new and replayed unrolls, with cloning on replayed unrolls.

Rolnick et al. 2019, based on the actor-critic of IMPALA (Espeholt et al. 2018). An unroll is a
rollout of fixed length from one environment. A reservoir of old unrolls is the only protection
against forgetting. The agent observes neither the current task nor the start of a new task. With
`replay_fraction` 0, the agent is a plain V-trace actor-critic.

    iteration:  every environment acts for `rollout` steps, and its unroll is offered to the
                reservoir. Then one stored unroll per environment is sampled. The batch contains
                *either* the new or the stored unroll of each environment. The agent takes one
                gradient step on this batch.

Implementation details
- The batch size does not depend on the fraction of replay. With a fraction of one half, half of the
  new unrolls are not trained on. The environments that replay are chosen at random in every
  iteration.
- New unrolls are added to the reservoir before it is sampled.
- Importance weights are relative to the behavior policy, whose logits are stored with every unroll.
  For new unrolls, the weights are 1 up to rounding.
- The cloning losses apply only to replayed unrolls. All losses are averaged over the complete
  batch, or all are summed, so `reduction` does not change their balance.
- A replayed unroll starts from the memory state of the actor, which is as old as the unroll.
- A truncated episode bootstraps from the value of its final observation, and the trace ends there.
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
from mmrl._dtypes import advance, with_promotion
from mmrl.agents import normalize
from mmrl.agents.checks import check_discrete, check_net
from mmrl.agents.clear.storage import cast_for_storage, check_storage_dtype
from mmrl.agents.clear.vtrace import Measures, loss, optimizer, stochastic
from mmrl.agents.common import (
    Make,
    Metrics,
    descend,
    end_block,
    make_train,
    rate_at,
    repeat,
    trainable,
    watch,
)
from mmrl.agents.policies import actor_critic
from mmrl.agents.policies import mode as greedy
from mmrl.agents.settings import Settings, choice, count, limit, positive, share, static, weight
from mmrl.replay import reservoir
from mmrl.replay.frames import shortest
from mmrl.replay.reservoir import Reservoir, Unrolls
from mmrl.rollout import Carry, collect, start

OBSERVES = ("begin_flag",)  # default inputs in addition to o_t
Tasks = Int[Array, " env"]


class Config(Settings):
    """Settings of CLEAR. Changing a size or a name recompiles; real-valued fields are traced."""

    memory: str = static(default="lru")  # name of a memory (none: an MLP), or my_module:Mine
    # sizes of the memory by name, e.g. state_size 32
    memory_sizes: tuple[tuple[str, int], ...] = static(default=())
    width: int = count(64)  # number of features of the encoder, memory and head
    # auto: convolutions for images, otherwise dense layers; small, impala: always convolutions
    encoder: str = choice("auto", "dense", "small", "impala")
    shared: bool = static(default=False)  # one network for policy and value
    optimizer: str = choice("adam", "rmsprop")  # optimizer of all gradient steps
    reduction: str = choice("mean", "sum")  # reduction of the losses over time and environments
    # normalize features; None: only features without bounds or with bounds beyond ±10
    normalize_observations: bool | None = static(default=None)
    normalize_rewards: bool = static(default=True)  # scale the rewards in losses; clip to ±10
    environments: int = count(8)  # N, number of environments stepped in parallel
    rollout: int = count(64)  # U, steps per unroll; gradients flow through all of them
    capacity: int = count(51_200, least=0)  # size of the reservoir, in steps; 0: no reservoir
    # dtype of stored observations; uint8 takes a quarter of the memory of float32
    storage_dtype: str = choice("float32", "float16", "uint8", "int8")
    block: int = count(50)  # iterations per block; every block ends with an evaluation
    blocks: int = count(48)  # number of evaluations in a run, or in a stage of a cycle
    episodes: int = count(32)  # episodes per evaluation and task

    # fraction of a batch that is replayed, rounded at random to whole unrolls; 0: plain V-trace
    replay_fraction: float = share(0.5)
    policy_cloning: float = weight(0.1)  # weight of KL[μ ‖ π]
    value_cloning: float = weight(0.05)  # weight of (V - V_then)²
    value_weight: float = weight(0.05)  # weight of the value loss, as in `ppo`
    entropy_weight: float = weight(0.01)  # weight of the entropy of π
    # ρ̄, maximum importance weight; determines which policy's V is learned
    rho_max: float = limit(1.0)
    c_max: float = limit(1.0, zero=True)  # c̄, maximum trace weight; limits the reach of traces
    gamma: float = share(0.97)  # γ, per step
    learning_rate: float = positive(2e-3)  # learning rate of the optimizer
    anneal: float = share(1.0)  # fraction by which the learning rate falls linearly; 0: constant
    # blocks over which the learning rate decays; None: `blocks`, also after a run is extended
    horizon: float | None = limit(None)
    beta1: float = share(0.9, off=1.0)  # β₁ of Adam
    beta2: float = share(0.999, off=1.0)  # β₂ of Adam
    adam_eps: float = positive(1e-8)  # ε of Adam
    rms_decay: float = share(0.99)  # decay of RMSProp
    rms_eps: float = positive(0.1)  # ε of RMSProp, added inside the square root
    max_grad_norm: float = limit(1.0)  # maximum gradient norm; larger gradients are scaled down


class State(eqx.Module):
    """State of a run; pass it to `block` to continue the run."""

    net: Any  # an `ActorCritic`, or another network with the same methods
    optimizer: PyTree
    reservoir: Reservoir | None
    rewards: normalize.RewardScale | None  # running statistics of the rewards
    carries: Carry  # one carry per environment
    tasks: Tasks | None  # task of each environment; networks do not observe it
    key: PRNGKeyArray
    iteration: Int[Array, ""]

    @property
    def past_net(self) -> Any:
        """Network that plays earlier tasks; CLEAR has only one network."""
        return self.net


@with_promotion
def check(config: Config, env: Any, params: Any) -> None:
    """Raise `ValueError` for invalid settings; the message suggests a fix."""
    config.check_ranges()
    least = config.environments * config.rollout
    if 0 < config.capacity < least:
        raise ValueError(
            f"`capacity` must be 0, or at least {least} steps (one unroll per environment); got "
            f"{config.capacity}. Set capacity={least}."
        )
    replays = config.replay_fraction
    if config.capacity == 0 and isinstance(replays, int | float) and replays > 0:
        raise ValueError(
            f"`replay_fraction` must be 0 without a reservoir; got {replays}. Set `capacity` to a "
            "positive number."
        )
    check_discrete(env, params)
    if config.storage_dtype != "float32":
        check_storage_dtype(config.storage_dtype, env, params)


@with_promotion
def init(
    config: Config,
    env: Any,
    params: Any,
    key: PRNGKeyArray,
    make: Make = actor_critic,
    tasks: Tasks | None = None,
) -> State:
    """Build the network with `make`, and return the initial state of a run.

    With `tasks`, environment i plays task tasks[i] of the family `env`, selected by the field
    `task` of its parameters.
    """
    check(config, env, params)
    net_key, env_key, key = jax.random.split(_random.one_key(key), 3)
    net = check_net(make(config, env, params, net_key), env, params, acts=True)
    carries = _begin(config, env, params, net, tasks, env_key)
    (net,) = watch((net,), lambda s: s[0], carries.obs)
    state = State(
        net=net,
        optimizer=optimizer(config, 0.0).init(trainable(net)),
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


@with_promotion
def enter(config: Config, env: Any, params: Any, state: State, tasks: Tasks | None = None) -> State:
    """Reset all environments to new `tasks`; the rest of the state is unchanged."""
    env_key, key = jax.random.split(state.key)
    carries = _begin(config, env, params, state.net, tasks, env_key)
    return dataclasses.replace(state, carries=carries, tasks=tasks, key=key)


def leave(config: Config, env: Any, params: Any, state: State) -> State:
    """Return the state unchanged, because CLEAR does nothing at the end of a task."""
    return state


def of_task(params: Any, task: Any) -> Any:
    """Return the parameters of an environment family with the given `task`.

    If `task` is None, return the parameters unchanged.
    """
    return params if task is None else dataclasses.replace(params, task=task)


def _begin(config, env, params, net, tasks, key) -> Carry:
    def one(task, key):
        return start(env, of_task(params, task), net.init(), key)

    return jax.vmap(one)(tasks, jax.random.split(key, config.environments))


@with_promotion
def act(
    config: Config, env: Any, params: Any, state: State, key: PRNGKeyArray
) -> tuple[Carry, Unrolls]:
    """Collect an unroll from every environment, each in its own task."""

    def one(carry, task, key):
        here = of_task(params, task)
        return collect(stochastic(state.net), env, here, carry, key, config.rollout)

    keys = jax.random.split(key, config.environments)
    carries, steps = jax.vmap(one)(state.carries, state.tasks, keys)
    obs, next_obs = (cast_for_storage(config.storage_dtype, x) for x in (steps.obs, steps.next_obs))
    steps = dataclasses.replace(steps, obs=obs, next_obs=next_obs)
    return carries, Unrolls(state.carries.policy_state, steps)


@with_promotion
def pair(
    config: Config, storage: Reservoir | None, new: Unrolls, key: PRNGKeyArray
) -> tuple[Reservoir | None, Unrolls, Bool[Array, " env"]]:
    """Add new unrolls to the reservoir, and choose a new or an old unroll for each environment.

    Returns the updated reservoir, one unroll per environment, and flags that mark old unrolls.
    """
    if storage is None:
        return None, new, jnp.zeros(config.environments, bool)
    add_key, sample_key, choose_key = jax.random.split(key, 3)
    storage = reservoir.add(storage, new, add_key)
    old = reservoir.sample(storage, sample_key, config.environments)
    draws = jax.random.uniform(choose_key, (config.environments,))
    # A fractional number of unrolls is rounded at random, so that the mean is right.
    rounding = jax.random.uniform(jax.random.fold_in(choose_key, 0))
    replayed = jnp.argsort(draws) + rounding < config.replay_fraction * draws.size
    # A worker's part of the reservoir can be empty, because unrolls of images that contain many
    # short episodes are discarded.
    replayed &= storage.counts > 0

    def choose(old, new):
        return jnp.where(replayed.reshape(-1, *[1] * (new.ndim - 1)), old, new)

    return storage, jax.tree.map(choose, old, new), replayed


Loss = Callable[..., tuple[Float[Array, ""], Measures]]
"""Function with the signature of `vtrace.loss`."""


@with_promotion
def learn(
    config: Config, state: State, batch: Unrolls, replayed: Bool[Array, " env"], loss: Loss = loss
) -> tuple[State, tuple[Float[Array, ""], Measures]]:
    """Take one gradient step; return the state, the loss, and its measures."""
    batch = batch._replace(steps=normalize.scale_rewards(state.rewards, batch.steps))
    (value, measures), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(
        state.net, config, batch, replayed
    )
    rule = optimizer(config, rate_at(config, state.iteration))
    net, inner = descend(rule, state.net, state.optimizer, gradient)
    return dataclasses.replace(state, net=net, optimizer=inner), (value, measures)


@with_promotion
def iterate(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, tuple[Float[Array, ""], Measures, Bool[Array, ""]]]:
    """Run one iteration of acting, replay and learning; return the state and the outcome."""
    act_key, pair_key, key = jax.random.split(state.key, 3)
    carries, new = act(config, env, params, state, act_key)
    storage, batch, replayed = pair(config, state.reservoir, new, pair_key)
    rewards = normalize.watch_rewards(state.rewards, new.steps, config.gamma)
    state = dataclasses.replace(state, reservoir=storage, rewards=rewards, carries=carries, key=key)
    state, (value, measures) = learn(config, state, batch, replayed)
    state = watch(state, lambda s: s.net, new.steps.obs)
    state = dataclasses.replace(state, iteration=advance(state.iteration))
    finite = jnp.all(jnp.isfinite(new.steps.reward)) & jnp.isfinite(value)
    return state, (value, measures, finite)


@with_promotion
def block(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, Metrics]:
    """Run `config.block` iterations, then evaluate the greedy policy without learning.

    `learn` takes one gradient step. For a custom loss, pass `partial(clear.learn, loss=custom)`.
    """
    step = partial(iterate, config, env, params, learn=learn)
    state, (value, measures, finite) = repeat(step, state, config.block)
    means = jax.tree.map(jnp.mean, measures)
    return end_block(
        config, env, params, state, greedy, loss=value, finite=finite, diagnostics=means
    )


train = make_train(check, init, block, actor_critic, learn)
