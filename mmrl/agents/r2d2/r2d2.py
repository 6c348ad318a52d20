"""R2D2: recurrent replay distributed DQN, with a batch of environments as its actors.

Kapturowski et al. 2019. R2D2 extends DQN on segments. Each sequence is stored with the actor's
recurrent state, which a burn-in prefix refreshes with the current parameters. Sequences may overlap
and are sampled by priority. Targets are n-step double Q. Defaults differ from the paper (see the
preset "paper"): n = 20, no overlap, no rescaling h, and normalized rewards, clipped to ±10.

    iteration:  act for `rollout` steps in `environments` environments, each with its own ε and with
                older parameters, and store sequences with priorities from the actors. Then repeat
                `updates` times: sample `batch` sequences, take a gradient step, update priorities.

Implementation details
- h⁻¹(Q⁻) is added to the rewards, and h is applied once to the sum: y = h(Σ γ^k r + γ^n h⁻¹(Q⁻)).
  Both networks unroll the same steps from the same stored state, each with its own burn-in.
- A window (burn-in, sequence, n - 1 more steps) includes the observation after its last step, so
  Q(s_{t+1}) is the next output of the same unroll. Truncations bootstrap from this observation.
- The last n - 1 steps of a window are used only for targets, so every target has n rewards unless
  the episode ends earlier. All trained steps enter the loss, including terminal ones.
- The priority of a step depends on the next n steps, so rollouts are stored n steps late. After a
  truncation, the actor bootstraps from its last value, but the learner uses the exact target.
- The loss is Huber's, as in `dqn`. After rescaling by h, most errors are in its quadratic range.
- The previous action and reward are part of the observation (`mmrl.envs.wrappers`).
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from mmrl import losses
from mmrl._devices import split_rows
from mmrl._dtypes import advance, with_promotion
from mmrl.agents import normalize
from mmrl.agents.checks import check_discrete
from mmrl.agents.common import (
    Make,
    Metrics,
    Outcome,
    adam,
    constant,
    descend,
    end_block,
    fresh,
    greedy,
    make_train,
    q_net,
    rate_at,
    repeat,
    scan_learning,
    trainable,
    watch,
)
from mmrl.agents.r2d2.actors import act, bare, first_errors, targets
from mmrl.agents.settings import Settings, choice, count, limit, positive, share, static, weight
from mmrl.replay import sequences
from mmrl.replay.frames import shortest
from mmrl.rollout import Carry, Transition

# Default inputs in addition to o_t. The paper has no begin flag.
OBSERVES = ("previous_action", "previous_reward", "begin_flag")


class Config(Settings):
    """Settings of R2D2, sized for a laptop. Changing a size or a name recompiles."""

    memory: str = static(default="lstm")  # name of a memory in `mmrl.memory`, or my_module:Mine
    # sizes of the memory by name, e.g. state_size 32
    memory_sizes: tuple[tuple[str, int], ...] = static(default=())
    width: int = count(64)  # number of features of the encoder, memory and head
    # auto: convolutions for images, otherwise dense layers; small, impala: always convolutions
    encoder: str = choice("auto", "dense", "small", "impala")
    dueling: bool = static(default=True)  # dueling head Q = V + A - mean A, Wang et al. 2016
    start: str = choice("stored", "zero")  # initial memory state of a window: the actor's, or zeros
    length: int = count(80)  # m, number of trained steps in a sequence
    overlap: int = count(0, least=0)  # number of steps shared by consecutive sequences
    burn_in: int = count(40, least=0)  # l, number of burn-in steps before a sequence
    n_step: int = count(20)  # n, number of rewards in each target
    # normalize features; None: only features without bounds or with bounds beyond ±10
    normalize_observations: bool | None = static(default=None)
    normalize_rewards: bool = static(default=True)  # scale the rewards in targets; clip to ±10
    rescale: bool = static(default=False)  # learn h(return) instead of the return
    batch: int = count(16)  # sequences per gradient step
    environments: int = count(16)  # number of environments stepped in parallel
    rollout: int = count(16)  # steps per environment and iteration
    updates: int = count(4)  # gradient steps per iteration
    capacity: int = count(64_000)  # size of the storage in steps, over all environments
    block: int = count(10)  # iterations per block; every block ends with an evaluation
    blocks: int = count(64)  # number of evaluations in a run
    episodes: int = count(32)  # episodes per evaluation
    target_period: int = count(50)  # gradient steps between updates θ⁻ ← θ of the target
    actor_period: int = count(10)  # gradient steps between updates of the actors

    learning_rate: float = positive(3e-3)  # learning rate of Adam
    adam_eps: float = positive(1e-5)  # ε of Adam
    anneal: float = share(1.0)  # fraction by which the learning rate falls linearly; 0: constant
    # blocks over which the learning rate decays; None: `blocks`, also after a run is extended
    horizon: float | None = limit(None)
    gamma: float = share(0.97)  # γ, per step
    # base in ε_i = base^(1 + exponent i / (N - 1)), Horgan et al. 2018, Eq. 1
    epsilon_base: float = share(0.4)
    epsilon_exponent: float = weight(7.0)  # exponent in ε_i, see `epsilon_base`
    alpha: float = share(0.9)  # α in the sampling probabilities P_i ∝ p_i^α
    eta: float = share(0.9)  # η in the priorities p = η max|δ| + (1 - η) mean|δ|
    beta_start: float = share(0.6)  # initial β of the importance weights
    beta_end: float = share(1.0)  # final β
    beta_decay: float = positive(160.0)  # iterations over which β changes linearly
    rescale_eps: float = positive(1e-3)  # ε of h, see `mmrl.returns.rescale`
    reward_scale: float = positive(1.0)  # factor applied to rewards in targets
    max_grad_norm: float = limit(40.0)  # maximum gradient norm; larger gradients are scaled down


class State(eqx.Module):
    """State of a run; pass it to `block` to continue the run."""

    net: Any  # a `Net`, or another network with the same methods
    target: Any
    actor: Any  # network that acts, an older copy of `net`
    optimizer: PyTree
    carries: Carry  # one carry per environment
    tail: Transition  # last n steps of each environment, not yet stored
    sequences: sequences.Sequences
    rewards: normalize.RewardScale | None  # running statistics of the rewards
    key: PRNGKeyArray
    iteration: Int[Array, ""]
    gradient_steps: Int[Array, ""]  # number of gradient steps so far


def check(config: Config, env: Any, params: Any) -> None:
    """Raise `ValueError` for invalid settings; the message suggests a fix."""
    config.check_ranges()
    zero = jnp.zeros(())
    longest = jax.eval_shape(lambda: _storage(config, params, zero, zero)).longest
    if config.rollout > longest:
        raise ValueError(
            f"`rollout` must be at most {longest} steps, so that it does not overwrite the "
            f"sequences that it completes; got {config.rollout}. Increase `capacity`."
        )
    check_discrete(env, params)


def _storage(config: Config, params: Any, example: PyTree, state: PyTree) -> sequences.Sequences:
    return sequences.init(
        example,
        state,
        config.capacity,
        workers=config.environments,
        length=config.length,
        overlap=config.overlap,
        burn_in=config.burn_in,
        tail=config.n_step - 1,
        alpha=config.alpha,
        eta=config.eta,
        shortest=shortest(params),
    )


@with_promotion
def init(config: Config, env: Any, params: Any, key: PRNGKeyArray, make: Make = q_net) -> State:
    """Build the Q-network with `make`, and return the initial state of a run.

    Each environment has already made `n_step` steps, which are stored later.
    """
    check(config, env, params)
    net, carries, act_key, key = fresh(config, env, params, key, make, keys=2, lookahead=False)
    carries, tail = act(config, env, params, net, carries, act_key, config.n_step)
    example = jax.tree.map(lambda x: jnp.zeros(x.shape[2:], x.dtype), tail)
    return State(
        net=net,
        target=net,
        actor=net,
        optimizer=adam(config, 0.0, config.adam_eps).init(trainable(net)),
        carries=carries,
        tail=tail,
        sequences=_storage(config, params, bare(example), net.init()),
        rewards=normalize.rewards_of(config),
        key=key,
        iteration=jnp.zeros((), jnp.int32),
        gradient_steps=jnp.zeros((), jnp.int32),
    )


def act_and_store(
    config: Config, env: Any, params: Any, state: State, key: PRNGKeyArray
) -> tuple[State, Transition]:
    """Collect a rollout in every environment; store all steps except the last n."""
    carries, rollout = act(config, env, params, state.actor, state.carries, key, config.rollout)
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), state.tail, rollout)
    steps = jax.tree.map(lambda x: x[:, : config.rollout], both)
    tail = jax.tree.map(lambda x: x[:, config.rollout :], both)
    scale = normalize.watch_rewards(state.rewards, rollout, config.gamma)
    scaled = normalize.scale_rewards(scale, both)
    errors = jax.vmap(partial(first_errors, config))(scaled)[:, : config.rollout]
    storage = sequences.add(state.sequences, bare(steps), steps.extras.state, errors)
    state = dataclasses.replace(state, carries=carries, tail=tail, sequences=storage, rewards=scale)
    return state, rollout


def unroll(
    config: Config, net: Any, window: sequences.Window
) -> tuple[Transition, Float[Array, "sequence time_and_one action"]]:
    """Return the steps after the burn-in, and Q(s, ·) at each step and after the last step.

    No gradients flow through the burn-in or the stored state.
    """
    steps, mask = jax.tree.map(lambda x: x[:, config.burn_in :], (window.steps, window.mask))

    def one(state, prefix, prefix_begin, steps, mask, begin):
        state = state if config.start == "stored" else net.init()
        if config.burn_in:
            state, _ = constant(net)(state, prefix, prefix_begin)
        obs = jax.tree.map(partial(after, mask), steps.obs, steps.next_obs)
        _, q = net(jax.lax.stop_gradient(state), obs, jnp.append(begin, False))
        return q

    def after(mask, obs, next_obs):
        # o'_t equals o_{t+1}, except at the last real step, which has no o_{t+1}.
        real = mask[1:].reshape(-1, *[1] * (obs.ndim - 1))
        return jnp.concatenate([obs[:1], jnp.where(real, obs[1:], next_obs[:-1]), next_obs[-1:]])

    at = config.burn_in
    prefix, begin = jax.tree.map(lambda x: x[:, :at], (window.steps.obs, window.begin))
    return steps, jax.vmap(one)(window.state, prefix, begin, steps, mask, window.begin[:, at:])


@with_promotion
def loss(
    net: Any, target: Any, sample: sequences.Sample, config: Config
) -> tuple[Float[Array, ""], Float[Array, "sequence time"]]:
    """Return the mean of w_i huber(y_t - Q(s_t, a_t)) over the trained steps, and the TD errors.

    y_t = h(Σ_k γ^k r_{t+k} + γ^n h⁻¹(Q⁻(s_{t+n}, argmax_a Q(s_{t+n}, a)))).
    """
    steps, q = unroll(config, net, sample)
    _, q_target = unroll(config, target, sample)

    def errors(steps, q, q_target):
        next_q = losses.select_values(q_target[1:], jnp.argmax(q[1:], axis=-1))
        y = jax.lax.stop_gradient(targets(config, steps, next_q))
        return y - losses.select_values(q[:-1], steps.action)

    td = jax.vmap(errors)(steps, q, q_target)
    in_loss = sample.loss_mask[:, config.burn_in :]
    return losses.td_loss(td, in_loss, sample.weights[:, None]), jnp.where(in_loss, td, 0)


@with_promotion
def beta(config: Config, iteration: Int[Array, ""]) -> Float[Array, ""]:
    """Return β, which changes linearly over `beta_decay` iterations and is then constant."""
    progress = jnp.minimum(iteration / config.beta_decay, 1)
    return config.beta_start + progress * (config.beta_end - config.beta_start)


@with_promotion
def learn(
    config: Config, state: State, key: PRNGKeyArray, loss: Callable[..., tuple[Any, Any]] = loss
) -> tuple[State, tuple[Float[Array, ""], Float[Array, ""]]]:
    """Take one gradient step; update the priorities and, when due, the target and the actors."""
    batch = sequences.sample(state.sequences, key, config.batch, beta(config, state.iteration))
    batch = split_rows(batch, "`batch`")
    batch = dataclasses.replace(batch, steps=normalize.scale_rewards(state.rewards, batch.steps))
    value_and_grad = eqx.filter_value_and_grad(loss, has_aux=True)
    (value, td), gradient = value_and_grad(state.net, state.target, batch, config)
    rule = adam(config, rate_at(config, state.iteration), config.adam_eps)
    net, inner = descend(rule, state.net, state.optimizer, gradient)
    updates = advance(state.gradient_steps, 1, config.target_period, config.actor_period)
    priority = sequences.priority(td, batch.loss_mask[:, config.burn_in :], config.eta)
    state = dataclasses.replace(
        state,
        net=net,
        target=_copy(updates % config.target_period == 0, net, state.target),
        actor=_copy(updates % config.actor_period == 0, net, state.actor),
        optimizer=inner,
        sequences=sequences.set_priority(state.sequences, batch.rows, priority),
        gradient_steps=updates,
    )
    return state, (value, jnp.sum(batch.loss_mask) / (config.batch * config.length))


def _copy(due: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(due, x, y) if eqx.is_array(x) else x, new, old)


@with_promotion
def iterate(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, Outcome]:
    """Run one iteration of acting, storing and learning; return the state and the outcome."""
    act_key, learn_key, key = jax.random.split(state.key, 3)
    state, rollout = act_and_store(config, env, params, state, act_key)
    state, (value, fill) = scan_learning(
        partial(learn, config),
        state,
        lambda s: (s.net, s.target, s.actor, s.optimizer, s.sequences.sums, s.gradient_steps),
        jax.random.split(learn_key, config.updates),
    )
    state = watch(state, lambda s: (s.net, s.target, s.actor), rollout.obs)
    state = eqx.tree_at(lambda s: (s.key, s.iteration), state, (key, advance(state.iteration)))
    finite = jnp.all(jnp.isfinite(rollout.reward)) & jnp.all(jnp.isfinite(value))
    return state, (jnp.mean(value), jnp.mean(fill), finite)


@with_promotion
def block(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, Metrics]:
    """Run `config.block` iterations, then evaluate the greedy policy.

    `learn` takes one gradient step. For a custom loss, pass `partial(r2d2.learn, loss=custom)`.
    """
    step = partial(iterate, config, env, params, learn=learn)
    state, (value, fill, finite) = repeat(step, state, config.block)
    return end_block(config, env, params, state, greedy, loss=value, finite=finite, fill=fill)


train = make_train(check, init, block, q_net, learn)
