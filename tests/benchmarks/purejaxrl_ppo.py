"""PureJaxRL's recurrent PPO, for bench_ppo.py: what it computes, with our network.

After purejaxrl/ppo_rnn.py of https://github.com/luchris429/purejaxrl, commit 31756b1 (2024), which
is no package: a flax network on arrays [time, env], a cell of `flax.linen` in `nn.scan`, an optax
`TrainState`, minibatches of environments. Here the network equals `ActorCritic.make(..., shared)`
with a GRU, layer by layer, and an episode's log is left out.
"""

import mmrl  # noqa: F401, I001  first of all: it sets a flag, and gymnax starts JAX

from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState


class Walk(nn.Module):
    """A GRU over [time, env], which forgets where an episode begins."""

    width: int

    @partial(nn.scan, variable_broadcast="params", split_rngs={"params": False})
    @nn.compact
    def __call__(self, h: Any, inputs: Any) -> tuple[Any, Any]:
        x, begin = inputs
        return nn.GRUCell(self.width)(jnp.where(begin[:, None], 0.0, h), x)


class Net(nn.Module):
    """Logits and the value, of observations [time, env]."""

    width: int
    actions: int

    @nn.compact
    def __call__(self, h: Any, obs: Any, begin: Any) -> tuple[Any, Any, Any]:
        def dense(x: Any) -> Any:
            norm = nn.LayerNorm(epsilon=1e-5, use_scale=False, use_bias=False)
            return nn.leaky_relu(norm(nn.Dense(self.width)(x)))

        x = dense(obs)
        h, y = Walk(self.width)(h, (x, begin))
        y = dense(dense(jnp.concatenate([nn.Dense(self.width)(y), x], axis=-1)))
        out = nn.Dense(self.actions + 1)(y)
        return h, out[..., :-1], out[..., -1]


class Step(NamedTuple):
    """What was seen and done, [time, env]."""

    obs: Any
    begin: Any
    action: Any
    log_prob: Any
    value: Any
    reward: Any


class State(NamedTuple):
    """All that an iteration hands on."""

    learner: TrainState
    env_state: Any
    obs: Any
    begin: Any
    h: Any
    key: Any


def forward(net: Net, params: Any, *inputs: Any) -> Any:
    """State, logits and values."""
    return net.apply(params, *inputs)


def log_prob_of(logits: Any, action: Any) -> Any:
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], axis=-1)[..., 0]


def advantages(c: Any, steps: Step, last_value: Any, last_begin: Any) -> Any:
    """GAE; an episode that was cut is taken for one that ended."""

    def back(carry: Any, step: Step) -> tuple[Any, Any]:
        advantage, value, begin = carry
        more = jnp.where(begin, 0.0, c.gamma)
        advantage = step.reward + more * value - step.value + more * c.lam * advantage
        return (advantage, step.value, step.begin), advantage

    start = (jnp.zeros_like(last_value), last_value, last_begin)
    return jax.lax.scan(back, start, steps, reverse=True, unroll=16)[1]


def loss(params: Any, c: Any, net: Net, h: Any, steps: Step, advantage: Any, targets: Any) -> Any:
    _, logits, value = forward(net, params, h, steps.obs, steps.begin)
    ratio = jnp.exp(log_prob_of(logits, steps.action) - steps.log_prob)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - c.clip, 1 + c.clip) * advantage)
    near = steps.value + jnp.clip(value - steps.value, -c.clip, c.clip)
    error = 0.5 * jnp.maximum((value - targets) ** 2, (near - targets) ** 2)
    entropy = -(jax.nn.softmax(logits) * jax.nn.log_softmax(logits)).sum(-1)
    bonus = c.entropy_weight * entropy.mean()
    return c.value_weight * error.mean() - policy.mean() - bonus


class PPO:
    """`init(key)` -> state, `iterate(state)` -> state, by an `mmrl.agents.ppo.Config`."""

    def __init__(self, config: Any, env_id: str):
        self.config = config
        self.env, self.params = gymnax.make(env_id)
        self.net = Net(config.width, self.env.action_space(self.params).n)

    def init(self, key: Any) -> State:
        c = self.config
        keys = jax.random.split(key, 3)
        obs, env_state = jax.vmap(self.env.reset, (0, None))(
            jax.random.split(keys[0], c.environments), self.params
        )
        h, begin = jnp.zeros((c.environments, c.width)), jnp.ones(c.environments, bool)
        params = self.net.init(keys[1], h, obs[None], begin[None])
        rule = optax.chain(
            optax.clip_by_global_norm(c.max_grad_norm), optax.adam(c.learning_rate, eps=c.adam_eps)
        )
        learner = TrainState.create(apply_fn=self.net.apply, params=params, tx=rule)
        return State(learner, env_state, obs, begin, h, keys[2])

    def act(self, state: State, _: Any) -> tuple[State, Step]:
        key, act_key, env_key = jax.random.split(state.key, 3)
        inputs = state.obs[None], state.begin[None]
        h, logits, value = forward(self.net, state.learner.params, state.h, *inputs)
        action = jax.random.categorical(act_key, logits[0])
        log_prob = log_prob_of(logits[0], action)
        obs, env_state, reward, terminated, truncated, _ = jax.vmap(self.env.step, (0, 0, 0, None))(
            jax.random.split(env_key, len(action)), state.env_state, action, self.params
        )
        step = Step(state.obs, state.begin, action, log_prob, value[0], reward)
        return State(state.learner, env_state, obs, terminated | truncated, h, key), step

    def iterate(self, state: State) -> State:
        c, start = self.config, state.h
        state, steps = jax.lax.scan(self.act, state, None, c.rollout)
        inputs = state.obs[None], state.begin[None]
        _, _, value = forward(self.net, state.learner.params, state.h, *inputs)
        advantage = advantages(c, steps, value[0], state.begin)
        batch = start[None], steps, advantage, advantage + steps.value

        def learn(learner: TrainState, part: Any) -> tuple[TrainState, Any]:
            h, steps, advantage, targets = part
            value, gradient = jax.value_and_grad(loss)(
                learner.params, c, self.net, h[0], steps, advantage, targets
            )
            return learner.apply_gradients(grads=gradient), value

        def epoch(learner: TrainState, key: Any) -> tuple[TrainState, Any]:
            order = jax.random.permutation(key, c.environments).reshape(c.minibatches, -1)
            parts = jax.tree.map(lambda x: jnp.moveaxis(x[:, order], 1, 0), batch)
            return jax.lax.scan(learn, learner, parts)

        key, epoch_key = jax.random.split(state.key)
        learner, _ = jax.lax.scan(epoch, state.learner, jax.random.split(epoch_key, c.epochs))
        return state._replace(learner=learner, key=key)
