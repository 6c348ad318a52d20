"""PPO with a memory, and its three policies: the behavior, the proximal and the current policy.

Schulman et al. 2017, with the decoupled objectives, PPO-EWMA and the artificial staleness of Hilton
et al. 2022. On-policy learning is tape-based by nature: each environment's rollout is one tape,
replayed from the memory's state where it began.

    iteration:  act for `rollout` steps in `environments` environments, estimate advantages, then
                `epochs` times: shuffle, `minibatches` gradient steps, each moves the average of θ.

Implementation details
- A memory's state is carried from rollout to rollout. Its tapes are replayed whole, so minibatches
  are sets of environments; without a memory they are sets of single steps, tapes of length one.
- Advantages and value targets use the values that the actor had (with V-trace, current ones), but
  bootstrap (at a truncation and at a rollout's end) with current ones: s'_t has seen o_0, …, o_t
  and o'_t. Only a termination has no bootstrap.
- Advantages are normalized over the whole iteration, not per minibatch.
- The value loss is (V - y)², without a factor ½ and without a clip.
- The losses use continuous actions as sampled; the environment receives the nearest one in its
  space (`mmrl.rollout`). A finite box sets the unit of the policy (`mmrl.nets.policy.unit`).

CartPole-v1 with rates and norms of PureJaxRL, but 64 environments: memory="none", block=61,
blocks=1, environments=64, learning_rate=2.5e-4, adam_eps=1e-5, value_weight=0.5. After these 61
iterations, 500 000 steps, the greedy policy's return with normalize_rewards=True was above 475 on
23 of 25 seeds, 390 and 423 on the others; without, it was 389 to 452 on ten.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from mmrl._dtypes import advance, promoting
from mmrl.agents import normalize
from mmrl.agents.checks import action_size, check_shown
from mmrl.agents.common import Make, Metrics, annealed, end_block, fresh, training, watch
from mmrl.agents.policies import actor_critic
from mmrl.agents.policies import mode as greedy
from mmrl.agents.ppo import learner
from mmrl.agents.ppo.diagnostics import Diagnostics as Diagnostics  # for callers
from mmrl.agents.ppo.diagnostics import policy_noise, summarize
from mmrl.agents.ppo.learner import Learner, Rollout, stochastic
from mmrl.agents.settings import Settings, choice, count, limit, positive, share, static, weight
from mmrl.monoid import LongMoments
from mmrl.rollout import Carry, collect

Flag = bool | Bool[Array, ""]
Told = tuple[Any, ...]
"""Losses of an iteration's gradient steps, their `Measures`, and other measurements."""
OBSERVES = ("begin_flag",)  # in addition to o_t, by default


class Config(Settings):
    """Settings of PPO. Sizes and names are static; other fields are traced.

    `mmrl.agents.presets` has the settings of the paper.
    """

    memory: str = static(default="lru")  # name in `mmrl.memory`; none: an MLP; or my_module:Mine
    # pairs of a size of this memory and its value, e.g. state_size 32
    memory_sizes: tuple[tuple[str, int], ...] = static(default=())
    width: int = count(64)  # features between encoder, memory and head
    # auto: convolutions for pictures, else dense; small, impala: stacks of convolutions
    encoder: str = choice("auto", "dense", "small", "impala")
    shared: bool = static(default=False)  # one network for policy and value
    # objective of the policy; kl is exact, kl_sampled is the estimate of the paper's code
    objective: str = choice("clip", "kl", "kl_sampled")
    # Policy that limits the step. behavior: the one that acted, as in PPO; decoupled: θ as the
    # iteration begins; recent: the same, also for the importance weights, which is biased; ewma: an
    # average of θ
    proximal: str = choice("behavior", "decoupled", "recent", "ewma")
    estimator: str = choice("gae", "vtrace")  # of advantages; vtrace corrects stale rollouts
    staleness: int = count(0, least=0)  # iterations that rollouts wait before learning
    optimizer: str = choice("adam", "sgd")  # optimizer of all gradient steps
    normalize_observations: bool | None = static(default=None)  # None: only features beyond ±10
    normalize_rewards: bool = static(default=True)  # divide rewards by a running deviation
    normalize_advantages: bool = static(default=True)  # to mean 0 and deviation 1
    environments: int = count(16)  # environments that act in parallel
    rollout: int = count(128)  # T, steps per environment and iteration
    minibatches: int = count(4)  # minibatches per epoch
    epochs: int = count(4)  # E, passes through a batch
    block: int = count(10)  # iterations between two evaluations
    blocks: int = count(16)  # evaluations in a whole run
    episodes: int = count(32)  # episodes per evaluation
    noise_scale: bool = static(default=False)  # measure it for the policy gradient, once per block

    learning_rate: float = positive(1e-3)  # learning rate of the optimizer
    anneal: float = share(1.0)  # share of the learning rate lost by the horizon, linearly
    # blocks to the horizon; None: the whole run. A prolonged run takes up its new, longer line
    horizon: float | None = limit(None)
    beta1: float = share(0.9, off=1.0)  # β₁ of Adam
    beta2: float = share(0.999, off=1.0)  # β₂ of Adam
    adam_eps: float = positive(1e-8)  # ε of Adam
    max_grad_norm: float = limit(0.5)  # largest norm of a gradient; longer ones are scaled down
    gamma: float = share(0.99)  # γ, per step
    lam: float = share(0.95)  # λ of the advantages
    clip: float = limit(0.2)  # ε, of π/π_proximal
    kl_weight: float = weight(1.0)  # β, of KL[π_proximal, π]
    importance_max: float = limit(100.0, zero=True)  # largest π/π_behavior; 0: no limit
    # weight of the value loss. Both gradients are scaled down together, so a larger weight lets the
    # values crowd out the policy
    value_weight: float = weight(0.05)
    entropy_weight: float = weight(0.01)  # weight of the entropy of π
    # age of the average, in gradient steps: β_prox = 1 - 1/(1 + center)
    prox_center: float = limit(8.0, zero=True)
    advantage_decay: float = share(0.0)  # decay of the advantages' moments, per iteration
    reward_gamma: float = share(0.99)  # discount of the sum whose deviation scales the rewards
    reward_clip: float = limit(10.0)  # normalized rewards are clipped to ± this


class State(eqx.Module):
    """State of a run: pass it to `block` to continue."""

    learner: Learner  # network, optimizer and average
    advantages: normalize.Averages  # moments of the advantages
    rewards: normalize.RewardScale
    carries: Carry  # one per environment
    waiting: PyTree  # the last staleness + 1 rollouts, in a ring
    key: PRNGKeyArray
    iteration: Int[Array, ""]

    @property
    def net(self) -> Any:
        """Network that acts and is evaluated."""
        return self.learner.net


def check(config: Config, env: Any, params: Any) -> None:
    """Raise `ValueError` for a setting that cannot work; the message names it and the remedy."""
    config.check_ranges()
    if config.noise_scale and config.minibatches < 2:
        raise ValueError("`minibatches` must be at least 2 for `noise_scale`, which compares them.")
    action_size(env, params)
    check_shown(env, params)


@promoting
def init(
    config: Config, env: Any, params: Any, key: PRNGKeyArray, make: Make = actor_critic
) -> State:
    """Return a fresh network and environments. `make` builds π and V, by default the config's."""
    check(config, env, params)
    net, carries, key = fresh(config, env, params, key, make, acts=True)
    rows = learner.rows(config, net)
    if rows % config.minibatches:
        raise ValueError(
            f"`minibatches` must divide the rows of an iteration, {rows}; got {config.minibatches}."
            " Without a memory a row is a step, else a rollout, which is never cut."
        )
    state = State(
        learner=learner.new(config, net),
        advantages=LongMoments().identity(),
        rewards=normalize.reward_scale(config.environments),
        carries=carries,
        waiting=None,
        key=key,
        iteration=jnp.zeros((), jnp.int32),
    )
    if config.staleness == 0:
        return state
    example = jax.eval_shape(lambda: act(config, env, params, state, key)[1])
    ring = jax.tree.map(lambda x: jnp.zeros((config.staleness + 1, *x.shape), x.dtype), example)
    return eqx.tree_at(lambda s: s.waiting, state, ring, is_leaf=lambda x: x is None)


def act(
    config: Config, env: Any, params: Any, state: State, key: PRNGKeyArray
) -> tuple[State, Rollout]:
    """Collect a rollout in every environment, with normalized rewards if the config sets them."""
    before = state.carries.policy_state
    act = partial(collect, stochastic(state.net), env, params, steps=config.rollout)
    steps: Any
    carries, steps = jax.vmap(act)(state.carries, jax.random.split(key, config.environments))
    rewards = state.rewards
    if config.normalize_rewards:
        rewards = normalize.watch_rewards(rewards, steps, config.reward_gamma)
        steps = normalize.divided(rewards, steps, config.reward_clip)
    state = eqx.tree_at(lambda s: (s.carries, s.rewards), state, (carries, rewards))
    return state, Rollout(before, steps)


def delay(config: Config, state: State, rollout: Rollout) -> tuple[State, Rollout]:
    """Store a rollout and return the one of `staleness` iterations ago; zeros at first."""
    if config.staleness == 0:
        return state, rollout
    size = config.staleness + 1
    new, old = state.iteration % size, (state.iteration % size + 1) % size
    ring = jax.tree.map(lambda ring, x: ring.at[new].set(x), state.waiting, rollout)
    state = eqx.tree_at(lambda s: s.waiting, state, ring)
    return state, jax.tree.map(lambda ring: ring[old], ring)


@promoting
def learn(
    config: Config,
    state: State,
    rollout: Rollout,
    key: PRNGKeyArray,
    measure: Flag | None = None,
    loss: learner.Loss = learner.loss,
) -> tuple[State, Told]:
    """Take all gradient steps of an iteration; `measure` adds the gradient noise.

    `loss` has the arguments of `learner.loss`.
    """
    state, batch, told = prepare(config, state, rollout, key, measure, loss)
    improve = partial(learner.improve, config, state.learner, batch, loss=loss)
    learned, outcome = improve(annealed(config, state.iteration), config.epochs, key)
    return eqx.tree_at(lambda s: s.learner, state, learned), (*outcome, *told)


def prepare(
    config: Config,
    state: State,
    rollout: Rollout,
    key: PRNGKeyArray,
    measure: Flag | None,
    loss: learner.Loss,
) -> tuple[State, learner.Batch, tuple[Any, ...]]:
    """Return the state with new moments of advantages, the batch, and its scales and noise."""
    moments, batch, scales = learner.prepare(config, state.net, state.advantages, rollout)
    noise = ()
    if config.noise_scale and measure is not None:
        noise_key = jax.random.fold_in(key, 0)
        noise = (policy_noise(config, state.learner, batch, noise_key, measure, loss),)
    return eqx.tree_at(lambda s: s.advantages, state, moments), batch, (scales, *noise)


@promoting
def iterate(
    config: Config,
    env: Any,
    params: Any,
    state: State,
    measure: Flag | None = None,
    learn: Callable = learn,
) -> tuple[State, Told]:
    """Act, delay, and learn, once."""
    act_key, learn_key, key = jax.random.split(state.key, 3)
    state, rollout = act(config, env, params, dataclasses.replace(state, key=key), act_key)
    obs = rollout.steps.obs
    state, rollout = delay(config, state, rollout)
    learned, outcome = learn(config, state, rollout, learn_key, measure)
    finite = jnp.all(jnp.isfinite(rollout.steps.reward)) & jnp.all(jnp.isfinite(outcome[0]))
    if config.staleness:  # no learning until the ring is full
        full = state.iteration >= config.staleness
        learned = jax.tree.map(
            lambda new, old: new if new is old else jnp.where(full, new, old), learned, state
        )
        finite = finite | ~full
    learned = watch(learned, lambda s: (s.learner.net, s.learner.average), obs)
    iteration = advance(state.iteration, 1, config.staleness + 1)
    return dataclasses.replace(learned, iteration=iteration), (*outcome, finite)


@promoting
def block(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, Metrics]:
    """Run `config.block` iterations, then evaluate the greedy policy.

    `learn` takes an iteration's gradient steps: yours, or `partial(ppo.learn, loss=yours)`.
    """
    state, outcome = jax.lax.scan(
        lambda s, last: iterate(config, env, params, s, last, learn), state, ends(config.block)
    )
    return evaluate(config, env, params, state, outcome)


def ends(length: int) -> Bool[Array, " length"]:
    """Return False, …, False, True."""
    return jnp.arange(length) == length - 1


def evaluate(
    config: Config, env: Any, params: Any, state: State, outcome: Any
) -> tuple[State, Metrics]:
    """Evaluate the greedy policy, and return a block's means."""
    value, measures, *told, finite = outcome
    told = summarize(measures, *told)
    return end_block(
        config, env, params, state, greedy, loss=value, finite=finite, diagnostics=told
    )


train = training(check, init, block, actor_critic, learn)
