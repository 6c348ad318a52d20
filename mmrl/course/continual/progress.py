"""Progress & Compress, which learns a task in one network and then distils it into another.

The method is from Schwarz et al. 2018. It is an alternative to CLEAR that stores no experience and
whose network does not grow, but it must be notified when a task ends.

    progress:  the active column learns by V-trace. An adapter adds features of the knowledge base,
               whose parameters are frozen.
    compress:  at the end of a task, the policy of the active column is distilled into the knowledge
               base by minimizing KL[π_active ‖ π_base], with an online EWC penalty.

Implementation details:
- A column has one body for policy and value, unlike the networks of `clear`.
- There is one adapter, at the head: h = head(f) + α ⊙ U σ(V f_base + c). The paper has one per
  layer.
- The parameters of the active column are kept between tasks. Its adapter and its optimizer are
  reset.
- The base also learns the value of the active column, with the loss ½ (V - V_active)². This is our
  addition.
- While the Fisher information of the base is estimated, the active column still acts through its
  old adapter. The adapter then receives features of the new base, on which it was not trained.
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
from mmrl.agents.checks import seen_picture
from mmrl.agents.clear import clear
from mmrl.agents.clear.clear import Tasks
from mmrl.agents.clear.vtrace import optimizer
from mmrl.agents.common import Make, descend, trainable
from mmrl.agents.settings import count, positive
from mmrl.course.continual import ewc
from mmrl.course.continual.ewc import estimate_fisher, ewc_penalty, update_fisher
from mmrl.envs.wrappers.observation import mask_place
from mmrl.nets import Categorical, LinearHead, Net, Outputs, body


class Config(ewc.Config):
    """Hyperparameters of `ewc` and of the compress phase."""

    compress: int = count(100)  # gradient steps of a compress phase

    compress_rate: float = positive(1e-2)  # learning rate of the compress phase


class Column(eqx.Module):
    """An actor-critic whose policy and value share a body."""

    body: Net
    head: LinearHead

    def init(self) -> PyTree:
        """Return the recurrent state before the first observation."""
        return self.body.init()

    def __call__(
        self, state: PyTree, obs: Float[Array, "time *obs"], begin: Bool[Array, " time"]
    ) -> tuple[PyTree, Outputs]:
        """Return the final state, and the outputs at every step."""
        state, features = self.body(state, obs, begin)
        return state, outputs(jax.vmap(self.read)(features))

    def step(
        self, state: PyTree, obs: Float[Array, "*obs"], begin: Bool[Array, ""]
    ) -> tuple[PyTree, Outputs]:
        """Return the state and the outputs after one observation."""
        state, features = self.body.step(state, obs, begin)
        return state, outputs(self.read(features))

    def read(self, features: Float[Array, " h"]) -> Float[Array, " out"]:
        """Compute logits and value from features."""
        return self.head(jnp.tanh(features))


class Adapter(eqx.Module):
    """Adapter α ⊙ U σ(V f + c) of the base's features f."""

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
    """An active column, a frozen knowledge base, and the adapter between them."""

    active: Column
    base: Column
    adapter: Adapter

    def init(self) -> tuple[PyTree, PyTree]:
        """Return the states of both columns before the first observation."""
        return self.active.init(), self.base.init()

    def __call__(
        self, state: PyTree, obs: Float[Array, "time *obs"], begin: Bool[Array, " time"]
    ) -> tuple[PyTree, Outputs]:
        """Return the final states, and the active column's outputs at every step."""
        state, (own, other) = self._bodies(state, lambda body, s: body(s, obs, begin))
        return state, outputs(jax.vmap(self._read)(own, other))

    def step(
        self, state: PyTree, obs: Float[Array, "*obs"], begin: Bool[Array, ""]
    ) -> tuple[PyTree, Outputs]:
        """Return the states and the active column's outputs after one observation."""
        state, (own, other) = self._bodies(state, lambda body, s: body.step(s, obs, begin))
        return state, outputs(self._read(own, other))

    def lookahead(
        self,
        state: PyTree,
        obs: Float[Array, "time *obs"],
        begin: Bool[Array, " time"],
        next_obs: Float[Array, "time *obs"],
    ) -> tuple[PyTree, Outputs, Outputs]:
        """Return the final states, the outputs at every step, and those after `next_obs`.

        The outputs after `next_obs[t]` are computed as if `next_obs[t]` followed step t.
        """
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
    """Initialize two columns with the encoder, memory, memory sizes and width of a config.

    Raises `ValueError` if the environment has a mask of legal actions.
    """
    if mask_place(env, params):
        raise ValueError(
            f"`env` must not have a mask of legal actions for Progress & Compress; got {env!r}. "
            "Use CLEAR or EWC."
        )
    picture = seen_picture(config, env, params)
    size = 0 if picture else math.prod(env.observation_space(params).shape)
    actions, width = int(env.action_space(params).n), config.width

    def column(key: PRNGKeyArray) -> Column:
        keys = jax.random.split(key)
        sizes: dict[str, Any] = dict(config.memory_sizes)
        kind: dict[str, Any] = {"width": width, "picture": picture, "key": keys[0]}
        net = body(config.memory, size, width, **kind, **sizes)
        head = LinearHead(width, actions + 1, key=keys[1])
        # Small weights make the initial policy almost uniform.
        return Column(net, jax.tree.map(lambda x: 0.1 * x, head))

    active, base, adapter = jax.random.split(key, 3)
    return Columns(column(active), column(base), Adapter(width, actions + 1, adapter))


class State(eqx.Module):
    """State of the agent and its environments, the anchor and the Fisher information."""

    learner: clear.State
    anchor: PyTree  # θ* of the base
    fisher: PyTree  # F of the base, zero until the first task ends

    @property
    def net(self) -> Columns:
        """The columns that act."""
        return self.learner.net

    @property
    def past_net(self) -> Column:
        """The knowledge base, which plays earlier tasks."""
        return self.learner.net.base

    @property
    def tasks(self) -> Tasks | None:
        """The index of each environment's task in the family."""
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
    """Initialize the columns and the environments, with zero Fisher information."""
    check(config, env, params)
    learner = clear.init(config, env, params, key, make, tasks)
    anchor = trainable(learner.net.base)
    return State(learner, anchor, jax.tree.map(jnp.zeros_like, anchor))


def enter(config: Config, env: Any, params: Any, state: State, tasks: Tasks | None = None) -> State:
    """Start new episodes of `tasks`, and keep the columns and the optimizer."""
    learner = clear.enter(config, env, params, state.learner, tasks)
    return dataclasses.replace(state, learner=learner)


def iterate(config: Config, env: Any, params: Any, state: State) -> tuple[State, Any]:
    """Run one iteration of V-trace on the active column (progress)."""
    learner, outcome = clear.iterate(config, env, params, state.learner)
    return dataclasses.replace(state, learner=learner), outcome


def leave(config: Config, env: Any, params: Any, state: State) -> State:
    """Distil the active column into the base (compress), then update the EWC penalty."""
    rule = optimizer(config, config.compress_rate)
    loop_key, adapter_key, key = jax.random.split(state.learner.key, 3)
    words, key_of = _random.as_words(jax.random.split(loop_key, config.compress))

    def step(carry, words):
        base, inner, carries = carry
        learner = dataclasses.replace(state.learner, carries=carries)
        carries, unrolls = clear.act(config, env, params, learner, key_of(words))
        gradient = eqx.filter_grad(distillation)(base, config, unrolls, state)
        return (*descend(rule, base, inner, gradient), carries), None

    base = state.past_net
    start = (base, rule.init(trainable(base)), state.learner.carries)
    (base, _, carries), _ = jax.lax.scan(step, start, words)
    net = eqx.tree_at(lambda n: n.base, state.net, base)
    learner = dataclasses.replace(state.learner, net=net, carries=carries, key=key)
    learner, new = estimate_fisher(config, env, params, learner, base, lambda s: s[1])
    adapter = Adapter(config.width, len(net.adapter.alpha), adapter_key)
    net = eqx.tree_at(lambda n: n.adapter, net, adapter)
    fresh = optimizer(config, 0.0).init(trainable(net))
    learner = dataclasses.replace(learner, net=net, optimizer=fresh)
    return State(learner, trainable(base), update_fisher(config, state.fisher, new))


def distillation(base: Column, config: Config, unrolls: Any, state: State) -> Float[Array, ""]:
    """Compute KL[π_active ‖ π_base] + ½ (V_base - V_active)², averaged, plus the EWC penalty."""
    steps = unrolls.steps
    obs = steps.obs.astype(jnp.float32)
    outputs: Any = jax.vmap(base)(unrolls.state[1], obs, steps.begin)[1]
    apart = losses.policy_cloning(outputs.policy.logits, steps.extras.logits)
    values = losses.value_cloning(outputs.value, steps.extras.value)
    penalty = config.consolidation * ewc_penalty(state.fisher, state.anchor, base)
    return jnp.mean(apart + 0.5 * values) + penalty


def outputs(numbers: Float[Array, "*time out"]) -> Outputs:
    """Split the last axis into logits and one value, which is also the auxiliary value."""
    value = numbers[..., -1]
    return Outputs(Categorical(numbers[..., :-1]), value, value)


def _still(net: Any) -> Any:
    """Stop the gradients of a network's parameters."""
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if eqx.is_array(x) else x, net)
