"""Phasic policy gradient: PPO's iterations, then a phase that trains the policy net on values.

Cobbe et al. 2021; PPG-EWMA of Hilton et al. 2022 with proximal="ewma". Policy and value have
separate networks. They share features because value targets are distilled into the policy net,
through its auxiliary value head, while cloning keeps the policy unchanged.

    phase:  `policy_iterations` iterations of PPO, all of whose rollouts are kept, then
            `auxiliary_epochs` times through them: auxiliary value, value and cloning.

Implementation details
- One Adam serves policy and value if they have equal numbers of epochs; otherwise each has its own,
  and the value's epochs come first.
- The auxiliary phase has a separate Adam, which persists across phases. Its value targets are those
  of the policy phase; the policy that it clones is the one at its start.
- The average of θ restarts with every policy phase, because θ has moved far.
- With a memory, rows start from the states that the actor had.
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
from mmrl._dtypes import advance, promoting
from mmrl.agents.common import Make, Metrics, annealed, descend, training, watch
from mmrl.agents.policies import actor_critic
from mmrl.agents.ppo import about, learner, ppo
from mmrl.agents.settings import count, positive, weight
from mmrl.nets import Distribution

OBSERVES, greedy, loss = ppo.OBSERVES, ppo.greedy, learner.loss


class Config(ppo.Config):
    """Settings of PPO, and of the phases. `mmrl.agents.presets` has the paper's."""

    epochs: int = count(1)  # E_π, per iteration
    value_epochs: int = count(1)  # E_V
    policy_iterations: int = count(8)  # N_π, per phase; divides `block`
    auxiliary_epochs: int = count(6)  # E_aux, per phase
    auxiliary_minibatches: int = count(32)  # per epoch
    block: int = count(8)  # iterations between two evaluations
    blocks: int = count(40)  # evaluations in a whole run

    auxiliary_rate: float = positive(5e-4)  # learning rate of the phase, not annealed
    clone_weight: float = weight(1.0)  # β_clone, of KL[before the phase ‖ π]


class State(eqx.Module):
    """State of a run: pass it to `block` to continue."""

    policy: ppo.State
    value: PyTree  # separate optimizer of the value's epochs, if any
    auxiliary: PyTree  # optimizer of the auxiliary phase

    @property
    def net(self) -> Any:
        """Network that acts and is evaluated."""
        return self.policy.net


class Kept(NamedTuple):
    """Data of the auxiliary phase, [row, time]."""

    state: PyTree  # state of the memory before each row, [row]
    obs: Float[Array, "row time *obs"]
    begin: Bool[Array, "row time"]
    targets: Float[Array, "row time"]  # targets of both values


class Diagnostics(NamedTuple):
    """Means over a block: of PPO's gradient steps, and of the auxiliary phases'."""

    policy: ppo.Diagnostics
    auxiliary_loss: Float[Array, "*blocks"]  # MSE of the policy net's value
    value_loss: Float[Array, "*blocks"]  # MSE of the critic
    cloning: Float[Array, "*blocks"]  # KL[before the phase ‖ π], nats


def check(config: Config, env: Any, params: Any) -> None:
    """Raise `ValueError` for a setting that cannot work; the message names it and the remedy."""
    ppo.check(config, env, params)
    if config.shared:
        raise ValueError("`shared` must be False for PPG, whose phases share features instead.")
    if config.staleness:
        raise ValueError(f"`staleness` must be 0 for PPG; got {config.staleness}. PPO has it.")
    if config.block % config.policy_iterations:
        raise ValueError(
            f"`block` must be a multiple of `policy_iterations`, whole phases; got {config.block} "
            f"and {config.policy_iterations}."
        )


@promoting
def init(
    config: Config, env: Any, params: Any, key: PRNGKeyArray, make: Make = actor_critic
) -> State:
    """Return a fresh network and environments. `make` builds π and V, by default the config's."""
    check(config, env, params)
    policy = ppo.init(config, env, params, key, make)
    if policy.net.critic is None:
        raise ValueError("`make` must build a critic for PPG; got a network that is shared.")
    rows = learner.rows(config, policy.net) * config.policy_iterations
    if rows % config.auxiliary_minibatches:
        raise ValueError(
            f"`auxiliary_minibatches` must divide the rows of a phase, {rows}; got "
            f"{config.auxiliary_minibatches}. Without a memory a row is a step, else a rollout."
        )
    fresh = learner.new(config, policy.net).optimizer
    return State(policy, None if config.value_epochs == config.epochs else fresh, fresh)


@promoting
def learn(
    config: Config,
    state: State,
    rollout: learner.Rollout,
    key: PRNGKeyArray,
    measure: ppo.Flag | None = None,
    loss: learner.Loss = learner.loss,
) -> tuple[State, tuple[ppo.Told, Kept]]:
    """Take the gradient steps of one iteration; return also the data for the auxiliary phase.

    The steps are on policy and value at once, or on the value first. `loss` has the arguments of
    `learner.loss`.
    """
    policy, batch, told = ppo.prepare(config, state.policy, rollout, key, measure, loss)
    rate = annealed(config, policy.iteration)
    run = partial(learner.improve, config, batch=batch, rate=rate, loss=loss)
    now, optimizer = policy.learner, state.value
    if optimizer is None:
        now, outcome = run(now, epochs=config.epochs, key=key)
    else:
        value_key, policy_key = jax.random.split(key)
        judge = learner.Learner(now.net, optimizer, None)
        judge, _ = run(judge, epochs=config.value_epochs, key=value_key, terms=("value",))
        now, optimizer = learner.Learner(judge.net, now.optimizer, now.average), judge.optimizer
        now, outcome = run(now, epochs=config.epochs, key=policy_key, terms=("policy",))
    policy = eqx.tree_at(lambda s: s.learner, policy, now)
    kept = Kept(batch.state, batch.obs, batch.begin, batch.targets)
    return State(policy, optimizer, state.auxiliary), ((*outcome, *told), kept)


@promoting
def iterate(
    config: Config,
    env: Any,
    params: Any,
    state: State,
    measure: ppo.Flag | None = None,
    learn: Callable = learn,
) -> tuple[State, tuple[ppo.Told, Kept]]:
    """Act and learn, as PPO does; return also the data for the auxiliary phase."""
    act_key, learn_key, key = jax.random.split(state.policy.key, 3)
    policy, rollout = ppo.act(config, env, params, state.policy, act_key)
    state = State(policy, state.value, state.auxiliary)
    state, (outcome, kept) = learn(config, state, rollout, learn_key, measure)
    finite = jnp.all(jnp.isfinite(rollout.steps.reward)) & jnp.all(jnp.isfinite(outcome[0]))
    nets = lambda s: (s.policy.learner.net, s.policy.learner.average)  # noqa: E731
    state = watch(state, nets, rollout.steps.obs)
    state = eqx.tree_at(
        lambda s: (s.policy.key, s.policy.iteration), state, (key, advance(policy.iteration))
    )
    return state, ((*outcome, finite), kept)


@promoting
def auxiliary_loss(
    net: Any, kept: Kept, before: Distribution, config: Config
) -> tuple[Float[Array, ""], tuple[Float[Array, ""], ...]]:
    """Return ½ MSE of the auxiliary value + ½ MSE of the value + β_clone KL[before ‖ π]."""
    outputs = jax.vmap(net)(kept.state, kept.obs, kept.begin)[1]
    policy: Any = before
    auxiliary, value = (
        jnp.mean(losses.value_loss(v, kept.targets)) for v in (outputs.aux_value, outputs.value)
    )
    cloning = jnp.mean(policy.kl(outputs.policy))
    total = 0.5 * auxiliary + 0.5 * value + config.clone_weight * cloning
    return total, (auxiliary, value, cloning)


@promoting
def auxiliary_phase(
    config: Config, state: State, kept: Kept, key: PRNGKeyArray
) -> tuple[State, tuple[Float[Array, " steps"], ...]]:
    """Pass `auxiliary_epochs` times through a phase's rollouts, [row, time]."""
    before = jax.vmap(state.net)(kept.state, kept.obs, kept.begin)[1].policy
    optimizer = learner.optimizer(config, config.auxiliary_rate)

    def step(carry, rows):
        net, inner = carry
        some, policy = learner.take((kept, before), rows)
        (_, measures), gradient = eqx.filter_value_and_grad(auxiliary_loss, has_aux=True)(
            net, some, policy, config
        )
        return descend(optimizer, net, inner, gradient), measures

    orders = learner.shuffle(
        key, len(kept.begin), config.auxiliary_minibatches, config.auxiliary_epochs
    )
    (net, inner), measures = jax.lax.scan(step, (state.net, state.auxiliary), orders)
    state = eqx.tree_at(lambda s: (s.policy.learner.net, s.auxiliary), state, (net, inner))
    return state, measures


@promoting
def phase(
    config: Config,
    env: Any,
    params: Any,
    state: State,
    measure: ppo.Flag = False,
    learn: Callable = learn,
) -> tuple[State, tuple[ppo.Told, tuple[Float[Array, " steps"], ...]]]:
    """Run a policy phase and an auxiliary phase; `measure` adds the noise of the last iteration."""
    if config.proximal == "ewma":
        average = learner.restart(state.net)
        state = eqx.tree_at(lambda s: s.policy.learner.average, state, average)
    state, (outcome, kept) = jax.lax.scan(
        lambda s, last: iterate(config, env, params, s, last & measure, learn),
        state,
        ppo.ends(config.policy_iterations),
    )
    key, aux_key = jax.random.split(state.policy.key)
    state = eqx.tree_at(lambda s: s.policy.key, state, key)
    rows = split_rows(jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), kept))
    state, measures = auxiliary_phase(config, state, rows, aux_key)
    return state, (outcome, measures)


@promoting
def block(
    config: Config, env: Any, params: Any, state: State, learn: Callable = learn
) -> tuple[State, Metrics]:
    """Run whole phases of `config.block` iterations, then evaluate the greedy policy.

    `learn` takes the gradient steps of an iteration: yours, or `partial(ppg.learn, loss=yours)`.
    """
    phases = config.block // config.policy_iterations
    state, (outcome, measures) = jax.lax.scan(
        lambda s, last: phase(config, env, params, s, last, learn), state, ppo.ends(phases)
    )
    policy, metrics = ppo.evaluate(config, env, params, state.policy, outcome)
    diagnostics = Diagnostics(metrics.diagnostics, *map(jnp.mean, measures))
    metrics = eqx.tree_at(lambda m: m.diagnostics, metrics, diagnostics)
    return State(policy, state.value, state.auxiliary), metrics


train = training(check, init, block, actor_critic, learn)


def label(config: Config) -> tuple[str, str]:
    """Return what distinguishes this run from others, in words and as the name of a folder."""
    words, name = about.label(config)
    return f"{words}, phases of {config.policy_iterations}", name.replace("ppo", "ppg", 1)


SMALL: dict[str, Any] = {"policy_iterations": 2, "auxiliary_minibatches": 2}
PAPERS = about.PPG
