"""Reference implementations of R2D2's computations with loops, and a random environment."""

import dataclasses
import functools
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import rlax
from flax import struct
from gymnax.environments import environment, spaces

from mmrl.agents import r2d2
from mmrl.course import plain
from mmrl.nets import Net
from mmrl.replay import sequences
from mmrl.rollout import Transition

OBS, ACTIONS, LONGEST, DEPTH, TAGS = 3, 4, 14, 120, 500
EPS = 3e-3  # ε of value rescaling, which differs from its default
# Random numbers come from a table, because compiling a sampler would take longer than all the rest.
NOISE = np.float32(np.random.default_rng(0).normal(size=(TAGS, LONGEST + 1, 1 + OBS)))


@struct.dataclass
class State(environment.EnvState):
    time: jax.Array
    tag: jax.Array


class Noise(environment.Environment):
    """Environment with random observations and rewards, and episodes of 1 to 14 steps.

    The tag of an episode determines its length and whether it is terminated or truncated.
    """

    @property
    def default_params(self):
        return environment.EnvParams(max_steps_in_episode=LONGEST)

    def reset_env(self, key, params):
        state = State(time=jnp.int32(0), tag=jnp.int32(jax.random.bits(key) % TAGS))
        return self.noise(state)[1:], state

    def step_env(self, key, state, action, params):
        reward = 3 * self.noise(state)[0] + action
        state = state.replace(time=state.time + 1)
        terminated = self.is_terminated(state, params)
        return self.noise(state)[1:], state, reward, terminated, {}

    def noise(self, state):
        return jnp.asarray(NOISE)[state.tag, state.time]

    def is_terminated(self, state, params):
        return (state.time > state.tag % LONGEST) & (state.tag // LONGEST % 2 == 1)

    def is_truncated(self, state, params):
        return (state.time > state.tag % LONGEST) & (state.tag // LONGEST % 2 == 0)

    def action_space(self, params=None):
        return spaces.Discrete(ACTIONS)

    def observation_space(self, params):
        return spaces.Box(-jnp.inf, jnp.inf, (OBS,), jnp.float32)


ENV = Noise()
PARAMS = ENV.default_params
CONFIG = dataclasses.replace(plain.R2D2,
    memory_sizes=(("state_size", 4),), width=8, length=4, overlap=2, burn_in=4, n_step=3,
    environments=3, rollout=30, capacity=3 * DEPTH, gamma=0.9, reward_scale=2.0, rescale_eps=EPS,
)  # fmt: skip


class Game(NamedTuple):
    """Steps of two rollouts by an agent that does not learn."""

    state: r2d2.State
    steps: Transition  # [worker, time], without the extras of the actors
    states: Any  # states of the memory before each step, computed by `Net.step`
    q: Any
    other: Net  # network with parameters that differ by noise of standard deviation 0.1


@jax.jit
def play(config, key):
    """Act for two rollouts; return the state, and the steps in its buffer and its actors."""
    act = partial(r2d2.act_and_store, config, ENV, PARAMS)
    state, _ = jax.lax.scan(act, r2d2.init(config, ENV, PARAMS, key), jax.random.split(key, 2))
    rings = jax.tree.map(lambda x: x.reshape(3, DEPTH, *x.shape[1:])[:, :60], state.sequences.steps)
    carries = dataclasses.replace(state.tail, extras=None)
    return state, jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), rings, carries)


@eqx.filter_jit
@partial(jax.vmap, in_axes=(None, 0, 0))
def walk(net, obs, begin):
    """Return the state before each step of a tape, and Q, computed step by step."""

    def step(state, x):
        after, q = net.step(state, *x)
        return after, (state, q)

    return jax.lax.scan(step, net.init(), (obs, begin))[1]


def game(memory: str = "lstm") -> Game:
    return _game(memory)


@functools.cache
def _game(memory: str) -> Game:
    state, steps = play(dataclasses.replace(CONFIG, memory=memory), jax.random.key(0))
    assert steps.terminated.sum() > 5 < steps.truncated.sum()
    states, q = walk(state.net, steps.obs, steps.begin)
    rng = np.random.default_rng(9)
    other = jax.tree.map(
        lambda x: x + np.float32(rng.normal(0, 0.1, x.shape)) if eqx.is_inexact_array(x) else x,
        state.net,
    )
    return Game(state, steps, states, np.asarray(q), other)


def everything(storage: sequences.Sequences) -> sequences.Sample:
    """Return all sequences in a storage and a few empty ones, with weights from 0.2 to 1."""
    rows = jnp.nonzero(storage.available, size=112, fill_value=3 * DEPTH)[0].astype(jnp.int32)
    sample = sequences.window(storage, rows, storage.cut.burn_in)
    return sequences.Sample(**vars(sample), weights=jnp.linspace(0.2, 1, 112))


@jax.jit
def store(config, steps, states):
    """Store steps in a replay buffer with the sequence sizes of `config`."""
    example, state = (jax.tree.map(lambda x: jnp.zeros_like(x[0, 0]), t) for t in (steps, states))
    storage = sequences.init(
        example, state, config.capacity, workers=3, length=config.length, overlap=config.overlap,
        burn_in=config.burn_in, tail=config.n_step - 1, alpha=config.alpha,
    )  # fmt: skip
    return sequences.add(storage, steps, states, jnp.abs(steps.reward))


def cut(config: r2d2.Config, memory: str = "lstm") -> sequences.Sample:
    sample = jax.jit(everything)(store(config, game(memory).steps, game(memory).states))
    assert 20 < (sample.rows < 3 * DEPTH).sum() < 112
    return sample


def place(rows: Any, count: int, last: int = 63) -> tuple[Any, Any]:
    """Return the indices [worker, time] of `count` steps of the game that start at each row."""
    worker, first = np.divmod(np.minimum(rows, 3 * DEPTH - 1), DEPTH)
    return worker[:, None], np.minimum(first[:, None] + np.arange(count), last - 1)


@eqx.filter_jit
def stepwise(net, sample, config):
    """Compute Q at each step after the burn-in and at its next observation with `Net.step`."""

    def one(state, obs, next_obs, begin):
        def step(state, x):
            state, q = net.step(state, x[0], x[2])
            return state, (q, net.step(state, x[1], jnp.zeros((), bool))[1])

        split = [jax.tree.map(lambda x, p=part: x[p], (obs, next_obs, begin)) for part in parts]
        if config.start == "zero":
            state = jax.tree.map(lambda x, like: x.astype(like.dtype), net.init(), state)
        state, _ = jax.lax.scan(step, state, split[0])
        return jax.lax.scan(step, jax.lax.stop_gradient(state), split[1])[1]

    parts = slice(0, config.burn_in), slice(config.burn_in, None)
    steps = sample.steps
    return jax.vmap(one)(sample.state, steps.obs, steps.next_obs, sample.begin)


def h(x):
    return np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + EPS * x


def inverse(y):
    root = (np.sqrt(1 + 4 * EPS * (abs(y) + 1 + EPS)) - 1) / (2 * EPS)
    return np.sign(y) * (root**2 - 1)


def reads(config: r2d2.Config, sample: Any, i: int, t: int) -> list[int]:
    """Return the steps whose rewards are in the target of step t, counted from the burn-in."""
    ends = np.flatnonzero(sample.steps.last[i, config.burn_in + t :])
    return list(range(t, t + min([config.n_step, *(ends + 1)])))


def by_loop(config: r2d2.Config, sample: Any, next_q: Any, next_q_target: Any):
    """Compute the targets of the trained steps, and incorrect ones that omit h⁻¹ of q."""
    at = config.burn_in
    targets, naive = np.zeros((2, *next_q.shape[:2]))
    reward, terminated = (x[:, at:] for x in (sample.steps.reward, sample.steps.terminated))
    for i, t in np.argwhere(sample.loss_mask[:, at:]):
        total, gain = 0.0, 1.0
        for k in reads(config, sample, i, t):
            total += gain * config.reward_scale * reward[i, k]
            gain *= 0.0 if terminated[i, k] else config.gamma
        q = next_q_target[i, k, next_q[i, k].argmax()]
        targets[i, t] = h(total + gain * inverse(q)) if config.rescale else total + gain * q
        naive[i, t] = h(total) + gain * q
    return targets, naive


@partial(jax.jit, static_argnames=("n", "rescaling"))
def by_rlax(q, action, q_target, best, reward, discount, *, n, rescaling):
    hyperbolic = (partial(f, eps=EPS) for f in (rlax.signed_hyperbolic, rlax.signed_parabolic))
    pair = rlax.TxPair(*hyperbolic) if rescaling else rlax.IDENTITY_PAIR
    error = partial(rlax.transformed_n_step_q_learning, n=n, tx_pair=pair)
    return jax.vmap(error)(q, action, q_target, best, reward, discount)


def double(tree: Any) -> Any:
    wide = {"f": "f8", "c": "c16"}
    host = jax.device_get(tree)
    return jax.tree.map(lambda x: x.astype(wide.get(x.dtype.kind, x.dtype)), host)


_step = eqx.filter_jit(lambda net, *x: net.step(*x))


def stale_by_loop(memory: str, net: Any, row: int, steps: int) -> list[list[float]]:
    """Compute ΔQ at the first and the last trained step of a sequence, for each of `STARTS`."""
    _, rollout, states, _, _ = game(memory)
    worker, first = divmod(row, DEPTH)

    def values(state, begin):
        results = []
        for t in range(begin, first + steps):
            state, q = _step(net, state, rollout.obs[worker, t], rollout.begin[worker, t])
            results.append(np.asarray(q, float))
        return np.stack(results)[first - begin :][[0, -1]]

    def state_before(t):
        return jax.tree.map(lambda x: x[worker, t], states)

    episode = max(t for t in range(first + 1) if rollout.begin[worker, t])
    prefix = max(episode, first - CONFIG.burn_in)
    empty, truth = net.init(), values(net.init(), episode)
    replays = [values(empty, first), values(empty, prefix), values(state_before(first), first),
               values(state_before(prefix), prefix)]  # fmt: skip
    return [
        [np.linalg.norm(q - p) / abs(p.max()) for q, p in zip(replay, truth, strict=True)]
        for replay in replays
    ]
