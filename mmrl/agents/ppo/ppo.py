"""PPO with a memory, and with separate behavior, proximal and current policies.

Schulman et al. 2017, with the decoupled objectives, PPO-EWMA and the artificial staleness of Hilton
et al. 2022. The rollout of each environment is one tape, which training replays from the memory
state at the start of the rollout.

    iteration:  act for `rollout` steps in `environments` environments, estimate advantages, then
                `epochs` times: shuffle, and take `minibatches` gradient steps, each of which also
                updates the average of θ.

Implementation details
- The memory state is carried from one rollout to the next. Rollouts are never split, so minibatches
  are sets of environments. Without a memory, minibatches are sets of single steps.
- Advantages and value targets use the values that the actor computed or, with V-trace, the values
  of the current network. At truncations and at the end of a rollout, both bootstrap from the
  current network's value of s'_t, which summarizes o_0, …, o_t and o'_t. Terminations do not
  bootstrap.
- Advantages are normalized over the entire iteration, not per minibatch.
- The value loss is (V - y)², without a factor ½ and without clipping.
- The losses use continuous actions as sampled, but the environment receives the nearest action in
  its space (`mmrl.rollout`). The scale of the policy is derived from the bounds of a finite box
  (`mmrl.nets.policy.unit`).

CartPole-v1 was trained with the learning rate and gradient norm of PureJaxRL, but with 64
environments: memory="none", block=61, blocks=1, environments=64, learning_rate=2.5e-4,
adam_eps=1e-5, value_weight=0.5. After these 61 iterations, 500 000 steps, the return of the greedy
policy with normalize_rewards=True was above 475 on 23 of 25 seeds, and 390 and 423 on the other
two. With normalize_rewards=False, the return was 389 to 452 on ten seeds.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from mmrl._dtypes import advance, with_promotion
from mmrl.agents import normalize
from mmrl.agents.checks import action_size, check_observation_space
from mmrl.agents.common import Make, Metrics, end_block, fresh, make_train, rate_at, watch
from mmrl.agents.minibatches import Rollout as Rollout
from mmrl.agents.minibatches import check_rows
from mmrl.agents.policies import actor_critic
from mmrl.agents.policies import mode as greedy
from mmrl.agents.ppo import learner
from mmrl.agents.ppo.diagnostics import Diagnostics as Diagnostics  # part of this module's API
from mmrl.agents.ppo.diagnostics import policy_noise, summarize
from mmrl.agents.ppo.learner import Learner, stochastic
from mmrl.agents.settings import Settings, choice, count, limit, positive, share, static, weight
from mmrl.monoid import LongMoments
from mmrl.rollout import Carry, collect

Flag = bool | Bool[Array, ""]
Outcome = tuple[Any, ...]
"""Outcome of an iteration: losses of its gradient steps, their `Measures`, and statistics."""
OBSERVES = ("begin_flag",)  # default inputs in addition to o_t


class Config(Settings):
    """Settings of PPO. Changing a size or a name recompiles; real-valued fields are traced.

    >>> Config(memory="gru", rollout=32, environments=8).block_steps  # steps per block
    2560
    """

    memory: str = static(default="lru")  # name of a memory (none: an MLP), or my_module:Mine
    # sizes of the memory by name, e.g. state_size 32
    memory_sizes: tuple[tuple[str, int], ...] = static(default=())
    width: int = count(64)  # number of features of the encoder, memory and head
    # auto: convolutions for images, otherwise dense layers; small, impala: always convolutions
    encoder: str = choice("auto", "dense", "small", "impala")
    shared: bool = static(default=False)  # one network for policy and value
    # objective of the policy; kl: exact divergence; kl_sampled: estimate from the sampled actions
    objective: str = choice("clip", "kl", "kl_sampled")
    # proximal policy, which limits the size of a step. behavior: the policy that acted, as in PPO;
    # decoupled: the policy at the start of the iteration; recent: like decoupled, but also used in
    # the importance weights, which is biased; ewma: the policy of an average of θ
    proximal: str = choice("behavior", "decoupled", "recent", "ewma")
    # advantage estimator; vtrace corrects for stale rollouts
    estimator: str = choice("gae", "vtrace")
    staleness: int = count(0, least=0)  # number of iterations by which learning is delayed
    optimizer: str = choice("adam", "sgd")  # optimizer of all gradient steps
    # normalize features; None: only features without bounds or with bounds beyond ±10
    normalize_observations: bool | None = static(default=None)
    normalize_rewards: bool = static(default=True)  # divide rewards by a running std. deviation
    normalize_advantages: bool = static(default=True)  # scale advantages to mean 0 and std. dev. 1
    environments: int = count(16)  # number of environments stepped in parallel
    rollout: int = count(128)  # T, steps per environment and iteration
    minibatches: int = count(4)  # minibatches per epoch
    epochs: int = count(4)  # E, passes through the batch, per iteration
    block: int = count(10)  # iterations per block; every block ends with an evaluation
    blocks: int = count(16)  # number of evaluations in a run
    episodes: int = count(32)  # episodes per evaluation
    noise_scale: bool = static(default=False)  # measure the policy gradient noise once per block

    learning_rate: float = positive(1e-3)  # learning rate
    anneal: float = share(1.0)  # fraction by which the learning rate falls linearly; 0: constant
    # blocks over which the learning rate decays; None: `blocks`, also after a run is extended
    horizon: float | None = limit(None)
    beta1: float = share(0.9, off=1.0)  # β₁ of Adam
    beta2: float = share(0.999, off=1.0)  # β₂ of Adam
    adam_eps: float = positive(1e-8)  # ε of Adam
    max_grad_norm: float = limit(0.5)  # maximum gradient norm; larger gradients are scaled down
    gamma: float = share(0.99)  # γ, per step
    lam: float = share(0.95)  # λ of the advantages
    clip: float = limit(0.2)  # ε, maximum deviation of π/π_proximal from 1
    kl_weight: float = weight(1.0)  # β, weight of KL[π_proximal, π]
    importance_max: float = limit(100.0, zero=True)  # maximum of π/π_behavior; 0: no limit
    # weight of the value loss; the policy and value gradients are clipped together, so a large
    # weight can shrink the policy gradient
    value_weight: float = weight(0.05)
    entropy_weight: float = weight(0.01)  # weight of the entropy of π
    # center of mass of the average, in gradient steps: β_prox = 1 - 1/(1 + center)
    prox_center: float = limit(8.0, zero=True)
    advantage_decay: float = share(0.0)  # decay per iteration of the moments of advantages
    reward_gamma: float = share(0.99)  # γ of the return whose standard deviation divides rewards
    reward_clip: float = limit(10.0)  # maximum magnitude of normalized rewards


class State(eqx.Module):
    """State of a run; pass it to `block` to continue the run."""

    learner: Learner  # network, optimizer and average
    advantages: normalize.Averages  # moments of the advantages
    rewards: normalize.RewardScale
    carries: Carry  # one carry per environment
    rollouts: PyTree  # ring of the last staleness + 1 rollouts; None without staleness
    key: PRNGKeyArray
    iteration: Int[Array, ""]

    @property
    def net(self) -> Any:
        """Network that acts and is evaluated."""
        return self.learner.net


def check(config: Config, env: Any, params: Any) -> None:
    """Raise `ValueError` for invalid settings; the message suggests a fix."""
    config.check_ranges()
    if config.noise_scale and config.minibatches < 2:
        raise ValueError(
            "`minibatches` must be at least 2 for `noise_scale`, which compares minibatches; got "
            f"{config.minibatches}."
        )
    action_size(env, params)
    check_observation_space(env, params)


@with_promotion
def init(
    config: Config, env: Any, params: Any, key: PRNGKeyArray, make: Make = actor_critic
) -> State:
    """Build the network with `make`, and return the initial state of a run."""
    check(config, env, params)
    net, carries, key = fresh(config, env, params, key, make, acts=True)
    check_rows(config, net)
    state = State(
        learner=learner.new(config, net),
        advantages=LongMoments().identity(),
        rewards=normalize.reward_scale(config.environments),
        carries=carries,
        rollouts=None,
        key=key,
        iteration=jnp.zeros((), jnp.int32),
    )
    if config.staleness == 0:
        return state
    example = jax.eval_shape(lambda: act(config, env, params, state, key)[1])
    ring = jax.tree.map(lambda x: jnp.zeros((config.staleness + 1, *x.shape), x.dtype), example)
    return eqx.tree_at(lambda s: s.rollouts, state, ring, is_leaf=lambda x: x is None)


def act(
    config: Config, env: Any, params: Any, state: State, key: PRNGKeyArray
) -> tuple[State, Rollout]:
    """Collect a rollout in every environment; return the new state and the rollout.

    Rewards are normalized according to the config.
    """
    before = state.carries.policy_state
    act = partial(collect, stochastic(state.net), env, params, steps=config.rollout)
    steps: Any
    carries, steps = jax.vmap(act)(state.carries, jax.random.split(key, config.environments))
    rewards = state.rewards
    if config.normalize_rewards:
        rewards = normalize.watch_rewards(rewards, steps, config.reward_gamma)
        steps = normalize.scale_rewards(rewards, steps, config.reward_clip)
    state = eqx.tree_at(lambda s: (s.carries, s.rewards), state, (carries, rewards))
    return state, Rollout(before, steps)


def delay(config: Config, state: State, rollout: Rollout) -> tuple[State, Rollout]:
    """Store a rollout; return the one from `staleness` iterations ago.

    The result contains zeros until enough rollouts have been stored.
    """
    if config.staleness == 0:
        return state, rollout
    size = config.staleness + 1
    new, old = state.iteration % size, (state.iteration % size + 1) % size
    ring = jax.tree.map(lambda ring, x: ring.at[new].set(x), state.rollouts, rollout)
    state = eqx.tree_at(lambda s: s.rollouts, state, ring)
    return state, jax.tree.map(lambda ring: ring[old], ring)


@with_promotion
def learn(
    config: Config,
    state: State,
    rollout: Rollout,
    key: PRNGKeyArray,
    measure: Flag | None = None,
    loss: learner.Loss = learner.loss,
) -> tuple[State, Outcome]:
    """Take all gradient steps of an iteration; return the state and the outcome.

    With `noise_scale`, the outcome includes the gradient noise unless `measure` is None. The noise
    is NaN if `measure` is False. `loss` is a function with the arguments of `learner.loss`.
    """
    state, batch, statistics = prepare(config, state, rollout, key, measure, loss)
    improve = partial(learner.improve, config, state.learner, batch, loss=loss)
    new_learner, outcome = improve(rate_at(config, state.iteration), config.epochs, key)
    return eqx.tree_at(lambda s: s.learner, state, new_learner), (*outcome, *statistics)


def prepare(
    config: Config,
    state: State,
    rollout: Rollout,
    key: PRNGKeyArray,
    measure: Flag | None,
    loss: learner.Loss,
) -> tuple[State, learner.Batch, tuple[Any, ...]]:
    """Return the state with updated moments of advantages, the batch, and the batch's statistics.

    `learner.prepare` defines the statistics. With `noise_scale`, they include the gradient noise.
    """
    moments, batch, scales = learner.prepare(config, state.net, state.advantages, rollout)
    noise = ()
    if config.noise_scale and measure is not None:
        noise_key = jax.random.fold_in(key, 0)
        noise = (policy_noise(config, state.learner, batch, noise_key, measure, loss),)
    return eqx.tree_at(lambda s: s.advantages, state, moments), batch, (scales, *noise)


@with_promotion
def iterate(
    config: Config,
    env: Any,
    params: Any,
    state: State,
    measure: Flag | None = None,
    learn: Callable = learn,
) -> tuple[State, Outcome]:
    """Run one iteration, with delayed rollouts; return the state and the outcome."""
    act_key, learn_key, key = jax.random.split(state.key, 3)
    state, rollout = act(config, env, params, dataclasses.replace(state, key=key), act_key)
    obs = rollout.steps.obs
    state, rollout = delay(config, state, rollout)
    after, outcome = learn(config, state, rollout, learn_key, measure)
    finite = jnp.all(jnp.isfinite(rollout.steps.reward)) & jnp.all(jnp.isfinite(outcome[0]))
    if config.staleness:  # do not learn until the ring is full
        full = state.iteration >= config.staleness
        after = jax.tree.map(
            lambda new, old: new if new is old else jnp.where(full, new, old), after, state
        )
        finite = finite | ~full
    after = watch(after, lambda s: (s.learner.net, s.learner.average), obs)
    iteration = advance(state.iteration, 1, config.staleness + 1)
    return dataclasses.replace(after, iteration=iteration), (*outcome, finite)


@with_promotion
def block(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, Metrics]:
    """Run `config.block` iterations, then evaluate the greedy policy.

    `learn` takes all gradient steps of an iteration. For a custom loss, pass `partial(ppo.learn,
    loss=custom)`.
    """
    state, outcome = jax.lax.scan(
        lambda s, last: iterate(config, env, params, s, last, learn), state, ends(config.block)
    )
    return evaluate(config, env, params, state, outcome)


def ends(length: int) -> Bool[Array, " length"]:
    """Return `length` flags, all False except for the last one."""
    return jnp.arange(length) == length - 1


def evaluate(
    config: Config, env: Any, params: Any, state: State, outcome: Any
) -> tuple[State, Metrics]:
    """Evaluate the greedy policy; return the state and the metrics of the block."""
    value, measures, *statistics, finite = outcome
    summary = summarize(measures, *statistics)
    return end_block(
        config, env, params, state, greedy, loss=value, finite=finite, diagnostics=summary
    )


train = make_train(check, init, block, actor_critic, learn)
