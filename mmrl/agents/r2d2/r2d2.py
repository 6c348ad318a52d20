"""R2D2: recurrent replay distributed DQN, with a batch of environments for its actors.

Kapturowski et al. 2019. R2D2 adds to DQN on segments: the recurrent state that the actor had is
stored with each sequence; a burn-in prefix refreshes it with the current parameters; sequences may
overlap and are drawn by priority; targets are n-step double Q. Our defaults differ from the paper's
(`presets.PRESETS["r2d2"]["paper"]`): n = 20, no overlap, no h; rewards normalized, clipped to ±10.

    iteration:  act `rollout` steps in `environments` environments, each with its own ε, by
                parameters that lag behind → `sequences`, with the actors' own priorities,
                then `updates` times: sample `batch` sequences, one gradient step, new priorities.

Implementation details
- h⁻¹(Q⁻) is summed with the rewards, and h applied once to the sum: y = h(Σ γ^k r + γ^n h⁻¹(Q⁻)).
  Both networks unroll the same steps from the same stored state, each with its own burn-in.
- A window ends with the observation that followed its last step, so that Q(s_{t+1}) is the next
  output of the same unroll; a truncated episode bootstraps from its last observation.
- The last n - 1 steps of a window only serve as targets, so that no target is shorter than n steps
  unless the episode is. All trained steps enter the loss, including the terminal ones.
- An actor's priority needs the n steps that follow: a rollout is stored n steps late. At a
  truncation, which the actor does not value, its last value is used; the learner is exact there.
- The loss is Huber's, as in `dqn`: on the scale of h few errors are beyond its square part.
- Previous action and reward come as observations (`mmrl.envs.wrappers`).
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
from mmrl._dtypes import advance, promoting
from mmrl.agents import normalize
from mmrl.agents.checks import check_discrete
from mmrl.agents.common import (
    Make,
    Metrics,
    Outcome,
    adam,
    annealed,
    descend,
    end_block,
    fixed,
    fresh,
    greedy,
    q_net,
    repeat,
    scan_learning,
    trained,
    training,
    watch,
)
from mmrl.agents.r2d2.actors import act, bare, first_errors, targets
from mmrl.agents.settings import Settings, choice, count, limit, positive, share, static, weight
from mmrl.replay import sequences
from mmrl.replay.frames import shortest
from mmrl.rollout import Carry, Transition

# In addition to o_t, by default. The paper has no begin flag.
OBSERVES = ("previous_action", "previous_reward", "begin_flag")


class Config(Settings):
    """Settings of R2D2, sized for a laptop. Sizes and names are static; other fields are traced."""

    memory: str = static(default="lstm")  # name in `mmrl.memory`, or my_module:Mine
    # pairs of a size of this memory and its value, e.g. state_size 32
    # pairs of a size of this memory and its value, e.g. state_size 32
    memory_sizes: tuple[tuple[str, int], ...] = static(default=())
    width: int = count(64)  # features between encoder, memory and head
    # auto: convolutions for pictures, else dense; small, impala: stacks of convolutions
    encoder: str = choice("auto", "dense", "small", "impala")
    dueling: bool = static(default=True)  # Q = V + A - mean A, Wang et al. 2016
    start: str = choice("stored", "zero")  # first state of a window
    length: int = count(80)  # m, trained steps of a sequence
    overlap: int = count(0, least=0)  # steps shared by two adjacent sequences
    burn_in: int = count(40, least=0)  # l, steps before a sequence that only warm up its state
    n_step: int = count(20)  # n of the targets
    normalize_observations: bool | None = static(default=None)  # None: only features beyond ±10
    normalize_rewards: bool = static(default=True)  # scale the rewards of targets, as in `dqn`
    rescale: bool = static(default=False)  # learn h(return)
    batch: int = count(16)  # sequences per gradient step
    environments: int = count(16)  # environments that act in parallel
    rollout: int = count(16)  # steps per environment and iteration
    updates: int = count(4)  # gradient steps per iteration
    capacity: int = count(64_000)  # steps, over all environments
    block: int = count(10)  # iterations between two evaluations
    blocks: int = count(64)  # evaluations in a whole run
    episodes: int = count(32)  # episodes per evaluation
    target_period: int = count(50)  # gradient steps between copies θ⁻ ← θ
    actor_period: int = count(10)  # gradient steps between copies of θ to the actors

    learning_rate: float = positive(3e-3)  # learning rate of Adam
    adam_eps: float = positive(1e-5)  # ε of Adam
    anneal: float = share(1.0)  # share of the learning rate lost by the horizon, linearly
    horizon: float | None = limit(None)  # blocks to the horizon; None: the whole run
    gamma: float = share(0.97)  # γ, per step
    # ε_i = base^(1 + exponent i / (N - 1)), Horgan et al. 2018, Eq. 1
    epsilon_base: float = share(0.4)
    epsilon_exponent: float = weight(7.0)  # see epsilon_base
    alpha: float = share(0.9)  # P_i ∝ p_i^α
    eta: float = share(0.9)  # p = η max|δ| + (1 - η) mean|δ|
    beta_start: float = share(0.6)  # β of the importance weights in the first iteration
    beta_end: float = share(1.0)  # β from iteration `beta_decay` on
    beta_decay: float = positive(160.0)  # iterations until `beta_end`
    rescale_eps: float = positive(1e-3)  # ε of h
    reward_scale: float = positive(1.0)  # factor of the rewards in targets
    max_grad_norm: float = limit(40.0)  # largest norm of a gradient; longer ones are scaled down


class State(eqx.Module):
    """State of a run: pass it to `block` to continue."""

    net: Any  # anything with the calls of a `Net`
    target: Any
    actor: Any  # acts; lags behind `net`
    optimizer: PyTree
    carries: Carry  # one per environment
    held: Transition  # the last n steps of each environment, not yet stored
    sequences: sequences.Sequences
    rewards: normalize.RewardScale | None  # running scale of the rewards
    key: PRNGKeyArray
    iteration: Int[Array, ""]
    learned: Int[Array, ""]  # gradient steps


def check(config: Config, env: Any, params: Any) -> None:
    """Raise `ValueError` for a setting that cannot work; the message names it and the remedy."""
    config.check_ranges()
    zero = jnp.zeros(())
    longest = jax.eval_shape(lambda: _storage(config, params, zero, zero)).longest
    if config.rollout > longest:
        raise ValueError(
            f"`rollout` must be at most {longest} steps, so that it does not overwrite the "
            f"sequences that it completes; got {config.rollout}. Raise `capacity`."
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


@promoting
def init(config: Config, env: Any, params: Any, key: PRNGKeyArray, make: Make = q_net) -> State:
    """Return fresh networks and environments, which act `n_step` steps ahead of an empty storage.

    `make` builds Q, by default the `Net` that the config names.
    """
    check(config, env, params)
    net, carries, act_key, key = fresh(config, env, params, key, make, keys=2, lookahead=False)
    carries, held = act(config, env, params, net, carries, act_key, config.n_step)
    example = jax.tree.map(lambda x: jnp.zeros(x.shape[2:], x.dtype), held)
    return State(
        net=net,
        target=net,
        actor=net,
        optimizer=adam(config, 0.0, config.adam_eps).init(trained(net)),
        carries=carries,
        held=held,
        sequences=_storage(config, params, bare(example), net.init()),
        rewards=normalize.rewards_of(config),
        key=key,
        iteration=jnp.zeros((), jnp.int32),
        learned=jnp.zeros((), jnp.int32),
    )


def act_and_store(
    config: Config, env: Any, params: Any, state: State, key: PRNGKeyArray
) -> tuple[State, Transition]:
    """Collect a rollout in every environment; store its steps n steps late."""
    carries, rollout = act(config, env, params, state.actor, state.carries, key, config.rollout)
    both = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), state.held, rollout)
    stored = jax.tree.map(lambda x: x[:, : config.rollout], both)
    held = jax.tree.map(lambda x: x[:, config.rollout :], both)
    scale = normalize.watch_rewards(state.rewards, rollout, config.gamma)
    paid = normalize.divided(scale, both)
    errors = jax.vmap(partial(first_errors, config))(paid)[:, : config.rollout]
    storage = sequences.add(state.sequences, bare(stored), stored.extras.state, errors)
    state = dataclasses.replace(state, carries=carries, held=held, sequences=storage, rewards=scale)
    return state, rollout


def unroll(
    config: Config, net: Any, window: sequences.Window
) -> tuple[Transition, Float[Array, "sequence time_and_one action"]]:
    """Return the steps after the burn-in, with Q at each and at the observation after the last.

    No gradient flows into the burn-in or the stored state.
    """
    steps, mask = jax.tree.map(lambda x: x[:, config.burn_in :], (window.steps, window.mask))

    def one(state, prefix, prefix_begin, steps, mask, begin):
        state = state if config.start == "stored" else net.init()
        if config.burn_in:
            state, _ = fixed(net)(state, prefix, prefix_begin)
        obs = jax.tree.map(partial(seen, mask), steps.obs, steps.next_obs)
        _, q = net(jax.lax.stop_gradient(state), obs, jnp.append(begin, False))
        return q

    def seen(mask, obs, next_obs):
        # o'_t is o_{t+1}, except after the last step, where only o'_t exists.
        real = mask[1:].reshape(-1, *[1] * (obs.ndim - 1))
        return jnp.concatenate([obs[:1], jnp.where(real, obs[1:], next_obs[:-1]), next_obs[-1:]])

    at = config.burn_in
    prefix, begin = jax.tree.map(lambda x: x[:, :at], (window.steps.obs, window.begin))
    return steps, jax.vmap(one)(window.state, prefix, begin, steps, mask, window.begin[:, at:])


@promoting
def loss(
    net: Any, target: Any, sample: sequences.Sample, config: Config
) -> tuple[Float[Array, ""], Float[Array, "sequence time"]]:
    """Return the mean of w_i huber(y_t - Q(s_t, a_t)) over trained steps, and the errors.

    y_t = h(Σ_k γ^k r_{t+k} + γ^n h⁻¹(Q⁻(s_{t+n}, argmax_a Q(s_{t+n}, a)))).
    """
    steps, q = unroll(config, net, sample)
    _, q_target = unroll(config, target, sample)

    def errors(steps, q, q_target):
        next_q = losses.taken(q_target[1:], jnp.argmax(q[1:], axis=-1))
        y = jax.lax.stop_gradient(targets(config, steps, next_q))
        return y - losses.taken(q[:-1], steps.action)

    td = jax.vmap(errors)(steps, q, q_target)
    trained = sample.trained[:, config.burn_in :]
    return losses.td_loss(td, trained, sample.weights[:, None]), jnp.where(trained, td, 0)


@promoting
def beta(config: Config, iteration: Int[Array, ""]) -> Float[Array, ""]:
    """Return β of an iteration: linear from `beta_start` to `beta_end`, then constant."""
    progress = jnp.minimum(iteration / config.beta_decay, 1)
    return config.beta_start + progress * (config.beta_end - config.beta_start)


@promoting
def learn(
    config: Config, state: State, key: PRNGKeyArray, loss: Callable[..., tuple[Any, Any]] = loss
) -> tuple[State, tuple[Float[Array, ""], Float[Array, ""]]]:
    """Take one gradient step on `loss`, set new priorities, and make the copies that are due."""
    batch = sequences.sample(state.sequences, key, config.batch, beta(config, state.iteration))
    batch = split_rows(batch)
    batch = dataclasses.replace(batch, steps=normalize.divided(state.rewards, batch.steps))
    value_and_grad = eqx.filter_value_and_grad(loss, has_aux=True)
    (value, td), gradient = value_and_grad(state.net, state.target, batch, config)
    rule = adam(config, annealed(config, state.iteration), config.adam_eps)
    net, inner = descend(rule, state.net, state.optimizer, gradient)
    learned = advance(state.learned, 1, config.target_period, config.actor_period)
    priority = sequences.priority(td, batch.trained[:, config.burn_in :], config.eta)
    state = dataclasses.replace(
        state,
        net=net,
        target=_copy(learned % config.target_period == 0, net, state.target),
        actor=_copy(learned % config.actor_period == 0, net, state.actor),
        optimizer=inner,
        sequences=sequences.set_priority(state.sequences, batch.rows, priority),
        learned=learned,
    )
    return state, (value, jnp.sum(batch.trained) / (config.batch * config.length))


def _copy(due: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda x, y: jnp.where(due, x, y) if eqx.is_array(x) else x, new, old)


@promoting
def iterate(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, Outcome]:
    """Act, store, and learn, once."""
    act_key, learn_key, key = jax.random.split(state.key, 3)
    state, rollout = act_and_store(config, env, params, state, act_key)
    state, (value, fill) = scan_learning(
        partial(learn, config),
        state,
        lambda s: (s.net, s.target, s.actor, s.optimizer, s.sequences.sums, s.learned),
        jax.random.split(learn_key, config.updates),
    )
    state = watch(state, lambda s: (s.net, s.target, s.actor), rollout.obs)
    state = eqx.tree_at(lambda s: (s.key, s.iteration), state, (key, advance(state.iteration)))
    finite = jnp.all(jnp.isfinite(rollout.reward)) & jnp.all(jnp.isfinite(value))
    return state, (jnp.mean(value), jnp.mean(fill), finite)


@promoting
def block(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, Metrics]:
    """Run `config.block` iterations, then evaluate the greedy policy.

    `learn` takes a gradient step: yours, or `partial(r2d2.learn, loss=yours)`.
    """
    step = partial(iterate, config, env, params, learn=learn)
    state, (value, fill, finite) = repeat(step, state, config.block)
    return end_block(config, env, params, state, greedy, loss=value, finite=finite, fill=fill)


train = training(check, init, block, q_net, learn)
