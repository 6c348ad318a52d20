"""PQN: on-policy Q(λ) with a memory, without a replay buffer or a target network.

Gallici et al. 2024. PQN acts ε-greedily like DQN, and learns like PPO, in several epochs on the
rollouts that it has just collected. Layer normalization replaces the target network, because it
limits how much a gradient step changes the values of other states. A large number of environments
replaces the replay buffer, because it decorrelates the steps of a batch.

    iteration:  act ε-greedily for `rollout` steps in `environments` environments, and compute the
                λ-targets. Then repeat `epochs` times: shuffle, take `minibatches` gradient steps.

Implementation details
- Targets are computed once per iteration, by the network that acted, and are constant during its
  gradient steps. For networks without a memory, the paper's code does the same. For networks with a
  memory, that code recomputes the targets in every minibatch, and uses the last step of a rollout
  only to compute targets.
- Targets are not corrected for exploration, as in Peng's Q(λ) (Peng and Williams 1996). Targets
  bootstrap at truncations and at the end of a rollout: s'_t summarizes o_0, …, o_t and o'_t.
- The memory state is carried from one rollout to the next. Training replays complete rollouts from
  the actor's state, so minibatches are sets of environments. Without a memory, minibatches are sets
  of single steps.
- Layer norms are in `mmrl.nets.Dense`, before the nonlinearity, in both the encoder and the head.
- The loss is half the squared error. Gradients are clipped, and then scaled by RAdam (Liu et al.
  2020), whose first few steps are small.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from mmrl import losses, returns
from mmrl._dtypes import advance, with_promotion
from mmrl.agents import normalize
from mmrl.agents.checks import check_discrete
from mmrl.agents.common import (
    Make,
    Metrics,
    descend,
    end_block,
    fresh,
    greedy,
    make_train,
    q_net,
    rate_at,
    repeat,
    trainable,
    watch,
)
from mmrl.agents.dqn import epsilon, epsilon_greedy
from mmrl.agents.minibatches import Rollout, as_rows, check_rows, shuffle, take
from mmrl.agents.settings import Paper, Settings, choice, count, limit, positive, share, static
from mmrl.rollout import Carry, collect

OBSERVES = ("begin_flag",)  # default inputs in addition to o_t


class Config(Settings):
    """Settings of PQN. Changing a size or a name recompiles; real-valued fields are traced."""

    memory: str = static(default="lru")  # name of a memory (none: an MLP), or my_module:Mine
    # sizes of the memory by name, e.g. state_size 32
    memory_sizes: tuple[tuple[str, int], ...] = static(default=())
    width: int = count(64)  # number of features of the encoder, memory and head
    # auto: convolutions for images, otherwise dense layers; small, impala: always convolutions
    encoder: str = choice("auto", "dense", "small", "impala")
    dueling: bool = static(default=True)  # dueling head Q = V + A - mean A, Wang et al. 2016
    # normalize features; None: only features without bounds or with bounds beyond ±10
    normalize_observations: bool | None = static(default=None)
    # divide rewards by a running standard deviation, and clip them to ±10
    normalize_rewards: bool = static(default=True)
    environments: int = count(32)  # number of environments stepped in parallel
    rollout: int = count(64)  # T, steps per environment and iteration
    minibatches: int = count(16)  # minibatches per epoch
    epochs: int = count(4)  # passes through the batch, per iteration
    block: int = count(10)  # iterations per block; every block ends with an evaluation
    blocks: int = count(32)  # number of evaluations in a run
    episodes: int = count(32)  # episodes per evaluation

    learning_rate: float = positive(5e-4)  # learning rate of RAdam
    anneal: float = share(1.0)  # fraction by which the learning rate falls linearly; 0: constant
    # blocks over which the learning rate decays; None: `blocks`, also after a run is extended
    horizon: float | None = limit(None)
    gamma: float = share(0.98)  # γ, per step
    lam: float = share(0.65)  # λ of the targets; 0: one-step targets
    epsilon_start: float = share(0.5)  # initial ε
    epsilon_end: float = share(0.05)  # final ε
    epsilon_decay: float = positive(60.0)  # iterations over which ε decays linearly
    reward_scale: float = positive(1.0)  # factor applied to rewards in targets
    max_grad_norm: float = limit(10.0)  # maximum gradient norm; larger gradients are scaled down


class State(eqx.Module):
    """State of a run; pass it to `block` to continue the run."""

    net: Any  # a `Net`, or another network with the same methods
    optimizer: PyTree
    carries: Carry  # one carry per environment
    rewards: normalize.RewardScale | None  # running statistics of the rewards
    key: PRNGKeyArray
    iteration: Int[Array, ""]


class Batch(NamedTuple):
    """Data for gradient steps, [row, time].

    Each row is the rollout of one environment, or a single step if the network has no memory.
    """

    state: PyTree  # memory state before each row, [row]
    obs: PyTree  # all inputs of the network
    begin: Bool[Array, "row time"]  # True at the first observation of an episode
    action: Int[Array, "row time"]
    targets: Float[Array, "row time"]  # λ-targets y_t of the scaled rewards


def check(config: Config, env: Any, params: Any) -> None:
    """Raise `ValueError` for invalid settings; the message suggests a fix."""
    config.check_ranges()
    check_discrete(env, params)


@with_promotion
def init(config: Config, env: Any, params: Any, key: PRNGKeyArray, make: Make = q_net) -> State:
    """Build the Q-network with `make`, and return the initial state of a run."""
    check(config, env, params)
    net, carries, key = fresh(config, env, params, key, make)
    check_rows(config, net)
    return State(
        net=net,
        optimizer=optimizer(config, 0.0).init(trainable(net)),
        carries=carries,
        rewards=normalize.rewards_of(config),
        key=key,
        iteration=jnp.zeros((), jnp.int32),
    )


def optimizer(config: Config, rate: Float[Array, ""] | float) -> optax.GradientTransformation:
    """Return RAdam, preceded by clipping of the global gradient norm."""
    return optax.chain(optax.clip_by_global_norm(config.max_grad_norm), optax.radam(rate))


def act(
    config: Config, env: Any, params: Any, state: State, key: PRNGKeyArray
) -> tuple[State, Rollout]:
    """Collect a rollout in every environment; return the new state and the rollout.

    Rewards are normalized according to the config.
    """
    before = state.carries.policy_state
    behavior = epsilon_greedy(state.net, epsilon(config, state.iteration))
    play = partial(collect, behavior, env, params, steps=config.rollout)
    carries, steps = jax.vmap(play)(state.carries, jax.random.split(key, config.environments))
    rewards = normalize.watch_rewards(state.rewards, steps, config.gamma)
    state = dataclasses.replace(state, carries=carries, rewards=rewards)
    return state, Rollout(before, normalize.scale_rewards(rewards, steps))


def targets(config: Config, net: Any, rollout: Rollout) -> Float[Array, " time"]:
    """Return the λ-targets for the rollout of one environment.  Peng and Williams 1996.

    y_t = r_t + γ_t ((1-λ) v_t + λ y_{t+1}) with v_t = max_a Q(s_{t+1}, a). At the last step of an
    episode or of the rollout, y_t = r_t + γ_t v_t.
    """
    steps: Any = rollout.steps
    _, _, next_q = net.lookahead(rollout.state, steps.obs, steps.begin, steps.next_obs)
    return returns.lambda_return(
        config.reward_scale * steps.reward,
        returns.discounts(config.gamma, steps.terminated),
        jnp.max(next_q, axis=-1),
        steps.last,
        config.lam,
    )


def prepare(config: Config, net: Any, rollout: Rollout) -> Batch:
    """Compute the targets of a rollout and return its batch of rows."""
    y = jax.vmap(partial(targets, config, net))(rollout)
    steps: Any = rollout.steps
    return as_rows(Batch(rollout.state, steps.obs, steps.begin, steps.action, y))


def loss(net: Any, batch: Batch, config: Config) -> Float[Array, ""]:
    """Return the mean of (Q(s_t, a_t) - y_t)² / 2; gradients through the target y_t are stopped."""
    _, q = jax.vmap(net)(batch.state, batch.obs, batch.begin)
    values = jax.vmap(losses.select_values)(q, batch.action)
    return 0.5 * jnp.mean(losses.value_loss(values, batch.targets))


@with_promotion
def learn(
    config: Config,
    state: State,
    rollout: Rollout,
    key: PRNGKeyArray,
    loss: Callable[..., Float[Array, ""]] = loss,
) -> tuple[State, Float[Array, " steps"]]:
    """Take all gradient steps of an iteration; return the state and the losses.

    `loss` is a function with the arguments of `pqn.loss`.
    """
    batch = prepare(config, state.net, rollout)
    rule = optimizer(config, rate_at(config, state.iteration))

    def step(learner, rows):
        net, inner = learner
        value, gradient = eqx.filter_value_and_grad(loss)(net, take(batch, rows), config)
        return descend(rule, net, inner, gradient), value

    orders = shuffle(key, len(batch.begin), config.minibatches, config.epochs)
    (net, inner), values = jax.lax.scan(step, (state.net, state.optimizer), orders)
    return dataclasses.replace(state, net=net, optimizer=inner), values


@with_promotion
def iterate(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, tuple[Float[Array, ""], Bool[Array, ""]]]:
    """Run one iteration of acting and learning; return the state and the outcome.

    The outcome is a pair: the mean loss, and True if all rewards and losses are finite.
    """
    act_key, learn_key, key = jax.random.split(state.key, 3)
    state, rollout = act(config, env, params, state, act_key)
    state, value = learn(config, state, rollout, learn_key)
    state = watch(state, lambda s: s.net, rollout.steps.obs)
    state = dataclasses.replace(state, key=key, iteration=advance(state.iteration))
    finite = jnp.all(jnp.isfinite(rollout.steps.reward)) & jnp.all(jnp.isfinite(value))
    return state, (jnp.mean(value), finite)


@with_promotion
def block(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, Metrics]:
    """Run `config.block` iterations, then evaluate the greedy policy.

    `learn` takes all gradient steps of an iteration. For a custom loss, pass `partial(pqn.learn,
    loss=custom)`.
    """
    step = partial(iterate, config, env, params, learn=learn)
    state, (value, finite) = repeat(step, state, config.block)
    return end_block(config, env, params, state, greedy, loss=value, finite=finite)


train = make_train(check, init, block, q_net, learn)


def label(config: Config) -> tuple[str, str]:
    """Return a description and a folder name for runs with these settings."""
    return f"{config.memory}, Q(λ) of rollouts of {config.rollout} steps", f"pqn-{config.memory}"


SMALL: dict[str, Any] = {"minibatches": 2, "epochs": 2, "epsilon_decay": 16.0}

_CRAFTAX = Paper(
    "Gallici et al. 2024, Simplifying deep temporal difference learning, and the settings of its "
    "recurrent runs in its published code, github.com/mttga/purejaxql at 47af6d7, "
    "purejaxql/config/alg/pqn_rnn_craftax.yaml",
    {
        "NUM_ENVS": {"environments": 1024},
        "NUM_STEPS": {"rollout": 128},
        "NUM_MINIBATCHES": {"minibatches": 4},
        "NUM_EPOCHS": {"epochs": 4},
        "EPS_START, EPS_FINISH": {"epsilon_start": 1.0, "epsilon_end": 0.005},
        "EPS_DECAY, of 7629 iterations": {"epsilon_decay": 762.9},
        "TOTAL_TIMESTEPS": {"block": 70, "blocks": 109},
        "LR": {"learning_rate": 3e-4},
        "LR_LINEAR_DECAY": {"anneal": 1.0},
        "MAX_GRAD_NORM": {"max_grad_norm": 0.5},
        "GAMMA, LAMBDA": {"gamma": 0.99, "lam": 0.5},
        "REW_SCALE": {"reward_scale": 1.0},
        "NORM_INPUT": {"normalize_observations": True},
        "HIDDEN_SIZE": {"width": 512},
        "pqn_rnn_craftax.py": {
            "memory": "lstm",
            "memory_sizes": (("state_size", 512),),
            "dueling": False,
        },
    },
    (
        "The paper plays Craftax, whose observations are vectors; no score was measured with this "
        "preset on Craftax.",
        "A run has 10⁹ steps, 7629 iterations, rounded up to complete blocks. The published code "
        "evaluates the greedy policy only on request; we chose to evaluate every 70 iterations.",
        "In that code, norms have a scale and an offset, inputs are normalized by batch "
        "renormalization, the LSTM reads the last action after the encoder instead of with the "
        "observation, and the head is one layer: see `mmrl.nets`.",
        "That code computes new targets in every minibatch (see the details in "
        "`mmrl.agents.pqn`), and it treats a truncation as a termination.",
        "On a smaller machine: `--environments 32 --rollout 64 --blocks 10 --block 30 --width 64 "
        "--memory-sizes state_size 64 --epsilon-decay 60`.",
    ),
    ("previous_action",),
)

PAPERS = {"paper": _CRAFTAX}
