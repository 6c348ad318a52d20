"""Phasic policy gradient: PPO with auxiliary phases that distill values into the policy network.

Cobbe et al. 2021; with proximal="ewma", PPG-EWMA of Hilton et al. 2022. Policy and value have
separate networks. The policy network still learns features that predict values, because the value
targets are distilled into its auxiliary value head, while a cloning loss preserves the policy.

    phase:  `policy_iterations` iterations of PPO, whose rollouts are stored. Then
            `auxiliary_epochs` passes through these rollouts, in which gradient steps train the
            auxiliary value and the value, and clone the policy.

Implementation details
- Policy and value share an Adam optimizer if they have the same number of epochs. Otherwise each
  has a separate optimizer, and the value is trained first.
- The auxiliary phase has a separate Adam optimizer, which persists across phases. The phase uses
  the value targets of the policy phase, and clones the policy from the start of the phase.
- The average of θ restarts in every policy phase, because θ changes a lot between phases.
- With a memory, rows start from the memory states of the actor.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from mmrl import losses
from mmrl._devices import split_rows
from mmrl._dtypes import advance, with_promotion
from mmrl.agents import minibatches
from mmrl.agents.common import Make, Metrics, descend, make_train, rate_at, watch
from mmrl.agents.policies import actor_critic
from mmrl.agents.ppo import about, learner, ppo
from mmrl.agents.settings import count, positive, weight
from mmrl.nets import Distribution

OBSERVES, greedy, loss = ppo.OBSERVES, ppo.greedy, learner.loss


class Config(ppo.Config):
    """Settings of PPG: the settings of PPO, and additional settings of the phases."""

    epochs: int = count(1)  # E_π, passes through the batch for the policy, per iteration
    value_epochs: int = count(1)  # E_V, passes through the batch for the value, per iteration
    policy_iterations: int = count(8)  # N_π, iterations per phase; must divide `block`
    auxiliary_epochs: int = count(6)  # E_aux, passes through the rollouts of a phase
    auxiliary_minibatches: int = count(32)  # minibatches per pass of the auxiliary phase
    block: int = count(8)  # iterations per block; every block ends with an evaluation
    blocks: int = count(40)  # number of evaluations in a run

    auxiliary_rate: float = positive(5e-4)  # constant learning rate of the auxiliary phase
    clone_weight: float = weight(1.0)  # β_clone, weight of KL[π before the phase ‖ π]


class State(eqx.Module):
    """State of a run; pass it to `block` to continue the run."""

    policy: ppo.State
    value: PyTree  # optimizer for the value epochs; None if shared with the policy
    auxiliary: PyTree  # optimizer of the auxiliary phase

    @property
    def net(self) -> Any:
        """Network that acts and is evaluated."""
        return self.policy.net


class AuxiliaryBatch(NamedTuple):
    """Data for the auxiliary phase, [row, time]."""

    state: PyTree  # memory state before each row, [row]
    obs: Float[Array, "row time *obs"]
    begin: Bool[Array, "row time"]
    targets: Float[Array, "row time"]  # targets for both value heads


class Diagnostics(NamedTuple):
    """Metrics of PPO, and means over the gradient steps of auxiliary phases."""

    policy: ppo.Diagnostics
    auxiliary_loss: Float[Array, "*blocks"]  # MSE of the auxiliary value
    value_loss: Float[Array, "*blocks"]  # MSE of the critic
    cloning: Float[Array, "*blocks"]  # KL[π before the phase ‖ π], nats


def check(config: Config, env: Any, params: Any) -> None:
    """Raise `ValueError` for invalid settings; the message suggests a fix."""
    ppo.check(config, env, params)
    if config.shared:
        raise ValueError(
            "`shared` must be False for PPG, which shares features through its auxiliary phases; "
            "got True."
        )
    if config.staleness:
        raise ValueError(
            f"`staleness` must be 0 for PPG; got {config.staleness}. Use PPO for stale rollouts."
        )
    if config.block % config.policy_iterations:
        raise ValueError(
            f"`block` must be a multiple of `policy_iterations` = {config.policy_iterations}, so "
            f"that a block ends with a complete phase; got {config.block}."
        )


@with_promotion
def init(
    config: Config, env: Any, params: Any, key: PRNGKeyArray, make: Make = actor_critic
) -> State:
    """Build the network with `make`, and return the initial state of a run."""
    check(config, env, params)
    policy = ppo.init(config, env, params, key, make)
    if policy.net.critic is None:
        raise ValueError(
            "`make` must build an `ActorCritic` with a separate critic for PPG; got a network "
            "without a critic."
        )
    rows = minibatches.rows(config, policy.net) * config.policy_iterations
    if rows % config.auxiliary_minibatches:
        raise ValueError(
            f"`auxiliary_minibatches` must divide the number of rows in a phase ({rows}); got "
            f"{config.auxiliary_minibatches}. A row is the rollout of one environment, or a "
            "single step if the network has no memory."
        )
    fresh = learner.new(config, policy.net).optimizer
    return State(policy, None if config.value_epochs == config.epochs else fresh, fresh)


@with_promotion
def learn(
    config: Config,
    state: State,
    rollout: learner.Rollout,
    key: PRNGKeyArray,
    measure: ppo.Flag | None = None,
    loss: learner.Loss = learner.loss,
) -> tuple[State, tuple[ppo.Outcome, AuxiliaryBatch]]:
    """Take the gradient steps of one iteration.

    Returns the state, and a pair: the outcome and the data for the auxiliary phase. Each gradient
    step trains policy and value jointly, or the value is trained first and then the policy. `loss`
    is a function with the arguments of `learner.loss`.
    """
    policy, batch, statistics = ppo.prepare(config, state.policy, rollout, key, measure, loss)
    rate = rate_at(config, policy.iteration)
    run = partial(learner.improve, config, batch=batch, rate=rate, loss=loss)
    now, optimizer = policy.learner, state.value
    if optimizer is None:
        now, outcome = run(now, epochs=config.epochs, key=key)
    else:
        value_key, policy_key = jax.random.split(key)
        value = learner.Learner(now.net, optimizer, None)
        value, _ = run(value, epochs=config.value_epochs, key=value_key, terms=("value",))
        now, optimizer = learner.Learner(value.net, now.optimizer, now.average), value.optimizer
        now, outcome = run(now, epochs=config.epochs, key=policy_key, terms=("policy",))
    policy = eqx.tree_at(lambda s: s.learner, policy, now)
    data = AuxiliaryBatch(batch.state, batch.obs, batch.begin, batch.targets)
    return State(policy, optimizer, state.auxiliary), ((*outcome, *statistics), data)


@with_promotion
def iterate(
    config: Config,
    env: Any,
    params: Any,
    state: State,
    measure: ppo.Flag | None = None,
    learn: Callable = learn,
) -> tuple[State, tuple[ppo.Outcome, AuxiliaryBatch]]:
    """Run one iteration of acting and learning, as in PPO.

    Returns the state, and a pair: the outcome and the data for the auxiliary phase.
    """
    act_key, learn_key, key = jax.random.split(state.policy.key, 3)
    policy, rollout = ppo.act(config, env, params, state.policy, act_key)
    state = State(policy, state.value, state.auxiliary)
    state, (outcome, data) = learn(config, state, rollout, learn_key, measure)
    finite = jnp.all(jnp.isfinite(rollout.steps.reward)) & jnp.all(jnp.isfinite(outcome[0]))
    nets = lambda s: (s.policy.learner.net, s.policy.learner.average)  # noqa: E731
    state = watch(state, nets, rollout.steps.obs)
    state = eqx.tree_at(
        lambda s: (s.policy.key, s.policy.iteration), state, (key, advance(policy.iteration))
    )
    return state, ((*outcome, finite), data)


@with_promotion
def auxiliary_loss(
    net: Any, batch: AuxiliaryBatch, before: Distribution, config: Config
) -> tuple[Float[Array, ""], tuple[Float[Array, ""], ...]]:
    """Return the loss of the auxiliary phase, and its three terms.

    ½ MSE of the auxiliary value + ½ MSE of the value + β_clone KL[before ‖ π].
    """
    outputs = jax.vmap(net)(batch.state, batch.obs, batch.begin)[1]
    policy: Any = before
    auxiliary, value = (
        jnp.mean(losses.value_loss(v, batch.targets)) for v in (outputs.aux_value, outputs.value)
    )
    cloning = jnp.mean(policy.kl(outputs.policy))
    total = 0.5 * auxiliary + 0.5 * value + config.clone_weight * cloning
    return total, (auxiliary, value, cloning)


@with_promotion
def auxiliary_phase(
    config: Config, state: State, phase_batch: AuxiliaryBatch, key: PRNGKeyArray
) -> tuple[State, tuple[Float[Array, " steps"], ...]]:
    """Take the gradient steps of an auxiliary phase on the rollouts of a phase, [row, time].

    Returns the state, and the terms of the loss at every gradient step.
    """
    before = jax.vmap(state.net)(phase_batch.state, phase_batch.obs, phase_batch.begin)[1].policy
    optimizer = learner.optimizer(config, config.auxiliary_rate)

    def step(carry, rows):
        net, inner = carry
        some, policy = minibatches.take((phase_batch, before), rows)
        (_, measures), gradient = eqx.filter_value_and_grad(auxiliary_loss, has_aux=True)(
            net, some, policy, config
        )
        return descend(optimizer, net, inner, gradient), measures

    orders = minibatches.shuffle(
        key, len(phase_batch.begin), config.auxiliary_minibatches, config.auxiliary_epochs
    )
    (net, inner), measures = jax.lax.scan(step, (state.net, state.auxiliary), orders)
    state = eqx.tree_at(lambda s: (s.policy.learner.net, s.auxiliary), state, (net, inner))
    return state, measures


@with_promotion
def phase(
    config: Config,
    env: Any,
    params: Any,
    state: State,
    measure: ppo.Flag = False,
    learn: Callable = learn,
) -> tuple[State, tuple[ppo.Outcome, tuple[Float[Array, " steps"], ...]]]:
    """Run a policy phase and an auxiliary phase; return the state and both outcomes.

    With `noise_scale`, the gradient noise is measured in the last iteration if `measure` is True.
    """
    if config.proximal == "ewma":
        average = learner.restart(state.net)
        state = eqx.tree_at(lambda s: s.policy.learner.average, state, average)
    state, (outcome, data) = jax.lax.scan(
        lambda s, last: iterate(config, env, params, s, last & measure, learn),
        state,
        ppo.ends(config.policy_iterations),
    )
    key, aux_key = jax.random.split(state.policy.key)
    state = eqx.tree_at(lambda s: s.policy.key, state, key)
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), data)
    rows = split_rows(rows, "The number of rollouts in an auxiliary phase")
    state, measures = auxiliary_phase(config, state, rows, aux_key)
    return state, (outcome, measures)


@with_promotion
def block(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, Metrics]:
    """Run `config.block` iterations, grouped into phases, then evaluate the greedy policy.

    `learn` takes all gradient steps of an iteration. For a custom loss, pass `partial(ppg.learn,
    loss=custom)`.
    """
    phases = config.block // config.policy_iterations
    state, (outcome, measures) = jax.lax.scan(
        lambda s, last: phase(config, env, params, s, last, learn), state, ppo.ends(phases)
    )
    policy, metrics = ppo.evaluate(config, env, params, state.policy, outcome)
    diagnostics = Diagnostics(metrics.diagnostics, *map(jnp.mean, measures))
    metrics = eqx.tree_at(lambda m: m.diagnostics, metrics, diagnostics)
    return State(policy, state.value, state.auxiliary), metrics


train = make_train(check, init, block, actor_critic, learn)


def label(config: Config) -> tuple[str, str]:
    """Return a description and a folder name for runs with these settings."""
    words, name = about.label(config)
    return f"{words}, phases of {config.policy_iterations}", name.replace("ppo", "ppg", 1)


SMALL: dict[str, Any] = {"policy_iterations": 2, "auxiliary_minibatches": 2}
PAPERS = about.PPG
