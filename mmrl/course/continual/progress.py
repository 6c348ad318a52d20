"""Progress & Compress: learn a task in one column, then distil it into another that forgets slowly.

Schwarz et al. 2018. This rival of CLEAR stores no experience and its network does not grow, but it
must be notified of the boundaries between tasks.

    progress:  the active column learns by V-trace. Through an adapter, it also reads the features
               of the knowledge base, which does not change.
    compress:  at the end of a task, the knowledge base learns the actions of the active column, by
               KL[π_active ‖ π_base] on its steps, held by online elastic weight consolidation.

Implementation details
- Columns have one body for policy and value, unlike the networks of `clear`.
- One adapter feeds the head: h = head(f) + α ⊙ U σ(V f_base + c). The paper has one per layer.
- The active column continues from task to task; only its adapter and its optimizer are reset.
- The base also learns the value of the active column, ½ (V - V_active)², which is our addition.
- While the base's Fisher information is measured, the active column still acts through its old
  adapter, on features of the new base, which differ from those it was trained with.
- Evaluations use the active column on the current task and the knowledge base on all others.
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from mmrl import _random, losses
from mmrl.agents.clear import clear
from mmrl.agents.clear.clear import Tasks
from mmrl.agents.clear.vtrace import optimizer
from mmrl.agents.common import Make, descend, trained
from mmrl.agents.settings import count, positive
from mmrl.course.continual import ewc
from mmrl.course.continual.ewc import estimate_fisher, ewc_penalty, update_fisher
from mmrl.nets import Categorical, LinearHead, Net, Outputs, body


class Config(ewc.Config):
    """Settings of `ewc` and of the compression."""

    compress: int = count(100)  # gradient steps of the base when a task ends

    compress_rate: float = positive(1e-2)  # learning rate in these steps


class Column(eqx.Module):
    """A network obs → body → features → logits and value."""

    body: Net
    head: LinearHead

    def init(self) -> PyTree:
        """The body's state before the first observation."""
        return self.body.init()

    def __call__(
        self, state: PyTree, obs: Float[Array, "time *obs"], begin: Bool[Array, " time"]
    ) -> tuple[PyTree, Outputs]:
        """Return the state after the tape, and the outputs at every step."""
        state, features = self.body(state, obs, begin)
        return state, outputs(jax.vmap(self.read)(features))

    def step(
        self, state: PyTree, obs: Float[Array, "*obs"], begin: Bool[Array, ""]
    ) -> tuple[PyTree, Outputs]:
        """Return the state and outputs after one observation, for acting."""
        state, features = self.body.step(state, obs, begin)
        return state, outputs(self.read(features))

    def read(self, features: Float[Array, " h"]) -> Float[Array, " out"]:
        """Compute logits and value from features."""
        return self.head(jnp.tanh(features))


class Adapter(eqx.Module):
    """The input that the active column takes from the base: α ⊙ U σ(V f + c)."""

    inward: eqx.nn.Linear
    outward: eqx.nn.Linear
    alpha: Float[Array, " out"]

    def __init__(self, width: int, outputs: int, key: PRNGKeyArray):
        keys = jax.random.split(key)
        self.inward = eqx.nn.Linear(width, width, key=keys[0])
        self.outward = eqx.nn.Linear(width, outputs, use_bias=False, key=keys[1])
        self.alpha = jnp.full(outputs, 0.1)

    def __call__(self, features: Float[Array, " h"]) -> Float[Array, " out"]:
        return self.alpha * self.outward(jnp.tanh(self.inward(jnp.tanh(features))))


class Columns(eqx.Module):
    """An active column on top of a knowledge base that receives no gradient."""

    active: Column
    base: Column
    adapter: Adapter

    def init(self) -> tuple[PyTree, PyTree]:
        """Both columns' states before the first observation."""
        return self.active.init(), self.base.init()

    def __call__(
        self, state: PyTree, obs: Float[Array, "time *obs"], begin: Bool[Array, " time"]
    ) -> tuple[PyTree, Outputs]:
        """Return the states after the tape, and the active column's outputs at every step."""
        state, (own, other) = self._bodies(state, lambda body, s: body(s, obs, begin))
        return state, outputs(jax.vmap(self._read)(own, other))

    def step(
        self, state: PyTree, obs: Float[Array, "*obs"], begin: Bool[Array, ""]
    ) -> tuple[PyTree, Outputs]:
        """Return the states and outputs after one observation, for acting."""
        state, (own, other) = self._bodies(state, lambda body, s: body.step(s, obs, begin))
        return state, outputs(self._read(own, other))

    def lookahead(
        self,
        state: PyTree,
        obs: Float[Array, "time *obs"],
        begin: Bool[Array, " time"],
        next_obs: Float[Array, "time *obs"],
    ) -> tuple[PyTree, Outputs, Outputs]:
        """Return the outputs at every step, and at the next step if `next_obs` followed."""
        first, *mine = self.active.body.lookahead(state[0], obs, begin, next_obs)
        second, *other = _still(self.base).body.lookahead(state[1], obs, begin, next_obs)
        now, ahead = (outputs(jax.vmap(self._read)(a, b)) for a, b in zip(mine, other, strict=True))
        return (first, second), now, ahead

    def _bodies(self, state, call):
        first, own = call(self.active.body, state[0])
        second, other = call(_still(self.base).body, state[1])
        return (first, second), (own, other)

    def _read(self, own, other):
        return self.active.read(own) + self.adapter(jax.lax.stop_gradient(other))


def columns(config: Config, env: Any, params: Any, key: PRNGKeyArray) -> Columns:
    """Build two columns of a config's `memory`, `memory_sizes` and `width`; "none" is an `mlp`."""
    size = math.prod(env.observation_space(params).shape)
    actions, width = int(env.action_space(params).n), config.width

    def column(key: PRNGKeyArray) -> Column:
        keys = jax.random.split(key)
        sizes: dict[str, Any] = dict(config.memory_sizes)
        net = body(config.memory, size, width, width=width, key=keys[0], **sizes)
        head = LinearHead(width, actions + 1, key=keys[1])
        # An almost uniform initial policy.
        return Column(net, jax.tree.map(lambda x: 0.1 * x, head))

    active, base, adapter = jax.random.split(key, 3)
    return Columns(column(active), column(base), Adapter(width, actions + 1, adapter))


class State(eqx.Module):
    """The complete state of a run."""

    learner: clear.State
    anchor: PyTree  # θ* of the base
    fisher: PyTree  # F of the base, zero until the first task ends

    @property
    def net(self) -> Columns:
        """The columns that act."""
        return self.learner.net

    @property
    def kept(self) -> Column:
        """The network that plays earlier tasks: the knowledge base."""
        return self.learner.net.base

    @property
    def tasks(self) -> Tasks | None:
        """The task of the family that each environment plays."""
        return self.learner.tasks


check = ewc.check


def init(
    config: Config,
    env: Any,
    params: Any,
    key: PRNGKeyArray,
    make: Make = columns,
    tasks: Tasks | None = None,
) -> State:
    """Build new columns and environments."""
    check(config, env, params)
    learner = clear.init(config, env, params, key, make, tasks)
    anchor = trained(learner.net.base)
    return State(learner, anchor, jax.tree.map(jnp.zeros_like, anchor))


def enter(config: Config, env: Any, params: Any, state: State, tasks: Tasks | None = None) -> State:
    """Start new episodes of other `tasks`; keep the rest of the agent."""
    learner = clear.enter(config, env, params, state.learner, tasks)
    return dataclasses.replace(state, learner=learner)


def iterate(config: Config, env: Any, params: Any, state: State) -> tuple[State, Any]:
    """Progress: act and learn with the active column."""
    learner, outcome = clear.iterate(config, env, params, state.learner)
    return dataclasses.replace(state, learner=learner), outcome


def leave(config: Config, env: Any, params: Any, state: State) -> State:
    """Compress: distil the active column into the base, then estimate which parameters mattered."""
    rule = optimizer(config, config.compress_rate)
    loop_key, adapter_key, key = jax.random.split(state.learner.key, 3)
    words, key_of = _random.as_words(jax.random.split(loop_key, config.compress))

    def step(carry, words):
        base, inner, carries = carry
        learner = dataclasses.replace(state.learner, carries=carries)
        carries, unrolls = clear.act(config, env, params, learner, key_of(words))
        gradient = eqx.filter_grad(distillation)(base, config, unrolls, state)
        return (*descend(rule, base, inner, gradient), carries), None

    base = state.kept
    start = (base, rule.init(trained(base)), state.learner.carries)
    (base, _, carries), _ = jax.lax.scan(step, start, words)
    net = eqx.tree_at(lambda n: n.base, state.net, base)
    learner = dataclasses.replace(state.learner, net=net, carries=carries, key=key)
    learner, new = estimate_fisher(config, env, params, learner, base, lambda s: s[1])
    adapter = Adapter(config.width, len(net.adapter.alpha), adapter_key)
    net = eqx.tree_at(lambda n: n.adapter, net, adapter)
    fresh = optimizer(config, 0.0).init(trained(net))
    learner = dataclasses.replace(learner, net=net, optimizer=fresh)
    return State(learner, trained(base), update_fisher(config, state.fisher, new))


def distillation(base: Column, config: Config, unrolls: Any, state: State) -> Float[Array, ""]:
    """Compute KL[π_active ‖ π_base] + ½ (V_base - V_active)² on active steps, plus the penalty."""
    steps = unrolls.steps
    obs = steps.obs.astype(jnp.float32)
    said: Any = jax.vmap(base)(unrolls.state[1], obs, steps.begin)[1]
    apart = losses.policy_cloning(said.policy.logits, steps.extras.logits)
    values = losses.value_cloning(said.value, steps.extras.value)
    held = config.consolidation * ewc_penalty(state.fisher, state.anchor, base)
    return jnp.mean(apart + 0.5 * values) + held


def outputs(numbers: Float[Array, "*time out"]) -> Outputs:
    """Split numbers into logits and a value, without an auxiliary value."""
    value = numbers[..., -1]
    return Outputs(Categorical(numbers[..., :-1]), value, value)


def _still(net: Any) -> Any:
    """Return the network with gradients stopped at its parameters."""
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if eqx.is_array(x) else x, net)
