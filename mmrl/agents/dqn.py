"""Double DQN with a memory, on a tape or on segments.

Mnih et al. 2015 with the target of van Hasselt et al. 2016; the tape is Algorithm 1 of Morad et al.
2024, the segments are Algorithm 2. Both use the same storage and the same loss.

    iteration:  act ε-greedily for `rollout` steps in `environments` environments → the tape,
                then `updates` times: sample `batch` steps, one gradient step, move the target.

Implementation details
- Target states come from `Net.lookahead`: s'_t has seen o_0, …, o_t and o'_t. The paper's code
  scans the next observations instead, so that its targets never see the first observation.
- The actors keep their memory state while the parameters change, as in R2D2. Learning reads
  whole episodes, or segments from the initial state, and never a stored state.
- `check` requires a batch that holds the longest episode, because steps beyond `batch` would never
  be learned from, and room for two, because only episodes that are stored whole can be drawn.
- Targets are λ-returns that include explored actions, as in Peng's Q(λ) (Peng and Williams 1996).
  They have a bias that shrinks with ε; in return, a reward reaches many steps back at once.
  λ = 0 gives the one-step target of the papers.
- `discount = gamma (1 - terminated)`: a truncated episode bootstraps.
- The tape stores raw rewards; `normalize_rewards` scales a batch's, `reward_scale` the loss's.
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
from mmrl._dtypes import advance, promoting, whole
from mmrl.agents import checks, common, normalize
from mmrl.agents.common import Make, Metrics, Outcome, end_block, explore, greedy, q_net
from mmrl.agents.settings import Paper, Settings, choice, count, limit, positive, share, static
from mmrl.replay import tape
from mmrl.replay.frames import shortest
from mmrl.rollout import Carry, Policy, Transition, collect

OBSERVES = ("begin_flag",)  # in addition to o_t, by default


class Config(Settings):
    """Settings: static sizes and names, which shape the program, and numbers that are traced."""

    memory: str = static(default="lru")  # name in `mmrl.memory`, or my_module:Mine
    # pairs of a size of this memory and its value, e.g. state_size 32
    memory_sizes: tuple[tuple[str, int], ...] = static(default=())
    width: int = count(64)  # features between encoder, memory and head
    # auto: convolutions for pictures, else dense; small, impala: stacks of convolutions
    encoder: str = choice("auto", "dense", "small", "impala")
    dueling: bool = static(default=True)  # Q = V + A - mean A, Wang et al. 2016
    batching: str = choice("tape", "segments")  # tape: whole episodes; segments: pieces of L steps
    segment_length: int = count(10)  # L, steps; with segments, must divide `batch`
    # B, steps per gradient step; None: 500, or the longest episode if that is longer
    batch: int | None = count(None)
    tapes: int = count(1)  # equal parts of a batch, drawn in parallel, also on several devices
    environments: int = count(16)  # environments that act in parallel
    rollout: int = count(16)  # steps per environment and iteration
    updates: int = count(4)  # gradient steps per iteration
    # steps on the tape, over all environments; None: 16 384, or more if episodes need it
    capacity: int | None = count(None)
    normalize_observations: bool | None = static(default=None)  # None: only features beyond ±10
    normalize_rewards: bool = static(default=True)  # scale a batch's rewards; clip to ±10
    block: int = count(10)  # iterations between two evaluations
    blocks: int = count(64)  # evaluations in a whole run
    episodes: int = count(32)  # episodes per evaluation

    learning_rate: float = positive(3e-3)  # learning rate of Adam
    anneal: float = share(1.0)  # share of the learning rate lost by the horizon, linearly
    # blocks to the horizon; None: the whole run. A prolonged run takes up its new, longer line
    horizon: float | None = limit(None)
    gamma: float = share(0.98)  # γ, per step
    lam: float = share(0.95)  # λ of the targets; 0: one-step targets, as in the papers
    epsilon_start: float = share(0.5)  # ε of the first iteration
    epsilon_end: float = share(0.05)  # ε from iteration `epsilon_decay` on
    epsilon_decay: float = positive(80.0)  # iterations until `epsilon_end`
    # τ in θ⁻ ← θ⁻ + τ (θ - θ⁻), per gradient step (the paper's 1 - β)
    tau: float = share(0.02, off=0.0)
    reward_scale: float = positive(1.0)  # factor of the rewards in the loss
    max_grad_norm: float = limit(1.0)  # largest norm of a gradient; longer ones are scaled down


class State(eqx.Module):
    """State of a run: pass it to `block` to continue."""

    net: Any  # a `Net`, or what is called as one
    target: Any
    optimizer: PyTree
    carries: Carry  # one per environment
    tape: tape.Tape
    rewards: normalize.RewardScale | None  # running scale of the rewards
    key: PRNGKeyArray
    iteration: Int[Array, ""]


def check(config: Config, env: Any, params: Any) -> None:
    """Raise `ValueError` for a setting that cannot work; the message names it and the remedy."""
    checks.check_whole_episodes(sized(config, env, params), params)


def sized(config: Config, env: Any, params: Any) -> Config:
    """Return the settings with sizes for those that are None. Raise `ValueError` if `init` fails.

    Older runs may have a batch shorter than an episode, which only `check` refuses.
    """
    config.check_ranges()
    config = checks.fit_storage(config, params)
    checks.check_storage(config, params)
    checks.check_discrete(env, params)
    return config


@promoting
def init(config: Config, env: Any, params: Any, key: PRNGKeyArray, make: Make = q_net) -> State:
    """Return fresh networks and environments, and an empty tape. `make` builds Q."""
    config = sized(config, env, params)
    net, carries, key = common.fresh(config, env, params, key, make)
    act = partial(collect, greedy(net), env, params, steps=1)
    example = jax.eval_shape(act, jax.tree.map(lambda x: x[0], carries), key)[1]
    example = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), example)
    capacity = whole("capacity", config.capacity)
    return State(
        net=net,
        target=net,
        optimizer=common.adam(config, 0.0).init(common.trained(net)),
        carries=carries,
        tape=tape.init(example, capacity, workers=config.environments, shortest=shortest(params)),
        rewards=normalize.rewards_of(config),
        key=key,
        iteration=jnp.zeros((), jnp.int32),
    )


def epsilon(config: Config, iteration: Int[Array, ""]) -> Float[Array, ""]:
    """Return ε of an iteration: linear from `epsilon_start` to `epsilon_end`, then constant."""
    progress = jnp.minimum(jnp.float32(iteration) / config.epsilon_decay, 1)
    return config.epsilon_start + progress * (config.epsilon_end - config.epsilon_start)


def epsilon_greedy(net: Any, epsilon: Float[Array, ""]) -> Policy:
    """Return a policy: a uniformly random action with probability ε, otherwise argmax_a Q(s, a)."""

    def act(memory_state, obs, begin, key):
        memory_state, q = net.step(memory_state, obs, begin)
        return memory_state, explore(q, epsilon, key, common.legal(net, obs))

    return act


def act_and_store(
    config: Config, env: Any, params: Any, state: State, key: PRNGKeyArray
) -> tuple[State, Transition]:
    """Collect a rollout in every environment and append it to the tape.  Algorithm 4."""
    behavior = epsilon_greedy(state.net, epsilon(config, state.iteration))
    act = partial(collect, behavior, env, params, steps=config.rollout)
    carries, rollout = jax.vmap(act)(state.carries, jax.random.split(key, config.environments))
    rewards = normalize.watch_rewards(state.rewards, rollout, config.gamma)
    kept = tape.add(state.tape, rollout)
    return dataclasses.replace(state, carries=carries, tape=kept, rewards=rewards), rollout


def sample(config: Config, state: State, key: PRNGKeyArray) -> tape.Sample:
    """Sample `batch` steps as episodes (TBB) or segments (SBB), from `tapes` draws if several."""
    steps = whole("batch", config.batch) // config.tapes

    def one(key):
        if config.batching == "tape":
            drawn = tape.sample(state.tape, key, steps)
        else:
            from mmrl.replay import segments  # the other way of batching

            drawn = segments.sample(state.tape, key, steps, config.segment_length)
        return dataclasses.replace(drawn, steps=normalize.divided(state.rewards, drawn.steps))

    if config.tapes == 1:
        return one(key)
    return split_rows(jax.vmap(one)(jax.random.split(key, config.tapes)))


def loss(net: Any, target: Any, batch: tape.Sample, config: Config) -> Float[Array, ""]:
    """Return the mean of huber(y_t - Q(s_t, a_t)) over real steps, where y_t is the λ-return.

    y_t = r_t + γ_t ((1-λ) v_t + λ y_{t+1}), v_t = Q⁻(s_{t+1}, argmax_a Q(s_{t+1}, a)). Tapes and
    segments differ only in `batch.begin` and `batch.mask`; `batch.steps` is a `Transition`.
    """
    steps = batch.steps
    _, q, next_q = net.lookahead(net.init(), steps.obs, batch.begin, steps.next_obs)
    _, _, next_q_target = target.lookahead(target.init(), steps.obs, batch.begin, steps.next_obs)
    y = returns.lambda_return(
        config.reward_scale * steps.reward,
        returns.discounts(config.gamma, steps.terminated),
        losses.taken(next_q_target, jnp.argmax(next_q, axis=-1)),
        steps.last | jnp.append(batch.begin[1:], True),
        config.lam,
    )
    y = jax.lax.stop_gradient(y)
    return losses.td_loss(y - losses.taken(q, steps.action), batch.mask)


def loss_of_tapes(loss: Callable, net: Any, target: Any, batch: Any, config: Config) -> Array:
    """Return the mean of `loss`, which takes one tape, over the real steps of all tapes."""
    if config.tapes == 1:
        return loss(net, target, batch, config)
    values = jax.vmap(lambda one: loss(net, target, one, config))(batch)
    steps = jnp.sum(batch.mask, axis=1, dtype=jnp.float32)
    return jnp.sum(steps * values) / jnp.maximum(jnp.sum(steps), 1)


@promoting
def learn(
    config: Config, state: State, key: PRNGKeyArray, loss: Callable[..., Float[Array, ""]] = loss
) -> tuple[State, tuple[Float[Array, ""], Float[Array, ""]]]:
    """Take one gradient step, then θ⁻ ← θ⁻ + τ (θ - θ⁻). `loss` has the arguments of `dqn.loss`."""
    batch = sample(config, state, key)
    rule = common.adam(config, common.annealed(config, state.iteration))
    mean = partial(loss_of_tapes, loss)
    value, gradient = eqx.filter_value_and_grad(mean)(state.net, state.target, batch, config)
    net, inner = common.descend(rule, state.net, state.optimizer, gradient)
    target = jax.tree.map(
        lambda old, new: old + config.tau * (new - old) if eqx.is_inexact_array(old) else new,
        state.target,
        net,
    )
    state = eqx.tree_at(changed, state, (net, target, inner))
    return state, (value, jnp.mean(batch.mask, dtype=jnp.float32))


def changed(state: State) -> tuple[Any, Any, PyTree]:
    """Return what a gradient step changes in the state: the networks and the optimizer."""
    return state.net, state.target, state.optimizer


def iterate(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, Outcome]:
    """Act, store, and learn, once."""
    act_key, learn_key, key = jax.random.split(state.key, 3)
    state, rollout = act_and_store(config, env, params, state, act_key)
    state, (value, fill) = common.scan_learning(
        partial(learn, config), state, changed, jax.random.split(learn_key, config.updates)
    )
    state = common.watch(state, lambda s: (s.net, s.target), rollout.obs)
    state = eqx.tree_at(lambda s: (s.key, s.iteration), state, (key, advance(state.iteration)))
    finite = jnp.all(jnp.isfinite(rollout.reward)) & jnp.all(jnp.isfinite(value))
    return state, (jnp.mean(value), jnp.mean(fill), finite)


@promoting
def block(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, Metrics]:
    """Run `config.block` iterations of `learn`, then evaluate the greedy policy.

    `learn` takes one gradient step: yours, or `partial(dqn.learn, loss=yours)`.
    """
    config = sized(config, env, params)
    step = partial(iterate, config, env, params, learn=learn)
    state, (value, fill, finite) = common.repeat(step, state, config.block)
    return end_block(config, env, params, state, greedy, loss=value, finite=finite, fill=fill)


train = common.training(check, init, block, q_net, learn)


def label(config: Config) -> tuple[str, str]:
    """Return what distinguishes this run from others, in words and as the name of a folder."""
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
        "An epoch of the code is one episode, and RepeatFirstEasy's have 51 steps: on another "
        "task set `--rollout` to its length. Its first 5000 epochs only fill the tape, without "
        "learning; ours learns from the first whole episode on.",
        "Its learning rate rises over the first 200 gradient steps.",
        "On RepeatPreviousEasy the code has γ = 0.5 and ε_end = 0.1, and on tasks that it lists "
        "as autoencode_easy four gradient steps to an episode.",
        "Its target scans the next observations alone, and its network has a norm and a layer "
        "more on either side: see the details in `mmrl.agents.dqn`.",
    ),
)

PAPERS = {"paper": _TAPE}
