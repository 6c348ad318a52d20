"""Double DQN with a memory, trained on tapes or on segments.

Mnih et al. 2015, with the target of van Hasselt et al. 2016. Training on tapes is Algorithm 1 of
Morad et al. 2024, and on segments Algorithm 2. Both algorithms use the same storage and loss.

    iteration:  act ε-greedily for `rollout` steps in `environments` environments → the tape,
                then `updates` times: sample a batch, update θ and the target

Implementation details
- Target states are computed by `Net.lookahead`: s'_t summarizes o_0, …, o_t and o'_t. The code of
  Morad et al. scans only the next observations, so its targets do not depend on the first one.
- Actors keep their memory state when θ changes. Training starts episodes and segments from h₀.
- `check` requires a batch at least as long as the longest episode, because steps beyond the batch
  are never sampled, and room for two such episodes, because only complete episodes are sampled.
- Targets are λ-returns without corrections for exploration (Q(λ) of Peng and Williams 1996). They
  are biased if ε > 0, but propagate rewards over many steps. λ = 0 gives the papers' target.
- The discount is gamma (1 - terminated), so truncated episodes bootstrap.
- The tape stores unscaled rewards; `normalize_rewards` scales a batch, and `reward_scale` the loss.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from mmrl import losses, returns
from mmrl._devices import split_rows
from mmrl._dtypes import advance, whole, with_promotion
from mmrl.agents import checks, common, normalize
from mmrl.agents.common import Make, Metrics, Outcome, end_block, explore, greedy, q_net
from mmrl.agents.settings import Paper, Settings, choice, count, limit, positive, share, static
from mmrl.replay import tape
from mmrl.replay.frames import shortest
from mmrl.rollout import Carry, Policy, Transition, collect

OBSERVES = ("begin_flag",)  # default inputs in addition to o_t


class Config(Settings):
    """Settings of DQN. Changing a size or a name recompiles; real-valued fields are traced.

    >>> Config(memory="gru", memory_sizes=(("state_size", 32),)).block_steps  # steps per block
    2560
    """

    memory: str = static(default="lru")  # name of a memory in `mmrl.memory`, or my_module:Mine
    memory_sizes: tuple[tuple[str, int], ...] = static(default=())  # by name, e.g. state_size 32
    width: int = count(64)  # number of features of the encoder, memory and head
    # auto: convolutions for images, otherwise dense layers; small, impala: always convolutions
    encoder: str = choice("auto", "dense", "small", "impala")
    dueling: bool = static(default=True)  # dueling head Q = V + A - mean A, Wang et al. 2016
    batching: str = choice("tape", "segments")  # tape: complete episodes; segments: L steps each
    segment_length: int = count(10)  # L, steps per segment; must divide `batch` if that is set
    batch: int | None = count(None)  # B, steps per gradient step; None: max(500, longest episode)
    tapes: int = count(1)  # number of tapes per batch, which can be sharded over devices
    environments: int = count(16)  # number of environments stepped in parallel
    rollout: int = count(16)  # steps per environment and iteration
    updates: int = count(4)  # gradient steps per iteration
    # steps on the tape, over all environments; None: 16 384, or more if episodes are long
    capacity: int | None = count(None)
    # normalize features; None: only features that are unbounded or have bounds beyond ±10
    normalize_observations: bool | None = static(default=None)
    normalize_rewards: bool = static(default=True)  # scale the rewards of a batch; clip to ±10
    block: int = count(10)  # iterations per block; every block ends with an evaluation
    blocks: int = count(64)  # number of evaluations in a run
    episodes: int = count(32)  # episodes per evaluation

    learning_rate: float = positive(3e-3)  # learning rate of Adam
    anneal: float = share(1.0)  # fraction by which the learning rate falls linearly; 0: constant
    # blocks over which the learning rate decays; None: `blocks`, also after a run is extended
    horizon: float | None = limit(None)
    gamma: float = share(0.98)  # γ, per step
    lam: float = share(0.95)  # λ of the targets; 0: one-step targets, as in the papers
    epsilon_start: float = share(0.5)  # initial ε
    epsilon_end: float = share(0.05)  # final ε
    epsilon_decay: float = positive(80.0)  # iterations over which ε decays linearly
    tau: float = share(0.02, off=0.0)  # τ in θ⁻ ← θ⁻ + τ (θ - θ⁻), the paper's 1 - β
    reward_scale: float = positive(1.0)  # factor applied to rewards in the loss
    max_grad_norm: float = limit(1.0)  # maximum gradient norm; larger gradients are scaled down
    target: str = choice("double", "max")  # targets of double Q-learning, or with max_a Q⁻(s', a)


class State(eqx.Module):
    """State of a run; pass it to `block` to continue the run."""

    net: Any  # a `Net`, or another network with the same methods
    target: Any
    optimizer: PyTree
    carries: Carry  # one carry per environment
    tape: tape.Tape
    rewards: normalize.RewardScale | None  # running statistics of the rewards
    key: PRNGKeyArray
    iteration: Int[Array, ""]


def check(config: Config, env: Any, params: Any) -> None:
    """Raise `ValueError` for invalid settings; the message suggests a fix."""
    checks.check_whole_episodes(resolve_sizes(config, env, params), params)


def resolve_sizes(config: Config, env: Any, params: Any) -> Config:
    """Replace sizes that are None with numbers, and check all settings.

    Raises `ValueError` if `init` would fail. Batches shorter than an episode are rejected only by
    `check`, because runs from earlier versions may contain such batches.
    """
    config.check_ranges()
    config = checks.fit_storage(config, params)
    checks.check_storage(config, params)
    checks.check_discrete(env, params)
    return config


@with_promotion
def init(config: Config, env: Any, params: Any, key: PRNGKeyArray, make: Make = q_net) -> State:
    """Build the Q-network with `make`, and return the initial state of a run."""
    config = resolve_sizes(config, env, params)
    net, carries, key = common.fresh(config, env, params, key, make)
    act = partial(collect, greedy(net), env, params, steps=1)
    example = jax.eval_shape(act, jax.tree.map(lambda x: x[0], carries), key)[1]
    example = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), example)
    capacity = whole("capacity", config.capacity)
    return State(
        net=net,
        target=net,
        optimizer=common.adam(config, 0.0).init(common.trainable(net)),
        carries=carries,
        tape=tape.init(example, capacity, workers=config.environments, shortest=shortest(params)),
        rewards=normalize.rewards_of(config),
        key=key,
        iteration=jnp.zeros((), jnp.int32),
    )


def epsilon(config: Any, iteration: Int[Array, ""]) -> Float[Array, ""]:
    """Return ε, which decays linearly over `epsilon_decay` iterations and is then constant."""
    progress = jnp.minimum(jnp.float32(iteration) / config.epsilon_decay, 1)
    return config.epsilon_start + progress * (config.epsilon_end - config.epsilon_start)


def epsilon_greedy(net: Any, epsilon: Float[Array, ""]) -> Policy:
    """Return the ε-greedy policy: random with probability ε, otherwise argmax_a Q(s, a)."""

    def act(memory_state, obs, begin, key):
        memory_state, q = net.step(memory_state, obs, begin)
        return memory_state, explore(q, epsilon, key, common.legal(net, obs))

    return act


def act_and_store(
    config: Config, env: Any, params: Any, state: State, key: PRNGKeyArray
) -> tuple[State, Transition]:
    """Collect a rollout from every environment and append it to the tape.  Algorithm 4."""
    behavior = epsilon_greedy(state.net, epsilon(config, state.iteration))
    act = partial(collect, behavior, env, params, steps=config.rollout)
    carries, rollout = jax.vmap(act)(state.carries, jax.random.split(key, config.environments))
    rewards = normalize.watch_rewards(state.rewards, rollout, config.gamma)
    longer = tape.add(state.tape, rollout)
    return dataclasses.replace(state, carries=carries, tape=longer, rewards=rewards), rollout


def sample(config: Config, state: State, key: PRNGKeyArray) -> tape.Sample:
    """Sample a batch of complete episodes or of segments, [tape, time] if `tapes` > 1."""
    steps = whole("batch", config.batch) // config.tapes

    def one(key):
        if config.batching == "tape":
            batch = tape.sample(state.tape, key, steps)
        else:
            from mmrl.replay import segments

            batch = segments.sample(state.tape, key, steps, config.segment_length)
        return dataclasses.replace(batch, steps=normalize.scale_rewards(state.rewards, batch.steps))

    if config.tapes == 1:
        return one(key)
    return split_rows(jax.vmap(one)(jax.random.split(key, config.tapes)), "`tapes`")


def loss(net: Any, target: Any, batch: tape.Sample, config: Config) -> Float[Array, ""]:
    """Return the mean of huber(y_t - Q(s_t, a_t)) over real steps, where y_t is the λ-return.

    y_t = r_t + γ_t ((1-λ) v_t + λ y_{t+1}) with v_t = Q⁻(s_{t+1}, argmax_a Q(s_{t+1}, a)), or with
    max_a Q⁻(s_{t+1}, a). Tapes and segments differ only in `begin` and `mask` of the batch.
    """
    steps = batch.steps
    _, q, next_q = net.lookahead(net.init(), steps.obs, batch.begin, steps.next_obs)
    _, _, next_q_target = target.lookahead(target.init(), steps.obs, batch.begin, steps.next_obs)
    best = next_q if config.target == "double" else next_q_target
    y = returns.lambda_return(
        config.reward_scale * steps.reward,
        returns.discounts(config.gamma, steps.terminated),
        losses.select_values(next_q_target, jnp.argmax(best, axis=-1)),
        steps.last | jnp.append(batch.begin[1:], True),
        config.lam,
    )
    y = jax.lax.stop_gradient(y)
    return losses.td_loss(y - losses.select_values(q, steps.action), batch.mask)


def loss_of_tapes(loss: Callable, net: Any, target: Any, batch: Any, config: Config) -> Array:
    """Return the mean loss of all tapes, weighted by their numbers of real steps."""
    if config.tapes == 1:
        return loss(net, target, batch, config)
    values = jax.vmap(lambda one: loss(net, target, one, config))(batch)
    steps = jnp.sum(batch.mask, axis=1, dtype=jnp.float32)
    return jnp.sum(steps * values) / jnp.maximum(jnp.sum(steps), 1)


@with_promotion
def learn(
    config: Config, state: State, key: PRNGKeyArray, loss: Callable[..., Float[Array, ""]] = loss
) -> tuple[State, tuple[Float[Array, ""], Float[Array, ""]]]:
    """Take one gradient step, and update the target network: θ⁻ ← θ⁻ + τ (θ - θ⁻).

    Returns the state, the loss and the fraction of real steps. `loss` must match `dqn.loss`.
    """
    batch = sample(config, state, key)
    rule = common.adam(config, common.rate_at(config, state.iteration))
    mean = partial(loss_of_tapes, loss)
    value, gradient = eqx.filter_value_and_grad(mean)(state.net, state.target, batch, config)
    net, inner = common.descend(rule, state.net, state.optimizer, gradient)
    target = jax.tree.map(
        lambda old, new: old + config.tau * (new - old) if eqx.is_inexact_array(old) else new,
        state.target,
        net,
    )
    state = eqx.tree_at(learner_state, state, (net, target, inner))
    return state, (value, jnp.mean(batch.mask, dtype=jnp.float32))


def learner_state(state: State) -> tuple[Any, Any, PyTree]:
    """Return the fields of the state that a gradient step changes."""
    return state.net, state.target, state.optimizer


def iterate(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, Outcome]:
    """Run one iteration of acting, storing and learning; return the state and the outcome."""
    act_key, learn_key, key = jax.random.split(state.key, 3)
    state, rollout = act_and_store(config, env, params, state, act_key)
    state, (value, fill) = common.scan_learning(
        partial(learn, config), state, learner_state, jax.random.split(learn_key, config.updates)
    )
    state = common.watch(state, lambda s: (s.net, s.target), rollout.obs)
    state = eqx.tree_at(lambda s: (s.key, s.iteration), state, (key, advance(state.iteration)))
    finite = jnp.all(jnp.isfinite(rollout.reward)) & jnp.all(jnp.isfinite(value))
    return state, (jnp.mean(value), jnp.mean(fill), finite)


@with_promotion
def block(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, Metrics]:
    """Run `config.block` iterations, then evaluate the greedy policy.

    `learn` takes one gradient step. For a custom loss, pass `partial(dqn.learn, loss=custom)`.
    """
    config = resolve_sizes(config, env, params)
    step = partial(iterate, config, env, params, learn=learn)
    state, (value, fill, finite) = common.repeat(step, state, config.block)
    return end_block(config, env, params, state, greedy, loss=value, finite=finite, fill=fill)


train = common.make_train(check, init, block, q_net, learn)


def label(config: Config) -> tuple[str, str]:
    """Return a description and a folder name for runs with these settings."""
    words = "a tape" if config.batching == "tape" else f"segments of {config.segment_length} steps"
    return f"{config.memory} on {words}", f"{config.memory}-{config.batching}"


SMALL: dict[str, Any] = dict(
    environments=8, batch=64, updates=8, capacity=1024, dueling=False, epsilon_decay=16.0, tau=0.1
)

_TAPE = Paper(
    "Morad et al. 2024, Revisiting recurrent reinforcement learning with memory monoids, which "
    "lists no settings; its code does: github.com/proroklab/memory-monoids at fbdda1f, "
    "experiments/repeat_first_easy/tape_lru.yaml",
    {
        "train": {
            "batch": 1000,
            "gamma": 0.99,
            "learning_rate": 1e-4,
            "updates": 1,
            "max_grad_norm": 0.01,
        },
        "train, 1/target_delay": {"tau": 1 / 200},
        "collect": {"epsilon_start": 0.2, "epsilon_end": 0.01, "epsilon_decay": 5000.0},
        "collect, an episode of 51 steps": {"environments": 1, "rollout": 51},
        "buffer": {"capacity": 4_000_000},
        "model": {"memory": "lru", "memory_sizes": (("layers", 2), ("state_size", 128))},
        "model, mlp_size": {"width": 256},
        "eval": {"block": 10, "episodes": 20},
        "collect, 5000 epochs": {"blocks": 500},
        "tape_dqn.py": {"batching": "tape", "reward_scale": 1.0, "lam": 0.0},
        "modules.py": {"dueling": True},
    },
    (
        "An epoch of the published code is one episode, and episodes of RepeatFirstEasy have 51 "
        "steps. On another task, set `--rollout` to its episode length. In the first 5000 epochs, "
        "the code only fills the tape; our agent starts to learn after the first episode.",
        "The code's learning rate rises over the first 200 gradient steps.",
        "On RepeatPreviousEasy the code has γ = 0.5 and ε_end = 0.1, and on the tasks that it "
        "lists as autoencode_easy it takes four gradient steps per episode.",
        "The code's target scans only the next observations, and its network has an additional "
        "norm and layer on either side of the memory: see the details in `mmrl.agents.dqn`.",
    ),
)

PAPERS = {"paper": _TAPE}
